"""The stand of a candidate: a process that gets inputs as bytes, calls the candidate, and returns the bytes of its outputs.

Nothing in this process decides the ruling. It has no expected answer and no seed, and its clock is not used: the judge times every step
from outside, checks the bytes in another process, and charges time or CPU that is spent around the calls. The reference runs in a
process of the same kind, so that both have the same harness.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import mmap
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
from steelyard.engine.process import close_to_others, recycle_memory
from steelyard.engine.referee import layouts
from steelyard.engine.referee.adoption import keep_for_good
from steelyard.engine.referee.parcel import SharedMemory, Unreadable, arrays, pack, prepare_tensors, unpack
from steelyard.engine.referee.posed import Provisions
from steelyard.errors import SteelyardError, Unsupported, out_of_memory, spoken
from steelyard.model.judging import Contract, Problem, Submission

LARGEST_FILE = 1 << 30
"""Most bytes that a candidate may write into one file."""
PRIVATE = {
    "HOME": "home", "TMPDIR": "tmp", "XDG_CACHE_HOME": "cache", "TRITON_CACHE_DIR": "triton", "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TORCH_EXTENSIONS_DIR": "extensions",
}  # fmt: skip
"""Private folders of a candidate by their variable, so that it finds nothing there from another one."""
NOISES, MOST_NOISES = 2, 32
ONCE = -1
"""Used instead of an output's number: noise that is drawn anew each time."""
LITTER = 8
"""Amount of free memory to fill with noise, in answers, when testing whether a candidate leaves part of its answer unwritten."""

Say = Callable[[Mapping[str, Any]], None]
Hear = Callable[[float], Step | None]


def perform(words: Mapping[str, Any], say: Say, hear: Hear) -> None:
    """Load a candidate, or the reference, and do the judge's steps with it until there are no more."""
    confine(words["folder"])
    if words["base"]:
        close_to_others()
    tensors = prepare_tensors() if words["torch"] else None
    memory = (_opened(words["inputs"], words["locks"]), SharedMemory.open(words["outputs"]))
    with _as_it_was(words) as changed:
        stand = Stand(lambda *args: None, words["device"], Contract(**tuples(words["contract"])), tensors, *memory, changed=changed)
        stand.fills = [tuple(pair) for pair in words["scale"]]
        stand.answer, stand.given = words["answer"], not words["base"]
        stand.open(words["others"], words["locks_others"])
        stand.ready = memory[1].touch(words["ready"])
        said = told_failure(lambda: stand.load(words))
        gc.collect()
        warm_heap(words["heap"])
        say(said)
        while (step := hear(words["awake"])) is not None:
            token = step.words["token"]
            say({"token": token, **told_failure(functools.partial(stand.do, step.words))})


