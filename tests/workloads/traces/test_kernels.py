"""Triton kernels of a trace: nothing of their source runs without the user's word, and then only that source."""

from __future__ import annotations

import os
import py_compile
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from steelyard.traces.steps import read_trace  # noqa: E402
from steelyard.workloads.traces import _kernels  # noqa: E402
from steelyard.workloads.traces._operators import NotReplayed, fitted  # noqa: E402
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
pathlib.Path(__file__).with_suffix(".ran").write_text("{mark}")
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
    (folder / "cabc.py").write_text(SOURCE.format(name=KERNEL, mark="read"))
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
    other.write_text(SOURCE.format(name=KERNEL, mark="evil"))
    os.utime(other, (1, 1))
    os.utime(source, (1, 1))
    cached = source.parent / "__pycache__" / "cabc.cpython-311.pyc"
    py_compile.compile(str(other), cfile=str(cached), doraise=True)
    kernel = _kernels.loaded(source, KERNEL)
    assert (source.with_suffix(".ran").read_text(), type(kernel).__name__) == ("read", "Autotuner")
    assert _kernels.loaded(source, "another name") is kernel
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
