"""One operator called with described arguments, as a workload and for other ways to run configurations."""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from steelyard.errors import NotApplicable, SteelyardError, Unsupported, UsageError, unknown
from steelyard.model.define import workload
from steelyard.model.operators import DataGenerator, Operator
from steelyard.model.task import Task

if TYPE_CHECKING:
    from steelyard.workloads.operators._cost import Steps

Spec = Mapping[str, Any]
Made = tuple[list[Any], dict[str, Any], dict[str, Any]]

SMALL = {"args": [{"type": "tensor", "dtype": "float", "shape": [256, 256]}] * 2}
USUAL = "DefaultDataGenerator"
SEEDS, APART = 1_000_003, 32_452_843
"""Weights and an operator's own numbers have other seeds than its inputs: from one seed they would be the same numbers."""
NUMPY_SEEDS, LARGEST_SEED = 1 << 32, 1 << 63
NO_META = ("meta", "data-dependent", "data dependent", "not implemented", "fake tensor")


@dataclass(frozen=True)
class Call:
    """An operator that was found and built, with its arguments; `forward(*args, **kwargs)` is the call itself.

    `operator` is the instance that was made, for its `backward()` and `create_grad()` if a user wrote them. `in_place`
    says that the call overwrites arguments, none of which then requires a gradient.
    """

    forward: Callable[..., Any]
    args: list[Any]
    kwargs: dict[str, Any]
    operator: Any
    kind: str = "user"
    in_place: bool = False
    drawn: Mapping[str, Any] = field(default_factory=dict)

    def cleanup(self) -> None:
        """Make the operator release its resources."""
        give_back = getattr(self.operator, "cleanup", None)
        if callable(give_back):
            give_back()


@dataclass(frozen=True)
class DescribedCall:
    """A call as a configuration describes it, with the operators and data generators that a user registered.

    `build` is None for operators that are not built, an empty list for a build without arguments, else a spec. `names` are
    those of the data generators for build and input; an empty name and PARAM's default mean ours. A spec may also name its
    own under `generator`. Everything is drawn from the seed.
    """

    op: str
    build: Any
    input: Spec
    registered: Mapping[str, Operator] = field(default_factory=dict)
    generators: Mapping[str, DataGenerator] = field(default_factory=dict)
    names: Sequence[str] = ("", "")
    seed: int = 0

    def prepare(self, device: str, *, grad: bool = True) -> Call:
        """Find the operator, build it if it needs that, and make its arguments; without `grad` none requires a gradient."""
        from steelyard.workloads.operators import _names

        found = _names.find(self.op, self.registered)
        if device != "meta":
            sow(self.seed + APART)
        instance = found.make()
        instance.device = device
        drawn = {} if self.build is None else self._build(found, instance, device)
        in_place = found.in_place or _asks_in_place(instance, self.input)
        grad = grad and not in_place and "out" not in self.input.get("kwargs", {})
        args, kwargs, more = self._generate(self.input, device, self.names[1], grad)
        forward, args, kwargs, writes = bound(instance, args, kwargs)
        return Call(forward, args, kwargs, instance, found.kind, in_place or writes, {**drawn, **more})

    def _build(self, found: Operator, instance: Any, device: str) -> dict[str, Any]:
        """Build the operator; returns the drawn build arguments."""
        make = getattr(instance, "build", None)
        spec: Spec = self.build if isinstance(self.build, Mapping) else {}
        if not callable(make):
            if spec.get("args") or spec.get("kwargs"):
                raise UsageError(f"{found.name} is called as it is; there is nothing to build", do="leave out build")
            return {}
        args, kwargs, drawn = self._generate(spec, device, self.names[0], False)
        try:
            make(*args, **kwargs)
        except TypeError as error:
            if found.kind == "user":
                raise
            raise UsageError(f"{found.name} cannot be built with these arguments", why=str(error).splitlines()[0]) from error
        return {f"build.{where}": value for where, value in drawn.items()}

    def _generate(self, spec: Spec, device: str, name: str, grad: bool) -> Made:
        """Arguments by the named generator: a user's, the usual one or that of the embedding tables."""
        from steelyard.workloads.operators import _embedding, _values

        plain = str(spec.get("generator") or name or USUAL)
        if plain in self.generators:
            return _by_user(self.generators[plain], spec, device)
        plain = plain.removeprefix("PyTorch").lstrip(":")
        if plain == _embedding.GENERATOR:
            return _embedding.generate(spec, device, self.seed)
        if plain != USUAL:
            raise unknown("data generator", plain, [*self.generators, USUAL, _embedding.GENERATOR])
        return _values.arguments(spec, device, self.seed, grad=grad)

    def examine(self) -> tuple[str, str]:
        """Why the call cannot run, or why that is unknown: names, build arguments and shapes are tried on a device without data.

        A missing library is not an error, nor is something that this device cannot do; users' own operators are not called.
        """
        from steelyard.workloads.operators import _names

        try:
            found = _names.find(self.op, self.registered)
            named = [spec.get("generator", "") for spec in (self.build, self.input) if isinstance(spec, Mapping)]
            if found.kind in ("user", "fbgemm"):
                return "", "an operator that is not torch's own is not called without data"
            if any(name in self.generators for name in (*self.names, *named)):
                return "", "a user's own data generator is not called"
            _called_once(self.prepare("meta"))
        except Unsupported as error:
            return "", str(error).replace("\n  ", "; ")
        except SteelyardError as error:
            told = (f"{error.where}: {error.what}" if error.where else error.what, error.why, error.do)
            return "; ".join(part for part in told if part), ""
        except NotImplementedError:
            return "", "it cannot be called without data"
        except Exception as error:
            text = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            return ("", text) if any(word in str(error).lower() for word in NO_META) else (text, "")
        return "", ""

    def without_data(self) -> tuple[Call, Steps]:
        """The same call on the device without data, and what it did there."""
        from steelyard.workloads.operators import _cost

        made = self.prepare("meta")
        return made, _cost.steps(made.forward, made.args, made.kwargs)


