"""A site opens from a disk and from any file server, and its pages lead to each other."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from benchmarks.chromium import Tab
from benchmarks.simulated import many_runs

from steelyard.report.web.site import build_site
from steelyard.store.runs import Store
from tests.browser import made
from tests.browser.conftest import Report
from tests.browser.probes import NAVIGATION, probe
from tests.browser.test_data import untouched
from tests.browser.test_pages import each


class Quiet(SimpleHTTPRequestHandler):
    """A file server that keeps its log to itself."""

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve nights, one grid, one evening of attacks and one that broke off."""
    folder = tmp_path_factory.mktemp("site")
    store = Store(folder / "store")
    many_runs(store, 12)
    made.grid(store, night=20)
    made.hostile(store, night=21)
    made.truncated(store)
    build_site(store, folder / "site", commit_url="https://example.org/c/{commit}")
    return folder / "site"


@pytest.fixture(scope="module")
def server(site: Path) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site))) as running:
        thread = threading.Thread(target=running.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()
        thread.join()


@pytest.fixture(params=["file", pytest.param("http", marks=pytest.mark.deep)])
def front(request: pytest.FixtureRequest, site: Path) -> str:
    """The front page's address, both ways."""
    return f"{request.getfixturevalue('server')}/" if request.param == "http" else (site / "index.html").as_uri()


HREFS = "return Steelyard.doc.runs.map((run) => run.href)"


def test_the_front_page_lists_the_runs_and_leads_to_each(page: Tab, front: str) -> None:
    page.visit(front)
    assert page.run("return document.querySelector('main').dataset.page") == "runs"
    hrefs = page.run(HREFS)
    assert len(hrefs) == 15 and all(hrefs)
    shown = page.run("return [...document.querySelectorAll('main a[href]')].map((item) => item.getAttribute('href'))")
    assert set(hrefs) <= set(shown)
    for href in page.run("return Steelyard.doc.runs.filter((run) => ['grid', 'evil', 'cutrun'].includes(run.id)).map((run) => run.href)"):
        page.visit(front)
        page.run("[...document.querySelectorAll('main a[href]')].find((item) => item.getAttribute('href') === arguments[0]).click()", href)
        page.until(
            "return location.pathname.endsWith(arguments[0].split('/').pop()) || location.pathname.includes(arguments[0].split('/')[0])",
            href,
        )
        page.drawn()
        assert page.run("return Steelyard.doc.cases.length") > 0
        untouched(page, href)


def test_every_page_of_the_site_is_as_good_as_a_report(page: Tab, front: str) -> None:
    page.visit(front)
    for address in (front, *(page.run("return [new URL(arguments[0], location.href).href]", page.run(HREFS)[12]))):
        for route in each(page, address):
            assert page.run(probe("accessible")) == [], route
            assert page.run(probe("no_answers")) == [], route
            assert page.complaints() == [], route


def test_commits_lead_to_the_project(page: Tab, front: str) -> None:
    page.visit(front)
    links = "[...document.querySelectorAll('main code a')].map((item) => [item.href, item.textContent])"
    found = page.run(f"return {links}")
    assert len(found) >= 12 and all(address.startswith(f"https://example.org/c/{text}") for address, text in found)


def test_a_run_page_leads_back(page: Tab, front: str) -> None:
    page.visit(front)
    run = page.run("return new URL(arguments[0], location.href).href", page.run(HREFS)[0])
    page.visit(run)
    assert page.run(NAVIGATION)
    back = page.run(
        'return [...document.querySelectorAll(\'header a[href*="index.html"], nav a[href*="index.html"]\')].map((item) => item.href)'
    )
    assert back, "a link to the front page"
    page.visit(back[0])
    assert page.run("return document.querySelector('main').dataset.page") == "runs"


def test_the_history_of_all_runs_is_on_the_front_page(page: Tab, front: str, report: Report) -> None:
    page.visit(f"{front}#/history")
    assert page.run("return document.querySelector('main').dataset.page") == "history"
    assert page.run("return Steelyard.doc.history.series.length") >= 8


def test_tiles_share_one_scale_and_mark_changes_and_what_lies_beyond(page: Tab, report: Report) -> None:
    page.visit(report("nights") + "#/history")
    series = page.run("return Steelyard.doc.history.series.length")
    assert page.run("return document.querySelectorAll('.series-tile').length") == series
    changed, beyond = "document.querySelectorAll('.series-tile:has(.spark-change)')", "document.querySelectorAll('.tile-out')"
    assert page.run(f"return [...{changed}].map((tile) => tile.innerText.includes('slower ['))") == [True]
    assert page.run(f"return {beyond}.length") > 0
    lines = "[...document.querySelectorAll('.series-tile .spark-line')].map((line) => line.getAttribute('points'))"
    heights = f"{lines}.flatMap((points) => points.split(' ').map((at) => Number(at.split(',')[1])))"
    assert page.run(f"const all = {heights}; return [Math.min(...all) >= 5, Math.max(...all) <= 39]") == [True, True]
    page.visit(report("nights") + "#/history?workload=model%2Fbert&only=slower")
    assert page.run("return document.querySelectorAll('[data-table=series] tbody tr').length") == 1
