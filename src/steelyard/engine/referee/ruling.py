"""Makes the ruling on a candidate from the evidence: its time relative to the reference's, charges, and findings."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from steelyard.engine.referee.charges import amortised, by_time, charges
from steelyard.engine.referee.court import Court
from steelyard.engine.referee.evidence import Block, Evidence
from steelyard.engine.referee.gains import CLAIMED, shown_alone
from steelyard.machine.peaks import datasheet
from steelyard.measuring.evidence import Spread
from steelyard.measuring.paired import Rounds
from steelyard.measuring.stats import f_tail, t_cdf, t_quantile
from steelyard.model.judging import Ruling, Submission, Trick
from steelyard.model.pair import ALPHA, MOST_DISCARDED, Arm, Pair, weigh
from steelyard.model.record import Figure, Status, Verification
from steelyard.model.units import plain

BETWEEN_PROCESSES, COMMON = {"cpu": 0.025}, {"cpu": 0.02}
"""SD of the log-ratio between pairs of processes of the same code, and of what all pairs of a ruling are off by in the same direction:
both by `benchmarks/judging.py --twins`."""
ON_DEVICE = 0.005
"""SD of the log-ratio between pairs of processes on a device, by `benchmarks/powercurve`."""
WORTH = 8.0
"""Degrees of freedom of what is known of pairs."""
UNLIKELY = 0.05
"""Pairs of processes that differ more than the known spread explains with this chance have a spread of their own."""
CUT = 0.15
"""A block is disturbed if its process was without a CPU for more than this share of the wall time."""
UNCONFIRMED = "calls one by one do not confirm the gain that blocks of calls show"
ALIKE = 0.9
"""A candidate with the reference's own bits and more than this share of its time is probably the reference."""
FASTEST = {"cpu": 1e12}
ON_CHIP = 4.0
"""A device's cache is read faster than its memory, but at most by this factor."""


def rule(court: Court, submission: Submission, seen: Evidence) -> Ruling:
    """Return the ruling on a candidate from the evidence."""
    names = court.problem.label or court.problem.file, submission.label or submission.file
    tricks = [*court.opening.tricks, *seen.tricks]
    if seen.wrong is not None:
        return Ruling(*names, "wrong", _why(seen), verification(seen), tricks=tuple(tricks), facts=facts(court, seen))
    if not seen.blocks:
        return Ruling(*names, "wrong", _why(seen), verification(seen), tricks=tuple(tricks), facts=facts(court, seen))
    pair = weighed(court, seen, names)
    delta = weigh(pair, court.options.margin)
    times = [statistics.median(seen.per_call(arm)) for arm in (0, 1)]
    tricks += charges(seen.blocks, court.problem.contract.threads, court.options.device)
    timed = [*by_time(seen.blocks), *amortised(seen, court.options.device), *impossible(court, seen.surely(1))]
    tricks += [] if delta.disturbed or busy(seen, court.options.device) else timed
    if all(item.get("identical") for item in seen.checked) and pair.ratio > ALIKE:
        tricks.append(Trick("fallback", "bit-identical to the reference, and not faster: probably the reference itself", voids=False))
    if (trivial := next((trick for trick in court.opening.tricks if trick.kind == "trivial"), None)) and delta.verdict == "faster":
        delta = replace(delta, verdict="unclear", reason=f"the problem cannot distinguish real work from none: {trivial.words}")
    device = court.options.device
    if delta.verdict == "faster" and device != "cpu" and amortised(seen, "cpu"):
        delta = replace(delta, verdict="unclear", reason=UNCONFIRMED)
    if delta.verdict == "faster" and times[0] - times[1] > CLAIMED * times[0] and not shown_alone(seen.serial):
        delta = replace(delta, verdict="unclear", reason=UNCONFIRMED)
    void = next((trick for trick in tricks if trick.voids), None)
    status: Status = "wrong" if void else "ok"
    if void:
        delta = replace(delta, verdict="failed", reason=void.words)
    figures = {"time": pair.head.time, "reference_time": pair.base.time}
    return Ruling(
        *names, status, void.words if void else "", verification(seen), delta, pair, tuple(tricks), share_of_roof(court, times[1]),
        {name: figure for name, figure in figures.items() if figure is not None}, facts(court, seen),
    )  # fmt: skip


