"""`steelyard as v3 policy`: HUD's windowed rules on series of results, printed as text, JSON or Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steelyard.errors import INCONCLUSIVE, NOTHING, PASS, REGRESSION, UsageError
from steelyard.model.units import plain
from steelyard.terminal import CONTEXT, emit_json, save, warn, width

if TYPE_CHECKING:
    from steelyard.analyze.hud_gate import SeriesReport, WindowReport

NEWEST = "newest"
CODES = {"regression": REGRESSION, "suspicious": PASS, "no_regression": PASS, "insufficient_data": NOTHING, "unknown": NOTHING}
GLYPHS = {"regression": "▼", "suspicious": "?", "insufficient_data": "–", "no_regression": "✓", "unknown": "–"}
MOST_ROWS = 50
MOST_VALUES = 8


@click.command("policy", context_settings=CONTEXT)
@click.argument("policy_file", metavar="POLICY", type=click.Path(path_type=Path))
@click.argument("refs", nargs=-1, required=True, metavar="REF...")
@click.option("--at", "end", default="now", show_default=True, metavar="DATE", help="When the newer window ends: a date, now, or newest.")
@click.option("--strict", is_flag=True, help="Exit with 6 if a series is suspicious.")
@click.option("--markdown", type=click.Path(path_type=Path), metavar="FILE", help="Also write the report as Markdown.")
@click.option(
    "--store", metavar="DIR", type=click.Path(file_okay=False, path_type=Path), help="Folder of saved runs; by default the nearest."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON to stdout.")
def policy(
    policy_file: Path, refs: tuple[str, ...], end: str, strict: bool, markdown: Path | None, store: Path | None, as_json: bool
) -> int:
    """Judge series of results by HUD's windowed rules: a baseline window of days, then a comparison window, each case separately.

    POLICY is a gate policy with [hud.window]. REF is what 'steelyard compare' takes: files and folders of the database, saved runs,
    latest~59..latest. Exits with 4 if a series is a regression, and with 5 if there is too little data or it is too old.

    \b
    steelyard as v3 policy hud-torchao.toml results --at newest
    """
    from steelyard.analyze import hud_gate, sides
    from steelyard.codec.policy import load_policy
    from steelyard.report.cells import clean
    from steelyard.report.wrap import wrap_text
    from steelyard.store.runs import Store

    given = load_policy(policy_file)
    if given.hud is None or given.hud.windows is None:
        do = "to apply its other rules: steelyard gate BASE HEAD --policy FILE"
        raise UsageError(f"{policy_file} has no [hud.window]", do=do)
    place = Store.find(explicit=str(store) if store else None)
    found = {(run.path, run.id): run for ref in refs for run in sides.find(place, ref).runs}
    for run in found.values():
        for line in run.warnings:
            warn(line)
    report = hud_gate.report(list(found.values()), given.hud.windows, _end(end))
    code = NOTHING if report.stale else CODES[report.status]
    code = INCONCLUSIVE if strict and code == PASS and report.status == "suspicious" else code
    if as_json:
        emit_json(_document(report, code))
    else:
        for indent, line in _lines(report):
            for part in wrap_text(clean(line), width() - 2 * len(indent)):
                click.echo(f"{indent}{part}")
    if markdown:
        save(markdown, _markdown(report))
    return code


def _end(text: str) -> float | None:
    """The end of the newer window as a timestamp; None for the newest run."""
    if text == NEWEST:
        return None
    if text == "now":
        return datetime.now(UTC).timestamp()
    from steelyard.store.runs import moment

    found = moment(text)
    if not found:
        raise UsageError(f"not a date: {text!r}", do="write it like 2026-01-31, 2026-01-31T03:00:00Z, now or newest")
    return found + (86400.0 if len(text) <= len("2026-01-31") else 0.0)


def _day(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M")


def _headline(report: WindowReport) -> str:
    if report.stale:
        days = f"{report.windows.stale_days:g} days"
        return f"no report: the newest result is from {_day(report.newest)}, more than {days} before {_day(report.end)}"
    counted = Counter(item.verdict.label for item in report.series)
    return f"{report.status}: {', '.join(f'{count} {label}' for label, count in counted.items())}"


def _spans(report: WindowReport) -> str:
    middle = report.end - report.windows.comparison_days * 86400.0
    start = middle - report.windows.baseline_days * 86400.0
    return f"baseline {_day(start)} to {_day(middle)} · then {_day(middle)} to {_day(report.end)} UTC"


def _lines(report: WindowReport) -> Iterator[tuple[str, str]]:
    """Yield the lines to print, each with its indent."""
    yield "", f"{'–' if report.stale else GLYPHS[report.status]} {_headline(report)}"
    yield "", _spans(report)
    shown = [] if report.stale else [item for item in report.series if item.verdict.label != "no_regression"]
    for item in shown[:MOST_ROWS]:
        yield "", f"{GLYPHS[item.verdict.label]} {item.verdict.label}: {item.name}{f' on {item.branch}' * bool(item.branch)}{_better(item)}"
        yield "    ", item.case
        yield "    ", _why(item)
    if len(shown) > MOST_ROWS:
        yield "", f"… and {len(shown) - MOST_ROWS} more: --json has them all"
    if report.skipped:
        yield "", f"no rule for {', '.join(report.skipped[:10])}{' and others' * (len(report.skipped) > 10)}"


def _better(item: SeriesReport) -> str:
    return f", {item.better} is better" if item.better != "none" else ""


def _why(item: SeriesReport) -> str:
    verdict, rule = item.verdict, item.rule
    if verdict.baseline is None or not verdict.points:
        return verdict.reason
    values = [f"{plain(point.value, item.unit)}{'!' * point.flagged}" for point in verdict.points[-MOST_VALUES:]]
    asked = f"{rule.condition} {rule.threshold:g} x {rule.baseline} {plain(verdict.baseline, item.unit)}"
    words = f"{asked}; values {' '.join(values)}{'; ! violates it' if any(point.flagged for point in verdict.points) else ''}"
    return f"{words}; {verdict.reason}" if verdict.reason else words


def _document(report: WindowReport, code: int) -> dict[str, Any]:
    return {
        "status": "stale" if report.stale else report.status, "exit_code": code, "headline": _headline(report),
        "end": report.end, "newest": report.newest,
        "baseline_days": report.windows.baseline_days, "comparison_days": report.windows.comparison_days,
        "series": report.series, "skipped": report.skipped,
    }  # fmt: skip


def _markdown(report: WindowReport) -> str:
    """The report for an issue or a job summary; text from files is in code spans."""
    from steelyard.report.markdown import code, table_lines

    rows = [
        (item.verdict.label, code(item.case), code(item.name + _better(item)), code(item.branch), code(_why(item), 400))
        for item in report.series[:MOST_ROWS]
        if item.verdict.label != "no_regression" and not report.stale
    ]
    table = table_lines(("label", "case", "metric", "branch", "why"), rows) if rows else []
    count = f"{len(report.series)} series"
    return "\n\n".join(part for part in (f"## {_headline(report)}", f"{_spans(report)} · {count}", "\n".join(table)) if part) + "\n"
