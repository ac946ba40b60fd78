"""Arms in two processes are timed in one way: what only one of them can do, neither does."""

from __future__ import annotations

import os
import random
import threading
from pathlib import Path

import pytest

from steelyard.engine import arm
from steelyard.engine.arm import Source, Token
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


def agree(folder: Path, timers: list[HostTimer]) -> list[Source]:
    """Both arms meet, each in a thread of its own."""
    for number in (0, 1):
        os.mkfifo(folder / str(number))
    sources = [Source(Task(int), timer, None, random.Random(0), 0.0) for timer in timers]
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
