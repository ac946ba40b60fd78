"""The ranges that PARAM shows in traces and profilers: same names, made once per config, and never inside a timed region."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

Phase = Literal["warmup", "measure"]
Range = AbstractContextManager[Any]
CLEAR_CACHE = "[param|clear_cache]"
NO_RANGE: Range = nullcontext()


def run_label(device: str) -> str:
    """Around everything."""
    return f"[param|{device}]"


def config_label(op: str, id: str) -> str:
    """Around all calls of one config."""
    return f"[param|{op}|{id}]"


def call_label(op: str, id: str, phase: Phase, what: str) -> str:
    """Around a phase, and around each call in it; `what` is forward, backward or forward_backward."""
    return f"[param|{op}|{id}|{phase}|{what}]"


def phase_label(phase: Phase) -> str:
    """Around a phase on CUDA, for tools that look at measured calls alone."""
    return f"[param|{phase}]"


class Both:
    """A range in the profiler and in NVTX; it can be entered again and again, one after the other."""

    def __init__(self, profiled: Range, start: Callable[[], Any], end: Callable[[Any], None]) -> None:
        self.profiled, self.start, self.end = profiled, start, end

    def __enter__(self) -> None:
        self.profiled.__enter__()
        self.handle = self.start()

    def __exit__(self, *error: Any) -> None:
        self.end(self.handle)
        self.profiled.__exit__(*error)


@dataclass(frozen=True)
class Marks:
    """Makes ranges where somebody sees them, and ranges of nothing elsewhere."""

    profiled: bool = False
    nvtx: bool = False

    @classmethod
    def where(cls, device: str, profiled: bool) -> Marks:
        """In a trace if one is taken, and in NVTX on a CUDA device, where a tool may look from outside."""
        return cls(profiled, device.startswith("cuda") and _has_nvtx())

    def range(self, label: str) -> Range:
        """A range of this name, to be entered once or many times."""
        profiled = self.profiler_range(label)
        if not self.nvtx:
            return profiled
        from torch.cuda import nvtx

        return Both(profiled, lambda: nvtx.range_start(label), nvtx.range_end)

    def profiler_range(self, label: str) -> Range:
        """A range that only traces show: one that holds ranges of its own name would count them twice in NVTX."""
        return _record(label) if self.profiled else NO_RANGE

    def tool_range(self, label: str) -> Range:
        """A range that only tools from outside see."""
        return Marks(False, self.nvtx).range(label)


def _record(label: str) -> Range:
    from torch.autograd.profiler import record_function

    made: Range = record_function(label)
    return made


def _has_nvtx() -> bool:
    from torch.cuda import nvtx

    try:
        nvtx.range_end(nvtx.range_start("steelyard"))
    except RuntimeError:
        return False
    return True