def _why(seen: Evidence) -> str:
    if seen.wrong is not None:
        return str(seen.wrong["message"])
    return seen.tricks[-1].words if seen.tricks else "it was not timed"


def verification(seen: Evidence) -> Verification:
    """Return the result over all checked answers: the one that is wrong, or the worst errors if all are right."""
    found = seen.wrong or (seen.checked[-1] if seen.checked else {})
    figures: dict[str, float] = {}
    for item in seen.checked:
        for name, value in (item.get("figures") or {}).items():
            figures[name] = max(figures.get(name, 0.0), value if isinstance(value, (int, float)) else math.inf)
    status: Literal["passed", "failed", "none"] = "failed" if seen.wrong is not None else "passed" if seen.checked else "none"
    identical = status == "passed" and all(bool(item.get("identical")) for item in seen.checked)
    message = str(found.get("message") or "") if seen.wrong is not None else ""
    code = str(found.get("code") or "") if seen.wrong is not None else ""
    return Verification(status, str(found.get("against") or ""), message, identical=identical, figures=figures, code=code)


def facts(court: Court, seen: Evidence) -> dict[str, Any]:
    """Return facts about how the ruling was made."""
    timed = [block for block in seen.blocks if block.arm == 1]
    audited = [block for block in timed if block.show is not None]
    return {
        **seen.facts, "draws": court.drawn, "answers_checked": len(seen.checked), "blocks": len(timed), "blocks_audited": len(audited),
        "calls_timed": sum(block.calls for block in timed), "device": court.options.device, "threads": court.options.threads,
        "process_pairs": len({block.pair for block in timed}),
    }  # fmt: skip


def weighed(court: Court, seen: Evidence, names: tuple[str, str]) -> Pair:
    """Return the pair of the blocks, with an interval that includes the differences between processes of the same code."""
    rounds = as_rounds(seen)
    clock = rounds.clock([0, 1])
    centres = rounds.centres(0, 1, clock) or replace(rounds, disturbed=np.zeros_like(rounds.disturbed)).centres(0, 1, clock)
    values = np.asarray(list(centres.values()))
    ratios, _ = rounds.ratios(0, 1, clock)
    within = float(np.median(np.abs(ratios - np.median(ratios)))) * 1.4826 / math.sqrt(max(1, ratios.size / max(1, len(values))))
    known = Spread(math.hypot(BETWEEN_PROCESSES.get(court.options.device, ON_DEVICE), 1.25 * within), WORTH)
    spread = _spread(values, known) if len(values) > 1 else known
    error = math.hypot(spread.sd / math.sqrt(len(values)), COMMON.get(court.options.device, 0.0))
    half, centre = t_quantile(1 - ALPHA / 2, spread.freedom) * error, float(values.mean())
    arms = [Arm(name, time=rounds.time(number, clock)) for number, name in enumerate(names)]
    lost = rounds.discarded((0, 1)) if clock == "wall" and len(centres) else [0.0, 0.0]
    return Pair(
        arms[0], arms[1], math.exp(centre), math.exp(centre - half), math.exp(centre + half), 1 - ALPHA, len(values), len(rounds.seconds),
        0, (1, 1), [float(value) for value in values], {"base": lost[0], "head": lost[1]}, schedule="the judge's blocks",
        processes=len(values), clock=f"the judge's, {clock}", p=2 * t_cdf(-abs(centre) / max(error, 1e-12), spread.freedom),
        measured_s=sum(block.took for block in seen.blocks), margin=court.options.margin,
    )  # fmt: skip


