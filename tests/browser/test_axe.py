"""Deque's axe, which knows the rules of WCAG 2 better than we do, over one page of every kind; and charts by keyboard.

Contrast is measured by a probe of our own (test_pages.py), as axe cannot tell the ground of most of our text.
"""

from __future__ import annotations

from importlib import resources
from typing import Any

import pytest
from benchmarks.chromium import Tab
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from tests.browser.conftest import Report

AXE = resources.files("axe_core_python").joinpath("axe.min.js")
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]
ASK = """const done = arguments[arguments.length - 1];
axe.run(document, {runOnly: arguments[0], resultTypes: ['violations']})
    .then((found) => done({rules: found.passes.length, violations: found.violations.map(
        (item) => `${item.id} (${item.impact}): ${item.help}: ${item.nodes.map((node) => node.html.slice(0, 200)).join(' | ')}`)}))"""
PAGES = [
    ("grid", "#/overview"),
    ("grid", "#/matrix"),
    *(pytest.param("grid", f"#/{name}", marks=pytest.mark.deep) for name in ("compare?scatter=1", "roofline", "runs")),
    pytest.param("against", "#/history", marks=pytest.mark.deep),
    pytest.param("sweep", "#/sweep", marks=pytest.mark.deep),
]


def asked(page: Tab) -> dict[str, Any]:
    """What axe finds on the page as it is."""
    page.run(AXE.read_text(encoding="utf-8"))
    found: dict[str, Any] = page.driver.execute_async_script(ASK, RULES)
    return found


@pytest.mark.parametrize(("name", "route"), PAGES)
def test_axe_finds_nothing(page: Tab, report: Report, name: str, route: str) -> None:
    page.visit(report(name) + route)
    found = asked(page)
    assert found["violations"] == []
    assert found["rules"] > 20


def test_axe_finds_nothing_on_the_page_of_a_case(page: Tab, report: Report) -> None:
    page.visit(report("grid"))
    page.visit(report("grid") + page.run("return Steelyard.caseHref(Steelyard.doc.cases[1].id)"))
    assert asked(page)["violations"] == []


def test_axe_would_find_something(page: Tab, report: Report) -> None:
    page.visit(report("grid"))
    page.run("""document.querySelector('main').insertAdjacentHTML('beforeend', '<input><img src="data:,"><ul><p>no item</p></ul>')""")
    told = " ".join(asked(page)["violations"])
    assert all(rule in told for rule in ("label", "image-alt", "list"))


POINT = "return document.querySelector('[data-chart=compare-forest] .chart-point').textContent"


def test_every_point_of_a_chart_is_reached_by_keyboard_and_opened(page: Tab, report: Report) -> None:
    page.visit(report("grid") + "#/compare")
    rows = page.run("return Steelyard.doc.comparison.deltas.length")
    reach = page.run(
        "const found = document.querySelector('[data-chart=compare-forest] .chart-points'); found.focus(); return found.tabIndex"
    )
    keys, said = ActionChains(page.driver), []
    for _ in range(rows):
        keys.send_keys(Keys.ARROW_DOWN).perform()
        said.append(page.run(POINT))
        assert page.run("return document.querySelectorAll('.point-now').length") == 1
    assert reach == 0 and len(set(said)) == rows and all("faster [" in words and f"of {rows})" in words for words in said)
    keys.send_keys(Keys.HOME, Keys.ENTER).perform()
    page.drawn()
    assert page.run("return document.querySelector('main').dataset.page") == "case"
    assert page.run("return document.querySelector('main h1').textContent") in said[0]


def test_a_chart_has_no_trap_for_the_keyboard(page: Tab, report: Report) -> None:
    page.visit(report("sweep") + "#/sweep")
    page.run("document.querySelector('.chart-points').focus()")
    ActionChains(page.driver).send_keys(Keys.ARROW_RIGHT, Keys.TAB, Keys.TAB).perform()
    assert page.run("return document.activeElement.matches('.chart-links a')")
    assert page.run("return document.querySelectorAll('.point-now').length") == 0
