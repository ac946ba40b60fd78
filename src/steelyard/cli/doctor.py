"""`steelyard doctor`: checks whether this machine is fit to measure, and says what to change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steelyard.cli.output import console, emit_json, find_store, json_option, store_option, warn, width

if TYPE_CHECKING:
    from steelyard.engine.plan import Plan
    from steelyard.machine.doctor import Observation
    from steelyard.machine.noise import DeviceNoise
    from steelyard.machine.peaks import Peaks
    from steelyard.model.experiment import Experiment
    from steelyard.model.record import Record
    from steelyard.store.runs import Run

GLYPHS = {"ok": "✓", "note": "·", "warn": "!", "bad": "✗"}
COLOURS = {"ok": "green", "note": "dim", "warn": "yellow", "bad": "red"}
WORDS = {"ok": "fit", "note": "to know", "warn": "to change", "bad": "unfit"}


@click.command("doctor")
@click.option("--strict", is_flag=True, help="Exit with 3 when a finding says the machine is unfit to measure (✗).")
@click.option(
    "--peaks", "wants_peaks", is_flag=True, help="Measure the peak rates of a device, so that runs show each case's share of them."
)
@click.option("--noise", "wants_noise", is_flag=True, help="Measure the smallest change this machine can detect in 1 s, 5 s and 30 s.")
@click.option("-d", "--device", metavar="KIND", help="With --peaks or --noise: cpu or cuda. Default cpu.")
@click.option("--threads", type=click.IntRange(min=1), help="With --peaks or --noise: CPU threads. Default 1.")
@click.option("--budget", metavar="TIME", help="Sampling time per case. Default quick with --peaks, normal with --noise.")
@store_option
@json_option
def command(
    strict: bool,
    wants_peaks: bool,
    wants_noise: bool,
    device: str | None,
    threads: int | None,
    budget: str | None,
    store: Path | str | None,
    as_json: bool,
) -> None:
    """Check whether this machine is fit to measure, and what to change. Each finding says what was seen, how much it affects timings (≈),
    and the command that fixes it (→).
    """
    from steelyard.errors import FAILED, UsageError
    from steelyard.machine import doctor, facts, noise, peaks

    if wants_peaks and wants_noise:
        raise UsageError("--peaks and --noise are two measurements", do="run the doctor twice")
    if wants_peaks or wants_noise:
        if strict or store:
            option = "--peaks" if wants_peaks else "--noise"
            raise UsageError(f"--strict and --store do not go with {option}", do="run the doctor twice")
        measure = measure_peaks if wants_peaks else measure_noise
        measure(device or "cpu", threads or 1, budget, as_json=as_json)
        return
    if device or threads or budget:
        raise UsageError("--device, --threads and --budget go with --peaks or --noise", do="steelyard doctor --peaks")
    machine = facts.collect()
    key, findings = facts.key(machine), doctor.examine(machine, store=find_store(store).root if store else None)
    roofs, floors = peaks.saved(key), noise.saved(key)
    if as_json:
        emit_json({"machine": machine, "key": key, "findings": findings, "peaks": roofs, "noise": floors})
    else:
        _draw(f"{facts.summary(machine)} · key {key}", findings)
        unseen = "not measured here; find the smallest change it can detect: steelyard doctor --noise"
        unknown = "none measured here, so no case shows its share; measure them: steelyard doctor --peaks"
        click.echo(f"noise: {', '.join(floors) or unseen}")
        click.echo(f"peaks: {', '.join(roofs) or unknown}")
    if strict and any(finding.status == "bad" for finding in findings):
        raise click.exceptions.Exit(FAILED)


def _draw(title: str, findings: list[Observation]) -> None:
    """Wrap text at the terminal's width, but never a command, so that it can be pasted whole."""
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


def measure_peaks(device: str, threads: int, budget: str | None, *, as_json: bool, scale: float = 1.0) -> None:
    """Measure, save and show the peak rates of one device; `scale` shrinks every size, for tests."""
    from steelyard.engine import conduct
    from steelyard.engine import peaks as work
    from steelyard.engine.selection import read_devices
    from steelyard.machine import facts, peaks
    from steelyard.model.units import number_of

    seconds = _seconds(budget, work.BUDGET)
    read_devices([device])
    peaks.check_writable()
    machine = facts.collect()
    key = facts.key(machine)

    def records(experiment: Experiment) -> list[Record]:
        return list(_executed(conduct.from_experiment(experiment), "--peaks").records)

    found = work.measure(records, machine, device, threads, budget=seconds, scale=scale)
    file = peaks.save(found, key, device, threads)
    sheet = peaks.datasheet(found.name)
    if as_json:
        emit_json({"key": key, "device": device, "threads": threads, "peaks": found, "datasheet": sheet, "path": file})
        return
    console().print(f"{facts.summary(machine)} · key {key}", style="bold")
    for line in _peak_lines(f"{device} · {found.name or number_of(threads, 'thread')}", found, sheet):
        click.echo(line)
    for name, why in found.left_out.items():
        click.echo(f"{name} left out: {why}")
    if sheet:
        click.echo(f"datasheet: vendor datasheet of {sheet.name}, dense (no sparsity)")
    click.echo(f"saved {file}")


