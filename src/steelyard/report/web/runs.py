"""The runs of a page: where each comes from, on which machine it was made, and everything that is wrong with it, in words."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from steelyard.analyze.conditions import conditions, load_at_start
from steelyard.analyze.history import History
from steelyard.analyze.provenance import commit_of
from steelyard.analyze.unpaired import figure_of, held
from steelyard.machine import facts
from steelyard.model.record import Record
from steelyard.model.units import number_of
from steelyard.model.units import plain as quantity
from steelyard.report.cells import clean
from steelyard.report.monitor import run_line
from steelyard.report.web.samples import Sidecar
from steelyard.report.web.schema import MachineCard, RunEntry
from steelyard.store.runs import Run

UNKNOWN = "unknown machine"
LONGEST_WARNING = 400
LARGEST_SIZE = 2**80
TOO_NOISY = ("D",)
Facts = Mapping[str, Any]


def merged(runs: Sequence[Run]) -> list[Run]:
    """The runs, with another tool's processes of one occasion merged into one run that has their mean figures."""
    found: list[Run] = []
    for _, group in groupby(runs, key=lambda run: (run.path, run.header.created, run.id.partition("#")[0] if foreign(run) else run.id)):
        several = list(group)
        found.append(several[0] if len(several) == 1 else _one(several))
    return found


def foreign(run: Run) -> bool:
    """Whether a run was read from another tool's file, which has no run folder."""
    return bool(run.records) and all("tool" in record.effective for record in run.records)


def _one(runs: Sequence[Run]) -> Run:
    records = []
    for found in held(runs).values():
        last = found[max(found)]
        names = dict.fromkeys(name for record in found.values() for name in record.metrics)
        figures = {name: figure for name in names if (figure := figure_of(name, found))}
        records.append(replace(last, metrics=figures))
    head = replace(runs[0].header, id=runs[0].id.partition("#")[0])
    counts: dict[str, int] = {**Counter(record.status for record in records)}
    seal = replace(runs[0].seal, records=len(records), counts=counts) if runs[0].seal else None
    warnings = tuple(dict.fromkeys(line for run in runs for line in run.warnings))
    return replace(runs[0], header=head, records=tuple(records), seal=seal, warnings=warnings)


def machine_cards(runs: Sequence[Run], series: Iterable[History]) -> tuple[list[MachineCard], dict[str, int]]:
    """A card for each machine, with the facts of its newest run, and the index of each machine key."""
    told: dict[str, Facts] = {}
    for run in runs:
        told[run.header.machine_key] = run.header.machine or told.get(run.header.machine_key, {})
    for item in series:
        told.setdefault(item.machine_key, {})
    cards = [
        MachineCard(key, machine_name(found, key), [(label, text) for label, text in _facts(found) if text]) for key, found in told.items()
    ]
    return cards, {key: place for place, key in enumerate(told)}


def machine_name(found: Facts, key: str) -> str:
    """`H200 · AMD EPYC · 2 cores · Linux 6.18`."""
    known = found.get("cpu") or found.get("gpus") or found.get("os")
    words = clean(facts.summary(dict(found))).split(" · ") if known else []
    summary = " · ".join(word for word in words if word not in ("unknown", "unknown CPU"))
    return summary or (f"machine {clean(key)}" if key else UNKNOWN)


def _facts(found: Facts) -> Iterable[tuple[str, str]]:
    chip, ram, system = _table(found, "cpu"), _table(found, "memory"), _table(found, "os")
    for gpu in found.get("gpus") or []:
        clocks = _either(gpu.get("clocks_set"), "clocks locked", "clocks not locked")
        memory = _bytes(gpu.get("memory"))
        driver = f"driver {gpu['driver']}" if gpu.get("driver") else ""
        yield "GPU", _joined(gpu.get("name"), memory, driver, clocks)
    cores, cpus = chip.get("cores"), chip.get("cpus")
    yield "processor", _joined(chip.get("model") or chip.get("arch"), f"{cores} cores" if cores else "", f"{cpus} CPUs" if cpus else "")
    caches = chip.get("caches") if isinstance(chip.get("caches"), dict) else {}
    yield "caches", _joined(*(f"{name} {_bytes(size)}" for name, size in (caches or {}).items() if _bytes(size)))
    yield "memory", _bytes(ram.get("total"))
    yield "frequency", _joined(chip.get("governor"), _either(chip.get("turbo"), "turbo on", "turbo off"))
    yield "SMT", _either(chip.get("smt"), "on", "off")
    yield "virtual", clean(chip.get("virtual") or "")
    quota = _table(found, "cgroup").get("cpu_quota")
    yield "CPU quota", f"{quota:g} cores" if isinstance(quota, (int, float)) else ""
    yield "system", _joined(system.get("distro"), system.get("system"), system.get("kernel"), system.get("libc"))
    yield "python", clean(_table(found, "python").get("version") or "")


def _either(value: Any, yes: str, no: str) -> str:
    """The word for true or for false; empty for anything else that a file may have there."""
    return yes if value is True else no if value is False else ""


def _bytes(value: Any) -> str:
    """A readable size; empty if no machine can have it."""
    return quantity(value, "B") if isinstance(value, int) and 0 <= value < LARGEST_SIZE else ""


def _table(found: Facts, name: str) -> dict[str, Any]:
    part = found.get(name)
    return part if isinstance(part, dict) else {}


def _joined(*parts: Any) -> str:
    return " · ".join(clean(part) for part in parts if part)


