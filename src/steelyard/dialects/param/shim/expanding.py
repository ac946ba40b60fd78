"""Expanding a config in a worker, with the iterators and generators that users registered."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from steelyard.dialects.param import expand


def perform(words: Mapping[str, Any], loaded: Any, send: Callable[[Mapping[str, Any]], None], gate: Callable[[], None]) -> None:
    """Send the sheet of a file, or of data in place of one."""
    source = Path(words["source"]) if words.get("data") is None else words["data"]
    send({"sheet": asdict(expanded(source, words["device"], loaded, lenient=words["lenient"]))})


def expanded(source: expand.Source, device: str, loaded: Any, *, lenient: bool = False) -> expand.Sheet:
    """Return the sheet of a config, with what users registered."""
    iterators = {name: item.expand for name, item in getattr(loaded, "iterators", {}).items()}
    generators = {*expand.DEFAULT_GENERATORS, *getattr(loaded, "generators", {})}
    return expand.sheet(source, device=device, iterators=iterators, generators=generators, lenient=lenient)
