"""An archive of nights: a store like any other, one line for every night, and a folder of reports for each.

archive/runs/…                     the runs, as every store has them: `--store archive` works with every command
archive/nights.jsonl               one line per night; a later line about the same run takes its place
archive/reports/2026-01-05/        what was written about that night; a second one of the same day ends in -2
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from steelyard import codec
from steelyard.analyze.provenance import commit_of
from steelyard.engine.nightly.since import Since
from steelyard.errors import INCONCLUSIVE, INTERRUPTED, PASS, StoreError, UsageError, unknown
from steelyard.model.record import SCHEMA
from steelyard.store.runs import Run, RunInfo, Store, moment, read_run
from steelyard.store.samples import open_plain, trouble, write_whole

FILE, LOCK, REPORTS = "nights.jsonl", "nightly.lock", "reports"
GOOD = (PASS, INCONCLUSIVE)
NO_BASE, UNFINISHED = "no base", "unfinished"
COMMAND = "nightly"
_FOLDER = re.compile(r"\d{4}-\d{2}-\d{2}(-\d{1,4})?")
_STARTED = ".new"


@dataclass(frozen=True)
class Night:
    """One night as its line tells it; `outcome` and `exit_code` are the gate's, and `since` what the longer history showed that night.

    `reports` are files as seen from the archive; `accepted` says that someone took it as good whatever the gate said.
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
    schema: int = SCHEMA

    @property
    def good(self) -> bool:
        """Whether later nights may be held against it: no regression, nothing failed, measured to the end."""
        return self.accepted or (self.exit_code in GOOD and self.outcome != UNFINISHED)


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


