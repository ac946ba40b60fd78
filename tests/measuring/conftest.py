"""What all of these tests need: no time lost to collecting what other tests have loaded."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def nothing_to_collect() -> Iterator[None]:
    """Every measurement begins by collecting garbage; what the test run has loaded so far need not be looked at each time."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
