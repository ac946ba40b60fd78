"""One run told by every command and page: the same effect reads the same everywhere."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest

from steelyard.analyze.compare import Mean
from steelyard.cli.main import main
from steelyard.comparing import Weighed
from steelyard.model.pair import UNBOUNDED, Delta, weigh
from steelyard.store.runs import Store
from tests.analyze.saved import case, pair, save

EFFECTS = {
    "slow": (1.04, 0.009, "4.0 % slower [3.1, 4.9]"),
    "quick": (0.969, 0.009, "3.1 % faster [2.2, 4.0]"),
    "twice": (0.5, 0.01, "2.00x faster [1.96, 2.04]"),
    "same": (1.0025, 0.0065, "within 2 % [-0.4, 0.9]"),
    "unsure": (1.0365, 0.0195, "slower, size unclear [1.7, 5.6]"),
    "open": (1.0095, 0.0205, "unclear [-1.1, 3.0]"),
}
PAIRS = {name: pair(case("x"), case("x", name), ratio, half) for name, (ratio, half, _) in EFFECTS.items()}


@pytest.fixture
def store(tmp_path: Path) -> str:
    made = Store(tmp_path / "store")
    save(made, {case("x"): 1e-3, **{case("x", name): 1e-3 * ratio for name, (ratio, _, _) in EFFECTS.items()}}, *PAIRS.values())
    return str(made.root)


@pytest.fixture
def apart(tmp_path: Path) -> str:
    """Two runs of twenty cases in which two changed, each way."""
    made = Store(tmp_path / "apart")
    base = {case(f"x{number}"): 1e-3 * (1 + number) for number in range(20)}
    head = {id: time * (1 + 1e-4 * (index % 3 - 1)) for index, (id, time) in enumerate(base.items())}
    save(made, base, created="2026-01-01T00:00:00Z")
    save(made, {**head, case("x0"): 2e-3, case("x1"): 1e-3}, created="2026-01-02T00:00:00Z")
    return str(made.root)


def told(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What a command prints, however its lines are wrapped."""
    main(words)
    return " ".join(capsys.readouterr().out.split())


def listed(text: str) -> set[str]:
    """The kinds of effect that a text has, in full."""
    return {name for name, (_, _, words) in EFFECTS.items() if words in text}


def test_terminal_json_and_files_have_the_same_words(store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = ["--store", store]
    every = set(EFFECTS)
    assert listed(told(["show", "latest", *place], capsys)) == every
    assert listed(told(["compare", "latest", *place], capsys)) == every
    assert listed(told(["compare", "latest", "--json", *place], capsys)) == every
    verdict, summary = tmp_path / "verdict.json", tmp_path / "gate.md"
    gate = told(["gate", "latest", "-o", str(verdict), "--markdown", str(summary), "--no-summary", *place], capsys)
    assert listed(gate) == every - {"same"} and listed(summary.read_text(encoding="utf-8")) == every - {"same"}
    found = {item["case"]: (item["effect"], item["time_ratio"]) for item in json.loads(verdict.read_text(encoding="utf-8"))["findings"]}
    assert found == {case("x", name): (words, ratio) for name, (ratio, _, words) in EFFECTS.items()}


def test_the_page_and_its_summary_have_the_same_words(store: str, tmp_path: Path) -> None:
    for name in ("report.html", "report.md", "report.json"):
        assert main(["report", "-o", str(tmp_path / name), "--store", store]) == 0
    assert listed((tmp_path / "report.html").read_text(encoding="utf-8")) == set(EFFECTS)
    assert listed((tmp_path / "report.json").read_text(encoding="utf-8")) == set(EFFECTS)
    summary = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert listed(summary) == set(EFFECTS)


def test_the_matrix_of_stacks_says_what_the_comparison_says_and_nothing_of_the_baseline(store: str, tmp_path: Path) -> None:
    assert main(["report", "-o", str(tmp_path / "report.md"), "--store", store]) == 0
    lines = (tmp_path / "report.md").read_text(encoding="utf-8").splitlines()
    row, mean = (next(line for line in lines if line.startswith(start)) for start in ("| `op/x` |", "| geometric mean"))
    assert [cell.strip() for cell in row.strip("|").split("|")][2:] == [words for _, _, words in EFFECTS.values()]
    assert [cell.strip() for cell in mean.strip("|").split("|")][1:] == ["", *(words for _, _, words in EFFECTS.values())]


def test_all_places_count_the_verdicts_alike(store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "-o", str(tmp_path / "report.md"), "--store", store]) == 0
    capsys.readouterr()
    counts = ("1 slower ·", "1 slower, size unclear ·", "2 faster ·", "1 within the margin", "1 unclear")
    for text in (told(["compare", "latest", "--store", store], capsys), (tmp_path / "report.md").read_text(encoding="utf-8")):
        assert [words in text for words in counts] == [True] * len(counts)
    gate = told(["gate", "latest", "--no-summary", "--store", store], capsys)
    assert all(words in gate for words in ("regressions (1)", "slower, size unclear (1)", "unclear (1)", "1 within the margin"))


