"""Arguments are what their descriptions say, and the same for the same seed."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from steelyard.backends.torch import FORMATS  # noqa: E402
from steelyard.errors import UsageError  # noqa: E402
from steelyard.workloads.operators._values import arguments  # noqa: E402
from tests.workloads.operators.specs import Spec, call, indices, many, of, tensor  # noqa: E402

pytestmark = pytest.mark.torch

SIGNED, UNSIGNED = ["int8", "int16", "int", "long"], ["uint8", "uint16", "uint32", "uint64"]
EVERY = sorted(FORMATS)


def one(spec: Spec, seed: int = 0, device: str = "cpu") -> Any:
    args, kwargs, _ = arguments(call(spec), device, seed)
    assert not kwargs
    return args[0]


def whole(value: Any) -> Any:
    return value.to(torch.int64)


class TestUsualData:
    @pytest.mark.parametrize("dtype", ["float", "double", "float16", "bfloat16"])
    def test_floats_are_uniform_below_one(self, dtype: str) -> None:
        found = one(tensor(200, 50, dtype=dtype)).detach().double()
        assert found.min() >= 0 and found.max() <= 1 and found.max() > 0.95
        assert found.mean() == pytest.approx(0.5, abs=0.02)

    @pytest.mark.parametrize(("dtype", "low"), [*((name, -10) for name in SIGNED), *((name, 0) for name in UNSIGNED)])
    def test_whole_numbers_are_below_ten(self, dtype: str, low: int) -> None:
        found = whole(one(tensor(3000, dtype=dtype)))
        assert sorted(set(found.tolist())) == list(range(low, 10))

    def test_booleans_are_a_coin(self) -> None:
        assert one(tensor(4000, dtype="bool")).float().mean() == pytest.approx(0.5, abs=0.05)

    @pytest.mark.parametrize("dtype", EVERY)
    def test_every_format_has_data_a_scalar_and_a_form_without_data(self, dtype: str) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for shape in ((3, 4), (), (0, 2)):
                made, bare = one(tensor(*shape, dtype=dtype)), one(tensor(*shape, dtype=dtype), device="meta")
                assert made.dtype == bare.dtype == FORMATS[dtype]
                assert tuple(made.shape) == tuple(bare.shape) == shape
                assert made.requires_grad == bare.requires_grad == (made.is_floating_point() or made.is_complex())
                assert bare.is_meta and not made.is_meta

    def test_a_scalar_is_one_number_up_to_ten(self) -> None:
        found = [float(one(tensor(dtype="double", requires_grad=False), seed)) for seed in range(200)]
        assert min(found) < -8 and max(found) > 8 and all(-10 <= value < 10 for value in found)

    def test_gradients_can_be_left_out(self) -> None:
        args, _, _ = arguments(call(tensor(2), tensor(2, requires_grad=False)), "cpu", 0)
        assert [item.requires_grad for item in args] == [True, False]
        args, _, _ = arguments(call(tensor(2, requires_grad=True)), "cpu", 0, grad=False)
        assert not args[0].requires_grad

    def test_whole_numbers_cannot_require_a_gradient(self) -> None:
        with pytest.raises(UsageError, match="cannot require a gradient"):
            one(tensor(2, dtype="long", requires_grad=True))


class TestLayout:
    def test_strides_are_as_written(self) -> None:
        made = one(tensor(4, 3, strides=[1, 4]))
        assert made.stride() == (1, 4) and made.is_leaf and made.requires_grad
        assert one(tensor(4, 3, strides=[1, 4]), device="meta").stride() == (1, 4)
        row = one(tensor(5, 3, strides=[0, 1]))
        assert torch.equal(row[0], row[4])

    @pytest.mark.parametrize("strides", [[1], [1, -1]])
    def test_strides_fit_the_shape(self, strides: list[int]) -> None:
        with pytest.raises(UsageError, match="do not fit"):
            one(tensor(2, 2, strides=strides))

    def test_memory_formats(self) -> None:
        assert one(tensor(2, 3, 4, 5, memory_format="channels_last")).is_contiguous(memory_format=torch.channels_last)
        assert one(tensor(2, 3, 4, 5, 6, memory_format="channels_last_3d")).stride()[1] == 1
        with pytest.raises(UsageError, match="needs 4 dimensions, not 2"):
            one(tensor(2, 3, memory_format="channels_last"))
        with pytest.raises(UsageError, match="did you mean channels_last"):
            one(tensor(2, 3, 4, 5, memory_format="chanels_last"))

    def test_fixed_values(self) -> None:
        made = one({"type": "tensor", "dtype": "bfloat16", "values": [[1, 2], [3, 4.5]]})
        assert made.dtype == torch.bfloat16 and made.tolist() == [[1, 2], [3, 4.5]]
        for wrong in ({"values": [[1], [1, 2]]}, {"values": ["a"]}, {"values": [300], "dtype": "int8"}, {"values": [1, 2], "shape": [3]}):
            with pytest.raises(UsageError, match="values"):
                one({"type": "tensor", "dtype": "float", **wrong})


class TestDistributions:
    @given(low=st.integers(-50, 50), span=st.integers(1, 50), seed=st.integers(0, 2**31))
    def test_integers_stay_between_their_ends(self, low: int, span: int, seed: int) -> None:
        made = one(tensor(64, dtype="int64", distribution={"name": "integers", "low": low, "high": low + span}), seed)
        assert made.min() >= low and made.max() < low + span

    def test_uniform_and_normal(self) -> None:
        level = one(tensor(20_000, distribution={"name": "uniform", "low": -3.0, "high": 5.0})).detach()
        assert level.min() >= -3 and level.max() <= 5 and level.mean() == pytest.approx(1, abs=0.1)
        bell = one(tensor(20_000, distribution={"name": "normal", "mean": 2.0, "std": 3.0})).detach()
        assert (bell.mean(), bell.std()) == (pytest.approx(2, abs=0.1), pytest.approx(3, abs=0.1))

    def test_constant_arange_and_permutation(self) -> None:
        assert set(one(tensor(4, dtype="half", distribution={"name": "constant", "value": 0.5})).tolist()) == {0.5}
        assert one(tensor(2, 3, dtype="int32", distribution={"name": "arange"})).tolist() == [[0, 1, 2], [3, 4, 5]]
        assert sorted(one(tensor(9, dtype="int64", distribution={"name": "permutation"})).tolist()) == list(range(9))

    @pytest.mark.parametrize(
        ("alpha", "rows"), [(0.5, 100), (1.0, 100), (1.05, 1000), (2.0, 50), (1.2, 1)], ids=["0.5", "1", "1.05", "2", "one row"]
    )
    def test_zipf_indices_stay_in_the_table_and_favour_its_first_rows(self, alpha: float, rows: int) -> None:
        spec = call(tensor(rows, 2), indices(5000, arg=0, dim=0, distribution={"name": "zipf", "alpha": alpha}))
        found = arguments(spec, "cpu", 0)[0][1]
        assert found.min() >= 0 and found.max() < rows
        if rows > 1:
            counts = torch.bincount(found, minlength=rows)
            assert counts[0] == counts.max() and counts[0] > 2 * counts[rows // 2]

    def test_zipf_alone_begins_at_one(self) -> None:
        made = one(tensor(5000, dtype="int64", distribution={"name": "zipf", "alpha": 2.0}))
        assert made.min() == 1 and (made == 1).double().mean() == pytest.approx(0.5, abs=0.05)
        with pytest.raises(UsageError, match="above 1"):
            one(tensor(5, dtype="int64", distribution={"name": "zipf", "alpha": 0.9}))

    @pytest.mark.parametrize("rule", [{"name": "integers"}, {"name": "constant"}, {"name": "integers", "low": 5, "high": 5}])
    def test_a_rule_that_cannot_be_drawn_is_the_users_mistake(self, rule: Spec) -> None:
        with pytest.raises(UsageError, match="cannot be drawn"):
            one(tensor(2, dtype="int64", distribution=rule))

    def test_an_unknown_rule_has_a_nearest_name_with_and_without_data(self) -> None:
        for device in ("cpu", "meta"):
            with pytest.raises(UsageError, match="did you mean uniform"):
                one(tensor(2, distribution={"name": "unifrom"}), device=device)


class TestIndices:
    @given(
        rows=st.integers(1, 40), count=st.integers(0, 60), rule=st.sampled_from([None, "arange", "permutation"]), seed=st.integers(0, 99)
    )
    def test_indices_are_valid_whatever_the_rule(self, rows: int, count: int, rule: str | None, seed: int) -> None:
        more = {"distribution": {"name": rule}} if rule else {}
        found = arguments(call(indices(count, arg=1, dim=-1, **more), tensor(2, rows)), "cpu", seed)[0][0]
        assert len(found) == count and all(0 <= place < rows for place in found.tolist())
        if rule == "permutation":
            assert len(set(found.tolist())) == min(count, rows)

    def test_a_named_argument_can_be_the_bound(self) -> None:
        spec = call(tensor(500, dtype="int32", index={"kwarg": "weight", "dim": 0}), weight=tensor(7, 3))
        args, kwargs, _ = arguments(spec, "cpu", 0)
        assert sorted(set(args[0].tolist())) == list(range(7)) and kwargs["weight"].shape == (7, 3)

    @pytest.mark.parametrize(
        ("spec", "why"),
        [
            (call(indices(3, arg=1, dim=0)), r"args\[1\] has no dimension 0"),
            (call(indices(3, arg=1, dim=2), tensor(2, 2)), "no dimension 2"),
            (call(indices(3, arg=1, dim=0), of("int", 3)), "no dimension 0"),
            (call(indices(3, arg=1, dim=0), tensor(0)), "empty"),
            (call(indices(3, arg=1, dim=0, dtype="float"), tensor(4)), "whole number"),
            (call(indices(3, arg=1, dim=0, dtype="int8"), tensor(1000)), "cannot count to 999"),
        ],
    )
    def test_an_index_into_nothing_is_found_with_and_without_data(self, spec: Spec, why: str) -> None:
        for device in ("cpu", "meta"):
            with pytest.raises(UsageError, match=why) as caught:
                arguments(spec, device, 0)
            assert caught.value.where == "args[0]"

    def test_a_rule_that_points_outside_is_refused(self) -> None:
        rule = {"name": "integers", "low": 0, "high": 50}
        with pytest.raises(UsageError, match=r"outside of \[0, 4\)"):
            arguments(call(indices(300, arg=1, dim=0, distribution=rule), tensor(4)), "cpu", 0)


class TestOtherTypes:
    def test_each_type_is_the_value_of_python_or_torch(self) -> None:
        args, kwargs, drawn = arguments(
            call(
                of("int", 2.5), of("long", 3), of("float", 1.5), of("double", 2.5), of("bool", False), of("str", "sum"), {"type": "str"},
                {"type": "none"}, of("device", "cpu"), of("dtype", "torch.float8_e4m3fn"), of("layout", "sparse_csr"),
                of("memory_format", "channels_last"), of("complex", [1, -2]), many(of("int", 1), many(of("int", 2), kind="tuple")),
                beta=of("int", 1),
            ),
            "cpu",
            0,
        )  # fmt: skip
        assert args[:8] == [2.5, 3, 1.5, 2.5, False, "sum", "", None]
        assert args[8:12] == [torch.device("cpu"), torch.float8_e4m3fn, torch.sparse_csr, torch.channels_last]
        assert args[12:] == [complex(1, -2), [1, (2,)]] and kwargs == {"beta": 1} and drawn == {}

    def test_ranges_are_drawn_with_both_ends_and_noted_by_place(self) -> None:
        spec = call(
            many({"type": "int", "value_range": [1, 3]}),
            {"type": "float", "value_range": [0.5, 2]},
            p={"type": "long", "value_range": [7, 7]},
        )
        seen = set()
        for seed in range(60):
            args, kwargs, drawn = arguments(spec, "cpu", seed)
            assert drawn == {"args[0][0]": args[0][0], "args[1]": args[1], "kwargs.p": 7} and kwargs == {"p": 7}
            assert 0.5 <= args[1] <= 2
            seen.add(args[0][0])
        assert seen == {1, 2, 3}

    @pytest.mark.parametrize(
        ("item", "why"),
        [
            ({"type": "tensr"}, "did you mean tensor"), ({"type": "int"}, "value_range"), ({"dtype": "float"}, "with a type"),
            ({"type": "tensor", "shape": [1]}, "'dtype'"), ({"type": "tensor", "dtype": "float"}, "'shape'"), (3, "with a type"),
            (of("dtype", "flot"), "args[0]  no dtype named 'flot'"), (of("dtype", ["float"]), "no dtype named"),
            (of("device", "gpu0"), "no device"), (of("complex", 3), "real, imaginary"), (of("layout", "dense"), "layout"),
            ({"type": "tensor", "dtype": "float", "shape": [-1]}, "negative"), ({"type": "genericlist"}, "'value'"),
        ],
    )  # fmt: skip
    def test_a_description_that_says_nothing_is_refused(self, item: Any, why: str) -> None:
        with pytest.raises(UsageError) as caught:
            arguments(call(item), "cpu", 0)
        assert why in str(caught.value)


@given(seed=st.integers(0, 2**40))
def test_the_seed_decides(seed: int) -> None:
    spec = call(tensor(6), tensor(6, dtype="int64"), {"type": "float", "value_range": [0, 1]}, indices(6, arg=0, dim=0))
    (one_args, _, one_drawn), (same_args, _, same_drawn) = arguments(spec, "cpu", seed), arguments(spec, "cpu", seed)
    other_args, _, other_drawn = arguments(spec, "cpu", seed + 1)
    assert all(torch.equal(a, b) for a, b in zip(one_args, same_args, strict=True) if isinstance(a, torch.Tensor))
    assert one_drawn == same_drawn != other_drawn and not torch.equal(one_args[0], other_args[0])


def test_equal_descriptions_are_different_data() -> None:
    one_tensor, other = arguments(call(tensor(50), tensor(50)), "cpu", 0)[0]
    assert not torch.equal(one_tensor, other)
