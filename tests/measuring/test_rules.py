"""Verification rules by name, and PyTorch/XLA's: both of its limits, and a code for everything that can be in the way."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from steelyard.backends.base import Leaf
from steelyard.errors import UsageError
from steelyard.measuring import rules
from steelyard.measuring.rules import ptxla
from steelyard.measuring.rules.ptxla import Limits, compare, compare_arrays, mean_relative_error, multiplier
from steelyard.model.record import Verification

FORMATS = {"fp64": np.float64, "fp32": np.float32, "fp16": np.float16, "bf16": np.float32, "int64": np.int64, "bool": np.bool_}
LOOSE, TIGHT = Limits(1e-2), Limits(1e-4)
Leaves = dict[str, Leaf]
Give = Callable[[int], Mapping[str, Leaf]]


def leaf(values: Any, dtype: str = "fp32", path: str = "out") -> Leaf:
    made = np.asarray(values, FORMATS[dtype])
    if dtype == "bf16":
        made = ((made.view(np.uint32) + 0x8000) & 0xFFFF0000).view(np.float32)
    return Leaf(path, dtype, made)


def out(*values: float, dtype: str = "fp32") -> Leaves:
    return {"out": leaf(values, dtype)}


def gives(found: Any, dtype: str = "fp32") -> Give:
    made = found if isinstance(found, dict) else {"out": leaf(found, dtype)}
    return lambda calls: made


def fails(calls: int) -> Leaves:
    raise RuntimeError("no such kernel")


@dataclass
class Told:
    """Answers that a test has ready."""

    candidate: Give
    eager: Give
    double: Give
    mode: str = "eval"
    device: str = "cpu"
    rate: float | None = None


def judged(candidate: Give, eager: Give, double: Give, **options: Any) -> Verification:
    return ptxla.judge(Told(candidate, eager, double), **options)


def test_mean_relative_error_by_hand() -> None:
    assert mean_relative_error(out(1.1, 1.0, 3.0), out(1.0, 2.0, 3.0)) == pytest.approx((0.1 + 0.5 + 0.0) / 3)


def test_zeros_are_no_division_by_zero() -> None:
    assert mean_relative_error(out(0.0, 2.0), out(0.0, 2.0)) == 0.0
    size = math.sqrt((0.0 + 4.0) / 2)
    assert mean_relative_error(out(0.5, 2.0), out(0.0, 2.0)) == pytest.approx(0.5 / size / 2)
    assert mean_relative_error(out(0.0), out(0.0)) == 0.0


def test_nothing_to_compare_is_no_number() -> None:
    assert mean_relative_error({}, out(1.0)) is None
    assert mean_relative_error(out(1, dtype="int64"), out(1, dtype="int64")) is None
    assert mean_relative_error(out(1.0), out(1.0), only="out.loss") is None


@pytest.mark.parametrize(("factor", "code"), [(1.0, "PASS"), (1.015, "PASS"), (1.025, "FAIL"), (0.97, "FAIL")])
def test_two_percent_is_the_threshold(factor: float, code: str) -> None:
    eager = np.full(100, 0.1, np.float32)
    found = judged(gives(eager * np.float32(factor)), gives(eager), gives(eager, "fp64"))
    assert (found.code, found.status) == (code, {"PASS": "passed", "FAIL": "failed"}[code])
    assert found.figures["mean_rel_error"] == pytest.approx(abs(factor - 1), abs=1e-6)


def test_a_mean_error_that_is_no_number_is_a_failure() -> None:
    eager = np.full(100, 0.1, np.float32)
    got = eager.copy()
    got[0] = math.nan
    found = judged(gives(got), gives(eager), gives(eager, "fp64"), cosine=True)
    assert found.code == "FAIL"


def test_rounding_that_costs_eager_as_much_is_no_failure() -> None:
    wide = np.linspace(-1, 1, 2000)
    eager, got = gives(wide + 0.03, "bf16"), gives(wide - 0.03, "bf16")
    error = mean_relative_error(got(1), eager(1))
    assert error is not None and error > 0.02
    assert judged(got, eager, gives(wide, "fp64"), tolerance=2e-2).code == "PASS"
    assert ptxla.far(error, got(1), eager(1), gives(wide, "fp64")(1), Limits(2e-2)) == ""
    assert "mean relative error" in ptxla.far(error, got(1), eager(1), gives(wide + 0.03, "fp64")(1), Limits(2e-2))
    assert judged(got, eager, gives(wide + 0.03, "fp64"), tolerance=2e-2).code == "FAIL"


@pytest.mark.parametrize(
    ("candidate", "eager", "double", "code", "error"),
    [
        (gives([1.0]), gives([1.0]), gives([1.0], "fp64"), "PASS", 0.0),
        (gives([1.0]), fails, fails, "EAGER_FAILED", None),
        (fails, gives([1.0]), gives([1.0], "fp64"), "EXCEPTION_RAISED", None),
        (gives([1.0]), gives([1.0]), fails, "PASS", 0.0),
        (gives([1.0, 2.0]), gives([1.0]), fails, "FAIL", None),
        (gives([1.0], "fp64"), gives([1.0]), fails, "FAIL", 0.0),
        (gives({}), gives([1.0]), fails, "FAIL", None),
        (gives({}), gives({}), gives({}), "CANNOT_PROCEED_WITH_VERIFICATION", None),
    ],
)
def test_codes(candidate: Give, eager: Give, double: Give, code: str, error: float | None) -> None:
    found = judged(candidate, eager, double)
    assert found.code == code
    assert found.status == {"PASS": "passed", "FAIL": "failed"}.get(code, "none")
    assert found.figures.get("mean_rel_error") == error
    assert bool(found.message) == (code != "PASS")


def test_what_raised_is_told_in_its_own_words() -> None:
    assert judged(gives([1.0]), fails, fails).message == "eager PyTorch failed: RuntimeError: no such kernel"
    assert judged(fails, gives([1.0]), fails).message == "verification raised: RuntimeError: no such kernel"
    assert "no run in double precision: RuntimeError: no such kernel" in judged(gives([1.0]), gives([1.0]), fails).against


def test_every_answer_is_the_last_of_as_many_calls_as_asked() -> None:
    asked: list[int] = []

    def noted(calls: int) -> Leaves:
        asked.append(calls)
        return out(1.0)

    assert judged(noted, noted, noted, calls=3).code == "PASS"
    assert asked == [3, 3, 3, 3]


def test_eager_that_differs_from_itself_proves_nothing() -> None:
    answers = iter([out(1.0), out(1.0 + 1e-6)])
    found = judged(gives([1.0]), lambda calls: next(answers), fails)
    assert (found.code, found.status) == ("NONDETERMINISTIC_EAGER_RUN", "none")
    same = gives([math.nan, 1.0])
    assert judged(same, same, gives([math.nan, 1.0], "fp64")).code == "PASS"
    structures = iter([out(1.0), {"out[0]": leaf([1.0])}])
    assert judged(gives([1.0]), lambda calls: next(structures), fails).code == "NONDETERMINISTIC_EAGER_RUN"


def test_nearness_to_double_precision_excuses_a_difference_from_eager() -> None:
    wide = np.linspace(1, 2, 2000)
    eager = (wide + 1e-3).astype(np.float32)
    assert compare_arrays((wide - 1e-3).astype(np.float32), eager, wide, TIGHT, 2.0) == ""
    assert "from double precision" in compare_arrays((wide - 3e-3).astype(np.float32), eager, wide, TIGHT, 2.0)


def test_a_multiplier_of_ones_own_allows_more_of_eagers_error() -> None:
    wide = np.linspace(1, 2, 2000)
    eager, got = gives(wide + 1e-2), gives(wide - 5e-2)
    found = judged(got, eager, gives(wide, "fp64"), tolerance=1e-3)
    assert (found.code, found.message[:4]) == ("FAIL", "out:")
    assert judged(got, eager, gives(wide, "fp64"), tolerance=1e-3, multiplier=10.0).message.startswith("the mean relative error")
    assert compare(got(1), eager(1), gives(wide, "fp64")(1), Limits(1e-3, multiplier=10.0)) == ""


def test_without_double_precision_the_cosine_decides() -> None:
    eager = np.asarray([1.0, 0.0], np.float32)
    assert compare_arrays(np.asarray([1.0, 0.1], np.float32), eager, None, TIGHT, 2.0) == ""
    assert "cosine" in compare_arrays(np.asarray([1.0, 0.2], np.float32), eager, None, TIGHT, 2.0)
    assert "cosine" in compare_arrays(np.asarray([1.0, 0.2], np.float32), eager, eager.astype(float), Limits(1e-4, cosine=True), 2.0)


@pytest.mark.parametrize(
    ("shape", "dtype", "limits", "times"),
    [
        ((2000,), "fp32", TIGHT, 2.0), ((2000,), "bf16", TIGHT, 3.0), ((2000,), "fp16", TIGHT, 3.0), ((999,), "fp32", TIGHT, 3.0),
        ((2000, 2, 1, 1), "fp32", TIGHT, 3.0), ((2000,), "fp32", Limits(2e-2), 3.0),
        ((10,), "fp32", Limits(1e-4, small_tensors=True), 10.0), ((500,), "fp32", Limits(1e-4, small_tensors=True), 8.0),
        ((501,), "fp32", Limits(1e-4, small_tensors=True), 3.0), ((10,), "fp32", Limits(1e-4, small_tensors=True, multiplier=4.0), 4.0),
    ],
)  # fmt: skip
def test_multipliers(shape: tuple[int, ...], dtype: str, limits: Limits, times: float) -> None:
    assert multiplier(leaf(np.zeros(shape), dtype), limits) == times


def test_integers_and_booleans() -> None:
    def compared(got: Any, eager: Any) -> str:
        return compare_arrays(np.asarray(got), np.asarray(eager), None, LOOSE, 2.0)

    assert compared([1, 2], [1, 2]) == ""
    assert compared([1, 3], [1, 2]) == "values differ"
    assert compared([True], [False]) == "values differ"


def test_masks_may_differ_as_far_as_they_overlap() -> None:
    eager, got = np.asarray([True] * 9 + [False]), np.asarray([True] * 8 + [False] * 2)
    masks = gives(got, "bool"), gives(eager, "bool"), gives(eager, "bool")
    assert judged(*masks).message == "out: values differ"
    assert judged(*masks, iou=0.85).code == "PASS"
    assert judged(*masks, iou=0.95).message == "out: the masks overlap by 0.889, and 0.95 is needed"
    nothing = gives(np.zeros(3), "bool")
    assert judged(nothing, nothing, nothing, iou=1.0).code == "PASS"


@pytest.mark.parametrize(
    ("mode", "device", "options", "tolerance"),
    [
        ("eval", "cpu", {}, 1e-2), ("eval", "cuda", {}, 1e-2), ("train", "cpu", {}, 1e-4), ("train", "cuda", {}, 1e-3),
        ("train", "cuda", {"even_higher": True}, 8e-2), ("train", "tpu", {"tolerance": 0.3}, 0.3),
    ],
)  # fmt: skip
def test_tolerances(mode: str, device: str, options: dict[str, Any], tolerance: float, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Limits] = []
    monkeypatch.setattr(ptxla, "compare", lambda got, eager, wide, limits: seen.append(limits) or "")
    for rate in (0.01, None):
        found = ptxla.judge(Told(gives([1.0]), gives([1.0]), gives([1.0]), mode, device, rate), calls=3, **options)
        assert (found.code, found.rtol) == ("PASS", tolerance)
    adam, sgd = seen
    assert (adam.tolerance, adam.threshold) == (tolerance, max(0.02, options.get("tolerance", 0.0)))
    assert adam.step == (None if mode == "eval" else pytest.approx(0.06))
    assert sgd.step is None


def test_in_training_the_mean_error_is_that_of_the_loss() -> None:
    def step(loss: float, guess: float) -> Leaves:
        return {"out.loss": leaf([loss]), "out.prediction": leaf([guess])}

    def told(found: Leaves) -> Told:
        return Told(gives(found), gives(step(2.0, 1.0)), gives(step(2.0, 1.0)), "train")

    assert ptxla.judge(told(step(3.0, 1.0))).figures["mean_rel_error"] == 0.5
    assert ptxla.judge(told(step(2.0, 9.0))).figures["mean_rel_error"] == 0.0
    assert ptxla.judge(told(step(2.0, 9.0))).code == "FAIL"


def stepped(gradients: Any, weights: Any, dtype: str = "fp32") -> Leaves:
    return {"out.gradients.w": leaf(gradients, dtype), "out.parameters.w": leaf(weights, dtype)}


def test_a_step_along_a_gradient_that_is_only_rounding_is_not_compared() -> None:
    wide = stepped([0.5, 0.0], [0.99, 0.99], "fp64")
    eager = stepped([0.5, 1e-9], [0.99, 0.99])
    adam = Limits(1e-4, step=0.02)

    def found(gradients: Any, weights: Any, limits: Limits = adam) -> str:
        return compare(stepped(gradients, weights), eager, wide, limits).partition(":")[0]

    assert found([0.5, -1e-9], [0.99, 1.01]) == ""
    assert found([0.5, -1e-9], [0.99, 1.01], TIGHT) == "out.parameters.w"
    for weights in ([1.01, 0.99], [0.99, 5.0], [0.99, math.nan]):
        assert found([0.5, -1e-9], weights) == "out.parameters.w"
    assert found([-0.5, 1e-9], [1.01, 0.99]) == found([math.nan, 1e-9], [0.99, 0.99]) == "out.gradients.w"


def test_a_step_that_was_never_made_is_found_however_small_its_gradients_are() -> None:
    wide, eager = stepped([2e-5, -3e-5], [0.99, 1.01], "fp64"), stepped([2e-5, -3e-5], [0.99, 1.01])
    assert compare(stepped([0.0, 0.0], [1.0, 1.0]), eager, wide, Limits(1e-4, step=0.02)).startswith("out.parameters.w")


def test_what_a_weight_is_allowed_goes_by_its_whole_shape() -> None:
    wide = np.linspace(1, 2, 2048).reshape(64, 32, 1, 1)
    answers = [
        stepped(np.ones_like(wide), weights, dtype) for weights, dtype in ((wide - 2.5e-3, "fp32"), (wide + 1e-3, "fp32"), (wide, "fp64"))
    ]
    assert compare(*answers, Limits(1e-4, step=0.02)) == ""


def test_rules_are_found_by_name_with_their_options() -> None:
    assert rules.names() == ["steelyard", "none", "allclose", "ptxla", "replay", "sqnr", "tokens"]
    for text in (
        "steelyard",
        "none",
        "sqnr[floor=20,inputs=4]",
        "allclose[atol=0.5,rtol=0.0]",
        "ptxla",
        "ptxla[tolerance=0.1,calls=2,iou=0.5,multiplier=10.0,cosine=true]",
    ):
        rules.check(text)
    assert rules.parse("ptxla[tolerance=0.1,cosine=true]") == ("ptxla", {"tolerance": 0.1, "cosine": True})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ptxl", r"no verification rule named 'ptxl'\n.*did you mean ptxla"),
        ("ptxla[toleranse=0.1]", r"no option of rule 'ptxla' named 'toleranse'\n.*did you mean tolerance"),
        ("ptxla[answers=1]", "no option of rule 'ptxla' named 'answers'"),
        ("none[tolerance=0.1]", "no option of rule 'none' named 'tolerance'"),
        ("steelyard[tolerance=0.1]", "no option of rule 'steelyard' named 'tolerance'"),
        ("ptxla+none", r"not a verification rule: 'ptxla\+none'\n.*steelyard, none, allclose"),
        ("", "not a verification rule"),
        ("../ptxla", "not a verification rule"),
        ("ptxla[tolerance=", "not a verification rule"),
    ],
)
def test_a_rule_that_does_not_exist_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        rules.check(text)


def test_a_rule_judges_with_the_options_that_it_was_given() -> None:
    told = Told(gives([1.05]), gives([1.0]), gives([1.0], "fp64"))
    assert rules.judge("ptxla", told).code == "FAIL"
    assert rules.judge("ptxla[tolerance=0.1]", told).code == "PASS"
