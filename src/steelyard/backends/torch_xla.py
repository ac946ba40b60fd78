"""PyTorch/XLA: lazy tensors, and graphs that dynamo hands to XLA, on the devices that PJRT knows.

It runs workloads' torch implementations. A call ends only when its graph has been traced, run and waited for, so its time means
the same as for eager torch on a CPU; how much of it is tracing is a separate figure.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch_xla
import torch_xla.core.xla_model as xla_model
import torch_xla.debug.metrics as xla_metrics
import torch_xla.runtime as xla_runtime

from steelyard import clocks
from steelyard.backends._torch_fixed import TorchStopwatch
from steelyard.backends.torch import TorchElsewhere
from steelyard.errors import SteelyardError, Unsupported
from steelyard.measuring.clock import Loop, Timer, WaitingTimer
from steelyard.measuring.fixed import Range, Stopwatch
from steelyard.measuring.sample import quiet_collector
from steelyard.measuring.stats import median_interval, time_figure
from steelyard.model.experiment import GraphForm, Settings
from steelyard.model.record import Figure
from steelyard.model.task import Task

ABOUT = {
    "package": "torch_xla", "stack": "torch-xla", "requires": ["numpy", "torch", "torch_xla"], "pins": "torch-xla.txt",
    "why": "torch_xla needs its own torch", "flags": "XLA_FLAGS", "devices": {"cpu": "CPU", "cuda": "CUDA", "tpu": "TPU"},
    "variables": {
        "XLA_FLAGS": "", "PJRT_NPROC": "{threads}", "NPROC": "{threads}", "XRT_TPU_CONFIG": "", "XLA_SAVE_TENSORS_FILE": "",
        "PJRT_DEVICE": "{device}",
    },
    "graphs": {"XLA_SAVE_TENSORS_FILE": "{file}", "XLA_SAVE_TENSORS_FMT": "{form}"},
}  # fmt: skip
KINDS = cast(dict[str, str], ABOUT["devices"])
"""PJRT's names for our kinds of devices."""
FALLBACK = "aten::"
SPLIT_CALLS, FEWEST_SPLIT = 32, 3
SPLIT_SHARE = 0.25
MOST_SETTLING = 6
GRAPH = re.compile(r"^## BEGIN_GRAPH\n(.*?)^## END_GRAPH", re.DOTALL | re.MULTILINE)


def settle() -> None:
    """Run what was traced so far, and wait for it and for all that dynamo's graphs handed to the device."""
    torch_xla.sync()
    xla_model.wait_device_ops()


@dataclass(frozen=True)
class Settled:
    """A function whose call ends when its work is done, not when it is traced."""

    traced: Callable[..., Any]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        made = self.traced(*args, **kwargs)
        settle()
        return made


@dataclass(frozen=True)
class Counts:
    """The runtime's counts so far: graphs compiled and run, and the seconds spent in both."""

    compiles: int = 0
    compile_time: float = 0.0
    executions: int = 0
    execute_time: float = 0.0

    @classmethod
    def read(cls) -> Counts:
        """Return the present counts."""
        return cls(*_metric("CompileTime"), *_metric("ExecuteTime"))

    def since(self, earlier: Counts) -> Counts:
        """Return what was counted since an earlier reading."""
        return Counts(*(mine - theirs for mine, theirs in zip(asdict(self).values(), asdict(earlier).values(), strict=True)))

    def plus(self, other: Counts) -> Counts:
        """Return the sum of two counts."""
        return Counts(*(mine + theirs for mine, theirs in zip(asdict(self).values(), asdict(other).values(), strict=True)))

    def plain(self) -> dict[str, float]:
        """Return the counts for a record, with seconds rounded to nanoseconds."""
        return {name: round(value, 9) for name, value in asdict(self).items()}


def _metric(name: str) -> tuple[int, float]:
    found = xla_metrics.metric_data(name)
    return (int(found[0]), float(found[1]) * 1e-9) if found else (0, 0.0)


def fallbacks() -> dict[str, int]:
    """Return how often each operator that XLA does not have has run on the host instead."""
    return {name: int(xla_metrics.counter_value(name) or 0) for name in xla_metrics.counter_names() if name.startswith(FALLBACK)}


def _group(counts: Counts, before: Mapping[str, int]) -> dict[str, Any]:
    """Return the counts of a group of calls, with the operators that fell back to the host."""
    fell = {name: count - before.get(name, 0) for name, count in fallbacks().items() if count > before.get(name, 0)}
    return {**counts.plain(), "fallbacks": fell}


