"""Functions of users' files as a workload, and another one as its variant."""

from __future__ import annotations

from pathlib import Path

import pytest

from steelyard import registry
from steelyard.engine.weigh import weigh_case
from steelyard.errors import UsageError
from steelyard.model.case import Case
from steelyard.model.experiment import Settings
from steelyard.model.protocol import Fixed
from steelyard.model.record import Record
from steelyard.workloads.function import find

FUNCTIONS = """
def fine(x=1, *more): return 3
def same(): return 3
def wrong(): return 4
def needy(a, *, b): return a
def broken(): raise RuntimeError("no")
value = 3
"""
TIMED = Settings(fixed=Fixed(warmup_time=0.0, repeat_time=1e-3))


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "functions.py"
    path.write_text(FUNCTIONS)
    return str(path)


def measured(file: str, fn: str, other: str = "", variant: str = "eager") -> Record:
    params = (("fn", f"{file}:{fn}"), ("other", other and f"{file}:{other}"))
    return weigh_case(Case("call/function", params, "numpy", variant), registry.built_ins(), TIMED, lambda phase, fraction: None)[0]


@pytest.mark.parametrize(
    ("name", "match"),
    [("fien", r"no function named 'fien'[\s\S]*fine"), ("needy", "needy needs a, b"), ("value", "not a function but int")],
)
def test_what_cannot_be_called_with_nothing_is_told(file: str, name: str, match: str) -> None:
    assert find(f"{file}:fine")() == 3
    with pytest.raises(UsageError, match=match):
        find(f"{file}:{name}")


def test_a_module_has_functions_too() -> None:
    assert callable(find("sys:getrecursionlimit"))


def test_another_function_must_answer_the_same(file: str) -> None:
    assert measured(file, "fine").status == "ok"
    assert measured(file, "fine", "same", "other").status == "ok"
    assert measured(file, "fine", "wrong", "other").status == "wrong"
    assert measured(file, "fine", "", "other").reason.startswith("no other function is named")


def test_its_own_errors_are_told_from_ours(file: str) -> None:
    own, ours = measured(file, "broken"), measured(file, "needy")
    assert (own.status, own.reason, "traceback" in own.effective) == ("failed", "RuntimeError: no", True)
    assert (ours.status, "traceback" in ours.effective) == ("failed", False)
