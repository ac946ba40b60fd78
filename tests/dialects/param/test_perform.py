"""A study of configs in the worker: what it gives back between them, and when it knows that its device is lost."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from steelyard.dialects.param.flags import Options
from steelyard.dialects.param.shim.marks import Marks
from steelyard.dialects.param.shim.perform import Study
from steelyard.dialects.param.shim.station import Station

pytestmark = pytest.mark.torch
TENSOR = {"type": "tensor", "dtype": "float", "shape": [2]}
CONFIG = {"op": "torch.neg", "id": "0|0|0", "build": None, "input": {"args": [TENSOR]}, "generators": ("", ""), "seed": None}


def study(said: list[str], outcome: Exception | None = None, broken: bool = False) -> Study:
    """A made-up device that says what it is asked for, and calls that end in an error or give nothing."""

    def synchronize() -> None:
        said.append("synchronize")
        if broken:
            raise RuntimeError("CUDA error: unknown error")

    def execute(call: Any, seat: Any) -> Mapping[str, Any]:
        if outcome:
            raise outcome
        return {"forward": {"measure.time": [1.0]}}

    api = SimpleNamespace(synchronize=synchronize, empty_cache=lambda: said.append("empty"))
    return Study(Options(), Station("cuda", api), Marks(), executor=execute)


def test_memory_is_given_back_after_each_config() -> None:
    said: list[str] = []
    made = study(said)
    assert [made.measure(CONFIG)["steelyard"]["status"] for _ in range(2)] == ["ok", "ok"]
    assert said == ["empty", "empty"]


def test_a_mode_that_a_device_has_not_measures_nothing_and_says_so() -> None:
    made = Study.open(Options(device="meta", exec_mode="continuous"))
    line = made.measure(CONFIG)
    assert line["metric"]["forward"]["measure.time"] == []
    assert line["steelyard"] == {"status": "not_applicable", "seed": 0, "error": "there is no continuous mode on meta"}


@pytest.mark.parametrize(("broken", "recovers"), [(False, True), (True, False)])
def test_after_a_failure_the_device_is_asked_whether_it_still_answers(broken: bool, recovers: bool) -> None:
    said: list[str] = []
    made = study(said, MemoryError("no room"), broken)
    assert made.measure(CONFIG)["steelyard"]["status"] == "oom" and said == []
    assert made.recovers() is recovers
    assert said == (["synchronize"] if broken else ["synchronize", "empty"])


def test_a_device_that_never_forgets_is_not_asked_again() -> None:
    said: list[str] = []
    made = study(said, RuntimeError("CUDA error: device-side assert triggered\nCUDA kernel errors might be reported later"))
    line = made.measure(CONFIG)
    assert line["steelyard"]["status"] == "failed" and "device-side assert" in line["steelyard"]["error"]
    assert not made.recovers() and said == []
