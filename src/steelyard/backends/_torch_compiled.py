"""Handles compiled code while a trace is recorded: the Triton kernels it launches are noted; compiling and tuning are left out."""

from __future__ import annotations

import functools
import gzip
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.autograd import profiler
from torch.profiler import ExecutionTraceObserver

TUNERS = "torch._inductor.runtime.triton_heuristics"
TUNING = ("autotune_to_one_config", "coordinate_descent_tuning")
"""Methods of Inductor's kernels that launch a kernel hundreds of times to find its fastest form."""
_SOURCE = re.compile(r'"value": "triton"\},\s*\{"name": "kernel_file", "type": "string", "value": "(\w[\w.-]*\.py)"')


class RangeProfiler:
    """A profiler that keeps nothing: it sends ranges to a tool that is not attached, and stops while any other profiler runs."""

    def __init__(self, ranges: Callable[[], Any]) -> None:
        self._ranges, self._running, self._own = ranges, list[Any](), False
        self._others = profiler._run_on_profiler_start, profiler._run_on_profiler_stop

    def begin(self) -> None:
        """Start the profiler, or start it again."""
        with self._unheard():
            found = self._ranges()
            found.__enter__()
            self._running.append(found)

    def end(self) -> None:
        """Stop the profiler if it is running."""
        with self._unheard():
            if self._running:
                self._running.pop().__exit__(None, None, None)

    @contextmanager
    def _unheard(self) -> Iterator[None]:
        """Mark a start or stop as our own, because PyTorch calls `started` and `stopped` for it too."""
        self._own = True
        try:
            yield
        finally:
            self._own = False

    def started(self) -> None:
        """Called when a profiler starts: there can be only one at a time."""
        if not self._own:
            self.end()
        self._others[0]()

    def stopped(self) -> None:
        """Called when a profiler has stopped."""
        self._others[1]()
        if not self._own:
            self.begin()


@contextmanager
def kernels_noted() -> Iterator[None]:
    """Make compiled code report the Triton kernels that it launches, which it does only inside a profiler that takes shapes."""
    ranges = _ranges()
    if ranges is None or profiler._is_profiler_enabled:
        yield
        return
    own = RangeProfiler(ranges)
    before = profiler._run_on_profiler_start, profiler._run_on_profiler_stop
    profiler._run_on_profiler_start, profiler._run_on_profiler_stop = own.started, own.stopped
    try:
        own.begin()
        yield
    finally:
        own.end()
        profiler._run_on_profiler_start, profiler._run_on_profiler_stop = before


def _ranges() -> Callable[[], Any] | None:
    """Return the function that marks ranges; None if this build of torch has none."""
    if torch.profiler.itt.is_available():
        return functools.partial(profiler.emit_itt, record_shapes=True)
    return functools.partial(profiler.emit_nvtx, record_shapes=True) if torch.cuda.is_available() else None


class PausedRecorder:
    """A recorder that can be paused; pauses may be nested."""

    def __init__(self, observer: ExecutionTraceObserver) -> None:
        self._observer, self._depth, self.wrapped = observer, 0, set[str]()

    def pause(self, *_: Any) -> None:
        """Stop recording until the matching `resume`."""
        self._depth += 1
        if self._depth == 1:
            self._observer.stop()

    def resume(self, *_: Any) -> None:
        """End one pause; recording goes on when every pause has ended."""
        self._depth -= 1
        if self._depth == 0:
            self._observer.start()

    def around(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """Return the method with recording paused while it runs."""

        @functools.wraps(method)
        def unrecorded(*args: Any, **kwargs: Any) -> Any:
            self.pause()
            try:
                return method(*args, **kwargs)
            finally:
                self.resume()

        return unrecorded


@contextmanager
def paused_while_compiling(observer: ExecutionTraceObserver) -> Iterator[None]:
    """Do not record what the compiler runs on fake tensors, nor its launches to tune a kernel: neither is part of a step."""
    from torch._dynamo.callback import callback_handler as compiling

    recorder = PausedRecorder(observer)
    with ExitStack() as stack:

        def compiled(*_: Any) -> None:
            _leave_out_tuning(recorder, stack)
            recorder.resume()

        _leave_out_tuning(recorder, stack)
        compiling.register_start_callback(recorder.pause)
        stack.callback(compiling.remove_start_callback, recorder.pause)
        compiling.register_end_callback(compiled)
        stack.callback(compiling.remove_end_callback, compiled)
        yield


def _leave_out_tuning(recorder: PausedRecorder, stack: ExitStack) -> None:
    """Wrap the methods that tune kernels, once, if the compiler is loaded; the stack restores them."""
    tuner = getattr(sys.modules.get(TUNERS), "CachingAutotuner", None)
    for name in TUNING:
        method = vars(tuner).get(name) if tuner is not None else None
        if method is not None and name not in recorder.wrapped:
            recorder.wrapped.add(name)
            setattr(tuner, name, recorder.around(method))
            stack.callback(setattr, tuner, name, method)


def keep_sources(trace: Path, resources: Path) -> None:
    """Copy the kernel sources that PyTorch leaves out of the trace's resources: those of kernels from the compiler's cache."""
    compiler = sys.modules.get("torch._inductor.codecache")
    if compiler is None or not resources.is_dir():
        return
    with gzip.open(trace, "rt", encoding="utf-8") if trace.suffix == ".gz" else trace.open(encoding="utf-8") as lines:
        named = {name for line in lines if '"triton"' in line for name in _SOURCE.findall(line)}
    for name in named:
        source = Path(compiler.cache_dir()) / name[1:3] / name
        if not (resources / name).exists() and source.is_file():
            shutil.copyfile(source, resources / name)
