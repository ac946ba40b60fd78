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
"""Most bytes that a process may hold after a case beyond what it held after its first case: what is above is reported."""
_FIRST_HELD: dict[int, float] = {}
"""Bytes that a process held after its first case, by process id: a forked process begins anew."""


@dataclass(frozen=True)
class Leaf:
    """One array of an output, readable by numpy whatever its own format was.

    For an array on a device, `there` is that array, `space` the framework whose functions work on it, and `read` copies it to the host,
    which happens only when its data is needed.
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
        """The values as numpy reads them; for a huge array only every n-th value."""
        if self.held is not None:
            return self.held
        assert self.read is not None
        return self.read(self.there)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the whole array, even where only every n-th value of it is kept."""
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
    """Return n if every n-th value of an array of this size is compared: 1, unless comparing all values would take too long.

    The step is odd, so that rows of even length are not compared in the same columns every time.
    """
    step = -(-size // COMPARED)
    return step if step <= 1 else step | 1


def host_leaf(value: Any) -> tuple[str, np.ndarray[Any, Any]] | None:
    """Return the format name and values of a numpy array, which tasks of every framework may use; None for anything else."""
    if not isinstance(value, (np.ndarray, np.generic)):
        return None
    bare = np.asarray(value)
    step = step_through(bare.size)
    return ALIASES.get(bare.dtype.name, bare.dtype.name), bare if step <= 1 else bare.reshape(-1)[::step]


class Backend(ABC):
    """One framework on one device; a fresh instance builds each task, so equal seeds give equal data.

    `speaks` is the backend whose implementations it runs where a workload has none for it.
    """

    name: ClassVar[str]
    install: ClassVar[str] = ""
    speaks: ClassVar[str] = ""
    exactly: ClassVar[bool] = False
    """Whether variants too are compared with the exact result, and not with the plain task of this backend."""
    compiles_always: ClassVar[bool] = False
    """Whether first calls compile under every variant, even the plain one, and `graphs` counts that."""
    draws_exactly: ClassVar[bool] = True
    """Whether dropout with a probability close to 0 leaves every number as it was."""

    def __init__(self, device: str = "cpu", *, seed: int = 0, threads: int = 1, seat: Seat = ALONE) -> None:
        self.device, self.seed, self.threads = device, seed, threads
        self.seat, self.joined = seat, False
        self._drawn = 0
        self.before_variants: tuple[Any, ...] = ()
        self.left_set: list[str] = []
        """Variants that changed process-wide settings; `before_variants` are the settings before the first of them."""
        self._memory_before: float | None = None
        self.open()

    def open(self) -> None:
        """Check the device and set process-wide state; raise Unsupported with the reason if it cannot run here."""
        if self.device != "cpu":
            raise Unsupported(f"backend {self.name} runs on the CPU only, not on {self.device!r}")

    @abstractmethod
    def array(self, data: np.ndarray[Any, Any], dtype: str) -> Any:
        """Put neutral data on the device, rounded to a format."""

    @abstractmethod
    def leaf(self, value: Any) -> tuple[str, np.ndarray[Any, Any]] | None:
        """Return the format name and numpy form of an array of this framework; None for anything else."""

    @abstractmethod
    def versions(self) -> dict[str, str]:
        """Return the framework and library versions that a reader needs to repeat the measurement."""

    def timer(self) -> Timer:
        """Return the timer that sees this backend's work; the host's clock unless the device has its own."""
        return HostTimer(threads=self.threads)

    def pair_timer(self, arms: Sequence[Task]) -> Timer:
        """Return the timer for comparing these arms, which may differ from the one for timing a single arm."""
        return self.timer()

    def stopwatch(self, *, flush: Range | None = None) -> Stopwatch:
        """Return the stopwatch for a fixed number of single calls; with `flush` the cache is emptied before each, in that range."""
        return Stopwatch()

    def unwaited(self, task: Task) -> Task:
        """Return a task whose calls return once their work is queued, if calls of the given task wait for their work."""
        return task

    def renewed(self, value: Any, *, random: bool = False) -> Any:
        """Return the same structure with copies of its arrays; with `random`, floating-point arrays get other random numbers."""
        if isinstance(value, dict):
            return {key: self.renewed(item, random=random) for key, item in value.items()}
        if type(value) in (list, tuple):
            return type(value)(self.renewed(item, random=random) for item in value)
        return self.drawn_again(value) if random else self.copy(value)

    def drawn_again(self, value: Any) -> Any:
        """Return an array like this one with new normal random numbers; a copy if it holds no floating-point numbers."""
        made = self.copy(value)
        if isinstance(made, np.ndarray) and made.dtype.kind == "f":
            made[...] = self._numbers().normals(made.size).reshape(made.shape)
        return made

    def building(self) -> AbstractContextManager[Any]:
        """Return a context in which a library's model is built; its value is the device to build it on."""
        return contextlib.nullcontext(getattr(self, "where", None))

    def answer(self, task: Task, mode: str, calls: int) -> Any:
        """Return the output of the last of some calls, each with its own inputs; for verification that compares more than one call."""
        if mode != "eval":
            raise NotApplicable(f"backend {self.name} has no mode {mode}")
        out = None
        for _ in range(calls):
            out = replace(task, args=self.renewed(task.args), kwargs=self.renewed(dict(task.kwargs)))()
        self.sync()
        return out

    def sow(self) -> None:
        """Reseed the generators that calls draw random numbers from, so that two runs draw the same."""
        random.seed(self.seed)
        np.random.seed(self.seed % SEEDS)

    def changing(self, task: Task) -> list[Any]:
        """Return the arrays that training steps change: a task's weights."""
        return list(task.parameters)

    def state(self, task: Task) -> list[Any]:
        """Return copies of the arrays that training steps change."""
        return [self.copy(item) for item in self.changing(task)]

    def rewind(self, task: Task, state: Sequence[Any]) -> None:
        """Reset the arrays that training steps change to an earlier `state`."""
        for item, value in zip(self.changing(task), state, strict=True):
            if not self.alter(item, functools.partial(_instead, value)):
                raise Unsupported("the weights cannot be reset to their earlier values")

    def save(self, value: Any, path: Path) -> None:
        """Write the arrays of an answer, by their paths in it, to a file that the framework can read."""
        found: dict[str, Any] = {leaf.path: leaf.data for leaf in self.outputs(value)}
        np.savez(path, **found)

    def labels(self, *, traced: bool = False) -> Labels:
        """Return ranges for external tools, and for a trace if one is taken."""
        return NoLabels()

    def facts(self) -> dict[str, Any]:
        """Return facts about the framework and its device, beyond versions."""
        return {}

    @classmethod
    def as_it_was(cls) -> AbstractContextManager[Any]:
        """Restore the process settings that calls change most at the end of the block; for many small cases."""
        return contextlib.nullcontext()

    @classmethod
    def wholly_as_it_was(cls) -> AbstractContextManager[Callable[[], list[str]]]:
        """Restore at the end every process setting that a case may change, so that the next case finds the state of a new worker.
        The value is a function that returns what has been changed so far.
        """
        return contextlib.nullcontext(list)

    @classmethod
    def process_state(cls) -> tuple[Any, ...]:
        """Return the values of process-wide settings, such as precisions and autocast."""
        return ()

    @classmethod
    def in_state(cls, values: tuple[Any, ...]) -> AbstractContextManager[None]:
        """Use these values of the process-wide settings inside the block, and restore the present ones at its end."""
        return contextlib.nullcontext()

    def traced(self, traces: Traces | None, files: dict[str, str]) -> AbstractContextManager[None]:
        """Take traces of everything inside; the path of each is added to `files` once it is complete."""
        if traces is not None:
            raise Unsupported(f"backend {self.name} takes no traces of a whole run")
        return contextlib.nullcontext()

    @classmethod
    def recorder(cls) -> Any:
        """The module that records execution traces: `place`, `beside`, `capture`, `recording`, `profiled`, `training_steps` and `note`."""
        raise Unsupported(f"backend {cls.name} records no execution traces", do="use backend torch")

    def recovers(self, reason: str) -> bool:
        """Release the memory of a case that failed for this reason, and return whether the device still works."""
        gc.collect()
        return True

    def sync(self) -> None:
        """Wait until all work handed to the device is done."""

    def join(self) -> Seat:
        """Connect to the other ranks of the case, if there are any; a workload that communicates calls this while it is built."""
        raise Unsupported(f"backend {self.name} cannot connect ranks", do="use backend torch")

    def barrier(self) -> None:
        """Wait until every rank that joined has reached this call."""

    @classmethod
    def leave(cls) -> None:
        """Take down the group that was joined, if there is one."""

    def in_mode(self, task: Task, mode: str) -> Task:
        """Return the task as a mode runs it; a backend without gradients has only evaluation."""
        if mode != "eval":
            raise NotApplicable(f"backend {self.name} has no mode {mode}")
        return task

    def upcast(self, task: Task) -> Task | None:
        """Return the same call in double precision on the same, already rounded inputs; None if that is not possible."""
        return None

    def witness(self) -> Backend | None:
        """Return another backend of this interpreter that computes the task in double precision; None where this one does it itself."""
        return None

    def start_memory(self) -> None:
        """Reset the peak, so that the next one belongs to what runs next; the first call also notes how much is held already."""
        if self._memory_before is None:
            self._memory_before = own_memory("VmRSS") - library_memory()
        try:
            Path("/proc/self/clear_refs").write_text("5")
        except OSError as error:
            raise Unsupported("this system does not let a process reset its peak memory", why=f"/proc/self/clear_refs: {error}") from error

    def peak_memory(self) -> dict[str, float]:
        """Return the peak memory since the last `start_memory`, above what the process held at the first; library code is excluded."""
        return {"peak_memory": max(0.0, own_memory("VmHWM") - library_memory() - (self._memory_before or 0.0))}

    def release_memory(self) -> None:
        """Release cached memory, so that leftovers of a build are not counted with what follows."""
        gc.collect()
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)

    def model_bytes(self, task: Task) -> int:
        """Return the bytes of the weights; an array used twice counts once."""
        return sum(int(getattr(item, "nbytes", 0)) for item in {id(item): item for item in task.parameters}.values())

    def snapshot(self, path: Path) -> AbstractContextManager[None]:
        """Record every allocation made inside and write the history to a file, in the framework's own format."""
        raise Unsupported(f"backend {self.name} on {self.device} keeps no history of allocations", do="memory snapshots need torch on cuda")

    def profile(self, call: Callable[[], Any], trace: Path, calls: int) -> list[dict[str, Any]]:
        """Trace some calls to a file in gzipped Chrome format, and return one row per kernel or operator."""
        raise Unsupported(f"backend {self.name} has no profiler")

    def runtime_profile(self, folder: Path) -> AbstractContextManager[None]:
        """Profile everything called inside with the framework's own runtime, which writes files of its own format."""
        raise Unsupported(f"backend {self.name} has no profiler of its own runtime", do="that needs backend torch_xla")

    def profile_stacks(self, call: Callable[[], Any], folder: Path) -> list[Path]:
        """Write stacks of some calls for a flame graph, a trace with stacks, and a table by operator and shape; return the files."""
        raise Unsupported(f"backend {self.name} has no profiler")

    def graph_texts(self, call: Callable[[], Any], form: GraphForm) -> dict[str, str]:
        """Return the graphs that a call passes to the compiler, or what the compiler makes of them, each once, by number or by phase.

        If the framework must know the form at the start of the process, it was started for that form.
        """
        raise Unsupported(f"backend {self.name} writes no graphs", do="--dump-ir needs jax, tensorflow with XLA, or torch_xla")

    @classmethod
    def import_mode(cls, mode: str) -> None:
        """Import what a mode needs, so that the import is not timed as part of the first call."""

    @classmethod
    def import_compiler(cls) -> None:
        """Import what compiling needs, so that the import is not timed as compiling."""

    def cache_counts(self) -> dict[str, int]:
        """Return how often the compiler's cache on disk was hit and missed in this process; empty if it is not counted."""
        return {}

    def compile_phases(self) -> dict[str, float]:
        """Return the seconds of parsing, compiling and loading, if building the task compiles a program; empty if a call does that."""
        return {}

    def program_sizes(self) -> dict[str, float]:
        """Return the bytes of compiled code as `code_size`, and of the memory planned for it as `program_memory`; empty if unknown."""
        return {}

    def observe(self) -> AbstractContextManager[Log]:
        """Watch the device while blocks are timed; most backends have nothing to watch."""
        return contextlib.nullcontext(Log())

    def beside(self, task: Task, timer: Timer, seconds: float, settings: Settings) -> tuple[dict[str, Figure], dict[str, Any]]:
        """Return further metrics beside the time (cold caches, host time, energy), and facts about how the task was timed."""
        return {}, {}

    def graphs(self) -> int:
        """Return how many graphs a compiler has made in this process so far; a change while timing voids the figures."""
        return 0

    def captured_graphs(self) -> dict[str, int]:
        """Return how many device graphs a compiler has recorded in this process; empty for a backend that records none."""
        return {}

    @classmethod
    def unreturned(cls) -> str:
        """Return what a finished case still holds in this process and the next case may need; empty if it is too little to report."""
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
        """Return a leaf whose data can be read later: the next call may overwrite the memory that was read."""
        return replace(leaf, held=np.array(leaf.data), there=None, space=np)

    def fingerprint(self, value: Any) -> str | None:
        """A digest of an array's bits; None for other values."""
        found = self.leaf(value) or host_leaf(value)
        return None if found is None else hashlib.blake2b(np.ascontiguousarray(found[1]).tobytes(), digest_size=16).hexdigest()

    def outputs(self, value: Any, path: str = "out") -> list[Leaf]:
        """Flatten a result into arrays with their paths in it."""
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
        """Change an array's values in place; return False for a value that is not an array or cannot be written to.

        `change` gets the values in a format that can be computed with, and may only use what arrays of all frameworks can do.
        """
        return False

    def litter(self, answer: Sequence[Sketch]) -> None:
        """Fill the memory that the next call will get with random numbers of an answer's scale, so that it holds no old answer."""
        litter_host(answer)

    def now(self, value: Any) -> Any:
        """Return the replacement of an array, for backends whose arrays cannot be changed."""
        return value

    def rounds_to_tf32(self, task: Task) -> bool:
        """Whether the framework's own settings let fp32 products of a plain task round to TF32."""
        return False

    def formats_within(self, fn: Callable[..., Any], args: Sequence[Any]) -> set[str]:
        """Return the formats of the arrays that a call holds or multiplies; empty if the framework does not show them."""
        return set()

    def relocate(self, task: Task, rng: random.Random, *, whole: bool = True) -> Task:
        """Return the same task with everything that it works on at new addresses: placement is part of the noise and must vary.

        Arrays that are shared stay shared. With `whole` false only the inputs move, and the function stays because it took long to make.
        Whatever needs a clean-up still belongs to the first task.
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
        """Return the kinds of objects used by the task that `relocate` leaves where they are."""
        return sorted(self._moved(task, random.Random(0), whole=True)[1])

    def movable(self, task: Task) -> bool:
        """Whether `relocate` moves everything that the task works on."""
        return task.fn is not None and task.prepare is None and not task.phases and not self.stays(task)

    def fixed(self, value: Any) -> bool:
        """Whether a value must not be copied: what a compiler made, and the backend itself."""
        return isinstance(value, Backend)

    def copy(self, value: Any, buffers: dict[Any, Any] | None = None) -> Any:
        """Return a copy of an array at another address, with the same layout; anything else is returned unchanged.

        `buffers` holds the memory copied so far: views of the same memory become views of the same copy.
        """
        return copy_array(value, {} if buffers is None else buffers) if isinstance(value, np.ndarray) else value

    def _stream(self) -> Stream:
        """Return the random stream of the next array."""
        self._drawn += 1
        return stream_of(self.seed, self._drawn)

    def _numbers(self) -> HostNumbers:
        return HostNumbers(self._stream())


def _instead(value: Any, present: Any) -> Any:
    """Return the first value, in place of the present one."""
    return value