def sow(seed: int) -> None:
    """Seed the random numbers that no argument draws: those of weights, of random operators and of users' own code."""
    from steelyard.backends import _torch_seeds

    random.seed(seed)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(seed % NUMPY_SEEDS)
    _torch_seeds.seed_awake(seed)


def _by_user(generator: DataGenerator, spec: Spec, device: str) -> Made:
    made = generator.make(spec, device)
    if not (isinstance(made, (tuple, list)) and len(made) == 2 and isinstance(made[0], (list, tuple)) and isinstance(made[1], Mapping)):
        raise UsageError(f"data generator {generator.name} returned {type(made).__name__}", do="return a list and a dictionary")
    return list(made[0]), dict(made[1]), {}


def _asks_in_place(instance: Any, input: Spec) -> bool:
    """Whether `inplace` is set; some operators overwrite their argument only then."""
    told = input.get("kwargs", {}).get("inplace", {})
    return bool(isinstance(told, Mapping) and told.get("value")) or bool(getattr(getattr(instance, "module", None), "inplace", False))


def _examine(params: Spec, loaded: Any) -> tuple[str, str]:
    return DescribedCall(params["op"], params["build"], params["input"], loaded.operators, loaded.generators).examine()


def bound(instance: Any, args: list[Any], kwargs: dict[str, Any]) -> tuple[Callable[..., Any], list[Any], dict[str, Any], bool]:
    """The function to call for an operator, its arguments, and whether its schema says that it overwrites some of them."""
    import torch

    from steelyard.workloads.operators import _aten, _builtin

    if isinstance(instance, _builtin.Layer):
        return instance.filled(args, kwargs), args, kwargs, False
    if isinstance(instance, _aten.Aten):
        forward, args, kwargs = instance.choose(args, kwargs)
        return forward, args, kwargs, _aten.writes(forward._schema)
    return (instance if isinstance(instance, torch.nn.Module) else instance.forward), args, kwargs, False


def _called_once(made: Call) -> None:
    """Call it on tensors without data; raises what the call raises.

    A plain call takes a fifth of the time of one whose kernels are watched. A call without tensor arguments would make tensors with
    data, so it is watched, and so is a call that fails: some part of it may have done that.
    """
    import torch

    from steelyard.backends._torch_modes import tensors
    from steelyard.workloads.operators import _cost

    if tensors([made.args, made.kwargs]):
        with contextlib.suppress(Exception), torch.no_grad():
            made.forward(*made.args, **made.kwargs)
            return
    _cost.steps(made.forward, made.args, made.kwargs)


