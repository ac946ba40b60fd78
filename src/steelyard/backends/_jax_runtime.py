"""JAX's own counters: programs traced, lowered and compiled so far, and the clock that waits for its threads."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass
from typing import Any

import jax
import numpy as np

from steelyard import clocks
from steelyard.measuring.clock import HostTimer, Loop, scoped
from steelyard.model.task import Task

EVENTS = {
    "/jax/core/compile/jaxpr_trace_duration": "tracing",
    "/jax/core/compile/jaxpr_to_mlir_module_duration": "lowering",
    "/jax/core/compile/backend_compile_duration": "compiling",
}


@dataclass(frozen=True)
class CompileWork:
    """Seconds that went into each phase so far, and how many programs were compiled."""

    tracing: float = 0.0
    lowering: float = 0.0
    compiling: float = 0.0
    programs: int = 0

    def since(self, earlier: CompileWork) -> CompileWork:
        """Return the work done since an earlier reading."""
        return CompileWork(*(now - then for now, then in zip(astuple(self), astuple(earlier), strict=True)))


class Compilations:
    """Counts JAX's compile events from the moment the backend is loaded; there is one instance per process."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(EVENTS.values(), 0.0)
        self.programs = 0
        jax.monitoring.register_event_duration_secs_listener(self.hear)

    def hear(self, name: str, seconds: float, **more: Any) -> None:
        """Count one event that JAX reports."""
        phase = EVENTS.get(name)
        if phase is not None:
            self.seconds[phase] += seconds
            self.programs += phase == "compiling"

    def read(self) -> CompileWork:
        """Return the present counters."""
        return CompileWork(**self.seconds, programs=self.programs)


COMPILATIONS = Compilations()
_COMPILED: dict[str, Any] = {}
PRODUCTS = ("dot_general", "conv_general_dilated")
CONSTANT = "jax.const"
"""Marks an argument of a program that is a constant of the function."""
MOST_HELD = 2**24
"""Most bytes of constants that are hashed to recognise a program; a program with more is compiled each time."""
LESS_EFFORT = {"gpu": {"xla_gpu_autotune_level": 0}, "cpu": {"xla_backend_optimization_level": 0}}
"""XLA options for a program that is called only a few times: no autotuning of kernels, no optimization of machine code."""


class KeptProgram:
    """A whole call that is compiled once however often it is rebuilt: programs are cached by their text, not by function as JAX does.

    Used for references, which are rebuilt for every set of values that is tried, and which at large sizes take longer to compile
    than to run. The values of arrays that the function holds are part of the key; if those are large or not found, it is compiled
    each time.
    """

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.__wrapped__ = fn

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        program, arrays = self.of_arrays(args, kwargs)
        traced = program.trace(*arrays)
        lowered = traced.lower()
        text = lowered.as_text()
        held = constants(traced.jaxpr)
        readable = all(isinstance(item.dtype, np.dtype) for item in held) and sum(item.nbytes for item in held) <= MOST_HELD
        if not readable or (CONSTANT in text and not held):
            return quickly_compiled(lowered)(*arrays)
        digest = hashlib.sha256(f"{lowered.out_tree}\n{text}".encode())
        for item in held:
            digest.update(f"{item.dtype} {item.shape}".encode() + np.asarray(item).tobytes())
        if digest.hexdigest() not in _COMPILED:
            _COMPILED[digest.hexdigest()] = quickly_compiled(lowered)
        return _COMPILED[digest.hexdigest()](*arrays)

    def lower(self, *args: Any, **kwargs: Any) -> Any:
        """Return the lowered call, not yet compiled."""
        program, arrays = self.of_arrays(args, kwargs)
        return program.lower(*arrays)

    def of_arrays(self, args: Any, kwargs: Any) -> tuple[Any, list[Any]]:
        """Return the call as a function of all its arrays, and the arrays: programs with the same text then compute the same."""
        leaves, shape = jax.tree_util.tree_flatten((args, kwargs))
        places = [place for place, item in enumerate(leaves) if isinstance(item, (jax.Array, np.ndarray))]
        arrays = [leaves[place] for place in places]
        others = {place: None if place in set(places) else item for place, item in enumerate(leaves)}

        def call(*given: Any) -> Any:
            args, kwargs = jax.tree_util.tree_unflatten(shape, list({**others, **dict(zip(places, given, strict=True))}.values()))
            return self.__wrapped__(*args, **kwargs)

        return jax.jit(call, keep_unused=True), arrays


