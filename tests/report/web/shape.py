"""The shape of a document, as the page relies on it: every key that is promised, and what kind of value it has."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import msgspec

from steelyard.report.web.plain import plain
from steelyard.report.web.schema import ReportDocument

NUMBER = (int, float)
TEXT, WHOLE, YES, ANY = str, int, bool, object


class Maybe:
    """A value that may be null."""

    def __init__(self, shape: Any) -> None:
        self.shape = shape


class Table:
    """A table with any keys whose values have one shape."""

    def __init__(self, shape: Any) -> None:
        self.shape = shape


class Choice:
    """One of some words."""

    def __init__(self, *words: str) -> None:
        self.words = words


REAL = Maybe(NUMBER)
SCALAR = (str, int, float, bool, type(None))

CHANGE = {
    "index": WHOLE, "run": TEXT, "created": TEXT, "before": REAL, "after": REAL, "ratio": REAL, "low": REAL, "high": REAL, "p": REAL,
    "last": TEXT, "first": TEXT, "dirty": YES, "others": [TEXT], "known": TEXT,
}  # fmt: skip
POINT = (TEXT, WHOLE, TEXT, NUMBER, REAL, REAL, TEXT, YES, Maybe(TEXT))
TREND = {"run": TEXT, "created": TEXT, "column": TEXT, "mean": NUMBER, "n": WHOLE, **{f"q{part}": NUMBER for part in (10, 25, 50, 75, 90)}}
HISTORY = {
    "series": [{"case": TEXT, "label": TEXT, "machine": WHOLE, "points": [POINT], "changes": [CHANGE], "broken": WHOLE, "searched": WHOLE}],
    "trends": Maybe(
        {
            "baseline": TEXT, "columns": [TEXT], "points": [TREND],
            "latest": [{"column": TEXT, "row": TEXT, "speedup": NUMBER, "low": REAL, "high": REAL}],
        }
    ),
}  # fmt: skip
REQUESTS = {
    "case": TEXT, "line": TEXT, "n": Table(WHOLE), "ttft": [NUMBER], "itl": [NUMBER], "tokens?": [[NUMBER]], "end?": REAL,
}  # fmt: skip
GENERATION = {"points": [{"name": TEXT, "workload": TEXT, "cases": [REQUESTS]}], "roofline": [Table(SCALAR)]}
UNTYPED = {
    "roofline": Maybe(
        {
            "roofs": [
                {
                    "machine": WHOLE, "device": TEXT, "dtype": TEXT, "compute": REAL, "bandwidth": REAL,
                    "source": Choice("measured", "datasheet"),
                }
            ],
            "points": [TEXT],
        }
    ),
    "generation": Maybe(GENERATION),
    "history": Maybe(HISTORY), "charts": Table({"title": TEXT, "reading": TEXT, "spec": Table(ANY), "columns": [TEXT]}),
}  # fmt: skip
"""The parts that are tables of their own pages; all others are held to the dataclasses."""


def check(document: Mapping[str, Any]) -> None:
    """Raise where a document is not what the page expects, or not JSON."""
    again = json.loads(json.dumps(document, allow_nan=False))
    assert again == document, "a document is JSON as it is"
    typed = {name: value for name, value in document.items() if name != "charts"}
    try:
        read = msgspec.convert(typed, ReportDocument)
    except msgspec.ValidationError as error:
        raise AssertionError(str(error)) from None
    assert plain(read) == typed, "nothing that the dataclasses do not know, and nothing less"
    mistakes = [mistake for name, shape in UNTYPED.items() for mistake in _mistakes(document[name], shape, name)]
    assert not mistakes, "\n".join(mistakes[:10])
    for case in document["cases"]:
        assert 0 <= case["run"] < len(document["runs"]) and 0 <= case["environment"] < len(document["environments"])
        raw = case["samples"]
        assert not raw or all(part is None or len(part) == len(raw["time"]) for part in (raw["index"], raw["discarded"], raw["throttled"]))
    for item in (*document["runs"], *(document["history"] or {"series": []})["series"]):
        assert 0 <= item["machine"] < len(document["machines"])


def _mistakes(value: Any, shape: Any, at: str) -> Any:
    if isinstance(shape, Maybe):
        yield from () if value is None else _mistakes(value, shape.shape, at)
    elif isinstance(shape, Choice):
        yield from () if value in shape.words else [f"{at}: {value!r} is none of {shape.words}"]
    elif isinstance(shape, Table):
        if not isinstance(value, dict):
            yield f"{at}: no table"
            return
        for key, item in value.items():
            yield from _mistakes(item, shape.shape, f"{at}.{key}")
    elif isinstance(shape, dict):
        yield from _of_table(value, shape, at)
    elif isinstance(shape, list):
        if not isinstance(value, list):
            yield f"{at}: no list"
            return
        for place, item in enumerate(value):
            yield from _mistakes(item, shape[0], f"{at}[{place}]")
    elif isinstance(shape, tuple) and (shape == (str, str) or not all(isinstance(item, type) for item in shape)):
        yield from _of_list(value, shape, at)
    else:
        yield from () if _is(value, shape) else [f"{at}: {value!r} is no {shape}"]


def _is(value: Any, kinds: Any) -> bool:
    listed = kinds if isinstance(kinds, tuple) else (kinds,)
    if isinstance(value, bool):
        return bool in listed or object in listed
    return isinstance(value, listed) and not (isinstance(value, float) and not math.isfinite(value))


def _of_list(value: Any, shape: tuple[Any, ...], at: str) -> Any:
    if not isinstance(value, list) or len(value) != len(shape):
        yield f"{at}: not {len(shape)} values: {value!r}"
        return
    for place, (item, part) in enumerate(zip(value, shape, strict=True)):
        yield from _mistakes(item, part, f"{at}[{place}]")


def _of_table(value: Any, shape: Mapping[str, Any], at: str) -> Any:
    if not isinstance(value, dict):
        yield f"{at}: no table"
        return
    promised = {key for key in shape if not key.endswith("?")}
    yield from (f"{at}: {key} is missing" for key in promised - set(value))
    yield from (f"{at}: nobody knows {key}" for key in set(value) - {key.removesuffix("?") for key in shape})
    for key, part in shape.items():
        if (name := key.removesuffix("?")) in value:
            yield from _mistakes(value[name], part, f"{at}.{name}")