def _spread(values: np.ndarray[Any, Any], known: Spread) -> Spread:
    """Return the spread of the pairs: pooled with the known one, or their own if chance does not explain that it is wider.

    Three pairs alone say little about their spread, so an interval by that is several times as wide.
    """
    freedom, own = len(values) - 1.0, float(values.var(ddof=1))
    if f_tail(own / known.sd**2, freedom, known.freedom) < UNLIKELY:
        return Spread(math.sqrt(own), freedom)
    total = freedom + known.freedom
    pooled = math.sqrt((freedom * own + known.freedom * known.sd**2) / total)
    return Spread(max(pooled, known.sd), total)


def as_rounds(seen: Evidence) -> Rounds:
    """Return the blocks as rounds of two arms, in seconds of one call; each pair of processes is a group."""
    grouped: dict[tuple[int, int], list[Block]] = {}
    for block in seen.blocks:
        grouped.setdefault((block.pair, block.round), []).append(block)
    whole = [blocks for blocks in grouped.values() if len(blocks) == 4]
    shape = (len(whole), 4)

    def column(value: Any) -> Any:
        return np.asarray([[value(block) for block in blocks] for blocks in whole]).reshape(shape)

    overhead = seen.overhead
    cut = column(lambda block: block.took - block.cpu > CUT * block.took + overhead)
    return Rounds(
        column(lambda block: max(block.took - overhead, 1e-9) / block.calls), column(lambda block: max(block.cpu, 1e-9) / block.calls),
        cut.astype(bool), column(lambda block: block.arm).astype(np.int32),
        np.asarray([blocks[0].pair for blocks in whole], np.int32), (1, 1),
    )  # fmt: skip


def busy(seen: Evidence, device: str) -> bool:
    """Whether other programs on the CPU disturbed so many blocks that times cannot be evidence against a candidate."""
    if device != "cpu":
        return False
    rounds = as_rounds(seen)
    return any(float(rounds.disturbed[rounds.arm == arm].mean()) > MOST_DISCARDED for arm in (0, 1))


def voided(found: Ruling, trick: Trick) -> Ruling:
    """Return a ruling that a trick voids, with its verdict."""
    delta = None if found.delta is None else replace(found.delta, verdict="failed", reason=trick.words)
    return replace(found, status="wrong", reason=trick.words, delta=delta, tricks=(*found.tricks, trick))


def unsettled(found: Ruling, reason: str) -> Ruling:
    """Return a ruling whose times are not reliable, with an unclear verdict."""
    delta = None if found.delta is None else replace(found.delta, verdict="unclear", reason=reason)
    return replace(found, delta=delta)


def bandwidth(court: Court) -> float | None:
    """Return the device's memory bandwidth in bytes per second by its datasheet; None if there is none."""
    name = court.opening.device_name
    found = datasheet(name) if name else None
    return found.bandwidth if found else None


def share_of_roof(court: Court, seconds: float) -> float | None:
    """Return the time that moving the least bytes needs, as a share of the candidate's time."""
    rate = bandwidth(court)
    return court.opening.least_bytes / rate / seconds if rate and seconds > 0 and court.opening.least_bytes else None


def impossible(court: Court, seconds: float) -> list[Trick]:
    """Return a finding if the time is too short to move the bytes that must be moved."""
    rate = bandwidth(court)
    fastest = FASTEST.get(court.options.device, (rate or math.inf) * ON_CHIP)
    least = court.opening.least_bytes / fastest
    if seconds >= least or not math.isfinite(least):
        return []
    moved = plain(court.opening.least_bytes, "B")
    return [Trick("impossible", f"{plain(seconds, 's')} for {moved} that must be moved, which takes at least {plain(least, 's')}")]


def ended(court: Court, submission: Submission, status: Status, reason: str, tricks: Sequence[Trick] = ()) -> Ruling:
    """Return the ruling on a candidate whose process ended, or that could not be loaded."""
    names = court.problem.label or court.problem.file, submission.label or submission.file
    return Ruling(*names, status, reason, tricks=(*court.opening.tricks, *tricks), figures=dict[str, Figure]())
