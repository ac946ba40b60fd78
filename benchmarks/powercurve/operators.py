"""Twelve operators that the method was not developed on: sorts, scans, gathers, masks, Python loops and small models.

Each is slowed by turns of an empty loop. Values are drawn from a seed: what a sort, a mask or a lookup costs depends on them.
The list was fixed before any of them was measured.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import torch
from torch.nn import functional

from steelyard.model.task import Task

Parts = tuple[Any, ...]
PROBE = 400


@dataclass(frozen=True)
class Operator:
    """What is drawn, with a seed for its values, and what is done with it; `probe` turns are timed to learn what one costs."""

    draw: Callable[[int], Parts]
    work: Callable[..., Any]
    probe: int = PROBE

    def task(self, parts: Parts, turns: int) -> Task:
        """The work over such parts, then so many turns."""
        work = self.work

        def call() -> None:
            work(*parts)
            for _ in repeat(None, turns):
                pass

        return Task(call)


def _seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _sort(seed: int) -> Parts:
    return (torch.randn(2000, generator=_seeded(seed)),)


def _rows(seed: int) -> Parts:
    return (torch.randn(64, 512, generator=_seeded(seed)),)


def _gather(seed: int) -> Parts:
    drawn = _seeded(seed)
    return torch.randn(4096, 64, generator=drawn), torch.randint(4096, (512,), generator=drawn)


def _bags(seed: int) -> Parts:
    drawn = _seeded(seed)
    lengths = torch.randint(1, 40, (64,), generator=drawn)
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)[:-1]])
    return torch.randint(10_000, (int(lengths.sum()),), generator=drawn), torch.randn(10_000, 32, generator=drawn), offsets


def _batches(seed: int) -> Parts:
    drawn = _seeded(seed)
    return torch.randn(8, 32, 48, generator=drawn), torch.randn(8, 48, 32, generator=drawn)


def _few_numbers(seed: int) -> Parts:
    return (torch.randint(500, (2000,), generator=_seeded(seed)),)


def _mask(seed: int) -> Parts:
    return (torch.rand(8192, generator=_seeded(seed)) < 0.3,)


def _masked(seed: int) -> Parts:
    drawn = _seeded(seed)
    return torch.randn(8192, generator=drawn), torch.rand(8192, generator=drawn) < 0.3


def _words(seed: int) -> Parts:
    rng = random.Random(seed)
    known = [f"word{number}" for number in range(200)]
    return ([rng.choice(known) for _ in range(600)],)


def _numbers(seed: int) -> Parts:
    rng = random.Random(seed)
    return ([rng.randrange(10_000) for _ in range(800)],)


def _image(seed: int) -> Parts:
    torch.manual_seed(seed)
    layers = torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.MaxPool2d(2), torch.nn.Flatten(), torch.nn.Linear(392, 10)
    return torch.nn.Sequential(*layers).eval(), torch.randn(2, 3, 16, 16)


def _sequence(seed: int) -> Parts:
    torch.manual_seed(seed)
    return torch.nn.TransformerEncoderLayer(32, 2, 64, batch_first=True).eval(), torch.randn(2, 16, 32)


def _count(words: list[str]) -> dict[str, int]:
    counted: dict[str, int] = {}
    for word in words:
        counted[word] = counted.get(word, 0) + 1
    return counted


def _add_up(numbers: list[int]) -> int:
    total = 0
    for number in numbers:
        if number % 3 == 0 or number > 7000:
            total += number
    return total


def _call(module: Any, x: Any) -> Any:
    return module(x)


def _sums(x: Any) -> Any:
    return torch.cumsum(x, 1)


def _product(x: Any, y: Any) -> Any:
    return torch.einsum("bij,bjk->bik", x, y)


def _add_bags(places: Any, table: Any, offsets: Any) -> Any:
    return functional.embedding_bag(places, table, offsets)


def _pick(table: Any, places: Any) -> Any:
    return torch.index_select(table, 0, places)


OPERATORS: dict[str, Operator] = {
    "sort": Operator(_sort, torch.sort),
    "cumsum": Operator(_rows, _sums),
    "index_select": Operator(_gather, _pick),
    "embedding_bag": Operator(_bags, _add_bags),
    "einsum": Operator(_batches, _product),
    "unique": Operator(_few_numbers, torch.unique),
    "nonzero": Operator(_mask, torch.nonzero),
    "masked": Operator(_masked, torch.masked_select),
    "words": Operator(_words, _count),
    "numbers": Operator(_numbers, _add_up),
    "convolution": Operator(_image, _call, probe=10 * PROBE),
    "transformer": Operator(_sequence, _call, probe=10 * PROBE),
}
