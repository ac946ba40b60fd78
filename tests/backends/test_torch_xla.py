"""What the PyTorch/XLA backend makes of the runtime's counters, on a stand-in runtime; and where its cases run."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from steelyard.engine import envs
from steelyard.engine.place import Place
from steelyard.engine.plan import expand
from steelyard.errors import SteelyardError, Unsupported
from steelyard.measuring.fixed import take
from steelyard.model.experiment import Experiment, Matrix, Settings
from steelyard.model.protocol import Fixed
from steelyard.model.task import Task
from steelyard.registry import catalogue
from tests.engine.drive import run_json

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

GRAPHS = """[ScheduleSyncTensorsGraph]
TensorsGraphInfo:
  sync (torch_xla.py:87)

## BEGIN_GRAPH
HloModule {name}
## END_GRAPH

"""


class Runtime:
    """Counts as PyTorch/XLA's runtime does, and computes nothing: tensors stay on the CPU."""

    def __init__(self) -> None:
        self.compiled = self.executed = 0
        self.fell: dict[str, int] = {}
        self.waits = 0
        self.seeds: list[int] = []

    def wait(self) -> None:
        self.waits += 1

    def metric_data(self, name: str) -> tuple[int, float, list[Any]] | None:
        count = {"CompileTime": self.compiled, "ExecuteTime": self.executed}[name]
        return (count, 1e6 * count, []) if count else None

    def sync(self) -> None:
        self.executed += 1


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Runtime]:
    """A module that looks like torch_xla as far as the backend looks, and the counters behind it."""
    made = Runtime()
    parts: dict[str, dict[str, Any]] = {
        "torch_xla": {
            "sync": made.sync, "device": lambda: torch.device("cpu"), "__version__": "0.test",
            "manual_seed": made.seeds.append, "_XLAC": SimpleNamespace(_xla_runtime_is_initialized=lambda: True),
        },
        "torch_xla.core": {}, "torch_xla.core.xla_model": {"wait_device_ops": made.wait},
        "torch_xla.debug": {}, "torch_xla.debug.metrics": {
            "metric_data": made.metric_data, "counter_names": lambda: ["xla::mm", *made.fell],
            "counter_value": made.fell.get, "clear_all": lambda: None, "metrics_report": lambda: f"{made.executed} run",
        },
        "torch_xla.runtime": {"device_type": lambda: "CPU", "global_ordinal": lambda: 0},
    }  # fmt: skip
    for name, members in parts.items():
        module = ModuleType(name)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)
        owner, _, child = name.rpartition(".")
        if owner:
            setattr(sys.modules[owner], child, module)
    monkeypatch.setenv("PJRT_DEVICE", "CPU")
    monkeypatch.delitem(sys.modules, "steelyard.backends.torch_xla", raising=False)
    yield made
    sys.modules.pop("steelyard.backends.torch_xla", None)


def backend() -> Any:
    return importlib.import_module("steelyard.backends.torch_xla")


def test_a_call_is_over_when_its_work_is_done(runtime: Runtime) -> None:
    be = backend().TorchXla()
    task = be.in_mode(Task(lambda x: x + 1, (be.randn(4),)), "eval")
    before = runtime.executed
    assert torch.equal(task(), task.args[0] + 1)
    assert runtime.executed == before + 1


def test_what_is_prepared_is_not_left_for_the_call(runtime: Runtime) -> None:
    be, seen = backend().TorchXla(), []
    task = be.in_mode(Task(lambda: None, prepare=lambda: seen.append(runtime.executed)), "eval")
    assert task.prepare is not None
    task.prepare()
    assert runtime.executed == seen[0] + 1


def test_the_first_call_has_a_group_of_its_own_and_is_not_counted_again(runtime: Runtime) -> None:
    be = backend().TorchXla()

    def work() -> None:
        runtime.compiled += 2
        runtime.fell["aten::median"] = runtime.fell.get("aten::median", 0) + 3

    task = be.in_mode(Task(work), "eval")
    task()
    assert task.inspect is not None
    first = task.inspect()["xla"]["first_call"]
    assert (first["compiles"], first["executions"], first["fallbacks"]) == (2, 1, {"aten::median": 3})
    assert first["compile_time"] == pytest.approx(2e-3)
    task()
    assert task.inspect()["xla"]["first_call"] == first


