"""Where a candidate is called: a process that gets inputs as bytes, calls, and gives the bytes of its outputs.

Nothing in here affects the ruling. The process holds no expected answer, no seed and no clock that counts: the judge stamps every step from
outside, checks the bytes elsewhere, and charges whatever time or CPU is spent around the calls. The reference stands in a process of
the same kind, so that both have the same harness around them.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import os
import random
import resource
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from steelyard import registry
from steelyard.engine.messages import Step
from steelyard.engine.process import close_to_others
from steelyard.engine.referee import layouts
from steelyard.engine.referee.adoption import keep_for_good
from steelyard.engine.referee.parcel import SharedMemory, Unreadable, arrays, pack, prepare_tensors, unpack
from steelyard.engine.referee.posed import Provisions
from steelyard.errors import SteelyardError, Unsupported, out_of_memory, spoken
from steelyard.model.judging import Contract, Problem, Submission

LARGEST_FILE = 1 << 30
"""What a candidate may write into one file."""
PRIVATE = {
    "HOME": "home", "TMPDIR": "tmp", "XDG_CACHE_HOME": "cache", "TRITON_CACHE_DIR": "triton", "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TORCH_EXTENSIONS_DIR": "extensions",
}  # fmt: skip
"""Folders that a candidate has to itself, so that nothing is found there that another one left."""
NOISES, MOST_NOISES = 2, 32
ONCE = -1
"""In place of an output's number: noise that is drawn anew each time."""
LITTER = 8
"""Answers' worth of free memory that is overwritten before a candidate is asked whether it leaves some of it as it was."""
MOST_MAPPINGS, TRIM_THRESHOLD = -4, -1
"""Numbers that the C library's `mallopt` gives these settings."""

Say = Callable[[Mapping[str, Any]], None]
Hear = Callable[[], Step | None]


def perform(words: Mapping[str, Any], say: Say, hear: Hear) -> None:
    """Load a candidate, or the reference, and do the judge's steps with it until there are no more."""
    confine(words["folder"])
    if words["base"]:
        close_to_others()
    tensors = prepare_tensors() if words["torch"] else None
    memory = (SharedMemory.open(words["inputs"]), SharedMemory.open(words["outputs"]))
    with _as_it_was(words) as changed:
        stand = Stand(lambda *args: None, words["device"], Contract(**tuples(words["contract"])), tensors, *memory, changed=changed)
        stand.fills = [tuple(pair) for pair in words["scale"]]
        stand.answer, stand.given = words["answer"], not words["base"]
        said = told_failure(lambda: stand.load(words))
        say(said)
        while (step := hear()) is not None:
            token = step.words["token"]
            say({"token": token, **told_failure(functools.partial(stand.do, step.words))})


