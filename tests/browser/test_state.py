"""Filters, sorting and paging work by mouse and by keyboard, and all of it is in the address, so that a view can be sent to somebody."""

from __future__ import annotations

import pytest
from benchmarks.chromium import Tab
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.select import Select

from tests.browser.conftest import Report
from tests.browser.probes import VIEW

ROWS = "return [...document.querySelectorAll('table[data-table=cases] tbody tr[data-key]')].map((row) => row.dataset.key)"
HASH = "return location.hash"
ACTIVE = "return document.activeElement.outerHTML.slice(0, 200)"


def cases(page: Tab) -> list[str]:
    return list(page.run(ROWS))


def filtered(page: Tab, number: int) -> list[str]:
    """The rows, once there are that many."""
    page.until(f"{ROWS}.length === arguments[0]", number)
    return cases(page)


def test_words_find_cases(page: Tab, report: Report) -> None:
    page.visit(report("grid"))
    assert len(cases(page)) == 24
    page.driver.find_element(By.NAME, "q").send_keys("bert")
    assert all("model/bert" in id for id in filtered(page, 8))
    assert "q=bert" in page.run(HASH)
    page.driver.find_element(By.NAME, "q").send_keys(" train")
    assert all("model/bert" in id and id.split(":")[1] == "train" for id in filtered(page, 4))


def test_choices_find_cases_and_can_be_cleared(page: Tab, report: Report) -> None:
    page.visit(report("grid"))
    Select(page.driver.find_element(By.NAME, "status")).select_by_value("oom")
    assert len(filtered(page, 1)) == 1 and "status=oom" in page.run(HASH)
    page.driver.find_element(By.XPATH, "//button[normalize-space()='Clear filters']").click()
    filtered(page, 24)
    assert "status" not in page.run(HASH)


def test_nothing_found_is_said(page: Tab, report: Report) -> None:
    page.visit(report("grid") + "#/overview?q=no-such-case")
    assert cases(page) == []
    assert "No case matches" in page.run("return document.querySelector('table[data-table=cases] tbody').innerText")


@pytest.mark.parametrize("route", [
    "#/overview?q=bert&status=ok&sort=time&dir=desc", "#/compare?verdict=faster", "#/matrix?mode=train", "#/roofline?q=bert", "#/runs",
    "#/history?q=bert&from=2026-02-01&to=2026-03-01", "#/overview?table=none&page=1", "#/compare?scatter=1",
])  # fmt: skip
def test_a_view_is_the_same_after_reloading_and_elsewhere(page: Tab, report: Report, route: str) -> None:
    page.visit(report("nights") + route)
    before = page.run(VIEW)
    page.driver.refresh()
    page.drawn()
    assert page.run(VIEW) == before
    page.driver.get("about:blank")
    page.visit(report("nights") + before[0])
    assert page.run(VIEW) == before


def test_back_and_forward_walk_through_the_views(page: Tab, report: Report) -> None:
    page.visit(report("grid"))
    views = [page.run(VIEW)]
    for step in ("return document.querySelector('[data-sort=time]')", "return document.querySelector('nav a[href^=\"#/matrix\"]')"):
        page.run(step).click()
        page.drawn()
        views.append(page.run(VIEW))
    page.visit(report("grid") + page.run("return document.querySelector('main a[href^=\"#/case/\"]').getAttribute('href')"))
    views.append(page.run(VIEW))
    assert len({view[0] for view in views}) == 4
    for view in reversed(views[:-1]):
        page.driver.back()
        page.until("return location.hash === arguments[0] && document.querySelector('main').dataset.drawn === 'yes'", view[0])
        assert page.run(VIEW) == view
    for view in views[1:]:
        page.driver.forward()
        page.until("return location.hash === arguments[0] && document.querySelector('main').dataset.drawn === 'yes'", view[0])
        assert page.run(VIEW) == view


def times(page: Tab) -> list[float]:
    known = page.run("return Object.fromEntries(Steelyard.doc.cases.map((item) => [item.id, item.metrics.time?.[0] ?? null]))")
    return [known[id] for id in cases(page)]


def test_a_column_sorts_both_ways_and_says_so(page: Tab, report: Report) -> None:
    page.visit(report("grid"))
    sorted_ = "return document.querySelector('[data-sort=time]').closest('th').getAttribute('aria-sort')"
    seen = []
    for _ in range(2):
        page.run("return document.querySelector('[data-sort=time]')").click()
        page.drawn()
        found = times(page)
        sound = [value for value in found if value is not None]
        assert None not in found[: len(sound)]
        assert sound == sorted(sound, reverse=page.run(sorted_) == "descending")
        seen.append(page.run(sorted_))
    assert set(seen) == {"ascending", "descending"}


def test_every_column_sorts_without_losing_a_row(page: Tab, report: Report) -> None:
    page.visit(report("grid"))
    all_cases = set(cases(page))
    keys = page.run("return [...document.querySelectorAll('table[data-table=cases] [data-sort]')].map((item) => item.dataset.sort)")
    assert len(keys) >= 4
    for key in keys:
        page.run('return document.querySelector(`table[data-table=cases] [data-sort="${CSS.escape(arguments[0])}"]`)', key).click()
        page.drawn()
        assert set(cases(page)) == all_cases, key
        assert f"sort={key}" in page.run(HASH)


def press(page: Tab, *keys: str) -> None:
    ActionChains(page.driver).send_keys(*keys).perform()


