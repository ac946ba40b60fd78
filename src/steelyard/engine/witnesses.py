"""Gets answers that others are compared with and that no record has: before anything is timed, each in its own environment."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from steelyard import registry
from steelyard.engine import envs
from steelyard.engine.place import Place
from steelyard.engine.plan import Job, Plan, at_home
from steelyard.errors import Unsupported, told
from steelyard.model.case import Case

if TYPE_CHECKING:
    from steelyard.engine.crew import Crew


def ask(jobs: Iterable[Job], plan: Plan, crew: Crew, note: Callable[[str], None]) -> dict[str, str]:
    """Run every witness that these jobs need once; return, by case, why there is no answer to compare it with."""
    built_in, found, reasons = registry.built_ins().workloads, dict[Case, str](), dict[str, str]()
    for job in jobs:
        workload = built_in.get(job.case.workload)
        if workload is None or workload.witness is None:
            continue
        try:
            case = workload.witness(job.case, plan.settings)
        except Unsupported as error:
            reasons[job.case.id] = told(error)
            continue
        if case is not None and case not in found:
            note(f"running {case.backend} first, as its answer is the reference: {case}")
            found[case] = _asked(case, plan, crew)
        if case is not None and found[case]:
            reasons[job.case.id] = f"{case.backend} gave no answer to compare with: {found[case]}"
    return reasons


def _asked(case: Case, plan: Plan, crew: Crew) -> str:
    """Why a case gave no answer; empty if it did, and has kept its answer."""
    place = at_home(case, envs.place_for(case.backend, Place()))
    job = Job(case, None, place, case.id, fresh=True)
    with tempfile.TemporaryDirectory(prefix="steelyard-", ignore_cleanup_errors=True) as folder:
        reply = crew.ask(job, plan, "answer", Path(folder), alone=True)
    return "; ".join(map(str.strip, reply.trouble.splitlines())) or str(reply.found.facts.get("answer", ""))
