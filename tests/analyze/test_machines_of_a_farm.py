"""On a farm each record has the machine that it was made on: nothing of two kinds is compared, and each has a history of its own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from steelyard.analyze.compare import RunsSide, compare
from steelyard.analyze.history import history
from steelyard.analyze.machines import MadeOn
from steelyard.analyze.matrix import matrix
from steelyard.analyze.stacks import newest, parse
from steelyard.model.case import Case
from steelyard.model.record import HOST, Record, machine_of
from steelyard.report.columns import unpaired_column
from steelyard.report.heading import heading
from steelyard.store.runs import Header, Store
from steelyard.store.tables import rows
from tests.analyze.made import case, record, run


def on(machine: str, number: int, seconds: float = 1e-3, **speed: float) -> Record:
    told = {"speed": speed} if speed else {}
    return record(
        case(number), seconds, effective={HOST: {"name": f"host-{machine}", "station": "s", "machine": machine, "attempt": 1, **told}}
    )


def test_a_case_that_went_to_another_kind_of_machine_is_incomparable_and_the_others_are_not() -> None:
    sides = [
        RunsSide(name, (run(name, records, hour, machine_key="farm", farm="ssh:a,b"),))
        for name, records, hour in (
            ("base", [on("aaaaaaaaaaaa", 0), on("aaaaaaaaaaaa", 1)], 0),
            ("head", [on("aaaaaaaaaaaa", 0), on("aaaaaaaaaaaa.2", 1)], 1),
        )
    ]
    deltas = {delta.head: delta for delta in compare(*sides).deltas}
    assert deltas[case(0)].verdict != "incomparable"
    assert deltas[case(1)].verdict == "incomparable"
    assert "base on aaaaaaaaaaaa, head on aaaaaaaaaaaa.2" in deltas[case(1)].reason


def test_one_key_that_two_conductors_gave_to_unlike_machines_is_incomparable() -> None:
    sides = [
        RunsSide(name, (run(name, [on("aaaaaaaaaaaa", number, **speed) for number, speed in enumerate(speeds)], hour, farm="ssh:a"),))
        for name, speeds, hour in (
            ("base", [{"copies": 2e-3}, {"copies": 2e-3}, {"copies": 2e-3}, {}], 0),
            ("head", [{"copies": 2.1e-3}, {"copies": 2.6e-3}, {"copies": 2.6e-3, "spread": 0.1}, {"copies": 2.6e-3}], 1),
        )
    ]
    found = {delta.head: delta for delta in compare(*sides).deltas}
    assert [found[case(number)].verdict == "incomparable" for number in range(4)] == [False, True, False, False]
    assert found[case(1)].reason == (
        "measured on machines of one description but different speed: copies takes 30 % more on one than on the other"
    )


@pytest.mark.parametrize("told", [3, {"copies": "fast"}, {"copies": -1.0}, {"copies": True, "spread": "x"}])
def test_a_speed_of_nonsense_says_nothing(told: object) -> None:
    odd = record(case(0), effective={HOST: {"machine": "a", "speed": told}})
    assert MadeOn.of(odd, "b") == MadeOn("a")


def test_stacks_of_different_machines_have_no_speedup() -> None:
    ids = [Case("op/x", (), backend, "eager").id for backend in ("torch", "jax", "numpy")]
    made = [
        replace(on(machine, 0, seconds), id=id, case=parse(id)) for id, machine, seconds in zip(ids, "aab", (1e-3, 2e-3, 4e-3), strict=True)
    ]
    held = run("r", made, 0, farm="ssh:a,b")
    table = matrix(newest([held]), [held], baseline="torch/eager")
    assert table is not None
    [[own, jax, numpy]] = table.by_baseline["torch/eager"].speedups
    assert own and jax and jax[0] == 0.5 and numpy is None
    column = unpaired_column(made)
    assert column is not None and [bool(cell) for cell in column.cells] == [True, True, False]


def test_a_history_is_of_machines_that_are_alike(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for day, copies in enumerate([2e-3, 4e-3, 2.05e-3], 1):
        with store.create(Header(created=f"2026-01-0{day}T00:00:00Z", machine_key="f" * 12, farm="slurm:p")) as writer:
            writer.append(on("a" * 12, 0, day * 1e-3, copies=copies))
            writer.seal()
    found = history(store, case(0))
    assert [point.time for point in found.points] == [1e-3, 3e-3]
    assert [(other.machine_key, other.points) for other in found.apart] == [("a" * 12, 1)]


def test_history_and_tables_go_by_the_machine_of_each_record(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for day, machine in enumerate(["a" * 12, "b" * 12, "a" * 12], 1):
        with store.create(Header(created=f"2026-01-0{day}T00:00:00Z", machine_key="f" * 12, farm="slurm:p")) as writer:
            writer.append(on(machine, 0, day * 1e-3))
            writer.seal()
    found = history(store, case(0))
    assert (found.machine_key, len(found.points)) == ("a" * 12, 2)
    assert [(other.machine_key, other.points) for other in found.apart] == [("b" * 12, 1)]
    [first, *_] = store.runs()
    assert {row["machine"] for _, row in rows(store.open(first))} == {"a" * 12}


def test_a_record_without_a_host_is_of_its_runs_machine() -> None:
    assert machine_of(record(case(0)), "key") == "key"
    assert machine_of(record(case(0), effective={HOST: "odd"}), "key") == "key"
    assert machine_of(on("a", 0), "key") == "a"


def test_the_head_of_a_table_names_the_farm_and_counts_its_hosts() -> None:
    head = heading(Header(farm="ssh:a,b", machine={"cpu": {"model": "conductor's own"}}), [on("a", 0), on("b", 1), on("b", 2)])
    assert head == "on ssh:a,b · 2 hosts · 1 thread"
