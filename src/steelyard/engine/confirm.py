"""Confirming what two runs made at different times suggest: both commits checked out, the suspects weighed in lock-step."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from steelyard.engine import conduct
from steelyard.errors import UsageError
from steelyard.machine import facts
from steelyard.model.experiment import BUDGETS, Experiment, Settings
from steelyard.model.pair import Pair
from steelyard.model.record import Record
from steelyard.store.runs import Header, Run, Store

COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


class Unwatched:
    """A confirmation runs without a progress display of its own."""

    def started(self, case_id: str) -> None: ...
    def phase(self, name: str, fraction: float | None) -> None: ...
    def finished(self, record: Record) -> None: ...
    def waiting(self, text: str) -> None: ...


def confirm(base: Run, head: Run, cases: Sequence[str]) -> list[Pair]:
    """Weigh cases of two runs against each other again, the code of both as it was, interleaved in pairs of processes."""
    if not cases:
        return []
    budget = head.header.settings.get("budget")
    seconds = float(budget) if isinstance(budget, (int, float)) and 0 < budget < 3600 else BUDGETS["normal"]
    with checkout(base.header) as there, checkout(head.header) as here, tempfile.TemporaryDirectory(prefix="steelyard-confirm-") as folder:
        files = tuple(str(here / file) for file in head.header.files)
        settings = Settings(budget=max(seconds, BUDGETS["normal"]), vs=f"path:{there}")
        with contextlib.chdir(here):
            ready = conduct.from_experiment(Experiment("confirm", include=tuple(cases), files=files, settings=settings))
            outcome = conduct.execute(ready, Store(Path(folder)), ["steelyard", "confirm"], lambda writer: Unwatched())
    if missing := [record for record in outcome.run.records if "unweighed" in record.effective or record.status != "ok"]:
        first = missing[0]
        why = first.reason or str(first.effective.get("unweighed", ""))
        raise UsageError(f"{len(missing)} of {len(cases)} cases could not be confirmed", why=f"{first.id}: {why}")
    return list(outcome.run.pairs)


@contextlib.contextmanager
def checkout(header: Header) -> Iterator[Path]:
    """The folder that holds the code a run was made from: this one where it is the same, else the commit checked out beside it."""
    wanted, now = _source(header), facts.git(Path.cwd())
    if wanted is None or now is None:
        raise UsageError(
            f"run {header.id} cannot be measured again", why="its commit is not known" if now else "this folder is no git checkout",
            do="run it inside the repository the runs were made in",
        )  # fmt: skip
    commit, dirty = wanted
    if commit == now["commit"] and dirty == now["dirty"]:
        yield Path.cwd()
        return
    if dirty:
        raise UsageError(
            f"run {header.id} cannot be measured again", why=f"it was made with uncommitted changes on {commit[:10]}",
            do="commit before measuring what you want to compare later",
        )  # fmt: skip
    folder = Path(tempfile.mkdtemp(prefix="steelyard-checkout-"))
    tree = folder / "tree"
    prefix = _git("rev-parse", "--show-prefix").strip()
    try:
        _git("-c", "core.hooksPath=" + os.devnull, "worktree", "add", "--detach", "--force", str(tree), commit)
        yield tree / prefix
    finally:
        with contextlib.suppress(UsageError):
            _git("worktree", "remove", "--force", str(tree))
        shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(UsageError):
            _git("worktree", "prune")


def _source(header: Header) -> tuple[str, bool] | None:
    found: Any = header.machine.get("git")
    commit = found.get("commit") if isinstance(found, dict) else None
    return (commit, bool(found.get("dirty"))) if isinstance(commit, str) and COMMIT.fullmatch(commit) else None


def _git(*words: str) -> str:
    try:
        done = subprocess.run(["git", *words], capture_output=True, text=True, check=True, timeout=300)
    except (OSError, subprocess.SubprocessError) as error:
        said = str(getattr(error, "stderr", "") or error).strip().splitlines()
        raise UsageError(f"git {words[-2] if len(words) > 1 else words[0]} failed", why=said[-1] if said else "") from error
    return done.stdout
