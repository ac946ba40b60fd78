"""Triton kernels of compiled code through the whole of a trace, on a CPU: Triton's interpreter stands for the GPU."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.stacks, pytest.mark.torch, pytest.mark.timeout(600)]
ROOT = Path(__file__).parents[2]


@pytest.fixture
def triton(tmp_path: Path) -> str:
    """Where Triton can be imported from: here, or a folder that it is installed in."""
    if importlib.util.find_spec("triton") is not None:
        return ""
    folder = tmp_path / "triton"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder)]
    subprocess.run([*install, "-r", str(ROOT / "constraints" / "triton.txt")], check=True, timeout=500)
    return str(folder)


def test_kernels_of_compiled_code_are_recorded_offered_and_called_again(triton: str, tmp_path: Path) -> None:
    """In the forward pass, after a trial of a kernel's forms, and in the backward pass; no source is loaded before it was allowed."""
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}:{triton}", "CUDA_VISIBLE_DEVICES": ""}
    program = [sys.executable, "-W", "ignore", "-m", "tests.workloads.traces.interpreted", str(tmp_path)]
    done = subprocess.run(program, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads((tmp_path / "told.json").read_text())
    assert sorted(told["offered"].values()) == [1, 1, 2] and told["others"] == []
    assert any("backward" in name for name in told["offered"])
    assert told["loaded"] == [] and told["sources"]
    assert told["apart"] < 1e-3
    assert told["operators"].count("aten::mm") == 4, "what the compiler tried out or ran on fake tensors is not among them"
