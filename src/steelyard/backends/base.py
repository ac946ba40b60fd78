"""What a backend must offer: data, outputs, a timer, versions. One subclass per file in this folder."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import hashlib
import math
import os
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from steelyard.backends._litter import Sketch, litter_host
from steelyard.backends._memory import library_memory, own_memory
from steelyard.backends._numbers import HostNumbers, Stream, stream_of
from steelyard.errors import NotApplicable, Unsupported
from steelyard.machine.telemetry import Log
from steelyard.measuring.clock import HostTimer, Timer
from steelyard.measuring.fixed import Labels, NoLabels, Range, Stopwatch
from steelyard.measuring.moving import Move, copy_array, scraps
from steelyard.model.dtypes import ALIASES, canonical
from steelyard.model.experiment import GraphForm, Settings
from steelyard.model.protocol import Traces
from steelyard.model.record import Figure
from steelyard.model.task import Task

COMPARED = 2**24
SEEDS = 2**32
MOST_LEFT = 2**31
"""Bytes that a process may hold after a case beyond what it held after its first one."""
_FIRST_HELD: dict[int, float] = {}
"""What this process held after its first case; a forked one begins anew."""


@dataclass(frozen=True)
class Leaf:
    """One array of an output, readable by numpy whatever its own format was.

    One that lies on a device is `there`, with the framework as the `space` of functions that work on it and a way to `read` it; it is
    copied to the host only when its data is needed.
    """

    path: str
    dtype: str
    held: np.ndarray[Any, Any] | None
    whole: tuple[int, ...] | None = None
    there: Any = None
    space: Any = np
    read: Callable[[Any], np.ndarray[Any, Any]] | None = None

    @functools.cached_property
    def data(self) -> np.ndarray[Any, Any]:
        """As numpy reads it; of a huge one every so many values."""
        if self.held is not None:
            return self.held
        assert self.read is not None
        return self.read(self.there)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the array itself, of which a huge one keeps every so many values only."""
        return self.data.shape if self.whole is None else self.whole


@dataclass(frozen=True)
class Seat:
    """One process's place among the ranks of a case; `meeting` is the file through which they find each other."""

    rank: int = 0
    size: int = 1
    meeting: str = ""
    patience: float = 300.0


ALONE = Seat()


