"""One run rendered everywhere says the same: each pair has one verdict and one size, in the same words."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from steelyard.analyze.compare import RunsSide, own_pairs
from steelyard.analyze.gate import gate
from steelyard.codec.policy import Policy
from steelyard.comparing import Weighed
from steelyard.model.pair import weigh
from steelyard.report.charts.matrix import matrix_heat_rows
from steelyard.report.comparison import comparison_table
from steelyard.report.markdown import markdown
from steelyard.report.plots import picture
from steelyard.report.summary import markdown_report
from steelyard.report.text import run_table
from steelyard.report.verdict import verdict_page
from steelyard.report.web.document import document
from steelyard.store.runs import Run, Store
from tests.report.one_run import VERDICTS, one_run

EFFECT = re.compile(r"(?:[\d.]+(?: %|x) (?:slower|faster)|within [\d.]+ %|slower, size unclear|faster, size unclear|unclear) \[[^\]]+\]")
WORDS = {name: words for name, (*_, words) in VERDICTS.items()}


def table(run: Run) -> str:
    return run_table(run.header, run.records, run.pairs, width=140).plain


def compared(run: Run) -> str:
    return comparison_table(own_pairs(RunsSide(run.id, (run,))), width=140).plain


def gated(run: Run) -> str:
    side = RunsSide(run.id, (run,))
    return verdict_page(gate(side, side, Policy()), width=140).plain


def gated_markdown(run: Run) -> str:
    side = RunsSide(run.id, (run,))
    return markdown(gate(side, side, Policy()))


def report_markdown(run: Run) -> str:
    return markdown_report(document([run]))


def forest(run: Run) -> str:
    return picture(document([run]), "svg", "compare-forest")[1].decode()


def python(run: Run) -> str:
    found = [weigh(pair) for pair in run.pairs]
    return "\n".join(repr(Weighed(**{name: getattr(delta, name) for name in delta.__dataclass_fields__})) for delta in found)


@pytest.mark.parametrize("render", [table, compared, python, report_markdown, gated, gated_markdown, forest])
def test_each_rendering_has_the_same_words_for_each_pair(tmp_path: Path, render: Callable[[Run], str]) -> None:
    text = " ".join(render(one_run(Store(tmp_path))).split())
    missing = {name: words for name, words in WORDS.items() if words not in text}
    quiet = {"still"} if render in (gated, gated_markdown) else set()
    assert set(missing) <= quiet, (missing, text)
    others = set(EFFECT.findall(text)) - set(WORDS.values())
    assert all(re.search("mean|together", _around(text, words)) for words in others), (others, text)


def _around(text: str, words: str) -> str:
    """What stands beside an effect; what all cases say is named as such."""
    at = text.index(words)
    return text[max(0, at - 60) : at + len(words) + 40]


def test_the_matrix_says_what_the_pairs_say_and_not_what_the_times_alone_would(tmp_path: Path) -> None:
    made = document([one_run(Store(tmp_path))])
    told = {row["case"].split("/")[1].split("[")[0]: row["text"] for row in matrix_heat_rows(made) if row["text"] != "baseline"}
    assert told == WORDS


def test_data_has_the_figures_of_the_words(tmp_path: Path) -> None:
    made = document([one_run(Store(tmp_path))])
    for delta in made["comparison"]["deltas"]:
        ratio, low, high, verdict, words = VERDICTS[delta["case"].split("/")[1].split("[")[0]]
        assert (delta["verdict"], delta["effect"]) == (verdict, words)
        assert (delta["ratio"], delta["low"], delta["high"]) == pytest.approx((ratio, low, high), rel=1e-5)
