"""Axes that vary while all else is held, and the line of each stack over them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from steelyard.analyze.stacks import newest
from steelyard.analyze.sweep import Sweep, sweeps
from steelyard.model.case import Case
from steelyard.store.runs import Header, Run
from tests.analyze.saved import record


def found(*points: tuple[dict[str, Any], str], status: dict[int, str] | None = None, **options: Any) -> list[Sweep]:
    """Sweeps of records with these parameters and variants."""
    known = status or {}
    ids = [Case("op/a", tuple(params.items()), variant=variant, threads=params.pop("threads", 1)).id for params, variant in points]
    records = tuple(record(id, known.get(place, 1.0)) for place, id in enumerate(ids))
    return sweeps(newest([Run(Path("a"), Header(), records)]), **options)


def test_a_number_that_varies_is_an_axis_in_its_own_order() -> None:
    (made,) = found(*(({"n": n, "dtype": "fp32"}, variant) for n in (1024, 64, 256) for variant in ("eager", "compile")), status={2: "oom"})
    assert (made.workload, made.axis, made.kind, made.fixed, made.mode, made.baseline) == (
        "op/a", "n", "number", "fp32", "eval", "torch/eager",
    )  # fmt: skip
    assert [(line.name, [(point.x, point.ok) for point in line.points]) for line in made.lines] == [
        ("torch/eager", [(64, False), (256, True), (1024, True)]),
        ("torch/compile", [(64, True), (256, True), (1024, True)]),
    ]
    assert made.metrics == ["time"]


def test_names_keep_the_order_they_were_seen_in_and_stand_after_numbers() -> None:
    made = found(*(({"dtype": dtype, "n": n}, "eager") for dtype in ("fp32", "bf16") for n in (1, 2, 3)))
    assert [(item.axis, item.kind, item.fixed) for item in made] == [
        ("n", "number", "fp32"), ("n", "number", "bf16"), ("dtype", "name", "n=1"), ("dtype", "name", "n=2"), ("dtype", "name", "n=3"),
    ]  # fmt: skip
    assert [point.x for point in made[2].lines[0].points] == ["fp32", "bf16"] and made[2].baseline is None


def test_lists_and_truths_are_names() -> None:
    (made,) = found(({"causal": True}, "eager"), ({"causal": False}, "eager"))
    assert (made.kind, [point.x for point in made.lines[0].points]) == ("name", ["true", "false"])
    (made,) = found(({"shape": [1, 2]}, "eager"), ({"shape": [3]}, "eager"))
    assert [point.x for point in made.lines[0].points] == ["[1,2]", "[3]"]


def test_a_number_that_no_axis_reaches_is_a_name() -> None:
    (made,) = found(({"n": 2}, "eager"), ({"n": 10**400}, "eager"))
    assert made.kind == "name"


def test_threads_are_an_axis_too() -> None:
    (made,) = found(*(({"n": 8, "threads": threads}, "eager") for threads in (4, 1, 2)))
    assert (made.axis, [point.x for point in made.lines[0].points], made.fixed) == ("threads", [1, 2, 4], "n=8")


def test_points_without_a_line_make_no_sweep() -> None:
    assert found(({"n": 1}, "eager"), ({"n": 2}, "compile")) == []
    assert found(({"n": 1}, "eager")) == [] and found() == []


def test_no_more_points_than_asked_for() -> None:
    points = [({"n": n, "m": m}, "eager") for n in range(4) for m in range(3)]
    assert sum(len(line.points) for item in found(*points, most=20) for line in item.lines) <= 20
    assert {item.axis for item in found(*points)} == {"n", "m"}


def test_a_file_is_no_axis() -> None:
    """Programs in files have no order, so no line leads from one to the next; record by record their ids have hashes alone."""
    files = [{"path": {"file": f"/{n}.mlir", "sha256": f"{n}" * 64, "name": f"{n}.mlir"}} for n in range(3)]
    records = []
    for params in files:
        case = Case("artifact", tuple(params.items()), backend="xla")
        records.append(replace(record(case.id, 1.0), case=case.plain()))
    assert sweeps(newest([Run(Path("a"), Header(), tuple(records))])) == []
