"""An archive of nights: a store like any other, one line for every night, and a folder of reports for each.

archive/runs/…                     the runs, as every store has them: `--store archive` works with every command
archive/nights.jsonl               one line per night; a later line about the same run replaces it
archive/reports/2026-01-05/        that night's reports; a second night of the same day ends in -2
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, count
from pathlib import Path

from steelyard import codec
from steelyard.codec.policy import fits
from steelyard.engine.nightly.lines import EVERY, UNFINISHED, Acceptance, Night, night_of
from steelyard.engine.nightly.standing import bases
from steelyard.errors import INTERRUPTED, StoreError, UsageError, unknown
from steelyard.files import RESULTS, expanded, read_whole
from steelyard.store.disk import open_to_write, trouble, write_whole
from steelyard.store.runs import Run, RunInfo, Store, moment, now, read_run

FILE, LOCK, REPORTS = "nights.jsonl", "nightly.lock", "reports"
COMMAND, OPTION = "nightly", "--keep"
_FOLDER = re.compile(r"\d{4}-\d{2}-\d{2}(-\d{1,4})?")
_STARTED = ".new"


class Archive:
    """The folder that nights are kept in; its list of nights is read anew each time."""

    def __init__(self, root: Path) -> None:
        self.store = Store(expanded(root, "the archive").absolute())
        self.warnings: list[str] = []
        self._untold: set[str] = set()
        self._runs: dict[str, Run | None] = {}
        self._statuses: dict[str, dict[str, str]] = {}

    @property
    def root(self) -> Path:
        return self.store.root

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Lock the archive for one night at a time; the kernel releases the lock when the process dies."""
        path = self.root / LOCK
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        except OSError as error:
            raise trouble("keep nights", self.root, error, OPTION) from error
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                who = os.pread(fd, 32, 0).decode(errors="replace")
                why = f"process {who} is measuring it" if who.isdecimal() else ""
                raise UsageError(
                    f"a night is under way in {self.root}", why=why, do="wait until it has ended, or name another archive"
                ) from None
            os.ftruncate(fd, 0)
            os.pwrite(fd, str(os.getpid()).encode(), 0)
            self._check_lines()
            yield
        finally:
            os.close(fd)

    def _check_lines(self) -> None:
        """Check before a night begins that its line can be written afterwards."""
        try:
            os.close(os.open(self.root / FILE, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK))
        except FileNotFoundError:
            pass
        except OSError as error:
            raise trouble("keep nights", self.root / FILE, error, OPTION) from error

    def nights(self) -> list[Night]:
        """Return every night, oldest first; damaged lines are left out and listed in `warnings`."""
        try:
            lines = read_whole(self.root / FILE, RESULTS).split(b"\n")
        except FileNotFoundError:
            return []
        except OSError as error:
            raise trouble("read the nights", self.root / FILE, error, OPTION) from error
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
        """Append a night's line to the file; it starts on a new line even if the last one was cut short by a kill."""
        path = self.root / FILE
        fd = open_to_write(path, "keep the night", option=OPTION)
        try:
            end = os.fstat(fd).st_size
            torn = end and os.pread(fd, 1, end - 1) != b"\n"
            write_whole(fd, (b"\n" if torn else b"") + codec.encode(night) + b"\n", end, path)
        finally:
            os.close(fd)

    def before(self, experiment: str, machine_key: str, created: str = "") -> list[Night]:
        """Return the nights of an experiment on a machine that a night begun at `created` can be compared with, oldest first.

        If all are dated after it, a clock was set back; then those count, with a warning.
        """
        limit = moment(created) if created else float("inf")
        here = [night for night in self.nights() if (night.experiment, night.machine_key) == (experiment, machine_key)]
        earlier = [night for night in here if moment(night.created) < limit]
        others = [night for night in here if moment(night.created) > limit]
        if others and not earlier:
            self.warnings.append(f"night {others[-1].run}, which this one is compared with, is dated after it: is the clock right?")
        return earlier or others

    def run_of(self, run: str) -> Run | None:
        """Return a night's run, read once; None if it is missing or cannot be read."""
        if run not in self._runs:
            path = next((info.path for info in self.store.runs() if info.id == run), None)
            self._runs[run] = None
            with contextlib.suppress(StoreError):
                self._runs[run] = read_run(path) if path else None
        return self._runs[run]

    def statuses(self, night: Night) -> dict[str, str]:
        """Return the status of each case in a night's run; empty if the run cannot be read."""
        if night.run not in self._statuses:
            found = self.run_of(night.run)
            self._statuses[night.run] = {record.id: record.status for record in found.records} if found else {}
        return self._statuses[night.run]

    def orphans(self) -> list[RunInfo]:
        """Return runs of nights that have no line, newest first: those nights were killed."""
        known = {night.run for night in self.nights()} | self._untold
        return [info for info in self.store.runs() if info.readable and info.id not in known and self._is_night(info)]

    def _is_night(self, info: RunInfo) -> bool:
        with contextlib.suppress(StoreError):
            words = [word for word in read_run(info.path).header.command[1:] if not word.startswith("-")]
            return words[:1] == [COMMAND]
        return False

    def leave(self, orphans: Sequence[RunInfo]) -> None:
        """Add lines for killed nights that will not be continued, so that they are listed."""
        for info in reversed(orphans):
            with contextlib.suppress(StoreError):
                headline = "measured completely, but not judged" if info.sealed else "killed before its end"
                self.append(night_of(read_run(info.path), UNFINISHED, INTERRUPTED, headline=headline))

    def accept(self, ref: str, reason: str, patterns: Sequence[str] = ()) -> Night:
        """Accept a night, or those of its cases that match a pattern, so that later nights are compared with it."""
        if not (self.root / FILE).exists():
            raise UsageError(f"there are no nights in {self.root}", do="measure one: steelyard nightly EXPERIMENT --keep DIR")
        with self.held():
            nights = {night.run: night for night in self.nights()}
            run = next(iter(reversed(nights)), "") if ref == "latest" else ref
            if run not in nights:
                raise unknown("night", ref, ["latest", *nights], where=str(self.root))
            night = nights[run]
            if night.outcome == UNFINISHED:
                raise UsageError(f"night {run} cannot be a base", why=f"it is unfinished: {night.headline}", do="accept another one")
            cases = [*self.statuses(night), *(item.case for item in night.withheld or ())]
            for pattern in patterns:
                if not any(fits(pattern, case) for case in cases):
                    raise unknown("case", pattern, cases, where=f"night {run}")
            fresh = [Acceptance(pattern, reason, now()) for pattern in patterns or (EVERY,)]
            accepted = replace(night, acceptances=[*night.acceptances, *fresh])
            self.append(accepted)
        return accepted

    def file(self, date: str, write: Callable[[Path], None]) -> Path:
        """Make a new folder of reports, filled by `write`; it gets its name once it is complete."""
        top = self.root / REPORTS
        try:
            top.mkdir(exist_ok=True)
            started = top / _STARTED
            shutil.rmtree(started, ignore_errors=True)
            started.mkdir()
            write(started)
            day = date if _FOLDER.fullmatch(date) else "undated"
            names = chain([day], (f"{day}-{number}" for number in count(2)))
            return started.rename(next(top / name for name in names if not (top / name).exists()))
        except OSError as error:
            raise trouble("write the reports", top, error, OPTION) from error

    def prune(self, experiment: str, keep: int, spare: Sequence[str] = ()) -> list[str]:
        """Remove the runs and reports of all but the newest nights of an experiment, except bases of any case; their lines stay.

        Runs in `spare` are kept regardless of their date. Only folders and files that nights made are removed.
        """
        every = self.nights()
        nights = [night for night in every if night.experiment == experiment]
        machines = {night.machine_key for night in nights}
        alike = [[night for night in nights if night.machine_key == key] for key in machines]
        kept = {base.run for found in alike for base in bases(found, self.statuses).values()} | set(spare)
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
        """Return the path of a report that a line names; None if the path is not a report of this archive."""
        parts = Path(file).parts
        path = self.root / file
        ours = len(parts) > 2 and parts[0] == REPORTS and _FOLDER.fullmatch(parts[1]) and ".." not in parts
        above = [self.root.joinpath(*parts[:end]) for end in range(1, len(parts) + 1)]
        return path if ours and path.is_file() and not any(step.is_symlink() for step in above) else None


def _named_in(line: bytes) -> set[str]:
    """Return the run id of a line that cannot be decoded, such as one of a newer Steelyard: its night was judged."""
    with contextlib.suppress(ValueError, RecursionError):
        whole = json.loads(line)
        if isinstance(whole, dict) and isinstance(whole.get("run"), str):
            return {whole["run"]}
    return set()


def _made_here(info: RunInfo) -> bool:
    """Whether a folder has the name that the store gave it; a copy of a run under another name belongs to the user."""
    return re.fullmatch(r"\d{8}T\d{6}-" + re.escape(info.id), info.path.name) is not None


def _remove(file: Path, top: Path) -> None:
    """Remove a file, and the folders below `top` that become empty."""
    with contextlib.suppress(OSError):
        file.unlink()
        for folder in file.parents:
            if folder == top:
                break
            folder.rmdir()
