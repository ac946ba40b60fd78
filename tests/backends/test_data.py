"""Neutral data: equal seeds give equal numbers on every backend, in every format, however it spells it."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from steelyard.backends import numpy as numpy_backend
from steelyard.backends.base import Backend
from steelyard.backends.command import Command
from steelyard.backends.fake import Fake
from steelyard.backends.numpy import Numpy, Precise, to_bf16
from steelyard.errors import Unsupported, UsageError
from steelyard.measuring.clock import HostTimer
from steelyard.model.dtypes import ALIASES, SIZES
from steelyard.model.task import Task

torch = pytest.importorskip("torch")
from steelyard.backends import torch as torch_backend  # noqa: E402
from steelyard.backends.torch import Torch  # noqa: E402

pytestmark = pytest.mark.torch
BOTH = sorted(set(numpy_backend.FORMATS) & set(torch_backend.FORMATS))


def drawn(be: Backend, dtype: str) -> list[tuple[str, Any]]:
    """One array of every kind a workload can ask for."""
    made = [
        be.randn(7, 3, dtype=dtype), be.randn(5, dtype=dtype, scale=20.0), be.uniform(11, low=2.0, high=90.0, dtype=dtype),
        be.integers(0, 100, 4, 2, dtype=dtype), be.full(3, value=2.0, dtype=dtype), be.randn(dtype=dtype), be.full(value=3.0, dtype=dtype),
    ]  # fmt: skip
    return [(leaf.dtype, np.array(leaf.data)) for item in made for leaf in be.outputs(item)]


def plain(be: Backend, value: Any) -> np.ndarray[Any, Any]:
    return np.array(be.outputs(value)[0].data)


@pytest.mark.parametrize("dtype", BOTH)
def test_numpy_and_torch_draw_the_same_data(dtype: str) -> None:
    ours, theirs = drawn(Numpy(seed=7), dtype), drawn(Torch(seed=7), dtype)
    assert [name for name, _ in ours] == [name for name, _ in theirs] == [dtype] * 7
    for (_, one), (_, other) in zip(ours, theirs, strict=True):
        assert one.shape == other.shape
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("dtype", [*BOTH, "bf16"])
def test_the_reference_holds_the_rounded_data_in_double_precision(dtype: str) -> None:
    for (_, one), (_, other) in zip(drawn(Precise(seed=3), dtype), drawn(Torch(seed=3), dtype), strict=True):
        assert one.dtype == (np.float64 if other.dtype.kind == "f" else other.dtype)
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("dtype", ["fp8e4m3", "fp8e5m2"])
def test_formats_numpy_lacks_are_made_by_torch_and_refused_by_numpy(dtype: str) -> None:
    leaf = Torch().outputs(Torch(seed=1).randn(9, dtype=dtype))[0]
    assert (leaf.dtype, leaf.data.dtype) == (dtype, np.float32)
    np.testing.assert_allclose(leaf.data, Numpy(seed=1).randn(9), rtol=0.25, atol=0.02)
    for backend in (Numpy, Precise):
        with pytest.raises(Unsupported, match=dtype):
            backend().randn(9, dtype=dtype)


def test_every_format_of_ours_is_known_to_torch() -> None:
    assert set(torch_backend.FORMATS) == set(SIZES)
    assert all(kind.itemsize == SIZES[name] for name, kind in torch_backend.FORMATS.items())


@pytest.mark.parametrize("backend", [Numpy, Torch, Fake])
def test_seeds_decide_and_calls_differ(backend: type[Backend]) -> None:
    one, same, other = backend(seed=1), backend(seed=1), backend(seed=2)
    first, again, different = (plain(be, be.randn(50)) for be in (one, same, other))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, different)
    assert not np.array_equal(first, plain(one, one.randn(50)))
    same.full(9)
    same.randn(1)
    assert np.array_equal(plain(one, one.randn(3, 4)), plain(same, same.randn(3, 4)))


@pytest.mark.parametrize("alias", ["float64", "double", "f64"])
def test_another_spelling_of_a_format_draws_the_same_data(alias: str) -> None:
    assert ALIASES[alias] == "fp64"
    assert np.array_equal(Numpy(seed=5).randn(9, dtype=alias), Numpy(seed=5).randn(9, dtype="fp64"))
    with pytest.raises(UsageError, match="did you mean float64"):
        Numpy().randn(9, dtype="flaot64")


def test_data_is_what_its_name_says() -> None:
    be = Numpy(seed=0)
    normal, level, whole = be.randn(20_000, scale=3.0), be.uniform(20_000, low=-2, high=4), be.integers(-3, 5, 20_000)
    assert (normal.mean(), normal.std()) == (pytest.approx(0, abs=0.1), pytest.approx(3, rel=0.03))
    assert (level.min(), level.max()) == (pytest.approx(-2, abs=0.01), pytest.approx(4, abs=0.01))
    assert sorted(set(whole.tolist())) == list(range(-3, 5))


@given(arrays(np.float32, st.integers(0, 20), elements=st.floats(width=32)))
def test_bf16_rounds_as_torch_does(data: np.ndarray[Any, Any]) -> None:
    theirs = torch.from_numpy(data.copy()).to(torch.bfloat16).float().numpy()
    np.testing.assert_array_equal(to_bf16(data), theirs)
    assert np.array_equal(np.signbit(to_bf16(data))[~np.isnan(data)], np.signbit(theirs)[~np.isnan(data)])


@given(st.integers(0, 2**32 - 1))
def test_bf16_rounds_every_bit_pattern_as_torch_does(bits: int) -> None:
    """Ties, subnormals and NaNs with any payload, which numbers drawn as numbers seldom hit."""
    data = np.array(bits, np.uint32).view(np.float32)
    assert to_bf16(data).shape == ()
    np.testing.assert_array_equal(to_bf16(data), torch.tensor(data).to(torch.bfloat16).float().numpy())
    tie = np.array([(bits & 0xFFFF0000) | 0x8000], np.uint32).view(np.float32)
    np.testing.assert_array_equal(to_bf16(tie), torch.from_numpy(tie).to(torch.bfloat16).float().numpy())


class TestOutputs:
    def test_a_result_is_flattened_with_its_places(self) -> None:
        be = Numpy()
        found = be.outputs({"a": [np.ones(2), (np.zeros(3, np.int8), 4)], "b": {"c": True}, "d": None, "e": "text", "f": np.float16(2)})
        assert [(leaf.path, leaf.dtype, leaf.data.shape) for leaf in found] == [
            ("out.a[0]", "fp64", (2,)),
            ("out.a[1][0]", "int8", (3,)),
            ("out.a[1][1]", "int", ()),
            ("out.b.c", "bool", ()),
            ("out.f", "fp16", ()),
        ]
        assert be.outputs(None) == be.outputs([]) == []

    def test_torch_tensors_of_any_kind_are_readable(self) -> None:
        be = Torch()
        base = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
        tensors = (
            base.T,
            base.clone().requires_grad_() * 2,
            base.bfloat16(),
            torch.complex(base, base).conj(),
            torch.complex(base, base).conj().imag,
        )
        found = be.outputs(tensors)
        assert [leaf.dtype for leaf in found] == ["fp32", "fp32", "bf16", "complex64", "fp32"]
        assert found[0].data.tolist() == [[1, 3], [2, 4]]
        assert found[3].data.tolist() == [[1 - 1j, 2 - 2j], [3 - 3j, 4 - 4j]]
        assert found[4].data.tolist() == [[-1, -2], [-3, -4]]

    def test_unknown_formats_keep_their_own_name(self) -> None:
        assert Numpy().outputs(np.ones(2, np.uint32))[0].dtype == "uint32"
        assert Torch().outputs(torch.ones(2, dtype=torch.uint16))[0].dtype == "uint16"


def pointer(value: Any) -> int:
    return int(value.data_ptr() if isinstance(value, torch.Tensor) else value.ctypes.data)


class TestRelocation:
    @pytest.mark.parametrize("backend", [Numpy, Torch])
    def test_inputs_move_and_answers_stay(self, backend: type[Backend]) -> None:
        be = backend(seed=1)
        x, y = be.randn(40, 30), be.randn(30, 20)
        task = Task(lambda a, b, k, c: (a @ b) * k + c, (x, y, 2.0), {"c": be.randn(40, 20)}, flops=5.0, items=2.0)
        before, rng, places = plain(be, task()), random.Random(0), set()
        kept = [be.relocate(task, rng) for _ in range(4)]
        for moved in kept:
            assert np.array_equal(plain(be, moved()), before)
            assert (moved.flops, moved.items, moved.args[2]) == (5.0, 2.0, 2.0)
            places |= {pointer(moved.args[0]), pointer(moved.args[1]), pointer(moved.kwargs["c"])}
        assert len(places) == 12
        assert places.isdisjoint({pointer(x), pointer(y), pointer(task.kwargs["c"])})

    @pytest.mark.parametrize("backend", [Numpy, Torch])
    def test_one_array_given_twice_stays_one(self, backend: type[Backend]) -> None:
        be = backend()
        x = be.randn(8)
        moved = be.relocate(Task(max, (x, x, be.randn(8)), {"out": x}), random.Random(0))
        assert moved.args[0] is moved.args[1] is moved.kwargs["out"]
        assert moved.args[0] is not moved.args[2]

    def test_the_layout_in_memory_stays(self) -> None:
        x = Numpy().randn(40, 30)
        moved = Numpy().relocate(Task(max, (x.T,)), random.Random(0))
        assert moved.args[0].strides == x.T.strides
        y = Torch().randn(40, 30)
        assert Torch().relocate(Task(max, (y.T,)), random.Random(0)).args[0].stride() == y.T.stride()

    def test_gradients_still_end_at_the_input(self) -> None:
        be = Torch()
        x = be.randn(5).requires_grad_()
        moved = be.relocate(Task(lambda a: (a * a).sum(), (x,)), random.Random(0))
        assert moved.args[0].is_leaf
        moved().backward()
        assert torch.equal(moved.args[0].grad, 2 * x.detach())
        assert x.grad is None
        assert not be.relocate(Task(max, (be.integers(0, 9, 5),)), random.Random(0)).args[0].requires_grad

    @pytest.mark.parametrize("hidden", [False, True])
    def test_a_module_moves_with_its_weights_and_buffers_wherever_it_is(self, hidden: bool) -> None:
        be = Torch()
        module = torch.nn.BatchNorm1d(4).eval()
        fn = (lambda x: module(x)) if hidden else module
        task = Task(fn, (be.randn(3, 4),), parameters=tuple(module.parameters()))
        before, places = task().detach().clone(), {pointer(item) for item in module.state_dict().values()}
        assert be.movable(task)
        moved = be.relocate(task, random.Random(0))
        other = moved.fn.__closure__[0].cell_contents if hidden else moved.fn
        assert places.isdisjoint({pointer(item) for item in other.state_dict().values()})
        assert [id(item) for item in moved.parameters] == [id(item) for item in other.parameters()]
        assert torch.equal(moved(), before)

    def test_weights_of_what_has_to_stay_move_where_they_are(self) -> None:
        be = Torch()
        module = torch.nn.BatchNorm1d(4).eval()
        task = Task(module, (be.randn(3, 4),), parameters=tuple(module.parameters()))
        kept = [item.data for item in module.state_dict().values()]
        moved = be.relocate(task, random.Random(0), whole=False)
        assert moved.fn is module and moved.args[0] is not task.args[0]
        assert {pointer(item) for item in kept}.isdisjoint({pointer(item) for item in module.state_dict().values()})

    @pytest.mark.parametrize("backend", [Numpy, Torch])
    def test_views_of_one_memory_stay_views_of_one(self, backend: type[Backend]) -> None:
        be = backend()
        x = be.randn(6, 8)
        moved = be.relocate(Task(max, ([x, x[1:], x.T],)), random.Random(0))
        whole, part, turned = moved.args[0]
        part[0, 0] = 7.0
        assert whole[1, 0] == turned[0, 1] == 7.0 != x[1, 0]
        assert pointer(part) - pointer(whole) == pointer(x[1:]) - pointer(x)

    def test_what_a_compiler_made_stays_and_is_told_where_it_holds_weights(self) -> None:
        be = Torch()
        module = torch.compile(torch.nn.Linear(3, 3), backend="eager")
        assert be.stays(Task(module, (be.randn(2, 3),))) == ["OptimizedModule"]
        assert be.stays(Task(torch.compile(lambda x: x + 1, backend="eager"), (be.randn(2, 3),))) == []

    def test_what_the_first_task_owns_is_not_cleaned_up_by_its_copies(self) -> None:
        assert Numpy().relocate(Task(max, cleanup=lambda: None), random.Random(0)).cleanup is None


class TestOpening:
    @pytest.mark.parametrize(
        ("backend", "device"), [(Numpy, "cuda"), (Command, "cuda"), (Torch, "abacus"), (Torch, "rocm"), (Torch, "mps")]
    )
    def test_a_device_it_cannot_use_is_unsupported_with_the_reason(self, backend: type[Backend], device: str) -> None:
        with pytest.raises(Unsupported, match=f"(?i){device}"):
            backend(device)

    @pytest.mark.parametrize("threads", [1, 2])
    def test_torch_gets_its_threads(self, threads: int) -> None:
        before = torch.get_num_threads()
        try:
            assert Torch(threads=threads).threads == threads == torch.get_num_threads()
        finally:
            torch.set_num_threads(before)

    @pytest.mark.parametrize("backend", [Numpy, Torch, Fake, Command])
    def test_versions_and_clock_are_told(self, backend: type[Backend]) -> None:
        be = backend()
        assert all(isinstance(text, str) and text for text in be.versions().values())
        assert isinstance(be.timer(), HostTimer)
        be.sync()
        backend.reset()

    def test_torch_formats_have_names(self) -> None:
        assert Torch().dtype("bf16") is torch.bfloat16


class TestFake:
    def test_time_passes_only_when_told(self) -> None:
        be = Fake()
        timer = be.timer()
        assert timer.bind(Task(lambda: be.spend(2.5e-3)))(4) == 10_000_000
        assert timer.bind(Task(lambda: None))(1000) == 0
        before = timer.disturbances()
        be.preempt()
        assert timer.disturbances() == before + 1

    def test_noise_comes_from_the_seed_and_never_turns_time_back(self) -> None:
        def spent(seed: int) -> list[int]:
            be = Fake(seed=seed)
            loop = be.timer().bind(Task(lambda: be.spend(1e-3, noise=2.0)))
            return [loop(1) for _ in range(50)]

        assert spent(1) == spent(1) != spent(2)
        assert min(spent(1)) == 0
