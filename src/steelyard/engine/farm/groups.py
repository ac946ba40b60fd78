"""What must stay on one machine: cases that are compared, with their base, and cases set to share a worker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from steelyard.engine import partition
from steelyard.engine.plan import Job, Plan
from steelyard.model.experiment import ResultRow

MOST_SMALL = 20
"""Most cases with a fixed number of calls in one group; they share a worker, so waiting until it has settled happens once for all."""


@dataclass(frozen=True)
class JobGroup:
    """Jobs for one machine, in the plan's order, with the listed pairs and the rows that are made of their cases.

    `number` is its place among the groups of the whole plan, so that a continued run has the same numbers.
    """

    number: int
    jobs: tuple[Job, ...]
    pairs: tuple[Job, ...] = ()
    rows: tuple[ResultRow, ...] = ()

    @property
    def compared(self) -> bool:
        """Whether any of its cases are compared."""
        return bool(self.pairs) or any(job.vs for job in self.jobs)

    @property
    def named(self) -> str:
        """Its name in messages: the first case, and how many more."""
        more = f" and {len(self.jobs) - 1} more" if len(self.jobs) > 1 else ""
        return f"{self.jobs[0].case.id}{more}"


def groups_of(plan: Plan) -> list[JobGroup]:
    """Divide a plan into groups: every job is in exactly one."""
    found = []
    for number, jobs in enumerate(_parted(plan, partition.together(plan))):
        cases = {job.case for job in jobs}
        pairs = tuple(job for job in plan.pairs if job.case in cases)
        rows = tuple(row for row in plan.rows if cases.issuperset(row.cases))
        found.append(JobGroup(number, tuple(jobs), pairs, rows))
    return found


def _parted(plan: Plan, together: Sequence[Sequence[Job]]) -> Iterator[list[Job]]:
    """Yield the groups, with single cases joined that may share a worker or have a fixed number of calls."""
    alone = [jobs[0] for jobs in together if len(jobs) == 1]
    small = bool(plan.settings.fixed) and not plan.comparisons
    if not small and plan.settings.isolate != "workload":
        yield from map(list, together)
        return
    yield from (list(jobs) for jobs in together if len(jobs) > 1)
    shared: dict[tuple[object, ...], list[Job]] = {}
    for job in alone:
        shared.setdefault((job.unit, job.place), []).append(job)
    for jobs in shared.values():
        most = len(jobs) if plan.settings.isolate == "workload" else MOST_SMALL
        yield from (jobs[begin : begin + most] for begin in range(0, len(jobs), most))
