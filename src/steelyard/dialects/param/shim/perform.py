"""One `as param` job in the worker: expand where users' code must, check every config, then measure them one by one."""

from __future__ import annotations

import contextlib
import gc
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from steelyard import registry
from steelyard.dialects.param import expand, lines, session
from steelyard.dialects.param.flags import Options
from steelyard.dialects.param.lines import Line
from steelyard.dialects.param.shim.execute import NO_GRADIENT, Executor, Seat, execute
from steelyard.dialects.param.shim.marks import Marks, run_label
from steelyard.dialects.param.shim.station import Station, station
from steelyard.errors import UsageError, status_of, told
from steelyard.measuring.calm import calm

Send = Callable[[Mapping[str, Any]], None]
DIALECT = "param"
LASTING = (
    "device-side assert", "illegal memory access", "unspecified launch failure", "misaligned address", "illegal instruction",
    "invalid program counter", "hardware stack error", "the launch timed out", "uncorrectable ECC error",
)  # fmt: skip
"""What a driver says of errors that a process keeps for good: afterwards any call to the device may fail, wait for ever or abort."""


def perform(job: Mapping[str, Any], loaded: Any, send: Send, gate: Callable[[], None]) -> None:
    """Answer `expand` with a sheet, anything else with a record per config; `gate` is where a profiling tool gets the device."""
    options = Options.from_plain(job["options"])
    if job.get("stage") == "expand":
        source = Path(job["source"]) if job.get("data") is None else job["data"]
        send({"sheet": asdict(expanded(source, options, loaded))})
    else:
        _run(job, options, loaded, send, gate)
    send({"done": DIALECT})


def definitions(files: Sequence[str], entries: Iterable[Sequence[str]]) -> registry.Loaded:
    """What users' files and packages define, for a process that no conductor has told."""
    found = registry.built_ins()
    for kind, name in entries:
        found.add(registry.load_entry(kind, name))
    for path in files:
        found.add(registry.load_file(path))
    return found


def expanded(source: session.Source, options: Options, loaded: Any) -> expand.Sheet:
    """The sheet of a config, with the iterators and generators that users registered."""
    iterators = {name: item.expand for name, item in getattr(loaded, "iterators", {}).items()}
    return session.expand_here(source, options, iterators, {*expand.DEFAULT_GENERATORS, *getattr(loaded, "generators", {})})


def _run(job: Mapping[str, Any], options: Options, loaded: Any, send: Send, gate: Callable[[], None]) -> None:
    configs = job["configs"]
    study = Study.open(options, loaded)
    if not job.get("checked"):
        mistaken: dict[tuple[str, str], list[str]] = {}
        for config in configs:
            send({"checking": _full_id(config)})
            if reason := study.check(config):
                mistaken.setdefault((config["path"], reason), []).append(_full_id(config))
        for (_, reason), ids in mistaken.items():
            send({"mistake": {"ids": ids, "what": reason}})
        wrong = {id for ids in mistaken.values() for id in ids}
        configs = [config for config in configs if _full_id(config) not in wrong]
        if mistaken and (options.fail_fast or job.get("strict")):
            return
    if not configs:
        return
    send({"machine": machine()})
    files: dict[str, str] = {}
    with calm(), traced(options, job.get("stem", ""), files), study.marks.range(run_label(options.device)):
        for config in configs:
            send({"started": _full_id(config)})
            line = study.measure(config)
            send({"line": line})
            if options.batches:
                gate()
            if lines.status(line) != "ok":
                if options.fail_fast:
                    break
                if not study.recovers():
                    send({"retire": "the device cannot be used any more by this process"})
                    break
    send({"files": files})


def _full_id(config: Mapping[str, Any]) -> str:
    return f"{config['op']}|{config['id']}"


