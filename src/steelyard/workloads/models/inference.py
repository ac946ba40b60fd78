"""Any model by the dotted path of its module: `create_model(**parameters)`, and the four methods of an inference model."""

from __future__ import annotations

import importlib
import random
import sys
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from steelyard import clocks, registry
from steelyard.backends._memory import host_memory
from steelyard.errors import NotApplied, SteelyardError, Unsupported, UsageError
from steelyard.model.case import VariantSpec, sorted_pairs
from steelyard.model.define import workload
from steelyard.model.task import Task
from steelyard.workloads.models import _inputs
from steelyard.workloads.models._inputs import as_tuple, picture
from steelyard.workloads.models.subject import SEEDS, mapped, moved

__all__ = ["FunctionalModel", "InferenceModel", "as_tuple", "inference", "of_definition", "picture"]

METHODS = ("generate_default_inputs", "preprocess", "forward", "postprocess")
FORMATS = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}


@runtime_checkable
class InferenceModel(Protocol):
    """The interface of a model: raw input, preprocessing, the timed call, and postprocessing."""

    def generate_default_inputs(self) -> Any:
        """A raw input, or a tuple of several."""

    def preprocess(self, input: Any) -> Any:
        """The argument of `forward`, or a tuple of them."""

    def forward(self, *args: Any) -> Any:
        """The timed call; returns one value, or a tuple."""

    def postprocess(self, output: Any) -> Any:
        """Postprocessing; by default the answer unchanged."""
        return output


class FunctionalModel(InferenceModel, Protocol):
    """A model that also has its pure function, for exports."""

    def apply(self, *inputs: Any) -> Any:
        """The pure form of `forward`."""


@workload(
    "openxla/*",
    axes={"module": [""], "parameters": [{}], "input": [""], "atol": [0.0], "rtol": [0.0]},
    backend=["torch", "jax", "tensorflow", "numpy"],
    tags=["model", "openxla"],
)
def inference(module: str, parameters: dict[str, Any], input: str, atol: float, rtol: float, be: Any, member: str) -> Task:
    """A model by its module's path, called as OpenXLA's suite does: create_model(**parameters), preprocess, forward."""
    if not module:
        raise UsageError(f"openxla/{member} names no module", do="run it with steelyard as openxla, or add -a module=package.module")
    sow(be)
    model = created(module, parameters, member)
    where = getattr(be, "where", None)
    modules = place(model, where)
    begun = clocks.perf_counter()
    given = _inputs.preprocessed(model, input)
    prepared = clocks.perf_counter()
    args = tuple(to_device(item, be, where) for item in given)
    be.sync()
    there = clocks.perf_counter()
    _inputs.keep(member, [(leaf.dtype, leaf.data) for leaf in be.outputs(args)])
    batch = parameters.get("batch_size")
    spent = {"preprocess_time": prepared - begun, "input_transfer_time": there - prepared}
    weights = tuple(item for part in modules for item in part.parameters())
    return Task(
        model.forward,
        args,
        items=batch if type(batch) is int and batch > 0 else None,
        parameters=weights,
        rule=str(VariantSpec("allclose", sorted_pairs({"atol": atol, "rtol": rtol}))),
        inspect=looked_at(model, args, be, parameters.get("data_type"), weights),
        effective={"model": type(model).__name__, "weights": "as its module makes them", "spent": spent, **getattr(model, "effective", {})},
    )


def sow(be: Any) -> None:
    """Seed every generator that a model might draw its weights from; called each time that a model is made."""
    import numpy as np

    seed = be.seed % SEEDS
    random.seed(seed)
    np.random.seed(seed)
    if be.name == "torch":
        sys.modules["torch"].manual_seed(seed)
    elif be.name == "tensorflow":
        sys.modules["tensorflow"].random.set_seed(seed)


