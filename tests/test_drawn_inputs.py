"""What `setup` gives `steelyard.compare`: the same values for both functions of a rebuild, in memory of their own, others in the next."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

import steelyard
from steelyard.comparing import DrawnInputs

BUDGET = 0.15
SEEN: dict[str, dict[float, int]] = {}
"""Not held by the functions themselves, whose own things are copied for every rebuild."""


def test_both_functions_get_the_same_values_and_others_after_every_rebuild() -> None:
    """What is drawn costs one function as much as the other; each has memory of its own, and changes what it likes."""
    rng = np.random.default_rng(0)
    SEEN.clear()

    def first_of(name: str) -> Callable[[np.ndarray], float]:
        def look(x: np.ndarray) -> float:
            SEEN.setdefault(name, {}).setdefault(float(x[0]), x.__array_interface__["data"][0])
            return float(x.sum())

        return look

    steelyard.compare(first_of("base"), first_of("head"), setup=lambda: rng.standard_normal(512), budget=BUDGET, verify=False)
    base, head = SEEN["base"], SEEN["head"]
    both = base.keys() & head.keys()
    assert len(both) >= 8, "rebuilds have values of their own"
    assert len(both) >= 0.8 * max(len(base), len(head)), "all but what is built to choose a clock"
    assert all(base[value] != head[value] for value in both)


def test_inputs_that_cannot_be_copied_are_made_for_each_function_apart() -> None:
    made: list[Any] = []

    def setup() -> Any:
        made.append(threading.Lock())
        return made[-1]

    def using(name: str) -> Callable[[Any], int]:
        def use(lock: Any) -> int:
            SEEN.setdefault(name, {})[float(id(lock))] = 1
            return sum(lock.locked() for _ in range(200))

        return use

    SEEN.clear()
    steelyard.compare(using("base"), using("head"), setup=setup, budget=BUDGET, verify=False)
    assert not SEEN["base"].keys() & SEEN["head"].keys()


def test_values_are_drawn_once_for_a_rebuild_in_whatever_order_it_is_built() -> None:
    drawn = DrawnInputs(iter(range(100)).__next__, 3)
    assert [[drawn.of(arm) for arm in order] for order in ([0, 1, 2], [2, 0, 1], [1, 2, 0])] == [[0] * 3, [1] * 3, [2] * 3]
    assert drawn.made is None, "nothing is kept beside the copies"
    assert [drawn.of(arm) for arm in (0, 1)] == [3, 3], "the base once more is not built where there is no time for it"
    assert [drawn.of(arm) for arm in (1, 0)] == [4, 4]
