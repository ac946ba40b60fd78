"""What a backend must offer: data, outputs, a timer, versions. One subclass per file in this folder."""

from __future__ import annotations

import contextlib
import random
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from steelyard.errors import NotApplicable, Unsupported
from steelyard.machine.telemetry import Log
from steelyard.measure.clock import HostTimer, Timer
from steelyard.model.dtypes import canonical
from steelyard.model.experiment import Settings
from steelyard.model.record import Figure
from steelyard.model.task import Task


@dataclass(frozen=True)
class Leaf:
    """One array of an output, readable by numpy whatever its own format was."""

    path: str
    dtype: str
    data: np.ndarray[Any, Any]


class Backend(ABC):
    """One framework on one device; a fresh instance builds each task, so equal seeds give equal data."""

    name: ClassVar[str]
    install: ClassVar[str] = ""

    def __init__(self, device: str = "cpu", *, seed: int = 0, threads: int = 1) -> None:
        self.device, self.seed, self.threads = device, seed, threads
        self._drawn = 0
        self.neutral = True
        self._memory_before: float | None = None
        self.open()

    def open(self) -> None:
        """Check the device and set process-wide state; raise Unsupported with the reason if it cannot run here."""
        if self.device != "cpu":
            raise Unsupported(f"backend {self.name} runs on the CPU only, not on {self.device!r}")

    @abstractmethod
    def array(self, data: np.ndarray[Any, Any], dtype: str) -> Any:
        """Put neutral data on the device, rounded to the asked format."""

    @abstractmethod
    def leaf(self, value: Any) -> tuple[str, np.ndarray[Any, Any]] | None:
        """Format name and numpy form of an array of this framework; None for anything else."""

    @abstractmethod
    def versions(self) -> dict[str, str]:
        """Framework and library versions that a reader needs to repeat the measurement."""

    def timer(self) -> Timer:
        """The clock that sees this backend's work; the host clock unless the device has its own."""
        return HostTimer(threads=self.threads)

    def sync(self) -> None:
        """Wait until all work handed to the device is done."""

    def in_mode(self, task: Task, mode: str) -> Task:
        """The task as a mode runs it; without gradients there is only evaluation."""
        if mode != "eval":
            raise NotApplicable(f"backend {self.name} has no mode {mode}")
        return task

    def upcast(self, task: Task) -> Task | None:
        """The same call in double precision on the same, already rounded inputs; None where that cannot be had."""
        return None

    def start_memory(self) -> None:
        """Forget earlier peaks, so that the next one belongs to what runs next."""
        self._memory_before = own_memory("VmRSS") if self._memory_before is None else self._memory_before
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")

    def peak_memory(self) -> dict[str, float]:
        """Highest memory since `start_memory`, above what the process held before its first call."""
        return {"peak_memory": max(0.0, own_memory("VmHWM") - (self._memory_before or 0.0))}

    def observe(self) -> AbstractContextManager[Log]:
        """Watch the device while blocks are taken; there is nothing to watch on most."""
        return contextlib.nullcontext(Log())

    def beside(self, task: Task, timer: Timer, seconds: float, settings: Settings) -> tuple[dict[str, Figure], dict[str, Any]]:
        """Figures that stand beside the time: cold caches, host time, energy; and facts about how it was timed."""
        return {}, {}

    @classmethod
    def reset(cls) -> None:
        """Forget what an earlier case left in the process, such as compiled graphs."""

    def randn(self, *shape: int, dtype: str = "fp32", scale: float = 1.0) -> Any:
        """Normal data; the k-th call of any backend with the same seed draws the same numbers."""
        dtype = canonical(dtype)
        data = self._generator().standard_normal(shape, dtype=np.float64 if dtype == "fp64" else np.float32)
        return self.array(data if scale == 1.0 else data * data.dtype.type(scale), dtype)

    def uniform(self, *shape: int, low: float = 0.0, high: float = 1.0, dtype: str = "fp32") -> Any:
        """Uniform data in [low, high)."""
        return self.array(self._generator().uniform(low, high, shape), canonical(dtype))

    def integers(self, low: int, high: int, *shape: int, dtype: str = "int64") -> Any:
        """Whole numbers in [low, high), for indices and tokens."""
        return self.array(self._generator().integers(low, high, shape), canonical(dtype))

    def full(self, *shape: int, value: float = 0.0, dtype: str = "fp32") -> Any:
        """A constant array: biases, gains, output buffers."""
        return self.array(np.full(shape, value), canonical(dtype))

    def outputs(self, value: Any, path: str = "out") -> list[Leaf]:
        """Flatten a result into arrays with their places in it."""
        found = self.leaf(value)
        if found is not None:
            return [Leaf(path, *found)]
        if isinstance(value, Mapping):
            return [leaf for key, item in value.items() for leaf in self.outputs(item, f"{path}.{key}")]
        if isinstance(value, (list, tuple)):
            return [leaf for index, item in enumerate(value) for leaf in self.outputs(item, f"{path}[{index}]")]
        if isinstance(value, (bool, int, float, complex)):
            return [Leaf(path, type(value).__name__, np.asarray(value))]
        return []

    def relocate(self, task: Task, rng: random.Random) -> Task:
        """The same task with its inputs at fresh addresses: placement is part of the noise and must vary.

        Inputs that are one array stay one; whatever needs a clean-up still belongs to the first task.
        """
        self._padding = [np.empty(rng.randrange(64, 65536), np.uint8) for _ in range(rng.randrange(1, 8))]
        moved = {id(item): self.copy(item) for item in (*task.args, *task.kwargs.values())}
        args, kwargs = tuple(moved[id(item)] for item in task.args), {key: moved[id(item)] for key, item in task.kwargs.items()}
        parameters = tuple(moved.get(id(item), item) for item in task.parameters)
        return replace(task, args=args, kwargs=kwargs, parameters=parameters, cleanup=None)

    def copy(self, value: Any) -> Any:
        """A copy of an array at another address, laid out as it was; anything else as it is."""
        return value

    def _generator(self) -> np.random.Generator:
        self._drawn += 1
        return np.random.default_rng([self.seed, self._drawn])


def own_memory(name: str) -> float:
    """Bytes of this process from the kernel's account: VmRSS now, VmHWM at the highest."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return float(line.split()[1]) * 1024
    return 0.0
