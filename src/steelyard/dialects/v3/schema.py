"""The database's columns and their types, the source of both the checks and the JSON Schema.

The database itself checks nothing when a file is sent; a wrong type shows up hours later, in a log of the service.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from steelyard.codec.reading import shown
from steelyard.errors import Mistakes, UsageError, did_you_mean

VERSION = "v3"
LARGEST = {"UInt32": 2**32 - 1, "UInt64": 2**64 - 1}
FLOAT32 = 3.4028234663852886e38
"""The largest Float32."""
METADATA = ("timestamp", "schema_version", "name", "repo", "head_branch", "head_sha", "workflow_id", "run_attempt", "job_id")
"""The keys that CI adds: a benchmark's own file may lack them, a row of the database must have them."""
STAND_INS = {"workflow_id": "servicelab_experiment_id", "job_id": "servicelab_trial_id"}
MOST_TOLD = 20
LONGEST_KEY = 80


@dataclass(frozen=True)
class Scalar:
    """A column of single values, by ClickHouse's name for its type."""

    type: str


@dataclass(frozen=True)
class ArrayOf:
    """Array(…)."""

    items: Kind


@dataclass(frozen=True)
class MapOf:
    """Map(String, …)."""

    values: Kind


@dataclass(frozen=True)
class TupleOf:
    """Tuple(…), which is an object in JSON: its parts by name, and the names of required ones."""

    parts: Mapping[str, Kind]
    needed: tuple[str, ...] = ()


Kind = Scalar | ArrayOf | MapOf | TupleOf

STRING, UINT32, UINT64, NUMBER = Scalar("String"), Scalar("UInt32"), Scalar("UInt64"), Scalar("Float32")
TEXTS = MapOf(STRING)
RUNNER = TupleOf({
    "name": STRING, "type": STRING, "cpu_info": STRING, "cpu_count": UINT32, "mem_info": STRING, "avail_mem_in_gb": UINT32,
    "gpu_info": STRING, "gpu_count": UINT32, "gpu_mem_info": STRING, "avail_gpu_mem_in_gb": UINT32, "extra_info": TEXTS,
})  # fmt: skip
BENCHMARK = TupleOf({"name": STRING, "mode": STRING, "dtype": STRING, "extra_info": TEXTS})
MODEL = TupleOf({"name": STRING, "type": STRING, "backend": STRING, "origins": ArrayOf(STRING), "extra_info": TEXTS})
INPUT = TupleOf({"dtype": STRING, "extra_info": TEXTS})
DEPENDENCY = TupleOf({"repo": STRING, "branch": STRING, "sha": STRING, "version": STRING, "extra_info": TEXTS})
METRIC = TupleOf(
    {"name": STRING, "benchmark_values": ArrayOf(NUMBER), "target_value": NUMBER, "extra_info": TEXTS}, ("name", "benchmark_values")
)
COLUMNS: dict[str, Kind] = {
    "timestamp": UINT64, "schema_version": STRING, "name": STRING, "repo": STRING, "head_branch": STRING, "head_sha": STRING,
    "workflow_id": UINT64, "run_attempt": UINT32, "job_id": UINT64, "servicelab_experiment_id": UINT64, "servicelab_trial_id": UINT64,
    "runners": ArrayOf(RUNNER), "benchmark": BENCHMARK, "model": MODEL, "inputs": MapOf(INPUT), "dependencies": MapOf(DEPENDENCY),
    "metric": METRIC, "_meta": TupleOf({"bucket": STRING, "key": STRING}),
}  # fmt: skip
RECORD = TupleOf(COLUMNS, ("metric",))


def mistakes(record: Any, *, complete: bool = False) -> Iterator[tuple[str, str]]:
    """Yield every mistake in a record as key path and message; `complete` also requires what CI adds."""
    yield from wrong(record, RECORD, "")
    if not isinstance(record, dict):
        return
    if isinstance(version := record.get("schema_version"), str) and version != VERSION:
        yield "schema_version", f"expected {VERSION!r}, not {shown(version)}"
    metric = record.get("metric")
    if isinstance(metric, dict) and metric.get("name") == "":
        yield "metric.name", "expected a name, not an empty text"
    for key in METADATA if complete else ():
        if key not in record and not record.get(STAND_INS.get(key, "")):
            yield key, "is missing; it comes with the metadata of a CI job"


