"""Verification: both rules, and a code for everything that can be in the way."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from steelyard.dialects.ptxla.shim import verify
from steelyard.dialects.ptxla.shim.verify import Rules, compare_arrays, mean_relative_error, multiplier

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

LOOSE, TIGHT = Rules(1e-2), Rules(1e-4)


def tensor(*values: float, dtype: Any = None) -> Any:
    return torch.tensor(values, dtype=dtype or torch.float32)


def gives(value: Any) -> Callable[[], verify.Answer]:
    return lambda: {"out": value}


def fails() -> verify.Answer:
    raise RuntimeError("no such kernel")


def test_mean_relative_error_by_hand() -> None:
    assert mean_relative_error({"out": tensor(1.1, 1.0, 3.0)}, {"out": tensor(1.0, 2.0, 3.0)}) == pytest.approx((0.1 + 0.5 + 0.0) / 3)


def test_zeros_are_no_division_by_zero() -> None:
    assert mean_relative_error({"out": tensor(0.0, 2.0)}, {"out": tensor(0.0, 2.0)}) == 0.0
    size = math.sqrt((0.0 + 4.0) / 2)
    assert mean_relative_error({"out": tensor(0.5, 2.0)}, {"out": tensor(0.0, 2.0)}) == pytest.approx(0.5 / size / 2)
    assert mean_relative_error({"out": tensor(0.0)}, {"out": tensor(0.0)}) == 0.0


def test_nothing_to_compare_is_no_number() -> None:
    assert mean_relative_error({}, {"out": tensor(1.0)}) is None
    assert mean_relative_error({"out": torch.tensor([1])}, {"out": torch.tensor([1])}) is None


@pytest.mark.parametrize(("factor", "code"), [(1.0, "PASS"), (1.015, "PASS"), (1.025, "FAIL"), (0.97, "FAIL")])
def test_two_percent_is_the_threshold(factor: float, code: str) -> None:
    eager = torch.full((100,), 0.1)
    found = verify.verify(gives(eager * factor), gives(eager), gives(eager.double()), LOOSE)
    assert found.code == code
    assert found.mean_rel_error == pytest.approx(abs(factor - 1), abs=1e-6)


def test_rounding_that_costs_eager_as_much_is_no_failure() -> None:
    wide = torch.linspace(-1, 1, 2001, dtype=torch.float64)
    eager, got = (wide + 0.03).to(torch.bfloat16), (wide - 0.03).to(torch.bfloat16)
    error = mean_relative_error({"out": got}, {"out": eager})
    assert error is not None and error > 0.02
    assert verify.verify(gives(got), gives(eager), gives(wide), Rules(8e-2)).code == "PASS"
    assert verify.verify(gives(got), gives(eager), gives(eager.double()), Rules(8e-2)).code == "FAIL"


@pytest.mark.parametrize(
    ("candidate", "eager", "double", "code"),
    [
        (gives(tensor(1.0)), gives(tensor(1.0)), gives(tensor(1.0)), "PASS"),
        (gives(tensor(1.0)), fails, fails, "EAGER_FAILED"),
        (fails, gives(tensor(1.0)), gives(tensor(1.0)), "EXCEPTION_RAISED"),
        (gives(tensor(1.0)), gives(tensor(1.0)), fails, "PASS"),
        (gives(tensor(1.0, 2.0)), gives(tensor(1.0)), fails, "FAIL"),
        (gives(tensor(1.0, dtype=torch.float64)), gives(tensor(1.0)), fails, "FAIL"),
        (dict, gives(tensor(1.0)), fails, "FAIL"),
    ],
)
def test_codes(candidate: Any, eager: Any, double: Any, code: str) -> None:
    assert verify.verify(candidate, eager, double, LOOSE).code == code


def test_what_holds_nothing_to_compare_never_passes() -> None:
    found = verify.verify(dict, dict, dict, LOOSE)
    assert (found.code, found.mean_rel_error) == ("CANNOT_PROCEED_WITH_VERIFICATION", None)


def test_the_fields_of_an_object_are_compared_too() -> None:
    @dataclass
    class Boxes:
        where: Any
        sure: list[Any]

    found = verify.answer((Boxes(tensor(1.0), [tensor(2.0)]), 3))
    assert sorted(found) == ["out[0].sure[0]", "out[0].where"]


def test_eager_that_differs_from_itself_proves_nothing() -> None:
    answers = iter([tensor(1.0), tensor(1.0 + 1e-6)])
    assert verify.verify(gives(tensor(1.0)), lambda: {"out": next(answers)}, fails, LOOSE).code == "NONDETERMINISTIC_EAGER_RUN"
    same = tensor(math.nan, 1.0)
    assert verify.verify(gives(same), gives(same), gives(same), LOOSE).code == "PASS"


def test_nearness_to_double_precision_excuses_a_difference_from_eager() -> None:
    wide = torch.linspace(1, 2, 2000, dtype=torch.float64)
    eager = (wide + 1e-3).float()
    assert compare_arrays((wide - 1e-3).float(), eager, wide, TIGHT) == ""
    assert "from double precision" in compare_arrays((wide - 3e-3).float(), eager, wide, TIGHT)


def test_without_double_precision_the_cosine_decides() -> None:
    eager = tensor(1.0, 0.0)
    assert compare_arrays(tensor(1.0, 0.1), eager, None, TIGHT) == ""
    assert "cosine" in compare_arrays(tensor(1.0, 0.2), eager, None, TIGHT)


@pytest.mark.parametrize(
    ("shape", "dtype", "rules", "times"),
    [
        ((2000,), "float32", TIGHT, 2.0), ((2000,), "bfloat16", TIGHT, 3.0), ((999,), "float32", TIGHT, 3.0),
        ((2000, 2, 1, 1), "float32", TIGHT, 3.0), ((2000,), "float32", Rules(2e-2), 3.0),
        ((10,), "float32", Rules(1e-4, small_tensors=True), 10.0), ((500,), "float32", Rules(1e-4, small_tensors=True), 8.0),
        ((501,), "float32", Rules(1e-4, small_tensors=True), 3.0),
    ],
)  # fmt: skip
def test_multipliers(shape: tuple[int, ...], dtype: str, rules: Rules, times: float) -> None:
    assert multiplier(torch.zeros(shape, dtype=getattr(torch, dtype)), rules) == times


def test_integers_and_booleans() -> None:
    assert compare_arrays(torch.tensor([1, 2]), torch.tensor([1, 2]), None, LOOSE) == ""
    assert compare_arrays(torch.tensor([1, 3]), torch.tensor([1, 2]), None, LOOSE) == "values differ"
    assert compare_arrays(torch.tensor([True]), torch.tensor([False]), None, LOOSE) == "values differ"


@pytest.mark.parametrize(
    ("test", "accelerator", "policy", "tolerance"),
    [
        ("eval", "cpu", {}, 1e-2), ("eval", "cuda", {}, 1e-2), ("train", "cpu", {}, 1e-4), ("train", "cuda", {}, 1e-3),
        ("train", "cuda", {"even_higher": True}, 8e-2), ("train", "tpu", {"tolerance": 0.3}, 0.3),
    ],
)  # fmt: skip
def test_tolerances(test: str, accelerator: str, policy: dict[str, Any], tolerance: float) -> None:
    rules = Rules.of(test, accelerator, policy)
    assert (rules.tolerance, rules.threshold) == (tolerance, max(0.02, policy.get("tolerance", 0.0)))
    assert (rules.step is None) == (test == "eval")
    assert Rules.of(test, accelerator, {"sgd": True}).step is None


def test_a_step_along_a_gradient_that_is_only_rounding_is_not_compared() -> None:
    def stepped(gradients: Any, weights: Any) -> dict[str, Any]:
        return {"gradients.w": gradients, "parameters.w": weights}

    wide = stepped(tensor(0.5, 0.0, dtype=torch.float64), tensor(0.99, 0.99, dtype=torch.float64))
    eager = stepped(tensor(0.5, 1e-9), tensor(0.99, 0.99))
    adam = Rules(1e-4, step=0.02)

    def found(gradients: Any, weights: Any, rules: Rules = adam) -> str:
        return verify.compare(stepped(gradients, weights), eager, wide, rules).partition(":")[0]

    assert found(tensor(0.5, -1e-9), tensor(0.99, 1.01)) == ""
    assert found(tensor(0.5, -1e-9), tensor(0.99, 1.01), TIGHT) == "parameters.w"
    for weights in (tensor(1.01, 0.99), tensor(0.99, 5.0), tensor(0.99, math.nan)):
        assert found(tensor(0.5, -1e-9), weights) == "parameters.w"
    assert found(tensor(-0.5, 1e-9), tensor(1.01, 0.99)) == found(tensor(math.nan, 1e-9), tensor(0.99, 0.99)) == "gradients.w"


def test_what_a_weight_is_allowed_goes_by_its_whole_shape() -> None:
    wide = torch.linspace(1, 2, 2048, dtype=torch.float64).reshape(64, 32, 1, 1)
    gradients, eager, got = torch.ones_like(wide).float(), (wide + 1e-3).float(), (wide - 2.5e-3).float()
    answers = [{"gradients.w": gradients, "parameters.w": weights} for weights in (got, eager, wide)]
    assert verify.compare(*answers, Rules(1e-4, step=0.02)) == ""