@pytest.mark.parametrize("name", EFFECTS)
def test_python_and_notebook_have_the_same_words(name: str) -> None:
    delta = weigh(PAIRS[name])
    shown = Weighed(**{field: getattr(delta, field) for field in Delta.__dataclass_fields__}, pair=PAIRS[name])
    words = EFFECTS[name][2]
    assert delta.effect == words and words in str(delta) and words in str(shown)
    assert words in unescape(shown._repr_html_())


@pytest.mark.parametrize(("low", "high"), [(1.3, math.inf), (0.0, 0.7), (0.0, math.inf)])
def test_what_cannot_be_resolved_is_unclear_everywhere(low: float, high: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made, odd = Store(tmp_path / "store"), replace(pair(case("x"), case("x", "odd"), 1.5, 0.1), low=low, high=high)
    save(made, {case("x"): 1e-3, case("x", "odd"): 1.5e-3}, odd)
    place = ["--store", str(made.root)]
    for words in (["show", "latest"], ["show", "latest/2"], ["compare", "latest"], ["gate", "latest", "--no-summary"]):
        shown = told([*words, *place], capsys)
        assert "unclear" in shown and "slower" not in shown and "faster" not in shown, words
        assert UNBOUNDED in shown or words == ["show", "latest"]
    delta = weigh(odd)
    seen = Weighed(**{field: getattr(delta, field) for field in Delta.__dataclass_fields__}, pair=odd)
    assert (seen.verdict, seen.ratio, seen.reason) == ("unclear", None, UNBOUNDED)
    assert UNBOUNDED in str(seen) and UNBOUNDED in seen._repr_html_()


def test_two_runs_made_apart_have_the_same_words_in_compare_gate_and_page(
    apart: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = ["latest~1", "latest", "--store", apart]
    found = json.loads(_printed(["compare", *place, "--json"], capsys))
    effects = {item["head"]: item["effect"] for item in found["deltas"]}
    loose = [effects[case(name)] for name in ("x0", "x1")]
    assert all(words.endswith(", not confirmed") for words in loose) and "slower" in loose[0] and "faster" in loose[1]
    verdict, summary = tmp_path / "verdict.json", tmp_path / "gate.md"
    gate = told(["gate", *place, "-o", str(verdict), "--markdown", str(summary), "--no-summary"], capsys)
    document = json.loads(verdict.read_text(encoding="utf-8"))
    assert {item["case"]: item["effect"] for item in document["findings"]} == effects
    for name in ("report.md", "report.json"):
        assert main(["report", "latest", "--base", "latest~1", "-o", str(tmp_path / name), "--store", apart]) == 0
    pages = [(tmp_path / name).read_text(encoding="utf-8") for name in ("report.md", "report.json")]
    texts = [told(["compare", *place], capsys), gate, summary.read_text(encoding="utf-8"), *pages]
    for words in loose:
        assert [words in text for text in texts] == [True] * len(texts)
    mean = Mean(*found["means"]["time"])
    assert (mean.ratio, mean.low, mean.high) == tuple(document["means"]["time"][name] for name in ("time_ratio", "low", "high"))
    assert mean.words("time").startswith("unclear [")
    assert [mean.words("time") in text for text in texts] == [True] * len(texts)


def _printed(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    main(words)
    return capsys.readouterr().out
