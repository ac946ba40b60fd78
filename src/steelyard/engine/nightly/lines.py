"""The archive's line about a night, with the cases that it cannot be a base for and the cases that were accepted by name."""

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
    """A case that this night is not a base for, because it is slower, looks slower, or failed; `base` is the run it stays compared with.

    `since` is the run of the first such night. `drift` means that `base` is an older night, from which the case moved away in steps
    too small to be detected one by one; `together` means that only the comparison of all cases together showed it, so a later one
    can also clear it. `metric` is the figure that `ratio` is of.
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
    """One night, as in its line; `outcome` and `exit_code` are the gate's, `since` has the changes of level that became visible that night.

    `reports` are paths relative to the archive; `acceptances` are the cases that a user accepted. `withheld` is None in lines of
    versions that judged whole nights; `faster` names the cases that were faster than their base.
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
        """Whether a user accepted this case in this night."""
        return self.accepted or any(item.pattern == EVERY or fits(item.pattern, case) for item in self.acceptances)

    def held_back(self, case: str) -> Withheld | None:
        """Why this night cannot be a case's base; None if it can."""
        return next((item for item in self.withheld or () if item.case == case), None)

    def may_be_base(self, case: str) -> bool:
        """Whether this night may be the base of a case that is ok in its run: the night was completed, and the case was not slower."""
        if self.outcome == UNFINISHED:
            return False
        if self.accepts(case):
            return True
        return self.exit_code in GOOD if self.withheld is None else self.held_back(case) is None


def night_of(run: Run, outcome: str, exit_code: int, **more: Any) -> Night:
    """Return the night of a run, filled in from the run's header."""
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
