"""Several processes as one case: measured and checked on all ranks, and a rank that fails costs its case alone."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from steelyard.codec import parse_experiment
from steelyard.engine import ranks
from steelyard.engine.messages import Sources
from steelyard.engine.plan import expand
from steelyard.engine.ranks import RankLost, Ranks, assemble, batch
from steelyard.errors import SteelyardError, Unsupported, UsageError
from steelyard.model.case import Case
from steelyard.model.experiment import Experiment, Matrix, Settings
from steelyard.model.record import Verification
from steelyard.model.task import Task
from steelyard.registry import catalogue
from tests.engine.drive import processes_below, run_json

pytest.importorskip("torch")

MORTAL = """
import itertools, os, signal, sys, time
from dataclasses import replace
from steelyard import Task, workload

@workload("mortal", axes={"fault": ["none"]})
def mortal(fault, be):
    import torch, torch.distributed as dist
    seat = be.join()
    turn, other = itertools.count(), seat.rank == 1
    assert os.environ["RANK"] == str(seat.rank) and os.environ["WORLD_SIZE"] == str(seat.size)
    if fault == "build" and other:
        raise ValueError("told to fail while building")

    def fn(x):
        number = next(turn)
        if fault == "kill" and other and number == 20:
            os.kill(os.getpid(), signal.SIGKILL)
        if fault == "raise" and other:
            raise ValueError("told to fail")
        if fault == "memory" and other:
            raise MemoryError("told to run out")
        if fault == "deaf":
            os._exit(9) if other else time.sleep(1e6)
        out = x.clone()
        dist.all_reduce(out)
        return out + (other and (fault == "wrong" or (fault == "wrong later" and number > 0)))

    return Task(fn, (torch.full((64,), seat.rank + 1.0),), reference=lambda: torch.full((64,), seat.size * (seat.size + 1) / 2))

@mortal.variant("thrice")
def thrice(task):
    return replace(task, fn=lambda x: [task.fn(x) for _ in range(3)][-1])
