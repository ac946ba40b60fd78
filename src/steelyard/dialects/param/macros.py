"""Expand one spec with macros to its combinations: ranges, alternatives, copies, zip and filters, counted before they are made."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from steelyard.dialects.param import grammar
from steelyard.dialects.param.grammar import (
    CHOICES,
    COPY,
    DEEPEST,
    KEYS,
    LIST,
    LISTS,
    MACROS,
    NOTES,
    RANGE,
    REAL,
    WHERE,
    WHOLE,
    ZIP,
    BrokenRule,
    Faults,
    expected,
    is_number,
    is_whole,
    shown,
)  # fmt: skip
from steelyard.dialects.param.reading import Place
from steelyard.dialects.param.where import Condition, Unanswerable, condition
from steelyard.errors import UsageError, did_you_mean

Spec = dict[str, Any]
Key = tuple[str, str | int]
Report = Callable[[Iterable[BrokenRule]], bool]


@dataclass(frozen=True)
class Room:
    """How many combinations may still be made, and how many configs a file may have in all."""

    left: int
    most: int

    def faults(self, count: int, place: Place) -> Faults:
        """Yield a mistake if there are too many combinations, judged only by their number."""
        if count > self.left:
            yield BrokenRule(
                place, f"more combinations than fit: a file has at most {self.most:,} configs", "use a larger step or fewer ranges"
            )


def combinations(spec: Any, place: Place, strict: bool, room: Room, report: Report) -> tuple[list[tuple[int, Spec]], int]:
    """Return the good combinations with their numbers, and how many the filters dropped. Mistakes are reported."""
    good = report(grammar.spec_faults(spec, place, macros=True, strict=strict))
    if not isinstance(spec, dict):
        return [], 0
    parts = grammar.arguments(spec)
    sound = {key: arg for key, arg in parts if report(macro_faults(arg, (*place, *key)))}
    lengths = [length for key, arg in sound.items() for length in _lengths(arg)]
    good &= len(sound) == len(parts)
    step = _step(spec, lengths)
    if step is not None and set(lengths) - {step}:
        good = report([BrokenRule((*place, ZIP), f"the ranges to zip have {_joined(lengths)} values", "make them equally long")])
        step = None
    count = _count(lengths, room.left) if step is None else step
    if count > room.left:
        report(room.faults(count, place) if good else ())
        return [], 0
    conditions = list(_conditions(spec, place))
    moves = {key: list(_moves(arg, (*place, *key))) for key, arg in sound.items() if COPY in arg}
    good &= report(item for item in (*conditions, *itertools.chain(*moves.values())) if isinstance(item, BrokenRule))
    columns = {key: _variants(arg, step) for key, arg in sound.items()}
    bad = set().union(*(_bad(column, (*place, *key), moves.get(key, ()), good, report) for key, column in columns.items() if strict))
    if not good:
        return [], 0
    rows = _Rows(
        tuple(columns), {key: [move for move in listed if isinstance(move, _Move)] for key, listed in moves.items()},
        [item for item in conditions if isinstance(item, Condition)], frozenset(bad), strict, place,
    )  # fmt: skip
    return rows.kept(_product(list(columns.values()), step), report)


@dataclass(frozen=True)
class _Move:
    """One copy: an attribute or one element of it gets a value of another argument."""

    attribute: str
    index: int | None
    source: Key
    attribute_from: str
    index_from: int | None
    place: Place


@dataclass(frozen=True)
class _Rows:
    """The copies and filters for each combination of one spec."""

    keys: tuple[Key, ...]
    moves: Mapping[Key, Sequence[_Move]]
    conditions: Sequence[Condition]
    bad: frozenset[int]
    strict: bool
    place: Place

    def kept(self, rows: Iterable[tuple[Any, ...]], report: Report) -> tuple[list[tuple[int, Spec]], int]:
        found: list[tuple[int, Spec]] = []
        number = dropped = 0
        positional = sum(key[0] == "args" for key in self.keys)
        names = [str(key[1]) for key in self.keys[positional:]]
        simple = not (self.moves or self.conditions)
        pointing: dict[int, bool] = {}
        for row in rows:
            faults, values = ([], row) if simple else self.copied(row)
            spec: Spec = {"args": list(values[:positional])}
            if names:
                spec["kwargs"] = dict(zip(names, values[positional:], strict=True))
            if not simple and not faults:
                answer = self.answer(spec)
                if answer is False:
                    dropped += 1
                    continue
                faults = [] if answer is True else [answer]
            spoilt = bool(self.bad) and any(id(value) in self.bad for value in row)
            if self.strict and not faults and not spoilt and any(_points(value, pointing) for value in row):
                faults = list(grammar.reference_faults(spec, self.place))
            if (not faults or report(faults)) and not spoilt:
                found.append((number, spec))
            number += 1
        return found, dropped

    def answer(self, spec: Spec) -> bool | BrokenRule:
        """Whether all filters keep a combination, or the reason why that is unknown."""
        for test in self.conditions:
            try:
                if not test.holds(spec):
                    return False
            except Unanswerable as error:
                return BrokenRule((*self.place, WHERE), f"{shown(test.text)} has no result: {error}")
        return True

    def copied(self, row: tuple[Any, ...]) -> tuple[list[BrokenRule], tuple[Any, ...]]:
        """Return a combination after its copies, made in order; each reads the results of those before it."""
        table = dict(zip(self.keys, row, strict=True))
        faults: list[BrokenRule] = []
        for key, moves in self.moves.items():
            for move in moves:
                faults += _copy(table, key, move)
            if self.strict and not faults:
                faults += grammar.argument_faults(table[key], (*self.place, *key))
        return faults, tuple(table.values())


def _points(arg: Any, known: dict[int, bool]) -> bool:
    """Whether an argument, or one in a list of arguments, is an index into another."""
    if id(arg) not in known:
        inner = arg.get("value") if arg.get("type") in LISTS else None
        known[id(arg)] = "index" in arg or (isinstance(inner, list) and any(isinstance(item, dict) and _points(item, {}) for item in inner))
    return known[id(arg)]


def _bad(column: Sequence[Any], place: Place, moves: Sequence[_Move | BrokenRule], good: bool, report: Report) -> set[int]:
    """Return the ids of variants that no combination can use. Those with copies are checked after these, or here if none is made."""
    copied = {move.attribute for move in moves if isinstance(move, _Move)}
    if moves and good:
        return set()
    bad: set[int] = set()
    for variant in column:
        faults = grammar.argument_faults(variant, place)
        mine = (fault for fault in faults if not copied or (fault.place != place and str(fault.place[len(place)]) not in copied))
        if not report(mine):
            bad.add(id(variant))
    return bad


def _step(spec: Mapping[str, Any], lengths: Sequence[int]) -> int | None:
    """Return how many combinations a zip makes; None if the ranges are multiplied out."""
    if spec.get(ZIP) is not True:
        return None
    return lengths[0] if lengths else 1


def _count(lengths: Iterable[int], most: int) -> int:
    """Return how many combinations a product makes; counting stops above `most`."""
    count = 1
    for length in lengths:
        count *= length
        if count > most:
            break
    return count


def _joined(lengths: Sequence[int]) -> str:
    return " and ".join(f"{length:,}" for length in dict.fromkeys(lengths))


def _product(columns: Sequence[Sequence[Any]], step: int | None) -> Iterable[tuple[Any, ...]]:
    """Combine columns: as nested loops with the first one outside, or all advancing together."""
    if step is None:
        return itertools.product(*columns)
    return (tuple(column[at if len(column) > 1 else 0] for column in columns) for at in range(step))


def _span(bounds: Sequence[Any]) -> range:
    """[min, max(, step)] with both ends included."""
    return range(bounds[0], bounds[1] + 1, bounds[2] if len(bounds) > 2 else 1)


def _length(bounds: Sequence[Any]) -> int:
    low, high, step = _exact(bounds)
    return int((high - low) // step) + 1


def _exact(bounds: Sequence[Any]) -> tuple[Fraction, Fraction, Fraction]:
    """Return decimal numbers as written, so that 0.1 to 0.3 by 0.1 has three values and the last is 0.3."""
    low, high, step = (Fraction(str(value)) for value in (*bounds, 1)[:3])
    return low, high, step


def _lengths(arg: Mapping[str, Any]) -> Iterator[int]:
    """Yield the number of values of each range of an argument."""
    kind, ranged = arg.get("type"), arg.get(RANGE, ())
    yield from (len(arg[name]) for name in dict.fromkeys(arg.get(LIST, ())))
    for name in dict.fromkeys(ranged):
        if kind == "tensor" and name == "shape":
            yield from (_length(size) for size in arg[name] if isinstance(size, list))
        elif kind in LISTS:
            yield from (length for item in arg[name] for length in _lengths(item))
        else:
            yield _length(arg[name]) if kind in (*WHOLE, *REAL) else len(arg[name])


def _variants(arg: Mapping[str, Any], step: int | None) -> list[Any]:
    """Return all variants of one argument, without macros; attributes written first change slowest."""
    if not any(macro in arg for macro in MACROS):
        return [arg]
    names = [name for name in arg if name not in MACROS]
    return [dict(zip(names, row, strict=True)) for row in _product([_choices(arg, name, step) for name in names], step)]


def _choices(arg: Mapping[str, Any], name: str, step: int | None) -> Sequence[Any]:
    kind, value = arg.get("type"), arg[name]
    if name in arg.get(LIST, ()):
        return list(value)
    if name not in arg.get(RANGE, ()):
        return [value]
    if kind == "tensor" and name == "shape":
        return [list(row) for row in _product([_span(size) if isinstance(size, list) else [size] for size in value], step)]
    if kind in LISTS:
        return [list(row) for row in _product([_variants(item, step) for item in value], step)]
    if kind in REAL:
        low, _, width = _exact(value)
        return [float(low + index * width) for index in range(_length(value))]
    return _span(value) if kind in WHOLE else list(value)


def _conditions(spec: Mapping[str, Any], place: Place) -> Iterator[Condition | BrokenRule]:
    texts = spec.get(WHERE, [])
    if not isinstance(texts, list):
        yield expected((*place, WHERE), "a list of conditions", texts)
        return
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            yield expected((*place, WHERE, index), "a condition such as 'args[0].shape[0] % 8 == 0'", text)
            continue
        try:
            yield condition(text)
        except UsageError as error:
            yield BrokenRule((*place, WHERE, index), f"{shown(text)}: {error.what}", error.do)


def _moves(arg: Mapping[str, Any], place: Place) -> Iterator[_Move | BrokenRule]:
    """Yield the copies of one argument: `{"shape": [i, [j, k]]}`, where i may be null for the whole attribute, j a position or
    the name of a keyword argument, and k an element, an attribute's name, or both."""
    listed = arg[COPY]
    if not isinstance(listed, list) or not all(isinstance(item, dict) for item in listed):
        yield expected((*place, COPY), 'a list such as [{"shape": [0, [1, 2]]}]', listed)
        return
    for at, table in enumerate(listed):
        for name, mapping in table.items():
            where = (*place, COPY, at, str(name))
            source = mapping[1] if isinstance(mapping, list) and len(mapping) == 2 else None
            index: Any = mapping[0] if source is not None else ""
            if not (index is None or is_whole(index)) or not isinstance(source, list) or not 1 <= len(source) <= 3:
                yield expected(where, "[i, [j, k]]: element i from element k of argument j", mapping)
                continue
            key, attribute, element = source[0], name, source[-1] if len(source) > 1 and not isinstance(source[-1], str) else None
            if len(source) > 1 and isinstance(source[1], str):
                attribute = source[1]
            good = (is_whole(key) and key >= 0) or isinstance(key, str)
            good &= element is None or is_whole(element)
            good &= len(source) < 3 or isinstance(source[1], str)
            if not good or name in ("type", *MACROS) or attribute in MACROS:
                yield expected(where, "[i, [j, k]]: element i from element k of argument j", mapping)
                continue
            yield _Move(str(name), index, ("kwargs" if isinstance(key, str) else "args", key), attribute, element, where)


