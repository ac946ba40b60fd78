"""Toy's config as an experiment: each of its rows is two cases and their pair."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from steelyard.codec.parsing import parse
from steelyard.engine.place import Place
from steelyard.errors import UsageError, unknown
from steelyard.files import read_text
from steelyard.model.case import Case
from steelyard.model.experiment import Experiment, ResultRow, Settings
from steelyard.model.protocol import Fixed

kind = "toy config"
TEXTS = ("name", "op", "old", "new")


def recognise(path: Path) -> bool:
    """By its only key."""
    return path.suffix == ".json" and '"toy_rows"' in read_text(path)


def read(path: Path, files: tuple[str, ...] = (), place: Place | None = None, device: str = "cpu", repeats: int = 10) -> Experiment:
    """Its rows, timed as toy does: nothing is called before the first timed call, and every case has a process of its own."""
    data = parse(read_text(path), str(path), "json")
    listed = data.get("toy_rows") if isinstance(data, dict) else None
    if not isinstance(listed, list) or not listed:
        raise UsageError("toy_rows is a list of rows", where=str(path))
    settings = Settings(fixed=Fixed(0, repeats), isolate="case", budget=0.2)
    rows = tuple(_row(item, f"{path}  toy_rows[{number}]", device) for number, item in enumerate(listed))
    return Experiment(str(path), files=files, rows=rows, settings=settings)


def _row(item: Any, where: str, device: str) -> ResultRow:
    sizes = item.get("sizes", {}) if isinstance(item, dict) else None
    if not isinstance(sizes, dict) or not all(isinstance(item.get(key), str) for key in TEXTS):
        raise UsageError(f"a row has {', '.join(TEXTS)}, all text, and a table of sizes", where=where)
    if strange := [key for key in item if key not in (*TEXTS, "sizes")]:
        raise unknown("key", strange[0], (*TEXTS, "sizes"), where=where)
    old = Case(item["op"], tuple(sizes.items()), "numpy", item["old"], device=device)
    new = old.with_variant(item["new"])
    return ResultRow(item["name"], (old, new), ((new, old),))
