"""One recipe has one id, however it is written; rules, bases, pairs and rows of other systems find it by any spelling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from steelyard import registry
from steelyard.engine.messages import Unweighed
from steelyard.engine.names import settle
from steelyard.engine.plan import expand
from steelyard.engine.sinks import MeasuredCase, RowSink
from steelyard.errors import UsageError
from steelyard.model.case import Case
from steelyard.model.experiment import Experiment, Matrix, ResultRow, Rule, Settings
from steelyard.model.pair import Pair
from steelyard.model.record import Record

KNOWN = registry.catalogue()
LAYER = "torchao/linear"


def settled(variant: str) -> str:
    return settle(Case(LAYER, variant=variant), KNOWN).variant


@pytest.mark.parametrize(
    ("written", "variant"),
    [
        ("int4wo", "int4wo-128"), ("int4wo-032", "int4wo-32"), ("int4wo[group=32]", "int4wo-32"), ("int4wo-128-HQQ", "int4wo-128-hqq"),
        ("int4wo-64[hqq=true]", "int4wo-64-hqq"), ("int4wo[hqq=false]", "int4wo-128"), ("float8dq", "float8dq-tensor"),
        ("float8dq-row", "float8dq-row"), ("intxwo-4--1", "intxwo-4-0"), ("intxwo[group=-1]", "intxwo-4-0"), ("int8wo", "int8wo"),
        ("gemlitewo", "gemlitewo-4-64"), ("int8_dynamic_activation_intx_weight-4-32-0", "int8_dynamic_activation_intx_weight-4-32-false"),
        ("int4wo-064+compile[mode=max-autotune]", "int4wo-64+compile[mode=max-autotune]"), ("qat-int8dq-int4w", "qat-int8dq-int4w-32"),
        ("eager", "eager"),
    ],
)  # fmt: skip
def test_one_recipe_has_one_id(written: str, variant: str) -> None:
    assert settled(written) == variant == settled(variant)


def test_every_recipe_is_spelt_as_it_can_be_read() -> None:
    for name in (name for name, info in KNOWN.variants.items() if info.get("rule")):
        assert settled(settled(name)) == settled(name)


def plan(*variants: str, vs: str | None = None, **words: Any) -> list[str]:
    matrix = Matrix((LAYER,), {"m": (1,)}, variant=variants)
    found = expand(Experiment("t", matrix=(matrix,), settings=Settings(vs=vs), **words), KNOWN)
    return [job.case.variant if job.vs is None else f"{job.case.variant} vs {job.vs.variant}" for job in found.jobs]


def test_spellings_of_one_recipe_are_measured_once() -> None:
    assert plan("int4wo-32", "int4wo-032", "int4wo[group=32]", "float8dq", "float8dq-tensor") == ["int4wo-32", "float8dq-tensor"]


def test_a_base_is_found_by_any_spelling() -> None:
    assert plan("int4wo-128", "int8wo", vs="int4wo") == ["int4wo-128", "int8wo vs int4wo-128"]
    matrix = Matrix((LAYER,), {"m": (1,)}, variant=("int4wo", "eager"))
    found = expand(Experiment("t", matrix=(matrix,), pairs=(("int4wo", "eager"),)), KNOWN)
    assert [(job.case.variant, job.vs and job.vs.variant) for job in found.pairs] == [("int4wo-128", "eager")]
    with pytest.raises(UsageError, match="pairs: no case matches int4wo-64"):
        expand(Experiment("t", matrix=(matrix,), pairs=(("int4wo-64", "eager"),)), KNOWN)


@pytest.mark.parametrize("written", ["int4wo", "int4wo-0128", "int4wo-128", "int4wo[group=128]", "*-128"])
def test_rules_mean_it_by_any_spelling(written: str) -> None:
    assert plan("int4wo", "int4wo-32", exclude=(Rule({"variant": written}),)) == ["int4wo-32"]


class Kept(RowSink):
    """Rows as they come."""

    def row(self, key: str, cases: Sequence[MeasuredCase], pairs: Sequence[Pair | Unweighed]) -> Mapping[str, Any]:
        return {"key": key, "cases": [case.record.id for case in cases]}

    def key_of(self, line: Mapping[str, Any]) -> str:
        return str(line["key"])


def test_rows_of_another_system_get_their_records_by_its_own_spelling(tmp_path: Path) -> None:
    written = Case(LAYER, (("m", 1), ("k", 8), ("n", 8), ("dtype", "bf16")), variant="float8dq")
    row = ResultRow("row", (written,), ())
    found = expand(Experiment("t", rows=(row,)), KNOWN)
    sink = Kept([row], tmp_path / "rows.jsonl")
    sink.planned(found.rows)
    [job] = found.jobs
    assert job.case.variant == "float8dq-tensor" and not sink.held(job)
    sink.take(job, Record(job.case.id, job.case.plain(), "ok"), {})
    assert sink.written["row"]["cases"] == [job.case.id]
