"""The cases of a page: everything known about each, in few bytes."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from steelyard.analyze.conditions import OTHER_LOAD, other_load, threads_of
from steelyard.analyze.history import History, differences
from steelyard.analyze.programs import BASE_PROGRAM, PROGRAM, program_changes, summary_words
from steelyard.analyze.repeat import repeat_line
from steelyard.analyze.stacks import PlacedRecord, Words, numbers_of, varying_words
from steelyard.errors import StoreError
from steelyard.machine.telemetry import UNITS
from steelyard.model.case import ENV, IDENTITY
from steelyard.model.parts import TOKENS, generates
from steelyard.model.programs import ARGV
from steelyard.model.record import MONITOR, Figure, Record
from steelyard.model.units import plain as quantity
from steelyard.model.values import value_text
from steelyard.report.cells import COMMAND, USUAL, check_words, clean, facets, flattened, lines_of, shortened
from steelyard.report.cells import reason as reason_of
from steelyard.report.monitor import monitor_rows
from steelyard.report.replay import FACTS
from steelyard.report.web.plain import short
from steelyard.report.web.runs import records_by_id
from steelyard.report.web.schema import AttachmentEntry, CaseEntry, CheckEntry, MetricEntry, ProgramEntry
from steelyard.store.runs import Run, read_run

LONGEST_VALUE, LONGEST_PARAM, LONGEST_REASON = 200, 120, 400
MOST_DIFFERENCES, MOST_READ, MOST_LINES, MOST_KERNELS = 12, 4, 40, 10
MOST_COMMON, MOST_CHANGES = 3, 60
UNSAID = ("threads", "ranks", ENV)
SILENT, ONE_THREAD = (USUAL["ranks"], USUAL[ENV]), "1 thread"
"""Words that are shown only if they are not the default; threads are always shown."""
RATE = "item_rate"
TOLD = {*FACTS, "traceback", "noise", "top_kernels", "threads", OTHER_LOAD, MONITOR, PROGRAM, BASE_PROGRAM}
LABELS = {
    "time": "time per call",
    "time_q10": "10th percentile of time",
    "time_p50": "median of single calls",
    "time_p90": "90th percentile of single calls",
    "time_p99": "99th percentile of single calls",
    "time_cold": "time with cold caches",
    "graph_time": "time replayed as a graph",
    "host_time": "host time per call",
    "build_time": "building the task",
    "first_call_time": "first call",
    "compile_time": "compiling",
    "compile_time_cold": "compiling, empty cache",
    "compile_time_warm": "compiling, warm cache",
    "trace_time": "tracing",
    "overhead": "loop overhead per call",
    "discarded": "share of disturbed blocks",
    "compute": "arithmetic rate",
    "bandwidth": "memory rate",
    "bus_bandwidth": "bus rate",
    "item_rate": "items per second",
    "ttft": "TTFT, time to the first token",
    "itl": "ITL, time between tokens",
    "tpot": "TPOT, mean time between tokens",
    "ttft_last": "TTFT of the last row",
    **{
        f"{part}_{label}": f"{name}, {share}th percentile of all"
        for part, name in (("ttft", "TTFT"), ("itl", "ITL"), ("tail", "tail"))
        for label, share in (("p50", 50), ("p90", 90), ("p99", 99))
    },
    "ttft_compute": "arithmetic rate of prefill",
    "ttft_bandwidth": "memory rate of prefill",
    "itl_compute": "arithmetic rate of decoding",
    "itl_bandwidth": "memory rate of decoding",
    "ttft_roof": "prefill, share of the roof",
    "itl_roof": "decoding, share of the roof",
    "equal_tokens": "share of tokens that are the same",
    "peak_memory": "peak memory",
    "energy": "energy per call",
    "power": "mean power",
    "efficiency": "operations per joule",
    "roof": "share of the roof",
    "predicted_time": "time predicted by the roof",
}


def labels(seen: Sequence[PlacedRecord], told: Words = facets) -> dict[str, str]:
    """A short name for each case: the workload if there are several, the parameters that vary, and the stack if it varies."""
    said = {item.record.id: told(item.record.case) for item in seen}
    by_workload: dict[str, list[str]] = {}
    for item in seen:
        by_workload.setdefault(_workload(item.record), []).append(item.record.id)
    stacks = {item.record.id: _stack(item.record.case) for item in seen}
    backends, variants = ({stack[part] for stack in stacks.values()} for part in (0, 1))
    found: dict[str, str] = {}
    for workload, ids in by_workload.items():
        varying = varying_words(said[id] for id in ids)
        for id in ids:
            words = [text for name, text in said[id].items() if name in varying]
            words += ["/".join(part for part, several in zip(stacks[id], (backends, variants), strict=True) if len(several) > 1)]
            words = [word for word in words if word]
            words = _of_program(said[id], varying) if workload == COMMAND else words
            several = len(by_workload) > 1 or not words
            found[id] = " ".join([workload, *words] if several and workload != COMMAND else words)
    return {item.record.id: found[item.record.id] for item in seen}


def _of_program(said: Mapping[str, str], varying: Collection[str]) -> list[str]:
    """A program's command line, and its other parameters that vary."""
    rest = [text for name, text in said.items() if name in varying and name != ARGV]
    return [said.get(ARGV, COMMAND), *rest]