def created(module: str, parameters: Any, member: str) -> Any:
    """Create the model; errors say what its module lacks and what to do."""
    if not isinstance(parameters, dict):
        why, do = "a table cannot be given with -a", "write them into an experiment file: parameters = {batch_size = 1}"
        raise UsageError(f"the parameters of {member} must be a table, not {parameters!r:.80}", why=why, do=do)
    registry.serve("openxla")
    try:
        make = getattr(importlib.import_module(module), "create_model", None)
        if make is None:
            raise UsageError(f"{module} has no create_model", why=f"module_path of {member} names it", do="write def create_model(**…)")
        model = make(**parameters)
    except ModuleNotFoundError as error:
        missing = error.name or str(error)
        if module == missing or module.startswith(f"{missing}."):
            do = "put its folder below --definitions, or install its package"
            raise UsageError(f"there is no module {missing}", why=f"module_path of {member} is {module}", do=do) from error
        do = f"pip install {missing.partition('.')[0]}, or put it into the model's requirements.txt and an environment"
        raise Unsupported(f"{member} needs {missing}, which is not installed here", do=do) from error
    except ImportError as error:
        raise SteelyardError(f"{module} cannot be imported", why=f"{type(error).__name__}: {error}") from error
    if lacking := [name for name in METHODS[:3] if not callable(getattr(model, name, None))]:
        raise UsageError(f"{type(model).__name__} of {module} is not an inference model", why=f"it has no {', '.join(lacking)}")
    return model


def of_definition(model: Any) -> Any:
    """The model that a definition describes, made by its module."""
    return created(model.model_impl.module_path, model.model_parameters, model.name)


def place(model: Any, where: Any) -> list[Any]:
    """The PyTorch modules of a model, moved to the device and set to inference; in other frameworks only arrays move."""
    torch = sys.modules.get("torch")
    if torch is None:
        return []
    parts = [model] if isinstance(model, torch.nn.Module) else list(vars(model).values()) if hasattr(model, "__dict__") else []
    found = [item for item in parts if isinstance(item, torch.nn.Module)]
    for item in found:
        item.eval()
        if where is not None:
            item.to(where)
    return found


def to_device(value: Any, be: Any, where: Any) -> Any:
    """An argument with its arrays on the device, in their own format."""
    import numpy as np

    if be.name == "torch":
        torch = sys.modules["torch"]
        held = mapped(value, lambda item: torch.from_numpy(np.ascontiguousarray(item)) if isinstance(item, np.ndarray) else item)
        return moved(held, where)
    if be.name == "jax":
        jax = sys.modules["jax"]
        return mapped(value, lambda item: jax.device_put(item) if isinstance(item, (np.ndarray, jax.Array)) else item)
    if be.name == "tensorflow":
        tensorflow = sys.modules["tensorflow"]
        return mapped(value, lambda item: tensorflow.constant(item) if isinstance(item, np.ndarray) else item)
    return value


def check_format(asked: str, within: set[str], answers: set[str]) -> None:
    """Refuse a model that ignores the requested format, because its times would be recorded under the wrong format.

    A model whose weights and products cannot be seen is accepted: it may return another format than it computes in.
    """
    if (floating := within & {*FORMATS}) and asked not in floating:
        why = f"its weights and products are {' and '.join(sorted(floating))}, its answers {' and '.join(sorted(answers)) or 'none'}"
        raise NotApplied(f"data_type is {asked}, but the model computes nothing in it", why=why, do="use data_type in create_model")


def looked_at(model: Any, args: tuple[Any, ...], be: Any, asked: Any, weights: tuple[Any, ...]) -> Callable[[], dict[str, Any]]:
    """A function for after timing: times of output transfer and postprocessing, and the memory that the process has taken."""
    ours = {theirs: name for name, theirs in FORMATS.items()}

    def look() -> dict[str, Any]:
        memory = host_memory()
        answer = model.forward(*args)
        be.sync()
        begun = clocks.perf_counter()
        leaves = [leaf for leaf in be.outputs(answer) if leaf.data is not None]
        back = clocks.perf_counter()
        if asked in FORMATS and asked not in (answers := {leaf.dtype for leaf in leaves}):
            held = {ours.get(str(item.dtype).rpartition(".")[2], "") for item in weights}
            check_format(asked, held or be.formats_within(model.forward, args), answers)
        if callable(post := getattr(model, "postprocess", None)):
            post(answer)
        return {
            "output_transfer_time": back - begun,
            "postprocess_time": clocks.perf_counter() - back,
            "memory": memory,
            "outputs": [[leaf.dtype, list(leaf.shape)] for leaf in leaves],
        }

    return look
