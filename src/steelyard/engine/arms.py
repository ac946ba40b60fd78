"""Both arms of a comparison as separate jobs, for passes that handle one after the other, and the result of such a pass."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from steelyard.engine.messages import Found, Sources
from steelyard.engine.plan import Job, Plan
from steelyard.engine.pool import places_of


@dataclass(frozen=True)
class Reply:
    """The result of a pass; `trouble` is why there is none, which never changes the case's status."""

    found: Found = field(default_factory=Found)
    trouble: str = ""


@dataclass(frozen=True)
class ArmJob:
    """One side of a comparison: what it is called, the job that builds it, and what its worker loads."""

    who: str
    job: Job
    sources: Sources


def arms_of(job: Job, plan: Plan) -> tuple[ArmJob, ArmJob]:
    """Return the base and the head of a job that has both, in this order."""
    assert job.vs is not None
    own = plan.sources_of(job)
    head = ArmJob("the head", job, own)
    if job.side is None:
        return ArmJob("the base", replace(job, case=job.vs), own), head
    theirs = replace(own, files=tuple(job.side.files), paths=job.side.place.paths)
    base = replace(job, case=job.vs, place=places_of(job, job.side)[0], unit=f"{job.unit} base")
    return ArmJob(f"the base ({job.side.label})", base, theirs), head
