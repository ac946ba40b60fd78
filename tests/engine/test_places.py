"""What a run keeps others away from: all CPUs where the host is timed, else the accelerator and the CPUs that drive it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from steelyard.engine import conduct, run
from steelyard.engine.place import Place
from steelyard.machine import locks
from steelyard.model.experiment import Experiment, Matrix


def held(monkeypatch: pytest.MonkeyPatch, cpus: int, *where: tuple[str, str], threads: int = 1) -> set[str]:
    monkeypatch.setattr(locks, "cpu_names", lambda: [f"cpu{number}" for number in range(cpus)])
    jobs = []
    for device, index in where:
        plan = conduct.from_experiment(Experiment(matrix=(Matrix(("op/sum",), {"n": (8,)}, device=(device,), threads=(threads,)),)))
        jobs += [replace(job, place=Place(device_index=index)) for job in plan.jobs]
    return set(run.places_of(jobs))


def test_runs_on_two_gpus_do_not_wait_for_each_other_and_a_run_on_the_host_waits_for_both(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = held(monkeypatch, 16, ("cuda", "")), held(monkeypatch, 16, ("cuda", "1"))
    assert first == {"cuda0", "cpu0"} and second == {"cuda1", "cpu1"}
    host = held(monkeypatch, 16, ("cpu", ""))
    assert host & first and host & second and len(host) == 16
    assert held(monkeypatch, 16, ("cuda", "1"), threads=4) == {"cuda1", "cpu4", "cpu5", "cpu6", "cpu7"}
    assert held(monkeypatch, 16, ("cuda", "5"), threads=4) == {"cuda5", "cpu4", "cpu5", "cpu6", "cpu7"}


def test_few_cpus_and_host_cases_take_all(monkeypatch: pytest.MonkeyPatch) -> None:
    assert held(monkeypatch, 2, ("cuda", ""), threads=2) == {"cuda0", "cpu0", "cpu1"}
    assert held(monkeypatch, 4, ("cuda", ""), ("cpu", "")) == {"cuda0", "cpu0", "cpu1", "cpu2", "cpu3"}
