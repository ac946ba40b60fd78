"""Confirms changes between two runs made at different times: both commits are checked out, and the cases measured again interleaved."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from steelyard import codec
from steelyard.engine import conduct
from steelyard.engine.consent import Consent
from steelyard.engine.run import NoWatch
from steelyard.errors import StoreError, UsageError
from steelyard.machine import facts
from steelyard.model.experiment import BUDGETS, MOST_SETTLING, Experiment, Settings
from steelyard.model.pair import MARGIN, Pair
from steelyard.model.record import Record, unweighed
from steelyard.store.paths import inside
from steelyard.store.runs import Header, Run, Store

COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
LONGEST = 3600.0
KEPT: Mapping[str, Any] = {
    "rtol": (int, float), "atol": (int, float), "verify": bool, "reference": str, "seed": int, "timeout": (int, float),
    "memory": int, "sampling": str, "settle": (int, float),
}  # fmt: skip

Again = tuple[list[Pair], dict[str, str]]
"""The pairs that were measured again, and for each other case why it was not."""


def confirm(base: Run, head: Run, cases: Sequence[str], consent: Consent | None = None, margin: float = MARGIN) -> Again:
    """Compare cases of two runs again with the code of both commits, interleaved in pairs of processes.

    Each comparison goes on until it is settled by `margin`, by which it will be judged, or its budget is spent. Returns the pairs, and for
    every other case why it has none; a reason that applies to all cases is raised. Runs that are neither this user's own nor trusted by
    name are refused, since their code would be executed.
    """
    if not cases:
        return [], {}
    if facts.git(Path.cwd()) is None:
        raise UsageError(
            "nothing can be confirmed here", why="this folder is not in a git checkout", do="go to the checkout that both runs were made in"
        )
    commits = [clean_commit(run.header) for run in (base, head)]
    if commits[0] == commits[1]:
        raise UsageError(
            "there is nothing to confirm", why=f"runs {base.id} and {head.id} were made at the same commit, {commits[0][:10]}",
            do="leave out --confirm; the code does not differ between them",
        )  # fmt: skip
    for run in (base, head):
        check_surroundings(run.header)
    known = {record.id: record for record in head.records}
    chosen = {id: codec.settled_case(known[id]) for id in cases if id in known}
    housed = {
        id: f"it runs in environment {case.env}, and code is measured again only in the current one"
        for id, case in chosen.items()
        if case.env
    }
    cases = [id for id in cases if id not in housed]
    if not cases:
        return [], housed
    again = tuple(chosen[id] for id in cases if id in chosen)
    (consent or Consent()).check((base, head), again, head.header.files)
    with contextlib.ExitStack() as stack:
        there, here = (stack.enter_context(checkout(commit)) for commit in commits)
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="steelyard-confirm-"))
        stack.enter_context(contextlib.chdir(here))
        files = tuple(str(_in_project(head.header, here, file)) for file in head.header.files)
        for file in head.header.files:
            _in_project(base.header, there, file)
        settings = replace(asked_settings(head.header), vs=f"path:{there}", margin=margin)
        ready = conduct.from_experiment(Experiment("confirm", include=again, files=files, settings=settings))
        done = conduct.execute(ready, Store(Path(folder)), ["steelyard", "confirm"], lambda writer: NoWatch()).run
    pairs, reasons = sorted_out(done, (base, head), cases)
    return pairs, housed | reasons


def sorted_out(done: Run, runs: tuple[Run, Run], cases: Sequence[str]) -> Again:
    """Return the pairs that can replace a delta, and the reasons for all other cases."""
    pairs, records = {pair.head.id: pair for pair in done.pairs}, {record.id: record for record in done.records}
    reasons, unmade = {}, unweighed(done.records)
    for id in cases:
        record = records.get(id)
        if record is None:
            reasons[id] = "it was not measured again"
        elif record.status != "ok":
            reasons[id] = f"{record.status}: {record.reason}"
        elif id not in pairs:
            reasons[id] = unmade.get(id) or "it was not compared"
        elif other := _other_versions(record, runs):
            reasons[id] = other
    return [pair for id, pair in pairs.items() if id in cases and id not in reasons], reasons


def _other_versions(record: Record, runs: tuple[Run, Run]) -> str:
    """Return which library versions differ from those of either run, as the workers reported them; empty if none do."""
    for run in runs:
        before = next((old.environment for old in reversed(run.records) if old.id == record.id), {})
        now = record.environment
        versions = {name: old for name, old in before.items() if isinstance(old, str) and old[:1].isdigit()}
        changed = [f"{name} {old} (now {now.get(name)})" for name, old in versions.items() if now.get(name) != old]
        if changed:
            return f"run {run.id} had {', '.join(changed)}"
    return ""


def clean_commit(header: Header) -> str:
    """Return the commit from which a run's code can be checked out; an error if the run had uncommitted changes."""
    what = f"run {header.id} cannot be measured again"
    found: Any = header.machine.get("git")
    commit = found.get("commit") if isinstance(found, dict) else None
    if not isinstance(commit, str) or not COMMIT.fullmatch(commit):
        raise UsageError(what, why="its commit is unknown", do="measure inside a git checkout what you want to compare later")
    if found.get("dirty"):
        raise UsageError(
            what, why=f"it was made with uncommitted changes on {commit[:10]}", do="commit before measuring what you want to compare later"
        )
    for file in header.files:
        _in_project(header, Path.cwd(), file)
        if not _held(commit, file):
            raise UsageError(what, why=f"{file} is not in commit {commit[:10]}", do="commit it before measuring, and stay in its folder")
    return commit


