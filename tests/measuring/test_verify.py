"""Verification must pass what is right, fail what is wrong, and say which value is off, where and by how much."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.backends.base import Leaf
from steelyard.errors import UsageError
from steelyard.measuring.verify import TOLERANCES, compare, tolerance
from steelyard.model.dtypes import SIZES, is_float
from steelyard.model.experiment import Settings
from steelyard.model.record import Verification
from steelyard.model.task import Task


def check(got: Any, want: Any, dtype: str = "fp32", **how: Any) -> Verification:
    return compare([Leaf("out", dtype, np.asarray(got))], [Leaf("out", dtype, np.asarray(want))], "the test", **how)


class TestStructure:
    def test_the_number_of_arrays(self) -> None:
        leaf = Leaf("out[0]", "fp32", np.zeros(3))
        found = compare([leaf], [leaf, leaf], "eager")
        assert (found.status, found.against, found.message) == ("failed", "eager", "1 output arrays instead of 2")

    def test_no_arrays_at_all_proves_nothing(self) -> None:
        assert compare([], [], "eager").status == "none"

    def test_the_shape(self) -> None:
        found = check(np.zeros((2, 3)), np.zeros((3, 2)))
        assert (found.status, found.message) == ("failed", "out: shape (2, 3) instead of (3, 2)")
        assert check(np.zeros((1,)), np.zeros(())).status == "failed"

    def test_the_dtype_unless_the_reference_is_more_precise(self) -> None:
        got, want = [Leaf("out.x", "bf16", np.ones(3))], [Leaf("out.x", "fp64", np.ones(3))]
        assert compare(got, want, "eager").message == "out.x: dtype bf16 instead of fp64"
        assert compare(got, want, "numpy fp64", same_dtype=False).status == "passed"

    def test_empty_arrays_are_equal_if_their_shapes_are(self) -> None:
        assert check(np.zeros((0, 3)), np.zeros((0, 3))).status == "passed"
        assert check(np.zeros((0, 3)), np.zeros((3, 0))).status == "failed"

    def test_every_array_is_looked_at_and_the_worst_error_kept(self) -> None:
        want = [Leaf(f"out[{k}]", "fp32", np.ones(4)) for k in range(3)]
        good = [Leaf(leaf.path, leaf.dtype, leaf.data + error) for leaf, error in zip(want, (2e-5, 5e-5, 1e-6), strict=True)]
        found = compare(good, want, "eager")
        assert (found.status, found.max_abs, found.max_rel) == ("passed", pytest.approx(5e-5), pytest.approx(5e-5))
        bad = [*good[:2], Leaf("out[2]", "fp32", np.array([1, 1, 1, 2.0]))]
        assert compare(bad, want, "eager").message.startswith("out[2]: 1 of 4 values")


class TestNonFinite:
    def test_a_nan_where_the_reference_has_none(self) -> None:
        found = check([[1, 2], [np.nan, np.nan]], [[1, 2], [3, 4]])
        assert found.message == "out: 2 of 4 values are NaN, first at (1, 0); the reference has none there"

    def test_a_nan_that_is_missing(self) -> None:
        assert check([1, 2], [1, np.nan]).message == "out: 1 values of the reference are NaN and ours are not, first at (1,)"

    def test_an_infinity_where_the_reference_has_none_and_one_that_is_missing(self) -> None:
        assert "1 of 2 values are infinite, first at (1,)" in check([1, np.inf], [1, 2]).message
        assert "1 values of the reference are infinite" in check([1, 2], [-np.inf, 2]).message

    def test_an_infinity_of_the_wrong_sign(self) -> None:
        assert check([np.inf, -np.inf], [np.inf, np.inf]).message == "out: infinite values have the wrong sign"

    def test_the_same_ones_in_the_same_places_are_right(self) -> None:
        values = [np.nan, np.inf, -np.inf, 1.0]
        assert check(values, values).status == "passed"
        assert check([np.nan, np.inf, -np.inf, 2.0], values).status == "failed"

    def test_infinities_do_not_make_the_rest_lenient(self) -> None:
        found = check([np.inf, 1.1], [np.inf, 1.0])
        assert (found.status, found.max_abs) == ("failed", pytest.approx(0.1))


class TestTolerances:
    @pytest.mark.parametrize("dtype", [name for name in SIZES if is_float(name)])
    def test_each_format_passes_its_rounding_and_fails_ten_times_its_tolerance(self, dtype: str) -> None:
        rtol, atol = TOLERANCES[dtype]
        assert tolerance(dtype) == (rtol, atol)
        want = np.linspace(1, 2, 50)
        assert check(want * (1 + 0.9 * rtol), want, dtype).status == "passed"
        found = check(want * (1 + 10 * rtol), want, dtype)
        assert (found.status, found.rtol, found.atol) == ("failed", rtol, atol)

    @pytest.mark.parametrize("dtype", [name for name in SIZES if not is_float(name)] + ["int", "uint32", "uint64", "torch.uint16"])
    def test_whole_numbers_are_exact(self, dtype: str) -> None:
        assert tolerance(dtype) == (0.0, 0.0)
        big = np.full(1000, 100_000)
        assert check(big, big, dtype).status == "passed"
        assert check(big + (np.arange(1000) == 7), big, dtype).status == "failed"

    def test_whole_numbers_are_exact_beyond_what_floats_can_tell_apart(self) -> None:
        found = check(np.array([5, 2**60 + 1]), np.array([5, 2**60]), "int64")
        assert (found.status, found.max_abs) == ("failed", 1.0)
        assert f"at (1,): {2**60 + 1} instead of {2**60}" in found.message
        assert check(np.array([2**64 - 1], np.uint64), np.array([2**64 - 2], np.uint64), "uint64").status == "failed"

    def test_truth_values_are_exact(self) -> None:
        found = check([True, False], [True, True], "bool")
        assert found.message.endswith("largest error 1 at (1,): False instead of True")

    def test_the_users_word_comes_first_then_the_tasks_then_the_formats(self) -> None:
        assert tolerance("fp32", (None, None), None) == (1e-4, 1e-5)
        assert tolerance("fp32", (None, None), (0.1, 0.2)) == (0.1, 0.2)
        assert tolerance("fp32", (0.5, None), (0.1, 0.2)) == (0.5, 0.2)
        assert tolerance("fp32", (None, 0.0), (0.1, 0.2)) == (0.1, 0.0)
        assert tolerance("int64", (0.5, 0.25)) == (0.5, 0.25)
        assert check([1.05], [1.0]).status == "failed"
        assert check([1.05], [1.0], own=(0.1, 0.0)).status == "passed"
        assert check([1.05], [1.0], own=(0.1, 0.0), asked=(0.01, None)).status == "failed"

    @given(st.floats(-12, 12).map(lambda power: 10.0**power), st.booleans())
    def test_the_absolute_part_scales_with_the_output(self, scale: float, wrong: bool) -> None:
        want = np.array([0.0, 1.0, -1.0, 1.0]) * scale
        got = want + np.array([1e-4 if wrong else 5e-6, 0, 0, 0]) * scale
        assert check(got, want).status == ("failed" if wrong else "passed")

    def test_nothing_is_near_to_nothing_but_itself(self) -> None:
        assert check([0.0, 0.0], [0.0, 0.0]).status == "passed"
        assert check([0.0, 1e-30], [0.0, 0.0]).status == "failed"

    def test_values_near_the_end_of_the_format_are_still_told_apart(self) -> None:
        assert check([1e300, 2e300], [1e300, 2e300], "fp64").status == "passed"
        assert check([1e300, 3e300], [1e300, 2e300], "fp64").status == "failed"

    def test_complex_values(self) -> None:
        want = np.array([1 + 2j, 3 - 4j])
        assert check(want * (1 + 1e-5j), want, "complex64").status == "passed"
        found = check(want + np.array([0, 0.5j]), want, "complex64")
        assert (found.status, found.max_abs) == ("failed", pytest.approx(0.5))
        assert "3-3.5j instead of 3-4j" in found.message
        assert check(want.conj(), want, "complex64").status == "failed"


class TestTrainingSteps:
    WANT = np.linspace(-1, 1, 200)
    SCATTER = 0.05 * np.where(np.arange(200) % 2, 1, -1)

    def step(self, part: str, data: Any, want: Any = WANT) -> Verification:
        got, wanted = Leaf(f"out.{part}", "bf16", np.asarray(data)), Leaf(f"out.{part}", "bf16", np.asarray(want))
        return compare([got], [wanted], "fp64", own=(3e-2, 5e-2), norm=0.4)

    @pytest.mark.parametrize("part", ["gradients", "gradients[3]", "updates", "updates[0]"])
    def test_gradients_and_updates_may_scatter_but_have_their_length_and_sign(self, part: str) -> None:
        assert self.step(part, self.WANT + 3 * self.SCATTER).status == "passed"
        assert "off by 0.5 of its norm" in self.step(part, 0.5 * self.WANT).message
        assert "0.7 times what it should be" in self.step(part, 0.7 * self.WANT).message
        assert "1.3 times what it should be" in self.step(part, 1.3 * self.WANT + self.SCATTER).message
        for wrong in (-self.WANT, 0 * self.WANT, 2 * self.WANT, self.WANT + 6 * self.SCATTER):
            assert self.step(part, wrong).status == "failed"

    def test_the_loss_is_held_to_its_relative_tolerance_alone(self) -> None:
        assert self.step("loss", 1.02, 1.0).status == "passed"
        found = self.step("loss", 1.04, 1.0)
        assert (found.status, found.atol) == ("failed", 0.0)

    def test_the_share_is_for_gradients_and_no_other_output(self) -> None:
        assert self.step("gradient", self.WANT + 3 * self.SCATTER).status == "failed"
        assert self.step("[0]", self.WANT + 3 * self.SCATTER).status == "failed"

    def test_a_gradient_that_is_not_finite_is_wrong(self) -> None:
        assert "NaN" in self.step("gradients", np.where(np.arange(200) == 7, np.nan, self.WANT)).message


class TestMessages:
    def test_size_and_place_of_the_error(self) -> None:
        want = np.arange(1, 13, dtype=np.float32).reshape(3, 4)
        got = want.copy()
        got[1, 2] += 0.5
        got[2, 0] -= 0.25
        found = check(got, want)
        assert found.message == (
            "out: 2 of 12 values differ beyond rtol 0.0001, atol 1e-05 x rms; largest error 0.5 at (1, 2): 7.5 instead of 7"
        )
        assert found.max_abs == 0.5

    def test_the_place_is_that_of_a_value_that_is_wrong(self) -> None:
        """A large value within its tolerance may be further off than a small one beyond it."""
        want = np.array([1e6] + [1.0] * 9999)
        got = want.copy()
        got[0] += 50
        got[5] += 5
        found = check(got, want)
        assert (found.status, found.max_abs) == ("failed", 50)
        assert "1 of 10000 values" in found.message
        assert "largest error 5 at (5,): 6 instead of 1" in found.message

    def test_a_single_number(self) -> None:
        assert "at (): 2 instead of 1" in check(2.0, 1.0).message


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True, width=32), min_size=1, max_size=30))
def test_anything_equals_itself(values: list[float]) -> None:
    found = check(np.array(values), np.array(values))
    assert (found.status, found.max_abs, found.max_rel) == ("passed", 0.0, 0.0)


@given(st.lists(st.floats(-1e30, 1e30, allow_subnormal=False), min_size=1, max_size=30), st.integers(0, 29), st.floats(0.01, 100))
def test_one_wrong_value_among_many_is_found(values: list[float], place: int, factor: float) -> None:
    want = np.array(values)
    got = want.copy()
    got[place % len(got)] += factor * (np.abs(want).max() or 1.0)
    assert check(got, want).status == "failed"


UNSOUND = st.sampled_from([math.nan, math.inf, -math.inf, -1e-300, -1.0, True, "1e-3", None, 1j])
SOUND = st.floats(0, 1e9)


class TestUnsoundTolerances:
    """A bound that is no number lets everything pass; none gets as far as a comparison."""

    @given(UNSOUND.filter(lambda value: value is not None), SOUND, st.booleans())
    def test_a_task_cannot_have_one(self, unsound: Any, sound: float, first: bool) -> None:
        pair = (unsound, sound) if first else (sound, unsound)
        with pytest.raises(UsageError, match="not a tolerance"):
            Task(len, tolerance=pair)
        with pytest.raises(UsageError, match="not a tolerance"):
            replace(Task(len, tolerance=(sound, sound)), norm_tolerance=unsound)

    @given(UNSOUND.filter(lambda value: value is not None), st.sampled_from(["rtol", "atol"]))
    def test_nor_can_settings(self, unsound: Any, name: str) -> None:
        with pytest.raises(UsageError, match=f"{name} is .*not a tolerance"):
            Settings(**{name: unsound})

    @given(st.sampled_from([math.nan, math.inf, -1.0]), st.sampled_from(["budget", "precision", "margin", "warmup", "timeout"]))
    def test_nor_other_numbers_of_the_settings(self, unsound: float, name: str) -> None:
        with pytest.raises(UsageError, match=name):
            Settings(**{name: unsound})

    @given(st.floats().filter(lambda value: not (math.isfinite(value) and value >= 0)), st.booleans(), st.booleans())
    def test_nor_does_one_pass_anything_on_its_way_in(self, unsound: float, first: bool, asked: bool) -> None:
        pair = (unsound, 0.0) if first else (0.0, unsound)
        with pytest.raises(UsageError):
            check([1.0], [1.0], **{"asked" if asked else "own": pair})

    @given(SOUND, SOUND)
    def test_every_other_is_taken(self, rtol: float, atol: float) -> None:
        assert Settings(rtol=rtol, atol=atol).rtol == rtol
        assert Task(len, tolerance=(rtol, atol)).tolerance == (rtol, atol)
        assert check([1.0], [1.0], asked=(rtol, atol)).status == "passed"

    @pytest.mark.parametrize("given", [0.1, (0.1,), (0.1, 0.1, 0.1), "ab", {}])
    def test_a_tolerance_is_a_pair(self, given: Any) -> None:
        with pytest.raises(UsageError, match="tolerance is"):
            Task(len, tolerance=given)

    def test_a_norm_too_large_for_its_square_is_still_compared(self) -> None:
        want = np.full(4, 1e300)
        step = Leaf("out.gradients", "fp64", want)
        assert compare([step], [step], "fp64", norm=0.1).status == "passed"
        assert compare([Leaf("out.gradients", "fp64", 0.5 * want)], [step], "fp64", norm=0.1).status == "failed"
