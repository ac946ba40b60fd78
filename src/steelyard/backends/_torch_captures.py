"""Execution traces as files: where each rank writes its trace, which files belong to it, and which training steps it covers."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from steelyard.backends._torch_traces import StepLabels, profiler, recording
from steelyard.errors import UsageError
from steelyard.machine import facts as machine
from steelyard.model.protocol import Traces
from steelyard.traces.nodes import STEP

RANK, RANKS = "RANK", "WORLD_SIZE"


@contextmanager
def capture(
    path: str | Path, *, profile: bool = False, resources: bool = True, notes: Mapping[str, Any] | None = None
) -> Iterator[StepLabels]:
    """Record every operator of PyTorch that runs inside; call `step()` on the result where one step ends and the next begins.

    `path` is a .json or .json.gz file, or a folder, in which each rank of a distributed job writes `rank-N.json`. With `profile` a
    profiler's trace is written beside it (`NAME.profile.json`), which `steelyard trace link` merges into it; its times include the cost of
    recording. With `resources` Triton kernels and integer tensors are kept in `NAME_resources`. `NAME.environment.json` describes the run.
    """
    target = place(Path(path))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    with recording(str(target), str(beside(target, "profile")) if profile else "", device, resources=resources) as labels:
        yield labels
    note(target, {"steps": labels.count, "profile": profile, **(notes or {})})


def place(path: Path) -> Path:
    """Return the file that this rank writes, and create its folder."""
    rank, ranks = _rank()
    named = path.name.endswith((".json", ".json.gz"))
    if named and ranks > 1:
        raise UsageError(f"{path} is one file, and {ranks} ranks write one each", do="name a folder")
    target = path if named else path / f"rank-{rank}.json"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot write to {str(target.parent)!r}", why=error.strerror or str(error)) from None
    return target


def beside(trace: Path, what: str) -> Path:
    """Return the path of a file that belongs to a trace: `step.profile.json` for `step.json`."""
    return trace.with_name(f"{trace.name.removesuffix('.gz').removesuffix('.json')}.{what}.json")


def note(trace: Path, facts: Mapping[str, Any]) -> None:
    """Write down where and how a trace was recorded."""
    rank, ranks = _rank()
    known = {
        "trace": trace.name, "recorded": datetime.now(UTC).isoformat(timespec="seconds"), "command": sys.argv[:50], "rank": rank,
        "ranks": ranks, "threads": torch.get_num_threads(), **facts, "machine": machine.collect(Path.cwd()),
    }  # fmt: skip
    beside(trace, "environment").write_text(json.dumps(known, indent=1, default=str) + "\n", encoding="utf-8")


def _rank() -> tuple[int, int]:
    """Return this process's rank and the number of ranks, from PyTorch or from the launcher's variables."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    words = [os.environ.get(name, usual) for name, usual in ((RANK, "0"), (RANKS, "1"))]
    return (int(words[0]), int(words[1])) if all(word.isdecimal() and len(word) < 7 for word in words) else (0, 1)


@contextmanager
def profiled(path: Path, device: str) -> Iterator[None]:
    """Write a profiler's trace of what runs inside, as one step."""
    with profiler(Traces(""), device) as seen, torch.autograd.profiler.record_function(f"{STEP}0"):
        yield
    seen.export_chrome_trace(str(path))


@contextmanager
def training_steps(recorded: Callable[[], AbstractContextManager[StepLabels]], first: int, end: int, count: list[int]) -> Iterator[None]:
    """Record while the number of optimizer calls, which `count[0]` holds, is at least `first` and less than `end`."""
    stack, labels = ExitStack(), list[StepLabels]()

    def begin() -> None:
        if count[0] == first and not labels:
            labels.append(stack.enter_context(recorded()))
            labels[0].step()

    def stepped(*_: Any) -> None:
        count[0] += 1
        if labels and count[0] < end:
            labels[0].step()
        elif count[0] == end:
            stack.close()
        begin()

    hook = register_optimizer_step_post_hook(stepped)
    try:
        begin()
        yield
    finally:
        hook.remove()
        stack.close()
