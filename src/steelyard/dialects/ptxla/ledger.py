"""The file of rows of a run: which configs have one already, also from a runner beside this one, and each new row added for good."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from steelyard.dialects.ptxla import matrix, rows
from steelyard.dialects.ptxla.flags import RunnerOptions
from steelyard.dialects.ptxla.matrix import Experiment, Model
from steelyard.dialects.ptxla.rows import Row, RowTally
from steelyard.errors import StoreError, UsageError
from steelyard.files import lines, open_plain
from steelyard.model.record import STATUSES

SKIP = "SKIP"
UNVERIFIED = (None, "VERIFIER_SKIPPED", "SKIP_VERIFICATION")
"""What versions of the original write where nobody asked for verification."""


@dataclass
class Ledger:
    """Rows by config, read on as the file grows; whoever holds one open keeps others from beginning the file anew."""

    path: Path
    options: RunnerOptions
    held: dict[str, Row] = field(default_factory=dict)
    lock: int | None = None
    inode: int = -1
    end: int = 0

    @classmethod
    def open(cls, path: Path, options: RunnerOptions, warn: Callable[[str], None]) -> Ledger:
        """What is there already; it is thrown away only where that was asked for, and never under another runner's hands."""
        single = options.model_config is not None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            made = cls(path, options, lock=_claim(path, anew=options.no_resume and not single))
            tally = RowTally()
            if not single:
                made._read_on(tally)
        except OSError as error:
            raise _unwritable(path, error) from error
        for text in tally.lines():
            warn(f"{path.name}: {text}")
        return made

    def known(self, model: Model, experiment: Experiment) -> Row | None:
        """The row that answers a config, if there is one by now."""
        if self.options.model_config is not None:
            return None
        with suppress(OSError):
            self._read_on(RowTally())
        suite = self.options.suite_name
        mark = matrix.fingerprint(suite, model, experiment, self.options)
        return self.held.get(mark) or self.held.get(original_fingerprint(suite, model, experiment, self.options))

    def add(self, row: Row) -> None:
        """One row, on disk when this returns."""
        try:
            rows.append(self.path, row)
        except OSError as error:
            raise _unwritable(self.path, error) from error

    def close(self) -> None:
        """Let others begin anew."""
        if self.lock is not None:
            os.close(self.lock)
            self.lock = None

    def _read_on(self, tally: RowTally) -> None:
        """Take what was added since; a file that was replaced or cut is read from its beginning."""
        with open_plain(self.path) as file:
            found = os.fstat(file.fileno())
            if found.st_ino != self.inode or found.st_size < self.end:
                self.inode, self.end = found.st_ino, 0
                self.held.clear()
            file.seek(self.end)
            for row in rows.parse(self._whole_lines(lines(file, str(self.path))), self.path.name, tally):
                self.held[fingerprint_of(row, self.options)] = row

    def _whole_lines(self, file: Iterable[bytes]) -> Iterator[bytes]:
        """Lines as they come; one that has no end yet is read again next time."""
        for line in file:
            self.end += len(line) if line.endswith(b"\n") else 0
            yield line


def _claim(path: Path, *, anew: bool) -> int | None:
    """A shared lock on the file, made or begun anew if need be; None where the file system has no locks."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB if anew else fcntl.LOCK_SH)
        except BlockingIOError:
            os.close(descriptor)
            raise UsageError(
                f"another runner writes to {str(path)!r}",
                why="--no-resume would delete its rows",
                do="wait for it, or name another --output-dirname",
            ) from None
        except OSError:
            os.close(descriptor)
            if anew:
                path.unlink(missing_ok=True)
                path.touch()
            return None
        if not _is_at(path, descriptor):
            os.close(descriptor)
        elif anew:
            path.unlink(missing_ok=True)
            os.close(descriptor)
            anew = False
        else:
            return descriptor


def _is_at(path: Path, descriptor: int) -> bool:
    """Whether nobody put another file in its place meanwhile."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _unwritable(path: Path, error: OSError) -> StoreError:
    return StoreError(
        f"cannot write {str(path)!r}", why=error.strerror or str(error), do="rows written before stay; choose another --output-dirname"
    )


def outcome(row: Row) -> str:
    """How a row that is there already came out: by our own word where it has one."""
    ours = row.others.get("steelyard")
    told = ours.get("status") if isinstance(ours, Mapping) else None
    if row.error == SKIP:
        return "skipped"
    if row.error:
        return told if told in STATUSES and told != "ok" else "failed"
    return "wrong" if row.verification_code == "FAIL" else "ok"


def fingerprint_of(row: Row, options: RunnerOptions) -> str:
    """Which config a row answers: told by us in the row, or put together from what the original wrote.

    The original wrote the batch size that a model chose, so it counts only where one is asked for.
    """
    ours = row.others.get("steelyard")
    if isinstance(ours, Mapping) and isinstance(ours.get("fingerprint"), str):
        return str(ours["fingerprint"])
    batch = None if options.batch_size is None else row.experiment.get("batch_size")
    verified = options.verify if row.error else row.verification_code not in UNVERIFIED
    return _original(row.model.get("suite_name"), row.name, row.experiment, row.repeat, row.iterations_per_run, batch, verified)


def original_fingerprint(suite: str, model: Model, experiment: Experiment, options: RunnerOptions) -> str:
    """How a row of the original tool for this config would be told."""
    return _original(
        suite, str(model["model_name"]), experiment, options.repeat, options.iterations_per_run, options.batch_size, options.verify
    )


def _original(suite: Any, name: str, experiment: Mapping[str, Any], repeat: Any, iterations: Any, batch: Any, verified: bool) -> str:
    points = [str(experiment.get(key) or None) for key in matrix.AXES]
    return "-".join(map(str, (suite, name, *points, repeat, iterations, batch, verified)))
