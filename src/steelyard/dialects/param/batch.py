"""PARAM's batches: inputs of one operator, written to a file and run once more under ncu or nsys, and their output lines.

A tool starts `<batch command> -f FILE`, where FILE is plain JSON in a private folder; the original's `-s NAME` (shared
memory) is not offered.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from steelyard.dialects.param.flags import BATCH_MODULE, Options
from steelyard.dialects.param.lines import Line, place, status
from steelyard.engine.place import Place
from steelyard.engine.profilers import PassKernel, Profiled, Profiler, kernels_by_case, profile, totals
from steelyard.errors import UsageError
from steelyard.files import read_text
from steelyard.measuring.marks import PARTS

if TYPE_CHECKING:
    from steelyard.dialects.param.expand import Config

RANGES = "param"
SUFFIXES = {"ncu": "ncu.log", "nsys": "nsys.nsys-rep"}
RUNNABLE = ("ok", "skipped", "not_applicable")
STARTING, PER_INPUT = 300.0, 120.0


@dataclass(frozen=True)
class Tool:
    """One of the two profilers, with the settings from PARAM's flags."""

    profiler: Profiler
    warmup: int
    iteration: int


def tools(options: Options) -> list[Tool]:
    """The requested profilers."""
    found = []
    for name in SUFFIXES:
        program, file, warmup, iteration = (getattr(options, f"{name}_{word}") for word in ("bin", "args_file", "warmup", "iteration"))
        if getattr(options, name):
            found.append(Tool(Profiler(name, program or name, None if file is None else _words(file), RANGES), warmup, iteration))
    return found


def _words(file: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(read_text(Path(file)), comments=True))
    except ValueError as error:
        raise UsageError("cannot read a file of options", why=str(error), do="write them as on a command line", where=file) from None


def check(options: Options) -> None:
    """Raise an error, before anything runs, if a tool, its options or the command it starts is unusable."""
    for tool in tools(options):
        flag = f"--{tool.profiler.name}"
        tool.profiler.check(f"name the program with {flag}-bin FILE, add its folder to PATH")
        if tool.iteration < 1:
            raise UsageError(f"{flag}-iteration is {tool.iteration}", why="there would be nothing to profile", do="use 1 or more")
    if options.batches and shutil.which(program := _batch_command(options)[0]) is None:
        raise UsageError(f"there is no program {program!r}", do="name an installed one with --batch-cmd")


def _batch_command(options: Options) -> list[str]:
    if options.batch_cmd is None:
        return [sys.executable, "-m", BATCH_MODULE]
    try:
        words = shlex.split(options.batch_cmd)
    except ValueError as error:
        raise UsageError(f"--batch-cmd cannot be read: {error}", do="close its quotes") from None
    if not words:
        raise UsageError("--batch-cmd is empty", do="name a command, or leave it out")
    return words


Item = tuple["Config", Line]
"""A config and the record of its plain run."""


def batch_file(batch: Sequence[Item], tool: Tool, options: Options, device: str) -> Line:
    """The input file of the started command, in the original's form: one operator, one build, inputs with their ids."""
    first = batch[0][0]
    inputs = [{**config.input, "id": _split(config)[1]} for config, _ in batch]
    return {
        "op_name": first.op,
        "config_build_id": _split(first)[0],
        "op_info": {
            "build_iterator": None, "input_iterator": None,
            "build_data_generator": first.generators[0], "input_data_generator": first.generators[1],
            "config": [{"build": first.build, "input": inputs}],
        },
        "run_options": {
            "device": device, "pass_type": "backward" if options.backward else "forward",
            "warmup": tool.warmup, "iteration": tool.iteration, "op_exec_mode": "discrete",
            "cuda_l2_cache": options.cuda_l2_cache == "on", "pt2_model": options.pt2_model, "cuda_graph": options.cuda_graph,
        },
    }  # fmt: skip


def _split(config: Config) -> tuple[str, str]:
    """`0|0_1` and `2` of `0|0_1|2`."""
    build, _, input = config.id.rpartition("|")
    return build, input