def in_common(seen: Sequence[PlacedRecord], told: Words = facets) -> list[str]:
    """What all cases of a workload share, which labels leave out: `op/softmax · m=4096 · bf16 · torch · eval · cuda`."""
    by_workload: dict[str, list[Mapping[str, Any]]] = {}
    for item in seen:
        by_workload.setdefault(_workload(item.record), []).append(item.record.case)
    silent = SILENT if all(threads_of(item.record) for item in seen) else (*SILENT, USUAL["threads"])
    found = []
    for workload, cases in by_workload.items():
        if workload == COMMAND:
            continue
        shared = _shared({**told(case), **dict(zip(("backend", "variant"), _stack(case), strict=True))} for case in cases)
        last = [shared.pop(name, "") for name in ("backend", "variant", "mode", "device", *UNSAID)]
        unsaid = [ONE_THREAD if text == USUAL["threads"] else text for text in last[-len(UNSAID) :] if text not in silent]
        words = [*shared.values(), "/".join(filter(None, last[:2])), *last[2:4], *unsaid]
        found.append(" · ".join(shortened(word, LONGEST_PARAM) for word in (workload, *words) if word))
    return [*found[:MOST_COMMON], "…"] if len(found) > MOST_COMMON else found


def _shared(tables: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """The words that all tables have."""
    known = list(tables)
    varying = varying_words(known)
    return {name: text for name, text in known[0].items() if name not in varying}


def _workload(record: Record) -> str:
    return clean(record.case.get("workload") or record.id)


def _stack(case: Mapping[str, Any]) -> tuple[str, str]:
    return clean(case.get("backend") or ""), clean(case.get("variant") or IDENTITY)


class Environments:
    """The distinct environments of a page, each listed once."""

    def __init__(self) -> None:
        self.found: dict[tuple[tuple[str, str], ...], int] = {}

    def place(self, environment: Mapping[str, Any]) -> int:
        """The index of an environment in the list."""
        shown = ((name, short(value, LONGEST_VALUE)) for name, value in flattened(environment))
        return self.found.setdefault(tuple((name, "(long)" if value is None else str(value)) for name, value in shown), len(self.found))

    def listed(self) -> list[dict[str, str]]:
        """All environments as tables of text."""
        return [dict(items) for items in self.found]


def case_entry(item: PlacedRecord, label: str, environment: int, differs: Sequence[str] | None, command: Run) -> CaseEntry:
    """One case without its samples and roof, which are added later."""
    record, case = item.record, item.record.case
    seen, trace = monitor_rows(record.effective.get(MONITOR)), record.effective.get("traceback")
    return CaseEntry(
        id=record.id,
        label=label,
        run=item.run,
        number=item.number,
        status=record.status,
        reason=clean(shortened(reason_of(record), LONGEST_REASON)) if record.status != "ok" else "",
        workload=_workload(record),
        params={key: _param(value) for key, value in (case.get("params") or {}).items()},
        backend=_stack(case)[0],
        variant=_stack(case)[1],
        mode=case.get("mode", ""),
        device=case.get("device", ""),
        threads=threads_of(record),
        ranks=case.get("ranks", 1),
        env=case.get("env", ""),
        flags=dict(case.get("flags") or {}),
        metrics={name: numbers_of(figure) for name, figure in record.metrics.items()},
        noise=str(record.effective.get("noise") or ""),
        other_load=other_load(record),
        verification=CheckEntry(**_fields(record.verification)) if record.verification else None,
        check=shortened(check_words(record), LONGEST_REASON),
        environment=environment,
        differs=None if differs is None else _first(differs, MOST_DIFFERENCES),
        effective=effective(record),
        attachments=[AttachmentEntry(**_fields(attached)) for attached in record.attachments],
        repeat=repeat_line(record, command.header),
        machine_meanwhile=dict(seen) if seen else None,
        traceback=lines_of(trace)[-MOST_LINES:] if trace else [],
        kernels=_kernels(record.effective.get("top_kernels")),
        programs=_programs(record),
    )


def _fields(value: Any) -> dict[str, Any]:
    """The fields of a dataclass, as they are."""
    return {item.name: getattr(value, item.name) for item in fields(value)}


def _programs(record: Record) -> list[ProgramEntry]:
    """How each program of a case differs from that of its base: in words, and the counts that differ."""
    return [
        ProgramEntry(
            name=clean(name),
            words=summary_words(changes),
            changes=[(row.group, clean(row.name), row.base, row.head) for row in changes[:MOST_CHANGES]],
        )
        for name, changes in program_changes(record.effective).items()
    ]


def _first(words: Sequence[str], most: int) -> list[str]:
    """The first few items, and how many more there are."""
    return [*words[:most], *([f"and {len(words) - most} more"] if len(words) > most else [])]


def _kernels(rows: Any) -> list[dict[str, Any]]:
    """The kernels that took longest in a profile."""
    known = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    whole = [row for row in known if {"name", "where", "calls", "total", "mean"} <= set(row)]
    return [{**row, "name": shortened(str(row["name"]), LONGEST_PARAM)} for row in whole[:MOST_KERNELS]]


def _param(value: Any) -> Any:
    if isinstance(value, (bool, int, float)) or value is None:
        return value
    return shortened(value if isinstance(value, str) else value_text(value), LONGEST_PARAM)


def effective(record: Record) -> dict[str, Any]:
    """The effective config with short values; parts of a table are named `table.part`."""
    found: dict[str, Any] = {}
    for name, value in record.effective.items():
        if name in TOLD:
            continue
        parts = {f"{name}.{key}": _range(key, part) for key, part in value.items()} if isinstance(value, Mapping) else {name: value}
        for key, part in parts.items():
            shown = short(json.dumps(part, default=str) if isinstance(part, Mapping) else part, LONGEST_VALUE)
            if shown is not None and shown != "":
                found[key] = shown
    return found


def _range(name: str, value: Any) -> Any:
    """The lowest and the highest reading of a quantity, as people write them."""
    numbers = isinstance(value, list) and len(value) == 2 and all(isinstance(end, (int, float)) for end in value)
    return " to ".join(quantity(end, UNITS[name]) for end in value) if numbers and name in UNITS else value


def metric_words(seen: Sequence[PlacedRecord]) -> dict[str, MetricEntry]:
    """Unit, direction and name of every metric that some case has, the time first."""
    found: dict[str, Figure] = {}
    for item in seen:
        for name, figure in item.record.metrics.items():
            found.setdefault(name, figure)
    named = sorted(found, key=lambda name: name != "time")
    words = {name: MetricEntry(found[name].unit, found[name].better, LABELS.get(name, clean(name.replace("_", " ")))) for name in named}
    if RATE in words and all(generates(item.record.metrics) for item in seen if RATE in item.record.metrics):
        words[RATE] = replace(words[RATE], unit=TOKENS, label="tokens per second")
    return words


class EarlierRecords:
    """The record of each case in the previous run, from the given runs or else from their store."""

    def __init__(self, runs: Sequence[Run], series: Mapping[str, History]) -> None:
        self.runs, self.series = runs, series
        self._known = {run.id: records_by_id(run) for run in runs}
        self._read = 0

    def differs(self, item: PlacedRecord) -> list[str] | None:
        """What differs from the previous run; None if there is no previous run or it was not read."""
        old = self._record(item)
        return list(differences(old, item.record)) if old else None

    def _record(self, item: PlacedRecord) -> Record | None:
        own, series = self.runs[item.run], self.series.get(item.record.id)
        ids = [point.run for point in series.points] if series else []
        before = ids[: ids.index(own.id)] if own.id in ids else []
        if not before:
            older = [run.id for run in self.runs[: item.run] if item.record.id in self._known[run.id]]
            before = older[-1:]
        return self._records(before[-1], own).get(item.record.id) if before else None

    def _records(self, id: str, near: Run) -> dict[str, Record]:
        """The records of a run in the same store; at most MOST_READ runs are read."""
        if id not in self._known and self._read < MOST_READ:
            self._read += 1
            folder = next((path for path in near.path.parent.glob(f"*-{id}") if path.is_dir()), None) if id.isalnum() else None
            try:
                self._known[id] = records_by_id(read_run(folder)) if folder else {}
            except StoreError:
                self._known[id] = {}
        return self._known.get(id, {})
