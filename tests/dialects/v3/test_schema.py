"""Every column's type is held to: what the database would drop or choke on is refused with the file and the key path."""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.dialects.v3 import schema
from steelyard.errors import Mistakes, UsageError
from tests.dialects.v3.made import METADATA, full, row

ROOT = Path(__file__).parents[3]
WRONG: dict[str, list[Any]] = {
    "String": [1, 1.5, True, None, [], {}],
    "UInt32": ["1", 1.0, True, None, -1, 2**32, []],
    "UInt64": ["1", 1.0, False, None, -1, 2**64, {}],
    "Float32": ["1", True, None, math.nan, math.inf, -math.inf, 3.5e38, -3.5e38, 10**400, []],
}


def spots(kind: schema.Kind, value: Any, path: tuple[Any, ...] = ()) -> list[tuple[tuple[Any, ...], schema.Kind]]:
    """Every place of a value with its type."""
    found = [(path, kind)]
    if isinstance(kind, schema.ArrayOf):
        found += [spot for place, item in enumerate(value) for spot in spots(kind.items, item, (*path, place))]
    elif isinstance(kind, schema.MapOf):
        found += [spot for key, item in value.items() for spot in spots(kind.values, item, (*path, key))]
    elif isinstance(kind, schema.TupleOf):
        found += [spot for key, item in value.items() for spot in spots(kind.parts[key], item, (*path, key))]
    return found


def spelled(path: tuple[Any, ...]) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".")


EVERY = [(path, kind) for path, kind in spots(schema.RECORD, full()) if path]


def changed(path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    record = copy.deepcopy(full())
    inside: Any = record
    for step in path[:-1]:
        inside = inside[step]
    inside[path[-1]] = value
    return record


def test_the_full_record_has_every_column_and_no_mistake() -> None:
    assert list(schema.mistakes(full(), complete=True)) == []
    assert set(full()) == set(schema.COLUMNS)


def test_half_a_character_is_no_text() -> None:
    found = dict(schema.mistakes(row("lat\ud800ency", extra={"a\udfff": "b"})))
    assert set(found) == {"metric.name", "metric.extra_info.a\udfff"} and "half a surrogate pair" in found["metric.name"]


@pytest.mark.parametrize(("path", "kind"), EVERY, ids=[spelled(path) for path, _ in EVERY])
def test_every_wrong_type_is_refused_with_its_path(path: tuple[Any, ...], kind: schema.Kind) -> None:
    wrong = WRONG[kind.type] if isinstance(kind, schema.Scalar) else [None, "x", 1, {} if isinstance(kind, schema.ArrayOf) else []]
    for value in wrong:
        with pytest.raises(UsageError) as told:
            schema.check(changed(path, value), "r.json:3")
        assert told.value.where == "r.json:3" and f"{spelled(path)}: " in str(told.value), (value, str(told.value))


@pytest.mark.parametrize(
    ("value", "kind"), [(0, "UInt32"), (2**32 - 1, "UInt32"), (2**64 - 1, "UInt64"), (3.4e38, "Float32"), (0, "Float32"), (-1.5, "Float32")]
)
def test_what_just_fits_is_taken(value: Any, kind: str) -> None:
    assert list(schema.wrong(value, schema.Scalar(kind), "x")) == []


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ({}, "metric: is missing"),
        ([], "expected an object, not []"),
        ({"metric": {}}, "metric.name: is missing"),
        ({"metric": {"name": "x"}}, "metric.benchmark_values: is missing"),
        ({"metric": {"name": "", "benchmark_values": []}}, "metric.name: expected a name"),
        (row(schema_version="v2"), "schema_version: expected 'v3', not \"v2\""),
        (row(metrics={}), "metrics: unknown key, which the database would drop; did you mean metric"),
        (row(values=[1.0, math.nan]), "metric.benchmark_values[1]: expected a finite number, not nan"),
        (row(runners=[{"name": "cpu", "cpu_count": 2**32}]), "runners[0].cpu_count: 4294967296 is too large for UInt32"),
        (row(inputs={"x": {"dtype": 1}}), "inputs.x.dtype: expected a text, not 1"),
    ],
)
def test_mistakes_have_words(record: Any, words: str) -> None:
    with pytest.raises(UsageError) as told:
        schema.check(record, "r.json")
    assert words in str(told.value)


