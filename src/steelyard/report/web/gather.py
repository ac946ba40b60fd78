"""Makes the document for references: finds the runs, what they are compared with, and their history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from steelyard.analyze import sides
from steelyard.analyze.compare import Comparison, RunsSide, compare, usual_metrics
from steelyard.analyze.history import History, histories
from steelyard.codec.known import load_known
from steelyard.errors import StoreError, UsageError, told, unknown
from steelyard.report.web.document import document
from steelyard.store.refs import locate
from steelyard.store.runs import Run, Store, moment

Document = dict[str, Any]

LATEST = "latest"
SHORTEST_SERIES = 2


@dataclass(frozen=True)
class ReportRequest:
    """What a report is about; without references, the latest run."""

    refs: tuple[str, ...] = ()
    base: str | None = None
    title: str = ""
    baseline: str | None = None
    history: bool = True
    since: str | None = None
    until: str | None = None
    commit_url: str = ""


def gather(store: Store, asked: ReportRequest) -> Document:
    """The document for some references; for a run that cannot be read it has the reason."""
    found, unread = _sides(store, asked.refs or (LATEST,))
    base: RunsSide | None = None
    if asked.base is not None:
        base = sides.find(store, asked.base)
    elif len(found) > 1:
        base, found = found[0], found[1:]
    distinct = {(run.path, run.id): run for side in found for run in side.runs}
    runs = sorted(distinct.values(), key=lambda run: moment(run.header.created))
    head = found[-1] if found else None
    against: Comparison | None = None
    if base and head and base.runs != head.runs:
        against = compare(base, head, metrics=usual_metrics((*base.runs, *head.runs)))
    series = _history(store, runs, asked) if asked.history and runs else {}
    made = document(
        runs, base=base, series=series, comparison=against, title=asked.title, baseline=asked.baseline, warnings=unread,
        known=load_known(store.root), commit_url=asked.commit_url,
    )  # fmt: skip
    if not asked.history:
        made["history"] = None
    columns = (made["matrix"] or {}).get("columns", [])
    if asked.baseline is not None and asked.baseline not in columns:
        raise unknown("column", asked.baseline, columns)
    return made


def _sides(store: Store, refs: Sequence[str]) -> tuple[list[RunsSide], list[str]]:
    found, unread = [], []
    for ref in refs:
        try:
            found.append(sides.find(store, ref))
        except StoreError as error:
            if not _is_run(store, ref):
                raise
            unread.append(f"run {ref}: {told(error)}")
    return found, unread


def _is_run(store: Store, ref: str) -> bool:
    """Whether a reference names a run of the store, even one that cannot be read."""
    try:
        return (locate(store, ref) / "run.jsonl").exists()
    except (StoreError, UsageError, OSError):
        return False


def _history(store: Store, runs: Sequence[Run], asked: ReportRequest) -> Mapping[str, History]:
    """The series of all cases on the newest run's machine; several runs are a window of time unless another is given.

    From another tool's file only one run counts for each moment: its processes measured the same thing at the same time.
    """
    cases = dict.fromkeys(record.id for run in runs for record in run.records)
    since, until = asked.since, asked.until
    if len(runs) > 1 and since is None and until is None:
        since, until = _first_moment(runs), _last_moment(runs)
    imported = {(str(run.path), run.header.created): run for run in runs if run.path.parent != store.folder}
    found = histories(store, cases, runs[-1].header.machine_key, since, until, imported=list(imported.values()))
    return {name: series for name, series in found.items() if len(series.points) >= SHORTEST_SERIES}


def _first_moment(runs: Sequence[Run]) -> str | None:
    """When the first run began; None if no run has a valid time."""
    return min((run.header.created for run in runs if moment(run.header.created)), key=moment, default=None)


def _last_moment(runs: Sequence[Run]) -> str | None:
    """When the last record began; a run's own time is when it began."""
    times = [record.started or run.header.created for run in runs for record in run.records] + [run.header.created for run in runs]
    return max((time for time in times if moment(time)), key=moment, default=None)
