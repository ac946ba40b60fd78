"""Results as JSON lines with a schema version, so that a file of any age is read or refused with a reason."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

import msgspec

from steelyard.codec.shapes import CaseShape, check_reach, check_shape
from steelyard.errors import StoreError
from steelyard.model.case import Case
from steelyard.model.pair import Pair
from steelyard.model.record import SCHEMA, Record
from steelyard.model.values import Digest

T = TypeVar("T")


def encode(obj: Any) -> bytes:
    """One JSON line without its newline; a number that JSON lacks (NaN, infinity) becomes null."""
    try:
        return msgspec.json.encode(obj, enc_hook=_plain)
    except (TypeError, UnicodeEncodeError):
        return msgspec.json.encode(_plain(obj))


def _plain(obj: Any) -> Any:
    """Any value as plain JSON data, so that an odd value in its environment never loses a measured record."""
    if obj is None or isinstance(obj, (bool, int)):
        return obj
    if isinstance(obj, float):
        return float(obj)
    if isinstance(obj, str):
        return obj.encode("utf-8", "replace").decode()
    if isinstance(obj, Mapping):
        return {_plain(str(key)): _plain(value) for key, value in obj.items()}
    if isinstance(obj, (list, tuple, set, frozenset)):
        return [_plain(value) for value in obj]
    if is_dataclass(obj) and not isinstance(obj, Digest):
        return {item.name: _plain(getattr(obj, item.name)) for item in fields(obj)}
    if hasattr(obj, "tolist"):
        return _plain(obj.tolist())
    return _plain(str(obj))


def parse(line: bytes) -> Any:
    """The JSON of a line, by the fast parser; Python's own reads what that refuses, such as half a surrogate pair."""
    try:
        return msgspec.json.decode(line)
    except ValueError:
        return json.loads(line)


def decode(kind: type[T], data: bytes | Mapping[str, Any], *, checked: bool = False) -> T:
    """Read a Record, a Pair or a header from its line or its JSON object; null in a figure reads as NaN.

    `checked` says that its depth and sizes were checked on the text already.
    """
    try:
        whole = upgrade(msgspec.json.decode(data, type=dict[str, Any]) if isinstance(data, bytes) else data)
        if not checked:
            check_reach(whole)
        try:
            made = msgspec.convert(whole, kind)
        except msgspec.ValidationError:
            made = msgspec.convert(_with_nan(whole), kind)
        if isinstance(made, Record):
            check_shape("record", made.case, CaseShape)
        return made
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise StoreError(f"not a readable {kind.__name__.lower()}", why=str(error)) from None


def _with_nan(data: Mapping[str, Any]) -> dict[str, Any]:
    """Put NaN back where JSON has null for it; anything else is left for the check that follows."""
    whole = {key: math.nan if value is None and key in ("ratio", "low", "high", "wall_s") else value for key, value in data.items()}
    if isinstance(centres := whole.get("centres"), list):
        whole["centres"] = [math.nan if value is None else value for value in centres]
    if isinstance(discarded := whole.get("discarded"), dict):
        whole["discarded"] = {key: math.nan if value is None else value for key, value in discarded.items()}
    if isinstance(metrics := whole.get("metrics"), dict):
        missing = {name for name, figure in metrics.items() if isinstance(figure, dict) and figure.get("value", 0) is None}
        whole["metrics"] = {name: {**figure, "value": math.nan} if name in missing else figure for name, figure in metrics.items()}
    return whole


def case_of(record: Record) -> Case:
    """The case of a stored record with parameters in full; infinities, which JSON drops, come from the id."""
    case = Case.from_plain(record.case)
    if case.id == record.id:
        return case
    written = {key: value for key, value in Case.parse(record.id).params if not isinstance(value, Digest)}
    return Case.from_plain({**record.case, "params": {**dict(case.params), **written}})


def settled_case(record: Record) -> Case:
    """The case of a stored record, after checking that it fits the id, digests included; nothing else may be measured under that id."""
    case = case_of(record)
    if case.id != record.id or not case.settled:
        why = "its parameters or flags do not have the digest in its id: the file was edited or is damaged"
        raise StoreError(f"the stored case of {record.id} does not fit its id", why=why, do="give the case in full")
    return case


def upgrade(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Convert an object of an older schema to this one; a newer schema is an error."""
    version = data.get("schema", SCHEMA)
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise StoreError(f"not a schema version: {version!r}", why="the line was not written by Steelyard, or is damaged")
    if version > SCHEMA:
        why = f"it has schema version {version}, and this Steelyard reads up to {SCHEMA}"
        raise StoreError("the result was written by a newer Steelyard", why=why, do="upgrade steelyard: pip install -U steelyard")
    return data


def record_schema() -> dict[str, Any]:
    """The published JSON Schema of a Record and of a Pair, for reading the files without Steelyard."""
    kinds, parts = msgspec.json.schema_components([Record, Pair], ref_template="#/$defs/{name}")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:steelyard:record:{SCHEMA}",
        "title": "Steelyard record or pair",
        "version": SCHEMA,
        "anyOf": list(kinds),
        "$defs": nullable(parts),
    }


def nullable(part: Any) -> Any:
    """A schema in which every number may be null, because JSON has no NaN and infinity."""
    if isinstance(part, dict):
        return {key: ["number", "null"] if (key, value) == ("type", "number") else nullable(value) for key, value in part.items()}
    return [nullable(item) for item in part] if isinstance(part, list) else part