@dataclass
class Study:
    """A device that was opened, and everything that running configs on it needs."""

    options: Options
    station: Station
    marks: Marks
    operators: Mapping[str, Any] = field(default_factory=dict)
    generators: Mapping[str, Any] = field(default_factory=dict)
    executor: Executor = execute
    last: str = ""
    lost: bool = False

    @classmethod
    def open(cls, options: Options, loaded: Any = None, executor: Executor = execute) -> Study:
        """Load torch and wake the device; whatever was asked for and cannot be had here is said before anything runs."""
        check_device(options)
        marks = Marks.where(options.device, options.profile or options.et)
        made = station(options, marks)
        if options.cupti_profiler:
            check_counters(options)
        return cls(options, made, marks, getattr(loaded, "operators", {}), getattr(loaded, "generators", {}), executor)

    def check(self, config: Mapping[str, Any]) -> str:
        """Why a config cannot run, as far as that can be known without running it."""
        from steelyard.workloads.operators.call import check

        reason: str = check(config["op"], config["build"], config["input"], self.operators, self.generators, config["generators"])
        return reason

    def measure(self, config: Mapping[str, Any]) -> Line:
        """The record of one config, whatever happens to it short of the process dying."""
        metric: Mapping[str, Any] = {}
        seed = self.options.seed if config["seed"] is None else config["seed"]
        ours: dict[str, Any] = {"status": "ok", "seed": seed}
        try:
            with same_settings():
                metric = self._attempt(config, seed, ours)
        except (Exception, SystemExit) as error:
            ours |= failure(error)
            self.lost = self.lost or any(words in ours["error"] for words in LASTING)
        self._clean(config["op"])
        if ours["status"] == "ok":
            self.station.release()
            ours["statistics"] = {name: summary(values["measure.time"]) for name, values in metric.items() if values.get("measure.time")}
        return lines.record(config["op"], config["id"], config["build"], config["input"], metric, **ours)

    def _attempt(self, config: Mapping[str, Any], seed: int, ours: dict[str, Any]) -> Mapping[str, Any]:
        from steelyard.workloads.operators.call import prepare

        call = prepare(
            config["op"], config["build"], config["input"],
            device=self.options.device, seed=seed, registered=self.operators, generators=self.generators, names=config["generators"],
        )  # fmt: skip
        try:
            if call.drawn:
                ours["drawn"] = call.drawn
            metric = self.executor(call, Seat(config["op"], config["id"], self.options, self.station, self.marks))
        finally:
            call.cleanup()
        if self.options.backward and "backward" not in metric:
            ours["not_applicable"] = {"backward": NO_GRADIENT}
        if self.options.iteration and metric.get("forward", {}).get("measure.time") == []:
            ours |= {"status": "not_applicable", "error": f"there is no {self.options.exec_mode} mode on {self.options.device}"}
        return metric

    def _clean(self, op: str) -> None:
        """Cycles of this config go now; those that outlived several go when the operator changes."""
        gc.collect(0 if op == self.last else 1)
        self.last = op

    def recovers(self) -> bool:
        """After a failure: give memory back, and find out whether the device still answers, unless that is known and asking may hang."""
        if self.lost:
            return False
        gc.collect()
        if self.station.api is None:
            return True
        try:
            self.station.api.synchronize()
            self.station.release()
        except Exception:
            return False
        return True


def failure(error: BaseException) -> Line:
    """What a record says of a config that raised; what a user's operator raises may not even have words."""
    try:
        return {"status": status_of(error), "error": told(error)}
    except Exception:
        return {"status": "failed", "error": type(error).__name__}


def summary(milliseconds: Sequence[float]) -> Line:
    """Median and interval in seconds; fewer values than an interval needs have none."""
    import numpy as np

    from steelyard.measuring.stats import median_interval

    found = median_interval(np.asarray(milliseconds, float) / 1e3)
    low, high = found.ends
    return {"median": found.centre, "low": low, "high": high, "n": found.n, "unit": "s"}


@contextmanager
def same_settings() -> Iterator[None]:
    """Leave torch with the threads, formats and recording it had: for the next config, and for a process that is not ours alone."""
    import torch

    threads, default, recording = torch.get_num_threads(), torch.get_default_dtype(), torch.is_grad_enabled()
    try:
        yield
    finally:
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
        if torch.get_default_dtype() != default:
            torch.set_default_dtype(default)
        torch.set_grad_enabled(recording)


