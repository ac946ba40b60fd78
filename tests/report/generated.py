"""Requests of text generation on the virtual clock, whose times are known exactly, for the tests of tables, charts and pages."""

from __future__ import annotations

from pathlib import Path

from steelyard.cli.main import main
from steelyard.store.runs import Store

WORDS = ("-a", "batch=1,4", "-a", "new=8", "-V", "eager,compile,kernelize", "--vs", "eager", "--budget", "20s")


def generated(folder: Path, *words: str) -> Store:
    """A store with one run of `generate/mock`."""
    assert main(["run", "generate/mock", *(words or WORDS), "--store", str(folder)]) == 0
    return Store(folder)
