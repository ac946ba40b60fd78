"""The rules of the config grammar for arguments; each broken rule is named with its place."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from steelyard.dialects.param.reading import Place, printable
from steelyard.errors import UsageError, did_you_mean
from steelyard.model.dtypes import canonical, is_float

RANGE, LIST, COPY, ZIP, WHERE = "__range__", "__list__", "__copy__", "__zip__", "__where__"
MACROS = (RANGE, LIST, COPY)
NOTES = ("name", "comment", "description")
WHOLE, REAL, LISTS = ("int", "long"), ("float", "double"), ("genericlist", "tuple")
CHOICES = ("bool", "str", "device", "dtype", "memory_format", "layout")
FORMATS = ("contiguous", "channels_last", "channels_last_3d")
TYPE_FORMATS = (*FORMATS, "contiguous_format", "preserve", "preserve_format")
LAYOUTS = ("strided", "sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc", "jagged")
DISTRIBUTIONS: Mapping[str, tuple[str, ...]] = {
    "uniform": ("low", "high"), "normal": ("mean", "std"), "integers": ("low", "high"), "zipf": ("alpha",),
    "constant": ("value",), "arange": (), "permutation": (),
}  # fmt: skip
DEFAULTS: Mapping[tuple[str, str], float] = {
    ("uniform", "low"): 0.0, ("uniform", "high"): 1.0, ("normal", "mean"): 0.0, ("normal", "std"): 1.0, ("integers", "low"): 0,
}  # fmt: skip
INDEX_DISTRIBUTIONS = ("zipf", "permutation", "arange")
KEYS: Mapping[str, tuple[str, ...]] = {
    "tensor": ("dtype", "shape", "requires_grad", "strides", "memory_format", "values", "distribution", "index"),
    **dict.fromkeys((*WHOLE, *REAL), ("value", "value_range")),
    **dict.fromkeys((*CHOICES, *LISTS, "complex", "none"), ("value",)),
}
DEEPEST, MOST_DIMENSIONS, LARGEST = 20, 64, 2**63
_DEVICE = re.compile(r"[a-z_]+(:\d{1,4})?", re.ASCII)


@dataclass(frozen=True)
class BrokenRule:
    """One broken rule: where, what is wrong, and what to do; `loose` if the original runs it anyway."""

    place: Place
    what: str
    do: str = ""
    loose: bool = False


Faults = Iterator[BrokenRule]


def shown(value: Any, depth: int = 0) -> str:
    """Return a value as text for a message: short and on one line."""
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, int) and abs(value) >= 10**30:
        return "a number of more than 30 digits"
    if isinstance(value, (list, tuple)):
        inner = ", ".join(shown(item, depth + 1) for item in value[:4]) if depth < 3 else "…"
        return f"[{inner}, …]" if len(value) > 4 else f"[{inner}]"
    if isinstance(value, dict):
        return "an object"
    return printable(repr(value), 60)


def missing(place: Place, key: str, do: str = "") -> BrokenRule:
    """The message for a missing key."""
    return BrokenRule(place, f"missing key {key!r}", do)


def expected(place: Place, what: str, value: Any, do: str = "") -> BrokenRule:
    """The message for a value of the wrong kind."""
    return BrokenRule(place, f"expected {what}, not {shown(value)}", do)


def unknown_keys(table: Mapping[Any, Any], place: Place, allowed: Collection[str]) -> Faults:
    """Yield a mistake for each unknown key; the original ignores these."""
    for key in table:
        if key not in allowed:
            name = str(key)
            hint = did_you_mean(name, allowed) if len(name) < 100 else ""
            yield BrokenRule((*place, name), f"unknown key {shown(name)}", hint or f"allowed: {', '.join(sorted(allowed))}", True)


def arguments(spec: Mapping[str, Any]) -> list[tuple[tuple[str, str | int], Any]]:
    """Return every argument of a spec with its place in it, positional ones first."""
    args, kwargs = spec.get("args"), spec.get("kwargs")
    listed: list[tuple[tuple[str, str | int], Any]] = [(("args", at), arg) for at, arg in enumerate(args if isinstance(args, list) else ())]
    return [*listed, *((("kwargs", str(name)), arg) for name, arg in (kwargs if isinstance(kwargs, dict) else {}).items())]


def spec_faults(spec: Any, place: Place, macros: bool, strict: bool) -> Faults:
    """Mistakes in the frame of a build or input spec; its arguments are checked separately."""
    if not isinstance(spec, dict):
        yield expected(place, "an object with args and kwargs", spec)
        return
    if strict:
        yield from unknown_keys(spec, place, ("args", "kwargs", ZIP, WHERE))
        if "args" not in spec:
            yield missing(place, "args", 'write "args": [] if there are none')
    if not macros:
        yield from (BrokenRule((*place, key), *_needs_range(key, 0)) for key in (ZIP, WHERE) if key in spec)
    if not isinstance(spec.get(ZIP, False), bool):
        yield expected((*place, ZIP), "true or false", spec[ZIP])
    if not isinstance(spec.get("args", []), list):
        yield expected((*place, "args"), "a list of arguments", spec["args"])
    if not isinstance(spec.get("kwargs", {}), dict):
        yield expected((*place, "kwargs"), "an object of named arguments", spec["kwargs"])
        return
    for name in spec.get("kwargs", {}):
        if not (isinstance(name, str) and name.isidentifier()):
            yield BrokenRule((*place, "kwargs", str(name)), f"{shown(name)} cannot name an argument", "use letters, digits and underscores")


def argument_faults(arg: Any, place: Place, depth: int = 0) -> Faults:
    """Mistakes in one argument without macros."""
    if not isinstance(arg, dict):
        yield expected(place, 'an argument such as {"type": "int", "value": 1}', arg)
        return
    kind = arg.get("type")
    yield from type_faults(arg, place)
    yield from (BrokenRule((*place, key), *_needs_range(key, depth)) for key in MACROS if key in arg)
    if isinstance(kind, str) and kind in KEYS:
        yield from unknown_keys(arg, place, ("type", *KEYS[kind], *NOTES, *MACROS))
        yield from _CHECKS[kind](arg, place, depth)
        for note in NOTES:
            if note in arg and not is_text(arg[note]):
                yield expected((*place, note), "a text", arg[note])


def type_faults(arg: Mapping[str, Any], place: Place) -> Faults:
    """Yield mistakes in an argument's type, without which nothing else about it can be checked."""
    if "type" not in arg:
        yield missing(place, "type", f"one of {', '.join(KEYS)}")
    elif not isinstance(arg["type"], str) or arg["type"] not in KEYS:
        name = arg["type"] if isinstance(arg["type"], str) else ""
        yield BrokenRule(
            (*place, "type"), f"no type named {shown(arg['type'])}", did_you_mean(name[:100], KEYS) or f"known: {', '.join(KEYS)}"
        )


