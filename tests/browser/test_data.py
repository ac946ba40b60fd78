"""What leaves a page as a file is what the page shows, and what comes in stays text whatever it pretends to be."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pytest
from benchmarks.chromium import PATIENCE, Tab
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.wait import WebDriverWait

from steelyard.cli.main import main
from steelyard.model import effects
from steelyard.model.pair import judge
from steelyard.report.charts import generation
from steelyard.report.charts.accuracy import accuracy_rows
from tests.browser import made
from tests.browser.conftest import Report
from tests.browser.test_pages import each
from tests.report.charts.test_accuracy import case
from tests.report.charts.test_accuracy import page as recipes_page

FIGURES = "return [...document.querySelectorAll('main figure[data-chart]')]"
FOREIGN = "img, iframe, object, embed, base, form[action], main script, main style, [onerror], [onclick]"


def taken(page: Tab, link: WebElement) -> str:
    """The file that a link gives."""
    for old in page.downloads.iterdir():
        old.unlink()
    page.run("arguments[0].scrollIntoView({block: 'center'})", link)
    link.click()
    file = WebDriverWait(page.driver, PATIENCE, 0.02).until(lambda _: next(_whole(page.downloads), None), "no file came")
    return file.read_text(encoding="utf-8")


def _whole(folder: Path) -> Iterator[Path]:
    for file in folder.iterdir():
        if file.suffix in (".csv", ".json") and file.stat().st_size:
            yield file


def link(page: Tab, kind: str, of: str) -> WebElement:
    found = page.run(f"return document.querySelector(arguments[0])?.querySelector('a[data-data={kind}]')", of)
    assert found, f"{of} has no {kind} link"
    return found  # type: ignore[no-any-return]


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_the_case_table_leaves_with_every_row_that_is_shown(page: Tab, report: Report) -> None:
    page.visit(report("grid") + "#/overview?q=bert")
    box = "main .table-box:has(table[data-table=cases])"
    as_csv, as_json = rows(taken(page, link(page, "csv", box))), json.loads(taken(page, link(page, "json", box)))
    assert len(as_csv) == len(as_json) == 8
    known = page.run("return Steelyard.doc.cases.filter((item) => item.workload === 'model/bert').map((item) => item.metrics.time[0])")
    assert sorted(float(row["time"]) for row in as_csv) == pytest.approx(sorted(known))


@pytest.mark.parametrize("name", ["grid", "sweep", "nights"])
def test_every_chart_leaves_with_its_data(page: Tab, report: Report, name: str) -> None:
    charts = set()
    for route in each(page, report(name)):
        for figure in page.run(FIGURES):
            chart = figure.get_attribute("data-chart")
            if chart in charts:
                continue
            as_csv, as_json = (
                taken(page, page.run(f"return arguments[0].querySelector('a[data-data={kind}]')", figure)) for kind in ("csv", "json")
            )
            told, columns = json.loads(as_json), page.run("return Steelyard.doc.charts[arguments[0]].columns", chart)
            assert told, f"{route}: {chart} has no data"
            assert [set(row) for row in told] == [set(columns)] * len(told), f"{route}: {chart}"
            assert list(rows(as_csv)[0]) == list(columns) and len(rows(as_csv)) == len(told), f"{route}: {chart}"
            charts.add(chart)
    assert len(charts) >= 3


def test_a_chart_can_be_read_as_a_table(page: Tab, report: Report) -> None:
    page.visit(report("grid") + "#/compare")
    figure = page.run(FIGURES)[0]
    page.run("arguments[0].querySelector('button[aria-expanded]').click()", figure)
    shown = page.run("return [...arguments[0].querySelectorAll('.chart-table tbody tr')].length", figure)
    assert shown == len(json.loads(taken(page, page.run("return arguments[0].querySelector('a[data-data=json]')", figure))))
    page.driver.refresh()
    page.drawn()
    assert page.run("return document.querySelectorAll('main figure .chart-table tbody tr').length") == shown


def untouched(page: Tab, route: str) -> None:
    """Nothing from the data became part of the page."""
    assert page.run("return window.pwned ?? null") is None, route
    assert page.run("return [...document.querySelectorAll(arguments[0])].map((item) => item.outerHTML)", FOREIGN) == [], route


def test_names_that_attack_stay_text_on_every_page(page: Tab, report: Report) -> None:
    seen = ""
    for route in each(page, report("hostile")):
        untouched(page, route)
        seen += page.run("return document.querySelector('main').textContent")
    assert made.SCRIPT in seen and made.IMAGE in seen and "</script>" in seen


def test_names_that_attack_stay_text_under_the_pointer(page: Tab, report: Report) -> None:
    hovered = 0
    for route in each(page, report("hostile")):
        for mark in page.run("return [...document.querySelectorAll('main .mark-symbol path, main .mark-rect path')].slice(0, 2)"):
            page.run("arguments[0].scrollIntoView({block: 'center'})", mark)
            ActionChains(page.driver).move_to_element(mark).perform()
            untouched(page, route)
            hovered += bool(page.run("return document.querySelector('#vg-tooltip-element.visible')?.textContent.includes('<script>')"))
    assert hovered, "some tooltip shows a name"


def test_a_name_from_the_address_stays_text(page: Tab, report: Report) -> None:
    evil = page.run("return encodeURIComponent(arguments[0])", made.EVIL)
    search = f"q={evil}&status={evil}&sort={evil}&workload={evil}"
    places = (
        evil,
        f"case/{evil}",
        f"overview?{search}",
        f"compare?verdict={evil}",
        f"matrix?baseline={evil}",
        f"history?case={evil}&from={evil}",
    )
    for route in (f"#/{place}" for place in places):
        page.visit(report("nights") + route)
        untouched(page, route)


def test_what_a_spreadsheet_would_run_is_quoted(page: Tab, report: Report) -> None:
    page.visit(report("grid"))
    rows_: list[dict[str, Any]] = [{"name": text} for text in ("=1+1", "+1", "-1", "@SUM(A1)", 'plain, "quoted"', "two\nlines")]
    text = page.run("return Steelyard.csv(arguments[0], ['name'])", rows_)
    found = [row["name"] for row in rows(text)]
    assert found == ["'=1+1", "'+1", "'-1", "'@SUM(A1)", 'plain, "quoted"', "two\nlines"]
    assert page.run("return Steelyard.csv([{n: -1.5}], ['n'])").splitlines()[1] == "-1.5", "numbers stay numbers"


@pytest.mark.parametrize(("name", "words"), [
    ("without_sidecar", ("samples",)), ("truncated", ("cut off",)), ("from_the_future", ("newer",)), ("mixed_machines", ("machines",)),
])  # fmt: skip
def test_bad_data_is_told_on_the_page(page: Tab, report: Report, name: str, words: tuple[str, ...]) -> None:
    page.visit(report(name))
    told = page.run("const box = document.querySelector('#warnings'); return box?.checkVisibility() ? box.innerText : ''").lower()
    assert all(word in told for word in words), told
    assert page.run("return document.querySelectorAll('table[data-table=cases] tbody tr[data-key]').length") > 5
    assert page.run("return document.querySelector('#banner').dataset.tone") != "good" or name == "without_sidecar"
    for _ in each(page, report(name)):
        pass


def test_good_data_warns_of_nothing(page: Tab, report: Report) -> None:
    page.visit(report("grid"))
    assert page.run("return document.querySelector('#warnings')?.checkVisibility() ?? false") is False


def test_a_real_run_becomes_a_page_by_command(page: Tab, apart: Path) -> None:
    store, file = str(apart / "store"), apart / "report.html"
    axes = ["-a", "noise=[0.0,0.01]", "-V", "eager,half", "--vs", "eager", "--budget", "50ms"]
    assert main(["run", "fake/work", *axes, "--store", store]) == 0
    assert main(["report", "-o", str(file), "--store", store]) == 0
    for route in each(page, file.as_uri()):
        assert page.complaints() == [], route
    page.visit(file.as_uri())
    assert "half against eager: 2" in page.run("return document.querySelector('#banner').innerText")


def test_the_planted_step_is_told_with_its_commits(page: Tab, report: Report) -> None:
    page.visit(report("nights") + "#/history")
    found = page.run(
        "return Steelyard.doc.history.series.flatMap((item) => item.changes.map((change) => [item.case, change.last, change.first]))"
    )
    assert len(found) == 1
    told = page.run("return document.querySelector('main').innerText")
    assert found[0][1][:7] in told and found[0][2][:7] in told


def test_what_a_page_computes_itself_reads_as_the_terminal_writes_it(page: Tab, report: Report) -> None:
    ratios = [0.0001, 0.21, 0.4999, 0.5003, 0.66, 0.667, 0.9, 0.985, 0.9999, 1.0, 1.0004, 1.031, 1.2, 1.4999, 1.5, 2.3, 36123.4]
    spreads = (1.0003, 1.017, 1.6)
    cases = [(ratio, *ends) for ratio in ratios for ends in ((None, None), *((ratio / spread, ratio * spread) for spread in spreads))]
    page.visit(report("nights"))
    for name in ("time", "peak_memory"):
        ask = "return arguments[0].map(([ratio, low, high]) => Steelyard.fmt.change(ratio, low, high, arguments[1]))"
        assert page.run(ask, cases, name) == [effects.change(*item, metric=name) for item in cases]
    shown = page.run("return arguments[0].map((item) => Steelyard.fmt.speedup(...item))", cases)
    assert shown == [effects.speedup(*item) for item in cases]
    whole = [item for item in cases if None not in item]
    ours = [judge(low, high, 0.02) for _, low, high in whole]
    assert page.run("return arguments[0].map((item) => Steelyard.fmt.judged(...item))", whole) == ours
    told = [effects.effect(*item, verdict, margin=0.02) for item, verdict in zip(whole, ours, strict=True)]
    assert page.run("return arguments[0].map((item) => Steelyard.fmt.effect(...item, Steelyard.fmt.judged(...item)))", whole) == told
    assert {"same", "unclear", "slower", "faster"} <= set(ours) and any("size unclear" in text for text in told)


@pytest.mark.parametrize("name", ["grid", "recipes"])
def test_every_page_says_what_the_comparison_says(page: Tab, report: Report, name: str) -> None:
    """The matrix, the overview and the case page repeat the verdict of a pair; none has one of its own."""
    page.visit(report(name) + "#/matrix")
    deltas = page.run("return Steelyard.doc.comparison.deltas.filter((item) => item.metric === 'time' && item.ratio)")
    bases = page.run("return Object.keys(Steelyard.doc.matrix.by_baseline)")
    seen: dict[str, list[str]] = {}
    for base in bases:
        page.visit(report(name) + f"#/matrix?baseline={quote(base)}")
        cells = "[...document.querySelectorAll('main td[data-verdict]')]"
        for text, verdict, address in page.run(
            f"return {cells}.map((cell) => [cell.querySelector('a').innerText, cell.dataset.verdict, cell.querySelector('a').hash])"
        ):
            seen.setdefault(unquote(address.removeprefix("#/case/")), []).append(f"{verdict}: {text.partition(' ')[2]}")
    for delta in deltas:
        assert f"{delta['verdict']}: {delta['effect']}" in seen[delta["case"]], delta["case"]
    page.visit(report(name) + page.run("return Steelyard.caseHref(arguments[0])", deltas[0]["case"]))
    assert deltas[0]["effect"] in page.run("return document.querySelector('main .tiles').innerText")


def test_no_page_says_same_where_no_change_was_found(page: Tab, report: Report) -> None:
    page.visit(report("nights") + "#/history")
    told = page.run("return document.querySelector('[data-table=series]').innerText")
    assert "no change found" in told and "same" not in told


def test_only_noise_grades_that_there_are_are_named(page: Tab, report: Report) -> None:
    page.visit(report("grid"))
    assert "A is quiet, D is noisy" in page.run("return document.querySelector('main').innerText")


def test_compiled_code_is_told_beside_its_time(page: Tab, report: Report) -> None:
    page.visit(report("grid") + "#/overview")
    heads = page.run("return [...document.querySelectorAll('main table thead th')].map((cell) => cell.innerText.trim())")
    assert heads[heads.index("Compiling") :][:2] == ["Compiling", "Code size"]
    sizes = page.run("return [...document.querySelectorAll('main table tbody tr')].map((row) => row.innerText.includes('259 KiB'))")
    assert any(sizes) and not all(sizes)


def test_threads_and_load_are_on_the_page(page: Tab, report: Report) -> None:
    page.visit(report("grid"))
    shown = "return document.querySelector('main').innerText"
    assert "Measured with 1 thread" in page.run(shown)
    page.visit(report("grid") + "#/runs")
    assert "1 thread" in page.run(shown)
    page.visit(report("grid") + page.run("return Steelyard.caseHref(Steelyard.doc.cases[0].id)"))
    assert "threads" in page.run(shown)


def test_the_picture_of_recipes_has_the_rows_that_a_picture_without_a_browser_has(page: Tab, report: Report) -> None:
    figure = "main figure[data-chart=compare-accuracy]"
    page.visit(report("recipes") + "#/compare")
    bases = page.run("return [...document.querySelectorAll('#filter-against option')].map((item) => item.value)")
    assert sorted(bases) == [case("a"), case("b")]
    for base in bases:
        page.visit(f"{report('recipes')}#/compare?against={quote(base, safe='')}")
        found = {row["case"]: row for row in json.loads(taken(page, link(page, "json", figure)))}
        expected = {row["case"]: row for row in accuracy_rows(recipes_page(("a", "b")), case=base)}
        assert set(found) == set(expected)
        for id, row in expected.items():
            assert found[id] == {name: pytest.approx(value) if isinstance(value, float) else value for name, value in row.items()}
        assert "Not drawn: broken (wrong), idle (not applied)." in page.run(f"return document.querySelector('{figure}').textContent")


def test_charts_of_requests_have_the_rows_that_pictures_have(page: Tab, report: Report) -> None:
    page.visit(report("requests") + "#/generation?point=generate/mock+batch%3D1")
    document = page.run("return Steelyard.doc")
    for chart in generation.CHARTS:
        expected = json.loads(json.dumps(chart.rows(document)))
        shown = page.run(f"return document.querySelector('figure[data-chart={chart.name}] a[data-data=json]')")
        assert bool(shown) == bool(expected), chart.name
        if shown:
            told = json.loads(taken(page, shown))
            assert list(map(_compared, told)) == list(map(_compared, expected)) and set(told[0]) == set(chart.columns), chart.name


def _compared(row: dict[str, Any]) -> dict[str, Any]:
    """A row without its words, whose last digit may be rounded either way."""
    return {name: float(f"{value:.9g}") if isinstance(value, float) else value for name, value in row.items() if name != "text"}
