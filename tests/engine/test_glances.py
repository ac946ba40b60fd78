"""Answers that are wrong only between the first look and the last, or follow only changes that they can see."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from steelyard.engine.changes import FEW, Sprinkled
from steelyard.engine.pairs import weigh_heads
from steelyard.engine.scrutiny import Scrutiny
from steelyard.engine.weigh import weigh_case
from steelyard.errors import SteelyardError
from steelyard.measuring import schedule
from steelyard.model.experiment import Settings
from steelyard.model.task import Task
from tests.engine.own import case_of

SETTINGS = Settings(budget=0.002, telemetry=False)
STAGES: list[str] = []
"""Not held by the functions themselves, whose own things are copied for every rebuild."""


def doubling(be: Any) -> Task:
    x = be.randn(8, 4)
    return Task(lambda x: x * 2, (x,), reference=lambda: x * 2)


def with_fn(make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Callable[[Task], Task]:
    """A variant that makes another function of the plain one."""

    def variant(task: Task) -> Task:
        assert task.fn is not None
        return replace(task, fn=make(task.fn))

    return variant


def test_an_arm_that_is_wrong_only_while_it_is_weighed_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first and its last copies answer right, those between do not; the looks are made after every rebuild here."""
    monkeypatch.setattr(schedule, "LOOKS", 10**9)
    STAGES.clear()
    weigh_arms = schedule.weigh_arms

    def staged(*args: Any, check: Any, look: Any, **more: Any) -> Any:
        def looking(tasks: Any) -> None:
            STAGES.append("between")
            look(tasks)
            STAGES.append("over")

        return weigh_arms(*args, check=check, look=looking, **more)

    monkeypatch.setattr(schedule, "weigh_arms", staged)
    loaded, head = case_of(doubling, with_fn(lambda fn: lambda x: x if STAGES[-1:] == ["between"] else fn(x)))
    with pytest.raises(SteelyardError, match="is wrong") as told:
        weigh_heads(head.against("eager"), [head], loaded, replace(SETTINGS, budget=0.1), lambda phase, fraction: None)
    assert "values differ" in told.value.why
    assert STAGES


def test_an_answer_that_follows_many_changed_values_and_not_a_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks at values of which a change of one in 64 reaches some, and one of one in 512 none."""
    monkeypatch.setattr(Scrutiny, "_drawn", lambda seen: 3)
    few, more = (Sprinkled(3, *change)(np.ones(16384)) < 0 for change in FEW[:2])
    looked_at = np.flatnonzero(more & ~few)[:8]

    def sampling(fn: Callable[..., Any]) -> Callable[..., Any]:
        kept: dict[bytes, Any] = {}

        def call(x: Any) -> Any:
            key = x[looked_at].tobytes()
            if key not in kept:
                kept[key] = fn(x)
            return kept[key]

        return call

    def long(be: Any) -> Task:
        x = be.randn(16384)
        return Task(lambda x: x * 2, (x,), reference=lambda: x * 2)

    loaded, case = case_of(long, with_fn(sampling))
    record = weigh_case(case, loaded, SETTINGS, lambda phase, fraction: None)[0]
    assert record.status == "wrong"
    assert "does not follow part of args[0]" in record.reason
