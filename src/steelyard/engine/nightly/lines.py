"""What the archive keeps about a night: its line, with the cases that may not become a base and what was accepted by name."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from steelyard.analyze.provenance import commit_of
from steelyard.codec.policy import fits
from steelyard.engine.nightly.since import Since
from steelyard.errors import INCONCLUSIVE, PASS
from steelyard.model.record import SCHEMA
from steelyard.store.runs import Run

GOOD = (PASS, INCONCLUSIVE)
NO_BASE, UNFINISHED = "no base", "unfinished"
EVERY = "*"

Why = Literal["regression", "slower", "unclear", "failed", "missing"]


@dataclass(frozen=True)
class Withheld:
    """A case that this night is no base for, since it is slower, looks so, or broke; `base` is the run that it stays compared with.

    `since` is the run of the first night in which it was so; `drift` says that `base` is an older night, from which the case moved
    away in steps too small to be seen one by one, `together` that all cases said so as one, which they can also take back.
    `metric` is the figure that `ratio` is of.
    """

    case: str
    why: Why
    base: str
    since: str
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    drift: bool = False
    together: bool = False
    metric: str = "time"


@dataclass(frozen=True)
class Acceptance:
    """A user's acceptance of cases of a night, whatever the gate said; `pattern` matches case ids."""

    pattern: str
    reason: str
    created: str = ""


@dataclass(frozen=True)
class Night:
    """One night as its line tells it; `outcome` and `exit_code` are the gate's, and `since` what the longer history showed that night.

    `reports` are files as seen from the archive; `acceptances` say which of its cases someone took as good. `withheld` is
    None in lines of versions that judged whole nights, `faster` names the cases that were faster than their base.
    """

    date: str
    run: str
    experiment: str
    machine_key: str
    outcome: str
    exit_code: int
    created: str = ""
    commit: str = ""
    dirty: bool = False
    base: str = ""
    base_commit: str = ""
    headline: str = ""
    confirmed: int = 0
    since: list[Since] = field(default_factory=list)
    reports: list[str] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    accepted: bool = False
    withheld: list[Withheld] | None = None
    faster: list[str] = field(default_factory=list)
    acceptances: list[Acceptance] = field(default_factory=list)
    schema: int = SCHEMA

    def accepts(self, case: str) -> bool:
        """Whether someone took this case as good in this night."""
        return self.accepted or any(item.pattern == EVERY or fits(item.pattern, case) for item in self.acceptances)

    def held_back(self, case: str) -> Withheld | None:
        """Why this night cannot be a case's base; None if it can."""
        return next((item for item in self.withheld or () if item.case == case), None)

    def may_be_base(self, case: str) -> bool:
        """Whether later nights may be held against it in a case that is ok in its run: measured to the end, and not slower."""
        if self.outcome == UNFINISHED:
            return False
        if self.accepts(case):
            return True
        return self.exit_code in GOOD if self.withheld is None else self.held_back(case) is None


def night_of(run: Run, outcome: str, exit_code: int, **more: Any) -> Night:
    """The line of a run, with what its own header says."""
    header, (commit, dirty) = run.header, commit_of(run)
    return Night(
        header.created[:10], header.id, header.experiment, header.machine_key, outcome, exit_code,
        created=header.created, commit=commit, dirty=dirty, versions=_versions(run), **more,
    )  # fmt: skip


def _versions(run: Run) -> dict[str, str]:
    packages, python = run.header.machine.get("packages"), run.header.machine.get("python")
    known = {"python": python.get("version")} if isinstance(python, dict) else {}
    known |= packages if isinstance(packages, dict) else {}
    return {"steelyard": run.header.version, **{str(name): value for name, value in known.items() if isinstance(value, str)}}
