"""A run of requests that several tests look at, made once."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import pytest

from steelyard.store.runs import Store
from tests.report.generated import generated


@pytest.fixture(scope="session")
def make_requests(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Store]:
    """Measures when it is first asked to, inside a test, which has locks of its own."""
    return functools.cache(lambda: generated(tmp_path_factory.mktemp("requests") / "store"))


@pytest.fixture
def requests(apart: Path, make_requests: Callable[[], Store]) -> Store:
    """Six cases whose times are known: reading takes 0.15 s, all of it 1 s and 20 ms a token, and further rows add 10 % each."""
    return make_requests()
