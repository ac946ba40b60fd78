"""Answers that lie on a device are compared where they lie, with the words and figures that numpy would give."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from steelyard.backends import _torch_looks
from steelyard.backends.base import Leaf
from steelyard.backends.torch import Torch
from steelyard.measuring import verify
from steelyard.model.record import Verification

VALUES = st.lists(
    st.floats(width=32) | st.sampled_from([0.0, -0.0, 1.0, float("nan"), float("inf"), -float("inf")]), min_size=0, max_size=12
)


def both(path: str, value: torch.Tensor) -> tuple[Leaf, Leaf]:
    """The same array as it is on the host, and as one of a device."""
    be = Torch()
    [host] = be.outputs(value, path)
    return host, replace(host, held=None, there=value, space=torch, read=lambda there: be.outputs(there, path)[0].data)


def compared(got: torch.Tensor, want: torch.Tensor, path: str = "out", **words: Any) -> tuple[Verification, Verification]:
    mine, theirs = both(path, got), both(path, want)
    return tuple(verify.compare([mine[side]], [theirs[side]], "x", **words) for side in (0, 1))  # type: ignore[return-value]


@settings(max_examples=200, deadline=None)
@given(VALUES, VALUES)
def test_any_two_arrays_are_judged_alike(got: list[float], want: list[float]) -> None:
    for kind in (torch.float32, torch.float16, torch.bfloat16):
        host, there = compared(torch.tensor(got, dtype=kind), torch.tensor(want[: len(got)], dtype=kind))
        assert (host.status, host.message, host.identical) == (there.status, there.message, there.identical)
        for one, other in ((host.max_abs, there.max_abs), (host.max_rel, there.max_rel)):
            assert one is other or one == pytest.approx(other, rel=1e-12, nan_ok=True)


@pytest.mark.parametrize("kind", [torch.int64, torch.int8, torch.bool, torch.complex64, torch.float64])
def test_every_kind_of_number(kind: Any) -> None:
    value = torch.arange(12).reshape(3, 4).to(kind)
    other = value.clone()
    other[1, 2] = 0 if kind is not torch.bool else ~value[1, 2]
    for want in (value, other):
        host, there = compared(value, want)
        assert (host.status, host.message) == (there.status, there.message)
    assert compared(value, value)[1].identical


def test_whole_numbers_beyond_what_a_float_can_tell_apart() -> None:
    value = torch.tensor([2**60, 5])
    host, there = compared(value, value + torch.tensor([1, 0]))
    assert host.status == there.status == "failed" and host.message == there.message


def test_gradients_by_their_norm() -> None:
    value = torch.randn(100, generator=torch.Generator().manual_seed(0))
    for factor in (1.0, 1.02, 1.5):
        host, there = compared(value * factor, value, "out.gradients.0", norm=0.1)
        assert (host.status, host.message) == (there.status, there.message)


def test_helpers_agree() -> None:
    host, there = both("out", torch.tensor([3.0, 4.0, float("inf")]))
    assert verify.infinite(host) == verify.infinite(there) == 1
    host, there = both("out", torch.tensor([3.0, 4.0]))
    assert verify.length(host) == verify.length(there) == 5.0
    assert verify.same_values(*both("out", torch.tensor([1.0, float("nan")])))
    assert not verify.same_values(both("out", torch.tensor([1.0, 2.0]))[1], both("out", torch.tensor([1.0, 3.0]))[1])


def test_a_leaf_is_read_only_when_somebody_asks() -> None:
    read: list[int] = []

    def look(there: Any) -> np.ndarray[Any, Any]:
        read.append(1)
        return np.asarray(there)

    leaf = Leaf("out", "fp32", None, (2,), torch.ones(2), torch, look)
    assert leaf.shape == (2,) and not read
    assert leaf.data.tolist() == leaf.data.tolist() == [1.0, 1.0] and len(read) == 1


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.int8, torch.float64, torch.bool])
def test_any_word_that_changes_is_another_fingerprint(kind: Any) -> None:
    value = torch.arange(1000).remainder(2).to(kind)
    same = _torch_looks.fingerprint(value)
    assert _torch_looks.fingerprint(value.clone()) == same
    for place in (0, 499, 999):
        other = value.clone()
        other[place] = 1 - int(value[place])
        assert _torch_looks.fingerprint(other) != same
    assert _torch_looks.fingerprint(value.roll(1)) != same and _torch_looks.fingerprint(value.reshape(10, 100)) != same


@pytest.mark.parametrize("change", [lambda x: -x, lambda x: x * 0.5, lambda x: x * 2, lambda x: x.flip(0)])
@pytest.mark.parametrize("kind", [torch.float64, torch.float32, torch.float16])
def test_a_change_of_every_word_is_another_fingerprint(kind: Any, change: Any) -> None:
    value = torch.randn(4096, generator=torch.Generator().manual_seed(1)).to(kind)
    assert _torch_looks.fingerprint(change(value)) != _torch_looks.fingerprint(value)


def test_large_ones_are_taken_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    value = torch.randn(1001)
    whole = _torch_looks.fingerprint(value)
    monkeypatch.setattr(_torch_looks, "CHUNK", 100)
    assert _torch_looks.fingerprint(value) == whole
