"""Lock-step comparisons go on until their margin is settled: what their pairs of processes find is planted."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from steelyard.engine import lockstep
from steelyard.engine.lockstep import Bout
from steelyard.engine.pool import NoComparison, Pool
from steelyard.model.pair import Pair, weigh
from tests.engine.drive import arm_figures
from tests.engine.test_lockstep import prepare


class PlantedPool(Pool):
    """A pool that starts no process; what its pairs would find is planted."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[bool] = []

    def stable(self, job: Any, side: Any, tell: Any, *, anew: bool = False) -> Any:
        """Eight pairs each time, and whether they have new layouts."""
        self.opened.append(anew)
        return SimpleNamespace(shifts=[None] * 8)


def planted(seed: str, ratio: float) -> Bout:
    """What a pair of processes gives in which the head takes so many times as long."""
    figures = arm_figures((1, 1), quads=8)
    arrays = [
        {"took": np.full(16, took, "<i8").tobytes(), "busy": np.zeros(16, "<i8").tobytes(), "hit": np.zeros(16, "|u1").tobytes()}
        for took in (1_000_000, round(1_000_000 * ratio))
    ]
    return Bout(seed, (figures, figures), (arrays[0], arrays[1]))


class TestSettling:
    """Where the budget leaves the margin open, further pairs of processes follow."""

    def weigh(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ratio: float, *, fails_at: int = 10**9, **settings: Any
    ) -> tuple[Pair, PlantedPool, list[tuple[str, float | None]]]:
        """A comparison whose pairs find the ratio with noise of 1.4 %, until one number at which they fail."""
        plan = prepare(monkeypatch, tmp_path, "path:.", "fake/work", settings={"budget": 0.1, **settings})
        noise, pool, said = np.random.default_rng(40).normal(0, 0.014, 40), PlantedPool(), []

        def bout(pool: Any, stable: Any, number: int, match: lockstep.Match, order: Any) -> Bout:
            if len(match.bouts) == fails_at:
                raise NoComparison("the head crashed")
            return planted(order.seed, ratio * np.exp(noise[len(match.bouts)]))

        monkeypatch.setattr(lockstep, "_bout", bout)
        pair, _ = lockstep.weigh(pool, plan.jobs[0], plan, lambda *phase: said.append(phase))
        return pair, pool, said

    def test_a_planted_4_percent_that_the_budget_leaves_open_is_settled(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        short, pool, _ = self.weigh(tmp_path, monkeypatch, 1.04, settle=0)
        assert (short.stopped_by, short.looks, len(short.centres), pool.opened) == ("budget", 1, 8, [False])
        assert 1 < short.low < 1.02 < short.high
        long, pool, said = self.weigh(tmp_path, monkeypatch, 1.04)
        assert (long.stopped_by, long.looks, len(long.centres)) == ("settled", 2, 16)
        assert weigh(long).material
        assert pool.opened == [False, True], "further pairs have layouts of their own"
        assert ("still measuring, not settled yet", 0.0) in said
        assert long.measured_s == pytest.approx(2 * short.measured_s, rel=0.01)

    def test_what_lies_on_the_margin_ends_when_the_budget_for_it_is_spent(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        pair, _, _ = self.weigh(tmp_path, monkeypatch, 1.02)
        assert (pair.stopped_by, pair.looks, len(pair.centres), pair.processes) == ("budget", 4, 40, 80)
        assert pair.low < 1.02 < pair.high

    def test_the_margin_that_was_asked_for_is_the_one_that_is_settled(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        pair, _, _ = self.weigh(tmp_path, monkeypatch, 1.04, margin=0.1)
        assert (pair.stopped_by, pair.looks, pair.margin) == ("budget", 1, 0.1)
        assert weigh(pair).verdict == "same"

    def test_what_goes_wrong_later_costs_nothing_of_what_was_found(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        pair, _, _ = self.weigh(tmp_path, monkeypatch, 1.04, fails_at=12)
        assert (pair.stopped_by, pair.looks, len(pair.centres), pair.processes) == ("budget", 1, 8, 16)
        assert pair.notes == ["it was not settled within its budget, and could not continue: the head crashed"]
        with pytest.raises(NoComparison, match="crashed"):
            self.weigh(tmp_path, monkeypatch, 1.04, fails_at=3)

    def test_it_ends_before_the_timeout_would_end_it(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        pair, _, _ = self.weigh(tmp_path, monkeypatch, 1.04, timeout=1e-6)
        assert (pair.stopped_by, pair.looks) == ("timeout", 1)
