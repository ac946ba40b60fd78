"""Compares what each case reached with the machine's highest rates, as the doctor measured them."""

from __future__ import annotations

from collections.abc import Mapping

from steelyard import registry
from steelyard.engine.plan import Plan
from steelyard.machine import peaks
from steelyard.measuring import roofline
from steelyard.model.record import Record

Roofs = Mapping[tuple[str, int], peaks.Peaks]


def load(ready: Plan, machine_key: str, warnings: list[str]) -> Roofs:
    """The peaks measured on this machine for each device and thread count of a plan; not part of a fingerprint."""
    found = {}
    for device, threads in dict.fromkeys((job.case.device, job.case.threads) for job in ready.jobs):
        kept, warning = peaks.load(machine_key, device, threads)
        if kept:
            found[device, threads] = kept
        if warning:
            warnings.append(warning)
    return found


def under_roof(record: Record, roofs: Roofs) -> Record:
    """A record with its share of the roof, the time that the roof predicts and its bound; time on a virtual clock has no roof."""
    case = record.case
    found = peaks.choose(roofs.get((case["device"], case["threads"])), record.environment.get("device"))
    if found is None or registry.about_backend(case["backend"]).virtual:
        return record
    format = roofline.compute_format(record) or ""
    return roofline.with_roof(record, roofline.Roof(found.compute.get(format), found.bandwidth, found.source, found.source_of(format)))
