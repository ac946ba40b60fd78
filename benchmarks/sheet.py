"""What every benchmark here hands in: tables to read, goals with a verdict, and the same as JSON with the machine and its load."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from steelyard.machine import facts, locks
from steelyard.model.units import grouped, plain


@dataclass(frozen=True)
class Spread:
    """A figure over several rounds: the median to quote, with the best and the worst beside it."""

    median: float
    low: float
    high: float
    rounds: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(statistics.median(values), min(values), max(values), len(values))


@dataclass(frozen=True)
class Goal:
    """A figure we promised, and whether it was reached here and now."""

    name: str
    value: float
    limit: float
    unit: str
    at_least: bool = False

    @property
    def reached(self) -> bool:
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    def __str__(self) -> str:
        sign, verdict = ">=" if self.at_least else "<=", "reached" if self.reached else "missed"
        return f"goal: {self.name} {sign} {quantity(self.limit, self.unit)}: {quantity(self.value, self.unit)}, {verdict}"


@dataclass(frozen=True)
class Table:
    """Rows of text under headings; the figures behind them go to the JSON."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def __str__(self) -> str:
        widths = [max(map(len, column)) for column in zip(self.head, *self.rows, strict=True)]
        lines = [
            "  ".join(
                cell.rjust(width) if place else cell.ljust(width) for place, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
            for row in (self.head, *self.rows)
        ]
        return "\n".join([self.title, *(line.rstrip() for line in lines)])


@dataclass(frozen=True)
class Sheet:
    """One benchmark's result."""

    benchmark: str
    tables: tuple[Table, ...]
    goals: tuple[Goal, ...]
    figures: dict[str, Any]
    load_before: tuple[float, float, float]
    load_after: tuple[float, float, float] = field(default_factory=os.getloadavg)

    def plain(self) -> dict[str, Any]:
        """JSON-ready; SI units throughout."""
        machine = facts.collect()
        return {
            "benchmark": self.benchmark,
            "machine": {"summary": facts.summary(machine), "python": machine["python"]["version"], "packages": machine["packages"]},
            "load": {"before": list(self.load_before), "after": list(self.load_after)},
            "figures": self.figures,
            "goals": [{**asdict(goal), "reached": goal.reached} for goal in self.goals],
        }

    def hand_in(self, file: Path | None) -> None:
        """Print it, and keep it where asked."""
        found = self.plain()
        print(f"{found['machine']['summary']} · load {self.load_before[0]:.1f} before, {self.load_after[0]:.1f} after")
        for part in (*self.tables, *self.goals):
            print(f"\n{part}" if isinstance(part, Table) else part)
        if file:
            file.write_text(json.dumps(found, indent=1) + "\n")


def quantity(value: float, unit: str) -> str:
    """A figure for people; ratios get the sign they are written with."""
    return f"{grouped(value, 1)}×" if unit == "×" else plain(value, unit)


def spread(figure: Spread, unit: str) -> str:
    """`12.1 ms (11.8 ms … 14.0 ms)`."""
    return f"{quantity(figure.median, unit)} ({quantity(figure.low, unit)} … {quantity(figure.high, unit)})"


def options(doc: str | None) -> argparse.ArgumentParser:
    """The option every benchmark has."""
    parser = argparse.ArgumentParser(description=(doc or "").splitlines()[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures here")
    return parser


def count(text: str) -> int:
    """A number of repeats."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return number


def alone(name: str) -> AbstractContextManager[None]:
    """No other measurement on this host meanwhile; while one is under way, whoever looks on is told which."""
    return locks.hold(locks.cpu_names(), f"{name}, pid {os.getpid()}", lambda holder: print(f"waiting for {holder}", file=sys.stderr))
