"""The report document: everything a report shows, as plain data for pages, spreadsheets and pictures."""

from __future__ import annotations

import importlib
import pkgutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from steelyard.analyze.compare import Comparison, RunsSide
from steelyard.analyze.history import History, histories_of
from steelyard.analyze.matrix import StackTable, matrix
from steelyard.analyze.stacks import PlacedRecord, Words, newest, once
from steelyard.analyze.sweep import sweeps
from steelyard.codec.policy import Excuse
from steelyard.model.case import ENV, IDENTITY
from steelyard.report import charts
from steelyard.report.cells import COMMAND, clean, facets
from steelyard.report.charts import Chart, columns_of
from steelyard.report.charts.generation import phases_on_roofs
from steelyard.report.web import roofs
from steelyard.report.web.cases import EarlierRecords, Environments, case_entry, in_common, labels, metric_words
from steelyard.report.web.comparing import comparison_part, find_comparison
from steelyard.report.web.fit import fit
from steelyard.report.web.over_time import FEWEST, history_part
from steelyard.report.web.plain import Document, plain
from steelyard.report.web.replay import replay_entry
from steelyard.report.web.requests import requests_part
from steelyard.report.web.runs import machine_cards, merged, page_warnings, run_entry
from steelyard.report.web.samples import Sidecar, count_of, level, sample_entry
from steelyard.report.web.schema import FORMAT, MatrixCell, MatrixPart, ReportDocument, RunEntry
from steelyard.report.web.words import banner
from steelyard.store.runs import Run, now
from steelyard.version import __version__

__all__ = ["FORMAT", "Document", "document"]

MOST_SAMPLES = 200_000
MOST_POINTS, LEAST_POINTS, POINTS_LESS = 50_000, 10_000, 4
"""The most points of all series together: fewer if there are many cases, which need the space."""
MOST_NAMED = 3
"""The most workloads in a title."""
A_SAMPLE = 7
"""Bytes that one raw sample takes in a page, zipped."""
NO_SERIES: Mapping[str, History] = MappingProxyType({})


