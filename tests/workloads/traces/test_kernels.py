"""Triton kernels of a trace: nothing of their source runs without the user's word, and then only that source."""

from __future__ import annotations

import os
import py_compile
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import steelyard  # noqa: E402
from steelyard.backends import _torch_compiled  # noqa: E402
from steelyard.traces.steps import read_trace  # noqa: E402
from steelyard.workloads.traces import _kernels, folders  # noqa: E402
from steelyard.workloads.traces._operators import NotReplayed, fitted  # noqa: E402
from tests.traces.made import node  # noqa: E402
from tests.workloads.traces import recorded as made  # noqa: E402
from tests.workloads.traces.test_replay import build, skipped  # noqa: E402

KERNEL = "triton_poi_fused_relu_0"
SOURCE = """
import pathlib
class Autotuner:
    launchers = ()
    def run(self, *args, stream):
        pass
{name} = Autotuner()
pathlib.Path({ran!r}).write_text("{mark}")
"""


def trace(tmp_path: Path, file: str = "cabc.py", name: str = KERNEL, *behind: Any) -> Path:
    x, y = made.tensor(10, [8]), made.tensor(11, [8])
    kernel = made.call(3, "", [x, y, made.plain(8, "Int"), *behind, made.plain(0, "Int")], [])
    attributes = [item for item in kernel["attrs"] if item["name"] not in ("kernel_backend", "kernel_file")]
    attributes += [{"name": key, "type": "string", "value": value} for key, value in (("kernel_backend", "triton"), ("kernel_file", file))]
    path = made.write(
        tmp_path / "step.json", {**kernel, "name": name, "attrs": attributes}, made.call(4, made.RELU, [y], [made.tensor(12, [8])])
    )
    folder = tmp_path / "step_resources"
    folder.mkdir(exist_ok=True)
    (folder / "cabc.py").write_text(SOURCE.format(name=KERNEL, mark="read", ran=str(folder / "cabc.ran")))
    return path


def test_a_kernel_is_not_run_without_consent_and_the_reason_says_how_to_give_it(tmp_path: Path) -> None:
    path = trace(tmp_path)
    assert skipped(build(path))[KERNEL] == (
        f"a Triton kernel, whose source is code: read step_resources/cabc.py, and allow it with --allow triton:{KERNEL}"
    )
    assert "--allow" in skipped(build(path, allow=("triton:another", KERNEL)))[KERNEL]
    assert "runs on a GPU and not on cpu" in skipped(build(path, allow=(f"triton:{KERNEL}",)))[KERNEL]
    assert not (tmp_path / "step_resources" / "cabc.ran").exists()


def test_a_name_that_would_break_a_command_line_is_quoted(tmp_path: Path) -> None:
    (reason,) = skipped(build(trace(tmp_path, name="x; rm -r"))).values()
    assert reason.endswith("--allow 'triton:x; rm -r'")
    (reason,) = skipped(build(trace(tmp_path, name="x\x1b[2J"))).values()
    assert "\x1b" not in reason