def told_failure(work: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the result of some work, or how it failed."""
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
    """Give this process private folders for everything that libraries write, limit its files, and keep its children in its tree."""
    keep_for_good()
    for name, place in PRIVATE.items():
        Path(folder, place).mkdir(exist_ok=True)
        os.environ[name] = str(Path(folder, place))
    os.chdir(folder)
    tempfile.tempdir = None
    resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST_FILE, LARGEST_FILE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def tuples(plain: Mapping[str, Any]) -> dict[str, Any]:
    """Return a dataclass's fields from JSON, with lists as tuples."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in plain.items()}


@contextlib.contextmanager
def _as_it_was(words: Mapping[str, Any]) -> Iterator[Callable[[], list[str]]]:
    """Restore the settings of the process at the end; yield a function that lists the changed ones."""
    if not words["torch"]:
        yield list
        return
    prepare_tensors().use_threads(words["threads"])
    with registry.load_backend("torch").wholly_as_it_was() as changed:
        yield changed


@dataclass
class Stand:
    """A function and the inputs that were landed for its next calls; all outputs of the last calls are kept."""

    fn: Callable[..., Any]
    device: str
    contract: Contract
    tensors: Any
    inputs: SharedMemory
    outputs: SharedMemory
    landed: list[tuple[Any, ...]] = field(default_factory=list)
    held: list[Any] = field(default_factory=list)
    ready: int = 0
    """Bytes of the outputs' memory that were touched in advance: if more is written, it is mapped anew for the next outputs, because
    writing to memory takes longer the first time."""
    others: dict[str, SharedMemory] = field(default_factory=dict)
    lasting: dict[int, Any] = field(default_factory=dict)
    fills: list[tuple[float, float]] = field(default_factory=list)
    answer: Mapping[str, Any] | None = None
    """The description of an answer, for candidates that write theirs into given arrays."""
    given: bool = True
    """Whether the function gets those arrays. The reference does not, but they are made for it too, so that both arms have the same memory
    layout."""
    spare: list[Any] = field(default_factory=list)
    noises: dict[tuple[Any, ...], list[Any]] = field(default_factory=dict)
    changed: Callable[[], list[str]] = list
    rng: random.Random = field(default_factory=random.Random)

    def load(self, words: Mapping[str, Any]) -> Mapping[str, Any]:
        """Load the candidate's function, or the reference's from the problem's files."""
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
        return {"facts": dict(getattr(self.fn, "facts", {}))}

    def do(self, words: Mapping[str, Any]) -> Mapping[str, Any]:
        """Do one step, by its name."""
        if words["do"] == "land":
            return self.land(words["slots"])
        if words["do"] == "show":
            return self.show(words["which"], words["inputs"])
        if words["do"] == "open":
            self.open(words["files"], words["locks"])
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
        """Make new arrays for the next calls; earlier outputs are overwritten before their memory is freed."""
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

    def open(self, files: Sequence[str], locks: bool) -> None:
        """Open the memory of processes that draw inputs, and lock it for a device if that pays off."""
        for file in files:
            self.others[file] = _opened(file, locks)

    def _memory(self, file: str) -> SharedMemory:
        """Return the memory of some inputs: the examiner's, or that of another process that draws inputs."""
        return self.others[file] if file else self.inputs

    def _empty(self, spec: Mapping[str, Any]) -> Any:
        if "items" in spec:
            return tuple(self._empty(item) for item in spec["items"])
        if spec["library"] == "numpy":
            return np.empty(spec["shape"], np.dtype(spec["dtype"]))
        tensors = self._tensors()
        return tensors.functions["empty"](spec["shape"], dtype=tensors.names[spec["dtype"]], device=self.device)

    def call(self) -> Mapping[str, Any]:
        """Call the function once with every landed set of inputs, then wait for the device."""
        fn, keep = self.fn, self.held.append
        for args in self.landed:
            keep(fn(*args))
        self.sync()
        return {}

    def wait(self) -> Mapping[str, Any]:
        """Do what a block without calls does, to time it; inputs and outputs stay."""
        self.sync()
        return {}

    def show(self, which: Sequence[int], inputs: bool) -> Mapping[str, Any]:
        """Write the outputs of some calls as bytes; with `inputs`, also their inputs as they are now."""
        if self.outputs.used > self.ready:
            self.outputs.map_again()
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
        """Overwrite the inputs of the last calls: an output that shares their memory changes with them."""
        for args in self.landed:
            for number, item in enumerate(args):
                if number not in self.contract.persistent:
                    self._spoil_tree(item, outputs=False)
        self.sync()
        return {}

    def litter(self) -> Mapping[str, Any]:
        """Fill the free memory that the next answers will use with new noise, before each call of a candidate that is known to be wrong.

        From then on the process keeps all memory that it frees. Otherwise a large array would get new pages from the system, which are
        zero every time, and an answer that leaves them unwritten would look the same every time.
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
        """Overwrite arrays with random data of an answer's scale, which cannot be distinguished from an answer."""
        for number, leaf in enumerate(_leaves(value)):
            with contextlib.suppress(Exception):
                self._spoil(leaf, self.fills[number] if outputs and number < len(self.fills) else (0.0, 1.0), number if outputs else ONCE)

    def _spoil(self, leaf: Any, scale: tuple[float, float], place: int) -> None:
        if isinstance(leaf, np.ndarray):
            np.copyto(leaf, self.rng.choice(self._noise(place, leaf, scale)))
        elif self.tensors is not None and isinstance(leaf, self.tensors.tensor_type):
            self.tensors.overwrite(leaf, self.rng.choice(self._noise(place, leaf, scale)))

    def _noise(self, place: int, leaf: Any, scale: tuple[float, float]) -> list[Any]:
        """Return two arrays of noise; those for an output are made once for each shape, because filling must not take long."""
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
        """Return the settings of the process that have changed since before the candidate was loaded."""
        return {"changed": [str(name) for name in self.changed()]}

    def kernels(self) -> Mapping[str, Any]:
        """Return the kernels or operators of one call, by a profiler, with how often each was launched.

        Called after all timing, because a profiler stays attached and slows later launches. Empty if profiling is not permitted.
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


def warm_heap(size: int) -> None:
    """Take memory from the system and free it again: the C library keeps it, and no call that is timed has to wait for new pages."""
    held = [np.empty(each, np.uint8) for each in (size // 2, size // 2)]
    for part in held:
        part[:: mmap.PAGESIZE] = 0


def _opened(file: str, locks: bool) -> SharedMemory:
    return SharedMemory.locked(file) if locks else SharedMemory.open(file)


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        for item in value.values():
            yield from _leaves(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _leaves(item)
    elif not isinstance(value, (str, int, float, bool, type(None))):
        yield value


def forget_persisting_cache() -> None:
    """Release lines that a kernel has made persist in the device's cache: they would make later calls faster than cold ones."""
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