def _copy(table: dict[Key, Any], key: Key, move: _Move) -> Faults:
    """Make one copy, or yield the mistake that prevents it."""
    source, target = table.get(move.source), table[key]
    if source is None:
        yield BrokenRule(move.place, f"there is no argument {shown(move.source[1])} to copy from")
        return
    value = source.get(move.attribute_from)
    if move.attribute_from not in source:
        yield BrokenRule(move.place, f"argument {shown(move.source[1])} has no attribute {move.attribute_from!r}")
        return
    if move.index_from is not None:
        if not _has(value, move.index_from):
            yield BrokenRule(move.place, f"{move.attribute_from} of argument {shown(move.source[1])} has no element {move.index_from}")
            return
        value = value[move.index_from]
    if move.index is not None:
        old = target.get(move.attribute)
        if not _has(old, move.index):
            yield BrokenRule(move.place, f"{move.attribute} of this argument has no element {move.index}")
            return
        new = list(old)
        new[move.index] = value
        value = new
    table[key] = {**target, move.attribute: value}


def _has(value: Any, index: int) -> bool:
    return isinstance(value, list) and -len(value) <= index < len(value)


def _bounds_faults(value: Any, place: Place, whole: bool) -> Faults:
    """Yield mistakes in a range: [min, max] or [min, max, step], both ends included."""
    fits = is_whole if whole else is_number
    kind = "whole numbers" if whole else "numbers"
    if not isinstance(value, list) or len(value) not in (2, 3) or not all(fits(item) for item in value):
        yield expected(place, f"[min, max] or [min, max, step] of {kind}", value)
    elif len(value) == 3 and value[2] <= 0:
        yield BrokenRule(place, f"the step of {shown(value)} is not above 0")
    elif value[0] > value[1]:
        yield BrokenRule(place, f"the range {shown(value)} is empty", "write the smaller end first")


