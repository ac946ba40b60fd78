"""The pages of one run, each with the words that tests/report/test_one_convention.py finds everywhere else."""

from __future__ import annotations

from benchmarks.chromium import Tab

from tests.browser.conftest import Report
from tests.report.one_run import VERDICTS, case_id
from tests.report.test_one_convention import EFFECT

WORDS = {name: words for name, (*_, words) in VERDICTS.items()}
ROW = """return [...document.querySelectorAll('main tr')]
    .find((row) => row.innerText.includes(arguments[0]) && row.querySelector(arguments[1]))"""


def shown(page: Tab, name: str, cell: str) -> str:
    return " ".join(page.run(f"{ROW}?.querySelector(arguments[1]).innerText", f"op/{name}", cell).split())


def test_every_page_has_the_same_words_for_each_pair(page: Tab, report: Report) -> None:
    at = report("one")
    page.visit(at)
    text = " ".join(page.run("return document.querySelector('main').innerText").split())
    assert {name for name in WORDS if WORDS[name] not in text} == set()
    for name, words in WORDS.items():
        fused = f"op/{name} fused"
        assert words in shown(page, fused.removeprefix("op/"), "td.verdict-cell")
    drawn = page.run("return document.querySelector('[data-chart=compare-forest]').textContent")
    assert {name for name in WORDS if WORDS[name] not in drawn} == set()
    page.visit(at + "#/compare")
    for name, words in WORDS.items():
        assert shown(page, name, "td.verdict-cell").startswith(words), name
    page.visit(at + "#/matrix")
    for name, words in WORDS.items():
        assert words in shown(page, name, "td[data-verdict]"), name
        assert page.run(f"{ROW}.querySelector(arguments[1]).dataset.verdict", f"op/{name}", "td[data-verdict]") == VERDICTS[name][3]
    for name, words in WORDS.items():
        page.visit(at + page.run("return Steelyard.caseHref(arguments[0])", case_id(name, "fused")))
        assert words in page.run("return document.querySelector('main .tiles').innerText"), name


def test_no_page_has_an_effect_of_its_own(page: Tab, report: Report) -> None:
    """Whatever reads like an effect is one of the pairs', or a mean over several."""
    for route in ("", "#/compare", "#/matrix"):
        page.visit(report("one") + route)
        text = " ".join(page.run("return document.querySelector('main').innerText").split())
        for words in set(EFFECT.findall(text)) - set(WORDS.values()):
            at = text.index(words)
            assert "mean" in text[max(0, at - 200) : at + len(words) + 40].lower(), (route, words)
