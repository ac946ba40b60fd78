"""One browser per worker, reports made once, and the rule that no page may complain or ask the network."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from benchmarks.chromium import Tab, programs, tab

from tests.browser import reports

CI = bool(os.environ.get("CI"))
Report = Callable[[str], str]
"""The address of a report, by the name of the function that makes it."""


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    """Chromium, or the reason why there is none."""
    if programs() is None:
        reason = "no Chromium with its driver: scripts/chromium.sh installs it, or says why it cannot"
        pytest.fail(reason) if CI else pytest.skip(reason)
    with tab(tmp_path_factory.mktemp("downloads")) as opened:
        yield opened


@pytest.fixture
def page(browser: Tab) -> Iterator[Tab]:
    """The browser in its usual state; afterwards nothing may have been said or asked for."""
    browser.driver.get("about:blank")
    browser.resize(1280)
    browser.appear()
    browser.complaints()
    yield browser
    browser.appear()
    assert browser.complaints() == []


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A report's file, made when it is first asked for."""
    return functools.cache(lambda name: getattr(reports, name)(tmp_path_factory.mktemp(name)))


@pytest.fixture(scope="session")
def report(made: Callable[[str], Path]) -> Report:
    return lambda name: made(name).as_uri()
