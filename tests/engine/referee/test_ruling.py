"""How sure a ruling's ratio is: what three pairs of processes say about their spread, and what all of them share."""

from __future__ import annotations

import math
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import steelyard
from steelyard.engine.referee.evidence import Block, Evidence
from steelyard.engine.referee.options import JudgeOptions
from steelyard.engine.referee.ruling import COMMON, weighed
from steelyard.model.pair import Pair

ROUNDS = 8
COPIES = 4
REFERENCE = """\
import numpy as np

def reference(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)

def inputs(seed):
    return (np.random.default_rng(seed).standard_normal((64, 1024)),)
"""


def judged(centres: list[float], noise: float = 0.02, device: str = "cpu") -> Pair:
    """The pair of processes with these log-ratios, whose blocks have this noise."""
    rng, seen = random.Random(4), Evidence()
    for pair, centre in enumerate(centres):
        for number in range(ROUNDS):
            for half, arm in enumerate((0, 1, 1, 0)):
                took = 1e-3 * math.exp(centre * arm + rng.gauss(0, noise))
                seen.blocks.append(Block(pair, number, half // 2, arm, 8, 1e-3, 8 * took, None, 8 * took, 0.0))
    court: Any = SimpleNamespace(options=JudgeOptions(device=device))
    return weighed(court, seen, ("reference", "candidate"))


def width(pair: Pair) -> float:
    return math.log(pair.high / pair.low)


def test_pairs_that_differ_as_usual_give_an_interval_by_the_known_spread() -> None:
    """By their own alone it would be twice as wide as soon as they differ a little more."""
    near, usual, far = (judged([-0.7 - off, -0.7, -0.7 + off]) for off in (0.0, 0.03, 0.3))
    assert width(near) <= width(usual) < 1.3 * width(near) and width(far) > 5 * width(near)
    assert all(pair.low < math.exp(-0.7) < pair.high for pair in (near, usual, far))


def test_what_all_pairs_share_is_in_the_interval_however_quiet_they_are() -> None:
    assert width(judged([0.0] * 3, noise=1e-6)) > 2 * 2.58 * COMMON["cpu"]
    assert width(judged([0.0] * 12, noise=1e-6)) > 2 * 2.58 * COMMON["cpu"]


@pytest.mark.parametrize("noise", [0.01, 0.05])
def test_a_devices_interval_is_that_of_its_blocks(noise: float) -> None:
    found = judged([-0.2], noise, device="cuda")
    assert found.low < math.exp(-0.2) < found.high and 0.25 * noise < width(found) < 10 * noise


@pytest.mark.deep
def test_copies_of_the_reference_are_neither_faster_nor_slower(tmp_path: Path) -> None:
    (tmp_path / "reference.py").write_text(REFERENCE)
    named = [tmp_path / f"copy_{number}.py" for number in range(COPIES)]
    for number, file in enumerate(named):
        file.write_text(REFERENCE.replace("def reference", f"NUMBER = {number}\n\ndef candidate"))
    found = list(steelyard.judge_all(tmp_path / "reference.py", named))
    assert all(ruling.correct for ruling in found)
    assert {ruling.delta.verdict for ruling in found if ruling.delta} <= {"same", "unclear"}, [str(ruling.delta) for ruling in found]