def run_entry(run: Run, machine: int) -> RunEntry:
    """One run as the page lists it."""
    commit, dirty = commit_of(run)
    head = run.header
    packages = _table(head.machine, "packages")
    versions = {**packages, **{name: value for name, value in head.environment.items() if isinstance(value, (str, int, float))}}
    versions |= _elsewhere(run, versions)
    return RunEntry(
        id=run.id,
        created=head.created,
        commit=commit,
        dirty=dirty,
        experiment=clean(head.experiment),
        machine=machine,
        command=shlex.join(head.command),
        version=head.version,
        sealed=run.seal is not None,
        counts=counts(run),
        missing=missing(run),
        warnings=list(troubles(run)),
        conditions=conditions(head.machine, run.records),
        load=load_at_start(head.machine),
        monitor=run_line(run.records),
        environment={name: str(version) for name, version in versions.items() if version is not None},
    )


def _elsewhere(run: Run, known: Mapping[str, Any]) -> dict[str, str]:
    """Versions of backends that ran in other environments than the run itself; several versions of one are all named."""
    found: dict[str, list[str]] = {}
    for record in run.records:
        name = str(record.case.get("backend", ""))
        version, here = record.environment.get(name), [str(known[name])] if known.get(name) else []
        if isinstance(version, str) and version and version not in found.setdefault(name, here):
            found[name].append(version)
    return {name: " and ".join(several) for name, several in found.items() if several}


def counts(run: Run) -> dict[str, int]:
    """Records by status; from the seal for a run of which only the ends were read."""
    if not run.records and run.seal and not run.loss.records:
        return dict(run.seal.counts)
    return {**Counter(record.status for record in run.records)}


def missing(run: Run) -> list[str]:
    """Cases that were planned and have no record."""
    if not run.records and run.seal and run.seal.records and not run.loss.records:
        return []
    measured = {record.id for record in run.records}
    return [id for id in run.header.cases if id not in measured]


def troubles(run: Run) -> Iterable[str]:
    """Problems of the run's files, one sentence each, without paths of the machine that made the page."""
    for warning in run.warnings:
        plain = warning.replace(f"{run.path}/run.jsonl: ", "").replace(f"{run.path}/run.jsonl:", "line ")
        yield clean(plain.replace(str(run.path), run.id))[:LONGEST_WARNING]
    lacking = len(missing(run))
    if run.seal is None:
        left = f": {number_of(lacking, 'case')} of {len(run.header.cases)} {'is' if lacking == 1 else 'are'} missing" if lacking else ""
        yield f"the run is unfinished{left}; it was interrupted or is still being measured"
    elif lacking and not run.loss.records and run.seal.reason not in ("", "complete"):
        yield f"{number_of(lacking, 'case')} planned and not measured ({clean(run.seal.reason)})"
    yield from Sidecar.of(run).troubles()


def page_warnings(runs: Sequence[Run], base: Sequence[Run]) -> list[str]:
    """Problems with the data of a page and of its base; a sentence that several runs share appears once."""
    told: dict[str, list[str]] = {}
    for run in (*base, *runs):
        for line in troubles(run):
            told.setdefault(line, []).append(clean(run.id))
    found = [f"run {_listed(list(dict.fromkeys(ids)))}: {line}" for line, ids in told.items()]
    keys = {run.header.machine_key: run.header.machine for run in (*base, *runs)}
    if len(keys) > 1:
        names = [machine_name(found_there, key) for key, found_there in keys.items()]
        same = "; two of them look alike and differ in kernel, driver or memory" if len(set(names)) < len(names) else ""
        found.append(
            f"these runs were made on {len(keys)} different machines ({_listed(list(dict.fromkeys(names)))}){same}: "
            "times of different machines cannot be compared"
        )
    if "" in keys and len(base) + len(runs) > 1:
        found.append("not every run says on which machine it was made; all are assumed to be from one machine")
    return [*found, *_noisy(runs)]


def _noisy(runs: Sequence[Run]) -> Iterable[str]:
    """A sentence if most cases are noisy, which makes small differences unreliable."""
    newest = {record.id: record for run in runs for record in run.records if record.status == "ok"}
    bad = [record for record in newest.values() if str(record.effective.get("noise") or "A")[0] in TOO_NOISY]
    if 2 * len(bad) <= len(newest):
        return
    grades = " and ".join(sorted({str(record.effective["noise"])[0] for record in bad}))
    times = [record.metrics["time"] for record in bad if "time" in record.metrics]
    wide = [(time.high - time.low) / 2 / time.value for time in times if time.low is not None and time.high is not None and time.value > 0]
    wide = [half for half in wide if math.isfinite(half)]
    hold = f"; times are good to ± {_spread(min(wide), max(wide))} %, smaller differences are unreliable" if wide else ""
    are = "is" if len(newest) == 1 else "are"
    yield f"{len(bad)} of {number_of(len(newest), 'case')} {are} noisy (grade {grades}): the machine was not quiet{hold}"


def _spread(low: float, high: float) -> str:
    ends = list(dict.fromkeys(f"{100 * end:.2g}" if end < 0.1 else f"{100 * end:.0f}" for end in (low, high)))
    return "–".join(ends)


def _listed(names: Sequence[str], most: int = 4) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def records_by_id(run: Run) -> dict[str, Record]:
    """The last record of each case of a run."""
    return {record.id: record for record in run.records}