def macro_faults(arg: Any, place: Place, depth: int = 0) -> Faults:
    """Yield mistakes in the macros of one argument; their values are checked once they are known."""
    if not isinstance(arg, dict):
        yield expected(place, 'an argument such as {"type": "int", "value": 1}', arg)
        return
    if not any(macro in arg for macro in MACROS):
        return
    if depth and COPY in arg:
        yield BrokenRule((*place, COPY), "an argument inside a list cannot copy", "put the copy into the argument of the whole list")
    named: list[str] = []
    for macro in (RANGE, LIST):
        names = arg.get(macro, [])
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            yield expected((*place, macro), 'a list of attributes such as ["value"]', names)
            continue
        for name in dict.fromkeys(names):
            if name not in arg or name in ("type", *MACROS, *NOTES):
                hint = did_you_mean(name[:100], [key for key in arg if key in ("value", "dtype", "shape")])
                yield BrokenRule((*place, macro), f"the argument has no attribute {shown(name)} to expand", hint)
            elif name in named:
                yield BrokenRule((*place, macro), f"{name!r} is in both {RANGE} and {LIST}", "keep one")
            else:
                yield from (_range_faults if macro == RANGE else _list_faults)(arg, name, place, depth)
        named += names


def _list_faults(arg: Mapping[str, Any], name: str, place: Place, depth: int) -> Faults:
    if not isinstance(arg[name], list) or not arg[name]:
        yield expected((*place, name), "a list of one or more alternatives", arg[name])


