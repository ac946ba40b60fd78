"""Records the operators of a call at torch's dispatcher, so that a variant can check whether it changed anything.

Calls are watched while the task is built, never while it is timed, and their changes to tensors are undone.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from steelyard.model.task import Scope, Task
from steelyard.variants.wrap import arrays, body_of


@dataclass(frozen=True)
class Form:
    """Format and layout of a tensor that an operator takes or returns."""

    dtype: str
    channels_last: bool


@dataclass(frozen=True)
class ObservedStep:
    """One operator that ran; its name has no namespace or overload."""

    op: str
    takes: tuple[Form, ...]
    gives: tuple[Form, ...]


@dataclass(frozen=True)
class ObservedCall:
    """The operators and the output of one call, or its error; a call without a watch raises the same error."""

    steps: Counter[ObservedStep] = field(default_factory=Counter)
    output: Any = None
    error: Exception | None = None

    @property
    def ops(self) -> set[str]:
        """Names of all operators in the call."""
        return {step.op for step in self.steps}

    def beyond(self, other: ObservedCall) -> Counter[ObservedStep]:
        """Return steps that the other call did not take, or took less often; steps of the other alone (such as caching) do not count."""
        return self.steps - other.steps


def watch(task: Task, be: Any, inner: Scope | None = None) -> ObservedCall:
    """Call the task once in its scope, and in `inner` if given, and record every operator that reaches a kernel.

    Compiled functions run eagerly: a compiler gives up under a watch, and remembers that later. If only this call loaded the compiler,
    its memory is cleared and the call is repeated.
    """
    import torch

    awake = _compiler_loaded()
    seen = _watched(task, be, inner)
    if awake or not _compiler_loaded():
        return seen
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    return _watched(task, be, inner)


def _watched(task: Task, be: Any, inner: Scope | None) -> ObservedCall:
    import torch

    fn, notes = body_of(task), _notebook()
    if task.prepare:
        task.prepare()
    try:
        with _as_written(), _same_chance(be), torch.no_grad(), (task.scope or nullcontext)(), (inner or nullcontext)(), notes:
            output = fn(*task.args, **task.kwargs)
        be.sync()
        return ObservedCall(notes.steps, output)
    except Exception as error:
        return ObservedCall(error=error)
    finally:
        notes.undo()
        if be.device != "cpu":
            be.release_memory()


def differ(task: Task, be: Any, plain: ObservedCall, scoped: ObservedCall) -> bool:
    """Whether a call in a scope takes other steps than the plain task or, because operators may hide their kernels, gives another answer.

    Answers that differ from call to call anyway do not count. A call that failed under the watch counts as different.
    """
    if plain.error or scoped.error or scoped.beyond(plain):
        return True
    return not same(plain.output, scoped.output) and same(plain.output, watch(task, be).output)


def same(one: Any, other: Any) -> bool:
    """Whether the dense tensors of two outputs are equal; NaN equals NaN, and other tensors are not compared."""
    import torch

    mine, theirs = ([item for item in arrays(each) if item.layout is torch.strided] for each in (one, other))
    if [(item.dtype, item.shape) for item in mine] != [(item.dtype, item.shape) for item in theirs]:
        return False
    return all(bool(((a == b) | ((a != a) & (b != b))).all()) for a, b in zip(mine, theirs, strict=True))


def _as_written() -> AbstractContextManager[Any]:
    """Return a context in which compiled functions run eagerly, if the compiler is loaded."""
    import torch

    return torch.compiler.set_stance("force_eager") if _compiler_loaded() else nullcontext()


def _compiler_loaded() -> bool:
    return "torch._dynamo" in sys.modules


def _same_chance(be: Any) -> AbstractContextManager[Any]:
    """Return a context that restores the state of the random number generators."""
    import torch

    kind = be.where.type
    devices = [be.where.index] if kind in ("cuda", "xpu") else []
    return torch.random.fork_rng(devices, device_type=kind if devices else "cuda")  # type: ignore[no-any-return]


def _notebook() -> Any:
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class Notebook(TorchDispatchMode):
        """Records what is dispatched, and keeps a copy of every tensor before it is overwritten.

        Composite operators are split into their parts: in inference mode they arrive whole, which hides the kernels they choose.
        """

        supports_higher_order_operators = True

        def __init__(self) -> None:
            super().__init__()
            self.steps: Counter[ObservedStep] = Counter()
            self.made: set[int] = set()
            self.kept: dict[Any, tuple[Any, Any]] = {}

        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            """Return False: otherwise the first operator imports the compiler, which takes seconds."""
            return False

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            if isinstance(func, torch._ops.OpOverload):
                if torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"):
                    with self:
                        return func._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, *args, **kwargs)
                self.keep(func._schema, args, kwargs)
            out = func(*args, **kwargs)
            takes, gives = list(arrays([args, kwargs])), list(arrays(out))
            self.made |= {_home(item) for item in gives} - {_home(item) for item in takes}
            name = func._schema.name.split("::")[-1] if isinstance(func, torch._ops.OpOverload) else str(func)
            self.steps[ObservedStep(name, tuple(map(_form, takes)), tuple(map(_form, gives)))] += 1
            return out

        def keep(self, schema: Any, args: Any, kwargs: Mapping[str, Any]) -> None:
            for item in _written(schema, args, kwargs):
                home = _home(item)
                place = (home, item.storage_offset(), item.shape, item.stride()) if home else None
                if home and home not in self.made and place not in self.kept:
                    self.kept[place] = (item, item.clone())

        def undo(self) -> None:
            with torch.inference_mode():
                for item, before in reversed(self.kept.values()):
                    item.copy_(before)

    return Notebook()


def _written(schema: Any, args: Any, kwargs: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the tensors that an operator writes to."""
    if schema.is_mutable:
        for place, argument in enumerate(schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                yield from arrays(args[place] if place < len(args) else kwargs.get(argument.name))


def _home(item: Any) -> int:
    """Return the id of a tensor's storage, valid while the storage exists; 0 for tensors without one, such as sparse tensors."""
    try:
        return int(item.untyped_storage()._cdata)
    except (NotImplementedError, RuntimeError):
        return 0


def _form(item: Any) -> Form:
    import torch

    flat = item.layout is torch.strided and not item.is_nested and item.ndim == 4
    turned = flat and item.is_contiguous(memory_format=torch.channels_last) and not item.is_contiguous()
    return Form(str(item.dtype).removeprefix("torch."), turned)
