"""Threads and load are told of every run, in every form in which its times are shown, and whatever its file holds."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard import codec
from steelyard.analyze.compare import compare
from steelyard.analyze.conditions import OWN_THREADS, conditions, differing, other_load, seen, side_lines, threads_of, threads_text
from steelyard.analyze.gate import gate
from steelyard.codec.policy import Policy
from steelyard.model.case import Case
from steelyard.model.record import Record
from steelyard.report.comparison import comparison_table
from steelyard.report.detail import record_detail
from steelyard.report.export import cases_csv, document_json, figures_csv, markdown_report
from steelyard.report.markdown import markdown
from steelyard.report.text import run_table
from steelyard.report.verdict import verdict_document, verdict_page
from steelyard.report.web.document import document
from steelyard.store.runs import Run
from tests.analyze.made import RunsSide, record, run
from tests.analyze.saved import pair

BUSY = {"noise": "C", "other_load": 1.25}
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


def busy(name: str = "k3f9", load: float = 2.5, hour: int = 0, **effective: Any) -> Run:
    records = [record(f"op/a[n={n}]@torch/eager:eval:threads=4", effective={**BUSY, **effective}) for n in (1, 2)]
    return run(name, records, hour, machine={"load": [load, 1.0, 1.0]})


SHOWN = {
    "table": lambda found: run_table(found.header, found.records, []).plain,
    "record": lambda found: record_detail(found.records[0], found).plain,
    "Markdown": lambda found: markdown_report(document([found])),
    "CSV": lambda found: " ".join(
        f"{name}={value}" for name, value in next(csv.DictReader(io.StringIO(cases_csv(document([found]))))).items()
    ),
    "figures": lambda found: " ".join(f"{n}={v}" for n, v in next(csv.DictReader(io.StringIO(figures_csv(document([found]))))).items()),
    "JSON": lambda found: document_json(document([found])),
}


@pytest.mark.parametrize("form", SHOWN)
def test_every_form_of_a_run_tells_threads_load_and_noise(form: str) -> None:
    shown = SHOWN[form](busy())
    words = {
        "table": ("4 threads", "load 2.50 at start", "other programs kept 1.2 CPUs busy while measuring", "noise", " C"),
        "record": ("4 threads", "load 2.50 at start", "other programs kept 1.2 CPUs busy while measuring", "noise C"),
        "Markdown": ("4 threads", "load 2.50 at start", "other programs kept 1.2 CPUs busy while measuring", "| C |"),
        "CSV": ("threads=4", "load at start=2.5", "other load (CPUs)=1.25", "noise=C"),
        "figures": ("threads=4", "other load=1.25", "noise=C"),
        "JSON": ('"threads": 4', '"load": 2.5', '"other_load": 1.25', '"noise": "C"', '"4 threads"'),
    }[form]
    assert [word for word in words if word not in " ".join(shown.split())] == []


def test_a_comparison_says_where_its_sides_were_not_alike() -> None:
    quiet, loud = busy("a", load=0.1, other_load=0.0), busy("b", load=3.0, hour=1)
    found = compare(RunsSide("a", (quiet,)), RunsSide("b", (loud,)))
    (note,) = [line for line in found.notes if "conditions" in line]
    assert note == (
        "measured under different conditions: base with load 0.10 at start, up to 0.0 CPUs busy with other programs; "
        "head with load 3.00 at start, up to 1.2 CPUs busy with other programs"
    )
    assert "different conditions" in comparison_table(found).plain
    assert differing([quiet], [replace(quiet)], [quiet.records[0].id]) == []


QUIET = "4 threads · load 0.10 at start · other programs kept 0.0 CPUs busy while measuring · noise A"
LOUD = "4 threads · load 3.00 at start · other programs kept 1.2 CPUs busy while measuring · noise C"
COMPARED = {
    "compare": lambda base, head: comparison_table(compare(base, head)).plain,
    "gate": lambda base, head: verdict_page(gate(base, head, Policy())).plain,
    "Markdown": lambda base, head: markdown(gate(base, head, Policy())),
    "verdict.json": lambda base, head: json.dumps(verdict_document(gate(base, head, Policy())), ensure_ascii=False),
}


def unwrapped(text: str) -> str:
    """The words of a text, wherever its lines end: a dot between two facts is not printed where the line does."""
    return " ".join(text.replace("·", " ").split())


@pytest.mark.parametrize("form", COMPARED)
def test_every_comparison_tells_the_conditions_of_each_side(form: str) -> None:
    quiet, loud = RunsSide("a", (busy("a", load=0.1, other_load=0.0, noise="A"),)), RunsSide("b", (busy("b", load=3.0, hour=1),))
    shown = unwrapped(COMPARED[form](quiet, loud))
    assert unwrapped(QUIET) in shown and unwrapped(LOUD) in shown
    alike = unwrapped(COMPARED[form](quiet, RunsSide("c", (busy("c", load=0.1, other_load=0.0, noise="A", hour=1),))))
    assert unwrapped(f"both with {QUIET}") in alike or form == "verdict.json"


@pytest.mark.parametrize("form", COMPARED)
def test_the_pairs_of_a_run_are_told_with_its_conditions(form: str) -> None:
    whole = busy(load=3.0)
    base, head = (record.id for record in whole.records)
    side = RunsSide("k3f9", (replace(whole, pairs=(pair(base, head, 1.5, 0.01),)),))
    assert unwrapped(LOUD) in unwrapped(COMPARED[form](side, side))


def test_the_conditions_are_data_too() -> None:
    whole = RunsSide("a", (busy("a", load=0.1), busy("a2", load=2.0, hour=1, noise="A", other_load=0.0)))
    found = verdict_document(gate(whole, RunsSide("b", (busy("b", hour=2),)), Policy()))["conditions"]
    assert found["base"] == {
        "text": "4 threads · load 0.10 to 2.00 at start · other programs kept 0.0 to 1.2 CPUs busy while measuring · noise A (2), C (2)",
        "threads": [4], "load_at_start": [0.1, 2.0], "other_load": [0.0, 1.25], "noise": {"A": 2, "C": 2},
    }  # fmt: skip
    assert set(found) == {"base", "head"}


@pytest.mark.parametrize("width", [20, 40, 70, 100])
def test_the_line_fits_and_loses_nothing(width: int) -> None:
    side = RunsSide("a", (busy("a"),))
    shown = comparison_table(compare(side, RunsSide("b", (busy("b", hour=1),))), width=width).plain
    assert max(map(len, shown.splitlines())) <= width
    assert "both with 4 threads load 2.50 at start other programs kept 1.2 CPUs busy while measuring noise C" in unwrapped(shown)


def test_what_another_tool_measured_has_unknown_conditions_and_what_was_not_compared_has_none() -> None:
    other = record("op/a@torch/eager:eval", effective={"tool": "pyperf"})
    sides = [RunsSide(name, (run(name, [other], hour),)) for hour, name in enumerate(("a", "b"))]
    assert side_lines(compare(*sides).conditions) == ["both with conditions unknown"]
    apart = RunsSide("c", (run("c", [record("op/z@torch/eager:eval")], 2),))
    assert compare(sides[0], apart).conditions == {}


@pytest.mark.parametrize(
    ("case", "effective", "threads"),
    [
        (Case("op/a"), {}, 1),
        (Case("op/a", threads=4), {"threads": 2}, 2),
        (Case("command", (("argv", ["x"]),), backend="command"), {}, None),
        (Case("command", (("argv", ["x"]),), backend="command", threads=3), {}, 3),
        (Case("command", (("argv", ["x"]),), backend="command", flags=(("OMP_NUM_THREADS", "1"),)), {}, 1),
        (Case("op/a"), {"tool": "pyperf"}, None),
    ],
)
def test_the_threads_of_a_case_are_those_it_was_given(case: Case, effective: dict[str, Any], threads: int | None) -> None:
    assert threads_of(Record(case.id, case.plain(), "ok", effective=effective)) == threads


def test_threads_are_told_in_words() -> None:
    def of(*cases: Case, **effective: Any) -> str:
        return threads_text([Record(case.id, case.plain(), "ok", effective=effective) for case in cases])

    program = Case("command", (("argv", ["x"]),), backend="command")
    assert of(Case("op/a")) == "1 thread" and of(Case("op/a", threads=2)) == "2 threads"
    assert of(Case("op/a", threads=8), Case("op/a"), Case("op/a", threads=2)) == "1 and 2 and 8 threads"
    assert of(program) == OWN_THREADS and of(program, Case("op/a")) == f"1 thread, {OWN_THREADS}"
    assert of() == of(Case("op/a"), tool="pyperf") == ""


@given(ANYTHING, ANYTHING, ANYTHING)
def test_whatever_a_file_holds_is_told_or_left_out(load: Any, other: Any, threads: Any) -> None:
    odd = record("op/a@torch/eager:eval", effective={"other_load": other, "threads": threads})
    found = run("odd", [odd, replace(odd, case={**odd.case, "threads": threads, "flags": {}})], machine={"load": load})
    words = conditions(found.header.machine, found.records)
    assert all("nan" not in word and "inf" not in word for word in words)
    told = json.loads(codec.encode(seen([found.header.machine], found.records)))
    assert "nan" not in told["text"] and "inf" not in told["text"]
    assert (other_load(odd) is None) or 0 <= other_load(odd) < 1e6
    json.loads(document_json(document([found])))
    run_table(found.header, found.records, [])


def test_two_ways_of_timing_are_said() -> None:
    ours, theirs = busy("a"), busy("b", protocol="fixed")
    asked = {"fixed": {"warmup": 5, "repeats": 20, "clock": "events"}}
    theirs = replace(theirs, records=tuple(replace(item, requested=asked) for item in theirs.records))
    (said,) = differing([ours], [theirs], [item.id for item in ours.records])
    assert said == "timed in different ways: base by blocks of calls until precise enough; head by 5 warm-ups and 20 events calls"
    assert differing([theirs], [theirs], [item.id for item in ours.records]) == []