def document(
    runs: Sequence[Run],
    *,
    base: RunsSide | None = None,
    series: Mapping[str, History] = NO_SERIES,
    comparison: Comparison | None = None,
    title: str = "",
    baseline: str | None = None,
    samples: int = MOST_SAMPLES,
    warnings: Sequence[str] = (),
    known: Sequence[Excuse] = (),
    commit_url: str = "",
) -> Document:
    """Everything about some runs, oldest first; `cases` are the newest record of each case among them.

    If no comparison is given, it is made with `base` if named, else from the pairs inside the runs. If no series are given, they come
    from the runs themselves. `samples` is the maximum number of raw values of all cases together, `warnings` are further problems,
    such as runs that could not be read; `known` are known changes, and `commit_url` is the address of a commit, with {commit} in its
    place.
    """
    shown = merged(runs)
    told = once(facets)
    seen = _together(newest(shown), told)
    series = series or (histories_of(shown) if len(shown) > 1 else {})
    compared = comparison or find_comparison(runs, base)
    cards, machines = machine_cards(shown, series.values())
    table = matrix(seen, shown, baseline=baseline, told=told)
    named, environments = labels(seen, told), Environments()
    before = EarlierRecords(shown, series)
    entries = [
        case_entry(item, named[item.record.id], environments.place(item.record.environment), before.differs(item), shown[item.run])
        for item in seen
    ]
    entries, roofline = roofs.lay(seen, entries, shown, machines)
    listed = [run_entry(run, machines[run.header.machine_key]) for run in shown]
    most = max(LEAST_POINTS, MOST_POINTS - POINTS_LESS * len(seen))
    history = history_part(series, machines, {item.record.id: item.record.case for item in seen}, baseline, most, known)
    points = sum(len(item["points"]) for item in history["series"]) if history else 0
    lost = sum(run.loss.records for run in shown)
    verdict = banner(_counts(seen, listed, lost), named, compared, table, series, _absent(seen, listed, lost), known)
    made = ReportDocument(
        format="steelyard-report/1",
        title=clean(title) or _title(shown, seen),
        made=now()[:19] + "Z",
        version=__version__,
        banner=replace(verdict, tone="bad") if lost else verdict,
        warnings=[*map(clean, warnings), *page_warnings(shown, base.runs if base else ()), *_left_out(series, points)],
        machines=cards,
        runs=listed,
        metrics=metric_words(seen),
        environments=environments.listed(),
        common=in_common(seen, told),
        cases=entries,
        comparison=comparison_part(compared, shown, base) if compared else None,
        matrix=_matrix(table) if table else None,
        sweep=sweeps(seen, baseline=baseline or (table.baseline if table else None), told=told) or None,
        roofline=roofline,
        generation=requests_part(seen, shown, told),
        history=history,
        commit_url=commit_url,
    )
    whole: Document = {**plain(made), "charts": chart_specs()}
    if whole["generation"]:
        whole["generation"]["roofline"] = plain(phases_on_roofs(whole))
    _lay_samples(seen, whole["cases"], shown, min(samples, fit(whole) // A_SAMPLE))
    whole["rows"] = {chart.name: plain(columns_of(chart.columns, chart.build(whole))) for chart in every_chart() if chart.build}
    return whole


def _matrix(table: StackTable) -> MatrixPart:
    cells = [[MatrixCell(cell.case, cell.status, cell.time) if cell else None for cell in row] for row in table.cells]
    return MatrixPart(table.baseline, table.columns, table.rows, cells, table.by_baseline, table.pass_rates, table.references)


def _counts(seen: Sequence[PlacedRecord], listed: Sequence[RunEntry], lost: int) -> Mapping[str, int]:
    """Cases by status, including lost ones; for a page that shows no cases, those of its newest run."""
    found = Counter[str](item.record.status for item in seen) if seen else Counter[str](listed[-1].counts if listed else {})
    return found + Counter(lost=lost)


def _absent(seen: Sequence[PlacedRecord], listed: Sequence[RunEntry], lost: int) -> int:
    """How many planned cases have no record; 0 for a page that shows no cases."""
    known = {item.record.id for item in seen}
    return max(0, len({id for run in listed for id in run.missing} - known) - lost) if seen else 0


def _left_out(series: Mapping[str, History], points: int) -> list[str]:
    if points >= sum(len(item.points) for item in series.values() if len(item.points) >= FEWEST):
        return []
    return ["the history is too long for one page: series without a change show only their newest points, or are left out"]


def _lay_samples(seen: Sequence[PlacedRecord], entries: Sequence[dict[str, Any]], runs: Sequence[Run], total: int) -> None:
    most = level([count_of(item.record) for item in seen], max(0, total))
    sidecars = [Sidecar.of(run) for run in runs]
    for item, entry in zip(seen, entries, strict=True):
        entry["samples"] = plain(sample_entry(item.record, sidecars[item.run], most))
        if replay := replay_entry(item.record, sidecars[item.run]):
            entry["replay"] = plain(replay)


def _title(runs: Sequence[Run], seen: Sequence[PlacedRecord]) -> str:
    """The title: the workloads, stacks and date; the run's id is on its card."""
    if not runs:
        return "Steelyard report"
    names = list(dict.fromkeys(clean(run.header.experiment) for run in runs if run.header.experiment not in ("", "command line")))
    workloads = list(dict.fromkeys(clean(item.record.case.get("workload") or "") for item in seen))
    workloads = [name if name != COMMAND else "commands" for name in workloads if name]
    more = f" and {len(workloads) - MOST_NAMED} more" if len(workloads) > MOST_NAMED else ""
    what = f"{', '.join(workloads[:MOST_NAMED])}{more}" or "nothing measured"
    named = f"{names[0]}: " if len(names) == 1 else ""
    stacks = list(dict.fromkeys(clean(item.record.case.get("variant") or IDENTITY) for item in seen))
    how = f", {' and '.join(stacks)}" if 1 < len(stacks) <= MOST_NAMED else ""
    when = clean(runs[-1].header.created[:10])
    which = when if len(runs) == 1 else f"{len(runs)} runs to {when}"
    return clean(f"{named}{what}{how} · {which}" if which else f"{named}{what}{how}")


def _together(seen: Sequence[PlacedRecord], told: Words) -> list[PlacedRecord]:
    """The records with equal workloads next to each other whatever their backend, in order of first appearance."""
    workloads: dict[Any, int] = {}
    points: dict[Any, int] = {}
    keys = []
    for item in seen:
        workload = str(item.record.case.get("workload") or item.record.id)
        point = (workload, *(f"{name}={text}" for name, text in told(item.record.case).items() if name != ENV))
        keys.append((workloads.setdefault(workload, len(workloads)), points.setdefault(point, len(points))))
    return [item for _, item in sorted(zip(keys, seen, strict=True), key=lambda pair: pair[0])]


def every_chart() -> list[Chart]:
    """Every chart of every module."""
    modules = [importlib.import_module(f"{charts.__name__}.{item.name}") for item in pkgutil.iter_modules(charts.__path__)]
    return [chart for module in sorted(modules, key=lambda module: module.__name__) for chart in getattr(module, "CHARTS", ())]


def chart_specs() -> dict[str, dict[str, Any]]:
    """What a page needs of every chart, by name."""
    return {
        chart.name: {"title": chart.title, "reading": chart.reading, "spec": chart.spec, "columns": list(chart.columns)}
        for chart in every_chart()
    }
