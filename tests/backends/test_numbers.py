"""Random numbers: the same bits from every backend, and the distributions that they are meant to have."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from steelyard.backends import _numbers, _torch_numbers
from steelyard.backends._numbers import HostNumbers, stream_of
from steelyard.backends.numpy import Numpy, Precise
from steelyard.backends.torch import Torch

MANY = 100_000
STREAMS = [(0, 1), (1, 1), (2**64 - 1, 2**64 - 1), (2**63, 12345)]
NORMALS = [0.06049608439207077, -0.04481414705514908, -0.5419161915779114, 0.5951646566390991]
UNIFORMS = [0.928514407504462, 1.8965422904993763, -0.7989838420549136]
WHOLES = [479, 722, 45, 312, 679, 191]
WIDE = [762460292594, 1006284803487, 962439590310]
TABLE = "c626a2537fccfd81f85b4169ad6b24e695a0fac237e8139a7bd694436252de76"


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("count", [1, 4, 4001])
def test_computed_words_are_those_of_numpys_generator(stream: tuple[int, int], count: int) -> None:
    want = np.random.Philox(key=np.asarray(stream, dtype=np.uint64)).random_raw(count).view(np.int64)
    assert _torch_numbers.words(stream, 0, count, "cpu").numpy().tolist() == want.tolist()
    with np.errstate(over="ignore"):
        computed = np.stack(_numbers.words(np.arange(-(-count // 4)), stream), axis=-1).reshape(-1)[:count]
    assert np.array_equal(computed, want)


def test_words_can_be_computed_from_any_block() -> None:
    all_of_them = _torch_numbers.words((5, 6), 0, 4000, "cpu")
    assert torch.equal(_torch_numbers.words((5, 6), 1204, 100, "cpu"), all_of_them[1204:1304])


def test_known_answers() -> None:
    """The same numbers on every machine and in every version: what a seed means is part of a result."""
    drawn = HostNumbers(stream_of(7, 3))
    assert drawn.normals(4).tolist() == NORMALS
    assert HostNumbers(stream_of(7, 3)).between(-1.0, 3.0, 3).tolist() == UNIFORMS
    assert HostNumbers(stream_of(7, 3)).whole(-5, 1000, 6).tolist() == WHOLES
    assert HostNumbers(stream_of(7, 3)).whole(0, 2**40, 3).tolist() == WIDE
    assert hashlib.sha256(_numbers.quantiles().tobytes()).hexdigest() == TABLE


@pytest.mark.parametrize("count", [1, 3, 65535, 65537, MANY])
def test_host_and_device_make_the_same_bits(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_torch_numbers, "CHUNK", 4096)
    stream = stream_of(11, 2)
    host = HostNumbers
    for wide in (False, True):
        assert (
            _torch_numbers.normals(stream, (count,), "cpu", wide=wide).numpy().tobytes() == host(stream).normals(count, wide=wide).tobytes()
        )
    uniform = _torch_numbers.between(stream, -0.3, 7.1, (count,), "cpu", torch.float64)
    assert uniform.numpy().tobytes() == host(stream).between(-0.3, 7.1, count).tobytes()
    for low, high in ((0, 2), (-10, 50257), (0, 2**31), (-3, 2**45)):
        assert (
            _torch_numbers.whole(stream, low, high, (count,), "cpu", torch.int64).numpy().tobytes()
            == host(stream).whole(low, high, count).tobytes()
        )


@pytest.mark.parametrize("dtype", ["fp64", "fp32", "fp16", "bf16"])
def test_every_backend_has_the_same_arrays(dtype: str) -> None:
    def arrays(be: Any) -> list[Any]:
        return [be.randn(31, 7, dtype=dtype, scale=0.37), be.uniform(50, low=-2.0, high=0.1, dtype=dtype), be.integers(-3, 900, 40)]

    for mine, reference in zip(arrays(Torch(seed=9)), arrays(Precise(seed=9)), strict=True):
        assert np.array_equal(mine.double().numpy(), reference.astype(np.float64))
    if dtype != "bf16":
        for mine, plain in zip(arrays(Torch(seed=9)), arrays(Numpy(seed=9)), strict=True):
            assert mine.numpy().tobytes() == plain.tobytes()


def test_arrays_follow_from_the_seed_and_their_number_alone() -> None:
    first, second = (Numpy(seed=4).randn(1000) for _ in range(2))
    assert np.array_equal(first, second)
    be = Numpy(seed=4)
    one, two = be.randn(1000), be.randn(1000)
    assert np.array_equal(one, first) and abs(np.corrcoef(one, two)[0, 1]) < 0.12
    assert abs(np.corrcoef(one, Numpy(seed=5).randn(1000))[0, 1]) < 0.12


@pytest.mark.parametrize("draw", range(1, 4))
def test_normals_are_normal(draw: int) -> None:
    drawn = HostNumbers(stream_of(0, draw)).normals(MANY)
    assert stats.kstest(drawn, "norm").pvalue > 1e-4
    assert abs(stats.kurtosis(drawn)) < 0.08 and abs(stats.skew(drawn)) < 0.04
    assert len(np.unique(drawn)) > 0.98 * MANY


@pytest.mark.parametrize("draw", range(1, 4))
def test_uniforms_and_whole_numbers_are_even(draw: int) -> None:
    assert stats.kstest(HostNumbers(stream_of(0, draw)).between(-2.0, 3.0, MANY), "uniform", args=(-2.0, 5.0)).pvalue > 1e-4
    for low, high in ((0, 7), (-100, 923), (5, 5 + 2**33)):
        drawn = HostNumbers(stream_of(0, draw)).whole(low, high, MANY)
        assert drawn.min() >= low and drawn.max() < high
        counted = np.bincount((drawn - low) * min(64, high - low) // (high - low))
        expected = np.diff([-(-place * (high - low) // len(counted)) for place in range(len(counted) + 1)]) * MANY / (high - low)
        assert stats.chisquare(counted, expected).pvalue > 1e-4


def test_neighbours_are_independent() -> None:
    drawn = HostNumbers(stream_of(3, 1)).normals(MANY)
    for lag in (1, 2, 3, 4, 8, 64):
        assert abs(np.corrcoef(drawn[:-lag], drawn[lag:])[0, 1]) < 5 / MANY**0.5
