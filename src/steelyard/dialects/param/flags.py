"""The options of `as param`: one table from which the command line is built, and the plain object that everything else reads."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from steelyard.dialects.options import Flag, PlainOptions, check_count
from steelyard.errors import UsageError, unknown

MODES = ("discrete", "continuous", "continuous_events")
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
MOST_CALLS, LARGEST_SEED = 100_000_000, 2**63 - 1
BATCH_MODULE = "steelyard.dialects.param.shim.batch"
BATCH_COMMAND = f"python -m {BATCH_MODULE}"
_DEVICE = re.compile(r"[a-z]+(:[0-9]{1,3})?")


@dataclass(frozen=True)
class Options(PlainOptions):
    """The options, with PARAM's names and defaults (its `batch_cuda_device` is 1); those from `fail_fast` on are ours."""

    config: str = ""
    warmup: int = 1
    iteration: int = 1
    backward: bool = False
    device: str = "cpu"
    output_prefix: str = "benchmark_result"
    resume_id: str | None = None
    stop_id: str | None = None
    append: bool = False
    cuda_l2_cache: str = "on"
    exec_mode: str = "discrete"
    profile: bool = False
    et: bool = False
    cupti_profiler: bool = False
    cupti_profiler_metrics: str = "kineto__cuda_core_flops"
    cupti_profiler_measure_per_kernel: bool = False
    ncu: bool = False
    ncu_bin: str | None = None
    ncu_args_file: str | None = None
    ncu_warmup: int = 5
    ncu_iteration: int = 1
    nsys: bool = False
    nsys_bin: str | None = None
    nsys_args_file: str | None = None
    nsys_warmup: int = 5
    nsys_iteration: int = 10
    run_batch_size: int = 50
    batch_cuda_device: int | None = None
    batch_cmd: str | None = None
    pt2_model: bool = False
    cuda_graph: bool = False
    log_level: str = "INFO"
    fail_fast: bool = False
    seed: int = 0
    files: tuple[str, ...] = ()
    timeout: float | None = None
    threads: int = 1

    @property
    def on_cuda(self) -> bool:
        """Whether calls run on an NVIDIA or AMD device, by the device's name, as PARAM decides it."""
        return self.device.startswith("cuda")

    @property
    def expands_only(self) -> bool:
        """Whether the config is only expanded: no warm-up and no iteration."""
        return self.warmup == 0 and self.iteration == 0

    @property
    def batches(self) -> bool:
        """Whether a profiling tool runs every config once more."""
        return self.ncu or self.nsys

    @classmethod
    def from_plain(cls, data: Mapping[str, Any]) -> Self:
        """Options from plain data; `files` may also be a single name, or paths."""
        return super().from_plain({name: list(_names(value)) if name == "files" else value for name, value in data.items()})


def _names(value: Any) -> tuple[str, ...]:
    """File names as a tuple; a single name is one file."""
    return tuple(os.fspath(item) for item in ([value] if isinstance(value, (str, os.PathLike)) else value))


