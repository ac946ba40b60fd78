"""A prepared call as a Task: what restores its inputs, what gradients flow to, and what its answer is compared with."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch

from steelyard.backends._torch_modes import tensors
from steelyard.backends.torch import NAMES
from steelyard.errors import Unsupported
from steelyard.model.task import Task
from steelyard.workloads.operators.call import Call, sow

LONGEST = 160
APART = 15_485_863
NOT_UNIQUE = {
    "topk", "sort", "argsort", "msort", "mode", "median", "nanmedian", "kthvalue", "unique", "svd", "svd_lowrank", "pca_lowrank", "lobpcg",
}  # fmt: skip
ILL_CONDITIONED = {
    "inverse", "pinverse", "det", "logdet", "slogdet", "cholesky", "cholesky_inverse", "cholesky_solve", "lu_solve", "qr",
}  # fmt: skip
IN_STEPS = {"remainder", "fmod", "floor_divide", "nextafter", "frexp", "histc", "histogram", "bucketize", "fake_quantize_per_tensor_affine"}
SAFE_ALGEBRA = {"matmul", "vecdot", "multi_dot", "norm", "vector_norm", "matrix_norm", "cross", "diagonal", "matrix_power", "vander"}


def task_of(made: Call, mode: str, first: Mapping[int, Any]) -> Task:
    """The call as a task in a mode.

    Arguments that do not require a gradient are given by name, because positional ones get one; tensors are taken out of lists
    if a double-precision form must find them.
    """
    fn, args, kwargs = made.forward, tuple(made.args), dict(made.kwargs)
    weights = tuple(item for item in weights_of(fn) if item.requires_grad)
    if isinstance(fn, torch.nn.Module):
        args, kwargs = (args, kwargs) if mode == "eval" else _constants_by_name(fn, args, kwargs)
        return Task(fn, args, kwargs, parameters=weights, prepare=restoring(made, first))
    inputs = tuple(item for item in tensors([made.args, made.kwargs]) if item.requires_grad and item.is_leaf)
    fixed = any(item.is_floating_point() and not item.requires_grad for item in tensors(made.args))
    nested = any(not isinstance(item, torch.Tensor) and tensors(item) for item in (*args, *kwargs.values()))
    if mode != "eval" and (fixed or (nested and mode != "fwd")):
        fn, args, kwargs = _flattened(fn, args, kwargs)
    held = getattr(made.operator, "parameters", None)
    weights = tuple(item for item in held() if item.requires_grad) if callable(held) else weights
    return Task(fn, args, kwargs, parameters=(*weights, *inputs), prepare=restoring(made, first))


def recorded(output: Any) -> list[Any]:
    """Every recorded step of the backward pass from an output."""
    seen: dict[Any, None] = {}
    queue = [item.grad_fn for item in tensors(output)]
    while queue:
        node = queue.pop()
        if node is not None and node not in seen:
            seen[node] = None
            queue += [following for following, _ in node.next_functions]
    return list(seen)


def without_derivative(output: Any) -> str:
    """The reason why an output that was recorded has no backward pass; empty if it has one."""
    steps = recorded(output)
    if any("NotImplemented" in step.name() for step in steps):
        return "no derivative is written for it"
    return "" if steps else "no output has a gradient"


def weights_of(fn: Any) -> Iterator[Any]:
    """The weights of a module; a function has none."""
    if isinstance(fn, torch.nn.Module):
        yield from fn.parameters()


def kept(made: Call) -> dict[int, Any]:
    """Copies of the arguments of a call that overwrites some, from before the first call."""
    return {id(item): item.detach().clone() for item in tensors([made.args, made.kwargs])} if made.in_place else {}


def restoring(made: Call, first: Mapping[int, Any]) -> Callable[[], None] | None:
    """A function that puts arguments back as they were first: their numbers, and if a call changes them, shape and strides."""
    pairs = [(item, first[id(item)], _lies(item)) for item in tensors([made.args, made.kwargs]) if id(item) in first]

    def restore() -> None:
        with torch.no_grad():
            for item, before, lay in pairs:
                if _lies(item) != lay:
                    item.as_strided_(*lay)
                item.copy_(before)

    return restore if pairs else None


def _lies(item: Any) -> tuple[Any, ...]:
    """Shape, strides and offset of a tensor; empty if its layout is not strided."""
    return (item.shape, item.stride(), item.storage_offset()) if item.layout is torch.strided else ()


def _constants_by_name(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    first = next((place for place, item in enumerate(args) if _is_constant(item)), len(args))
    names = list(inspect.signature(module.forward).parameters.values())[first : len(args)]
    if len(names) < len(args) - first or any(name.kind is not name.POSITIONAL_OR_KEYWORD for name in names):
        return args, kwargs
    return args[:first], {**{name.name: item for name, item in zip(names, args[first:], strict=True)}, **kwargs}


def _is_constant(item: Any) -> bool:
    return isinstance(item, torch.Tensor) and item.is_floating_point() and not item.requires_grad


@dataclass(frozen=True)
class TensorPlace:
    """Where a tensor was in nested arguments."""

    key: int | str


def _flattened(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """The same call with every tensor as a separate argument: those with a gradient by position, all others by name."""
    moving: list[Any] = []
    named: dict[str, Any] = {}

    def taken(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            if value.requires_grad:
                moving.append(value)
                return TensorPlace(len(moving) - 1)
            named[f"constant_{len(named)}"] = value
            return TensorPlace(f"constant_{len(named) - 1}")
        return type(value)(map(taken, value)) if type(value) in (list, tuple) else value

    places, names = [taken(item) for item in args], {key: taken(item) for key, item in kwargs.items()}

    def put(value: Any, given: Sequence[Any], constants: Mapping[str, Any]) -> Any:
        if isinstance(value, TensorPlace):
            return given[value.key] if isinstance(value.key, int) else constants[value.key]
        return type(value)([put(item, given, constants) for item in value]) if type(value) in (list, tuple) else value

    def merged(*given: Any, **constants: Any) -> Any:
        whole = [put(item, given, constants) for item in places]
        return fn(*whole, **{key: put(item, given, constants) for key, item in names.items()})

    return merged, tuple(moving), named


def precise(task: Task, be: Any, first: Mapping[int, Any]) -> Callable[[], Any]:
    """The same call in double precision, if the operator has such a form.

    `first` has the overwritten arguments as they were: the answer of a call in place is its argument, which must not change.
    The call in double precision would overwrite them too, so it gets copies.
    """

    def fresh(item: Any) -> Any:
        return first[id(item)].clone() if id(item) in first else item

    def reference() -> Any:
        kwargs = {key: fresh(item) for key, item in task.kwargs.items()}
        wide = be.upcast(replace(task, args=tuple(map(fresh, task.args)), kwargs=kwargs))
        try:
            with torch.no_grad():
                return wide.fn(*wide.args, **wide.kwargs)
        except (RuntimeError, TypeError, ValueError) as error:
            raise Unsupported("the operator has no double-precision form", why=str(error).splitlines()[0]) from error

    return reference


def missing(why: str) -> Callable[[], Any]:
    """A function to use instead of a reference, which raises the reason why there is none."""

    def reference() -> Any:
        raise Unsupported(why)

    return reference


def why_unreferenced(op: str, task: Task) -> str:
    """Why an answer is not compared with double precision; empty if it is. Rounding must change it little, and it must be unique."""
    word = op.partition("::")[2].partition(".")[0] or op.rpartition(".")[2]
    algebra = op.startswith("torch.linalg.") or word.startswith("linalg_")
    if word in NOT_UNIQUE | ILL_CONDITIONED | IN_STEPS or (algebra and word.removeprefix("linalg_") not in SAFE_ALGEBRA):
        return f"rounding or an arbitrary choice may change the answer of {op}"
    arrays = [*tensors([task.args, dict(task.kwargs)]), *weights_of(task.fn)]
    if not any(item.is_floating_point() for item in arrays):
        return "there is nothing to round"
    if task.prepare is not None and any(not isinstance(item, torch.Tensor) and tensors(item) for item in task.args):
        return "the overwritten tensors are in a list"
    return "the operator works on short formats" if any(item.dtype.itemsize == 1 and item.is_floating_point() for item in arrays) else ""


def distance(seed: int) -> Callable[[Any], Any]:
    """A loss for outputs of any kind: the mean square distance from numbers drawn once.

    The mean square alone would hardly change with the output of a norm or a softmax, and gradients would be only rounding errors.
    """
    drawn: list[Any] = []

    def loss(output: Any) -> Any:
        parts = [item for item in tensors(output if isinstance(output, (list, tuple, Mapping)) else [output]) if item.is_floating_point()]
        if not drawn:
            chance = torch.Generator().manual_seed(seed)
            drawn.extend(torch.rand(item.shape, generator=chance).to(item.device) for item in parts)
        wide = [item if item.dtype == torch.float64 else item.float() for item in parts]
        return torch.stack([(item - target).square().mean() for item, target in zip(wide, drawn, strict=True)]).sum()

    return loss


def by_chance(task: Task, op: str, seed: int) -> Task:
    """A task for a call that draws random numbers: it starts from the same seed in each block, and is not verified.

    Compiled code draws other numbers from the same seed, and so may the same operator in another precision.
    """

    @contextmanager
    def scope() -> Iterator[None]:
        sow(seed + APART)
        yield

    return replace(task, scope=scope, unverified=f"answers of {op} are random")


def text_of(op: str, build: Any, made: Call) -> str:
    """The call as a person would write it, with tensors as format and shape."""
    built = f"({', '.join(_described(build))})" if isinstance(build, Mapping) else "()" if build is not None else ""
    given = [*map(shown, made.args), *(f"{key}={shown(value)}" for key, value in made.kwargs.items())]
    text = f"{op}{built}({', '.join(given)})"
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _described(spec: Mapping[str, Any]) -> list[str]:
    """Build arguments as the spec gives them, because they cannot be recovered from the built module."""
    given = [("", item) for item in spec.get("args", ())] + [(f"{key}=", item) for key, item in spec.get("kwargs", {}).items()]
    return [f"{key}{shown(item.get('value', item.get('type'))) if isinstance(item, Mapping) else '?'}" for key, item in given]


def shown(value: Any) -> str:
    """One argument as short text."""
    if isinstance(value, torch.Tensor):
        return f"{NAMES.get(value.dtype, str(value.dtype))}[{','.join(map(str, value.shape))}]"
    if isinstance(value, torch.dtype):
        return NAMES.get(value, str(value))
    if isinstance(value, (list, tuple)):
        inner = ", ".join([shown(item) for item in value])
        return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' * (len(value) == 1)})"
    if isinstance(value, Mapping):
        return shown(value.get("value", value.get("type")))
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:39]}…"
