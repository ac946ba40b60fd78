"""JAX on XLA's devices: whole calls by jax.jit, or one program per operator with the variant `eager`.

JAX's arrays cannot be changed. Where an array must have other values, as when training moves weights or verification tries other
inputs, the backend keeps a replacement, and calls get that instead.
"""

from __future__ import annotations

import contextlib
import functools
import math
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from typing import Any

import jax
import jax.experimental
import jax.numpy as jnp
import ml_dtypes
import numpy as np

from steelyard import clocks
from steelyard.backends import _jax_modes, _jax_numbers
from steelyard.backends._jax_runtime import COMPILATIONS, CompileWork, KeptProgram, QueueTimer, WaitedTimer, forget_programs, formats_within
from steelyard.backends._memory import host_memory
from steelyard.backends._places import Places
from steelyard.backends.base import Backend, step_through
from steelyard.errors import NotApplicable, Unsupported
from steelyard.measuring.clock import Timer
from steelyard.measuring.fixed import Range, Stopwatch
from steelyard.model.dtypes import canonical
from steelyard.model.experiment import GraphForm, Settings
from steelyard.model.record import Figure
from steelyard.model.task import Task, nested

ABOUT = {
    "package": "jax", "stack": "jax", "requires": ["numpy", "jax"], "pins": "jax.txt", "usual": "jit", "flags": "XLA_FLAGS",
    "devices": {"cpu": "cpu", "cuda": "cuda", "tpu": "tpu"},
    "variables": {
        "JAX_PLATFORMS": "{device}", "PJRT_NPROC": "{threads}", "NPROC": "{threads}", "XLA_FLAGS": "",
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false", "JAX_ENABLE_X64": "0",
    },
    "refusals": ["Unknown flags? in XLA_FLAGS: [^\\n]*"],
}  # fmt: skip
FORMATS: dict[str, Any] = {
    "fp32": np.float32, "fp16": np.float16, "bf16": ml_dtypes.bfloat16, "fp8e4m3": ml_dtypes.float8_e4m3fn,
    "fp8e5m2": ml_dtypes.float8_e5m2, "int64": np.int32, "int32": np.int32, "int16": np.int16, "int8": np.int8, "uint32": np.uint32,
    "uint16": np.uint16, "uint8": np.uint8, "bool": np.bool_, "complex64": np.complex64,
}  # fmt: skip
"""JAX's formats by our names; int64, which is used for indices, has 32 bits in JAX by default."""
NAMES: dict[Any, str] = {np.dtype(kind): name for name, kind in FORMATS.items()} | {np.dtype(np.float64): "fp64"}
PLAIN_KINDS = "biufc"
DEVICE_MEMORY = ("bytes_in_use", "peak_bytes_in_use", "pool_bytes", "bytes_limit")
DRAWN_THERE = 2**18
"""Arrays with at least this many numbers are drawn faster on a device than on the host."""
PLATFORMS = {"cpu": "cpu", "cuda": "gpu", "tpu": "tpu"}
"""JAX's names for our kinds of devices."""


def in_double(on: bool) -> Any:
    """Return a context in which JAX computes in double precision or does not; older versions have it in `jax.experimental`."""
    found = getattr(jax, "enable_x64", None)
    return found(on) if callable(found) else jax.experimental.enable_x64(on)


def is_array(value: Any) -> bool:
    """Whether a value is a JAX array with data, not one that is only traced."""
    return isinstance(value, jax.Array) and not isinstance(value, getattr(jax.core, "Tracer", ()))


@dataclass(frozen=True)
class Awaited:
    """A function that passes on replaced arguments, and whose call ends when its results are computed."""

    started: Callable[..., Any]
    places: Places

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.places.instead:
            args, kwargs = self.places.all((args, kwargs))
        return jax.block_until_ready(self.started(*args, **kwargs))


