"""The shape of a document, as the page relies on it: every key that is promised, and what kind of value it has."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

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
QUAD = (REAL, REAL, REAL, Maybe(WHOLE))
STATUS = Choice("ok", "wrong", "failed", "oom", "timeout", "crashed", "unsupported", "not_applied", "not_applicable", "skipped")
SCALAR = (str, int, float, bool, type(None))

SAMPLES = {
    "unit": TEXT, "count": WHOLE, "index": Maybe([WHOLE]), "time": [REAL], "discarded": Maybe([WHOLE]), "kept": YES,
    "clock": Maybe({"unit": TEXT, "index": [WHOLE], "values": [REAL]}), "throttled": Maybe([WHOLE]),
}  # fmt: skip
CASE = {
    "id": TEXT, "label": TEXT, "run": WHOLE, "number": WHOLE, "status": STATUS, "reason": TEXT, "workload": TEXT, "params": Table(SCALAR),
    "backend": TEXT, "variant": TEXT, "mode": TEXT, "device": TEXT, "threads": Maybe(WHOLE), "ranks": WHOLE, "env": TEXT,
    "flags": Table(SCALAR), "metrics": Table(QUAD), "noise": TEXT, "other_load": REAL,
    "verification": Maybe(
        {
            "status": TEXT, "against": TEXT, "message": TEXT, "max_abs": REAL, "max_rel": REAL, "rtol": REAL, "atol": REAL,
            "identical": YES, "checks": [TEXT], "code": TEXT, "figures": Table(REAL),
        }
    ),
    "check": TEXT,
    "environment": WHOLE, "differs": Maybe([TEXT]), "effective": Table(SCALAR), "samples": Maybe(SAMPLES),
    "attachments": [{"kind": TEXT, "path": TEXT, "sha256": TEXT}], "repeat": TEXT,
    "roof": Maybe(
        {
            "intensity": REAL, "achieved": REAL, "bandwidth": REAL, "bound": Choice("compute", "memory", "launch"), "share": REAL,
            "peak_compute": REAL, "peak_bandwidth": REAL, "dtype": TEXT,
        }
    ),
    "traceback?": [TEXT], "kernels?": [ANY], "machine_meanwhile?": Table(TEXT),
}  # fmt: skip
COMPARISON = {
    "base": TEXT, "head": TEXT, "paired": YES, "notes": [TEXT], "means": Table((REAL, WHOLE, REAL, REAL)),
    "deltas": [
        {
            "case": TEXT, "base": TEXT, "metric": TEXT, "ratio": REAL, "low": REAL, "high": REAL, "margin": REAL, "paired": YES,
            "verdict": Choice("slower", "faster", "same", "unclear", "missing", "failed", "incomparable"), "reason": TEXT, "p": REAL,
            "effect": TEXT, "before": Maybe(QUAD), "after": Maybe(QUAD),
        }
    ],
    "new": [TEXT], "missing": [TEXT], "bad": [{"case": TEXT, "status": STATUS, "reason": TEXT, "side": Choice("base", "head")}],
}  # fmt: skip
MEAN = Maybe({"mean": NUMBER, "n": WHOLE, "low": REAL, "high": REAL})
MATRIX = {
    "baseline": TEXT, "columns": [TEXT], "rows": [{"name": TEXT, "workload": TEXT, "params": TEXT, "mode": TEXT}],
    "cells": [[Maybe({"case": TEXT, "status": STATUS, "time": Maybe(QUAD)})]],
    "by_baseline": Table({"speedups": [[Maybe((NUMBER, REAL, REAL, WHOLE))]], "means": [MEAN], "each": [MEAN]}),
    "pass_rates": [{"ok": WHOLE, "wrong": WHOLE, "failed": WHOLE, "unsupported": WHOLE, "total": WHOLE}],
}  # fmt: skip
SWEEP = {
    "workload": TEXT, "axis": TEXT, "kind": Choice("number", "name"), "metrics": [TEXT], "fixed": TEXT, "mode": TEXT,
    "lines": [{"name": TEXT, "points": [{"x": (int, float, str), "case": TEXT, "ok": YES}]}], "baseline": Maybe(TEXT),
}  # fmt: skip
CHANGE = {
    "index": WHOLE, "run": TEXT, "created": TEXT, "before": REAL, "after": REAL, "ratio": REAL, "low": REAL, "high": REAL, "p": REAL,
    "last": TEXT, "first": TEXT, "dirty": YES, "others": [TEXT],
}  # fmt: skip
POINT = (TEXT, WHOLE, TEXT, NUMBER, REAL, REAL, TEXT, YES, Maybe(TEXT))
TREND = {"run": TEXT, "created": TEXT, "column": TEXT, "mean": NUMBER, "n": WHOLE, **{f"q{part}": NUMBER for part in (10, 25, 50, 75, 90)}}
HISTORY = {
    "series": [{"case": TEXT, "machine": WHOLE, "points": [POINT], "changes": [CHANGE], "broken": WHOLE, "searched": WHOLE}],
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
DOCUMENT = {
    "format": Choice("steelyard-report/1"), "title": TEXT, "made": TEXT, "version": TEXT,
    "banner": {"tone": Choice("good", "bad", "mixed", "none"), "text": TEXT, "sentences": [TEXT]}, "warnings": [TEXT],
    "machines": [{"key": TEXT, "name": TEXT, "facts": [(TEXT, TEXT)]}],
    "runs": [
        {
            "id": TEXT, "created": TEXT, "commit": TEXT, "dirty": YES, "experiment": TEXT, "machine": WHOLE, "command": TEXT,
            "version": TEXT, "sealed": YES, "counts": Table(WHOLE), "missing": [TEXT], "warnings": [TEXT], "environment": Table(TEXT),
            "conditions": [TEXT], "load": REAL, "monitor": TEXT,
        }
    ],
    "metrics": Table({"unit": TEXT, "better": Choice("lower", "higher", "none"), "label": TEXT}), "environments": [Table(TEXT)],
    "common": [TEXT],
    "cases": [CASE], "comparison": Maybe(COMPARISON), "matrix": Maybe(MATRIX), "sweep": Maybe([SWEEP]),
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


def check(document: Mapping[str, Any]) -> None:
    """Raise where a document is not what the page expects, or not JSON."""
    again = json.loads(json.dumps(document, allow_nan=False))
    assert again == document, "a document is JSON as it is"
    mistakes = list(_mistakes(document, DOCUMENT, "document"))
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
