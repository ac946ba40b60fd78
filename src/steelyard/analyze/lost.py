"""Cases whose lines are gone from a run's file: because they were measured, a comparison reports them as missing."""

from __future__ import annotations

from collections.abc import Sequence

from steelyard.model.record import unweighed
from steelyard.store.runs import Run


def lost_cases(runs: Sequence[Run]) -> dict[str, str]:
    """Planned cases without a record, from runs that were sealed with more records than their files now have; each with the reason."""
    held = {record.id for run in runs for record in run.records}
    found: dict[str, str] = {}
    for run in runs:
        if run.loss.records:
            named = [id for id in run.header.cases if id not in held] or [f"an unknown case of run {run.id}"]
            found |= dict.fromkeys(named, f"its record is missing from the file of run {run.id}")
    return found


def lost_pairs(run: Run) -> dict[str, str]:
    """Cases of a run whose comparison was measured but is missing from the file, each with the reason."""
    if not run.loss.pairs:
        return {}
    told = {arm.id for pair in run.pairs for arm in (pair.base, pair.head)} | unweighed(run.records).keys()
    named = [record.id for record in run.records if record.status == "ok" and record.id not in told]
    return dict.fromkeys(named or [f"an unknown case of run {run.id}"], f"its comparison is missing from the file of run {run.id}")