@pytest.mark.parametrize("file", ["../cabc.py", "/etc/passwd", "gone.py", "", "a/b.py", "linked.py"])
def test_a_source_is_a_file_among_the_resources_and_nothing_else(tmp_path: Path, file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    node = read_trace(trace(tmp_path, file)).outermost[0]
    (tmp_path / "step_resources" / "linked.py").symlink_to(tmp_path / "step_resources" / "cabc.py")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    kernels = _kernels.TritonKernels.of(tmp_path / "step_resources", (f"triton:{KERNEL}",), "cuda:0")
    with pytest.raises(NotReplayed, match="a Triton kernel whose"):
        kernels.find(node)
    assert not (tmp_path / "step_resources" / "cabc.ran").exists()


def test_the_source_that_was_read_is_loaded_and_no_compiled_file_beside_it(tmp_path: Path) -> None:
    trace(tmp_path)
    source = tmp_path / "step_resources" / "cabc.py"
    other = tmp_path / "other.py"
    other.write_text(SOURCE.format(name=KERNEL, mark="evil", ran=str(source.with_suffix(".ran"))))
    os.utime(other, (1, 1))
    os.utime(source, (1, 1))
    cached = source.parent / "__pycache__" / "cabc.cpython-311.pyc"
    py_compile.compile(str(other), cfile=str(cached), doraise=True)
    kernel = _kernels.loaded(source, KERNEL)
    assert (source.with_suffix(".ran").read_text(), type(kernel).__name__) == ("read", "Autotuner")
    assert _kernels.loaded(source, "another name") is kernel
    assert Path(sys.modules[type(kernel).__module__].__file__ or "").parent != source.parent, "the compiler writes beside what it loads"
    broken = source.with_name("broken.py")
    broken.write_text("1 / 0")
    with pytest.raises(NotReplayed, match="ZeroDivisionError"):
        _kernels.loaded(broken, KERNEL)


@pytest.mark.parametrize("behind", [(), (made.plain("(1, 1, 1)", "String"),)], ids=["now", "with a grid"])
def test_a_kernel_takes_what_was_recorded_without_stream_and_grid(tmp_path: Path, behind: tuple[Any, ...]) -> None:
    node = read_trace(trace(tmp_path, "cabc.py", KERNEL, *behind)).outermost[0]
    schema = _kernels.schema_of(node)
    assert str(schema) == "triton::kernel(Tensor(a0!) a0, Tensor(a1!) a1, int a2) -> ()"
    assert fitted(node, _kernels.FoundOperator("x", None, schema, None)) == [("a0", 0, False), ("a1", 1, False), ("a2", 2, False)]


def test_a_launch_as_compiled_code_tells_of_it_is_recorded_and_offered(tmp_path: Path) -> None:
    x, y = torch.ones(8), torch.empty(8)
    told = {"kernel_file": "/elsewhere/ab/cabc.py", "kernel_backend": "triton", "stream": 0, "num_warps": 4, "kernel_kwargs": "XBLOCK=8"}
    with steelyard.capture(tmp_path / "step.json"):
        with torch._C._profiler._RecordFunctionFast(KERNEL, (x, y, 8), told):
            pass
        with torch.profiler.profile(record_shapes=True) as users:
            y.relu()
        with torch._C._profiler._RecordFunctionFast(KERNEL, (x, y, 8), told):
            pass
    assert "aten::relu" in {event.name for event in users.events()}, "a profiler of the recorded code works as ever"
    kernel = read_trace(tmp_path / "step.json").outermost[0]
    assert (kernel.is_triton, kernel.kernel_file) == (True, "cabc.py")
    assert [item.kind for item in _kernels.arguments(kernel)] == ["tensor", "tensor", "int"]
    task = build(tmp_path / "step.json")
    assert skipped(task)[KERNEL].endswith(f"--allow triton:{KERNEL}")


def test_what_a_compiler_tried_out_is_no_part_of_a_step(tmp_path: Path) -> None:
    with steelyard.capture(tmp_path / "step.json"):
        with torch.autograd.profiler.record_function("CachingAutotuner.benchmark_all_configs (dynamo_timed)"):
            torch.ones(3).sin()
        torch.ones(3).cos()
    assert [node.name for node in read_trace(tmp_path / "step.json").outermost] == ["aten::ones", "aten::cos"]


class Autotuner:
    """Tunes as inductor's kernels do, with calls that are no part of a step."""

    def autotune_to_one_config(self, x: Any) -> Any:
        return x.sin()


def test_tuning_is_not_recorded_and_is_left_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, _torch_compiled.TUNERS, SimpleNamespace(CachingAutotuner=Autotuner))
    before = Autotuner.autotune_to_one_config
    with steelyard.capture(tmp_path / "step.json"):
        Autotuner().autotune_to_one_config(torch.ones(3)).cos()
    assert [node.name for node in read_trace(tmp_path / "step.json").outermost] == ["aten::ones", "aten::cos"]
    assert Autotuner.autotune_to_one_config is before


