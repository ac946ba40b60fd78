"""Products of eight-bit formats: exact where they can be, declared for what they move, and refused with a reason."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from steelyard.backends.numpy import Numpy
from steelyard.errors import NotApplicable, Unsupported
from tests.workloads.tiny import NARROW, build, results

torch = pytest.importorskip("torch")
from steelyard.backends.torch import Torch  # noqa: E402

pytestmark = pytest.mark.torch
SHAPE = {"m": 24, "n": 40, "k": 16}


def test_int8_products_are_summed_in_int32_and_equal_in_both_frameworks() -> None:
    ours, theirs = (results(build("op/int_matmul", SHAPE, be, "int8"), be)[0] for be in (Torch(seed=0), Numpy(seed=0)))
    assert ours.dtype == theirs.dtype == np.int32 and ours.shape == (24, 40)
    assert np.array_equal(ours, theirs) and np.abs(ours).max() > 127


def test_an_eight_bit_product_declares_narrow_inputs_and_a_wide_answer() -> None:
    task = build("op/int_matmul", SHAPE, Torch(seed=0), "int8")
    assert (task.flops, task.bytes) == (2 * 24 * 40 * 16, 24 * 16 + 40 * 16 + 4 * 24 * 40)


@pytest.mark.parametrize("name", NARROW)
def test_other_formats_are_refused(name: str) -> None:
    with pytest.raises(NotApplicable, match="use op/matmul"):
        build(name, SHAPE, Torch(seed=0), "fp32")


def test_float8_needs_a_gpu_that_multiplies_it() -> None:
    with pytest.raises(Unsupported, match=r"compute capability 8\.9"):
        build("op/scaled_matmul", SHAPE, Torch(seed=0), "fp8e4m3")


@pytest.mark.parametrize(("change", "said"), [({"m": 16}, "m above 16"), ({"n": 12}, "multiples of 8"), ({"k": 12}, "multiples of 8")])
def test_shapes_that_a_gpu_refuses_are_told(change: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    be = Torch(seed=0)
    monkeypatch.setattr(be, "device", "cuda")
    with pytest.raises(NotApplicable, match=said):
        build("op/int_matmul", {**SHAPE, **change}, be, "int8")