class Queue:
    """Configs that wait for their run under a tool.

    The tool uses the device of the run unless another is named, so nothing may be measured there during `flush`.
    """

    def __init__(self, options: Options, *, entries: Sequence[Sequence[str]] = (), echo: Callable[[str], None] = lambda line: None) -> None:
        """`entries` are those of the worker's job; `echo` gets every line that a tool and its command print."""
        self._options, self._echo = options, echo
        self._tools, self._command = tools(options), _batch_command(options)
        self._loading = {"files": [str(Path(name).resolve()) for name in options.files], "entries": list(entries)}
        self._waiting: list[Item] = []

    def add(self, config: Config, record: Line) -> None:
        """Add a config to its batch; one that failed in the plain run is left out."""
        if self._tools and status(record) in RUNNABLE:
            self._waiting.append((config, record))

    def due(self, config: Config) -> bool:
        """Whether to flush the waiting configs before adding this one: the batch is full, or its operator or build differs."""
        last = self._waiting[-1][0] if self._waiting else config
        return len(self._waiting) >= self._options.run_batch_size or (config.op, _split(config)[0]) != (last.op, _split(last)[0])

    def flush(self) -> Iterator[Line]:
        """Run the waiting batch, and yield a line of the output file for each tool.

        ncu's counters are written into the added records (`record["steelyard"]["ncu"]`) and into the line. A batch that
        fails has `"steelyard": {"status": "failed", "error": …}` in its line and does not affect other batches.
        """
        waiting, self._waiting = self._waiting, []
        for tool in self._tools if waiting else ():
            yield self._run(tool, waiting)

    def _run(self, tool: Tool, batch: Sequence[Item]) -> Line:
        name, options, first = tool.profiler.name, self._options, batch[0][0]
        file = _unused(options, SUFFIXES[name])
        config = batch_file(batch, tool, options, "cuda" if options.on_cuda else options.device)
        ours = {**self._loading, "seed": options.seed if first.seed is None else first.seed, "threads": options.threads}
        with tempfile.TemporaryDirectory(prefix="steelyard-", ignore_cleanup_errors=True) as folder:
            (Path(folder) / "batch.json").write_text(json.dumps({**config, "steelyard": ours}), encoding="utf-8")
            done = self._profile(tool.profiler, file, Path(folder), len(batch))
        for line in done.said.splitlines():
            self._echo(line)
        found: Line = {"status": "failed", "error": done.trouble} if done.trouble else {"status": "ok"}
        if name == "ncu":
            found |= _counters(file, batch, tool.iteration, done.trouble)
        return {
            f"{name}_file": str(file), f"{name}_cmd_str": shlex.join(done.argv), "config": config,
            "start_run_id": first.id, "end_run_id": batch[-1][0].id, "steelyard": found,
        }  # fmt: skip

    def _profile(self, profiler: Profiler, file: Path, folder: Path, inputs: int) -> Profiled:
        options = self._options
        program = [*self._command, "-f", str(folder / "batch.json"), *(["-v"] if options.log_level.upper() == "DEBUG" else [])]
        place = Place(threads=options.threads, device_index=visible_device(options, os.environ), programs=bool(options.batch_cmd))
        return profile(profiler, program, file, place.environment(""), folder, STARTING + inputs * (options.timeout or PER_INPUT))


def _unused(options: Options, suffix: str) -> Path:
    """Return a file name that no batch of the same second has."""
    stem = place(options, os.getpid(), int(datetime.now().timestamp())).stem
    names = (Path(f"{stem}{f'_{number}' if number else ''}_{suffix}") for number in range(1_000_000))
    return next(name for name in names if not name.exists())


def visible_device(options: Options, environment: Mapping[str, str]) -> str:
    """Return the GPU for the tool's program: the one named for batches, else the run's, by its name outside this process."""
    if options.batch_cuda_device is not None:
        return str(options.batch_cuda_device)
    index = int(options.device.partition(":")[2] or 0)
    seen = [name.strip() for name in environment.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    return seen[index] if index < len(seen) else str(index)


def _counters(log: Path, batch: Sequence[Item], iterations: int, trouble: str) -> Line:
    """Return ncu's counters by config id, and add them to the records; kernels that belong to no config are only counted."""
    found, strays = kernels_by_case(log, RANGES, len(batch))
    counted: Line = {}
    for (config, record), kernels in zip(batch, found, strict=True):
        if kernels or not trouble:
            counted[config.id] = record.setdefault("steelyard", {})["ncu"] = summary(kernels, iterations)
    return {"ncu": counted} | ({"unmatched_kernels": strays} if strays else {})


def summary(kernels: Sequence[PassKernel], iterations: int) -> Line:
    """Return the kernels in their order, and for each pass the totals of one call."""
    found = {part: totals([kernel for its, kernel in kernels if its == part], iterations) for part in PARTS}
    return {
        "iterations": iterations,
        "kernels": [{"pass": part, **asdict(kernel)} for part, kernel in kernels],
        "totals": {part: total for part, total in found.items() if total},
    }