def _range_faults(arg: Mapping[str, Any], name: str, place: Place, depth: int) -> Faults:
    kind, value, at = arg.get("type"), arg[name], (*place, name)
    if kind == "tensor" and name == "shape":
        if not isinstance(value, list):
            yield expected(at, "a list of sizes and ranges", value)
            return
        for index, size in enumerate(value):
            if isinstance(size, list):
                yield from _bounds_faults(size, (*at, index), whole=True)
                if size and is_whole(size[0]) and size[0] < 0:
                    yield BrokenRule((*at, index), f"a range of sizes begins below 0: {shown(size)}")
    elif (kind == "tensor" and name == "dtype") or (kind in CHOICES and name == "value"):
        yield from _list_faults(arg, name, place, depth)
    elif kind in (*WHOLE, *REAL) and name == "value":
        yield from _bounds_faults(value, at, whole=kind in WHOLE)
    elif kind in LISTS and name == "value":
        if depth >= DEEPEST or not isinstance(value, list):
            yield expected(at, f"a list of arguments, nested at most {DEEPEST} deep", value)
            return
        for index, item in enumerate(value):
            yield from macro_faults(item, (*at, index), depth + 1)
    elif isinstance(kind, str) and kind in KEYS:
        yield BrokenRule((*place, RANGE), f"{name!r} of a {kind} has no range", 'name alternatives with "__list__" instead')
    else:
        yield BrokenRule((*place, RANGE), f"a {shown(kind)} has no range")
