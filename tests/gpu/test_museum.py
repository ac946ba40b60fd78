"""The device's own halls of the museum: streams, graphs, the allocator, the cache, kernels in Triton and inline CUDA.

All candidates for a problem are judged in one batch, as users judge many: each must get its own words although others went before it.
"""

from __future__ import annotations

import functools
import importlib.util
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import steelyard
from steelyard.model.judging import Ruling
from tests.engine.referee.exhibits import Exhibit, exhibits
from tests.engine.referee.test_museum import hold_cheat, hold_honest

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]  # a driver's and a compiler's warnings are not ours

MUSEUM = Path(__file__).parent / "museum"
CHEATS, HONEST = exhibits("cheats", MUSEUM), exhibits("honest", MUSEUM)
WITHIN = 240.0
"""Inline CUDA is compiled for a minute or so."""
COMPILED = "load_inline"


def shown(hall: list[Exhibit]) -> list[Any]:
    """The exhibits of a hall, by problem; those with inline CUDA need a compiler."""
    mark = pytest.mark.skipif(not can_compile(), reason="needs nvcc and ninja")
    ordered = sorted(hall, key=lambda each: (each.problem.stem, each.name))
    return [pytest.param(each, id=f"{each.problem.stem}-{each.name}", marks=mark if inline(each) else ()) for each in ordered]


def can_compile() -> bool:
    """Whether inline CUDA can be built here."""
    return shutil.which("nvcc") is not None and importlib.util.find_spec("ninja") is not None


def inline(exhibit: Exhibit) -> bool:
    """Whether an exhibit has inline CUDA."""
    return COMPILED in exhibit.file.read_text("utf-8")


@functools.cache
def rulings(problem: Path, compiled: bool) -> Mapping[str, Ruling]:
    """What is said of all candidates for a problem, judged in one batch; those with inline CUDA apart, as they take long."""
    mine = [each for each in (*CHEATS, *HONEST) if each.problem == problem and inline(each) == compiled]
    with tempfile.TemporaryDirectory() as folder:
        copies = [shutil.copy(each.file, folder) for each in mine]
        found = list(steelyard.judge_all(shutil.copy(problem, folder), copies, device="cuda", timeout=WITHIN))
    return {each.name: ruling for each, ruling in zip(mine, found, strict=True)}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("exhibit", shown(CHEATS))
def test_a_cheat_does_not_win(exhibit: Exhibit) -> None:
    hold_cheat(exhibit, rulings(exhibit.problem, inline(exhibit))[exhibit.name])


@pytest.mark.timeout(900)
@pytest.mark.parametrize("exhibit", shown(HONEST))
def test_an_honest_one_is_not_refused(exhibit: Exhibit) -> None:
    hold_honest(exhibit, rulings(exhibit.problem, inline(exhibit))[exhibit.name])
