"""Each case under its roof: operations per byte, the rate reached, and what bounds it.

Nothing is measured here. Stored figures of the run are used; without them, the peaks that this user has for that machine
or the vendor's figures for its GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from steelyard.analyze.stacks import PlacedRecord
from steelyard.machine import peaks
from steelyard.measuring import roofline
from steelyard.measuring.roofline import Roof
from steelyard.model.parts import TOLD
from steelyard.model.record import Record
from steelyard.report.web.schema import CaseEntry, RoofEntry
from steelyard.store.runs import Run

VIRTUAL = ("fake",)
NEAR = 0.01
RoofPeaks = dict[str, Any]
"""Of a roof: `compute` and `bandwidth`, each of which may be unknown, and their `source`, as `roofline.told_source` writes it."""


class Roofs:
    """The peaks of machines, each looked up once."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self.runs = runs
        self._known: dict[tuple[str, str, int], peaks.Peaks | None] = {}

    def entry(self, item: PlacedRecord) -> tuple[RoofEntry, dict[str, Any]] | None:
        """The `roof` of a case and the roof itself; None if the case does not declare its work, or has no peaks."""
        record = item.record
        computed, moved = record.metrics.get("compute"), record.metrics.get("bandwidth")
        found = self._held(item)
        if record.status != "ok" or found is None or not (computed or moved):
            return None
        held, share, bound = found
        device, dtype = str(record.case.get("device", "cpu")), roofline.compute_format(record) or ""
        roof = RoofEntry(
            intensity=computed.value / moved.value if computed and moved and moved.value > 0 else None,
            achieved=computed.value if computed else None,
            bandwidth=moved.value if moved else None,
            bound=bound,
            share=share,
            peak_compute=held["compute"],
            peak_bandwidth=held["bandwidth"],
            dtype=dtype,
        )
        return roof, {"device": device, "dtype": dtype, **held}

    def _held(self, item: PlacedRecord) -> tuple[RoofPeaks, float, str] | None:
        """The peaks of a case's roof, the share of it that was reached, and what bounds the case."""
        record = item.record
        kept = self._peaks(item)
        format = roofline.compute_format(record) or ""
        roof = Roof(kept.compute.get(format), kept.bandwidth, kept.source, kept.source_of(format)) if kept else None
        share, stored = roofline.share_of(record.metrics, roof) if roof else None, record.metrics.get(roofline.METRIC)
        if stored is None or not stored.value > 0:
            if not roof or not share:
                return None
            return _sides(roof, roof.sources), share.value, roofline.bound_of(record, roof, share.value) or "memory"
        source, bound = str(record.effective.get("roof_source") or "measured"), str(record.effective.get("bound") or "memory")
        if roof and share and abs(share.value / stored.value - 1) < NEAR:
            return _sides(roof, roof.sources if source == roof.source_for(record.metrics) else source), stored.value, bound
        return _derived(record, stored.value, bound, source, roof), stored.value, bound

    def _peaks(self, item: PlacedRecord) -> peaks.Peaks | None:
        case, key = item.record.case, self.runs[item.run].header.machine_key
        if case.get("backend") in VIRTUAL:
            return None
        device, threads = str(case.get("device", "cpu")), case.get("threads", 1)
        place = (key, device, threads if isinstance(threads, int) else 1)
        if place not in self._known:
            self._known[place] = peaks.load(*place)[0]
        name = item.record.environment.get("device")
        return peaks.choose(self._known[place], name if isinstance(name, str) else None)


def _sides(roof: Roof, source: str) -> RoofPeaks:
    return {"compute": roof.compute, "bandwidth": roof.bandwidth, "source": source}


def _derived(record: Record, share: float, bound: str, source: str, roof: Roof | None) -> RoofPeaks:
    """The peak that a stored share implies; the other peak is known only if it is stored or if a part of a request is bound by it."""
    computed, moved = record.metrics.get("compute"), record.metrics.get("bandwidth")
    compute = computed.value / share if bound == "compute" and computed else roof.compute if roof else None
    bandwidth = moved.value / share if bound == "memory" and moved else roof.bandwidth if roof else None
    return {"compute": compute or _ceiling(record, bandwidth), "bandwidth": bandwidth, "source": source}


def _ceiling(record: Record, bandwidth: float | None) -> float | None:
    """The arithmetic peak, from a part of a request that memory alone would allow to be faster than its roof."""
    for part in TOLD:
        computed, moved, share = (record.metrics.get(f"{part}_{kind}") for kind in ("compute", "bandwidth", roofline.METRIC))
        if bandwidth and computed and moved and share and min(moved.value, share.value) > 0:
            top = computed.value / share.value
            if top < (1 - NEAR) * bandwidth * computed.value / moved.value:
                return top
    return None


def lay(
    seen: Sequence[PlacedRecord], entries: Sequence[CaseEntry], runs: Sequence[Run], machines: dict[str, int]
) -> tuple[list[CaseEntry], dict[str, Any] | None]:
    """The cases, each with its roof if it has one, and the page's roofline, or None if there is nothing to draw."""
    roofs = Roofs(runs)
    drawn: list[dict[str, Any]] = []
    points: list[str] = []
    laid: list[CaseEntry] = []
    for item, entry in zip(seen, entries, strict=True):
        found = roofs.entry(item)
        laid.append(replace(entry, roof=found[0]) if found else entry)
        if found:
            _add(drawn, {"machine": machines[runs[item.run].header.machine_key], **found[1]})
            points += [entry.id] if found[0].intensity is not None else []
    return laid, {"roofs": drawn, "points": points} if drawn else None


def _add(drawn: list[dict[str, Any]], roof: dict[str, Any]) -> None:
    """Add a roof, or merge it with one that agrees: a case may know only the peak that bounds it, and that only approximately."""
    sides = ("compute", "bandwidth")
    for other in drawn:
        same = all(other[name] == roof[name] for name in ("machine", "device", "dtype", "source"))
        if same and all(_agree(other[side], roof[side]) for side in sides):
            other.update({side: other[side] if other[side] is not None else roof[side] for side in sides})
            return
    drawn.append(roof)


def _agree(one: float | None, other: float | None) -> bool:
    return one is None or other is None or abs(one / other - 1) < NEAR