"""
FAULTS = {
    "none": ("ok", ""),
    "kill": ("failed", "rank 1 was ended by SIGKILL"),
    "raise": ("failed", "rank 1: ValueError: told to fail"),
    "memory": ("oom", "rank 1: MemoryError: told to run out"),
    "build": ("failed", "rank 1: ValueError: told to fail while building"),
    "deaf": ("crashed", "rank 1 exited with code 9 and no answer during check, while rank 0 waited for it"),
    "wrong": ("wrong", "rank 1: out: 64 of 64 values differ"),
    "wrong later": ("wrong", "rank 1: right at first, but not after timing: out: 64 of 64 values differ"),
    "none at the end": ("ok", ""),
}


@pytest.fixture
def mortal(tmp_path: Path) -> str:
    file = tmp_path / "mortal.py"
    file.write_text(MORTAL)
    return str(file)


@pytest.mark.torch
class TestTwoRanks:
    @pytest.mark.deep
    def test_all_four_collectives_are_measured_and_checked(self, tmp_path: Path) -> None:
        found = run_json("collective/*", "--ranks", "2", "-a", "bytes=16384", "--budget", "50ms", cwd=tmp_path)
        assert len(found["records"]) == 4
        for record in found["records"]:
            figures, told = record["metrics"], record["effective"]
            assert (record["status"], record["verification"]["status"]) == ("ok", "passed")
            assert record["verification"]["against"] == "the workload's reference, on all 2 ranks"
            assert record["id"].endswith(":ranks=2") and told["ranks"] == 2 and told["calls_per_reading"] >= 1
            assert told["message_bytes"] == 16384
            assert told["bus_bytes"] == (16384 if "all_reduce" in record["id"] else 8192)
            assert figures["bus_bandwidth"]["value"] == pytest.approx(told["bus_bytes"] / figures["time"]["value"])
            assert (figures["bus_bandwidth"]["unit"], figures["bus_bandwidth"]["better"]) == ("B/s", "higher")
            assert 0 < figures["fastest_rank_time"]["value"] <= figures["time"]["value"] * 2
        assert processes_below(tmp_path) == []

    @pytest.mark.deep
    def test_a_rank_that_fails_costs_its_case_alone(self, tmp_path: Path, mortal: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TMPDIR", str(tmp_path))
        words = ["-a", f"fault={','.join(FAULTS)}", "--ranks", "2", "--budget", "50ms", "--timeout", "60s"]
        found = run_json(mortal, *words, cwd=tmp_path, check=3, within=280.0)
        seen = {record["case"]["params"]["fault"]: record for record in found["records"]}
        assert {fault: record["status"] for fault, record in seen.items()} == {fault: status for fault, (status, _) in FAULTS.items()}
        for fault, (_, words_of) in FAULTS.items():
            assert words_of in seen[fault]["reason"]
        assert processes_below(tmp_path) == []
        assert list(tmp_path.glob("steelyard-ranks-*")) == []

    def test_variants_are_weighed_in_one_group(self, tmp_path: Path, mortal: str) -> None:
        found = run_json(mortal, "-V", "eager,thrice", "--vs", "eager", "--ranks", "2", "--budget", "100ms", cwd=tmp_path)
        assert [record["status"] for record in found["records"]] == ["ok", "ok"]
        pair = found["pairs"][0]
        assert pair["rebuilds"] == pair["quads"] >= 6
        assert pair["ratio"] > 1

    @pytest.mark.deep
    def test_what_ranks_mean_nothing_to_is_refused(self, tmp_path: Path) -> None:
        words = ["op/copy", "collective/all_reduce", "--ranks", "2", "-d", "cpu,cuda", "--budget", "10ms"]
        found = run_json(*words, cwd=tmp_path, check=None)
        reasons = {(record["case"]["workload"], record["case"]["device"]): record for record in found["records"]}
        assert reasons["op/copy", "cpu"]["status"] == "not_applicable"
        assert "does not communicate" in reasons["op/copy", "cpu"]["reason"]
        assert reasons["collective/all_reduce", "cuda"]["status"] == "unsupported"
        assert reasons["collective/all_reduce", "cpu"]["status"] == "ok"


class TestCrew:
    def test_alone_it_changes_nothing(self) -> None:
        task, crew = Task(lambda: 1), Ranks()
        crew.tell("build")
        assert crew.gather() == [] and crew.facts() == {}
        assert crew.lead(None, task, Settings()) is task
        own = Verification("passed", "something")
        assert crew.agree(own) is own

    def test_the_environment_is_as_before_whatever_happens(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("RANK", "7")
        monkeypatch.delenv("WORLD_SIZE", raising=False)
        lost = assemble([Case("nowhere", ranks=2)], Settings(), Sources(), lambda: None)
        with pytest.raises(SteelyardError, match="rank 1: no workload named 'nowhere'"), lost:
            pytest.fail("a rank that cannot find its workload must not get this far")
        assert os.environ["RANK"] == "7" and "WORLD_SIZE" not in os.environ

    def test_a_crowd_is_refused_before_it_is_started(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(ranks, "CROWD", 0)
        with (
            pytest.raises(Unsupported, match="2 ranks are more than 0"),
            assemble([Case("a", ranks=2)], Settings(), Sources(), lambda: None),
        ):
            pytest.fail("nothing should have started")

    @pytest.mark.parametrize(("seconds", "calls"), [(1.0, 1), (2e-3, 1), (1e-3, 2), (1e-5, 200), (0.0, 1000)])
    def test_a_reading_holds_calls_for_two_milliseconds(self, seconds: float, calls: int) -> None:
        assert batch(seconds) == calls

    def test_a_dead_rank_is_blamed_before_one_that_only_complains(self) -> None:
        class Said:
            def __init__(self, error: Exception | None) -> None:
                self.error = error

            def answer(self, timeout: float | None = None) -> None:
                if self.error:
                    raise self.error

        def blamed(error: Exception, *said: Exception | None) -> str:
            peers: list[Any] = [Said(item) for item in said]
            return str(Ranks(peers=peers).blame(error))

        gone, complaint = RankLost("rank 2 was ended by SIGKILL"), SteelyardError("rank 1: connection closed")
        assert blamed(RuntimeError("connection closed"), complaint, gone) == "rank 2 was ended by SIGKILL"
        assert blamed(RuntimeError("connection closed"), complaint) == "rank 1: connection closed"
        assert blamed(RuntimeError("my own"), None, None) == "my own"
        assert blamed(ValueError("my own"), gone) == "my own"


class TestAxis:
    def test_ranks_are_a_dimension_of_a_matrix(self) -> None:
        plan = expand(Experiment(matrix=(Matrix(("collective/all_reduce",), ranks=(2, 4)),)), catalogue())
        assert [job.case.id.rpartition(":")[2] for job in plan.jobs] == ["ranks=2", "ranks=4"]

    def test_an_experiment_file_has_the_key(self) -> None:
        table = {"workload": "collective/*", "ranks": [1, 2]}
        read = parse_experiment({"matrix": [table], "exclude": [{"ranks": 1, "reason": "moves nothing"}]}, "exp.toml")
        assert read.matrix[0].ranks == (1, 2)
        plan = expand(read, catalogue())
        assert {job.case.ranks for job in plan.jobs} == {2} and {item.case.ranks for item in plan.dropped} == {1}

    @pytest.mark.parametrize("value", [0, -1, 1.5, "two", True, []])
    def test_a_wrong_number_is_told(self, value: Any) -> None:
        with pytest.raises(UsageError, match="ranks"):
            parse_experiment({"matrix": [{"workload": "collective/*", "ranks": value}]}, "exp.toml")
