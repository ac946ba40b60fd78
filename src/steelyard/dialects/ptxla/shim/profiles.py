"""What is looked at beside the timing: profiles in passes of their own, compiler counters, and the files they are kept in."""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from steelyard.dialects.ptxla.flags import RunnerOptions
from steelyard.errors import Unsupported

ROWS = 500
DUMPS = ("hlo", "dump")


@dataclass
class Files:
    """The side files of one config: `<folder>/[<repeat>/]<kind>-<basename>.<ext>`."""

    folder: Path
    basename: str
    written: dict[str, list[str]] = field(default_factory=dict)

    def path(self, kind: str, extension: str = "", repeat: int | None = None) -> Path:
        """Where a file goes; its folder is made, and it is remembered."""
        place = self.folder if repeat is None else self.folder / str(repeat)
        place.mkdir(parents=True, exist_ok=True)
        made = place / (f"{kind}-{self.basename}" + (f".{extension}" if extension else ""))
        self.written.setdefault(kind, []).append(str(made))
        return made

    def write(self, kind: str, text: str, extension: str, repeat: int | None = None) -> None:
        """Keep a text."""
        self.path(kind, extension, repeat).write_text(text, encoding="utf-8")

    def note_dumps(self) -> None:
        """Remember what XLA wrote by itself, where its variables told it to."""
        for kind in DUMPS:
            if found := sorted(map(str, self.folder.glob(f"{kind}-{self.basename}*"))):
                self.written[kind] = found

    def save_tensors(self, output: Any) -> str:
        """Keep the tensors of an answer, as torch reads them back with `weights_only`."""
        import torch

        from steelyard.workloads.models.subject import leaves

        made = self.path("output", "pt")
        torch.save({place: item.detach().cpu() for place, item in leaves(output).items()}, made)
        return str(made)


def clear_counters() -> None:
    """Begin torch.compile's counters anew, if it is in use at all."""
    if dynamo := sys.modules.get("torch._dynamo.utils"):
        dynamo.counters.clear()


def dynamo_counters() -> dict[str, dict[str, int]]:
    """What torch.compile counted: graphs, breaks and their reasons."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    return {str(key): {str(name): int(count) for name, count in group.items()} for key, group in dynamo.counters.items()} if dynamo else {}


def extra(act: Any, options: RunnerOptions, files: Files) -> dict[str, list[Any]]:
    """Metrics from profiles, one per repeat, each from a pass after the timing, which they would slow."""
    metrics: dict[str, list[Any]] = {}
    for number in range(options.repeat):
        if options.profiles:
            for name, value in _profiled(act, options, files, number).items():
                metrics.setdefault(name, []).append(value)
        if options.profile_xla and act.spot.xla:
            _xla_profiled(act, options, files, number)
    return metrics


def _calls(act: Any, options: RunnerOptions) -> Callable[[], None]:
    inputs = [act.inputs(options.randomize_input) for _ in range(options.iterations_per_run)]

    def run() -> None:
        for args, kwargs in inputs:
            act(args, kwargs)
            act.clock.step()
        act.clock.wait()

    act.clock.wait()
    return run


def _profiled(act: Any, options: RunnerOptions, files: Files, number: int) -> dict[str, Any]:
    import torch
    from torch.profiler import ProfilerActivity

    run = _calls(act, options)
    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if torch.cuda.is_initialized() else [])
    with torch.profiler.profile(activities=activities) as seen:
        run()
    averages = seen.key_averages()
    if options.dump_pytorch_profiles:
        order = "self_device_time_total" if torch.cuda.is_initialized() else "self_cpu_time_total"
        files.write("pytorch-profile", averages.table(sort_by=order, row_limit=ROWS), "txt", number)
        seen.export_chrome_trace(str(files.path("trace", "json", number)))
    found: dict[str, Any] = {}
    if options.profile_cuda_cpu:
        cpu, cuda = totals(averages)
        count = options.iterations_per_run
        found |= {
            "total_cpu_time_s": cpu,
            "total_cuda_time_s": cuda,
            "per_iter_cpu_time_s": cpu / count,
            "per_iter_cuda_time_s": cuda / count,
        }
    if options.profile_cuda_cpu_individual_ops:
        named = {item.key: item for item in averages if item.key.startswith("aten::")}
        fell = act.clock.fallbacks()
        kept = {key: item for key, item in named.items() if key in fell} if act.spot.xla else named
        found["xla_unlowered_ops" if act.spot.xla else "inductor_ops"] = {key: _operator(item) for key, item in kept.items()}
    return found


def totals(averages: Iterable[Any]) -> tuple[float, float]:
    """Seconds on the CPU and on the GPU; a kernel's time stands at the kernel and at what launched it, and counts once."""
    items = list(averages)
    kernels = [item for item in items if str(item.device_type).endswith("CUDA") and not getattr(item, "is_user_annotation", False)]
    names = ((items, "self_cpu_time_total"), (kernels, "self_device_time_total"))
    cpu, cuda = (math.fsum(_seconds(item, name) for item in counted) for counted, name in names)
    return cpu, cuda


def _operator(item: Any) -> Mapping[str, Any]:
    return {
        "self_cpu_time_s": _seconds(item, "self_cpu_time_total"), "self_cuda_time_s": _seconds(item, "self_device_time_total"),
        "total_cpu_time_s": _seconds(item, "cpu_time_total"), "total_cuda_time_s": _seconds(item, "device_time_total"),
        "num_of_calls": int(item.count),
    }  # fmt: skip


def _seconds(item: Any, name: str) -> float:
    """A profile's microseconds; older versions of torch have no word for devices but CUDA."""
    return float(getattr(item, name, getattr(item, name.replace("device", "cuda"), 0.0))) * 1e-6


def _xla_profiled(act: Any, options: RunnerOptions, files: Files, number: int) -> None:
    profiler = importlib.import_module("torch_xla.debug.profiler")
    if not hasattr(profiler, "start_trace"):
        raise Unsupported("this torch_xla cannot write a profile from within", do="leave --profile-xla out")
    run, place = _calls(act, options), files.path("xplane", repeat=number)
    profiler.start_trace(str(place))
    try:
        run()
    finally:
        profiler.stop_trace()