@workload(
    "call/torch",
    axes={"op": ["torch.add"], "build": [None], "input": [SMALL], "seed": [0]},
    tags=["call"],
    examine=_examine,
    modes=["eval", "fwd", "bwd", "train", "call"],
)
def call(op: str, build: Any, input: Spec, seed: int, be: Any, mode: str = "eval", loaded: Any = None) -> Task:
    """Any operator of PyTorch or of a user, called with arguments that a configuration describes.

    Modules stay in training mode, as PARAM leaves them. Flops and bytes are declared if a run without data shows them. The mode
    `call` is the bare call and, for a fixed protocol, the backward pass from each of its outputs; changes to its arguments stay.
    """
    from steelyard.workloads.operators import _cost, _task

    start = ((seed or 0) + SEEDS * be.seed) % LARGEST_SEED
    described = DescribedCall(op, build, input, getattr(loaded, "operators", {}), getattr(loaded, "generators", {}), seed=start)
    made = described.prepare(str(be.where), grad=mode != "eval")
    if mode == "call":
        return _bare(made)
    without_data, seen = _without_data(made.kind, described)
    made = replace(made, in_place=made.in_place or bool(seen and seen.writes))
    if mode != "eval" and (why := _no_backward(made, without_data, mode)):
        raise NotApplicable(f"{op} has no backward pass: {why}")
    first, facts = _task.kept(made), {"call": _task.text_of(op, build, made), "drawn": dict(made.drawn)}
    task = _task.task_of(made, mode, first)
    if seen is not None:
        weights = _task.weights_of(made.forward)
        task = replace(task, flops=seen.flops or None, bytes=_cost.least_bytes(seen, made.args, made.kwargs, weights) or None)
    elif made.kind == "fbgemm":
        task = replace(task, bytes=made.operator.traffic(made.args))
    if seen is not None and seen.random:
        task, facts["random"] = _task.by_chance(task, op, start), "values are random: only shapes and formats are compared"
    elif mode in ("eval", "fwd"):
        why = _task.why_unreferenced(op, task)
        task = replace(task, reference=_task.missing(why) if why else _task.precise(task, be, first))
    return replace(task, effective=facts, cleanup=made.cleanup, loss=_task.distance(start) if mode == "train" else None)


def _bare(made: Call) -> Task:
    """The task of a call as it is, which is not examined beforehand."""
    from steelyard.workloads.operators._gradient import backward_of

    why = "a bare call may change its arguments, so there is nothing to compare"
    drawn = {"drawn": dict(made.drawn)} if made.drawn else {}
    return Task(
        made.forward, tuple(made.args), made.kwargs, in_place=made.in_place, unverified=why, cleanup=made.cleanup,
        back=backward_of(made.operator), effective=drawn,
    )  # fmt: skip


def _without_data(kind: str, described: DescribedCall) -> tuple[Call | None, Steps | None]:
    """The same call on the device without data and what it did there, or None if it cannot run there."""
    if kind in ("user", "fbgemm") or "generator" in described.input:
        return None, None
    try:
        return described.without_data()
    except Exception:
        return None, None


def _no_backward(made: Call, without_data: Call | None, mode: str) -> str:
    """Why a call cannot run in a mode with gradients, or empty; what only data can show is found at the first call."""
    import torch

    from steelyard.backends._torch_modes import tensors
    from steelyard.workloads.operators import _task

    if made.in_place:
        return "it overwrites its argument"
    if mode == "train" and any(item.is_complex() for item in tensors([made.args, made.kwargs])):
        return "training needs real numbers"
    if mode == "fwd" or without_data is None:
        return ""
    with torch.enable_grad():
        output = without_data.forward(*without_data.args, **without_data.kwargs)
    why = _task.without_derivative(output)
    if not why and mode == "train" and not any(item.is_floating_point() for item in tensors([output])):
        return "training needs real numbers"
    return why
