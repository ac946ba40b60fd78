"""Figures and dates that cannot be do not keep a page from being drawn, nor make a chart complain."""

from __future__ import annotations

from pathlib import Path

from benchmarks.chromium import Tab

from steelyard.report.web.gather import ReportRequest, gather
from steelyard.report.web.html import single_page
from steelyard.report.web.site import build_site
from steelyard.store.runs import Store
from tests.browser.test_pages import TROUBLE, each
from tests.report.web.test_bad_data import put, record

TIMES = (float("nan"), float("inf"), -1.0, 0.0, 1e308, 1e-320, 1e-3)


def quiet(page: Tab, path: Path) -> None:
    for route in each(page, path.as_uri()):
        assert page.run(TROUBLE) == [] and page.complaints() == [], f"{path.name} {route}"


def test_times_that_cannot_be_leave_every_page_drawn(page: Tab, tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    for day, id in enumerate(("aaaa", "bbbb"), 1):
        put(store, id, [record(name, n, 1e-3 if day == 1 else time) for n, time in enumerate(TIMES, 1) for name in ("torch", "jax")], day)
    path = tmp_path / "report.html"
    path.write_text(single_page(gather(store, ReportRequest(("aaaa", "bbbb")))), encoding="utf-8")
    quiet(page, path)


def test_a_date_that_is_none_leaves_the_history_drawn(page: Tab, tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    for day, id in enumerate(("aaaa", "bbbb", "cccc"), 1):
        put(store, id, [record()], day, **({"created": "yesterday"} if day > 1 else {}))
    build_site(store, tmp_path / "site")
    for path in sorted((tmp_path / "site").rglob("*.html")):
        quiet(page, path)