def _in_project(header: Header, folder: Path, file: str) -> Path:
    """Return the path in a folder of a user's file that a run names; an error for a file outside, which no commit contains."""
    try:
        return inside(folder, file, "its file")
    except StoreError as error:
        do = "go to a folder that holds it, and measure there what you want to compare later"
        raise UsageError(f"run {header.id} cannot be measured again", why=f"{error.what}; {error.why}", do=do) from error


def check_surroundings(header: Header) -> None:
    """Raise an error if library versions differ from those of the run: another version could hide or cause a change."""
    what = f"run {header.id} cannot be measured again here"
    words = header.command[: header.command.index("--")] if "--" in header.command else header.command
    if header.env or any(word == "--env" or word.startswith("--env=") for word in words):
        raise UsageError(
            what, why="it was made in another environment (--env)", do="compare two checkouts in it: steelyard run --env … --vs-path …"
        )
    packages, python = header.machine.get("packages"), header.machine.get("python")
    before = {"python": python.get("version")} if isinstance(python, dict) else {}
    before |= packages if isinstance(packages, dict) else {}
    now = {**facts.packages(), "python": sys.version.split()[0]}
    differing = {name: old for name, old in before.items() if isinstance(old, str) and now.get(name) != old}
    changed = [f"{name} {old} (now {now.get(name) or 'none'})" for name, old in differing.items()]
    if changed:
        raise UsageError(what, why=f"it was made with {', '.join(changed)}", do="measure both sides again here, or install those versions")


def asked_settings(header: Header) -> Settings:
    """Return the run's settings for verification and limits, with a budget that is long enough to decide."""
    known = {name: value for name, value in header.settings.items() if name in KEPT and isinstance(value, KEPT[name])}
    if not 0 <= known.get("settle", 0) <= MOST_SETTLING:
        known.pop("settle")
    budget = header.settings.get("budget")
    seconds = float(budget) if isinstance(budget, (int, float)) and 0 < budget < LONGEST else BUDGETS["normal"]
    return Settings(**known, budget=max(seconds, BUDGETS["normal"]))


@contextlib.contextmanager
def checkout(commit: str) -> Iterator[Path]:
    """Check out the current folder at a commit, in a temporary worktree; untracked files are on neither side."""
    folder = Path(tempfile.mkdtemp(prefix="steelyard-checkout-"))
    tree = folder / "tree"
    prefix = _git("rev-parse", "--show-prefix").strip()
    try:
        _git("worktree", "add", "--detach", "--force", str(tree), commit)
        if not (tree / prefix).is_dir():
            raise UsageError(f"commit {commit[:10]} has no folder {prefix}", do="run it in the folder in which both runs were made")
        yield tree / prefix
    finally:
        with contextlib.suppress(UsageError):
            _git("worktree", "remove", "--force", str(tree))
        shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(UsageError):
            _git("worktree", "prune")


def _held(commit: str, file: str) -> bool:
    """Whether a commit has a file, named relative to the current folder."""
    try:
        _git("cat-file", "-e", f"{commit}:./{file}")
    except UsageError:
        return False
    return True


def _git(*words: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-c", f"core.hooksPath={os.devnull}", *words], capture_output=True, text=True, check=True, timeout=300
        )
    except (OSError, subprocess.SubprocessError) as error:
        said = str(getattr(error, "stderr", "") or error).strip().splitlines()
        raise UsageError(f"git {words[0]} failed", why=said[-1] if said else "") from error
    return done.stdout