def wrong(value: Any, kind: Kind, path: str) -> Iterator[tuple[str, str]]:
    """Yield key path and message of whatever a value's type does not allow."""
    if isinstance(kind, Scalar):
        if words := _scalar(value, kind.type):
            yield path, words
    elif isinstance(kind, ArrayOf):
        if not isinstance(value, list):
            yield path, f"expected a list, not {shown(value)}"
            return
        for place, item in enumerate(value):
            yield from wrong(item, kind.items, f"{path}[{place}]")
    elif not isinstance(value, dict):
        yield path, f"expected an object, not {shown(value)}"
    elif isinstance(kind, MapOf):
        for key, item in value.items():
            yield from wrong(key, STRING, _below(path, key))
            yield from wrong(item, kind.values, _below(path, key))
    else:
        yield from _parts(value, kind, path)


def _parts(value: Mapping[str, Any], kind: TupleOf, path: str) -> Iterator[tuple[str, str]]:
    for key, item in value.items():
        if key in kind.parts:
            yield from wrong(item, kind.parts[key], _below(path, key))
        else:
            near = did_you_mean(key, kind.parts)
            yield _below(path, key), f"unknown key, which the database would drop{f'; {near}' if near else ''}"
    for key in kind.needed:
        if key not in value:
            yield _below(path, key), "is missing"


def _below(path: str, key: str) -> str:
    plain = key if len(key) <= LONGEST_KEY else f"{key[: LONGEST_KEY - 1]}…"
    return f"{path}.{plain}" if path else plain


def _scalar(value: Any, type: str) -> str:
    """What is wrong with a single value; empty if it is valid."""
    if type == "String":
        if not isinstance(value, str):
            return f"expected a text, not {shown(value)}"
        return "" if is_text(value) else f"expected a text without half a surrogate pair, not {shown(value)}"
    if type == "Float32":
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return f"expected a number, not {shown(value)}"
        if isinstance(value, float) and not math.isfinite(value):
            return f"expected a finite number, not {value}"
        return "" if -FLOAT32 <= value <= FLOAT32 else f"{_short(value)} is too large for Float32"
    if isinstance(value, bool) or not isinstance(value, int):
        return f"expected a whole number, not {shown(value)}"
    if value < 0:
        return f"expected a whole number of at least 0, not {_short(value)}"
    return "" if value <= LARGEST[type] else f"{_short(value)} is too large for {type}, whose largest value is {LARGEST[type]}"


def is_text(value: str) -> bool:
    """Whether a text can be written in UTF-8; JSON can also contain half a surrogate pair, as an escape."""
    return value.isascii() or not any("\ud800" <= char <= "\udfff" for char in value)


def _short(value: float) -> str:
    try:
        text = str(value)
    except ValueError:
        return "a number of thousands of digits"
    return text if len(text) <= 40 else f"{text[:20]}…"


def check(record: Any, where: str, *, complete: bool = False) -> None:
    """Raise one error that names every mistake in a record; `where` is its file and line."""
    found = [UsageError(f"{path}: {words}" if path else words, where=where) for path, words in mistakes(record, complete=complete)]
    if len(found) == 1:
        raise found[0]
    if found:
        raise Mistakes(found[:MOST_TOLD], where=where, more=max(0, len(found) - MOST_TOLD))


def schema(*, complete: bool = False) -> dict[str, Any]:
    """The JSON Schema of a record, to check files without Steelyard."""
    made = _schema(RECORD)
    made["required"] = [*made["required"], *(key for key in METADATA if complete and key not in STAND_INS)]
    made["properties"]["schema_version"] = {"const": VERSION}
    made["properties"]["metric"]["properties"]["name"] = {"type": "string", "minLength": 1}
    either = [{"anyOf": [{"required": [key]}, {"required": [other]}]} for key, other in STAND_INS.items()] if complete else []
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:steelyard:benchmark-database:{VERSION}",
        "title": "A record of the PyTorch OSS benchmark database",
        **made,
        **({"allOf": either} if either else {}),
    }


def _schema(kind: Kind) -> dict[str, Any]:
    if isinstance(kind, Scalar):
        if kind.type == "String":
            return {"type": "string"}
        if kind.type == "Float32":
            return {"type": "number", "minimum": -FLOAT32, "maximum": FLOAT32}
        return {"type": "integer", "minimum": 0, "maximum": LARGEST[kind.type]}
    if isinstance(kind, ArrayOf):
        return {"type": "array", "items": _schema(kind.items)}
    if isinstance(kind, MapOf):
        return {"type": "object", "additionalProperties": _schema(kind.values)}
    parts = {name: _schema(part) for name, part in kind.parts.items()}
    return {"type": "object", "properties": parts, "required": list(kind.needed), "additionalProperties": False}