def quickly_compiled(lowered: Any) -> Any:
    """Compile with less effort; an XLA without these options compiles as usual."""
    if options := LESS_EFFORT.get(jax.default_backend()):
        with contextlib.suppress(jax.errors.JaxRuntimeError, ValueError):
            return lowered.compile(compiler_options=options)
    return lowered.compile()


def constants(closed: Any) -> list[Any]:
    """Return the arrays held by a program and the programs within it; newer versions of JAX hold single numbers too."""
    found = list(getattr(closed, "consts", ()))
    for step in getattr(closed, "jaxpr", closed).eqns:
        found += [item.val for item in step.invars if hasattr(item, "val")]
        for inner in _inner(step):
            found += constants(inner)
    return [item if hasattr(item, "nbytes") else np.asarray(item, item.dtype) for item in found if hasattr(item, "dtype")]


def formats_within(fn: Callable[..., Any], args: Sequence[Any]) -> set[Any]:
    """Return the formats of arrays that a function holds or multiplies; those of all its values if there are none.

    Empty for a function that cannot be traced.
    """
    program, arrays = KeptProgram(fn).of_arrays(tuple(args), {})
    try:
        closed = program.trace(*arrays).jaxpr
    except Exception:
        return set()
    steps = list(_steps(closed.jaxpr))
    read = [item for step in steps for item in step.invars if step.primitive.name in PRODUCTS or getattr(item, "val", item) is not item]
    held = {item.dtype for item in closed.consts if hasattr(item, "dtype")} | {item.aval.dtype for item in read if _is_array(item)}
    return held or {item.aval.dtype for step in steps for item in step.outvars if hasattr(item.aval, "dtype")}


def _is_array(item: Any) -> bool:
    return bool(getattr(item.aval, "shape", ()))


def _steps(program: Any) -> Iterator[Any]:
    """Yield all steps of a program and of the programs within it."""
    for step in program.eqns:
        yield step
        for inner in _inner(step):
            yield from _steps(getattr(inner, "jaxpr", inner))


def _inner(step: Any) -> list[Any]:
    """The programs within a step."""
    return [item for item in jax.tree_util.tree_leaves(list(step.params.values()), is_leaf=_is_program) if _is_program(item)]


def _is_program(item: Any) -> bool:
    return hasattr(item, "eqns")


def forget_programs() -> None:
    """Drop compiled programs, so that they are compiled again when called."""
    jax.clear_caches()
    _COMPILED.clear()


class WaitedTimer(HostTimer):
    """The host's clock for work that JAX's threads do; a block during which XLA compiled is discarded."""

    def __init__(self, threads: int = 1) -> None:
        super().__init__(threads=max(2, threads))

    def disturbances(self) -> int:
        return COMPILATIONS.programs


class QueueTimer(WaitedTimer):
    """A `WaitedTimer` for accelerators: calls are queued back to back, as in a program, and only the last one is waited for.

    `started` returns a task's function that returns once its work is queued, or None if the task has no such form.
    """

    def __init__(self, threads: int, started: Callable[[Task], Callable[..., Any] | None]) -> None:
        super().__init__(threads)
        self.started = started

    def bind(self, task: Task) -> Loop:
        """Return a loop that waits once, after its last call, where calls may be queued."""
        hand_over = self.started(task) if task.prepare is None and not task.times_itself else None
        if hand_over is None:
            return super().bind(task)
        args, kwargs = task.args, dict(task.kwargs)

        def loop(n: int) -> int:
            start = clocks.perf_counter_ns()
            for _ in range(n):
                out = hand_over(*args, **kwargs)
            jax.block_until_ready(out)
            return clocks.perf_counter_ns() - start

        return scoped(loop, task)
