"""The data of the doctor: what a check can read, and its finding."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Status = Literal["ok", "note", "warn", "bad"]


@dataclass(frozen=True)
class Observation:
    """One finding: what was seen, what to change, and how much that matters to a timing."""

    name: str
    status: Status
    saw: str
    do: str = ""
    matters: str = ""


@dataclass(frozen=True)
class Scene:
    """What a check may look at: the facts, the root of the file system, the folder where results go, and how each GPU is set."""

    facts: dict[str, Any]
    root: Path
    store: Path
    settings: Sequence[Mapping[str, Any]] = ()

    def part(self, name: str) -> dict[str, Any]:
        """One group of facts, empty if it is null."""
        return self.facts.get(name) or {}

    @property
    def gpus(self) -> list[dict[str, Any]]:
        """The facts about each GPU."""
        return self.facts.get("gpus") or []


Check = Callable[[Scene], "Observation | None"]
