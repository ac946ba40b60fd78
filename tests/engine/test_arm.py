"""Arms in two processes: what they agree on, how they take turns, and that both are timed in one way."""

from __future__ import annotations

import os
import random
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.engine import arm
from steelyard.engine.arm import BlockSource, OtherArmLost, Token
from steelyard.measuring.clock import HostTimer, Loop
from steelyard.model.task import Task


class Replaying(HostTimer):
    """A timer that can do without replaying, as the one of a device can, and counts how often it was bound."""

    def __init__(self, method: str) -> None:
        super().__init__()
        self.method, self.bound = method, 0

    def use_events(self) -> None:
        self.method = "events"

    def bind(self, task: Task) -> Loop:
        self.bound += 1
        return super().bind(task)


def agree(folder: Path, timers: list[HostTimer]) -> list[BlockSource]:
    """Both arms meet, each in a thread of its own."""
    for number in (0, 1):
        os.mkfifo(folder / str(number))
    sources = [BlockSource(Task(int), timer, None, random.Random(0), 0.0) for timer in timers]
    tokens = [Token(folder, number) for number in (0, 1)]

    def take_part(number: int) -> None:
        tokens[number].meet()
        arm._time_alike(sources[number], tokens[number])

    threads = [threading.Thread(target=take_part, args=(number,)) for number in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    for token in tokens:
        token.__exit__(None, None, None)
    return sources


@pytest.mark.parametrize(
    ("methods", "agreed", "bound"),
    [
        (("graph replay", "graph replay"), "graph replay", [1, 1]),
        (("graph replay", "events"), "events", [2, 2]),
        (("events", "graph replay"), "events", [2, 2]),
        (("events", "events"), "events", [1, 1]),
    ],
)
def test_where_one_arm_cannot_replay_neither_does(tmp_path: Path, methods: tuple[str, str], agreed: str, bound: list[int]) -> None:
    timers = [Replaying(method) for method in methods]
    agree(tmp_path, list(timers))
    assert [timer.method for timer in timers] == [agreed] * 2
    assert [timer.bound for timer in timers] == bound


def test_timers_that_know_one_way_only_stay_as_they_are(tmp_path: Path) -> None:
    before = [HostTimer(), HostTimer()]
    assert [source.timer for source in agree(tmp_path, before)] == before


@given(st.integers(0, 2**31), st.integers(1, 60))
def test_every_quad_has_both_arms_twice_and_mirrored(seed: int, quads: int) -> None:
    drawn = arm.coins(f"{seed} 3", quads)
    order = np.asarray(arm.turns(drawn)).reshape(-1, 4)
    assert (order.sum(axis=1) == 2).all() and (order == order[:, ::-1]).all()
    assert ((order[:, 0] == 0) == drawn).all()


@given(
    st.tuples(st.integers(1, 1000), st.integers(1, 1000)), st.tuples(st.floats(1e-7, 10), st.floats(1e-7, 10)), st.floats(1e-3, 1),
    st.one_of(st.none(), st.floats(1e-5, 10)),
)  # fmt: skip
def test_both_arms_agree_on_what_fits(calls: tuple[int, int], seconds: tuple[float, float], share: float, building: float | None) -> None:
    said = [
        {"calls": count, "seconds": time, "overhead": 1e-8 * (number + 1), "doubt": 1e-9, "building": building}
        for number, (count, time) in enumerate(zip(calls, seconds, strict=True))
    ]
    agreed = arm.settle(said, share)
    assert agreed.calls == calls or (agreed.calls == (min(calls), min(calls)) and max(calls) <= 2 * min(calls))
    assert agreed.quads == 1 or agreed.quads == 2 or agreed.quads * agreed.quad <= share * (1 + 1e-9)
    assert 1 <= agreed.rebuilds <= agreed.quads and (building is not None or agreed.rebuilds == 1)
    later = arm.affordable([building, 1e-4], agreed.quads, share)
    assert 1 <= later <= agreed.quads and (building is not None or later == 1)
    assert agreed.overhead == 1e-8


def test_the_token_passes_and_a_lost_arm_is_noticed(tmp_path: Path) -> None:
    for number in (0, 1):
        os.mkfifo(tmp_path / str(number))
    seen: list[str] = []
    with Token(tmp_path, 0) as base:
        with Token(tmp_path, 1) as head:
            base.meet()
            head.meet()

            def other() -> None:
                seen.append(head.hear()["calls"])
                head.say({"calls": "theirs"})
                head.take()
                seen.append("taken")
                head.give()

            thread = threading.Thread(target=other)
            thread.start()
            base.say({"calls": "ours"})
            assert base.hear() == {"calls": "theirs"}
            base.give()
            base.take()
            thread.join()
            assert seen == ["ours", "taken"]
        with pytest.raises(OtherArmLost):
            base.take()
        with pytest.raises(OtherArmLost):
            base.give()
