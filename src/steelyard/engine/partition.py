"""One part of a plan: all parts together measure every case once, and each takes about as long as any other part.

Every part must use the same past costs, or cases would be lost between parts. Runs that are parts themselves are therefore
left out, unless a time is given: then all runs that began before it count, for every part.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from steelyard.engine.plan import Dropped, Job, Plan
from steelyard.errors import NothingMeasured, UsageError
from steelyard.model.case import Case
from steelyard.model.experiment import Rule
from steelyard.model.record import Record
from steelyard.store.index import Index
from steelyard.store.runs import Run, Store, moment, read_run

SETTING = "partition"
MOST_PARTS = 10_000
_PART = re.compile(r"(\d{1,5})/(\d{1,5})(?:@(.+))?")


@dataclass(frozen=True)
class Part:
    """Part `number` of `of`; past costs are of runs that began before `before`, or if that is empty of runs that are not parts."""

    number: int
    of: int
    before: str = ""

    def __str__(self) -> str:
        return f"{self.number}/{self.of}{f'@{self.before}' if self.before else ''}"


def parse_part(text: str) -> Part:
    """Read `2/5` or `2/5@2026-01-31`."""
    found = _PART.fullmatch(text)
    if not found or not 1 <= int(found[1]) <= int(found[2]) <= MOST_PARTS:
        raise UsageError(f"not a part: {text!r}", do="write it like --partition 2/5: the second of five")
    try:
        if found[3]:
            datetime.fromisoformat(found[3])
    except ValueError:
        raise UsageError(f"not a moment: {found[3]!r}", do="write it like --partition 2/5@2026-01-31T04:00") from None
    return Part(int(found[1]), int(found[2]), found[3] or "")


def take(plan: Plan, part: Part, store: Store) -> Plan:
    """Return the plan of one part: cases that are compared stay together, and denied cases are shared out too."""
    groups = together(plan)
    known = past_costs([job.case.id for job in plan.jobs], store, part.before)
    usual = statistics.median(known.values()) if known else 1.0
    places = share_out([math.fsum(known.get(job.case.id, usual) for job in jobs) for jobs in groups], part.of)
    where = {job.case: place for jobs, place in zip(groups, places, strict=True) for job in jobs}
    denied = [item for item in plan.dropped if item.kind == "deny"]
    where |= {item.case: 1 + turn % part.of for turn, item in enumerate(denied)}
    if part.number not in where.values():
        raise NothingMeasured(f"part {part} is empty", why=f"{len(groups)} cases or comparisons are not enough for {part.of} parts")
    elsewhere = [case for case, place in where.items() if place != part.number]
    ours = tuple(item for item in plan.dropped if where.get(item.case, part.number) == part.number)
    others = tuple(Dropped(case, Rule({"--partition": str(part)}, f"in part {where[case]}"), "partition") for case in elsewhere)
    jobs = tuple(job for job in plan.jobs if where[job.case] == part.number)
    pairs = tuple(job for job in plan.pairs if where[job.case] == part.number)
    rows = tuple(row for row in plan.rows if all(where[case] == part.number for case in row.cases))
    return replace(plan, jobs=jobs, dropped=(*ours, *others), part=str(part), pairs=pairs, rows=rows)


def together(plan: Plan) -> list[list[Job]]:
    """Return the jobs of a plan in groups that must stay together: cases with one base, and those of listed pairs and rows."""
    groups: dict[Case, list[Job]] = {}
    leads = _leads(plan)
    for job in plan.jobs:
        groups.setdefault(leads.get(job.case, job.vs or job.case), []).append(job)
    return list(groups.values())


def _leads(plan: Plan) -> dict[Case, Case]:
    """Return for every case of a listed pair or a row the case that represents its group."""
    together = [*({job.case, job.vs or job.case} for job in plan.pairs), *(set(row.cases) for row in plan.rows)]
    leads: dict[Case, Case] = {}
    for cases in together:
        known = {leads[case] for case in cases if case in leads}
        lead = min(known or cases, key=lambda case: case.id)
        leads |= {case: lead for case, old in leads.items() if old in known} | dict.fromkeys(cases, lead)
    return leads


def share_out(costs: Sequence[float], parts: int) -> list[int]:
    """Return the part, counted from 1, of each cost: the largest first, each to the part with the least so far."""
    loads, places = [0.0] * parts, [0] * len(costs)
    for index in sorted(range(len(costs)), key=lambda index: (-costs[index], index)):
        least = min(range(parts), key=lambda part: (loads[part], part))
        loads[least] += costs[index]
        places[index] = least + 1
    return places


def past_costs(cases: Sequence[str], store: Store, before: str = "") -> dict[str, float]:
    """Return the seconds each case took in its latest run that counts."""
    runs: dict[str, Run] = {}
    found = {}
    with Index(store) as index:
        index.refresh()
        for case in cases:
            for entry in reversed(index.series(case)):
                if entry.folder not in runs:
                    runs[entry.folder] = read_run(store.folder / entry.folder)
                run = runs[entry.folder]
                counts = moment(entry.created) < moment(before) if before else not run.header.settings.get(SETTING)
                if counts and (cost := _cost(run.records[entry.number - 1])) > 0:
                    found[case] = cost
                    break
    return found


def _cost(record: Record) -> float:
    """Return the seconds that a case took; its time limit if it timed out."""
    allowed = record.requested.get("timeout", 0.0) if record.status == "timeout" else 0.0
    return record.wall_s or (float(allowed) if isinstance(allowed, (int, float)) else 0.0)
