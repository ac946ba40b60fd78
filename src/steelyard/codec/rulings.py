"""Write rulings as JSON lines, with names that say what each number is, and read them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import msgspec

from steelyard.codec.records import encode, nullable, upgrade
from steelyard.errors import StoreError
from steelyard.model.judging import Ruling
from steelyard.model.record import SCHEMA

RATIO = "time_ratio"
ADDED = ("schema", "correct", "effect")


def ruling_document(ruling: Ruling) -> dict[str, Any]:
    """A ruling as plain data, with derived values; the digest among its facts identifies it when judging is resumed."""
    found = json.loads(encode(ruling))
    effect = ruling.delta.effect if ruling.delta and ruling.correct else ""
    if found["delta"]:
        found["delta"] = {RATIO if key == "ratio" else key: value for key, value in found["delta"].items()}
    return {"schema": SCHEMA, **found, "correct": ruling.correct, "effect": effect}


def read_ruling(data: bytes | Mapping[str, Any]) -> Ruling:
    """A ruling from its line or its JSON object."""
    try:
        whole = dict(upgrade(msgspec.json.decode(data, type=dict[str, Any]) if isinstance(data, bytes) else data))
        for name in ADDED:
            whole.pop(name, None)
        if isinstance(whole.get("delta"), dict):
            whole["delta"] = {"ratio" if key == RATIO else key: value for key, value in whole["delta"].items()}
        return msgspec.convert(_with_nan(whole), Ruling)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise StoreError("not a readable ruling", why=str(error)) from None


def _with_nan(whole: dict[str, Any]) -> dict[str, Any]:
    """Put NaN back where JSON has null and a number is needed."""
    for part, names in (("pair", ("ratio", "low", "high")), ("verification", ())):
        if isinstance(found := whole.get(part), dict):
            whole[part] = {key: math.nan if value is None and key in names else value for key, value in found.items()}
            if isinstance(figures := found.get("figures"), dict):
                whole[part]["figures"] = {key: math.nan if value is None else value for key, value in figures.items()}
    if isinstance(figures := whole.get("figures"), dict):
        lost = {key for key, figure in figures.items() if isinstance(figure, dict) and figure.get("value", 0) is None}
        whole["figures"] = {key: {**figure, "value": math.nan} if key in lost else figure for key, figure in figures.items()}
    return whole


def ruling_schema() -> dict[str, Any]:
    """The published JSON Schema of a ruling, for reading the lines without Steelyard."""
    _, parts = msgspec.json.schema_components([Ruling], ref_template="#/$defs/{name}")
    ruling, delta = parts["Ruling"], parts["Delta"]
    delta["properties"] = {RATIO if key == "ratio" else key: value for key, value in delta["properties"].items()}
    delta["required"] = [RATIO if key == "ratio" else key for key in delta["required"]]
    ruling["properties"] |= {
        "schema": {"type": "integer"}, "correct": {"type": "boolean"}, "effect": {"type": "string"},
    }  # fmt: skip
    ruling["required"] = [*ruling["required"], *ADDED]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema", "$id": f"urn:steelyard:ruling:{SCHEMA}", "title": "Steelyard ruling",
        "version": SCHEMA, "$ref": "#/$defs/Ruling", "$defs": nullable(parts),
    }  # fmt: skip
