"""Workers with an interpreter of their own: shared by what belongs together, resting meanwhile, replaced when spoilt, made ready ahead."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from steelyard.engine import conduct, crew, worker
from steelyard.engine.messages import Answer, Measure, Retire, Sources
from steelyard.engine.run import NoWatch
from steelyard.engine.spares import SpareWorker
from steelyard.model.case import Case
from steelyard.model.experiment import Experiment, Matrix, Settings
from steelyard.registry import built_ins
from steelyard.store.runs import Store
from tests.engine.drive import processes_below

FILE = """
import os
from dataclasses import replace
from steelyard import Task, variant, workload


@workload("my/one", axes={"n": [8]}, backend="numpy")
def one(n, be):
    x = be.randn(n)
    return Task(lambda: x + 1, effective={"pid": os.getpid()})


@workload("my/two", axes={"n": [8]}, backend="numpy")
def two(n, be):
    x = be.randn(n)
    return Task(lambda: x * 2, effective={"pid": os.getpid()})


@variant("own", fresh=True)
def own(task, be):
    fn = task.fn
    return replace(task, fn=lambda: fn())


@variant("dies", fresh=True)
def dies(task, be):
    os._exit(3)
"""


def run(folder: Path, *parts: tuple[str, str], **settings: Any) -> dict[tuple[str, str], Any]:
    """The process of each case, or the status of one that has none."""
    (folder / "bench.py").write_text(FILE)
    how = Settings(budget=0.005, telemetry=False, **settings)
    matrices = tuple(Matrix((workload,), variant=(variant,)) for workload, variant in parts)
    ready = conduct.from_experiment(Experiment("x", files=(str(folder / "bench.py"),), matrix=matrices, settings=how))
    done = conduct.execute(ready, Store(folder / "s"), ["x"], lambda writer: NoWatch())
    assert not [pid for pid in processes_below(folder) if pid != os.getpid()]
    return {(item.case["workload"], item.case["variant"]): item.effective.get("pid", item.status) for item in done.run.records}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_workloads_share_one_and_it_rests_while_another_kind_runs(tmp_path: Path) -> None:
    found = run(tmp_path, ("my/one", "own"), ("my/two", "eager"), ("my/one", "eager"))
    assert found["my/one", "own"] == found["my/one", "eager"] != found["my/two", "eager"]
    again = run(tmp_path, ("my/one", "own"), ("my/two", "own"))
    assert again["my/one", "own"] == again["my/two", "own"]


def test_a_workload_can_have_its_own(tmp_path: Path) -> None:
    found = run(tmp_path, ("my/one", "own"), ("my/two", "own"), isolate="workload")
    assert found["my/one", "own"] != found["my/two", "own"]


def test_a_fault_costs_its_case_and_the_next_gets_another(tmp_path: Path) -> None:
    found = run(tmp_path, ("my/one", "own"), ("my/two", "dies"), ("my/two", "own"))
    assert found["my/two", "dies"] == "crashed" and isinstance(found["my/two", "own"], int)
    assert found["my/two", "own"] != found["my/one", "own"]


def test_the_next_is_made_ready_while_the_first_builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crew, "CPUS_TO_SPARE", 1)
    begun, begin = list[SpareWorker](), SpareWorker.begin

    def noted(job: Any, mark: str) -> SpareWorker:
        begun.append(begin(job, mark))
        return begun[-1]

    monkeypatch.setattr(SpareWorker, "begin", noted)
    found = run(tmp_path, ("my/one", "own"), ("my/two", "own"), isolate="workload")
    assert [spare.talk.worker.pid for spare in begun] == [found["my/two", "own"]]


def test_after_a_loss_one_is_kept_ready_and_none_is_left_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crew, "CPUS_TO_SPARE", 1)
    found = run(tmp_path, ("my/one", "dies"), ("my/one", "own"), ("my/two", "dies"), ("my/two", "own"))
    assert [found[key] for key in found if key[1] == "dies"] == ["crashed", "crashed"]
    assert all(isinstance(found[key], int) for key in found if key[1] == "own")


def test_a_worker_whose_memory_does_not_come_back_retires(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[Answer] = []
    job = Measure(Sources(), Settings(budget=0.005), (Case("op/sum", (("m", 4), ("n", 4), ("dtype", "fp32")), "numpy"),))
    worker.perform(job, {Sources(): built_ins()}, said.append, lambda: None)
    assert not any(isinstance(answer, Retire) for answer in said)
    monkeypatch.setattr(worker, "left_over", lambda case: "3.0 GiB of memory that it did not give back")
    worker.perform(job, {Sources(): built_ins()}, said.append, lambda: None)
    assert said[-1] == Retire("3.0 GiB of memory that it did not give back")


SETS = """
import os
from dataclasses import replace
from steelyard import Task, variant, workload


@workload("my/one", axes={"n": [8]}, backend="torch")
def one(n, be):
    x = be.randn(n)
    return Task(lambda: x + 1, effective={"pid": os.getpid()})


@variant("imports")
def imports(task, module="plain"):
    __import__(module)
    fn = task.fn
    return replace(task, fn=lambda: fn())
"""


@pytest.mark.parametrize(("module", "shared"), [("plain", True), ("sets", False)])
def test_so_does_one_whose_imports_set_what_is_put_back(tmp_path: Path, module: str, shared: bool) -> None:
    """An import is made once per process: the next case would not have what it sets."""
    (tmp_path / "plain.py").write_text("import torch")
    (tmp_path / "sets.py").write_text("import torch; torch.set_float32_matmul_precision('medium')")
    (tmp_path / "bench.py").write_text(SETS)
    matrices = tuple(Matrix(("my/one",), variant=(variant,)) for variant in (f"imports[module={module}]", "eager"))
    how = Settings(budget=0.005, telemetry=False, isolate="none")
    ready = conduct.from_experiment(Experiment("x", files=(str(tmp_path / "bench.py"),), matrix=matrices, settings=how))
    done = conduct.execute(ready, Store(tmp_path / "s"), ["x"], lambda writer: NoWatch())
    first, second = (record.effective["pid"] for record in done.run.records)
    assert (first == second) is shared
