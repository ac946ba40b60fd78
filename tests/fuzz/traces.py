"""Execution traces among what is fuzzed: what is bent, and what reads it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def seeds() -> list[Any]:
    """One small trace of each schema."""
    from steelyard.traces.reading import SCHEMAS
    from tests.traces import made

    return [made.in_schema(version) for version in SCHEMAS]


def chakra_seeds() -> list[Any]:
    """A trace as Chakra writes it."""
    from tests.traces import made

    return [made.chakra_messages()]


def read(path: Path) -> None:
    """Counted and taken apart as every command does it."""
    from steelyard.traces.graphs import FORMATS
    from steelyard.traces.reading import open_trace
    from steelyard.traces.steps import steps
    from steelyard.traces.summary import operators, summarise

    summarise(path)
    with open_trace(path) as reader:
        parts = list(steps(reader))
    operators(parts, inner=True)
    for part in parts:
        for draw in FORMATS.values():
            assert "".join(draw(part))


def profiles() -> list[Any]:
    """A profiler's trace of the same step."""
    from tests.traces import made

    return [made.profile()]


def read_profile(path: Path) -> None:
    """Put into a trace that is sound."""
    from steelyard.traces.linking import link
    from tests.traces import made

    trace = path.with_name("trace.json")
    trace.write_text(json.dumps(made.trace()))
    "".join(link(trace, path)[0]())