def test_a_block_in_which_a_graph_was_compiled_is_disturbed_and_voids_the_case(runtime: Runtime) -> None:
    be, late = backend().TorchXla(), []

    def work() -> None:
        runtime.compiled += bool(late)

    task = be.in_mode(Task(work), "eval")
    timer = be.timer()
    loop = timer.bind(task)
    before = timer.disturbances()
    loop(3)
    assert timer.disturbances() == before
    figures, facts = be.beside(task, timer, 1e-3, Settings(budget=0.04))
    assert set(figures) == {"trace_time", "execute_time"}
    assert facts["xla"]["timed"] == {"compiles": 0, "compile_time": 0.0, "executions": 3, "execute_time": pytest.approx(3e-3)}
    assert (facts["xla"]["split"]["calls"], facts["xla"]["split"]["executions"]) == (10, 10)
    late.append(True)
    loop(1)
    be.beside(task, timer, 1e-3, Settings(budget=0.04))  # what was compiled between blocks is in no figure
    before = timer.disturbances()
    loop(1)
    assert timer.disturbances() == before + 1
    with pytest.raises(SteelyardError, match="compiled 1 graph while the case was timed"):
        be.beside(task, timer, 1e-3, Settings(budget=0.04))


def test_a_loop_is_handed_out_when_its_calls_compile_nothing_more(runtime: Runtime) -> None:
    be, left = backend().TorchXla(), [3]

    def work() -> None:
        runtime.compiled += left[0] > 0
        left[0] -= 1

    be.timer().bind(be.in_mode(Task(work), "eval"))
    assert left == [-1]


