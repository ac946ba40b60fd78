"""What backends for exported programs have in common: turning a file into something that can be called."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from steelyard import clocks
from steelyard.artifacts import arrays
from steelyard.artifacts.manifest import KINDS
from steelyard.artifacts.signature import ProgramSignature
from steelyard.backends._memory import host_memory
from steelyard.backends.base import Backend, step_through
from steelyard.errors import Unsupported
from steelyard.measuring.clock import HostTimer, Timer
from steelyard.model.experiment import GraphForm, Settings
from steelyard.model.record import Figure
from steelyard.model.task import Task

CUT = "the file is cut off: fetch or make it again"
NUMPY_KINDS = "biufc"
MOST_WORDS = 500


@dataclass(frozen=True)
class ProgramFile:
    """A program file that is not loaded yet; `allowed` names what the program may do besides computing."""

    path: Path
    kind: str
    form: str
    entry: str = "main"
    allowed: tuple[str, ...] = ()


@dataclass(frozen=True)
class LoadedProgram:
    """A program that can be called with arrays of its backend, and what loading it took.

    `seconds` has the time of each phase: parse, compile, load. `code` is the size of the compiled code, and `code_words` says what was
    counted. `held` is called after timing and returns the runtime's own memory figures. `consumes` says that a call uses up its inputs,
    so that each call needs new ones. `texts` returns readable text of the program, by form and compiler phase.
    """

    signature: ProgramSignature
    call: Callable[..., Sequence[Any]]
    seconds: Mapping[str, float] = field(default_factory=dict)
    code: int | None = None
    code_words: str = ""
    held: Callable[[], Mapping[str, float]] = dict
    facts: Mapping[str, Any] = field(default_factory=dict)
    consumes: bool = False
    texts: Mapping[GraphForm, Callable[[], Mapping[str, str]]] = field(default_factory=dict)


class PhaseTimes:
    """Measures the seconds of phases, by name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time spent inside to a phase."""
        before = clocks.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + clocks.perf_counter() - before


class ProgramBackend(Backend):
    """A runtime for exported programs; `kinds` are the kinds of program that it runs."""

    kinds: ClassVar[tuple[str, ...]] = ()

    def open(self) -> None:
        super().open()
        self._program: LoadedProgram | None = None
        self._first: float | None = None

    def load(self, file: ProgramFile) -> LoadedProgram:
        """Return the loaded program; raise Unsupported for a kind that this runtime does not run."""
        if file.kind not in self.kinds:
            what = KINDS.get(file.kind, file.kind)
            runs = ", ".join(dict.fromkeys(KINDS[kind].split(",")[0] for kind in self.kinds))
            raise Unsupported(f"backend {self.name} runs {runs}, and this is {what}")
        made = self.loaded(file)
        self._program = made
        return made

    @abstractmethod
    def loaded(self, file: ProgramFile) -> LoadedProgram:
        """Parse, compile and load a program of one of `kinds`."""

    def place(self, data: np.ndarray[Any, Any]) -> Any:
        """Return an array in the form that the runtime takes."""
        return data

    def array(self, data: np.ndarray[Any, Any], dtype: str) -> Any:
        wanted = arrays.NUMPY.get(dtype) or arrays.viewed(np.zeros(1, arrays.BITS[dtype][0]), dtype).dtype
        return self.place(np.ascontiguousarray(data).astype(wanted).reshape(np.shape(data)))

    def leaf(self, value: Any) -> tuple[str, np.ndarray[Any, Any]] | None:
        host = self.read(value)
        if host is None:
            return None
        name = arrays.dtype_of(host)
        step = step_through(host.size)
        host = host if step <= 1 else host.reshape(-1)[::step]
        return name, host if host.dtype.kind in NUMPY_KINDS else host.astype(np.float32)

    def read(self, value: Any) -> np.ndarray[Any, Any] | None:
        """Return an array of the runtime as a numpy array; None for anything else."""
        return np.asarray(value) if isinstance(value, (np.ndarray, np.generic)) else None

    def fixed(self, value: Any) -> bool:
        return callable(value) or super().fixed(value)

    def timer(self) -> Timer:
        return HostTimer(threads=max(2, self.threads))

    def compile_phases(self) -> dict[str, float]:
        return dict(self._program.seconds) if self._program else {}

    def program_sizes(self) -> dict[str, float]:
        if self._program is None:
            return {}
        return {**({} if self._program.code is None else {"code_size": float(self._program.code)}), **self._program.held()}

    def graph_texts(self, call: Callable[[], Any], form: GraphForm) -> dict[str, str]:
        if self._program is None or form not in self._program.texts:
            do = "--dump-ir optimized on xla or iree, stablehlo on xla"
            raise Unsupported(f"backend {self.name} writes no programs of the form {form}", do=do)
        return dict(self._program.texts[form]())

    def beside(self, task: Task, timer: Timer, seconds: float, settings: Settings) -> tuple[dict[str, Figure], dict[str, Any]]:
        """Return the times of the phases before the first call, the code size, and memory as the runtime and the kernel count it."""
        program = self._program
        if program is None:
            return {}, {"host_memory": host_memory()}
        figures = {f"{name}_time": Figure(spent, "s", "lower", n=1) for name, spent in program.seconds.items()}
        if program.code is not None:
            figures["code_size"] = Figure(float(program.code), "B", "lower", n=1)
        held = dict(program.held())
        figures |= {name: Figure(float(value), "B", "lower", n=1) for name, value in held.items()}
        counted = {"code_size_is": program.code_words} if program.code is not None else {}
        return figures, {"host_memory": host_memory(), "program": {**program.facts, **counted}}


@contextlib.contextmanager
def heard() -> Iterator[Callable[[], str]]:
    """Capture standard error at the level of file descriptors, where compilers report what is wrong, and pass it on at the end."""
    with tempfile.TemporaryFile() as file:
        kept = os.dup(2)
        os.dup2(file.fileno(), 2)

        def text() -> str:
            file.seek(0)
            return file.read(1 << 20).decode("utf-8", "replace")

        try:
            yield text
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            with contextlib.suppress(OSError):
                os.write(2, text().encode())


def is_cut(words: str) -> bool:
    """Whether the error text of an MLIR bytecode reader means that the file ended before the program did."""
    return bool(re.search(r"attempting to (?:parse|skip) .* when only \d+ remain|unexpected end of (?:file|bytecode)", words))


def first_error(text: str) -> str:
    """Return the line of a compiler's output that says what is wrong, without the source location that it begins with."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = next(
        (line for line in lines if re.search(r"\berror\b|\bError\b|not found|failed", line)), lines[0] if lines else "it gave no reason"
    )
    return re.sub(r"^/\S+?:\d+:\d+: ", "", told)[:MOST_WORDS]
