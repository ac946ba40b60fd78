"""Toy: old against new, a line for each."""

from steelyard.model.dialect import Dialect

PARTS = {"config": "toy_dialect.config", "results": "toy_dialect.results", "command": "toy_dialect.command:command"}
DIALECT = Dialect("toy", "Old against new, a JSON line for each.", **PARTS)
