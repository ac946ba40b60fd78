"""What a user of `steelyard judge -d cuda` reads: kernels, the share of the roof, formats, and a batch whose interpreters start ahead."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import steelyard
from steelyard.cli.main import main
from tests.engine.referee.test_museum import said

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]  # a driver's and a compiler's warnings are not ours

REFERENCE = """\
import torch

def reference(x):
    return torch.relu(x) * 2.0 + 1.0

def inputs(seed):
    return (torch.randn(4096, 4096, generator=torch.Generator().manual_seed(seed)),)
"""
FUSED = """\
import torch
import triton
import triton.language as tl

@triton.jit
def fused_relu(out, x, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + places, mask=places < n)
    tl.store(out + places, tl.maximum(values, 0.0) * 2.0 + 1.0, mask=places < n)

def candidate(x):
    out = torch.empty_like(x)
    fused_relu[(triton.cdiv(x.numel(), 4096),)](out, x, x.numel(), BLOCK=4096)
    return out
"""
EAGER = "import torch\ndef candidate(x):\n    return torch.relu(x).mul_(2.0).add_(1.0)\n"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The problem and two candidates."""
    (tmp_path / "reference.py").write_text(REFERENCE)
    folder = tmp_path / "candidates"
    folder.mkdir()
    (folder / "fused.py").write_text(FUSED)
    (folder / "eager.py").write_text(EAGER)
    return tmp_path


def test_a_fused_kernel_is_listed_and_near_the_roof(place: Path) -> None:
    fused = steelyard.judge(str(place / "reference.py"), str(place / "candidates" / "fused.py"), device="cuda", kernels=True)
    assert fused.correct and fused.delta is not None and fused.delta.verdict == "faster", said(fused)
    assert any("fused_relu" in name for name in fused.facts["kernels"]), fused.facts
    assert fused.roof is not None and 0.2 < fused.roof < 1.2, fused.roof


def test_kernels_do_not_change_the_time_of_a_candidate(place: Path) -> None:
    """The profiler looks when all is timed: what it slows is not the candidate's time."""
    both = [
        steelyard.judge(str(place / "reference.py"), str(place / "candidates" / "fused.py"), device="cuda", kernels=asked)
        for asked in (False, True)
    ]
    plain, asked = (ruling.delta for ruling in both)
    assert plain is not None and asked is not None and plain.ratio and asked.ratio
    assert abs(asked.ratio / plain.ratio - 1) < 0.15


def test_a_batch_on_the_device(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = place / "rulings.jsonl"
    words = ["judge", str(place / "reference.py"), str(place / "candidates"), "-d", "cuda", "-o", str(output), "--kernels", "--json"]
    assert main(words) == 0
    found = {ruling["candidate"]: ruling for ruling in json.loads(capsys.readouterr().out)["rulings"]}
    assert set(found) == {"fused", "eager"} and len(output.read_text().splitlines()) == 2
    assert sum(found["eager"]["facts"]["kernels"].values()) > sum(found["fused"]["facts"]["kernels"].values())
    assert found["fused"]["facts"]["hardware"]
    assert main([*words, "--resume"]) == 0 and len(output.read_text().splitlines()) == 2
