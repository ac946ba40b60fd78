"""Inputs made on the device have the bits of those made on the host, and answers are checked where they lie."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from steelyard.backends import _numbers, _torch_numbers
from steelyard.backends import torch as backend
from steelyard.backends._numbers import HostNumbers, stream_of
from steelyard.backends.torch import Torch
from steelyard.measuring import verify

pytestmark = pytest.mark.gpu

SIZES = [(1,), (1000, 333), (2**20 + 7,), (2**23 + 5,)]
FORMATS = ["fp64", "fp32", "fp16", "bf16", "fp8e4m3", "fp8e5m2"]


def bits(tensor: torch.Tensor) -> bytes:
    return tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes()


@pytest.fixture(autouse=True)
def always_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "DRAWN_THERE", 1)


@pytest.mark.parametrize("shape", SIZES, ids=str)
@pytest.mark.parametrize("dtype", FORMATS)
def test_arrays_have_the_same_bits(shape: tuple[int, ...], dtype: str) -> None:
    def arrays(be: Torch) -> list[torch.Tensor]:
        return [be.randn(*shape, dtype=dtype, scale=0.37), be.uniform(*shape, low=-2.0, high=0.3, dtype=dtype)]

    for there, here in zip(arrays(Torch("cuda", seed=3)), arrays(Torch("cpu", seed=3)), strict=True):
        assert there.device.type == "cuda" and bits(there) == bits(here)


@pytest.mark.parametrize("shape", SIZES, ids=str)
@pytest.mark.parametrize("ends", [(0, 2), (-10, 50257), (0, 2**31), (-3, 2**45)], ids=str)
def test_whole_numbers_have_the_same_bits(shape: tuple[int, ...], ends: tuple[int, int]) -> None:
    there, here = (Torch(device, seed=3).integers(*ends, *shape) for device in ("cuda", "cpu"))
    assert bits(there) == bits(here)


def test_words_come_from_one_kernel() -> None:
    """Where it cannot be compiled, the same words come from many operations, ten times as slowly."""
    assert _torch_numbers._fused(torch.device("cuda")) is not None
    stream = stream_of(7, 3)
    assert torch.equal(_torch_numbers.words(stream, 2**35, 1001, "cuda"), _torch_numbers.composed(stream, 2**35, 1001, "cuda"))


def test_words_are_the_same_under_jax() -> None:
    jax = pytest.importorskip("jax", reason="jax is not installed here; where it is, it must compute the same words")
    from jax import numpy as jnp

    jax.config.update("jax_enable_x64", True)
    stream = stream_of(5, 9)
    computed = jax.jit(lambda blocks: jnp.stack(_numbers.words(blocks, stream), axis=-1).reshape(-1))(jnp.arange(1000))
    want = np.random.Philox(key=np.asarray(stream, dtype=np.uint64)).random_raw(4000).view(np.int64)
    assert np.array_equal(np.asarray(computed), want)
    table = jnp.asarray(_numbers.quantiles())
    halves = jnp.asarray(want.view(np.int32))
    made = jax.jit(lambda halves: _numbers.normals(halves, table).astype(jnp.float32))(halves)
    assert np.asarray(made).tobytes() == HostNumbers(stream).normals(8000).tobytes()


@pytest.mark.parametrize("wrong", ["", "value", "nan", "shape"])
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_answers_are_judged_there_as_here(wrong: str, dtype: str) -> None:
    be = Torch("cuda", seed=1)
    want = be.randn(512, 700, dtype=dtype)
    got = want.clone()
    if wrong == "value":
        got[3, 5] += 1
    elif wrong == "nan":
        got[7, 1] = float("nan")
    elif wrong == "shape":
        got = got[:, :-1].contiguous()
    there = [be.outputs(value) for value in (got, want)]
    assert all(leaf.there is not None for leaves in there for leaf in leaves)
    here = [[replace(leaf, held=leaf.data, there=None, space=np) for leaf in leaves] for leaves in there]
    first, second = (verify.compare(*leaves, "x") for leaves in (there, here))
    assert (first.status, first.message, first.identical) == (second.status, second.message, second.identical)
    assert (first.status == "passed") == (wrong == "")


def test_an_answer_that_is_kept_does_not_follow_the_buffer_it_lay_in() -> None:
    be = Torch("cuda")
    value = be.randn(1000)
    [leaf] = be.outputs(value)
    kept, before = be.kept(leaf), value.clone()
    value.zero_()
    assert torch.equal(kept.there, before) and kept.data.tobytes() == before.cpu().numpy().tobytes()


def test_fingerprints_see_every_change() -> None:
    be = Torch("cuda")
    value: Any = be.randn(300_000, dtype="bf16")
    before = be.fingerprint(value)
    assert be.fingerprint(value.clone()) == before
    value[12345] += 0.5
    assert be.fingerprint(value) != before


def test_large_arrays_are_made_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Torch("cuda", seed=2).randn(100_001)
    monkeypatch.setattr(_torch_numbers, "CHUNK", 4096)
    assert torch.equal(Torch("cuda", seed=2).randn(100_001), whole)