def check_device(options: Options) -> None:
    """One thread, as PARAM has it, and a device that is there."""
    import torch

    if torch.get_num_threads() != options.threads:
        torch.set_num_threads(options.threads)
    kind = options.device.partition(":")[0]
    try:
        where = torch.device(options.device)
        if kind not in ("cpu", "meta"):
            torch.empty(1, device=where)
    except Exception as error:
        words = str(error).strip().splitlines()
        raise UsageError(f"torch cannot use the device {options.device!r}", why=words[0] if words else "") from None
    if options.pt2_model and kind == "cpu":
        import shutil

        if not shutil.which(os.environ.get("CXX", "g++")):
            raise UsageError("--pt2-model needs a C++ compiler on the CPU, and none is on PATH", do="apt-get install g++, or set CXX")


def check_counters(options: Options) -> None:
    """Few builds of torch can read a device's counters, and the others say nothing; so one kernel is tried first."""
    import torch

    with tempfile.TemporaryDirectory(prefix="steelyard-") as folder:
        trace = Path(folder) / "trace.json"
        with profiler(options) as seen:
            torch.ones(8, device=options.device).add_(1)
            torch.cuda.synchronize()
        seen.export_chrome_trace(str(trace))
        text = trace.read_text(encoding="utf-8", errors="replace")
    names = options.cupti_profiler_metrics.split(",")
    if lacking := [name for name in names if name not in text]:
        raise UsageError(
            f"--cupti-profiler gives no {', '.join(lacking)} here",
            why="this build of torch has no range profiler, the counter does not exist, or the user may not read counters",
            do="use --ncu, or leave --cupti-profiler out",
        )


def profiler(options: Options) -> Any:
    """Kineto over everything that runs inside, with shapes; with counters only what they need, since they slow every kernel."""
    import torch
    from torch.profiler import ProfilerActivity

    counting = options.cupti_profiler
    activities = [ProfilerActivity.CPU] if not counting or options.cupti_profiler_measure_per_kernel else []
    if options.on_cuda:
        activities.append(ProfilerActivity.CUDA)
    config = (
        torch._C._profiler._ExperimentalConfig(
            profiler_metrics=options.cupti_profiler_metrics.split(","),
            profiler_measure_per_kernel=options.cupti_profiler_measure_per_kernel,
        )
        if counting
        else None
    )
    return torch.profiler.profile(activities=activities, record_shapes=True, experimental_config=config)


@contextmanager
def traced(options: Options, stem: str, files: dict[str, str]) -> Iterator[None]:
    """Take the traces that were asked for; where they lie is told once they are whole."""
    with contextlib.ExitStack() as stack:
        if options.et:
            stack.enter_context(_execution_trace(f"{stem}_et.json", files))
        seen = stack.enter_context(profiler(options) if options.profile else nullcontext())
        yield
    if options.profile:
        path = f"{stem}_trace.json"
        seen.export_chrome_trace(path)
        files["trace_file"] = path


@contextmanager
def _execution_trace(path: str, files: dict[str, str]) -> Iterator[None]:
    from torch.profiler import ExecutionTraceObserver

    observer = ExecutionTraceObserver()
    observer.register_callback(path)
    observer.start()
    try:
        yield
    finally:
        observer.stop()
        observer.unregister_callback()
    files["et_file"] = path


def machine() -> Line:
    """What PARAM's header says about the system, as plain values."""
    import torch

    found = lines.host() | {"cuda_available": torch.cuda.is_available()}
    if found["cuda_available"]:
        found |= _cuda()
    built = {"pytorch_debug_build": bool(torch.version.debug), "pytorch_build_config": torch.__config__.show()}
    return {**found, "pytorch_version": torch.__version__, **built}


def _cuda() -> Line:
    import torch

    from steelyard.machine.nvidia import gpus

    index = torch.cuda.current_device()
    properties = torch.cuda.get_device_properties(index)
    known = {name: getattr(properties, name) for name in dir(properties) if not name.startswith("_")}
    plain = {name: value if isinstance(value, (int, float, str, bool)) else str(value) for name, value in known.items()}
    return {
        "cuda": torch.version.cuda, "cuda_device_driver": next((gpu.get("driver") for gpu in gpus()), None),
        "cuda_gencode": torch.cuda.get_gencode_flags(), "cuda_device_id": index, "cuda_device_name": torch.cuda.get_device_name(),
        "cuda_device_property": plain,
        "cudnn": torch.backends.cudnn.version(), "cudnn_enabled": torch.backends.cudnn.enabled,
    }  # fmt: skip
