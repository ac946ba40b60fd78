"""A verdict fits its medium: the terminal's width, a summary's size, and no text from outside is ever obeyed."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from rich.cells import cell_len

from steelyard.analyze.compare import Mean
from steelyard.analyze.gate import KINDS, OUTCOMES, Judged, Judgement
from steelyard.model.record import Figure
from steelyard.report.markdown import MOST_BYTES, markdown
from steelyard.report.verdict import verdict_page

HOSTILE = [
    "<script>alert(1)</script>",
    "![x](https://example.org/x.png)",
    "[click](javascript:alert(1))",
    "`</code>` | <img src=x> \\| <b>",
    "a\n\n# heading\n- item\n```\nout",
    "\x1b[2J\u202eevil @someone #12 www.example.org",
    "``` ~~~ \\` | \\\\| `",
]


def finding(name: str, ratio: float | None = 1.1, kind: str = "regression", reason: str = "", **more: object) -> Judged:
    was, now = Figure(1e-5, "s", "lower", 0.99e-5, 1.01e-5), Figure(1.1e-5, "s", "lower", 1.09e-5, 1.11e-5)
    ends = (ratio, ratio - 0.01, ratio + 0.01, 0.02) if ratio else (None, None, None, None)
    figures = {"was": was, "now": now} if ratio else {}
    verdict = "slower" if kind in ("regression", "slower", "not confirmed") else "same" if kind == "same" else "unclear"
    more = {"counts": True, "paired": True, "verdict": verdict, "repeat": f"steelyard run '{name}'", **figures, **more}
    return Judged(kind, name, name, "time", *ends, reason=reason, **more)  # type: ignore[arg-type]


def judgement(*findings: Judged, code: int = 4) -> Judgement:
    return Judgement(OUTCOMES[code], code, "k3f9", "m2p4", list(findings), {"time": Mean(1.01, 3)}, ["unpaired: a note"])


@pytest.mark.parametrize("width", [40, 72, 100])
def test_every_line_fits_whatever_the_names(width: int) -> None:
    names = [*HOSTILE, "op/" + "x" * 300, "短い名前" * 30]
    found = [finding(name, kind=kind, reason=name) for name in names for kind in KINDS]
    shown = verdict_page(judgement(*found), width=width).plain
    assert max(cell_len(line) for line in shown.splitlines()) <= width
    assert "\x1b" not in shown and "\u202e" not in shown


def test_the_page_says_the_verdict_the_numbers_and_what_is_not_sure() -> None:
    sure, unsure = finding("op/a@torch/eager:eval", 1.2), finding("op/b@torch/eager:eval", 1.1, "not confirmed", paired=False, counts=False)
    quiet = [finding(f"op/{n}@torch/eager:eval", 1.0, "same", counts=False) for n in range(3)]
    shown = verdict_page(judgement(sure, unsure, *quiet)).plain
    assert shown.startswith("▼ regression: 1 slower beyond the margin in 5 comparisons\nbase k3f9 · head m2p4\n")
    assert "▼ op/a@torch/eager:eval" in shown and "20.0 % slower [19.0, 21.0] (margin 2 %)" in shown and "10.00 µs → 11.00 µs" in shown
    assert shown.count("10.0 % slower [9.0, 11.0], not confirmed") == 1
    assert "3 within the margin" in shown and "unpaired: a note" in shown


def test_an_excused_finding_looks_like_none() -> None:
    shown = verdict_page(judgement(finding("op/a@torch/eager:eval", counts=False, excuse="expected: known"), code=0)).plain
    assert "· op/a" in shown and "expected: known" in shown and "▼" not in shown


def test_the_summary_has_the_worst_ten_with_their_commands() -> None:
    found = [finding(f"op/x{n}@torch/eager:eval", 2.0 - n / 100) for n in range(25)]
    text = markdown(judgement(*found))
    assert [f"op/x{n}@" in text for n in range(25)] == [True] * 10 + [False] * 15
    assert "… and 15 more." in text and "steelyard run 'op/x9@torch/eager:eval'" in text


def test_the_summary_stays_within_the_limits() -> None:
    found = [finding("短" * 2000, kind=kind, reason="理" * 9000, excuse="x" * 9000) for kind in KINDS for _ in range(200)]
    whole = markdown(Judgement("regression", 4, "b" * 9999, "h" * 9999, found, {}, ["n" * 9999] * 500))
    assert len(whole.encode()) <= MOST_BYTES
    cut = markdown(judgement(*found), most=3000)
    assert len(cut.encode()) <= 3000 and "cut here" in cut


def tokens(text: str) -> list[str]:
    """Everything a Markdown reader would act on."""
    parsed = MarkdownIt("commonmark", {"linkify": False}).enable("table").parse(text)
    return [token.type for block in parsed for token in (block, *(block.children or []))]


def check_harmless(text: str) -> None:
    judged = judgement(finding(text, reason=text, excuse=text), finding(text, None, "failed", text, counts=False))
    made = markdown(Judgement(**{**vars(judged), "base": text, "notes": [text]}))
    found = tokens(made)
    assert not {"html_block", "html_inline", "image", "link_open", "code_block"} & set(found)
    assert (found.count("heading_open"), found.count("table_open"), found.count("fence")) == (3, 2, 1)
    rows = [line for line in made.splitlines() if line.startswith("| ")]
    assert {line.count("|") for line in rows} <= {3, 7}


@pytest.mark.parametrize("text", HOSTILE)
def test_no_name_or_reason_is_read_as_markdown(text: str) -> None:
    check_harmless(text)


@settings(deadline=None, max_examples=60)
@given(st.text(st.sampled_from("`|\\<>[]()!*_#~-+= \n\tab@&;:/.\"'1"), min_size=1, max_size=40).filter(str.strip))
def test_no_text_at_all_is_read_as_markdown(text: str) -> None:
    check_harmless(text)
