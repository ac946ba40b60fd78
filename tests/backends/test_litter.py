"""Free memory is filled so that what an allocator hands out next holds no old answer, however freed blocks lie and are merged."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from steelyard.backends._litter import PATTERN, Sketch, litter_host, pattern

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

TRIES, MOST = 400, 6
HEAPS = """
import random

import numpy as np
import torch

from steelyard.backends._litter import Sketch
from steelyard.backends._torch_litter import litter_cpu
from steelyard.backends.torch import FORMATS
from steelyard.engine.process import settle_allocator

settle_allocator()
OLD = 7.25


def old_values(rng):
    size = rng.choice([1 << 14, 1 << 16, 1 << 17])
    answers = [torch.full((rng.choice([size, size // 2, size + 40, 3 * size // 4]),), OLD) for _ in range(rng.randint(1, 8))]
    kept = []
    while answers:
        freed = answers.pop(rng.randrange(len(answers)))
        if rng.random() < 0.3:
            kept.append(freed)
        del freed
    litter_cpu([Sketch("fp32", (size,), np.random.default_rng(1).standard_normal(1000).astype(np.float32))], FORMATS)
    return float((torch.empty(size) == OLD).float().mean())


print(sum(old_values(random.Random(seed)) > 0.2 for seed in range(TRIES)))
"""


def test_an_answer_left_in_memory_is_not_handed_out_again() -> None:
    """Before blocks of both sizes were filled, and twice, one heap in twelve still had an old answer where the next one would be."""
    done = subprocess.run(
        [sys.executable, "-c", HEAPS.replace("TRIES", str(TRIES))], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) <= MOST


def test_numbers_look_like_an_answer() -> None:
    drawn = pattern(np.random.default_rng(3), np.full(100, 0.5, np.float32))
    assert drawn.dtype == np.float32 and len(drawn) == PATTERN
    assert np.isfinite(drawn).all() and 0.2 < drawn.std() < 1.0
    whole = pattern(np.random.default_rng(3), np.array([-3, 9], np.int8))
    assert whole.min() >= -6 and whole.max() <= 13


def test_answers_without_numbers_need_no_memory() -> None:
    litter_host([Sketch("fp32", (0,), np.zeros(0, np.float32)), Sketch("str", (2,), np.array(["a", "b"]))])