def test_several_mistakes_are_told_at_once_and_a_flood_is_cut() -> None:
    with pytest.raises(Mistakes) as told:
        schema.check(row(values=["x"] * 100), "r.json")
    assert "100 mistakes" in str(told.value) and "… and 80 more" in str(told.value)


def test_what_ci_adds_is_asked_for_where_the_file_is_to_be_complete() -> None:
    assert [path for path, _ in schema.mistakes(row(), complete=True)] == list(schema.METADATA)
    stand_in = {key: value for key, value in METADATA.items() if key not in schema.STAND_INS}
    assert not list(schema.mistakes(row(**stand_in, servicelab_experiment_id=3, servicelab_trial_id=4), complete=True))


def test_the_published_json_schema_is_the_one_that_the_code_has() -> None:
    text = (ROOT / "docs" / "reference" / "v3.schema.json").read_text(encoding="utf-8")
    assert json.loads(text) == schema.schema()


def values_of(kind: schema.Kind) -> st.SearchStrategy[Any]:
    """Anything that a type allows."""
    if isinstance(kind, schema.Scalar):
        if kind.type == "String":
            return st.text(max_size=8)
        if kind.type == "Float32":
            return st.floats(-3e38, 3e38) | st.integers(-(2**60), 2**60)
        return st.integers(0, schema.LARGEST[kind.type])
    if isinstance(kind, schema.ArrayOf):
        return st.lists(values_of(kind.items), max_size=2)
    if isinstance(kind, schema.MapOf):
        return st.dictionaries(st.text(max_size=4), values_of(kind.values), max_size=2)
    parts = {key: values_of(part) for key, part in kind.parts.items()}
    return st.fixed_dictionaries(
        {key: parts[key] for key in kind.needed}, optional={key: part for key, part in parts.items() if key not in kind.needed}
    )


def fits_schema(value: Any, part: dict[str, Any]) -> bool:
    """As much of JSON Schema as ours uses."""
    kinds: dict[str, Any] = {"string": str, "number": (int, float), "integer": int, "array": list, "object": dict}
    if "const" in part:
        return bool(value == part["const"])
    kind = part["type"]
    if not isinstance(value, kinds[kind]) or (isinstance(value, bool) and kind in ("number", "integer")):
        return False
    if kind in ("number", "integer") and not part["minimum"] <= value <= part["maximum"]:
        return False
    if kind == "string":
        return len(value) >= part.get("minLength", 0)
    if kind == "array":
        return all(fits_schema(item, part["items"]) for item in value)
    if kind == "object":
        known, rest = part.get("properties", {}), part["additionalProperties"]
        return all(key in value for key in part.get("required", ())) and all(
            fits_schema(item, known[key]) if key in known else rest is not False and fits_schema(item, rest) for key, item in value.items()
        )
    return True


@given(values_of(schema.RECORD))
def test_what_the_types_allow_is_allowed_by_the_check_and_by_the_schema(record: dict[str, Any]) -> None:
    record.pop("schema_version", None)
    record["metric"]["name"] = record["metric"]["name"] or "time"
    assert list(schema.mistakes(record)) == []
    assert fits_schema(record, schema.schema())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-10, 2**65) | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["name", "extra_info", "x"]), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@given(st.sampled_from(list(schema.COLUMNS)), JSON)
def test_the_check_and_the_schema_agree_on_what_is_wrong(column: str, value: Any) -> None:
    record = {**row(), column: value}
    assert (not list(schema.mistakes(record))) == fits_schema(record, schema.schema())
