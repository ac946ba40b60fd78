"""Every page of every kind of report opens, fits, and can be read and operated by everybody, in light, in dark and on paper."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import pytest
from benchmarks.chromium import Tab

from tests.browser.conftest import Report
from tests.browser.probes import LINKS, NAVIGATION, probe

EXPECTED = {
    "grid": {"overview", "compare", "matrix", "roofline", "runs"},
    "against": {"overview", "compare", "matrix", "roofline", "history", "runs"},
    "sweep": {"overview", "sweep", "roofline", "runs"},
    "broken": {"overview", "matrix", "sweep", "runs"},
    "nights": {"overview", "compare", "matrix", "roofline", "history", "runs"},
    "recipes": {"overview", "compare", "matrix", "runs"},
    "hostile": {"overview", "compare", "history", "runs"},
    "requests": {"overview", "compare", "matrix", "generation", "sweep", "runs"},
}
CHOSEN = """
const cases = Steelyard.doc.cases, changed = (Steelyard.doc.history?.series || []).find((item) => item.changes.length);
const first = (status) => cases.find((item) => item.status === status)?.id;
const ids = [cases[1]?.id, first('wrong'), first('oom'), changed?.case];
return [...new Set(ids.filter(Boolean))].map((id) => Steelyard.caseHref(id));
"""
SHOWN = "return document.querySelector('main').dataset.page"
CURRENT = "return [...document.querySelectorAll('nav [aria-current=page]')].map((item) => item.getAttribute('href').split(/[/?]/)[1])"
TROUBLE = "return [...document.querySelectorAll('.notice[role=alert]')].map((item) => item.textContent)"
every_report = pytest.mark.parametrize("name", EXPECTED)


@dataclass(frozen=True)
class Seen:
    """One page as it was found: where it was asked for, what it calls itself, and what the probes say."""

    route: str
    shown: str
    title: str
    current: list[str]
    trouble: list[str]
    links: list[str]
    accessible: list[str]
    no_answers: list[str]


Survey = Callable[[str], list[Seen]]


def routes(page: Tab, address: str) -> list[str]:
    """Every page in the navigation, and a few cases."""
    page.visit(address)
    return [*page.run(NAVIGATION), *page.run(CHOSEN)]


def each(page: Tab, address: str) -> Iterator[str]:
    """Go from page to page."""
    for route in routes(page, address):
        page.visit(address + route)
        yield unquote(route)[:60]


@pytest.fixture(scope="module")
def survey(browser: Tab, report: Report) -> Survey:
    """Every page of a report, looked at once."""

    @functools.cache
    def look(name: str) -> list[Seen]:
        browser.complaints()
        return [_seen(browser, route) for route in each(browser, report(name))]

    return look


def _seen(browser: Tab, route: str) -> Seen:
    asked: dict[str, Any] = {"current": CURRENT, "links": LINKS, "accessible": probe("accessible"), "no_answers": probe("no_answers")}
    answers = {name: browser.run(script) for name, script in asked.items()}
    return Seen(route, browser.run(SHOWN), browser.driver.title, trouble=browser.run(TROUBLE) + browser.complaints(), **answers)


@every_report
def test_every_page_opens_without_complaint_and_says_where_one_is(survey: Survey, name: str) -> None:
    found = survey(name)
    assert {seen.route: seen.trouble for seen in found if seen.trouble} == {}
    assert {seen.shown for seen in found} >= EXPECTED[name] | {"case"}
    assert [seen.current for seen in found] == [[seen.shown] for seen in found]
    assert len({seen.title for seen in found}) == len(found)


@every_report
def test_everybody_can_read_and_operate_every_page(survey: Survey, name: str) -> None:
    assert {seen.route: seen.accessible for seen in survey(name) if seen.accessible} == {}


@every_report
def test_no_page_says_what_is_no_answer(survey: Survey, name: str) -> None:
    assert {seen.route: seen.no_answers for seen in survey(name) if seen.no_answers} == {}


@every_report
def test_every_link_inside_leads_somewhere(page: Tab, report: Report, survey: Survey, name: str) -> None:
    links = {link for seen in survey(name) for link in seen.links}
    kinds = {link.removeprefix("#/").partition("?")[0].partition("/")[0]: link for link in links}
    assert "case" in kinds and set(kinds) <= {
        "",
        "overview",
        "compare",
        "case",
        "matrix",
        "generation",
        "sweep",
        "roofline",
        "history",
        "runs",
    }
    for kind, link in kinds.items():
        page.visit(report(name) + link)
        assert page.run(SHOWN) == kind or not kind, link
        assert "No such" not in page.run("return document.querySelector('main h1').textContent"), link
    known = set(page.run("return Steelyard.doc.cases.map((item) => item.id)"))
    cases = {unquote(link.removeprefix("#/case/").partition("?")[0]) for link in links if link.startswith("#/case/")}
    assert cases <= known


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("name", ["grid", "sweep", "nights", "recipes"])
def test_all_text_stands_out_from_its_ground(page: Tab, report: Report, name: str, dark: bool) -> None:
    page.appear(dark=dark)
    faint = []
    for route in each(page, report(name)):
        looked, found = page.run(probe("contrast"), 4.5)
        assert looked > 20
        faint += [f"{route}: {place}" for place in found]
    assert faint == []


@every_report
def test_a_narrow_window_shows_all_of_every_page(page: Tab, report: Report, name: str) -> None:
    page.resize(360)
    found = {route: page.run(probe("overflow")) for route in each(page, report(name))}
    assert {route: wide for route, wide in found.items() if wide} == {}


SEEN = "return [...document.querySelectorAll(arguments[0])].filter((item) => item.checkVisibility()).length"


@pytest.mark.parametrize("name", ["grid", "nights"])
def test_paper_shows_tables_and_no_navigation(page: Tab, report: Report, name: str) -> None:
    for route in each(page, report(name)):
        before = page.run(SEEN, "main table")
        page.appear(media="print", dark=True)
        assert page.run(SEEN, "nav, .skip, [data-theme-toggle], main input, .pager button, [data-copy]") == 0, route
        assert page.run(SEEN, "main table") == before, route
        assert page.run("return getComputedStyle(document.body).backgroundColor") in ("rgb(255, 255, 255)", "rgba(0, 0, 0, 0)"), route
        looked, faint = page.run(probe("contrast"), 4.5)
        assert looked > 15 and faint == [], route
        page.appear()


def test_an_address_that_leads_nowhere_says_so(page: Tab, report: Report) -> None:
    for route in ("#/nowhere", "#/case/nothing", "#/case/%E0%A4%A", "#/overview?page=999&sort=nothing&status=none", "#/%00"):
        page.visit(report("grid") + route)
        assert page.run("return document.querySelector('main').innerText.trim().length") > 20, route
        assert page.run(NAVIGATION), route


def test_the_probes_find_what_they_look_for(page: Tab, report: Report) -> None:
    """A probe that finds nothing anywhere proves nothing."""
    page.visit(report("grid"))
    page.run(
        """const main = document.querySelector('main');
        main.insertAdjacentHTML('beforeend', '<input><button></button><figure></figure><h5>x</h5><p id=main>NaN</p><p>faint and wide</p>');
        Object.assign(main.lastElementChild.style, {width: '4000px', color: '#999'})"""
    )
    told = " ".join(page.run(probe("accessible")))
    assert all(word in told for word in ("no label", "no name", "chart without", "heading from", "two of id main"))
    assert len(page.run(probe("no_answers"))) == 1
    assert any("faint" in place for place in page.run(probe("contrast"), 4.5)[1])
    assert any("ends at" in place for place in page.run(probe("overflow")))


def test_a_page_cannot_ask_the_network_even_if_it_tried(page: Tab, report: Report) -> None:
    page.visit(report("grid"))
    asked = "fetch('https://example.org/').then(() => 'answered', () => 'refused').then(arguments[0])"
    assert page.driver.execute_async_script(asked) == "refused"
    page.run("document.body.append(Object.assign(document.createElement('img'), {src: 'https://example.org/a.png'}))")
    page.run("document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.pwned = 1'}))")
    assert page.run("return window.pwned ?? null") is None
    assert sum("Content Security Policy" in said for said in page.complaints()) >= 3


def test_what_neither_side_supports_is_not_comparable_and_no_failure(page: Tab, report: Report) -> None:
    page.visit(report("against") + "#/compare")
    parts = "[...document.querySelectorAll('main section[aria-label]')]"
    told = dict(page.run(f"return {parts}.map((part) => [part.getAttribute('aria-label'), part.textContent])"))
    assert "unsupported" in told["Not comparable"] and "unsupported" not in told["Failed"]


def test_a_baseline_is_offered_only_where_there_are_speedups_over_it(page: Tab, report: Report) -> None:
    page.visit(report("grid") + "#/matrix")
    offered = page.run("return [...document.querySelectorAll('select[name=baseline] option')].map((item) => item.value)")
    assert set(filter(None, offered)) == set(page.run("return Object.keys(Steelyard.doc.matrix.by_baseline)"))


def test_the_overview_answers_first(page: Tab, report: Report) -> None:
    """The sentence, the picture, the table, and only then which run and machine that was."""
    page.visit(report("grid"))
    parts = "#banner, [data-chart=compare-forest], table[data-table=cases], [data-run], [data-machine]"
    told = page.run("return [...document.querySelectorAll(arguments[0])].map((item) => item.id || Object.keys(item.dataset)[0])", parts)
    assert told == ["banner", "chart", "table", "run", "machine"]


def test_a_slow_reference_is_not_among_the_largest_effects(page: Tab, report: Report) -> None:
    """An interpreter is a thousand times as slow as a compiler by nature, and would fill the picture."""
    page.visit(report("sweep") + "#/matrix")
    others = "doc.matrix.columns.filter((name) => name !== doc.matrix.baseline)"
    drawn = "return document.querySelectorAll('[data-chart=compare-forest]').length"
    for references, charts in (("[]", 1), (others, 0)):
        page.run(f"const doc = Steelyard.doc; doc.matrix.references = {references}; location.hash = '#/matrix'")
        page.run("location.hash = '#/overview'")
        page.run("dispatchEvent(new HashChangeEvent('hashchange'))")
        assert page.run(drawn) == charts, references


@pytest.mark.parametrize("name", ["grid", "against", "recipes"])
def test_the_verdict_is_on_the_screen_of_a_phone(page: Tab, report: Report, name: str) -> None:
    page.resize(390)
    ends = "return [...document.querySelectorAll('td.verdict-cell')].map((cell) => [cell.getBoundingClientRect().right, cell.innerText])"
    for route in ("#/overview", "#/compare", "#/runs"):
        page.visit(report(name) + route)
        found = page.run(ends)
        assert found and [text for right, text in found if right > 390] == [], route


def test_a_phone_names_operator_and_mode_of_each_effect_in_full(page: Tab, report: Report) -> None:
    """What all labels end with, the one stack that was weighed, goes before anything that tells them apart."""
    page.resize(390)
    page.visit(report("grid") + "#/compare")
    names = page.run("return [...document.querySelectorAll('figure[data-chart=compare-forest] .mark-text text')].map((t) => t.textContent)")
    assert {"llama eval", "bert train", "resnet50 train"} <= set(names)


def test_the_first_verdict_of_each_row_of_the_matrix_is_on_the_screen_of_a_phone(page: Tab, report: Report) -> None:
    page.resize(390)
    page.visit(report("grid") + "#/matrix")
    cells = "[...document.querySelectorAll('main tbody tr')].map((row) => row.querySelector('td[data-verdict]'))"
    assert max(page.run(f"return {cells}.map((cell) => cell.getBoundingClientRect().right)")) <= 390