class ReadyStopwatch(Stopwatch):
    """A stopwatch for calls that are handed over when they return, and done when their results are computed."""

    asynchronous = True

    def __init__(self) -> None:
        self._began = CompileWork()

    def timed(self, fn: Callable[..., Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> tuple[int, Any]:
        start = clocks.perf_counter_ns()
        out = jax.block_until_ready(fn(*args, **(kwargs or {})))
        return clocks.perf_counter_ns() - start, out

    def finish(self, out: Any) -> None:
        jax.block_until_ready(out)

    def await_inputs(self, inputs: Any) -> None:
        jax.block_until_ready(inputs)

    def count_anew(self) -> None:
        self._began = COMPILATIONS.read()

    def counts(self) -> dict[str, Any]:
        return {"xla": asdict(COMPILATIONS.read().since(self._began))}


class Jax(Backend):
    """JAX on one device; every variant is compared with one exact reference."""

    name = "jax"
    install = "steelyard env create jax"
    exactly = True
    compiles_always = True

    def open(self) -> None:
        try:
            self.spot = jax.devices(PLATFORMS.get(self.device, self.device))[0]
        except (RuntimeError, AssertionError) as error:
            why, do = " ".join(str(error).split())[:300], "install a jax with support for it: see JAX's installation guide"
            raise Unsupported(f"JAX {jax.__version__} has no {self.device} device here", why=why, do=do) from error
        jax.config.update("jax_default_device", self.spot)
        self.places = Places()
        self._lowered: Callable[[], Any] | None = None
        self._first: tuple[CompileWork, float] | None = None

    def array(self, data: np.ndarray[Any, Any], dtype: str) -> Any:
        if dtype not in FORMATS:
            why = "JAX computes in half that width by default" if dtype in ("fp64", "uint64", "complex128") else ""
            raise Unsupported(f"backend jax has no {dtype}", why=why, do="choose another dtype, or backend torch or numpy")
        data = np.asarray(data)
        if dtype == "int64" and data.size and np.abs(data).max() >= 2**31:
            raise Unsupported("these integers do not fit into the 32 bits that they have in JAX", do="use backend torch")
        return jax.device_put(data.astype(FORMATS[dtype]), self.spot)

    def randn(self, *shape: int, dtype: str = "fp32", scale: float = 1.0) -> Any:
        if self.device != "cuda" or math.prod(shape) < DRAWN_THERE or FORMATS.get(canonical(dtype)) is None:
            return super().randn(*shape, dtype=dtype, scale=scale)
        with in_double(True):
            return _jax_numbers.normals(self._stream(), shape, scale, FORMATS[canonical(dtype)])

    def leaf(self, value: Any) -> tuple[str, np.ndarray[Any, Any]] | None:
        if not is_array(value):
            return None
        value = self.places.now(value)
        step = step_through(value.size)
        with in_double(True) if value.dtype == np.float64 else contextlib.nullcontext():
            host = np.asarray(value if step <= 1 else value.reshape(-1)[::step])
        name = NAMES.get(host.dtype, str(host.dtype))
        return name, host if host.dtype.kind in PLAIN_KINDS else host.astype(np.float32)

    def now(self, value: Any) -> Any:
        return self.places.now(value)

    def fingerprint(self, value: Any) -> str | None:
        """Return the identity of an array, which is enough because arrays of JAX cannot be changed."""
        return f"{id(self.places.now(value)):x}" if is_array(value) else super().fingerprint(value)

    def rounds_to_tf32(self, task: Task) -> bool:
        return self.device == "cuda" and jax.config.jax_default_matmul_precision in (None, "default", "fastest", "tensorfloat32")

    def formats_within(self, fn: Callable[..., Any], args: Sequence[Any]) -> set[str]:
        return {NAMES.get(kind, str(kind)) for kind in formats_within(fn, args)}

    def alter(self, value: Any, change: Callable[[Any], Any]) -> bool:
        if not is_array(value):
            return super().alter(value, change)
        held = self.places.now(value)
        wanted = jnp.asarray(change(held)).astype(held.dtype)
        self.places.put(value, jax.device_put(wanted, self.spot))
        return True

    def copy(self, value: Any, buffers: dict[Any, Any] | None = None) -> Any:
        if not is_array(value):
            return super().copy(value, buffers)
        made = jax.device_put(self.places.now(value), self.spot, may_alias=False)
        return made if buffers is None else buffers.setdefault(id(value), made)

    def drawn_again(self, value: Any) -> Any:
        if is_array(value) and jnp.issubdtype(value.dtype, jnp.floating):
            return self.array(self._numbers().normals(value.size).reshape(value.shape), NAMES[value.dtype])
        return super().drawn_again(value)

    def fixed(self, value: Any) -> bool:
        return isinstance(value, (Awaited, Places)) or hasattr(value, "lower") or super().fixed(value)

    def timer(self) -> Timer:
        if self.device == "cpu":
            return WaitedTimer(self.threads)
        return QueueTimer(self.threads, lambda task: task.fn.started if isinstance(task.fn, Awaited) else None)

    def stopwatch(self, *, flush: Range | None = None) -> Stopwatch:
        if flush is not None:
            raise Unsupported("backend jax has no way to flush a cache")
        return ReadyStopwatch()

    def unwaited(self, task: Task) -> Task:
        return replace(task, fn=task.fn.started) if isinstance(task.fn, Awaited) else task

    def jitted(self, fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Callable[..., Any]:
        """Return a whole call compiled by jax.jit: arrays are its inputs, and everything else is a constant."""
        still = [place for place, item in enumerate(args) if not _has_arrays(item)]
        named = [name for name, item in kwargs.items() if not _has_arrays(item)]
        made: Callable[..., Any] = jax.jit(fn, static_argnums=still, static_argnames=named)
        return made

    def in_mode(self, task: Task, mode: str) -> Task:
        if task.fn is None:
            return task
        if mode not in ("eval", "call", "train"):
            raise NotApplicable(f"backend jax has no mode {mode}", do="--mode eval or train: jax.grad computes both passes at once")
        started = task.fn.started if isinstance(task.fn, Awaited) else task.fn
        if mode == "train":
            step, make = _jax_modes.train(self, task)
            return self._watched(step, None, make)
        return self._watched(replace(task, fn=Awaited(started, self.places)), started)

    def _watched(self, task: Task, program: Callable[..., Any] | None, make: Callable[[], Any] | None = None) -> Task:
        """Return a task whose first call is split into the phases of compiling and the rest.

        `make` is the first call where verification looks at another call.
        """
        before, earlier, call = COMPILATIONS.read(), task.inspect, task.observe or replace(task, scope=None)
        lowered = getattr(program, "lower", None)
        self._first = None
        self._lowered = (lambda: lowered(*task.args, **task.kwargs)) if lowered else None

        def observe() -> Any:
            start, out = clocks.perf_counter(), None
            if self._first is None:
                out = (make or call)()
                self._first = COMPILATIONS.read().since(before), clocks.perf_counter() - start
                return call() if make else out
            return call()

        def inspect() -> dict[str, Any]:
            work = self._first[0] if self._first else COMPILATIONS.read().since(before)
            return {**(earlier() if earlier else {}), "xla": asdict(work)}

        return replace(task, observe=observe, inspect=inspect)

    def beside(self, task: Task, timer: Timer, seconds: float, settings: Settings) -> tuple[dict[str, Figure], dict[str, Any]]:
        """Return the phases of the first call, XLA's analysis of the program, and the process's memory as the kernel counts it."""
        facts: dict[str, Any] = {"host_memory": host_memory()}
        if stats := self.spot.memory_stats():
            facts["device_memory"] = {name: stats[name] for name in DEVICE_MEMORY if name in stats}
        if self._first is None:
            return {}, facts
        work, whole = self._first
        phases = {f"{name}_time": spent for name, spent in asdict(work).items() if name != "programs" and spent}
        phases["first_run_time"] = max(0.0, whole - sum(phases.values()))
        figures = {name: Figure(value, "s", "lower", n=1) for name, value in phases.items()}
        told = self._analysis()
        if "memory" in told:
            figures["program_memory"] = Figure(float(sum(told["memory"].values())), "B", "lower", n=1)
        return figures, {**facts, "xla": {**asdict(work), **told}}

    def _analysis(self) -> dict[str, Any]:
        """Return XLA's counts of operations, bytes and memory; JAX keeps the compiled program, so nothing is compiled again."""
        if self._lowered is None:
            return {}
        try:
            program = self._lowered().compile()
            cost, held = program.cost_analysis(), program.memory_analysis()
        except (RuntimeError, NotImplementedError, jax.errors.JaxRuntimeError):
            return {}
        cost = cost[0] if isinstance(cost, (list, tuple)) else cost
        found: dict[str, Any] = {name: cost[key] for name, key in (("flops", "flops"), ("bytes", "bytes accessed")) if key in (cost or {})}
        parts = {part: getattr(held, f"{part}_size_in_bytes", 0) for part in ("argument", "output", "temp", "generated_code")}
        return {**found, "memory": parts} if held is not None else found

    def program_sizes(self) -> dict[str, float]:
        """Return XLA's code size, or that of the serialized program where XLA reports none, as on a CPU; and the planned memory."""
        if self._lowered is None:
            return {}
        program = self._lowered().compile()
        parts = self._analysis().get("memory", {})
        code = parts.get("generated_code", 0) or len(program.runtime_executable().serialize())
        return {"code_size": float(code), **({"program_memory": float(sum(parts.values()))} if parts else {})}

    def graph_texts(self, call: Callable[[], Any], form: GraphForm) -> dict[str, str]:
        if self._lowered is None or form == "text":
            what = "a whole call is not a single program" if form != "text" else "JAX has no graphs of that form"
            raise Unsupported(what, do="--dump-ir hlo, stablehlo or optimized, with the variant jit")
        call()
        made = self._lowered()
        text = made.compile().as_text() if form == "optimized" else made.as_text(dialect=form)
        return {"1": str(text)}

    def upcast(self, task: Task) -> Task | None:
        if task.fn is None:
            return None
        plain = task.fn.started if isinstance(task.fn, Awaited) else task.fn
        plain = getattr(plain, "__wrapped__", plain)
        known: dict[int, Any] = {}
        with in_double(True):
            args, kwargs, weights = (self._doubled(part, known) for part in (tuple(task.args), dict(task.kwargs), tuple(task.parameters)))
        scope = nested(task.scope, functools.partial(in_double, True))
        return replace(task, fn=KeptProgram(plain), args=args, kwargs=kwargs, parameters=weights, scope=scope, inspect=None)

    def _doubled(self, value: Any, known: dict[int, Any]) -> Any:
        """Return the same structure in double precision; an array that occurs twice stays one array, so that weights are found by identity.

        On a CPU numpy converts the numbers, because JAX would compile a program for each shape.
        """

        def wide(item: Any) -> Any:
            if not is_array(item) or not jnp.issubdtype(item.dtype, jnp.floating):
                return item
            if id(item) not in known:
                now = self.places.now(item)
                near = self.device == "cpu"
                known[id(item)] = jax.device_put(np.asarray(now).astype(np.float64), self.spot) if near else now.astype(jnp.float64)
            return known[id(item)]

        return jax.tree_util.tree_map(wide, value)

    def answer(self, task: Task, mode: str, calls: int) -> Any:
        ready = self.in_mode(task, mode)
        if mode == "train":
            out = None
            for _ in range(calls):
                out = ready.fn(*ready.args, **ready.kwargs) if ready.fn else None
            return out
        return super().answer(ready, "eval", calls)

    def sync(self) -> None:
        with contextlib.suppress(RuntimeError):
            jax.effects_barrier()

    def start_memory(self) -> None:
        if self.device == "cpu":
            super().start_memory()
        self._peak_before = self._peak()

    def peak_memory(self) -> dict[str, float]:
        """Return the device's peak; JAX cannot reset it, so it is unknown if an earlier peak was as high."""
        if self.device == "cpu":
            return super().peak_memory()
        peak = self._peak()
        return {"peak_allocated": peak} if peak > self._peak_before else {}

    def _peak(self) -> float:
        return float((self.spot.memory_stats() or {}).get("peak_bytes_in_use", 0.0))

    def graphs(self) -> int:
        return COMPILATIONS.programs

    @classmethod
    def reset(cls) -> None:
        forget_programs()

    def facts(self) -> dict[str, Any]:
        return {"device": str(self.spot.device_kind), "platform": self.spot.platform}

    def versions(self) -> dict[str, str]:
        own = {"jax": jax.__version__, "jaxlib": version("jaxlib"), "device": str(self.spot.device_kind)}
        return {**own, "runtime": str(getattr(self.spot.client, "platform_version", "")).split("\n")[0], "numpy": np.__version__,
                "python": platform.python_version()}  # fmt: skip


def _has_arrays(item: Any) -> bool:
    return any(isinstance(leaf, (jax.Array, np.ndarray)) for leaf in jax.tree_util.tree_leaves(item))


BACKEND = Jax
