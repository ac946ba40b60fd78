"""Whatever a call reaches is made again elsewhere, with equal values and the same sharing."""

from __future__ import annotations

import collections
import enum
import functools
import random
import threading
import types
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.measuring.moving import SHARED, Move, copy_array, loose_arrays, scraps


class Point(NamedTuple):
    x: Any
    y: Any


@dataclass
class Node:
    value: Any
    others: list[Any] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Frozen:
    value: Any


class Slotted:
    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Slotted) and self.value == other.value

    __hash__ = None  # type: ignore[assignment]


class Colour(enum.Enum):
    RED = 1


class Token:
    def __init__(self, name: str) -> None:
        self.name = name


PAD = Token("pad")


class Handle:
    closed = 0

    def __init__(self) -> None:
        self.number = 5

    def __del__(self) -> None:
        Handle.closed += 1


def array_or_itself(value: Any, buffers: dict[Any, Any]) -> Any:
    return copy_array(value, buffers) if isinstance(value, np.ndarray) else value


def moved(*values: Any) -> list[Any]:
    return Move(array_or_itself).all(values)


def reachable(value: Any, seen: dict[int, Any]) -> dict[int, Any]:
    """Everything that a value holds, by identity."""
    if id(value) in seen or isinstance(value, (type, enum.Enum)):
        return seen
    seen[id(value)] = value
    inside: list[Any] = []
    if isinstance(value, dict):
        inside = [*value.keys(), *value.values()]
    elif isinstance(value, (list, tuple, set, frozenset, collections.deque)):
        inside = list(value)
    elif isinstance(value, np.ndarray):
        inside = list(value.flat) if value.dtype == object else []
    elif isinstance(value, Slotted | Frozen):
        inside = [value.value]
    elif hasattr(value, "__dict__"):
        inside = list(vars(value).values())
    for item in inside:
        reachable(item, seen)
    return seen


def may_stay(value: Any) -> bool:
    """What a process has once: small numbers, names, types, empty tuples, not-a-number."""
    small = isinstance(value, int) and -5 <= value <= 256
    brief = isinstance(value, (str, bytes)) and (len(value) < 2 or (isinstance(value, str) and value in NAMES))
    return type(value) in SHARED or small or brief or value in ((), frozenset()) or isinstance(value, Colour)


NAMES = {"value", "others", "x", "y"}
texts = st.text(max_size=12).map(lambda text: text + "~")
"""Strings made at run time; those that are written in code somewhere are one for the process."""
leaves = (
    st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | texts | st.binary(max_size=12) | st.booleans() | st.none()
    | st.complex_numbers(allow_nan=False) | st.just(Colour.RED)
)  # fmt: skip
arrays = st.builds(lambda n, seed: np.random.default_rng(seed).standard_normal(n), st.integers(0, 5), st.integers(0, 9))
trees = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(texts | st.integers(), inner, max_size=4)
        | st.tuples(inner, inner) | st.builds(Point, inner, inner) | st.builds(Node, inner, st.lists(inner, max_size=3))
        | st.builds(Frozen, inner) | st.builds(Slotted, inner) | st.lists(inner, max_size=3).map(collections.deque)
        | st.dictionaries(texts, inner, max_size=3).map(collections.OrderedDict)
    ),
    max_leaves=20,
)  # fmt: skip


