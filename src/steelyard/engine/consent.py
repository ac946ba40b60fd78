"""Consent: code and commands that a stored run names are executed only if this user wrote that run, or trusts it by name.

A run file can come from anywhere, and names programs, users' files, environment variables and commits. A run with a proof is
the user's own; any other run needs the user's consent, and what it would execute is shown first.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from steelyard import codec
from steelyard.errors import StoreError, UsageError
from steelyard.model.case import Case
from steelyard.model.programs import ARGV, PROGRAM, preparation, words_of
from steelyard.model.values import Digest, render
from steelyard.store.refs import locate
from steelyard.store.runs import Header, Run, RunWriter, Store

MOST_LINES, LONGEST = 8, 300


@dataclass(frozen=True)
class Consent:
    """The runs that a user has named as trusted, in a store."""

    store: Store = field(default_factory=Store.find)
    trusted: tuple[str, ...] = ()

    def covers(self, run: Run) -> bool:
        """Whether commands from a run may be executed; trust is given to a folder, since ids in a file can be forged."""
        return run.proven or run.path.resolve() in {locate(self.store, name).resolve() for name in self.trusted}

    def check(self, runs: Sequence[Run], cases: Sequence[Case], files: Sequence[str] = ()) -> None:
        """Raise an error for a run that is neither proven to be the user's own nor trusted, listing what would be executed."""
        doubtful = [run for run in runs if not self.covers(run)]
        if not doubtful:
            return
        lines = list(dict.fromkeys(_executed(doubtful, cases, files)))
        shown = [line if len(line) <= LONGEST else f"{line[:LONGEST]}…" for line in lines[:MOST_LINES]]
        shown += [f"and {len(lines) - MOST_LINES} more"] if len(lines) > MOST_LINES else []
        names = [self.name(run) for run in doubtful]
        raise UsageError(
            f"nothing from run {' and '.join(names)} is executed without your consent",
            why="\n  ".join([*(f"{run.id}: {doubt(run)}" for run in doubtful), "it would execute", *(f"  {line}" for line in shown)]),
            do=f"if you trust its origin: {' '.join(f'--trust {name}' for name in names)}",
        )

    def check_names(self) -> None:
        """Refuse names of unknown runs before anything is measured."""
        for name in self.trusted:
            locate(self.store, name)

    def check_used(self, runs: Sequence[Run]) -> None:
        """Refuse a --trust name that matches none of the runs in use."""
        for name in self.trusted:
            if locate(self.store, name).resolve() not in {run.path.resolve() for run in runs}:
                raise UsageError(f"--trust {name} names no run that would be measured again", do="name the run that you trust")

    def name(self, run: Run) -> str:
        """The reference that names this run unambiguously."""
        if run.path.parent.resolve() == self.store.folder.resolve():
            return run.id if run.path.name.endswith(f"-{run.id}") else run.path.name
        return shlex.quote(str(run.path))


def doubt(run: Run) -> str:
    """Return why nothing proves that this user wrote a run."""
    if run.seal is None:
        return "it is unfinished, so nothing proves that you made it"
    if run.loss.changed:
        return "its file was changed after it ended"
    if not run.seal.proof:
        return "it has no proof that you made it: an older Steelyard wrote it, or another tool"
    return "it was made by another user, on another machine, or edited"


def _executed(runs: Sequence[Run], cases: Sequence[Case], files: Sequence[str]) -> Iterator[str]:
    for case in cases:
        if case.workload == PROGRAM:
            params = dict(case.params)
            yield f"the program {shlex.join(words_of(params)) or params.get(ARGV)}"
            yield from (f"before each run of it: {line}" for line in [preparation(params)] if line)
        yield from (f"with {name}={value}" for name, value in case.flags)
    for run in runs:
        commit = run.header.machine.get("git")
        at = str(commit.get("commit"))[:10] if isinstance(commit, dict) else ""
        yield from (f"the file {file} of commit {at}" if at else f"the file {file}" for file in files)
    plain = [case for case in cases if case.workload != PROGRAM]
    for case in plain:
        by_digest = [item for item in case.params if not isinstance(item[1], Digest) and render(item[1]).startswith("#")]
        yield from (f"{case.workload} with {name}={codec.encode(value).decode()}" for name, value in by_digest)
    yield from (f"the case {case.id}" for case in plain)


def all_own(writer: RunWriter, header: Header) -> bool:
    """Whether everything in an earlier unfinished run belongs to the cases, files and commit of this run: only then is it sealed as our
    own."""
    asked, before = set(header.cases), writer.header
    try:
        known = all(record.id in asked and codec.settled_case(record).id == record.id for record in writer.done.values())
    except (StoreError, UsageError):
        return False
    return known and before.files == header.files and before.machine.get("git") == header.machine.get("git")
