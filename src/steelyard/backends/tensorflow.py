"""TensorFlow: whole calls as a graph by tf.function, eagerly with the variant `eager`, or as one XLA program with the variant `jit`.

TensorFlow's tensors cannot be changed; where verification tries other values, the backend keeps replacements, and calls get those.
"""

from __future__ import annotations

import contextlib
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from steelyard import clocks
from steelyard.backends._memory import host_memory
from steelyard.backends._places import Places
from steelyard.backends.base import Backend, Leaf, step_through
from steelyard.errors import Unsupported
from steelyard.measuring.clock import Timer, WaitingTimer
from steelyard.measuring.fixed import Range, Stopwatch
from steelyard.model.experiment import GraphForm, Settings
from steelyard.model.record import Figure
from steelyard.model.task import Task

ABOUT = {
    "package": "tensorflow", "stack": "tensorflow", "requires": ["numpy", "tensorflow-cpu"], "pins": "tensorflow.txt",
    "usual": "graph", "flags": "XLA_FLAGS",
    "variables": {
        "TF_NUM_INTRAOP_THREADS": "{threads}", "TF_NUM_INTEROP_THREADS": "1", "TF_FORCE_GPU_ALLOW_GROWTH": "true",
        "TF_CPP_MIN_LOG_LEVEL": "2", "TF_XLA_FLAGS": "", "XLA_FLAGS": "",
    },
}  # fmt: skip
FORMATS = {
    "fp64": tf.float64, "fp32": tf.float32, "fp16": tf.float16, "bf16": tf.bfloat16, "int64": tf.int64, "int32": tf.int32,
    "int16": tf.int16, "int8": tf.int8, "uint64": tf.uint64, "uint32": tf.uint32, "uint16": tf.uint16, "uint8": tf.uint8,
    "bool": tf.bool, "complex64": tf.complex64, "complex128": tf.complex128,
}  # fmt: skip
NAMES = {kind: name for name, kind in FORMATS.items()}
PRODUCTS = ("MatMul", "BatchMatMulV2", "BatchMatMulV3", "Einsum", "Conv2D", "Conv3D", "DepthwiseConv2dNative")
WRITTEN = "__autograph_generated_file"
DEVICES = {"cpu": "CPU", "cuda": "GPU", "tpu": "TPU"}
"""TensorFlow's names for our kinds of devices."""


def is_tensor(value: Any) -> bool:
    """Whether a value is a tensor with data."""
    return isinstance(value, (tf.Tensor, tf.Variable)) and hasattr(value, "numpy")


def remove_sources() -> None:
    """Remove the Python files that tf.function wrote: it removes them itself only at a normal exit, and workers are killed."""
    for name in [name for name in sys.modules if name.startswith(WRITTEN)]:
        with contextlib.suppress(OSError, TypeError):
            Path(str(sys.modules[name].__file__)).unlink()


@dataclass(frozen=True)
class DoneCall:
    """A function that passes on replaced arguments, and whose call ends when its work is done."""

    started: Callable[..., Any]
    places: Places
    wait: Callable[[], None]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.places.instead:
            args, kwargs = self.places.all((args, kwargs))
        out = self.started(*args, **kwargs)
        self.wait()
        return out


