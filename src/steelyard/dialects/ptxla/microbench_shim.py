"""The worker's half of `as ptxla microbench`: loads the user's functions, or makes the sweep's, and answers with a result for each."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from steelyard import registry
from steelyard.dialects.ptxla import matmul
from steelyard.dialects.ptxla.microbench import Call, Difference, Side, compare
from steelyard.errors import SteelyardError, Unsupported, UsageError, unknown

Send = Callable[[Mapping[str, Any]], None]
DIALECT = "ptxla-microbench"
Sides = tuple[Call | Side, Call | Side]
Work = tuple[str, Callable[[], Sides], bool | Difference]
"""A name, what makes both sides, and how their answers are held against each other."""


def perform(job: Mapping[str, Any], loaded: Any, send: Send, gate: Callable[[], None]) -> None:
    """Say what begins before it does, so that whoever is lost can be named; one that fails stops no other."""
    options = dict(job["options"])
    verify = options.pop("verify")
    try:
        for name, make, check in _work(job):
            send({"started": name})
            send(_answer(name, make, {**options, "verify": check if verify else False}))
    except Unsupported as error:
        send({"unsupported": {"what": error.what, "why": error.why, "do": error.do}})


def _answer(name: str, make: Callable[[], Sides], options: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        base, test = make()
        return {"result": compare(base, test, name, show=False, **options).plain()}
    except SteelyardError:
        raise
    except Exception as error:
        return {"failed": {"name": name, "reason": " ".join(f"{type(error).__name__}: {error}".split())}}


def _work(job: Mapping[str, Any]) -> Iterator[Work]:
    if job.get("matmul") is None:
        base, test = (function(job[side]) for side in ("base", "test"))
        yield job["name"], lambda: (base, test), True
        return
    asked = job["matmul"]
    stacks = [matmul.open_stack(asked[side], asked["accelerator"]) for side in ("baseline", "testing")]
    for product in (matmul.Product(dtype, n) for dtype, n in asked["products"]):
        yield product.name, partial(matmul.pair, product, stacks[0], stacks[1]), product.difference


def function(spot: str) -> Call:
    """What FILE.py:NAME names: something that can be called with nothing."""
    path, _, name = spot.rpartition(":")
    module = registry.load_file(path)
    found = getattr(module, name, None)
    if found is None:
        names = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise unknown("function", name, names, where=path)
    if not callable(found):
        raise UsageError(f"{name} is no function but {type(found).__name__}", where=path)
    if needed := _needed(found):
        raise UsageError(
            f"{name} needs {', '.join(needed)}", why="a side is called with nothing", do="make its inputs outside of it", where=path
        )
    called: Call = found
    return called


def _needed(fn: Callable[..., Any]) -> list[str]:
    """Arguments without which it cannot be called, as far as it says."""
    try:
        given = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):
        return []
    starred = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [item.name for item in given if item.default is item.empty and item.kind not in starred]