FLAGS = (
    Flag(("-c", "--config"), "config", "text", "The config file.", "FILE"),
    Flag(("-w", "--warmup"), "warmup", "count", "Warm-up calls per config."),
    Flag(("-i", "--iteration"), "iteration", "count", "Measured calls per config; with -w 0 -i 0 the config is only expanded."),
    Flag(("-b", "--backward"), "backward", "switch", "Run and time the backward pass as well."),
    Flag(("-d", "--device"), "device", "text", "cpu, cuda, cuda:N, or another device of torch.", "DEVICE"),
    Flag(("-o", "--output-prefix"), "output_prefix", "text", "Results go to PREFIX_<pid>_<seconds>.json; a name that ends in .json is "
         "used as it is.", "PREFIX"),
    Flag(("-r", "--resume-id"), "resume_id", "text", "Begin at this id, <op>|<config>|<build>|<input>.", "ID"),
    Flag(("-s", "--stop_id"), "stop_id", "text", "Stop before this id.", "ID"),
    Flag(("-a", "--append"), "append", "switch", "Append to the file named with -o FILE.json, and skip the configs already in it."),
    Flag(("--cuda-l2-cache",), "cuda_l2_cache", "choice", "off flushes the L2 cache before every timed call (CUDA, discrete mode); "
         "the flag without a value means off.", choices=("on", "off"), bare="off"),
    Flag(("--exec-mode",), "exec_mode", "choice", "How calls are timed.", choices=MODES, bare=""),
    Flag(("-p", "--profile"), "profile", "switch", "Write a Kineto trace of the whole run."),
    Flag(("--et",), "et", "switch", "Write an execution trace of the whole run."),
    Flag(("--cupti-profiler",), "cupti_profiler", "switch", "Read the device's counters into the trace (CUDA; implies -p)."),
    Flag(("--cupti-profiler-metrics",), "cupti_profiler_metrics", "text", "Which counters, separated by commas.", "LIST"),
    Flag(("--cupti-profiler-measure-per-kernel",), "cupti_profiler_measure_per_kernel", "switch", "Counters for each kernel; slow."),
    Flag(("--ncu",), "ncu", "switch", "Run every config once more under Nsight Compute."),
    Flag(("--ncu-bin",), "ncu_bin", "text", "The ncu program; by default the one on PATH.", "FILE"),
    Flag(("--ncu-args-file",), "ncu_args_file", "text", "A file with further options for ncu.", "FILE"),
    Flag(("--ncu-warmup",), "ncu_warmup", "count", "Warm-up calls under ncu."),
    Flag(("--ncu-iteration",), "ncu_iteration", "count", "Profiled calls under ncu."),
    Flag(("--nsys",), "nsys", "switch", "Run every config once more under Nsight Systems."),
    Flag(("--nsys-bin",), "nsys_bin", "text", "The nsys program; by default the one on PATH.", "FILE"),
    Flag(("--nsys-args-file",), "nsys_args_file", "text", "A file with further options for nsys.", "FILE"),
    Flag(("--nsys-warmup",), "nsys_warmup", "count", "Warm-up calls under nsys."),
    Flag(("--nsys-iteration",), "nsys_iteration", "count", "Profiled calls under nsys."),
    Flag(("--run-batch-size",), "run_batch_size", "count", "Configs per start of ncu or nsys."),
    Flag(("--batch-cuda-device",), "batch_cuda_device", "count", "The GPU that ncu and nsys use; by default that of the run."),
    Flag(("--batch-cmd",), "batch_cmd", "text", f"The command that ncu and nsys start; by default {BATCH_COMMAND}.", "COMMAND"),
    Flag(("--pt2-model",), "pt2_model", "switch", "Run through torch.compile, compiled before anything is timed."),
    Flag(("--cuda-graph",), "cuda_graph", "switch", "Capture each call as a CUDA graph and time its replay."),
    Flag(("-l", "--log-level"), "log_level", "text", "DEBUG, INFO, WARNING, ERROR or CRITICAL.", "LEVEL"),
    Flag(("--fail-fast/--keep-going",), "fail_fast", "switch", "Stop at the first mistake or failure, or measure the rest (default)."),
    Flag(("--seed",), "seed", "count", "Seed of each config's data, unless the config has one."),
    Flag(("--file",), "files", "texts", "A .py file with your operators, iterators or data generators; repeatable.", "FILE"),
    Flag(("--timeout",), "timeout", "text", "Time limit for one config, such as 60s; none by default.", "TIME"),
)  # fmt: skip
"""In the order of PARAM's own help, ours last."""


def settle(options: Options) -> tuple[Options, list[str]]:
    """Return consistent options, and a warning for each change; impossible options are errors before anything runs."""
    _check(options)
    warnings = []
    if options.cuda_graph and not options.on_cuda:
        warnings.append(f"--cuda-graph is off: it needs -d cuda, and this run is on {options.device}")
        options = replace(options, cuda_graph=False)
    if options.cuda_l2_cache == "off" and not (options.on_cuda and options.exec_mode == "discrete"):
        warnings.append("--cuda-l2-cache off does nothing here: the cache is flushed on CUDA in discrete mode only")
    if options.append and not options.output_prefix.endswith(".json"):
        warnings.append("-a finds no file to append to: a name made from a prefix is always new; name the file itself with -o FILE.json")
    if options.cupti_profiler and not options.profile:
        options = replace(options, profile=True)
    return replace(options, log_level=options.log_level.upper()), warnings


def _check(options: Options) -> None:
    for name in ("device", "output_prefix", "exec_mode", "log_level"):
        if not isinstance(getattr(options, name), str):
            raise UsageError(f"{name} must be text, not {getattr(options, name)!r}")
    for name in ("warmup", "iteration", "ncu_warmup", "ncu_iteration", "nsys_warmup", "nsys_iteration"):
        check_count(name, getattr(options, name), 0, MOST_CALLS)
    if options.batch_cuda_device is not None:
        check_count("batch_cuda_device", options.batch_cuda_device, 0, MOST_CALLS)
    check_count("seed", options.seed, 0, LARGEST_SEED)
    check_count("run_batch_size", options.run_batch_size, 1, MOST_CALLS)
    check_count("threads", options.threads, 1, MOST_CALLS)
    if options.exec_mode not in MODES:
        raise UsageError(f"--exec-mode needs one of {', '.join(MODES)}" + (f", not {options.exec_mode!r}" if options.exec_mode else ""))
    if options.cuda_l2_cache not in ("on", "off"):
        raise UsageError(f"--cuda-l2-cache must be on or off, not {options.cuda_l2_cache!r}")
    if options.log_level.upper() not in LEVELS:
        raise unknown("log level", options.log_level, LEVELS)
    if not _DEVICE.fullmatch(options.device):
        raise UsageError(f"not a device: {options.device!r}", do="write it like -d cpu, -d cuda or -d cuda:1")
    if options.timeout is not None and not (isinstance(options.timeout, (int, float)) and options.timeout > 0):
        raise UsageError(
            "--timeout must be more than 0" if isinstance(options.timeout, (int, float)) else "timeout must be a number of seconds"
        )
    for switch, tool in ((options.cupti_profiler, "--cupti-profiler"), (options.ncu, "--ncu"), (options.nsys, "--nsys")):
        if switch and not options.on_cuda:
            raise UsageError(f"{tool} needs an NVIDIA GPU, and this run is on {options.device}", do=f"add -d cuda, or leave {tool} out")