class TestComplete:
    @given(st.lists(trees, max_size=4), st.sets(st.integers() | texts), st.frozensets(st.floats(allow_nan=False)))
    def test_nothing_reachable_stays_and_values_are_equal(self, values: list[Any], numbers: set[Any], fixed: frozenset[float]) -> None:
        given_all = [*values, numbers, fixed, values]
        before = reachable(given_all, {})
        move = Move(array_or_itself)
        made = move.all(given_all)
        assert made == given_all
        assert not move.stays
        stayed = [value for key, value in reachable(made, {}).items() if key in before]
        assert all(map(may_stay, stayed)), [value for value in stayed if not may_stay(value)]

    @given(st.lists(arrays, min_size=1, max_size=4), st.randoms())
    def test_what_is_shared_stays_shared(self, items: list[Any], rng: random.Random) -> None:
        picked = [rng.choice(items) for _ in range(6)]
        nested = {"one": picked, "two": [picked, *picked], "three": tuple(picked)}
        made = moved(nested)[0]
        flat, same = ([*tree["one"], tree["one"], *tree["two"], *tree["three"]] for tree in (nested, made))
        for one in range(len(flat)):
            for two in range(len(flat)):
                assert (flat[one] is flat[two]) == (same[one] is same[two])
        assert not any(mine is other for mine in same for other in flat)

    @given(st.integers(1, 6), st.integers(0, 5), st.integers(1, 3))
    def test_views_keep_their_memory(self, rows: int, start: int, step: int) -> None:
        whole = np.arange(6 * rows, dtype=np.float32).reshape(rows, 6)
        views = [whole, whole[:, start::step], whole.T, whole[::-1]]
        made = moved(views)[0]
        assert all(np.array_equal(one, two) and one.strides == two.strides for one, two in zip(views, made, strict=True))
        made[0][...] = -1
        assert all((view == -1).all() for view in made) and whole.min() >= 0

    def test_cycles_close(self) -> None:
        node: Any = Node([1.5])
        node.others += [node, (node,), {"me": node}]
        made = moved(node)[0]
        assert made is not node
        assert made.others[0] is made.others[1][0] is made.others[2]["me"] is made

    def test_arrays_of_objects_move_with_their_objects(self) -> None:
        data = np.empty(3, object)
        data[:] = [[1.5], "a text", 10**9]
        made = moved(data)[0]
        assert list(made) == list(data)
        assert not any(one is two for one, two in zip(made, data, strict=True))

    def test_parts_are_made_as_they_are_met_wherever_the_originals_lie_by_chance(self) -> None:
        order: list[int] = []

        def copy(value: Any, buffers: dict[Any, Any]) -> Any:
            order.append(id(value))
            return array_or_itself(value, buffers)

        items = random.Random(1).sample([np.ones(2) for _ in range(50)], 50)
        Move(copy).all([items])
        assert order[1:] == list(map(id, items))

    def test_a_long_list_that_was_shuffled_is_not_put_in_order(self) -> None:
        apart: list[Any] = []
        for number in range(4000):
            apart += [number + 0.5, bytes(2000)]
        drawn = random.Random(1).sample(apart[::2], 4000)
        made = Move(array_or_itself, rng=random.Random(2)).all([drawn])[0]
        ranks = np.argsort(np.argsort([id(item) for item in made]))
        assert made == drawn and abs(np.corrcoef(ranks, np.arange(4000))[0, 1]) < 0.5

    def test_scraps_leave_other_holes_every_time(self) -> None:
        rng = random.Random(0)
        assert len({len(scraps(rng)) for _ in range(20)}) > 5


class TestFunctions:
    def test_closures_defaults_and_bound_objects_are_reached(self) -> None:
        data, table = [1.5, 2.5], {"a b": 3.5}

        def call(more: list[float] = [4.5]) -> float:  # noqa: B006
            return sum(data) + table["a b"] + more[0]

        made = moved(call)[0]
        assert made() == call() == 12.0
        held = {name: cell.cell_contents for name, cell in zip(call.__code__.co_freevars, made.__closure__, strict=True)}
        assert held["data"] == data and held["data"] is not data
        assert held["table"] is not table and made.__defaults__[0] is not call.__defaults__[0]  # type: ignore[index]
        node = Node([2.5])
        method = moved(node.others.append)[0]
        method(1)
        assert node.others == [] and method.__self__ == [1]
        bound = moved(functools.partial(Node.__eq__, node))[0]
        assert bound.args[0] == node and bound.args[0] is not node

    def test_functions_that_share_a_variable_still_do(self) -> None:
        count = [0]

        def add() -> None:
            count[0] += 1

        def read() -> int:
            return count[0]

        again, seen = moved(add, read)
        again()
        assert (seen(), read()) == (1, 0)

    def test_a_function_that_calls_itself(self) -> None:
        data = [1.5, 2.5]

        def walk(place: int) -> float:
            return 0.0 if place == len(data) else data[place] + walk(place + 1)

        made = moved(walk)[0]
        assert made is not walk and made(0) == 4.0

    def test_functions_without_anything_of_their_own_stay(self) -> None:
        assert moved(may_stay, len, np.add, np.linalg.norm, functools.wraps)[:3] == [may_stay, len, np.add]