class Archive:
    """The folder that nights are kept in; what it tells comes from its files each time."""

    def __init__(self, root: Path) -> None:
        self.store = Store(root.expanduser().absolute())
        self.warnings: list[str] = []
        self._untold: set[str] = set()

    @property
    def root(self) -> Path:
        return self.store.root

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """One night at a time; the kernel lets go when its process dies, however it dies."""
        path = self.root / LOCK
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        except OSError as error:
            raise _trouble("keep nights", self.root, error) from error
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                who = os.pread(fd, 32, 0).decode(errors="replace")
                why = f"process {who} measures it" if who.isdecimal() else ""
                raise UsageError(
                    f"a night is under way in {self.root}", why=why, do="wait for its end, or keep this one elsewhere"
                ) from None
            os.ftruncate(fd, 0)
            os.pwrite(fd, str(os.getpid()).encode(), 0)
            self._check_lines()
            yield
        finally:
            os.close(fd)

    def _check_lines(self) -> None:
        """A night whose line cannot be kept afterwards is better not begun."""
        try:
            os.close(os.open(self.root / FILE, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK))
        except FileNotFoundError:
            pass
        except OSError as error:
            raise _trouble("keep nights", self.root / FILE, error) from error

    def nights(self) -> list[Night]:
        """Every night, oldest first; damaged lines are left out and told in `warnings`."""
        try:
            with open_plain(self.root / FILE) as file:
                lines = file.read().split(b"\n")
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _trouble("read the nights", self.root / FILE, error) from error
        found: dict[str, Night] = {}
        self.warnings, self._untold = [], set()
        for number, line in enumerate(lines, 1):
            if line.strip():
                try:
                    night = codec.decode(Night, line)
                except StoreError as error:
                    self.warnings.append(f"{self.root / FILE}:{number} was skipped: {' '.join(str(error).split())}")
                    self._untold |= _named_in(line)
                else:
                    found[night.run] = night
        return sorted(found.values(), key=lambda night: moment(night.created))

    def append(self, night: Night) -> None:
        """Put a night's line on the disk; one that a kill cut short before it does no harm."""
        path = self.root / FILE
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        except OSError as error:
            raise _trouble("keep the night", path, error) from error
        try:
            end = os.fstat(fd).st_size
            torn = end and os.pread(fd, 1, end - 1) != b"\n"
            write_whole(fd, (b"\n" if torn else b"") + codec.encode(night) + b"\n", end, path)
        finally:
            os.close(fd)

    def last_good(self, experiment: str, machine_key: str, *, before: str = "") -> tuple[Night, Run] | None:
        """The newest good night of an experiment on a machine whose run can still be read.

        Where all are dated after `before`, a clock was set back; then the newest of those counts, and that is told.
        """
        infos = {info.id: info for info in self.store.runs()}
        limit = moment(before) if before else float("inf")
        good = [night for night in self.nights() if night.good and (night.experiment, night.machine_key) == (experiment, machine_key)]
        earlier = [night for night in good if moment(night.created) < limit]
        for night in [*reversed(earlier), *reversed([night for night in good if night not in earlier])]:
            if night.run in infos:
                with contextlib.suppress(StoreError):
                    run = read_run(infos[night.run].path)
                    if moment(night.created) >= limit:
                        self.warnings.append(f"night {night.run}, which this one is compared with, is dated after it: is the clock right?")
                    return night, run
        return None

    def orphans(self) -> list[RunInfo]:
        """Runs that a night began and that no line speaks of, newest first: it was killed on the way."""
        known = {night.run for night in self.nights()} | self._untold
        return [info for info in self.store.runs() if info.readable and info.id not in known and self._is_night(info)]

    def _is_night(self, info: RunInfo) -> bool:
        with contextlib.suppress(StoreError):
            words = [word for word in read_run(info.path).header.command[1:] if not word.startswith("-")]
            return words[:1] == [COMMAND]
        return False

    def leave(self, orphans: Sequence[RunInfo]) -> None:
        """Give nights that will not go on their line, so that nobody looks for them."""
        for info in reversed(orphans):
            with contextlib.suppress(StoreError):
                headline = "measured to the end, and never judged" if info.sealed else "killed before its end"
                self.append(night_of(read_run(info.path), UNFINISHED, INTERRUPTED, headline=headline))

    def accept(self, ref: str) -> Night:
        """Take a night as good whatever the gate said, so that the next is held against it."""
        if not (self.root / FILE).exists():
            raise UsageError(f"there are no nights in {self.root}", do="measure one: steelyard nightly EXPERIMENT --keep DIR")
        with self.held():
            nights = {night.run: night for night in self.nights()}
            run = next(iter(reversed(nights)), "") if ref == "latest" else ref
            if run not in nights:
                raise unknown("night", ref, ["latest", *nights], where=str(self.root))
            if nights[run].outcome == UNFINISHED:
                raise UsageError(f"night {run} cannot be a base", why=f"it is unfinished: {nights[run].headline}", do="accept another one")
            accepted = replace(nights[run], accepted=True)
            self.append(accepted)
        return accepted

    def file(self, date: str, write: Callable[[Path], None]) -> Path:
        """A new folder of reports, filled by `write`; it gets its name once it is complete."""
        top = self.root / REPORTS
        try:
            top.mkdir(exist_ok=True)
            started = top / _STARTED
            shutil.rmtree(started, ignore_errors=True)
            started.mkdir()
            write(started)
            name = next(name for name in _names(date) if not (top / name).exists())
            return started.rename(top / name)
        except OSError as error:
            raise _trouble("write the reports", top, error) from error

    def prune(self, experiment: str, keep: int, spare: Sequence[str] = ()) -> list[str]:
        """Remove the runs and reports of all but the newest nights of an experiment, never those of the last good one; lines stay.

        `spare` are runs that stay whatever their date. Only folders and files that nights made are removed.
        """
        every = self.nights()
        nights = [night for night in every if night.experiment == experiment]
        bases = {night.machine_key: night.run for night in nights if night.good}
        kept = {*bases.values(), *spare}
        old = [night for night in nights[: max(0, len(nights) - keep)] if night.run not in kept]
        folders = {info.id: info.path for info in self.store.runs() if _made_here(info)}
        doomed = {night.run for night in old if night.run in folders}
        needed = {file for night in every if night.run not in {past.run for past in old} for file in night.reports}
        gone = []
        for night in old:
            if night.run in doomed:
                shutil.rmtree(folders[night.run], ignore_errors=True)
            reports = [path for file in night.reports if file not in needed and (path := self._report(file))]
            for path in reports:
                _remove(path, self.root / REPORTS)
            gone += [night.run] if night.run in doomed or reports else []
        return gone

    def _report(self, file: str) -> Path | None:
        """A report that a line names, where it is one; a line that names any other place is not believed."""
        parts = Path(file).parts
        path = self.root / file
        ours = len(parts) > 2 and parts[0] == REPORTS and _FOLDER.fullmatch(parts[1]) and ".." not in parts
        above = [self.root.joinpath(*parts[:end]) for end in range(1, len(parts) + 1)]
        return path if ours and path.is_file() and not any(step.is_symlink() for step in above) else None


def _trouble(doing: str, path: Path, error: OSError) -> StoreError:
    """As every store tells it, with the option that names this one."""
    found = trouble(doing, path, error)
    return StoreError(found.what, why=found.why, do=found.do.replace("--store", "--keep"))


def _named_in(line: bytes) -> set[str]:
    """The run of a line that is whole and not understood, such as one of a newer Steelyard: it has been judged."""
    with contextlib.suppress(ValueError, RecursionError):
        whole = json.loads(line)
        found = whole.get("run") if isinstance(whole, dict) else None
        return {found} if isinstance(found, str) else set()
    return set()


def _made_here(info: RunInfo) -> bool:
    """Whether a folder has the name that the store gave it; a copy of a run under another name is somebody's."""
    return re.fullmatch(r"\d{8}T\d{6}-" + re.escape(info.id), info.path.name) is not None


def _remove(file: Path, top: Path) -> None:
    """Take a file away, and the folders below `top` that are empty then."""
    with contextlib.suppress(OSError):
        file.unlink()
        for folder in file.parents:
            if folder == top:
                break
            folder.rmdir()


def _names(date: str) -> Iterator[str]:
    day = date if _FOLDER.fullmatch(date) else "undated"
    yield day
    number = 2
    while True:
        yield f"{day}-{number}"
        number += 1
