"""The device's own halls of the museum: streams, graphs, the allocator, the cache, kernels in Triton and inline CUDA."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.engine.referee.exhibits import Exhibit, exhibits
from tests.engine.referee.test_museum import hold_cheat, hold_honest, judged

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]  # a driver's and a compiler's warnings are not ours

MUSEUM = Path(__file__).parent / "museum"
CHEATS, HONEST = exhibits("cheats", MUSEUM), exhibits("honest", MUSEUM)
WITHIN = 240.0
"""Inline CUDA is compiled for a minute or so."""


def shown(hall: list[Exhibit]) -> list[Any]:
    """The exhibits of a hall; those with inline CUDA need a compiler."""
    compiled = pytest.mark.skipif(shutil.which("nvcc") is None or importlib.util.find_spec("ninja") is None, reason="needs nvcc and ninja")
    return [pytest.param(each, id=each.name, marks=compiled if "load_inline" in each.file.read_text("utf-8") else ()) for each in hall]


@pytest.mark.parametrize("exhibit", shown(CHEATS))
def test_a_cheat_does_not_win(exhibit: Exhibit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    hold_cheat(exhibit, judged(exhibit, tmp_path, device="cuda", timeout=WITHIN))


@pytest.mark.parametrize("exhibit", shown(HONEST))
def test_an_honest_one_is_not_refused(exhibit: Exhibit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    hold_honest(exhibit, judged(exhibit, tmp_path, device="cuda", timeout=WITHIN))
