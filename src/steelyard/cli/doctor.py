"""`steelyard doctor`: is this machine fit to measure, and what to change."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steelyard.cli.output import console, emit_json, json_option, store_option, width

if TYPE_CHECKING:
    from steelyard.machine.doctor import Finding
    from steelyard.machine.peaks import Peaks
    from steelyard.model.experiment import Experiment
    from steelyard.model.record import Record

GLYPHS = {"ok": "✓", "note": "·", "warn": "!", "bad": "✗"}
COLOURS = {"ok": "green", "note": "dim", "warn": "yellow", "bad": "red"}
WORDS = {"ok": "fit", "note": "to know", "warn": "to change", "bad": "unfit"}


@click.command("doctor")
@click.option("--strict", is_flag=True, help="Exit with 3 when a finding says the machine is unfit to measure (✗).")
@click.option("--peaks", "wants_peaks", is_flag=True, help="Measure what a device can do at most, so that runs show each case's share.")
@click.option("-d", "--device", metavar="KIND", help="With --peaks: cpu or cuda. Default cpu.")
@click.option("--threads", type=click.IntRange(min=1), help="With --peaks: CPU threads. Default 1.")
@click.option("--budget", metavar="TIME", help="With --peaks: sampling time per case. Default quick.")
@store_option
@json_option
def command(
    strict: bool, wants_peaks: bool, device: str | None, threads: int | None, budget: str | None, store: Path | None, as_json: bool
) -> None:
    """Say whether this machine is fit to measure, and what to change.

    Each finding says what was seen, how much it matters to a timing (≈), and the exact command that changes it (→).
    """
    from steelyard.errors import FAILED, UsageError
    from steelyard.machine import doctor, facts, peaks

    if wants_peaks:
        if strict or store:
            raise UsageError("--strict and --store do not go with --peaks", do="run the doctor twice")
        measure_peaks(device or "cpu", threads or 1, _budget(budget), as_json=as_json)
        return
    if device or threads or budget:
        raise UsageError("--device, --threads and --budget go with --peaks", do="steelyard doctor --peaks")
    machine = facts.collect()
    key, findings = facts.key(machine), doctor.examine(machine, store=store)
    kept = peaks.saved(key)
    if as_json:
        emit_json({"machine": machine, "key": key, "findings": findings, "peaks": kept})
    else:
        _draw(f"{facts.summary(machine)} · key {key}", findings)
        known = ", ".join(kept) if kept else "none measured here, so no case shows its share; measure them: steelyard doctor --peaks"
        click.echo(f"peaks: {known}")
    if strict and any(finding.status == "bad" for finding in findings):
        raise click.exceptions.Exit(FAILED)


def _draw(title: str, findings: list[Finding]) -> None:
    """Words wrap at the reader's width; a command never does, because half a command must not be pasted."""
    from rich.text import Text

    out, columns = console(), width()
    longest = max(len(finding.name) for finding in findings)
    margin = longest + 4
    out.print(Text(title, "bold"))
    for finding in findings:
        head = Text(f"{GLYPHS[finding.status]} ", COLOURS[finding.status]).append(f"{finding.name:<{longest}}  ", "none")
        for row, words in enumerate(_wrapped(finding.saw, columns - margin)):
            out.print((head if row == 0 else Text(" " * margin)) + Text(words))
        if finding.status == "ok":
            continue
        for row, words in enumerate(_wrapped(finding.matters, columns - margin - 2)):
            out.print(Text(" " * margin + ("≈ " if row == 0 else "  ") + words, "dim"))
        if finding.do:
            indent = " " * (margin if margin + 2 + len(finding.do) <= columns else 4)
            out.print(Text(f"{indent}→ ").append(finding.do, "bold"), soft_wrap=True)
    counts = {status: sum(finding.status == status for finding in findings) for status in GLYPHS}
    out.print(" · ".join(f"{count} {WORDS[status]}" for status, count in counts.items() if count))


def _wrapped(text: str, columns: int) -> list[str]:
    import textwrap

    return textwrap.wrap(text, max(columns, 20), break_on_hyphens=False)


def _budget(text: str | None) -> float:
    from steelyard.errors import UsageError
    from steelyard.machine.peaks import BUDGET
    from steelyard.model.experiment import BUDGETS
    from steelyard.model.units import parse_seconds

    seconds = BUDGET if text is None else BUDGETS[text] if text in BUDGETS else parse_seconds(text)
    if not seconds > 0:
        raise UsageError(f"--budget must be more than 0, not {text!r}")
    return seconds


def measure_peaks(device: str, threads: int, budget: float, *, as_json: bool, scale: float = 1.0) -> None:
    """Measure, keep and show the peaks of one device; `scale` shrinks every size, for a trial."""
    from steelyard.engine.selection import read_devices
    from steelyard.machine import facts, peaks

    read_devices([device])
    peaks.check_writable()
    machine = facts.collect()
    key = facts.key(machine)
    found = peaks.measure(_records, machine, device, threads, budget=budget, scale=scale)
    file = peaks.save(found, key, device, threads)
    sheet = peaks.datasheet(found.name)
    if as_json:
        emit_json({"key": key, "device": device, "threads": threads, "peaks": found, "datasheet": sheet, "path": file})
        return
    where = found.name or (f"{threads} thread" if threads == 1 else f"{threads} threads")
    console().print(f"{facts.summary(machine)} · key {key}", style="bold")
    for line in _peak_lines(f"{device} · {where}", found, sheet):
        click.echo(line)
    if sheet:
        click.echo(f"datasheet: vendor datasheet of {sheet.name}, dense (no sparsity)")
    click.echo(f"saved {file}")


def _records(experiment: Experiment) -> list[Record]:
    """Run through the engine, so that isolation and locks hold, into a store that is gone afterwards."""
    import sys
    import tempfile

    from steelyard.engine import conduct
    from steelyard.report.progress import Progress
    from steelyard.store.runs import Store

    ready = conduct.from_experiment(experiment)
    progress = Progress(len(ready.jobs), sys.stderr)
    try:
        with tempfile.TemporaryDirectory(prefix="steelyard-peaks-") as place:
            done = conduct.execute(ready, Store(Path(place)), ["steelyard", "doctor", "--peaks"], lambda writer: progress)
    finally:
        progress.close()
    return list(done.run.records)


def _peak_lines(title: str, found: Peaks, sheet: Peaks | None) -> list[str]:
    """A row per number format and one for memory; the vendor's figures stand beside those measured."""
    from steelyard.model.case import Case
    from steelyard.model.units import percent, plain

    rates: Mapping[str, tuple[float, float | None, str]] = {
        **{name: (rate, sheet.compute.get(name) if sheet else None, "FLOP/s") for name, rate in found.compute.items()},
        "memory": (found.bandwidth, sheet.bandwidth if sheet else None, "B/s"),
    }
    rows = [[title, "measured", *(["datasheet", "share"] if sheet else [])]]
    for name, (rate, promised, unit) in rates.items():
        case = Case.parse(found.cases[name])
        params: dict[str, Any] = dict(case.params)
        cells = [f"{name:<6}  {case.workload} n={params['n']}", plain(rate, unit)]
        cells += [plain(promised, unit), percent(rate / promised)] if promised else []
        rows.append(cells)
    widths = [max(len(row[place]) for row in rows if len(row) > place) for place in range(len(rows[0]))]
    return ["   ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows]