class SettledTimer(WaitingTimer):
    """The host's clock for work that the runtime's threads do."""

    def __init__(self, threads: int = 1) -> None:
        super().__init__(threads)
        self.begun: Counts | None = None
        """The counts when the present block began."""
        self.blocks = Counts()

    def bind(self, task: Task) -> Loop:
        """Return a loop, called until nothing more is compiled, because a second step may need another graph than the first."""
        loop = super().bind(task)
        for _ in range(MOST_SETTLING if isinstance(task.fn, Settled) else 0):
            before = Counts.read().compiles
            loop(1)
            if Counts.read().compiles == before:
                break
        return loop

    def disturbances(self) -> int:
        """Return the number of graphs compiled so far: a block in which XLA compiled does not count.

        Called right before and after every block, so the counts of the blocks alone are summed here: between two blocks the outputs
        are checked once, which may compile a graph of its own.
        """
        now = Counts.read()
        if self.begun is None:
            self.begun = now
        else:
            self.blocks, self.begun = self.blocks.plus(now.since(self.begun)), None
        return now.compiles


class XlaStopwatch(TorchStopwatch):
    """A stopwatch for calls that only trace: handing over starts what was traced, and only waiting ends it."""

    asynchronous = True

    def before(self) -> None:
        settle()

    def timed(self, fn: Callable[..., Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> tuple[int, Any]:
        start = clocks.perf_counter_ns()
        out = fn(*args, **(kwargs or {}))
        settle()
        return clocks.perf_counter_ns() - start, out

    def sync(self) -> None:
        settle()

    def hand_over(self) -> None:
        torch_xla.sync()

    def count_anew(self) -> None:
        super().count_anew()
        self._counts, self._fell = Counts.read(), fallbacks()

    def counts(self) -> dict[str, Any]:
        return {**super().counts(), "xla": _group(Counts.read().since(self._counts), self._fell)}

    def report(self) -> str:
        return str(xla_metrics.metrics_report())


class TorchXla(TorchElsewhere):
    """PyTorch/XLA on a CPU or a TPU; eager means lazy tensors here, the variant openxla means dynamo."""

    name = "torch_xla"
    install = "steelyard env create torch-xla"
    draws_exactly = False

    def open(self) -> None:
        self.take_threads()
        self.where = _device(self.device)
        self._groups: dict[str, Any] = {}

    def timer(self) -> Timer:
        return SettledTimer(self.threads)

    def stopwatch(self, *, flush: Range | None = None) -> Stopwatch:
        if flush is not None:
            raise Unsupported("backend torch_xla has no way to flush a cache")
        return XlaStopwatch()

    def unwaited(self, task: Task) -> Task:
        fn, prepare = (item.traced if isinstance(item, Settled) else item for item in (task.fn, task.prepare))
        return replace(task, fn=fn, prepare=prepare)

    def sync(self) -> None:
        settle()

    def sow(self) -> None:
        super().sow()
        torch_xla.manual_seed(self.seed)

    def module(self, make: Callable[[], Any], dtype: str) -> Any:
        made = super().module(make, dtype)
        settle()
        return made

    def in_mode(self, task: Task, mode: str) -> Task:
        settle()
        before, fell = Counts.read(), fallbacks()
        made = super().in_mode(task, mode)
        if made.fn is None:
            return made
        earlier = made.inspect

        def inspect() -> dict[str, Any]:
            self._groups.setdefault("first_call", _group(Counts.read().since(before), fell))
            return {**(earlier() if earlier else {}), "xla": dict(self._groups)}

        phases = {name: _settled(part) for name, part in made.phases.items()}
        return replace(_settled(made), phases=phases, inspect=inspect)

    def beside(self, task: Task, timer: Timer, seconds: float, settings: Settings) -> tuple[dict[str, Figure], dict[str, Any]]:
        """Return the time until the host waits for the device, the time after that, and the runtime's counts, for further calls."""
        if not isinstance(task.fn, Settled) or not isinstance(timer, SettledTimer):
            return {}, {}
        timed = timer.blocks
        if timed.compiles:
            raise SteelyardError(
                f"XLA compiled {timed.compiles} graph{'s' * (timed.compiles != 1)} while the case was timed", why="the figures are void"
            )
        split(task, FEWEST_SPLIT)
        before, fell = Counts.read(), fallbacks()
        calls = max(FEWEST_SPLIT, min(SPLIT_CALLS, int(SPLIT_SHARE * settings.budget / max(seconds, 1e-9))))
        traced, executed = split(task, calls)
        self._groups |= {"timed": timed.plain(), "split": {"calls": calls, **_group(Counts.read().since(before), fell)}}
        return {"trace_time": _spread(traced), "execute_time": _spread(executed)}, {"xla": dict(self._groups)}

    def graph_texts(self, call: Callable[[], Any], form: GraphForm) -> dict[str, str]:
        if form == "optimized":
            raise Unsupported("torch_xla shows what it passes to XLA, not what XLA compiles from it", do="--dump-ir hlo")
        saved = Path(f"{os.environ.get('XLA_SAVE_TENSORS_FILE', '')}.{xla_runtime.global_ordinal()}")
        settle()
        start = saved.stat().st_size if saved.is_file() else 0
        call()
        settle()
        if not saved.is_file():
            raise Unsupported("torch_xla wrote no graphs", why="XLA_SAVE_TENSORS_FILE was not set when the process started")
        with saved.open("rb") as file:
            file.seek(start)
            text = file.read().decode(errors="replace")
        each = dict.fromkeys(found.strip() + "\n" for found in GRAPH.findall(text))
        return {str(number): found for number, found in enumerate(each, 1)}

    @contextmanager
    def runtime_profile(self, folder: Path) -> Iterator[None]:
        profiler = import_module("torch_xla.debug.profiler")
        if not hasattr(profiler, "start_trace"):
            raise Unsupported("this torch_xla cannot write a profile from within")
        profiler.start_trace(str(folder))
        try:
            yield
        finally:
            profiler.stop_trace()

    @classmethod
    def import_compiler(cls) -> None:
        for name in ("torch._dynamo", "torch_xla._dynamo.dynamo_bridge"):
            import_module(name)

    @classmethod
    def reset(cls) -> None:
        super().reset()
        if torch_xla._XLAC._xla_runtime_is_initialized():
            settle()
            xla_metrics.clear_all()

    def relocate(self, task: Task, rng: random.Random, *, whole: bool = True) -> Task:
        moved = super().relocate(task, rng, whole=whole)
        settle()
        return moved

    def versions(self) -> dict[str, str]:
        return {**super().versions(), "torch_xla": torch_xla.__version__, "pjrt": str(xla_runtime.device_type())}


def _settled(task: Task) -> Task:
    """Return a task whose calls wait for their work, and whose preparation leaves nothing for the call to run."""
    assert task.fn is not None
    return replace(task, fn=Settled(task.fn), prepare=None if task.prepare is None else Settled(task.prepare))


def split(task: Task, calls: int) -> tuple[list[float], list[float]]:
    """Return the seconds of each call until its function returned, and from then until its work was done."""
    traced, executed = [], []
    fn = task.fn
    assert isinstance(fn, Settled)
    with quiet_collector(), task.scope() if task.scope else nullcontext():
        for _ in range(calls):
            if task.prepare is not None:
                task.prepare()
            start = clocks.perf_counter()
            made = fn.traced(*task.args, **task.kwargs)
            middle = clocks.perf_counter()
            settle()
            traced.append(middle - start)
            executed.append(clocks.perf_counter() - middle)
            del made
    return traced, executed


def _spread(seconds: list[float]) -> Figure:
    return time_figure(median_interval(np.asarray(seconds)))


def _device(kind: str) -> Any:
    """Return the XLA device of a kind; a process has one PJRT client, which reads PJRT_DEVICE once."""
    wanted = KINDS.get(kind)
    if wanted is None:
        raise Unsupported(f"PyTorch/XLA has no device kind {kind!r}", do=f"it has {', '.join(KINDS)}")
    if os.environ.setdefault("PJRT_DEVICE", wanted) != wanted:
        raise Unsupported(
            f"PJRT_DEVICE is {os.environ['PJRT_DEVICE']}, and the case is for {kind}", do="unset PJRT_DEVICE: Steelyard sets it"
        )
    try:
        return torch_xla.device()
    except (RuntimeError, OSError) as error:
        reason = str(error).strip().split(". ")[0]
        raise Unsupported(f"torch_xla {torch_xla.__version__} has no {kind} device here", why=reason) from error


BACKEND = TorchXla