def _needs_range(key: str, depth: int) -> tuple[str, str]:
    if depth:
        return f"{key!r} inside a list is not expanded", 'name "value" in the "__range__" of the list around it, under RangeConfigIterator'
    return f"only RangeConfigIterator reads {key!r}", 'add "input_iterator" (or "build_iterator"): "RangeConfigIterator"'


def is_number(value: Any) -> bool:
    """Whether a value is a finite number that fits 64 bits; true and false are not numbers."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return abs(value) < LARGEST if isinstance(value, int) else math.isfinite(value)


def is_text(value: Any) -> bool:
    """Whether a value is text that can be encoded: half of a surrogate pair cannot."""
    return isinstance(value, str) and (value.isascii() or not any("\ud800" <= char <= "\udfff" for char in value))


def is_whole(value: Any) -> bool:
    """Whether a value is a whole number that fits 64 bits."""
    return isinstance(value, int) and not isinstance(value, bool) and -LARGEST <= value < LARGEST


def _number_faults(arg: Mapping[str, Any], place: Place, depth: int) -> Faults:
    whole = arg["type"] in WHOLE
    if "value" in arg:
        value = arg["value"]
        good = is_number(value) if whole else isinstance(value, float) or is_number(value)
        if not good and not isinstance(value, bool):
            numbers = isinstance(value, list) and bool(value) and all(map(is_number, value))
            do = "use type none" if value is None else "use type genericlist or tuple" if isinstance(value, list) else ""
            yield replace(expected((*place, "value"), "a number", value, do), loose=numbers)
    elif "value_range" in arg:
        ends, fits = arg["value_range"], is_whole if whole else is_number
        if not isinstance(ends, list) or len(ends) != 2 or not all(fits(end) for end in ends):
            yield expected((*place, "value_range"), f"[min, max] of {'whole ' if whole else ''}numbers", ends)
        elif ends[0] > ends[1]:
            yield BrokenRule((*place, "value_range"), f"the range {shown(ends)} is empty", "write the smaller end first")
    else:
        yield missing(place, "value", 'add "value" or "value_range"')


def _choice_faults(arg: Mapping[str, Any], place: Place, depth: int) -> Faults:
    kind, at = arg["type"], (*place, "value")
    if "value" not in arg:
        if kind != "str":
            yield missing(place, "value")
        return
    value = arg["value"]
    if kind == "bool":
        if not isinstance(value, bool) and not (is_whole(value) and value in (0, 1)):
            yield expected(at, "true or false", value)
    elif not isinstance(value, str):
        yield expected(at, "a text", value)
    elif kind == "dtype":
        yield from dtype_faults(value, at)
    elif kind == "device" and not _DEVICE.fullmatch(value):
        yield expected(at, "a device such as cpu or cuda:0", value)
    elif kind in ("memory_format", "layout"):
        yield from _name_faults(value.removeprefix("torch."), at, TYPE_FORMATS if kind == "memory_format" else LAYOUTS)
    elif not is_text(value):
        yield expected(at, "a text that can be written as UTF-8", value)


def _name_faults(value: Any, place: Place, names: Collection[str]) -> Faults:
    if not isinstance(value, str) or value not in names:
        yield expected(place, f"one of {', '.join(names)}", value, did_you_mean(value[:100], names) if isinstance(value, str) else "")


def dtype_faults(value: Any, place: Place) -> Faults:
    """Yield a mistake if a value is not a number format; every usual spelling is accepted."""
    if not isinstance(value, str):
        yield expected(place, "a dtype such as float", value)
        return
    try:
        canonical(value)
    except UsageError as error:
        yield BrokenRule(place, f"no dtype named {shown(value)}", error.do)


def _list_value_faults(arg: Mapping[str, Any], place: Place, depth: int) -> Faults:
    if "value" not in arg:
        yield missing(place, "value")
    elif not isinstance(arg["value"], list):
        yield expected((*place, "value"), "a list of arguments", arg["value"])
    elif depth >= DEEPEST:
        yield BrokenRule(place, f"lists are nested more than {DEEPEST} deep")
    else:
        for index, item in enumerate(arg["value"]):
            yield from argument_faults(item, (*place, "value", index), depth + 1)


def _complex_faults(arg: Mapping[str, Any], place: Place, depth: int) -> Faults:
    value = arg.get("value")
    if "value" not in arg:
        yield missing(place, "value")
    elif not isinstance(value, list) or len(value) != 2 or not all(is_number(part) for part in value):
        yield expected((*place, "value"), "[real, imaginary]", value)


def _none_faults(arg: Mapping[str, Any], place: Place, depth: int) -> Faults:
    if arg.get("value") is not None:
        yield expected((*place, "value"), "nothing, because the type is none", arg["value"])


def _tensor_faults(arg: Mapping[str, Any], place: Place, depth: int) -> Faults:
    wrong_dtype = list(dtype_faults(arg["dtype"], (*place, "dtype"))) if "dtype" in arg else [missing(place, "dtype")]
    yield from wrong_dtype
    shape = arg["shape"] if "shape" in arg else _nesting(arg["values"]) if "values" in arg else None
    wrong_shape = [missing(place, "shape")] if shape is None else list(_shape_faults(shape, (*place, "shape")))
    yield from wrong_shape
    if "requires_grad" in arg:
        if not isinstance(arg["requires_grad"], bool):
            yield expected((*place, "requires_grad"), "true or false", arg["requires_grad"])
        elif arg["requires_grad"] and not wrong_dtype and not is_float(arg["dtype"]):
            yield BrokenRule((*place, "requires_grad"), f"a tensor of {arg['dtype']} has no gradient", 'write "requires_grad": false')
    if len(arg) > 3 or "shape" not in arg:
        yield from _data_faults(arg, place, None if wrong_dtype else arg["dtype"])
        if not wrong_shape:
            yield from _layout_faults(arg, place, shape or [])


def _shape_faults(shape: Any, place: Place) -> Faults:
    if not isinstance(shape, list) or len(shape) > MOST_DIMENSIONS:
        yield expected(place, f"a list of at most {MOST_DIMENSIONS} sizes", shape)
        return
    elements = 1
    for index, size in enumerate(shape):
        if type(size) is not int or size >= LARGEST:
            yield expected((*place, index), "a size", size, 'name "shape" in "__range__" or "__list__"' if isinstance(size, list) else "")
        elif size < 0:
            yield BrokenRule((*place, index), f"a size is negative: {shown(size)}", "replace it with __copy__" if size == -1 else "")
        else:
            elements *= size
    if elements >= LARGEST:
        yield BrokenRule(place, "more elements than any tensor can have")


def _layout_faults(arg: Mapping[str, Any], place: Place, shape: list[int]) -> Faults:
    if "strides" in arg:
        strides = arg["strides"]
        good = isinstance(strides, list) and all(is_whole(step) and step >= 0 for step in strides)
        if not good or len(strides) != len(shape):
            yield expected((*place, "strides"), f"{len(shape)} whole numbers, one for each size", strides)
        if "memory_format" in arg:
            yield BrokenRule((*place, "memory_format"), "strides and memory_format exclude each other", "keep one")
    elif "memory_format" in arg:
        found = arg["memory_format"]
        yield from _name_faults(found, (*place, "memory_format"), FORMATS)
        rank = {"channels_last": 4, "channels_last_3d": 5}.get(found) if isinstance(found, str) else None
        if rank and len(shape) != rank:
            yield BrokenRule((*place, "memory_format"), f"{found} needs {rank} dimensions, the shape has {len(shape)}")
    if "values" in arg and not _filled(arg["values"], shape):
        yield BrokenRule((*place, "values"), f"expected numbers nested to the shape {shown(shape)}")


def _nesting(values: Any) -> list[int]:
    """Return the shape of nested lists, judged by the first element of each."""
    shape: list[int] = []
    while isinstance(values, list) and len(shape) < MOST_DIMENSIONS:
        shape.append(len(values))
        values = values[0] if values else None
    return shape


def _filled(values: Any, shape: list[int]) -> bool:
    """Whether nested lists of numbers have exactly this shape."""
    if not shape:
        return isinstance(values, (bool, float)) or is_number(values)
    return isinstance(values, list) and len(values) == shape[0] and all(_filled(item, shape[1:]) for item in values)


def _data_faults(arg: Mapping[str, Any], place: Place, dtype: str | None) -> Faults:
    given = [key for key in ("values", "distribution", "index") if key in arg]
    if "values" in given and len(given) > 1:
        yield BrokenRule((*place, "values"), f"values and {given[1]} exclude each other", "keep one")
    if "index" in arg:
        yield from _index_faults(arg["index"], (*place, "index"))
        if dtype is not None and (is_float(dtype) or canonical(dtype) == "bool"):
            yield BrokenRule((*place, "index"), f"an index needs whole numbers, not {dtype}", 'use "dtype": "long"')
    if "distribution" not in arg:
        return
    found, at = arg["distribution"], (*place, "distribution")
    name = found.get("name") if isinstance(found, dict) else None
    if not isinstance(found, dict) or not isinstance(name, str) or name not in DISTRIBUTIONS:
        hint = did_you_mean(name[:100], DISTRIBUTIONS) if isinstance(name, str) else ""
        yield expected((*at, "name"), f"one of {', '.join(DISTRIBUTIONS)}", name if isinstance(found, dict) else found, hint)
        return
    yield from unknown_keys(found, at, ("name", *DISTRIBUTIONS[name]))
    values = {key: found.get(key, DEFAULTS.get((name, key))) for key in DISTRIBUTIONS[name]}
    wrong = [key for key, value in values.items() if not (is_whole if name == "integers" else is_number)(value)]
    for key in wrong:
        kind = "a whole number" if name == "integers" else "a number"
        yield expected((*at, key), kind, found[key]) if key in found else missing(at, key)
    if not wrong:
        yield from _parameter_faults(name, values, at, "index" in arg)
    if name in ("uniform", "normal") and dtype is not None and not is_float(dtype):
        yield BrokenRule(at, f"{name} does not give whole numbers, and the dtype is {dtype}", "use integers")
    if "index" in arg and name not in INDEX_DISTRIBUTIONS:
        yield BrokenRule(at, f"an index cannot be {name}", f"one of {', '.join(INDEX_DISTRIBUTIONS)}, or none for equal chances")


def _parameter_faults(name: str, values: Mapping[str, Any], place: Place, index: bool) -> Faults:
    """Yield mistakes in numbers of the right kind that describe no valid distribution."""
    if name in ("uniform", "integers"):
        low, high = values["low"], values["high"]
        if low > high or (low == high and name == "integers"):
            yield BrokenRule(place, f"the range from {shown(low)} to {shown(high)} is empty")
    if name == "normal" and values["std"] < 0:
        yield BrokenRule((*place, "std"), f"a standard deviation is negative: {shown(values['std'])}")
    if name == "zipf" and values["alpha"] <= (0 if index else 1):
        needs = "above 0 for an index" if index else "above 1"
        yield BrokenRule((*place, "alpha"), f"a Zipf distribution needs alpha {needs}, not {shown(values['alpha'])}")


def _index_faults(index: Any, place: Place) -> Faults:
    if not isinstance(index, dict) or ("arg" in index) == ("kwarg" in index):
        yield expected(place, 'an object such as {"arg": 0, "dim": 0}', index)
        return
    yield from unknown_keys(index, place, ("arg", "kwarg", "dim"))
    if "arg" in index and not (is_whole(index["arg"]) and index["arg"] >= 0):
        yield expected((*place, "arg"), "the position of an argument", index["arg"])
    if "kwarg" in index and not isinstance(index["kwarg"], str):
        yield expected((*place, "kwarg"), "the name of an argument", index["kwarg"])
    if not is_whole(index.get("dim", 0)):
        yield expected((*place, "dim"), "a dimension", index["dim"])


def reference_faults(spec: Mapping[str, Any], place: Place) -> Faults:
    """Yield a mistake for an index into something that is not a tensor, or into a dimension that is missing or empty."""
    whole = dict(arguments(spec))
    named: list[tuple[Place, Any]] = [((*place, *key), arg) for key, arg in reversed(whole.items())]
    while named:
        at, arg = named.pop()
        if not isinstance(arg, dict):
            continue
        if arg.get("type") in LISTS and isinstance(arg.get("value"), list):
            named += reversed([((*at, "value", index), item) for index, item in enumerate(arg["value"])])
        if not isinstance(arg.get("index"), dict) or any(True for _ in _index_faults(arg["index"], ())):
            continue
        index, dim = arg["index"], arg["index"].get("dim", 0)
        target = whole.get(("kwargs", index["kwarg"]) if "kwarg" in index else ("args", index["arg"]))
        shape = target.get("shape") if isinstance(target, dict) and target.get("type") == "tensor" else None
        named_as = shown(index["kwarg"]) if "kwarg" in index else f"args[{index['arg']}]"
        if not isinstance(shape, list):
            yield BrokenRule((*at, "index"), f"{named_as} is not a tensor of this spec")
        elif not -len(shape) <= dim < len(shape):
            yield BrokenRule((*at, "index", "dim"), f"{named_as} has {len(shape)} dimensions, none is {dim}")
        elif shape[dim] == 0:
            yield BrokenRule((*at, "index"), f"dimension {dim} of {named_as} is empty, so nothing can be looked up in it")


_CHECKS: Mapping[str, Callable[[Mapping[str, Any], Place, int], Faults]] = {
    "tensor": _tensor_faults,
    **dict.fromkeys((*WHOLE, *REAL), _number_faults),
    **dict.fromkeys(CHOICES, _choice_faults),
    **dict.fromkeys(LISTS, _list_value_faults),
    "complex": _complex_faults,
    "none": _none_faults,
}
