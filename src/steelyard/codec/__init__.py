"""Convert JSON, TOML and YAML to the dataclasses and back, so that no other package deals with file formats."""

from __future__ import annotations

from steelyard.codec.experiments import load_experiment, parse_experiment
from steelyard.codec.reading import line_of
from steelyard.codec.records import case_of, decode, encode, parse, record_schema, settled_case, upgrade
from steelyard.codec.rulings import read_ruling, ruling_document, ruling_schema

__all__ = [
    "case_of", "decode", "encode", "line_of", "load_experiment", "parse", "parse_experiment", "read_ruling", "record_schema",
    "ruling_document", "ruling_schema", "settled_case", "upgrade",
]  # fmt: skip