def test_a_source_that_came_out_of_the_compilers_cache_is_kept_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cache" / "ab").mkdir(parents=True)
    (tmp_path / "cache" / "ab" / "cabc.py").write_text("the source")
    codecache = SimpleNamespace(cache_dir=lambda: str(tmp_path / "cache"), PyCodeCache=SimpleNamespace(modules=[]))
    monkeypatch.setitem(sys.modules, "torch._inductor.codecache", codecache)
    told = {"kernel_file": str(tmp_path / "cache" / "ab" / "cabc.py"), "kernel_backend": "triton", "stream": 0}
    for name in ("step.json", "zipped.json.gz"):
        with steelyard.capture(tmp_path / name), torch._C._profiler._RecordFunctionFast(KERNEL, (torch.ones(3), 8), told):
            pass
        folder = read_trace(tmp_path / name).resources
        assert folder is not None and (folder / "cabc.py").read_text() == "the source"


def test_what_a_compiler_writes_beside_a_source_does_not_make_another_trace_of_it(tmp_path: Path) -> None:
    path = trace(tmp_path)
    before = folders.identify(path)
    (tmp_path / "step_resources" / "cabc.best_config").write_text("{}")
    assert folders.identify(path) == before
    (tmp_path / "step_resources" / "cabc.py").write_text("pass")
    assert folders.identify(path) != before


def test_compiled_code_that_no_recorder_saw_is_not_passed_off_as_replayed(tmp_path: Path) -> None:
    told = {"kernel_file": "cabc.py", "kernel_backend": "triton", "stream": 0}
    with steelyard.capture(tmp_path / "step.json"):
        for seen in (False, True):
            with torch.autograd.profiler.record_function("Torch-Compiled Region: 0/0"):
                torch.ones(3).sin()
                if seen:
                    with torch._C._profiler._RecordFunctionFast(KERNEL, (torch.ones(3), 3), told):
                        pass
    facts = build(tmp_path / "step.json", skip=KERNEL).effective["replay"]
    assert {row["operator"]: row["count"] for row in facts["skipped"]} == {"compiled code": 1, KERNEL: 1}
    assert (facts["replayed"], facts["operators"], facts["shares"]["operators"]) == (5, 7, pytest.approx(5 / 7))


COMPILED = ("Torch-Compiled Region: 0/0", "## Call CompiledFxGraph fabc ##")


def on_device(number: int) -> Any:
    value, *rest = made.tensor(number, [4, 4])
    return [*value[:-1], "cuda:0"], *rest


@pytest.mark.parametrize(
    ("schema", "place", "labels", "unseen"),
    [
        (made.MM, on_device, COMPILED, 0),
        (made.MM, on_device, COMPILED[:1], 0),
        (made.MM, lambda number: made.tensor(number, [4, 4]), COMPILED, 1),
        (made.MM, lambda number: made.tensor(number, [4, 4]), COMPILED[1:], 1),
        ("aten::copy_(Tensor(a!) self, Tensor src, bool non_blocking=False) -> Tensor(a!)", on_device, COMPILED, 1),
        ("aten::t(Tensor(a) self) -> Tensor(a)", on_device, COMPILED, 1),
    ],
    ids=["operators of a device", "without the graph's label", "of a host", "backward on a host", "only moves", "only views"],
)
def test_compiled_code_made_of_operators_on_a_device_is_all_in_the_trace(
    tmp_path: Path, schema: str, place: Any, labels: tuple[str, ...], unseen: int
) -> None:
    """On a device code without Triton kernels is made of operators; on a host, or in a CUDA graph, it need not be."""
    outer = [node(3 + depth, label, 2 + depth) for depth, label in enumerate(labels)]
    inputs = [place(number) for number in range(10, 10 + schema.partition("->")[0].count("Tensor"))]
    behind = [made.plain(False, "Bool")] if "bool" in schema else []
    inner = made.call(9, schema, [*inputs, *behind], [inputs[0] if "a!" in schema else place(20)], parent=2 + len(labels))
    facts = build(made.write(tmp_path / "step.json", *outer, inner)).effective["replay"]
    rows = {row["operator"]: row["count"] for row in facts["skipped"]}
    assert (rows.get("compiled code", 0), facts["operators"]) == (unseen, 1 + unseen)
