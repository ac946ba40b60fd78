"""A built case as a function of its inputs alone: weights and everything else that is not an input are part of the program."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from steelyard.artifacts import arrays
from steelyard.artifacts.manifest import ArtifactArray, Tolerance
from steelyard.errors import NotApplicable, Unsupported
from steelyard.model.task import Task

INPUTS, OUTPUTS = "inputs_npy.tgz", "outputs_npy.tgz"
HostArray = np.ndarray[Any, Any]
_ALLCLOSE = re.compile(r"allclose\[(.*)\]")


@dataclass(frozen=True)
class Exportable:
    """The input of exporters: `call(*inputs)` returns a tuple of arrays; `module` is the same as a torch module, for PyTorch only.

    `host` returns the format and the data of a framework's array.
    """

    call: Callable[..., tuple[Any, ...]]
    inputs: tuple[Any, ...]
    host: Callable[[Any], tuple[str, HostArray]]
    task: Task
    be: Any
    module: Any = None
    kept: dict[str, Any] = field(default_factory=dict)
    """Intermediate results that exporters of the same model share, such as a lowered program."""

    @property
    def input_names(self) -> list[str]:
        """Names of the inputs, in the order of `call`."""
        return [f"input_{number}" for number in range(len(self.inputs))]


def split(task: Task, is_array: Callable[[Any], bool]) -> tuple[list[Any], Callable[..., tuple[tuple[Any, ...], dict[str, Any]]]]:
    """Return the inputs of a task, and a function that rebuilds its arguments with other inputs.

    An argument that contains a weight is assumed to contain only weights, and is not replaced.
    """
    if task.fn is None:
        raise NotApplicable("it times itself and has no function that could be exported")
    weights = {id(item) for item in task.parameters}
    found: list[Any] = []

    def leaves(value: Any) -> list[Any]:
        if is_array(value):
            return [value]
        parts = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
        return [leaf for part in parts for leaf in leaves(part)]

    fixed = [any(id(leaf) in weights for leaf in leaves(value)) for value in (*task.args, *task.kwargs.values())]

    def swapped(value: Any, others: Sequence[Any]) -> Any:
        if is_array(value):
            return others[next(number for number, item in enumerate(found) if item is value)]
        if isinstance(value, dict):
            return {key: swapped(item, others) for key, item in value.items()}
        if type(value) in (list, tuple):
            return type(value)(swapped(item, others) for item in value)
        return value

    given = [*task.args, *task.kwargs.values()]
    for value, stays in zip(given, fixed, strict=True):
        found += [] if stays else [leaf for leaf in leaves(value) if not any(leaf is item for item in found)]

    def arguments(*others: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        made = [value if stays else swapped(value, others) for value, stays in zip(given, fixed, strict=True)]
        return tuple(made[: len(task.args)]), dict(zip(task.kwargs, made[len(task.args) :], strict=True))

    return found, arguments


def record(subject: Exportable, folder: Path, *, outputs: bool) -> tuple[tuple[ArtifactArray, ...], tuple[ArtifactArray, ...], float]:
    """Write inputs, and outputs if requested; return both and the largest absolute output, which tolerances are relative to."""
    told = arrays.save(folder / INPUTS, INPUTS, [(f"input_{n}", *subject.host(item)) for n, item in enumerate(subject.inputs)])
    if not outputs:
        return told, (), 0.0
    answered = [subject.host(item) for item in subject.call(*subject.inputs)]
    if not answered:
        raise NotApplicable("its call returns no array")
    largest = 0.0
    for number, (dtype, data) in enumerate(answered):
        wide = arrays.widened(data, dtype)
        if not np.isfinite(wide).all():
            raise Unsupported(
                f"output {number} of the model has values that are not finite", do="export a case whose answers can be compared"
            )
        largest = max(largest, float(np.abs(wide).max(initial=0.0)))
    made = arrays.save(folder / OUTPUTS, OUTPUTS, [(f"output_{n}", *item) for n, item in enumerate(answered)])
    return told, made, largest


def tolerance_of(task: Task, largest: float, outputs: Sequence[ArtifactArray]) -> Tolerance:
    """Return the tolerance for other runtimes: the case's own rule, else a share of the largest output, by the coarsest format."""
    if found := _ALLCLOSE.match(task.rule or ""):
        told = dict(part.partition("=")[::2] for part in found[1].split(","))
        return Tolerance(float(told.get("atol", 0)), float(told.get("rtol", 0)))
    shares = {"fp64": 1e-9, "fp32": 1e-4, "fp16": 1e-2, "bf16": 5e-2}
    share = max((shares.get(item.dtype, 0.0 if item.dtype in arrays.NUMPY else 0.2) for item in outputs), default=0.0)
    if task.tolerance:
        relative, absolute = task.tolerance
        return Tolerance(max(absolute, share) * largest, max(relative, share))
    return Tolerance(share * largest, share)
