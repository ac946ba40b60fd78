"""Rules hold where all their keys are equal, and nowhere else."""

from __future__ import annotations

from typing import Any

import pytest

from steelyard.errors import UsageError
from steelyard.model.case import Case
from steelyard.model.experiment import Rule, Settings

CASE = Case("op/one", (("n", 1), ("bias", True), ("scale", None), ("shape", [1, 2])), variant="compile[mode=max-autotune]")


@pytest.mark.parametrize(
    ("match", "fits"),
    [
        ({"axes.n": 1}, True), ({"axes.n": True}, False), ({"axes.n": 1.0}, True), ({"axes.n": "1"}, False), ({"axes.n": [3, 1]}, True),
        ({"axes.bias": True}, True), ({"axes.bias": 1}, False), ({"axes.scale": None}, True), ({"axes.missing": None}, False),
        ({"flags.A": None}, False), ({"missing": None}, False), ({"axes.shape": [1, 2]}, True), ({"axes.shape": [2, 1]}, False),
        ({"variant": "compile[mode=max-autotune]"}, True), ({"variant": "compile*"}, True), ({"variant": "compile"}, False),
        ({"workload": "op/*", "axes.n": 1}, True), ({"workload": "op/*", "axes.n": 2}, False),
        ({"tag": "smoke"}, True), ({"tag": "x"}, False),
    ],
)  # fmt: skip
def test_all_keys_must_be_equal(match: dict[str, Any], fits: bool) -> None:
    assert Rule(match).fits(CASE, ["smoke"]) == fits


def test_a_choice_that_does_not_exist_is_refused_from_python_too() -> None:
    with pytest.raises(UsageError, match=r"reference.*'fp46'.*\n.*fp64"):
        Settings(reference="fp46")  # type: ignore[arg-type]
