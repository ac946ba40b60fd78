"""The power curve counts what happened, keeps it through anything, and slows arms down by real work of their own."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import random
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.powercurve import cells, collect, goals, held, inputs, plot, results, rules, score
from benchmarks.powercurve.cells import Cell
from benchmarks.powercurve.results import Outcome
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from steelyard import registry
from steelyard.machine.processes import children
from steelyard.model.task import Task

ROOT = Path(__file__).parents[2]
EQUAL, SLOWED = Cell(cells.ONE, "adds", cells.QUIET, 0.65, 0), Cell(cells.ONE, "adds", cells.QUIET, 0.65, 5)


def outcome(percent: float = 0, estimate: float = 0.0, half: float = 0.001, kind: str = cells.ONE, **more: Any) -> Outcome:
    """A comparison that found so much with an interval of that half-width."""
    low, high = estimate - half, estimate + half
    judged: dict[str, Any] = {"flag": (low > 0) - (high < 0), "verdict": "same" if max(-low, high) < 0.02 else "slower", "stop": "evidence"}
    whole: dict[str, Any] = {"op": "adds", "env": cells.QUIET, "budget": 0.65, "extra": round(percent), "timed": 0.05, **judged, **more}
    return Outcome(kind=kind, percent=percent, estimate=estimate, low=low, high=high, cpu=0.6, wall=0.7, **whole)


@given(st.integers(0, 300), st.integers(1, 300))
def test_bounds_are_exact(count: int, of: int) -> None:
    rate = score.Rate(min(count, of), of)
    known = stats.binomtest(rate.count, rate.of).proportion_ci(0.95, "exact")
    assert rate.bounds == pytest.approx((known.low, known.high), abs=1e-9)


def test_a_rate_of_nothing_is_no_figure() -> None:
    assert (str(score.Rate(0, 0)), score.Rate(0, 0).bounds) == ("-", (0.0, 1.0))
    assert score.Rate(0, 206).in_full() == "0/206 [0, 1.8 %]"


def test_cells_that_lack_data_are_drawn() -> None:
    wanted, rng = {EQUAL: 10, SLOWED: 4}, random.Random(1)
    assert Counter(cells.draw(wanted, Counter({EQUAL: 9}), 5, rng)) == {EQUAL: 1, SLOWED: 4}
    more = cells.draw(wanted, Counter({EQUAL: 10, SLOWED: 4}), 50, rng)
    assert set(more) == {EQUAL, SLOWED}


def test_one_interpreter_has_one_family_of_kinds() -> None:
    wanted = cells.cpu_plan(cells.HOGS)
    for seed in range(20):
        batch = cells.draw_batch(wanted, Counter(), random.Random(seed))
        family = cells.family_of(batch[0].kind)
        assert {cell.kind for cell in batch} <= set(cells.FAMILIES[family])
        assert len(batch) <= 60
        assert all(cell.env == cells.HOGS for cell in batch)


def test_the_plan_asks_for_what_the_goals_need() -> None:
    wanted = cells.cpu_plan(cells.QUIET)
    equal = [goal for cell, goal in wanted.items() if cell.kind == cells.ONE and not cell.percent]
    assert sum(equal) >= goals.EQUAL_ARMS
    ours = {cell: goal for cell, goal in wanted.items() if cell.kind in cells.OURS and cell.percent}
    assert min(goal for cell, goal in ours.items() if cell.op not in cells.OPERATORS) >= goals.EACH
    apart = [goal for cell, goal in wanted.items() if cell.op in cells.OPERATORS]
    assert sum(apart) >= goals.EQUAL_ARMS
    assert cells.chosen(wanted, ["two-free"], ["adds"]).keys() == {cell for cell in wanted if (cell.kind, cell.op) == ("two-free", "adds")}


def test_what_is_kept_survives_a_torn_line(tmp_path: Path) -> None:
    first, second = outcome(5, 0.05, rules={"asv": (1, 0.1)}), outcome(0, 0.001)
    results.append(tmp_path, "here", first)
    file = tmp_path / results.version(cells.ONE) / "here.jsonl"
    with file.open("a") as stream:
        stream.write('{"kind":"one","op":"ad')
    results.append(tmp_path, "here", second)
    found = list(results.read(tmp_path, [cells.ONE]))
    assert [one.cell for one in found] == [first.cell, second.cell]
    assert found[0].rules == {"asv": [1, 0.1]}
    assert list(results.read(tmp_path, [cells.PYPERF])) == []
    assert list(results.read(tmp_path, [cells.ONE], ["0123456789"])) == []


def test_an_interval_without_an_end_is_kept_as_such() -> None:
    line = replace(outcome(), low=-math.inf, high=math.inf).line()
    kept = Outcome.from_line(line)
    assert kept is not None
    assert (kept.low, kept.high) == (None, None)
    assert next(score.covered(list(score.shots([kept]))))


def test_each_kind_has_the_version_of_its_own_code() -> None:
    kinds = (cells.ONE, cells.MATCHED, cells.GRAPH, cells.PYPERF)
    assert len({results.version(kind) for kind in kinds}) == len(kinds)
    assert results.version(cells.MATCHED) == results.version(cells.FREE)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_every_rule_sees_what_is_plain(seed: int) -> None:
    rng = np.random.default_rng(seed)
    base, head = (level * rng.normal(1, 0.01, 600) for level in (1.0, 1.3))
    assert {name: flag for name, (flag, _) in rules.apply_all(base, head).items()} == dict.fromkeys(rules.RULES, 1)
    back = {name: flag for name, (flag, _) in rules.apply_all(head, base).items()}
    assert back == {name: 0 if name.startswith("pytest") else -1 for name in rules.RULES}
    assert all(estimate == pytest.approx(math.log(1.3), abs=0.01) for _, estimate in rules.apply_all(base, head).values())


def test_rules_have_their_own_thresholds() -> None:
    rng = np.random.default_rng(3)
    base = rng.normal(1, 0.001, 600)
    flags = {name: flag for name, (flag, _) in rules.apply_all(base, 1.005 * base[::-1]).items()}
    assert flags == {"pyperf t-test": 1, "criterion": 0, "google benchmark": 1, "asv": 0, "pytest-benchmark median:5%": 0}


def test_a_row_counts_alarms_catches_and_coverage() -> None:
    equal = [outcome(0, 0.0), outcome(0, 0.0005), outcome(0, 0.004), outcome(0, -0.004)]
    slowed = [outcome(5, math.log(1.05)), outcome(5, math.log(1.05) + 0.0005), outcome(5, 0.0, half=0.01), outcome(5, -0.05)]
    (row,) = score.rows(score.shots(equal + slowed))
    assert (row.false_alarms, row.caught) == (score.Rate(2, 4), {5: score.Rate(2, 4)})
    assert row.same == score.Rate(4, 4)
    assert row.read_back[5] == pytest.approx(statistics_median([0.05, math.expm1(math.log(1.05) + 0.0005), 0.0, math.expm1(-0.05)]))
    assert row.sd == pytest.approx(np.std([0.0, 0.0005, 0.004, -0.004]))
    assert (row.cpu, row.wall, row.decided[5], row.early) == (0.6, 0.7, 0.05, score.Rate(8, 8))


def statistics_median(values: list[float]) -> float:
    return float(np.median(values))


def test_truth_is_the_extra_work_at_its_price() -> None:
    """Turns are calibrated anew in every process: the same percent is another number of turns, and another truth."""
    cost = 0.0004
    made = [outcome(2, math.log1p(turns * cost), op="matmul", extra=turns) for turns in (45, 50, 52, 55, 60)]
    wrong = outcome(2, math.log1p(50 * cost) + 0.002, op="matmul", extra=50)
    assert list(score.covered(list(score.shots([*made, wrong])))) == [True] * 5 + [False]


def test_peers_rules_stand_beside_us_under_their_schedule() -> None:
    ours = outcome(0, 0.0, rules={"asv": (0, 0.01)})
    after = Outcome(cells.SEQUENTIAL, "adds", cells.QUIET, 0.65, 0, rules={"asv": (1, 0.2)})
    timer = Outcome(cells.TIMER, "adds", cells.QUIET, 0.0, 0, estimate=0.3)
    found = {row.method: row.false_alarms for row in score.rows(score.shots([ours, after, timer]))}
    assert found == {
        "steelyard, one process": score.Rate(0, 1), "asv, rule on our blocks": score.Rate(0, 1),
        "asv, rule on A then B": score.Rate(1, 1), "torch Timer as shipped (has no rule)": None,
    }  # fmt: skip


def test_goals_are_reached_missed_or_short_of_data() -> None:
    many = [outcome(0, 0.0)] * 999 + [outcome(0, 0.01)]
    caught = [outcome(1, 0.01, op=op) for op in goals.SHORT] * 60
    missed = [outcome(2, 0.0, half=0.01)] + [outcome(2, 0.02)] * 9
    device = [Outcome(cells.GRAPH, "mm256", cells.GPU, 0.15, 0, flag=0, estimate=sign * 0.002, wall=0.1) for sign in (1, -1)] * 20
    states = {(one.name, one.env): one.state for one in goals.promises(list(score.shots(many + caught + missed + device)))}
    assert states["all CPU ops, one process: false alarms", "quiet"] == "reached"
    assert states["all CPU ops, one process: false alarms", "hogs"] == "no data"
    assert states["adds and matmul, one process, 0.65 s: caught 1 %", "quiet"] == "reached"
    assert states["adds and matmul, one process, 0.65 s: caught 2 %", "quiet"] == "missed so far, 110 more to come"
    assert states["mm256: A/A SD", "gpu"] == "missed"


def test_early_stopping_must_be_by_evidence() -> None:
    late = [outcome(5, 0.05, stop="budget")] * 40 + [outcome(5, 0.05)] * 20
    (found,) = [one for one in goals.promises(list(score.shots(late))) if one.name.startswith("adds, 5 %") and one.env == cells.QUIET]
    assert (found.reached, found.found) == (False, "most did not stop early, n 60")


def test_the_plot_is_whole_and_labelled() -> None:
    made = [outcome(percent, estimate, op=op) for percent, estimate in ((0, 0.0), (1, 0.01), (5, 0.05)) for op in goals.SHORT]
    made += [Outcome(cells.SEQUENTIAL, "adds", cells.QUIET, 0.65, size, rules={"asv": (0, 0.0), "criterion": (1, 0.1)}) for size in (0, 5)]
    picture = ElementTree.fromstring(plot.draw(list(score.shots(made))))
    texts = {"".join(node.itertext()) for node in picture.iter("{http://www.w3.org/2000/svg}text")}
    assert "steelyard, one process, 0.65 s: false alarms 0/2" in texts
    assert "criterion, rule on A then B, 0.65 s: false alarms 1/1" in texts
    assert {"equal: false alarms", "5 % slower"} <= texts
    assert "no comparisons yet" in plot.draw([])


def test_labels_never_lie_on_each_other() -> None:
    placed = sorted(plot._spaced([100.0] * 6 + [369.0] * 6))
    assert all(after - before >= plot.LABEL_GAP - 1e-9 for before, after in pairwise(placed))
    assert placed[-1] <= plot.HEIGHT - plot.BOTTOM


def test_hogs_end_with_the_measurement() -> None:
    before = set(children(os.getpid()))
    with collect.hogs(2):
        started = set(children(os.getpid())) - before
        assert len(started) == 2
    assert not started & set(children(os.getpid()))


def test_a_peer_that_is_not_there_is_said_to_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(cells.MODULES, cells.ASV, "no_such_module")
    assert cells.missing(cells.ASV) == "asv: not installed"
    assert cells.missing(cells.ONE) == ""


@pytest.mark.torch
def test_answers_of_peers_are_read() -> None:
    from benchmarks.powercurve import peers

    assert peers.read_pyperf("Mean +- std dev: [base] 1.00 ms +- 0.01 ms -> [head] 1.05 ms +- 0.01 ms: 1.05x slower") == 1
    assert peers.read_pyperf("Mean +- std dev: [base] 1 ms +- 0 ms -> [head] 0.9 ms +- 0 ms: 1.11x faster") == -1
    assert peers.read_pyperf("Benchmark hidden because not significant (1): arm") == 0
    with pytest.raises(results.NotMeasured):
        peers.read_pyperf("Traceback")
    assert peers.read_asv("| +        | 120±1μs | 140±2μs | 1.17 | arm.time_arm [here/py] |") == peers.Said(1, math.log(1.17))
    assert peers.read_asv("|          | 120±1μs | 121±2μs | ~1.01 | arm.time_arm |").flag == 0
    assert peers.read_asv("-     157±3ms     137±3ms     0.87  arm.time_arm").flag == -1


@pytest.mark.torch
def test_a_slowdown_is_real_work(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch
    from benchmarks.powercurve import ops

    calls = Counter[str]()
    monkeypatch.setattr(torch, "add", lambda *args, out: calls.update(["add"]))
    ops.arm("adds", 3, random.Random())()()
    assert calls["add"] == 103
    assert ops.extra_of("add20m", 0.5) == 100_000
    assert ops.extra_of("layer", 0) == 0
    with pytest.raises(ValueError, match="no slowdown"):
        ops.arm_with("mm256", 1, random.Random())


@pytest.mark.torch
def test_no_slowdown_is_planned_that_the_op_cannot_have() -> None:
    """One addition in a hundred is 1 %, and half of one is none."""
    from benchmarks.powercurve import ops

    planned = {**cells.cpu_plan(cells.QUIET), **cells.gpu_plan()}
    assert all(float(cell.percent * ops.OPS[cell.op].percent).is_integer() for cell in planned)


@pytest.mark.torch
@pytest.mark.parametrize("op", ["adds", "matmul", "softmax", "layer", *cells.OPERATORS])
def test_arms_share_no_memory(op: str) -> None:
    import torch
    from benchmarks.powercurve import operators, ops

    assert set(cells.OPERATORS) == set(operators.OPERATORS)
    if op in cells.OPERATORS:
        _, *made = (ops._fresh(op) for _ in range(3))
        places = [{_place(item) for item in parts} for parts in made]
        assert places[0] and not places[0] & places[1]
        ops.arm_with(op, 3, random.Random(1))()()
        return

    tasks = [ops.arm(op, 0, random.Random(seed))() for seed in (1, 2)]
    held = []
    for task in tasks:
        parts = [cell.cell_contents for cell in task.fn.__closure__ or ()]  # type: ignore[union-attr]
        tensors = [part for part in parts if isinstance(part, torch.Tensor)]
        tensors += [weight for part in parts if isinstance(part, torch.nn.Module) for weight in part.parameters()]
        held.append({tensor.data_ptr() for tensor in tensors})
        task()
    assert held[0]
    assert not held[0] & held[1]


@pytest.mark.torch
def test_a_purse_comes_to_what_was_stated() -> None:
    from benchmarks.powercurve import arms

    purse = arms.Purse()
    for _ in range(40):
        given = purse.ask(EQUAL, 0.6)
        purse.learn(EQUAL, 0.2 + 1.5 * given, "budget")
    assert 0.2 + 1.5 * purse.ask(EQUAL, 0.6) == pytest.approx(0.65, rel=0.01)
    settled = purse.ask(EQUAL, 0.6)
    purse.learn(EQUAL, 0.01, "evidence")
    assert purse.ask(EQUAL, 0.6) == settled


@pytest.mark.torch
@pytest.mark.deep
def test_comparisons_from_order_to_table(tmp_path: Path) -> None:
    """A fresh interpreter compares what it is told, the lines are kept, and the tables and the plot come from them."""
    asked = ((cells.ONE, 0.05), (cells.SEQUENTIAL, 0.05), (cells.TIMER, 0.0))
    batch = [Cell(kind, "adds", cells.QUIET, budget, 5) for kind, budget in asked]
    found = list(collect.interpreted(batch, math.inf))
    assert [one.cell for one in found] == batch
    ours, after, timer = found
    assert ours.extra == 5
    assert ours.low is None or ours.estimate is None or ours.low <= ours.estimate
    assert ours.rebuilds >= 8
    assert set(ours.rules) == set(after.rules) == set(rules.RULES)
    assert (after.flag, timer.flag, timer.rules) == (None, None, {})
    assert all(one.cpu and one.wall and one.process for one in found)
    for one in found:
        results.append(tmp_path, "here", dataclasses.replace(one, others=0.0))
    results.append(tmp_path, "here", dataclasses.replace(found[0], others=1.5))
    program = [sys.executable, str(ROOT / "benchmarks" / "powercurve"), "score", "--results", str(tmp_path)]
    said = subprocess.run([*program, "--json", str(tmp_path / "figures.json")], capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
    assert "steelyard, one process" in said.stdout
    assert said.stderr.startswith("1 comparisons left out")
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert {row["method"] for row in figures["rows"]} >= {"steelyard, one process", "torch Timer as shipped (has no rule)"}


def test_nothing_is_compared_when_the_time_is_up() -> None:
    assert list(collect.interpreted([EQUAL], time.time() - 1)) == []


def test_collecting_stops_when_nothing_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEELYARD_LOCKS", str(tmp_path / "locks"))
    monkeypatch.setattr(collect, "interpreted", lambda batch, end, *, ruled: iter(()))
    with pytest.raises(SystemExit, match="three times"):
        collect.collect({EQUAL: 1}, cells.QUIET, 60, tmp_path, random.Random(1))


def test_collecting_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Cell] = []

    def interpreted(batch: list[Cell], end: float, *, ruled: bool) -> Any:
        asked.extend(batch if not ruled else [])
        yield from (outcome(cell.percent) for cell in batch)

    monkeypatch.setenv("STEELYARD_LOCKS", str(tmp_path / "locks"))
    monkeypatch.setattr(collect, "interpreted", interpreted)
    ticks = iter([0.0, 0.0, 2.0])
    first = collect.collect({EQUAL: 40, SLOWED: 40}, cells.QUIET, 1.5, tmp_path, random.Random(1), now=lambda: next(ticks), ruled=False)
    assert first.total() == len(asked)
    asked.clear()
    ticks, more = iter([0.0, 0.0, 2.0]), {EQUAL: first[EQUAL], SLOWED: first[SLOWED] + 60}
    collect.collect(more, cells.QUIET, 1.5, tmp_path, random.Random(2), now=lambda: next(ticks), ruled=False)
    assert asked
    assert set(asked) == {SLOWED}


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("collect", "--minutes", "1", "--only", "won"), "no kind named"),
        (("collect", "--minutes", "1", "--op", "sorted"), "no op named"),
        (("collect", "--minutes", "1", "--at-once", "9999"), "there are"),
        (("score", "--versions", "../x"), "hexadecimal"),
    ],
)
def test_commands_refuse_what_they_do_not_know(words: tuple[str, ...], text: str) -> None:
    program = [sys.executable, "-m", "benchmarks.powercurve", *words]
    said = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, check=False)
    assert said.returncode != 0
    assert text in said.stderr


def test_one_core_s_work_is_no_more_than_that_of_all() -> None:
    cores = os.sched_getaffinity(0)
    before = collect.busy_seconds()
    os.sched_setaffinity(0, {min(cores)})
    try:
        own = collect.busy_seconds()
    finally:
        os.sched_setaffinity(0, cores)
    assert own > 0
    assert len(cores) == 1 or own < before


def _place(item: Any) -> int:
    if hasattr(item, "data_ptr"):
        return int(item.data_ptr())
    return int(next(item.parameters()).data_ptr()) if hasattr(item, "parameters") else id(item)


def test_a_cell_can_be_told_to_an_interpreter() -> None:
    assert Cell(**json.loads(json.dumps(asdict(SLOWED)))) == SLOWED


def test_inputs_are_counted_by_door_and_equal_code_must_not_be_told_apart() -> None:
    fine = [inputs.Answer(door, "cat", False, 1.0, 0.99, 1.012, 0) for door in inputs.DOORS]
    small = inputs.Answer(inputs.VS, "cat", False, 1.004, 1.001, 1.007, 0)
    wrong = inputs.Answer(inputs.VS, "cat", False, 1.07, 1.065, 1.074, 4)
    caught = inputs.Answer(inputs.VS, "cat", True, 1.02, 1.01, 1.03, 0)
    assert [answer.direction for answer in (*fine, small, wrong, caught)] == [0, 0, 0, 0, 1, 1]
    assert all("reached" in line for line in inputs.goals([*fine, small, caught]))
    assert all("missed" in line for line in inputs.goals([*fine, wrong, replace(wrong, inputs="floats")]))
    assert re.search(r"run --vs +cat +1 of 3 .* 1 of 1", inputs.table([*fine, small, wrong, caught]))


def test_the_file_of_inputs_is_slowed_by_numbers_in_its_text(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from steelyard.backends.torch import Torch

    inputs.write_file(tmp_path / "held.py", {"cat": 7}, {"floats": 9})
    module = registry.load_file(tmp_path / "held.py")
    assert (module.TURNS, module.AGAIN) == ({"cat": 7}, {"floats": 9})
    for kind in held.INPUTS:
        draw, work = held.INPUTS[kind]
        task = Task(held.slowed(work, 3), draw(random.Random(0)))
        assert str(task()) == str(work(*draw(random.Random(0))))
        assert Torch().movable(task)