def step_through(size: int) -> int:
    """Every how many values of an array are compared: all, unless there are more than anyone waits for.

    The step is odd, so that rows of even length are not met in the same columns every time.
    """
    step = -(-size // COMPARED)
    return step if step <= 1 else step | 1


def host_leaf(value: Any) -> tuple[str, np.ndarray[Any, Any]] | None:
    """Format name and values of an array of numpy's, which functions of every framework may take and give; None for anything else."""
    if not isinstance(value, (np.ndarray, np.generic)):
        return None
    bare = np.asarray(value)
    step = step_through(bare.size)
    return ALIASES.get(bare.dtype.name, bare.dtype.name), bare if step <= 1 else bare.reshape(-1)[::step]


class Backend(ABC):
    """One framework on one device; a fresh instance builds each task, so equal seeds give equal data.

    `speaks` is the backend whose bodies it runs where a workload has none for itself.
    """

    name: ClassVar[str]
    install: ClassVar[str] = ""
    speaks: ClassVar[str] = ""
    exactly: ClassVar[bool] = False
    """Whether variants too are held against what is exact, and not against the plain task of this backend."""
    compiles_always: ClassVar[bool] = False
    """Whether first calls compile under every variant, even the plain one, and `graphs` counts that."""
    draws_exactly: ClassVar[bool] = True
    """Whether dropout at a probability next to nothing leaves every number as it was."""

    def __init__(self, device: str = "cpu", *, seed: int = 0, threads: int = 1, seat: Seat = ALONE) -> None:
        self.device, self.seed, self.threads = device, seed, threads
        self.seat, self.joined = seat, False
        self._drawn = 0
        self.before_variants: tuple[Any, ...] = ()
        self.left_set: list[str] = []
        """The variants that set something for the whole process; `before_variants` is what had been set before the first of them."""
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

    def pair_timer(self, arms: Sequence[Task]) -> Timer:
        """The clock for comparing these arms; another than for timing one of them where the device has a better."""
        return self.timer()

    def stopwatch(self, *, flush: Range | None = None) -> Stopwatch:
        """What times single calls on this device, for a fixed number of them; with `flush` its cache is emptied before each, inside it."""
        return Stopwatch()

    def unwaited(self, task: Task) -> Task:
        """A task in its mode whose calls end when they are handed over, where a call of it waits for its work by itself."""
        return task

    def renewed(self, value: Any, *, random: bool = False) -> Any:
        """The same structure with copies of its arrays; with `random`, other random numbers in those of floating numbers."""
        if isinstance(value, dict):
            return {key: self.renewed(item, random=random) for key, item in value.items()}
        if type(value) in (list, tuple):
            return type(value)(self.renewed(item, random=random) for item in value)
        return self.drawn_again(value) if random else self.copy(value)

    def drawn_again(self, value: Any) -> Any:
        """An array like this one with normal random numbers; a copy of what holds no floating numbers."""
        made = self.copy(value)
        if isinstance(made, np.ndarray) and made.dtype.kind == "f":
            made[...] = self._numbers().normals(made.size).reshape(made.shape)
        return made

    def building(self) -> AbstractContextManager[Any]:
        """Where a library's model is built, by the framework's name for the device, before it is moved to its own."""
        return contextlib.nullcontext(getattr(self, "where", None))

    def answer(self, task: Task, mode: str, calls: int) -> Any:
        """What the last of some calls answered, each with inputs of its own; for verification that looks at more than one call."""
        if mode != "eval":
            raise NotApplicable(f"backend {self.name} has no mode {mode}")
        out = None
        for _ in range(calls):
            out = replace(task, args=self.renewed(task.args), kwargs=self.renewed(dict(task.kwargs)))()
        self.sync()
        return out

    def sow(self) -> None:
        """Begin the random numbers that calls draw by themselves anew, so that two runs draw the same."""
        random.seed(self.seed)
        np.random.seed(self.seed % SEEDS)

    def changing(self, task: Task) -> list[Any]:
        """The arrays that training steps change: a task's weights."""
        return list(task.parameters)

    def state(self, task: Task) -> list[Any]:
        """Copies of what steps change."""
        return [self.copy(item) for item in self.changing(task)]

    def rewind(self, task: Task, state: Sequence[Any]) -> None:
        """Give what steps changed the values that it had."""
        for item, value in zip(self.changing(task), state, strict=True):
            if not self.alter(item, functools.partial(_instead, value)):
                raise Unsupported("the weights cannot be given back the values that they had")

    def save(self, value: Any, path: Path) -> None:
        """Write the arrays of an answer to a file that the framework reads back, by their places."""
        found: dict[str, Any] = {leaf.path: leaf.data for leaf in self.outputs(value)}
        np.savez(path, **found)

    def labels(self, *, traced: bool = False) -> Labels:
        """Ranges for tools that look from outside, and for a trace where one is taken."""
        return NoLabels()

    def facts(self) -> dict[str, Any]:
        """What the framework knows of itself and of its device, beyond versions."""
        return {}

    @classmethod
    def as_it_was(cls) -> AbstractContextManager[Any]:
        """Leave the settings of the process that calls change most as they were; for many small cases."""
        return contextlib.nullcontext()

    @classmethod
    def wholly_as_it_was(cls) -> AbstractContextManager[Callable[[], list[str]]]:
        """Leave everything in the process that a case may set as it was, so that the next case finds the state of a new worker. The
        function returns what has been changed so far.
        """
        return contextlib.nullcontext(list)

    @classmethod
    def process_state(cls) -> tuple[Any, ...]:
        """The values of what can be set for the whole process, such as precisions and autocast."""
        return ()

    @classmethod
    def in_state(cls, values: tuple[Any, ...]) -> AbstractContextManager[None]:
        """Run what is inside with such values, and go on with those of now."""
        return contextlib.nullcontext()

    def traced(self, traces: Traces | None, files: dict[str, str]) -> AbstractContextManager[None]:
        """Take traces of everything inside; where each lies is noted in `files` once it is whole."""
        if traces is not None:
            raise Unsupported(f"backend {self.name} takes no traces of a whole run")
        return contextlib.nullcontext()

    @classmethod
    def recorder(cls) -> Any:
        """The module that records execution traces: `place`, `beside`, `capture`, `recording`, `profiled`, `training_steps` and `note`."""
        raise Unsupported(f"backend {cls.name} records no execution traces", do="use backend torch")

    def recovers(self, reason: str) -> bool:
        """After a case that failed for this reason: give its memory back, and say whether the device still answers."""
        gc.collect()
        return True

    def sync(self) -> None:
        """Wait until all work handed to the device is done."""

    def join(self) -> Seat:
        """Connect to the other ranks of the case, if there are any; a workload that communicates calls this while it is built."""
        raise Unsupported(f"backend {self.name} cannot connect ranks", do="use backend torch")

    def barrier(self) -> None:
        """Wait until every rank that joined has come this far."""

    @classmethod
    def leave(cls) -> None:
        """Take down the group that was joined, if there is one."""

    def in_mode(self, task: Task, mode: str) -> Task:
        """The task as a mode runs it; without gradients there is only evaluation."""
        if mode != "eval":
            raise NotApplicable(f"backend {self.name} has no mode {mode}")
        return task

    def upcast(self, task: Task) -> Task | None:
        """The same call in double precision on the same, already rounded inputs; None where that cannot be had."""
        return None

    def witness(self) -> Backend | None:
        """Another backend of this interpreter that computes the same task in double precision; None where this one does it itself."""
        return None

    def start_memory(self) -> None:
        """Forget earlier peaks, so that the next one belongs to what runs next; the first call also fixes what is held already."""
        if self._memory_before is None:
            self._memory_before = own_memory("VmRSS") - library_memory()
        try:
            Path("/proc/self/clear_refs").write_text("5")
        except OSError as error:
            raise Unsupported("this system does not let a process reset its peak memory", why=f"/proc/self/clear_refs: {error}") from error

    def peak_memory(self) -> dict[str, float]:
        """Highest memory since the last `start_memory`, above what the process held at the first; code read from libraries is no part."""
        return {"peak_memory": max(0.0, own_memory("VmHWM") - library_memory() - (self._memory_before or 0.0))}

    def release_memory(self) -> None:
        """Release cached memory, so that leftovers of a build are not counted with what follows."""
        gc.collect()
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)

    def model_bytes(self, task: Task) -> int:
        """Bytes of the weights; an array used twice counts once."""
        return sum(int(getattr(item, "nbytes", 0)) for item in {id(item): item for item in task.parameters}.values())

    def snapshot(self, path: Path) -> AbstractContextManager[None]:
        """Keep every allocation made inside and write the history to a file, in the framework's own format."""
        raise Unsupported(f"backend {self.name} on {self.device} keeps no history of allocations", do="memory snapshots need torch on cuda")

    def profile(self, call: Callable[[], Any], trace: Path, calls: int) -> list[dict[str, Any]]:
        """Trace some calls to a file, gzipped Chrome format; the answer is one row per kernel or operator."""
        raise Unsupported(f"backend {self.name} has no profiler")

    def runtime_profile(self, folder: Path) -> AbstractContextManager[None]:
        """A profile by the framework's own runtime of all that is called inside, in files of its own form."""
        raise Unsupported(f"backend {self.name} has no profiler of its own runtime", do="that needs backend torch_xla")

    def profile_stacks(self, call: Callable[[], Any], folder: Path) -> list[Path]:
        """The stacks of some calls for a flame graph, a trace with stacks, and a table by operator and shape, as three files."""
        raise Unsupported(f"backend {self.name} has no profiler")

    def graph_texts(self, call: Callable[[], Any], form: GraphForm) -> dict[str, str]:
        """The graphs that a call hands to the compiler, or what that makes of them, each once, by number or by phase.

        The process was started for that form, where its framework needs to know it then.
        """
        raise Unsupported(f"backend {self.name} writes no graphs", do="--dump-ir needs jax, tensorflow with XLA, or torch_xla")

    @classmethod
    def import_mode(cls, mode: str) -> None:
        """Import what a mode needs, so that its import is not taken for the first call."""

    @classmethod
    def import_compiler(cls) -> None:
        """Import what compiling needs, so that its import is not taken for compiling."""

    def cache_counts(self) -> dict[str, int]:
        """How often the compiler's cache on disk was hit and missed in this process; empty if it is not counted."""
        return {}

    def compile_phases(self) -> dict[str, float]:
        """Seconds of parsing, compiling and loading, where a program is compiled while its task is built; empty where a call does it."""
        return {}

    def program_sizes(self) -> dict[str, float]:
        """Bytes of what the compiler made in this process: `code_size`, and `program_memory` where it plans that; empty if unknown."""
        return {}

    def observe(self) -> AbstractContextManager[Log]:
        """Watch the device while blocks are taken; there is nothing to watch on most."""
        return contextlib.nullcontext(Log())

    def beside(self, task: Task, timer: Timer, seconds: float, settings: Settings) -> tuple[dict[str, Figure], dict[str, Any]]:
        """Further metrics beside the time: cold caches, host time, energy; and facts about how it was timed."""
        return {}, {}

    def graphs(self) -> int:
        """How many graphs a compiler has made in this process so far; a change while timing voids the figures."""
        return 0

    def captured_graphs(self) -> dict[str, int]:
        """How many graphs of the device a compiler has recorded in this process, where it does such a thing."""
        return {}

    @classmethod
    def unreturned(cls) -> str:
        """What a case that is over still holds in this process, where the next one would miss it; empty where nothing is worth a word."""
        held = own_memory("RssAnon") if Path("/proc/self/status").is_file() else 0.0
        first = _FIRST_HELD.setdefault(os.getpid(), held)
        return f"{(held - first) / 2**30:.1f} GiB of memory that it did not give back" if held - first > MOST_LEFT else ""

    @classmethod
    def reset(cls) -> None:
        """Forget what an earlier case left in the process, such as compiled graphs."""

    def randn(self, *shape: int, dtype: str = "fp32", scale: float = 1.0) -> Any:
        """Normal data; the k-th array of any backend with the same seed has the same numbers."""
        dtype = canonical(dtype)
        data = self._numbers().normals(math.prod(shape), wide=dtype == "fp64").reshape(shape)
        return self.array(data if scale == 1.0 else data * data.dtype.type(scale), dtype)

    def uniform(self, *shape: int, low: float = 0.0, high: float = 1.0, dtype: str = "fp32") -> Any:
        """Uniform data in [low, high)."""
        return self.array(self._numbers().between(low, high, math.prod(shape)).reshape(shape), canonical(dtype))

    def integers(self, low: int, high: int, *shape: int, dtype: str = "int64") -> Any:
        """Whole numbers in [low, high), for indices and tokens."""
        return self.array(self._numbers().whole(low, high, math.prod(shape)).reshape(shape), canonical(dtype))

    def full(self, *shape: int, value: float = 0.0, dtype: str = "fp32") -> Any:
        """A constant array: biases, gains, output buffers."""
        return self.array(np.full(shape, value), canonical(dtype))

    def seen(self, value: Any, path: str) -> Leaf | None:
        """An array of this framework, or of numpy's, as a leaf; None for anything else."""
        found = self.leaf(value) or host_leaf(value)
        return None if found is None else Leaf(path, *found, tuple(value.shape))

    def kept(self, leaf: Leaf) -> Leaf:
        """A leaf to be looked at later: what was read may lie in memory that the next call overwrites."""
        return replace(leaf, held=np.array(leaf.data), there=None, space=np)

    def fingerprint(self, value: Any) -> str | None:
        """A digest of an array's bits; None for other values."""
        found = self.leaf(value) or host_leaf(value)
        return None if found is None else hashlib.blake2b(np.ascontiguousarray(found[1]).tobytes(), digest_size=16).hexdigest()

    def outputs(self, value: Any, path: str = "out") -> list[Leaf]:
        """Flatten a result into arrays with their places in it."""
        found = self.seen(value, path)
        if found is not None:
            return [found]
        if isinstance(value, Mapping):
            return [leaf for key, item in value.items() for leaf in self.outputs(item, f"{path}.{key}")]
        if isinstance(value, (list, tuple)):
            return [leaf for index, item in enumerate(value) for leaf in self.outputs(item, f"{path}[{index}]")]
        if isinstance(value, (bool, int, float, complex)):
            return [Leaf(path, type(value).__name__, np.asarray(value))]
        return []

    def alter(self, value: Any, change: Callable[[Any], Any]) -> bool:
        """Write an array's changed values where it lies; False for what is no array or cannot be written to.

        `change` gets the values in a format that can be computed with, and may use what arrays of all frameworks can do.
        """
        return False

    def litter(self, answer: Sequence[Sketch]) -> None:
        """Leave random numbers of an answer's own scale in the memory that the next call is handed, so that no old answer lies there."""
        litter_host(answer)

    def now(self, value: Any) -> Any:
        """What stands for an array, where arrays cannot be changed and others take their places."""
        return value

    def rounds_to_tf32(self, task: Task) -> bool:
        """Whether the framework's own settings let fp32 products of a plain task round to TF32."""
        return False

    def formats_within(self, fn: Callable[..., Any], args: Sequence[Any]) -> set[str]:
        """The formats of the numbers that a call holds itself and of those that it multiplies, where the framework shows them."""
        return set()

    def relocate(self, task: Task, rng: random.Random, *, whole: bool = True) -> Task:
        """The same task with everything that it works on at fresh addresses: placement is part of the noise and must vary.

        What is shared stays shared. With `whole` false the function stays, because it took long to make, and its inputs move
        alone. Whatever needs a clean-up still belongs to the first task.
        """
        self._padding = scraps(rng)
        return self._moved(task, rng, whole=whole)[0]

    def _moved(self, task: Task, rng: random.Random, *, whole: bool) -> tuple[Task, set[str]]:
        move = Move(self.copy, self.fixed, rng)
        names = list(task.kwargs)
        fn, loss, *rest = move.all((*((task.fn, task.loss) if whole else (None, None)), *task.args, *task.kwargs.values()))
        args, kwargs = tuple(rest[: len(task.args)]), dict(zip(names, rest[len(task.args) :], strict=True))
        made = replace(task, args=args, kwargs=kwargs, parameters=tuple(map(move.found, task.parameters)), cleanup=None)
        return (replace(made, fn=fn, loss=loss) if whole else made), move.stays

    def stays(self, task: Task) -> list[str]:
        """The kinds of objects among all that the task works on which `relocate` leaves where they are."""
        return sorted(self._moved(task, random.Random(0), whole=True)[1])

    def movable(self, task: Task) -> bool:
        """Whether `relocate` moves all that the task works on."""
        return task.fn is not None and task.prepare is None and not task.phases and not self.stays(task)

    def fixed(self, value: Any) -> bool:
        """Whether something has to stay as it is: what a compiler made, and the backend itself."""
        return isinstance(value, Backend)

    def copy(self, value: Any, buffers: dict[Any, Any] | None = None) -> Any:
        """A copy of an array at another address, laid out as it was; anything else as it is.

        `buffers` are those copied already: views of one memory stay views of one.
        """
        return copy_array(value, {} if buffers is None else buffers) if isinstance(value, np.ndarray) else value

    def _stream(self) -> Stream:
        """The random numbers of the next array."""
        self._drawn += 1
        return stream_of(self.seed, self._drawn)

    def _numbers(self) -> HostNumbers:
        return HostNumbers(self._stream())


def _instead(value: Any, present: Any) -> Any:
    """One value in place of another."""
    return value
