"""On a farm each record has the machine that it was made on: nothing of two kinds is compared, and each has a history of its own."""

from __future__ import annotations

from pathlib import Path

from steelyard.analyze.compare import RunsSide, compare
from steelyard.analyze.history import history
from steelyard.model.record import HOST, Record, machine_of
from steelyard.report.heading import heading
from steelyard.store.runs import Header, Store
from steelyard.store.tables import rows
from tests.analyze.made import case, record, run


def on(machine: str, number: int, seconds: float = 1e-3) -> Record:
    return record(case(number), seconds, effective={HOST: {"name": f"host-{machine}", "station": "s", "machine": machine, "attempt": 1}})


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