def test_graphs_of_a_call_are_told_from_earlier_ones_and_each_is_kept_once(
    runtime: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XLA_SAVE_TENSORS_FILE", str(tmp_path / "graphs"))
    be, saved = backend().TorchXla(), tmp_path / "graphs.0"
    with pytest.raises(Unsupported, match="wrote no graphs"):
        be.graph_texts(lambda: None, "hlo")
    with pytest.raises(Unsupported, match="not what XLA compiles from it"):
        be.graph_texts(lambda: None, "optimized")
    saved.write_text(GRAPHS.format(name="build"))

    def call() -> None:
        with saved.open("a") as file:
            file.writelines(GRAPHS.format(name=name) for name in ("one", "two", "one"))

    assert be.graph_texts(call, "hlo") == {"1": "HloModule one\n", "2": "HloModule two\n"}


def test_the_witness_draws_the_same_data_on_plain_torch(runtime: Runtime) -> None:
    be = backend().TorchXla(seed=7)
    witness = be.witness()
    assert type(witness).__name__ == "Torch" and witness.name == "torch"
    assert np.array_equal(be.randn(3, 5).numpy(), witness.randn(3, 5).numpy())


def test_several_ranks_are_for_another_backend(runtime: Runtime) -> None:
    with pytest.raises(Unsupported, match="backend torch_xla runs one process per case"):
        backend().TorchXla().join()


def test_a_device_of_another_kind_than_the_process_was_started_for_is_unsupported(runtime: Runtime) -> None:
    with pytest.raises(Unsupported, match="PJRT_DEVICE is CPU, and the case is for tpu"):
        backend().TorchXla("tpu")
    with pytest.raises(Unsupported, match="no device kind 'mps'"):
        backend().TorchXla("mps")


def test_a_repeat_hands_calls_over_one_by_one_and_waits_once(runtime: Runtime) -> None:
    be = backend().TorchXla()
    order: list[str] = []

    def call(x: Any) -> Any:
        order.append(f"call after {runtime.waits}")
        runtime.fell["aten::nonzero"] = runtime.fell.get("aten::nonzero", 0) + 1
        return x + 1

    ready = be.unwaited(be.in_mode(Task(call, (torch.ones(2),), prepare=lambda: order.append(f"prepare after {runtime.waits}")), "eval"))
    runtime.waits = runtime.executed = 0
    fixed = Fixed(repeats=2, calls=3, counters="reports")
    found = take(ready, fixed, be.stopwatch()).phases["measure"]
    assert order == ["prepare after 1", "call after 1"] * 3 + ["prepare after 3", "call after 3"] * 3
    assert len(found.forward.time) == len(found.forward.host) == 2
    assert all(0 < host <= whole for host, whole in zip(found.forward.host, found.forward.time, strict=True))
    counted = [{key: repeat["xla"][key] for key in ("compiles", "executions", "fallbacks")} for repeat in found.counts]
    assert counted == [{"compiles": 0, "executions": 4, "fallbacks": {"aten::nonzero": 3}}] * 2
    assert [repeat["report"] for repeat in found.counts] == ["5 run", "10 run"]
    be.sow()
    assert runtime.seeds == [be.seed]


@pytest.mark.parametrize(
    ("name", "remedy"), [("torch_xla", "steelyard env create torch-xla"), ("torchax", "steelyard env create torchax")]
)  # fmt: skip
def test_a_stack_that_is_not_there_is_unsupported_with_the_way_to_get_it(name: str, remedy: str, tmp_path: Path) -> None:
    found = run_json("op/sum", "-B", name, "--budget", "10ms", cwd=tmp_path, check=5)
    record = found["records"][0]
    assert record["status"] == "unsupported"
    assert f"backend {name} needs " in record["reason"] and remedy in record["reason"]


def test_openxla_belongs_to_torch_xla_alone(tmp_path: Path) -> None:
    [record] = run_json("op/sum", "-B", "torch", "-V", "openxla", "--budget", "10ms", cwd=tmp_path, check=5)["records"]
    assert record["status"] == "unsupported"
    assert "variant openxla works with torch_xla, not with backend torch" in record["reason"]


def test_a_backend_that_writes_no_graphs_says_so_and_keeps_its_figures(tmp_path: Path) -> None:
    [record] = run_json("fake/work", "--dump-ir", "hlo", cwd=tmp_path)["records"]
    assert record["status"] == "ok"
    assert record["effective"]["dump_ir"].startswith("unsupported: backend fake writes no graphs")


def environment(apart: Path, name: str, stack: str) -> Path:
    """A folder that looks like a built environment."""
    folder = apart / "envs" / name
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").symlink_to(sys.executable)
    (folder / "steelyard-env.json").write_text(json.dumps({"stack": stack, "packages": {}}))
    return folder


def places(**matrix: Any) -> dict[str, Place]:
    """Where the cases of a small matrix run, by backend."""
    plan = expand(Experiment(matrix=(Matrix(workload=("op/sum",), **matrix),)), catalogue())
    return {job.case.backend: job.place for job in plan.jobs}


def test_each_backend_has_its_own_interpreter_in_one_plan(apart: Path) -> None:
    both = ("torch", "torch_xla")
    assert {place.python for place in places(backend=both).values()} == {sys.executable}
    environment(apart, "a-second", "torch-xla")
    chosen = environment(apart, "torch-xla", "torch-xla")
    found = places(backend=both)
    assert (found["torch"].python, found["torch"].search_path) == (sys.executable, "")
    assert found["torch_xla"].python == str(chosen / "bin" / "python")
    assert Path(found["torch_xla"].search_path, "steelyard").resolve() == Path(envs.__file__).parents[1]


def test_a_place_that_was_asked_for_is_kept(apart: Path) -> None:
    environment(apart, "torch-xla", "torch-xla")
    asked = replace(Place(), python="/elsewhere/python")
    assert envs.place_for("torch_xla", asked) == asked


def test_a_host_compiles_for_a_device_with_all_its_cores() -> None:
    told = places(backend=("torch_xla",), threads=(1,), device=("cuda",))["torch_xla"].environment("mark")
    assert (told["PJRT_DEVICE"], told["PJRT_NPROC"]) == ("CUDA", str(os.cpu_count()))


def test_xla_is_told_its_device_and_threads_before_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--of_the_shell")
    monkeypatch.setenv("PJRT_DEVICE", "TPU")
    told = places(backend=("torch_xla",), threads=(2,))["torch_xla"].environment("mark")
    assert (told["PJRT_DEVICE"], told["PJRT_NPROC"], told["XLA_FLAGS"]) == ("CPU", "2", "")
    assert (told["XRT_TPU_CONFIG"], told["XLA_SAVE_TENSORS_FILE"]) == ("", "")
    own = places(backend=("torch_xla",), flags=({"XLA_FLAGS": "--mine"},))["torch_xla"].environment("mark")
    assert own["XLA_FLAGS"] == "--mine"
    assert places(backend=("torch",))["torch"].environment("mark")["XLA_FLAGS"] == "--of_the_shell"
