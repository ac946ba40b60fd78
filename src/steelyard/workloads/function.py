"""A function from a user's file, called without arguments, and a variant that calls another function instead."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from steelyard import registry
from steelyard.drop_in import cuda_in_use
from steelyard.errors import UsageError, unknown
from steelyard.model.define import workload
from steelyard.model.task import Task

if TYPE_CHECKING:
    from steelyard.backends.base import Backend

OTHER = "other"
OWN = "there is no reference to compare your own function with"


@workload("call/function", axes={"fn": ["sys:getrecursionlimit"], "other": [""]}, tags=["function"])
def function(fn: str, other: str, be: Backend) -> Task:
    """A function from a file, FILE.py:NAME, or from a module, MODULE:NAME, called without arguments."""
    return Task(_checked(fn, be), unverified=OWN, effective={OTHER: other} if other else {})


@function.on("numpy")
def _(fn: str, other: str, be: Backend) -> Task:
    return Task(_checked(fn, be), unverified=OWN, effective={OTHER: other} if other else {})


@function.variant(OTHER, fresh=True)
def _(task: Task, be: Backend) -> Task:
    """The function that the axis `other` names, instead of the first; it must return the same."""
    if OTHER not in task.effective:
        raise UsageError("no other function is named", do="-a other=FILE.py:NAME")
    return replace(task, fn=_checked(task.effective[OTHER], be), unverified="")


def _checked(spot: str, be: Backend) -> Callable[[], Any]:
    found = find(spot)
    if be.device == "cpu" and cuda_in_use(found) is not None:
        raise UsageError(f"{spot.rpartition(':')[2]} uses a CUDA device", why="on device cpu we would not wait for its work", do="-d cuda")
    return found


def find(spot: str) -> Callable[[], Any]:
    """Return the function that FILE.py:NAME or MODULE:NAME names; it must be callable without arguments."""
    path, _, name = spot.rpartition(":")
    module = registry.load_file(path) if path.endswith(".py") else importlib.import_module(path)
    found = getattr(module, name, None)
    if found is None:
        names = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise unknown("function", name, names, where=path)
    if not callable(found):
        raise UsageError(f"{name} is not a function but {type(found).__name__}", where=path)
    if needed := _needed(found):
        raise UsageError(
            f"{name} needs {', '.join(needed)}", why="it is called without arguments", do="make its inputs outside the function", where=path
        )
    called: Callable[[], Any] = found
    return called


def _needed(fn: Callable[..., Any]) -> list[str]:
    """Return the required arguments of a function, or none if it has no signature."""
    try:
        given = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):
        return []
    starred = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [item.name for item in given if item.default is item.empty and item.kind not in starred]
