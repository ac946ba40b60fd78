"""What the museum's files say of themselves, read from their text: none of them is loaded here."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steelyard.model.judging import TRICKS

MUSEUM = Path(__file__).parent / "museum"
ENDS = {"wrong", "failed", "crashed", "timeout", "oom"}
"""Statuses of a ruling that an exhibit may expect beside the kinds of tricks."""
HARMLESS = "harmless"
"""Expected of a trick that gains nothing and need not be seen: the answers are right and nothing is faster."""


@dataclass(frozen=True)
class Exhibit:
    """A candidate of the museum: its problem, what it does, and what the referee must say of it.

    `expect` are kinds of which one must be seen, `told` those that an honest one may have, and `first` is what its first call gives
    when it is called plainly.
    """

    file: Path
    problem: Path
    does: str
    expect: frozenset[str] = frozenset()
    told: frozenset[str] = frozenset()
    first: str = "right"

    @property
    def name(self) -> str:
        """The file without its ending."""
        return self.file.stem


def exhibits(hall: str, museum: Path = MUSEUM) -> list[Exhibit]:
    """All candidates in one hall, `cheats` or `honest`, by name."""
    return [_exhibit(file, museum) for file in sorted((museum / hall).glob("*.py"))]


def _exhibit(file: Path, museum: Path) -> Exhibit:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    said: dict[str, Any] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id in LABELS:
            said[node.targets[0].id] = ast.literal_eval(node.value)
    expect, told = frozenset(said.get("EXPECT", ())), frozenset(said.get("TOLD", ()))
    assert expect | told <= {*TRICKS, *ENDS, HARMLESS}, f"{file.name} expects what no referee says: {expect | told}"
    problem = museum / "problems" / f"{said['PROBLEM']}.py"
    return Exhibit(file, problem, ast.get_docstring(tree) or "", expect, told, said.get("FIRST", "right"))


LABELS = ("PROBLEM", "EXPECT", "TOLD", "FIRST")