class TensorStopwatch(Stopwatch):
    """A stopwatch for calls that are done when they return on the CPU, and elsewhere when the device has been waited for."""

    asynchronous = True

    def __init__(self, wait: Callable[[], None]) -> None:
        self.wait = wait

    def timed(self, fn: Callable[..., Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> tuple[int, Any]:
        start = clocks.perf_counter_ns()
        out = fn(*args, **(kwargs or {}))
        self.wait()
        return clocks.perf_counter_ns() - start, out

    def sync(self) -> None:
        self.wait()


class TensorFlow(Backend):
    """TensorFlow on one device, for inference; every variant is compared with one exact reference."""

    name = "tensorflow"
    install = "steelyard env create tensorflow"
    exactly = True

    def open(self) -> None:
        kind = DEVICES.get(self.device, self.device.upper())
        found = tf.config.list_logical_devices(kind)
        if not found:
            do = "install a tensorflow that is built for it; the pinned one is for the CPU"
            raise Unsupported(f"TensorFlow {tf.__version__} has no {self.device} device here", do=do)
        self.spot = found[0].name
        self.places = Places()
        self._phases: dict[str, float] = {}
        self._ready: Task | None = None

    def array(self, data: np.ndarray[Any, Any], dtype: str) -> Any:
        if dtype not in FORMATS:
            raise Unsupported(f"backend tensorflow has no {dtype}", do="choose another dtype or backend")
        with tf.device(self.spot):
            return tf.identity(tf.convert_to_tensor(np.asarray(data).astype(FORMATS[dtype].as_numpy_dtype)))

    def leaf(self, value: Any) -> tuple[str, np.ndarray[Any, Any]] | None:
        if not is_tensor(value):
            return None
        value = self.places.now(value)
        step = step_through(int(tf.size(value)))
        host = (value if step <= 1 else tf.reshape(value, (-1,))[::step]).numpy()
        host = np.asarray(host)
        return NAMES.get(value.dtype, value.dtype.name), host if host.dtype.kind in "biufc" else host.astype(np.float32)

    def outputs(self, value: Any, path: str = "out") -> list[Leaf]:
        """Return the outputs, and remove the files of tf.function here, where nothing is timed."""
        remove_sources()
        return super().outputs(value, path)

    def fingerprint(self, value: Any) -> str | None:
        """Return the identity of a tensor, which is enough because tensors cannot be changed; a variable is read."""
        return f"{id(self.places.now(value)):x}" if isinstance(value, tf.Tensor) else super().fingerprint(value)

    def now(self, value: Any) -> Any:
        return self.places.now(value)

    def alter(self, value: Any, change: Callable[[Any], Any]) -> bool:
        if not isinstance(value, tf.Tensor):
            return super().alter(value, change)
        with tf.device(self.spot):
            self.places.put(value, tf.cast(tf.convert_to_tensor(change(self.places.now(value))), value.dtype))
        return True

    def copy(self, value: Any, buffers: dict[Any, Any] | None = None) -> Any:
        if not isinstance(value, tf.Tensor):
            return super().copy(value, buffers)
        with tf.device(self.spot):
            made = tf.convert_to_tensor(np.array(self.places.now(value).numpy()))
        return made if buffers is None else buffers.setdefault(id(value), made)

    def drawn_again(self, value: Any) -> Any:
        if isinstance(value, tf.Tensor) and value.dtype.is_floating:
            return self.array(self._numbers().normals(int(tf.size(value))).reshape(value.shape), NAMES[value.dtype])
        return super().drawn_again(value)

    def fixed(self, value: Any) -> bool:
        return isinstance(value, (DoneCall, Places)) or hasattr(value, "get_concrete_function") or super().fixed(value)

    def sync(self) -> None:
        if self.device != "cpu":
            tf.test.experimental.sync_devices()

    def timer(self) -> Timer:
        return WaitingTimer(self.threads)

    def stopwatch(self, *, flush: Range | None = None) -> Stopwatch:
        if flush is not None:
            raise Unsupported("backend tensorflow has no way to flush a cache")
        return TensorStopwatch(self.sync)

    def unwaited(self, task: Task) -> Task:
        return replace(task, fn=task.fn.started) if isinstance(task.fn, DoneCall) else task

    def jitted(self, fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Callable[..., Any]:
        """Return a whole call as one XLA program."""
        made: Callable[..., Any] = tf.function(fn, jit_compile=True)
        return made

    def graphed(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """Return a whole call as a graph of TensorFlow's own kernels."""
        made: Callable[..., Any] = tf.function(fn, jit_compile=False)
        return made

    def in_mode(self, task: Task, mode: str) -> Task:
        if mode not in ("eval", "call") or task.fn is None:
            return super().in_mode(task, mode)
        self._phases = {}
        started = task.fn.started if isinstance(task.fn, DoneCall) else task.fn
        ready = replace(task, fn=DoneCall(started, self.places, self.sync))
        self._ready = ready
        return replace(ready, observe=lambda: self._observed(ready))

    def _observed(self, task: Task) -> Any:
        """Run one call and remove the files of tf.function; the first call is split into tracing and everything after it."""
        begin = clocks.perf_counter()
        fn = task.fn.started if isinstance(task.fn, DoneCall) else None
        trace = getattr(fn, "get_concrete_function", None)
        if not self._phases and trace is not None:
            trace(*task.args, **task.kwargs)
            self._phases["tracing_time"] = clocks.perf_counter() - begin
        start = clocks.perf_counter()
        out = replace(task, scope=None, observe=None)()
        self._phases.setdefault("first_run_time", clocks.perf_counter() - start)
        remove_sources()
        return out

    def beside(self, task: Task, timer: Timer, seconds: float, settings: Settings) -> tuple[dict[str, Figure], dict[str, Any]]:
        """Return the phases of the first call, the graph's operations, and the process's memory as the kernel counts it.

        XLA compiles within the first run without marking it, so compiling is what that run took beyond a usual call.
        """
        found = dict(self._phases)
        started = task.fn.started if isinstance(task.fn, DoneCall) else None
        if getattr(started, "_jit_compile", False) and "first_run_time" in found:
            found["compiling_time"] = max(0.0, found["first_run_time"] - seconds)
        figures = {name: Figure(value, "s", "lower", n=1) for name, value in found.items()}
        facts: dict[str, Any] = {"host_memory": host_memory()}
        if (trace := getattr(started, "get_concrete_function", None)) is not None:
            facts["graph"] = _graph_facts(trace(*task.args, **task.kwargs))
        return figures, facts

    def graph_texts(self, call: Callable[[], Any], form: GraphForm) -> dict[str, str]:
        ready, stages = self._ready, {"hlo": "hlo", "stablehlo": "stablehlo", "optimized": "optimized_hlo"}
        started: Any = ready.fn.started if ready and isinstance(ready.fn, DoneCall) else None
        if ready is None or form not in stages or not getattr(started, "_jit_compile", False):
            raise Unsupported("TensorFlow shows programs only for XLA", do="use the variant jit, and hlo, stablehlo or optimized")
        call()
        return {"1": str(started.experimental_get_compiler_ir(*ready.args, **ready.kwargs)(stage=stages[form]))}

    def formats_within(self, fn: Callable[..., Any], args: Sequence[Any]) -> set[str]:
        try:
            graph = tf.function(fn).get_concrete_function(*args).graph
            held = [*(item.dtype for item in graph.variables), *(item.dtype for item, _ in graph.captures)]
            parts = graph.as_graph_def()
        except Exception:
            return set()
        finally:
            remove_sources()
        nodes = [*parts.node, *(node for part in parts.library.function for node in part.node_def)]
        typed = [(node.op, tf.as_dtype(node.attr["T"].type)) for node in nodes if node.attr["T"].type]
        known = [*held, *(kind for name, kind in typed if name in PRODUCTS)]
        found = {NAMES[kind.base_dtype] for kind in known if kind.base_dtype in NAMES}
        return found or {NAMES[kind] for _, kind in typed if kind in NAMES}

    def upcast(self, task: Task) -> Task | None:
        if task.fn is None:
            return None
        plain = task.fn.started if isinstance(task.fn, DoneCall) else task.fn
        plain = getattr(plain, "python_function", plain)
        known: dict[int, Any] = {}
        parts = (tuple(task.args), dict(task.kwargs), tuple(task.parameters))
        args, kwargs, weights = (self._doubled(part, known) for part in parts)
        return replace(task, fn=plain, args=args, kwargs=kwargs, parameters=weights, inspect=None, observe=None)

    def _doubled(self, value: Any, known: dict[int, Any]) -> Any:
        """Return the same structure in double precision; a tensor that occurs twice stays one tensor."""
        if isinstance(value, Mapping):
            return {key: self._doubled(item, known) for key, item in value.items()}
        if type(value) in (list, tuple):
            return type(value)(self._doubled(item, known) for item in value)
        if not is_tensor(value) or not value.dtype.is_floating:
            return value
        if id(value) not in known:
            known[id(value)] = tf.cast(self.places.now(value), tf.float64)
        return known[id(value)]

    def start_memory(self) -> None:
        if self.device == "cpu":
            super().start_memory()
        else:
            tf.config.experimental.reset_memory_stats(self.spot)

    def peak_memory(self) -> dict[str, float]:
        if self.device == "cpu":
            return super().peak_memory()
        return {"peak_allocated": float(tf.config.experimental.get_memory_info(self.spot)["peak"])}

    def sow(self) -> None:
        super().sow()
        tf.random.set_seed(self.seed)

    def facts(self) -> dict[str, Any]:
        return {"device": self.spot, "intra_op_threads": tf.config.threading.get_intra_op_parallelism_threads()}

    @classmethod
    def reset(cls) -> None:
        tf.keras.backend.clear_session()
        remove_sources()

    def versions(self) -> dict[str, str]:
        built = tf.sysconfig.get_build_info()
        more = {key: str(built[key]) for key in ("cuda_version", "cudnn_version") if key in built}
        return {"tensorflow": tf.__version__, **more, "numpy": np.__version__, "python": platform.python_version()}


def _graph_facts(program: Any) -> dict[str, Any]:
    """Return how many operations a traced function has, and TensorFlow's count of its floating-point operations."""
    found: dict[str, Any] = {"operations": len(program.graph.get_operations())}
    profiler = tf.compat.v1.profiler
    options = profiler.ProfileOptionBuilder(profiler.ProfileOptionBuilder.float_operation()).with_empty_output().build()
    counted = profiler.profile(graph=program.graph, options=options)
    if counted is not None and counted.total_float_ops:
        found["flops"] = float(counted.total_float_ops)
    return found


BACKEND = TensorFlow
