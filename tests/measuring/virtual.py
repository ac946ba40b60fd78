"""A virtual machine to measure on: time passes only when a script says so, and disturbances happen on cue."""

from __future__ import annotations

import random
from collections.abc import Callable

from steelyard.backends.fake import VirtualTimer, World
from steelyard.measuring.clock import HostTimer, Loop
from steelyard.model.task import Task

READING = 37


class Machine:
    """A world of its own with its timer, and every block that was timed on it."""

    def __init__(self) -> None:
        self.world = World()
        self.timer = BlockTimer(self)
        self.blocks: list[tuple[int, int]] = []
        self.calls = 0
        self.in_block = False

    def spend(self, nanoseconds: float) -> None:
        self.world.clock += round(nanoseconds)

    def preempt(self) -> None:
        self.world.switches += 1

    def task(self, cost: float | Callable[[int], float]) -> Task:
        """Each call takes `cost` nanoseconds, which may depend on how many calls came before."""

        def fn() -> None:
            self.spend(cost(self.calls) if callable(cost) else cost)
            self.calls += 1

        return Task(fn)


class BlockTimer(VirtualTimer):
    """A virtual timer that remembers its blocks: calls asked for, nanoseconds taken."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine.world)
        self.machine = machine

    def bind(self, task: Task) -> Loop:
        inner, machine = super().bind(task), self.machine

        def loop(n: int) -> int:
            machine.in_block = True
            took = inner(n)
            machine.in_block = False
            machine.blocks.append((n, took))
            return took

        return loop


def costly_clock(machine: Machine, reading: int = READING) -> HostTimer:
    """A timer whose every reading takes time itself, as real ones do."""

    def now() -> int:
        machine.world.clock += reading
        return machine.world.clock

    timer = VirtualTimer(machine.world)
    timer.now = now
    return timer


def noisy_clock(machine: Machine, rng: random.Random, reading: float = 2000.0) -> HostTimer:
    """A timer whose reading takes now more, now less, for a while each."""
    readings = 0
    factor = 1.0

    def now() -> int:
        nonlocal readings, factor
        if readings % 100 == 0:
            factor = rng.uniform(0.5, 1.5)
        readings += 1
        machine.world.clock += round(reading * factor)
        return machine.world.clock

    timer = VirtualTimer(machine.world)
    timer.now = now
    return timer
