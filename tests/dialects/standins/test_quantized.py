"""A row of four records and three pairs, as TorchAO's benchmark has it: base, compiled base, quantized, and quantized and compiled."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from steelyard.engine import conduct
from steelyard.engine.messages import Unweighed
from steelyard.engine.run import NoWatch
from steelyard.engine.sinks import MeasuredCase, RowSink
from steelyard.errors import FAILED, PASS
from steelyard.model.case import Case
from steelyard.model.experiment import Experiment, ResultRow, Settings
from steelyard.model.pair import Pair
from steelyard.model.protocol import Fixed
from steelyard.store.runs import Store

VARIANTS = ("eager", "compiled", "quantized", "quantized+compiled")
"""By the virtual clock `compiled` takes half the time, and `quantized` a quarter."""
FILE = '''
from dataclasses import replace

from steelyard import Task, variant, workload


@workload("ao/linear", axes={"n": [1], "fault": ["none"]}, backend="fake")
def linear(n, fault, be):
    """Takes n milliseconds."""
    return Task(lambda: be.spend(n * 1e-3))


def shorter(task, be, share):
    def fn():
        before = be.world.clock
        task.fn()
        be.world.clock = before + int((be.world.clock - before) * share)

    return replace(task, fn=fn)


@variant("compiled")
def compiled(task, be):
    return shorter(task, be, 0.5)


@variant("quantized")
def quantized(task, be):
    if BROKEN == be.seed:
        raise ValueError("no such kernel")
    return shorter(task, be, 0.25)
'''


class AoRows(RowSink):
    """A line like the original's: a time of each form, and three speedups."""

    def key_of(self, line: Mapping[str, Any]) -> str:
        return str(line["name"])

    def row(self, key: str, cases: Sequence[MeasuredCase], pairs: Sequence[Pair | Unweighed]) -> Mapping[str, Any]:
        forms = {case.record.case["variant"]: case.record.status for case in cases}
        names = ("speedup", "compile_speedup_on_baseline", "compile_speedup")
        speedups = {name: round(1 / pair.ratio, 2) if isinstance(pair, Pair) else None for name, pair in zip(names, pairs, strict=True)}
        return {"name": key, "forms": forms, **speedups}


def experiment(tmp_path: Path, broken: int = -1, settings: Settings | None = None) -> Experiment:
    """Three shapes, a row each; what is quantized fails to build where the seed is the broken one."""
    (tmp_path / "ao.py").write_text(FILE.replace("BROKEN", str(broken)))
    rows = []
    for n in (1, 2, 3):
        base, compiled, quantized, both = (Case("ao/linear", (("n", n),), "fake", variant) for variant in VARIANTS)
        rows.append(ResultRow(f"linear {n}", (base, compiled, quantized, both), ((quantized, base), (compiled, base), (both, quantized))))
    chosen = settings or Settings(budget=0.02, settle=0.0, telemetry=False, verify=False)
    return Experiment("ao", rows=tuple(rows), files=(str(tmp_path / "ao.py"),), settings=chosen)


def measure(tmp_path: Path, chosen: Experiment, **words: Any) -> tuple[conduct.RunOutcome, list[Any]]:
    ready = conduct.from_experiment(chosen)
    with closing(AoRows(ready.rows, tmp_path / "out", **words)) as sink:
        done = conduct.execute(ready, Store(tmp_path / "s"), ["x"], lambda writer: NoWatch(), sink=sink)
    return done, [json.loads(line) for line in (tmp_path / "out").read_text().splitlines()]


@pytest.mark.parametrize("fixed", [None, Fixed(0, 2)])
def test_a_row_has_its_four_records_and_three_pairs_and_comes_in_its_turn(tmp_path: Path, fixed: Fixed | None) -> None:
    settings = Settings(budget=0.02, settle=0.0, telemetry=False, verify=False, fixed=fixed)
    done, lines = measure(tmp_path, experiment(tmp_path, settings=settings))
    assert done.code == PASS and len(done.run.records) == 12 and len(done.run.pairs) == 9
    expected = {"speedup": 4.0, "compile_speedup_on_baseline": 2.0, "compile_speedup": 2.0}
    assert lines == [{"name": f"linear {n}", "forms": dict.fromkeys(VARIANTS, "ok"), **expected} for n in (1, 2, 3)]
    kept = [next(iter(json.loads(line))) for line in (done.run.path / "run.jsonl").read_text().splitlines()]
    in_turn = [*["record"] * 3, "pair", "pair", "record", "pair"]
    assert kept == ["header", *in_turn * 3, "seal"], "two pairs of one base are weighed together, each row's before the next row"


def test_a_form_that_fails_leaves_the_comparison_that_needs_it_not_and_rows_go_on(tmp_path: Path) -> None:
    done, lines = measure(tmp_path, experiment(tmp_path, broken=0))
    assert done.code == FAILED and [line["speedup"] for line in lines] == [None] * 3
    assert lines[0]["forms"] == {"eager": "ok", "compiled": "ok", "quantized": "failed", "quantized+compiled": "failed"}
    assert [line["compile_speedup_on_baseline"] for line in lines] == [2.0] * 3


def test_only_rows_that_the_file_lacks_are_measured(tmp_path: Path) -> None:
    chosen = experiment(tmp_path)
    _, lines = measure(tmp_path, chosen)
    (tmp_path / "out").write_text("".join(json.dumps(line) + "\n" for line in lines[:2]) + '{"name": "lin')
    done, again = measure(tmp_path, chosen, append=True)
    assert again == lines and len(done.run.records) == 4 and len(done.run.pairs) == 3