class TestStaying:
    def test_what_cannot_be_copied_stays_and_is_told(self) -> None:
        lock, lines = threading.Lock(), (number for number in range(3))
        move = Move(array_or_itself)
        made = move.all([{"lock": lock, "lines": lines, "data": [1.5]}])[0]
        assert made["lock"] is lock and made["lines"] is lines and made["data"] == [1.5]
        assert move.stays == {"lock", "generator"}

    def test_what_closes_something_when_it_goes_is_never_copied(self) -> None:
        held = Handle()
        move = Move(array_or_itself)
        assert move.all([[held]])[0][0] is held
        assert move.stays == {"Handle"} and Handle.closed == 0

    def test_what_has_a_name_in_its_module_stays_because_code_asks_for_that_very_object(self) -> None:
        made = moved([PAD, Token("pad"), Colour.RED, Ellipsis])[0]
        assert made[0] is PAD and made[1] is not PAD and made[2] is Colour.RED
        assert moved(PAD)[0] is not PAD

    def test_bare_objects_and_not_a_number_stay(self) -> None:
        mark, nan = object(), float("nan")
        assert moved([mark, nan])[0][0] is mark
        assert nan in moved([nan])[0]

    def test_a_class_whose_copy_fails_half_way_leaves_everything_as_it_was(self) -> None:
        class Half:
            def __reduce__(self) -> Any:
                return (list, (), None, iter([1]), iter([("no", "key")]))

        value, data = Half(), [1.5]
        move = Move(array_or_itself)
        made = move.all([value, data])
        assert made[0] is value and made[1] is data and move.stays == {"Half"}

    def test_too_deep_is_told(self) -> None:
        deep: list[Any] = []
        for _ in range(100_000):
            deep = [deep]
        move = Move(array_or_itself)
        assert move.all([deep])[0] is deep and move.stays == {"objects nested too deeply"}

    def test_attributes_lie_as_their_class_laid_them(self) -> None:
        class Shadowed:
            @property
            def x(self) -> Any:
                return self.__dict__["x"]

            @x.setter
            def x(self, value: Any) -> None:
                raise AssertionError("set through the property")

        value = Shadowed()
        value.__dict__["x"] = [1.5]
        assert moved(value)[0].x == [1.5]
        assert moved(types.SimpleNamespace(a=[2.5]))[0] == types.SimpleNamespace(a=[2.5])


@pytest.mark.parametrize("text", ["value", "some_name"])
def test_names_stay_the_objects_that_code_looks_up(text: str) -> None:
    name = [*{"value": 1, "some_name": 2}][["value", "some_name"].index(text)]
    built = "".join([text[:3], text[3:]])
    made = moved({name: 1.5, "k": built})[0]
    assert next(iter(made)) is name
    assert made["k"] == built and made["k"] is not built


class Named:
    """Its hash needs its name, and it lies in a set that it holds itself, which is filled before the name is there."""

    def __init__(self, name: str) -> None:
        self.edges: set[Named] = set()
        self.name = name
        self.edges.add(self)

    def __hash__(self) -> int:
        return hash(self.name)


def test_what_cannot_be_hashed_half_made_stays_and_is_said() -> None:
    node, other = Named("a"), [1.5]
    move = Move(array_or_itself)
    assert move.all([node, other]) == [node, other]
    assert move.stays == {"an object whose copy raises AttributeError"}


class Numbered(list):  # type: ignore[type-arg]
    """A list that pickle gets items from which exist for a moment only."""

    def __reduce_ex__(self, version: Any) -> Any:
        return (Numbered, (), None, (item + 1000.5 for item in self))


def test_items_made_on_the_way_are_each_copied_once() -> None:
    (copy,) = moved(Numbered(map(float, range(500))))
    assert copy == [number + 1000.5 for number in range(500)]


def test_arrays_in_closures_are_found_but_those_of_modules_and_weights_are_not() -> None:
    weights, held = np.ones(3), [np.ones(2)]

    def fn(x: Any, scale: Any = weights) -> Any:
        return x * scale + held[0]

    assert [item is held[0] for item in loose_arrays(functools.partial(fn, 1.0), {id(weights)})] == [True]
    assert list(loose_arrays(fn, {id(weights), id(held[0])})) == []
    assert list(loose_arrays(len, ())) == []
