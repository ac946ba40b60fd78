"""One line of JSON per comparison, appended as it ends; pooled by the version of the code that made it, and by machine."""

from __future__ import annotations

import functools
import hashlib
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from benchmarks.powercurve.cells import FREE, GRAPH, MATCHED, ONE, QUIET, Cell

import steelyard

HERE = Path(__file__).parent
RESULTS = HERE / "results"
DIGITS = 6
MOST_OTHERS = 0.25

_MEASURING = (
    "model/pair.py",
    *(f"measuring/{name}.py" for name in ("clock", "sample", "schedule", "effort", "paired", "evidence", "stats")),
)
_PROCESSES = tuple(f"engine/{name}.py" for name in ("lockstep", "arm", "pool", "sides", "launch", "nursery"))
SOURCES: dict[str, tuple[str, ...]] = {
    ONE: _MEASURING, MATCHED: _MEASURING + _PROCESSES, FREE: _MEASURING + _PROCESSES, GRAPH: (*_MEASURING, "backends/_device.py"),
}  # fmt: skip
"""The code whose change makes a kind's earlier results those of another method; what peers do is theirs."""


class NotMeasured(Exception):
    """A comparison came to no answer and counts for nothing; the reason is printed."""


@dataclass(frozen=True)
class Outcome:
    """One comparison: what was compared and how, what was found, and what it cost.

    `extra` is the amount of extra work in the head, `estimate`, `low` and `high` are log-ratios, `flag` is +1 for slower,
    -1 for faster and None where a tool has no rule. `timed` are the seconds in blocks, `called` those after which evidence
    that survives peeking excluded zero. `rules` holds what peers' rules say of the same blocks: flag and estimate. `others` is
    how many cores everything else on the machine kept busy meanwhile.
    """

    kind: str
    op: str
    env: str
    budget: float
    percent: float
    extra: int = 0
    flag: int | None = None
    estimate: float | None = None
    low: float | None = None
    high: float | None = None
    verdict: str = ""
    stop: str = ""
    p: float | None = None
    cpu: float | None = None
    wall: float | None = None
    timed: float | None = None
    called: float | None = None
    rebuilds: int = 0
    rounds: int = 0
    discarded: float | None = None
    clock: str = ""
    floor: float | None = None
    rules: Mapping[str, tuple[int, float]] = field(default_factory=dict)
    process: str = ""
    at: float = 0.0
    load: float = 0.0
    others: float = 0.0
    note: str = ""

    @property
    def calm(self) -> bool:
        """Whether the environment was what it is called: nothing else ran to speak of where it is called quiet."""
        return self.env != QUIET or self.others <= MOST_OTHERS

    @property
    def cell(self) -> Cell:
        return Cell(self.kind, self.op, self.env, self.budget, self.percent)

    def line(self) -> str:
        """As it is kept: six digits, and nothing that says nothing."""
        kept = {key: _short(value) for key, value in asdict(self).items() if value not in (None, "", {})}
        return json.dumps(kept, separators=(",", ":"), allow_nan=False)

    @classmethod
    def from_line(cls, line: str) -> Outcome | None:
        """None for what is not whole: the program may have been killed while it wrote."""
        try:
            found = json.loads(line)
            known = {item.name for item in fields(cls)}
            return cls(**{key: value for key, value in found.items() if key in known})
        except (ValueError, TypeError, AttributeError):
            return None


def _short(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _short(item) for key, item in value.items()}
    return [_short(item) for item in value] if isinstance(value, (list, tuple)) else value


@functools.cache
def version(kind: str) -> str:
    """Which method a kind's results come from: a digest of the code that measures and judges it, and of the ops."""
    home = Path(steelyard.__file__).parent
    ours = [home / name for name in SOURCES.get(kind, ())] or [HERE / "peers.py", HERE / "rules.py"]
    digest = hashlib.sha256()
    for path in (*ours, HERE / "ops.py", HERE / "operators.py"):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:10]


def append(folder: Path, machine: str, outcome: Outcome) -> None:
    """One write of whole lines at the end of the file; a line that was cut off before is left behind."""
    file = folder / version(outcome.kind) / f"{machine}.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(file, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        size = os.fstat(descriptor).st_size
        torn = size and os.pread(descriptor, 1, size - 1) != b"\n"
        os.write(descriptor, ("\n" * bool(torn) + outcome.line() + "\n").encode())
    finally:
        os.close(descriptor)


def read(folder: Path, kinds: Iterable[str], versions: Iterable[str] = (), machine: str = "*") -> Iterator[Outcome]:
    """All that was kept of these kinds, by the code as it is now unless other versions are named."""
    named = list(versions)
    for kind in kinds:
        for one in dict.fromkeys(named or [version(kind)]):
            for file in sorted((folder / one).glob(f"{machine}.jsonl")):
                for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
                    outcome = Outcome.from_line(line)
                    if outcome is not None and outcome.kind == kind:
                        yield outcome
