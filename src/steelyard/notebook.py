"""A saved run as an interactive session shows it: its table, instead of every field of every record."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, fields
from html import escape

from steelyard.report.text import run_table
from steelyard.store.runs import Run


@dataclass(frozen=True, repr=False)
class ShownRun(Run):
    """A run that reads as one line in Python and as its table in a notebook."""

    def __repr__(self) -> str:
        counts = Counter(record.status for record in self.records)
        told = ", ".join(f"{count} {status.replace('_', ' ')}" for status, count in counts.items()) or "nothing measured"
        return f"<Run {self.id}: {told}; steelyard show {self.id}>"

    def __str__(self) -> str:
        return run_table(self.header, self.records, self.pairs).plain

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


def readable(run: Run) -> ShownRun:
    """The same run in that form."""
    return ShownRun(**{item.name: getattr(run, item.name) for item in fields(Run)})
