"""The rows of a run: which configs already have one, also from another runner at the same time, and their outcomes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from steelyard.dialects.ptxla import matrix, rows
from steelyard.dialects.ptxla.flags import RunnerOptions
from steelyard.dialects.ptxla.matrix import Model, RunnerPoint
from steelyard.dialects.ptxla.rows import Row, RowTally
from steelyard.dialects.ptxla.torchbench import ModelPolicy
from steelyard.model.record import STATUSES
from steelyard.store.rowfile import SharedRowFile

SKIP = "SKIP"
UNVERIFIED = (None, "VERIFIER_SKIPPED", "SKIP_VERIFICATION")
"""What versions of the original write if no verification was requested."""


class Ledger:
    """Rows by config; new ones are read as the file grows."""

    def __init__(self, path: Path, options: RunnerOptions, warn: Callable[[str], None], policy: ModelPolicy | None = None) -> None:
        self.path, self.options, self.single = path, options, options.model_config is not None
        self.policy = policy or ModelPolicy()
        self.held: dict[str, Row] = {}
        self.file = SharedRowFile(path, anew=options.no_resume and not self.single)
        tally = RowTally()
        if not self.single:
            self._read_on(tally)
        for text in tally.lines():
            warn(f"{path.name}: {text}")

    def mark(self, model: Model, experiment: RunnerPoint) -> str:
        """Return the key of a config."""
        told = self.policy.for_model(str(model["model_name"]), experiment["test"], None)
        return matrix.fingerprint(self.options.suite_name, model, experiment, self.options, told)

    def known(self, model: Model, experiment: RunnerPoint) -> Row | None:
        """Return the row of a config, if there is one by now; a single config named with --model-config is always run."""
        if self.single:
            return None
        with suppress(OSError):
            self._read_on(RowTally())
        suite = self.options.suite_name
        mark = self.mark(model, experiment)
        return self.held.get(mark) or self.held.get(original_fingerprint(suite, model, experiment, self.options))

    def add(self, row: Row) -> None:
        """Add one row, which is on disk when this returns."""
        self.file.append(row.plain())

    def close(self) -> None:
        """Release the file, so that other runners may start it again."""
        self.file.close()

    def _read_on(self, tally: RowTally) -> None:
        for row in rows.parse(self.file.added(self.held.clear), self.path.name, tally):
            ours = row.others.get("steelyard")
            if row.error or not isinstance(ours, Mapping) or row.metrics.get("total_time"):
                self.held[fingerprint_of(row, self.options)] = row


def outcome(row: Row) -> str:
    """Return the outcome of an existing row: our own status, if it has one."""
    ours = row.others.get("steelyard")
    told = ours.get("status") if isinstance(ours, Mapping) else None
    if row.error == SKIP:
        return "skipped"
    if row.error:
        return told if told in STATUSES and told != "ok" else "failed"
    return "wrong" if row.verification_code == "FAIL" else "ok"


def doubtful(row: Row) -> bool:
    """Whether requested verification had no result: it raised, or there was no reliable reference."""
    return not row.error and row.verification_code not in (*UNVERIFIED, "PASS", "FAIL")


def fingerprint_of(row: Row, options: RunnerOptions) -> str:
    """Return the key of a row's config: stored in our own rows, or reconstructed from the original's.

    The original wrote the batch size that a model chose, so it counts only if one is requested.
    """
    ours = row.others.get("steelyard")
    if isinstance(ours, Mapping) and isinstance(ours.get("fingerprint"), str):
        return str(ours["fingerprint"])
    batch = None if options.batch_size is None else row.experiment.get("batch_size")
    verified = options.verify if row.error else row.verification_code not in UNVERIFIED
    return _original(row.model.get("suite_name"), row.name, row.experiment, row.repeat, row.iterations_per_run, batch, verified)


def original_fingerprint(suite: str, model: Model, experiment: RunnerPoint, options: RunnerOptions) -> str:
    """Return the key that a row of the original tool for this config would have."""
    return _original(
        suite, str(model["model_name"]), experiment, options.repeat, options.iterations_per_run, options.batch_size, options.verify
    )


def _original(suite: Any, name: str, experiment: Mapping[str, Any], repeat: Any, iterations: Any, batch: Any, verified: bool) -> str:
    points = [str(experiment.get(key) or None) for key in rows.AXES]
    return "-".join(map(str, (suite, name, *points, repeat, iterations, batch, verified)))
