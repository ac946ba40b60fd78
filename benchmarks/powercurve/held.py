"""Work on inputs that are no single array, as a user's file: each is slowed by turns of an empty loop, and by none in the base.

`TURNS` says how many turns each kind of work has, and `AGAIN` how many it has as variant `again`; a copy of this file with other
numbers is a slower version of it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from itertools import repeat
from typing import Any

from steelyard import Task, workload

TURNS: dict[str, int] = {}
AGAIN: dict[str, int] = {}


class Item:
    """One of many plain objects."""

    def __init__(self, number: int) -> None:
        self.number, self.share = 1000 * number, number / 7


def _floats(rng: random.Random) -> tuple[Any, ...]:
    return ([rng.random() for _ in range(1000)],)


def _strings(rng: random.Random) -> tuple[Any, ...]:
    return ([f"item {rng.random()}" for _ in range(400)],)


def _objects(rng: random.Random) -> tuple[Any, ...]:
    return ({"items": [Item(number) for number in range(300)]},)


def _tensors(rng: random.Random) -> tuple[Any, ...]:
    import torch

    return ([torch.full((64,), rng.random()) for _ in range(64)],)


def _named(rng: random.Random) -> tuple[Any, ...]:
    import torch

    return ({f"weight {number}": torch.full((32,), rng.random()) for number in range(16)},)


def _module(rng: random.Random) -> tuple[Any, ...]:
    import torch

    torch.manual_seed(0)
    return torch.nn.Sequential(*(torch.nn.Linear(32, 32) for _ in range(4))).eval(), torch.full((8, 32), rng.random())


def _add_floats(items: list[float]) -> float:
    total = 0.0
    for item in items:
        total += item * 2.0
    return total


def _join(items: list[str]) -> int:
    return len("-".join(items))


def _add_objects(held: dict[str, list[Item]]) -> float:
    total = 0.0
    for item in held["items"]:
        total += item.number + item.share
    return total


def _cat(items: list[Any]) -> Any:
    import torch

    return torch.cat(items)


def _add_named(held: dict[str, Any]) -> Any:
    total = 0.0
    for item in held.values():
        total = total + item
    return total


def _call(module: Any, x: Any) -> Any:
    import torch

    with torch.no_grad():
        return module(x)


INPUTS: dict[str, tuple[Callable[[random.Random], tuple[Any, ...]], Callable[..., Any]]] = {
    "floats": (_floats, _add_floats), "strings": (_strings, _join), "objects": (_objects, _add_objects),
    "cat": (_tensors, _cat), "named": (_named, _add_named), "module": (_module, _call),
}  # fmt: skip


def slowed(work: Callable[..., Any], turns: int) -> Callable[..., Any]:
    """The work and so many turns of an empty loop."""

    def call(*args: Any) -> Any:
        for _ in repeat(None, turns):
            pass
        return work(*args)

    return call


@workload("held/work", axes={"inputs": list(INPUTS)})
def held(inputs: str, be: Any) -> Task:
    """Work on one kind of inputs."""
    draw, work = INPUTS[inputs]
    return Task(slowed(work, TURNS.get(inputs, 0)), draw(random.Random(0)))


@held.variant("again")
def again(task: Task) -> Task:
    """The same function made once more, with the turns of `AGAIN`."""
    work = task.fn.__closure__[1].cell_contents  # type: ignore[union-attr]
    kind = next(name for name, (_, own) in INPUTS.items() if own is work)
    return replace(task, fn=slowed(work, AGAIN.get(kind, 0)))
