"""One run with every kind of verdict, for tests that render it everywhere and compare."""

from __future__ import annotations

from steelyard.model.pair import Arm, Pair
from steelyard.model.record import Figure, Record, Verification
from steelyard.store.runs import Header, Run, Store, read_run
from tests.report.made import record

VERDICTS = {
    "slow": (1.04, 1.031, 1.049, "slower", "4.0 % slower [3.1, 4.9]"),
    "quick": (0.969, 0.96, 0.978, "faster", "3.1 % faster [2.2, 4.0]"),
    "twice": (1 / 2.3, 1 / 2.39, 1 / 2.21, "faster", "2.30x faster [2.21, 2.39]"),
    "still": (1.002, 0.996, 1.009, "same", "within 2 % [-0.4, 0.9]"),
    "rather": (1.036, 1.017, 1.056, "slower", "slower, size unclear [1.7, 5.6]"),
    "vague": (1.01, 0.989, 1.03, "unclear", "unclear [-1.1, 3.0]"),
}
"""Ratio, both ends, the verdict, and the words that every rendering has for it (docs/explanation/verdicts.md)."""
TIMED_ALONE = 1.07
"""By how much the heads' own times belie their pairs: a rendering that divides those finds other effects."""
SECONDS = 1e-3


def case_id(name: str, variant: str) -> str:
    return f"op/{name}[n=64]@torch/{variant}:eval"


def one_run(store: Store) -> Run:
    """Saved as the engine saves it: both arms of each pair as records, and the pair."""
    with store.create(Header("onerun", created="2026-01-02T03:00:00Z", machine_key="m" * 12)) as writer:
        for name, (ratio, low, high, *_) in VERDICTS.items():
            base, head = (_record(name, variant, factor) for variant, factor in (("eager", 1.0), ("fused", ratio * TIMED_ALONE)))
            writer.append(base)
            writer.append(head)
            writer.append_pair(Pair(Arm(base.id), Arm(head.id), ratio, low, high, 0.99, 8, 64, 1, (16, 16)))
        writer.seal()
    return read_run(writer.path)


def _record(name: str, variant: str, factor: float) -> Record:
    seconds = SECONDS * factor
    time = Figure(seconds, "s", "lower", 0.998 * seconds, 1.002 * seconds, 40)
    return record(case_id(name, variant), {"time": time}, device="cpu", verification=Verification("passed", "eager"))