def measure_noise(device: str, threads: int, budget: str | None, *, as_json: bool, chosen: Experiment | None = None) -> None:
    """Compare a few cases with themselves, save how much the results scatter, and show the smallest change that would be detected; `chosen`
    is for tests."""
    from steelyard.engine import noise as work
    from steelyard.engine.selection import read_devices
    from steelyard.engine.waits import estimate
    from steelyard.machine import facts, noise
    from steelyard.model.units import duration, number_of

    seconds = _seconds(budget, work.BUDGET)
    read_devices([device])
    noise.check_writable()
    machine = facts.collect()
    key, ready = facts.key(machine), work.against_itself(chosen or work.experiment(machine, device, threads, seconds))
    click.echo(f"comparing {len(ready.jobs)} cases with themselves · about {duration(estimate(ready, key).about)}", err=True)
    done = _executed(ready, "--noise")
    found = work.learn(done.records, done.pairs)
    for line in work.left_out(done.records, found.cases):
        warn(line)
    file = noise.save(found, key, device, threads)
    if as_json:
        sees = {id: {f"{length:g}": work.smallest_change(case, length) for length in work.LENGTHS} for id, case in found.cases.items()}
        emit_json({"key": key, "device": device, "threads": threads, "noise": found, "sees": sees, "path": file})
        return
    console().print(f"{facts.summary(machine)} · key {key} · {device if device != 'cpu' else number_of(threads, 'thread')}", style="bold")
    for line in _noise_lines(found, done.records):
        click.echo(line)
    click.echo(f"saved {file}")


def _seconds(text: str | None, usual: float) -> float:
    from steelyard.model.experiment import BUDGETS
    from steelyard.model.units import parse_budget

    return usual if text is None else parse_budget(text, BUDGETS)


def _executed(ready: Plan, option: str) -> Run:
    """Run the cases through the engine, with its isolation and locks, into a temporary store."""
    import sys
    import tempfile

    from steelyard.engine import conduct
    from steelyard.report.progress import Progress
    from steelyard.store.runs import Store

    progress = Progress(len(ready.jobs), sys.stderr)
    try:
        with tempfile.TemporaryDirectory(prefix="steelyard-doctor-") as place:
            return conduct.execute(ready, Store(Path(place)), ["steelyard", "doctor", option], lambda writer: progress).run
    finally:
        progress.close()


def _noise_lines(found: DeviceNoise, records: Sequence[Record]) -> list[str]:
    """Lines of the noise page: a row per case, how to read the table, and what to do if the noise is high."""
    from steelyard.engine.noise import LENGTHS, smallest_change
    from steelyard.model.pair import MARGIN
    from steelyard.model.units import percent, plain

    rows = [["can see (90 % of the time)", "one call", *(f"{length:g} s" for length in LENGTHS)]]
    for record in records:
        if case := found.cases.get(record.id):
            changes = [percent(smallest_change(case, length)) for length in LENGTHS]
            rows.append([record.case["workload"], plain(record.metrics["time"].value, "s"), *changes])
    said = "A change of this size or more is found in 9 of 10 comparisons (--vs) of that --budget; a smaller one may end as unclear."
    worst = max(smallest_change(case, LENGTHS[1]) for case in found.cases.values())
    if worst > MARGIN:
        said += f" {percent(worst)} in {LENGTHS[1]:g} s is a lot: something disturbs this machine; `steelyard doctor` says what to change."
    return [*_table(rows), *_wrapped(said, width())]


def _peak_lines(title: str, found: Peaks, sheet: Peaks | None) -> list[str]:
    """Lines of the peaks page: a row per number format and one for memory, with the vendor's figures beside the measured ones."""
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
        cells = [f"{name:<7}  {case.workload} n={params['n']}", plain(rate, unit)]
        cells += [plain(promised, unit), percent(rate / promised)] if promised else []
        rows.append(cells)
    return _table(rows)


def _table(rows: list[list[str]]) -> list[str]:
    """The lines of a table: text left-aligned, numbers right-aligned; rows may have fewer cells than the head."""
    widths = [max(len(row[place]) for row in rows if len(row) > place) for place in range(len(rows[0]))]
    return ["   ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows]
