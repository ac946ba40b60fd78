"""A backend on a virtual clock: time passes only when a task says so, which makes tests exact and instant."""

from __future__ import annotations

import random
from typing import ClassVar

import numpy as np

from steelyard.backends.numpy import Numpy
from steelyard.measuring.clock import HostTimer, Timer

ABOUT = {"forks": True, "virtual": True}


class World:
    """The one virtual clock of a process, as real processes have one real clock."""

    def __init__(self) -> None:
        self.clock = 0
        self.switches = 0


class VirtualTimer(HostTimer):
    """A host timer whose clock and disturbances are scripted."""

    def __init__(self, world: World) -> None:
        super().__init__(now=lambda: world.clock)
        self.world = world

    def disturbances(self) -> int:
        return self.world.switches

    def busy(self) -> int:
        return 0

    def effort(self) -> float:
        return self.world.clock * 1e-9


class Fake(Numpy):
    """numpy arrays on a scripted clock."""

    name = "fake"
    world: ClassVar[World] = World()

    def open(self) -> None:
        self._rng = random.Random(self.seed)

    def spend(self, seconds: float, noise: float = 0.0) -> None:
        """Let virtual time pass, scattered by a relative noise."""
        factor = 1.0 + noise * self._rng.gauss(0.0, 1.0) if noise else 1.0
        self.world.clock += max(0, round(seconds * factor * 1e9))

    def preempt(self) -> None:
        """Count one involuntary switch."""
        self.world.switches += 1

    def timer(self) -> Timer:
        return VirtualTimer(self.world)

    def versions(self) -> dict[str, str]:
        return {"fake": "1", "numpy": np.__version__}


BACKEND = Fake