@pytest.mark.parametrize("width", [1280, 360])
@pytest.mark.parametrize("route", ["", "#/overview", "#/compare", "#/matrix", "#/roofline", "#/history", "#/runs"])
def test_the_first_key_reaches_the_skip_link_from_every_page(page: Tab, report: Report, route: str, width: int) -> None:
    page.resize(width)
    page.visit(report("nights") + route)
    edges = """const of = (item) => item.getBoundingClientRect(), list = document.querySelector('#pages ul');
        const at = of(list.querySelector('[aria-current]')), box = of(list); return [at.left - box.left, box.right - at.right]"""
    assert min(page.run(edges)) > -1, "the page's own name is in view"
    press(page, Keys.TAB)
    assert "Skip to content" in page.run(ACTIVE)


def test_the_first_key_skips_the_navigation(page: Tab, report: Report) -> None:
    page.visit(report("grid"))
    press(page, Keys.TAB)
    assert "Skip to content" in page.run(ACTIVE)
    assert page.run("return document.activeElement.getBoundingClientRect().top >= 0"), "the skip link shows when it has the focus"
    press(page, Keys.ENTER)
    assert page.run("return document.activeElement.id") == "main"
    assert page.run("return document.querySelector('main').dataset.page") == "overview"


def test_the_keyboard_reaches_and_works_the_table(page: Tab, report: Report) -> None:
    page.visit(report("grid"))
    order = []
    for _ in range(80):
        press(page, Keys.TAB)
        order.append(
            page.run("const at = document.activeElement; return at.dataset.sort ? `sort ${at.dataset.sort}` : at.name || at.tagName")
        )
        if order[-1] == "sort time":
            break
    assert order[-1] == "sort time"
    assert order.index("q") < order.index("sort time")
    assert page.run("return getComputedStyle(document.activeElement).outlineStyle") != "none"
    press(page, Keys.ENTER)
    page.until("return location.hash.includes('sort=time')")
    assert page.run("return document.activeElement.dataset.sort") == "time", "the focus stays"
    first = page.run(HASH)
    press(page, Keys.SPACE)
    page.until("return location.hash !== arguments[0]", first)


def test_a_case_opens_by_keyboard_and_its_heading_has_the_focus(page: Tab, report: Report) -> None:
    page.visit(report("grid"))
    page.run("document.querySelector('main a[href^=\"#/case/\"]').focus()")
    press(page, Keys.ENTER)
    page.until("return document.querySelector('main').dataset.page === 'case' && document.querySelector('main').dataset.drawn === 'yes'")
    assert page.run("return document.activeElement.tagName") == "H1"


def test_the_repro_line_is_copied(page: Tab, report: Report) -> None:
    page.visit(report("grid"))
    page.visit(report("grid") + page.run("return Steelyard.caseHref(Steelyard.doc.cases[0].id)"))
    page.tell("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    button = page.driver.find_element(By.CSS_SELECTOR, "button[data-copy]")
    button.click()
    page.until("return arguments[0].textContent === 'Copied'", button)
    copied = page.driver.execute_async_script("navigator.clipboard.readText().then(arguments[0], (error) => arguments[0](String(error)))")
    assert copied == button.get_attribute("data-copy") and copied.startswith("steelyard run ")


def test_the_theme_can_be_chosen_and_charts_follow(page: Tab, report: Report) -> None:
    page.visit(report("grid") + "#/matrix")
    ground = "return getComputedStyle(document.body).backgroundColor"
    light = page.run(ground)
    page.driver.find_element(By.CSS_SELECTOR, "[data-theme-toggle]").click()
    page.until(f"{ground} !== arguments[0]", light)
    page.driver.find_element(By.CSS_SELECTOR, "[data-theme-toggle]").click()
    page.until(f"{ground} === arguments[0]", light)


def test_turning_pages_is_in_the_address(page: Tab, report: Report) -> None:
    page.visit(report("many"))
    first = cases(page)
    page.driver.find_element(By.CSS_SELECTOR, "[aria-label='Next page']").click()
    page.drawn()
    second = cases(page)
    assert "page=2" in page.run(HASH) and not set(first) & set(second)
    page.driver.find_element(By.CSS_SELECTOR, "[aria-label='Previous page']").click()
    page.drawn()
    assert cases(page) == first


def test_ten_thousand_records_are_drawn_a_page_at_a_time(page: Tab, report: Report) -> None:
    page.visit(report("many"))
    assert page.run("return Steelyard.doc.cases.length") == 10_000
    assert 0 < len(cases(page)) <= 100
    assert page.run("return document.querySelectorAll('*').length") < 6_000, "only what can be seen is drawn"
    page.driver.find_element(By.NAME, "q").send_keys("op/gelu n=6400")
    assert all(id.startswith("op/gelu[m=256,n=6400]") for id in filtered(page, 4))
    page.visit(report("many") + "#/overview?status=oom")
    assert "50 of 10" in page.run("return document.querySelector('main [data-count]').textContent")


def test_paper_gets_the_pages_that_were_not_on_screen(page: Tab, report: Report) -> None:
    page.visit(report("many"))
    on_screen = len(cases(page))
    page.run("window.dispatchEvent(new Event('beforeprint'))")
    assert len(cases(page)) > 10 * on_screen
    page.run("window.dispatchEvent(new Event('afterprint'))")
    assert len(cases(page)) == on_screen