def told_failure(work: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
    """What came of something, or how it failed."""
    try:
        return work()
    except Unsupported as error:
        return {"status": "unsupported", "reason": str(error)}
    except SteelyardError as error:
        return {"status": "failed", "reason": str(error)}
    except (Exception, SystemExit) as error:
        status = "oom" if out_of_memory(error) else "failed"
        return {"status": status, "reason": spoken(error), "traceback": "".join(traceback.format_exception(error)[-6:])[-3000:]}


def confine(folder: str) -> None:
    """Folders of its own for everything that libraries write, no file without end, and no way out of the tree of its processes."""
    keep_for_good()
    for name, place in PRIVATE.items():
        Path(folder, place).mkdir(exist_ok=True)
        os.environ[name] = str(Path(folder, place))
    os.chdir(folder)
    tempfile.tempdir = None
    resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST_FILE, LARGEST_FILE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def tuples(plain: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a dataclass as JSON brought them, its lists as tuples."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in plain.items()}


@contextlib.contextmanager
def _as_it_was(words: Mapping[str, Any]) -> Iterator[Callable[[], list[str]]]:
    """Settings of the process as they were, with a function that tells which ones have been changed."""
    if not words["torch"]:
        yield list
        return
    prepare_tensors().use_threads(words["threads"])
    with registry.load_backend("torch").wholly_as_it_was() as changed:
        yield changed


@dataclass
class Stand:
    """A function that is called with what was landed; it keeps all outputs of the last calls."""

    fn: Callable[..., Any]
    device: str
    contract: Contract
    tensors: Any
    inputs: SharedMemory
    outputs: SharedMemory
    landed: list[tuple[Any, ...]] = field(default_factory=list)
    held: list[Any] = field(default_factory=list)
    others: dict[str, SharedMemory] = field(default_factory=dict)
    lasting: dict[int, Any] = field(default_factory=dict)
    fills: list[tuple[float, float]] = field(default_factory=list)
    answer: Mapping[str, Any] | None = None
    """How an answer is described, for candidates that write theirs into given arrays."""
    given: bool = True
    """Whether the function gets those arrays. The reference does not, but they are made for it too, so that both arms have the same memory
    layout."""
    spare: list[Any] = field(default_factory=list)
    noises: dict[tuple[Any, ...], list[Any]] = field(default_factory=dict)
    changed: Callable[[], list[str]] = list
    rng: random.Random = field(default_factory=random.Random)

    def load(self, words: Mapping[str, Any]) -> Mapping[str, Any]:
        """The candidate's function, or that of the reference, which has the problem's own files."""
        if words["base"]:
            problem = Problem(**{**words["problem"], "contract": self.contract})
            posed = layouts.named(problem.layout).pose(problem, self.device)
            self.fn = posed.reference
            return {"facts": {}}
        submission = Submission(**words["candidate"])
        given = words["provisions"]
        memory = SharedMemory.open(given["file"])
        init, weights = (unpack(given[name], memory, self.device) for name in ("init", "weights"))
        provisions = Provisions(tuple(init), weights, self.device, given["seed"])
        self.fn = layouts.named(submission.layout).seat(submission, provisions)
        self.sync()
        gc.collect()
        return {"facts": dict(getattr(self.fn, "facts", {}))}

    def do(self, words: Mapping[str, Any]) -> Mapping[str, Any]:
        """One step by its name."""
        if words["do"] == "land":
            return self.land(words["slots"])
        if words["do"] == "show":
            return self.show(words["which"], words["inputs"])
        if words["do"] == "open":
            for file in words["files"]:
                self._memory(file)
            return {}
        plain = {
            "call": self.call, "wait": self.wait, "spoil": self.spoil, "litter": self.litter, "state": self.state, "kernels": self.kernels,
        }  # fmt: skip
        return plain[words["do"]]()

    def sync(self) -> None:
        """Wait for all work of the device, whatever stream it is on."""
        if self.tensors is not None and self.device != "cpu":
            self.tensors.wait()

    def land(self, slots: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        """New arrays for the next calls; what was answered before is overwritten before its memory is given back."""
        for output in self.held:
            self._spoil_tree(output, outputs=True)
        self.held.clear()
        self.landed.clear()
        self.spare.clear()
        self.landed.extend(self._arguments(spec) for spec in slots)
        if self.device != "cpu":
            forget_persisting_cache()
        self.sync()
        return {}

    def _arguments(self, spec: Mapping[str, Any]) -> tuple[Any, ...]:
        made, memory = [], self._memory(spec.get("file", ""))
        for number, item in enumerate(spec["items"]):
            if number in self.contract.persistent:
                if number not in self.lasting:
                    self.lasting[number] = unpack(item, memory, self.device)
                made.append(self.lasting[number])
            else:
                made.append(unpack(item, memory, self.device))
        if self.contract.fills_outputs and self.answer is not None:
            empty = self._empty(self.answer)
            self._spoil_tree(empty, outputs=True)
            (made if self.given else self.spare).extend(empty if isinstance(empty, (tuple, list)) else [empty])
        return tuple(made)

    def _memory(self, file: str) -> SharedMemory:
        """Where inputs lie: in the examiner's memory, or in that of a process which draws beside it."""
        if not file:
            return self.inputs
        if file not in self.others:
            self.others[file] = SharedMemory.open(file)
        return self.others[file]

    def _empty(self, spec: Mapping[str, Any]) -> Any:
        if "items" in spec:
            return tuple(self._empty(item) for item in spec["items"])
        if spec["library"] == "numpy":
            return np.empty(spec["shape"], np.dtype(spec["dtype"]))
        tensors = self._tensors()
        return tensors.functions["empty"](spec["shape"], dtype=tensors.names[spec["dtype"]], device=self.device)

    def call(self) -> Mapping[str, Any]:
        """Every landed set of inputs once, then wait for the device."""
        fn, keep = self.fn, self.held.append
        for args in self.landed:
            keep(fn(*args))
        self.sync()
        return {}

    def wait(self) -> Mapping[str, Any]:
        """What a block without calls does, to time it; what was landed and answered stays."""
        self.sync()
        return {}

    def show(self, which: Sequence[int], inputs: bool) -> Mapping[str, Any]:
        """Outputs of some of the calls as bytes; with `inputs`, those as they are now, too."""
        self.outputs.used = 0
        return {
            "outputs": [self._packed(self._output(number)) for number in which],
            "inputs": [self._packed(self.landed[number]) for number in which] if inputs else [],
        }

    def _output(self, number: int) -> Any:
        if self.contract.fills_outputs and self.given and self.answer is not None:
            given = len(arrays(self.answer)) if "items" in self.answer else 1
            filled = self.landed[number][-given:]
            return filled if "items" in self.answer else filled[0]
        return self.held[number]

    def _packed(self, value: Any) -> Mapping[str, Any]:
        try:
            return pack(value, self.outputs)
        except Unreadable as error:
            return {"unreadable": str(error)}

    def spoil(self) -> Mapping[str, Any]:
        """Overwrite the inputs of the last calls: an output that shares their memory shows it."""
        for args in self.landed:
            for number, item in enumerate(args):
                if number not in self.contract.persistent:
                    self._spoil_tree(item, outputs=False)
        self.sync()
        return {}

    def litter(self) -> Mapping[str, Any]:
        """New noise where the next answers will lie, made before each call of a candidate that is known to be wrong.

        From then on the process keeps all memory that it frees. A large array would otherwise lie in pages new from the system, which
        hold zeros every time, and an answer that leaves them as they were would look the same every time.
        """
        recycle_memory()
        with contextlib.suppress(Exception):
            made = [[self._empty(spec) for spec in arrays(self.answer or {})] for _ in range(LITTER)]
            for each in made:
                for number, leaf in enumerate(each):
                    self._spoil(leaf, self.fills[number] if number < len(self.fills) else (0.0, 1.0), ONCE)
        self.sync()
        return {}

    def _spoil_tree(self, value: Any, *, outputs: bool) -> None:
        """Random data of an answer's own scale in place of what is there; nothing tells it from an answer."""
        for number, leaf in enumerate(_leaves(value)):
            with contextlib.suppress(Exception):
                self._spoil(leaf, self.fills[number] if outputs and number < len(self.fills) else (0.0, 1.0), number if outputs else ONCE)

    def _spoil(self, leaf: Any, scale: tuple[float, float], place: int) -> None:
        if isinstance(leaf, np.ndarray):
            np.copyto(leaf, self.rng.choice(self._noise(place, leaf, scale)))
        elif self.tensors is not None and isinstance(leaf, self.tensors.tensor_type):
            self.tensors.overwrite(leaf, self.rng.choice(self._noise(place, leaf, scale)))

    def _noise(self, place: int, leaf: Any, scale: tuple[float, float]) -> list[Any]:
        """Two arrays of noise: for an output made once for each of its shapes, since filling must not take long, else new."""
        kind = (place, tuple(leaf.shape), leaf.dtype)
        found = self.noises.get(kind)
        if found is None:
            draw = np.random.default_rng(int.from_bytes(os.urandom(8), "little"))
            made = [draw.standard_normal(tuple(leaf.shape)) * (scale[1] or 1.0) + scale[0] for _ in range(NOISES)]
            found = [item.astype(leaf.dtype) if isinstance(leaf, np.ndarray) else self._tensors().noise(leaf, item) for item in made]
            if place != ONCE:
                if len(self.noises) >= MOST_NOISES:
                    self.noises.clear()
                self.noises[kind] = found
        return found

    def _tensors(self) -> Any:
        if self.tensors is None:
            raise Unreadable("a tensor came from a process that has no torch")
        return self.tensors

    def state(self) -> Mapping[str, Any]:
        """Settings of the process that are not as they were before the candidate was loaded."""
        return {"changed": [str(name) for name in self.changed()]}

    def kernels(self) -> Mapping[str, Any]:
        """The kernels or operators of one call, by a profiler, with how often each was launched.

        It is asked when all is timed, because a profiler stays attached and slows later launches. Empty if profiling is not permitted.
        """
        if self.tensors is None or not self.landed:
            return {"kernels": {}}
        args = self.landed[0]

        def once() -> None:
            self.fn(*args)
            self.sync()

        try:
            return {"kernels": self.tensors.kernels(once, self.device)}
        except RuntimeError as error:
            return {"kernels": {}, "why": spoken(error)}


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        for item in value.values():
            yield from _leaves(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _leaves(item)
    elif not isinstance(value, (str, int, float, bool, type(None))):
        yield value


def recycle_memory() -> None:
    """Have the C library give out again what was freed, whatever its size, rather than return it to the system."""
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        library.mallopt(MOST_MAPPINGS, 0)
        library.mallopt(TRIM_THRESHOLD, 2**31 - 1)


def forget_persisting_cache() -> None:
    """Take back lines that a kernel has asked the device's cache to keep: they would make later calls faster than cold ones are."""
    library = _runtime()
    if library is not None:
        library.cudaCtxResetPersistingL2Cache()


def _runtime() -> Any:
    if not _RUNTIME:
        _RUNTIME.append(None)
        with contextlib.suppress(OSError, StopIteration, AttributeError):
            lines = Path("/proc/self/maps").read_text().splitlines()
            found = ctypes.CDLL(next(line.split()[-1] for line in lines if "libcudart" in line))
            _RUNTIME[0] = found if hasattr(found, "cudaCtxResetPersistingL2Cache") else None
    return _RUNTIME[0]


_RUNTIME: list[Any] = []
