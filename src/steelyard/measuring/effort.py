"""Decides how a comparison spends its budget on rounds and rebuilds, and when it stops."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from steelyard.measuring.evidence import Wager
from steelyard.measuring.paired import WALL, Finding, Rounds
from steelyard.measuring.settling import BUDGET, PATIENCE, TIMEOUT, Looks, ending, goes_on, settled
from steelyard.model.experiment import Settings
from steelyard.model.pair import ALPHA

WARM_SHARE, MOST_ROUNDS = 0.375, 4000
PILOT, FEWEST_REBUILDS, MOST_REBUILDS = 8, 8, 256
FEWEST_SLOW, FEWEST_FRESH = 4, 6
SAME_SHARE, CLOSE = 0.25, 0.1
CALM = 0.2
EVIDENCE, AGAIN = "evidence", 1 / 8
LEAST_MEASURING = 1 / 3


class Effort:
    """Decides how many rounds a rebuild gets, and when to stop.

    After a pilot the rounds per rebuild follow from the cost of a rebuild and a round and from how much each varies: the
    interval shrinks fastest where a second removes the most variance. A comparison ends when evidence settles every head, or at a
    look at the data: when the budget is spent, and then at later looks as long as going on is worthwhile.
    """

    def __init__(self, settings: Settings, suite: int, usual: int, heads: int) -> None:
        self.settings, self.margin, self.usual = settings, settings.margin, usual
        self.least = suite / (ALPHA / 2)
        self.looks, self.look, self.first, self._doubted = Looks(settings.settle), 0, settings.budget, 0
        self.rounds, self.warm, self.one, self.fresh, self.heavy = usual, round(WARM_SHARE * usual), 0.0, False, False
        edge = math.log1p(settings.margin)
        self.wagers = [Wager((0.0, edge, -edge)) for _ in range(heads)]
        self.seen: list[list[float]] = [[] for _ in range(heads)]
        self.disturbed: list[float] = []
        self.costs: list[tuple[float, float]] = []
        self.centres: list[float] = []
        self.scatter: list[float] = []

    def settle(self, one: float, building: float = 0.0, *, fresh: bool, heavy: bool = False) -> None:
        """Set the first number of rounds from the cost of a round and a rebuild. `fresh` tasks are new at every call: no rounds to repeat.

        `heavy` tasks have their weights moved instead of being built: the first call after that is never timed, because it fills caches
        and records device graphs again.
        """
        self.one, self.fresh, self.heavy = one, fresh, heavy
        if fresh:
            self.rounds, self.warm = 1, 0
            return
        share = self.settings.budget / PILOT
        share = max(share - building, LEAST_MEASURING * share)
        self.rounds = max(1, min(self.usual, int(share / one))) if one > 0 else self.usual
        self.warm = 1 if heavy else self.warm if one * 4 < share else int(self.rounds > 1)

    def learn(self, last: Rounds, building: float, measuring: float) -> None:
        """Take one more rebuild into account, with the seconds that building and measuring it took."""
        self.costs.append((building, measuring / max(1, self.rounds)))
        self.disturbed.append(float(last.disturbed.mean()))
        for head, (wager, seen) in enumerate(zip(self.wagers, self.seen, strict=True), 1):
            for row in last.rows(head, WALL)[0]:
                wager.add(row)
                seen.append(float(row[0]))
        ratios, clean = last.ratios(0, 1, WALL)
        kept = ratios[clean]
        if len(kept) >= 4:
            self.centres.append(float(np.median(kept)))
            self.scatter.append(1.5 * float(np.median(np.abs(kept - np.median(kept)))))
        if PILOT <= len(self.costs) <= 4 * PILOT and not self.fresh:
            self.rounds = self._best_rounds()

    def _best_rounds(self) -> int:
        """Return the rounds per rebuild by Kalibera and Jones: the square root of the ratio of costs times the ratio of variances."""
        if len(self.centres) < 4:
            return self.rounds
        rebuild, one = (float(np.median([cost[index] for cost in self.costs])) for index in (0, 1))
        within = (math.pi / 2) * float(np.median(self.scatter)) ** 2 / 2
        between = max(float(np.var(self.centres, ddof=1)) - within / self.rounds, 0.05 * within / self.rounds)
        best = math.sqrt(rebuild / max(one, 1e-9) * within / max(between, 1e-18))
        affordable = int(self.settings.budget / FEWEST_REBUILDS / max(one, 1e-9))
        filling = int((self.settings.budget / MOST_REBUILDS - rebuild) / max(one, 1e-9))
        return max(1, min(MOST_ROUNDS, max(self.usual, round(best), filling), max(1, affordable)))

    def verdict(self, done: int, spent: float) -> str:
        """Return why to look now, or empty: evidence decides every head, the budget for this look is spent, or there are enough rebuilds.

        Evidence is gathered from undisturbed wall time, so it decides only if that is what will be judged.
        """
        calm, times = float(np.mean(self.disturbed)) < CALM, self.looks.at[self.look]
        decided = (self._decided(wager, seen, spent) for wager, seen in zip(self.wagers, self.seen, strict=True))
        if calm and done > self._doubted * (1 + AGAIN) and all(decided):
            return EVIDENCE
        if done >= self._fewest() and spent * (1 + 1 / done) > times * self.first:
            return BUDGET
        return "rebuilds" if done >= times * MOST_REBUILDS else ""

    def conclude(self, reason: str, findings: Sequence[Finding], done: int, spent: float, wall: float, patience: float) -> str:
        """Return why a look at the data ends the measurement; empty if it goes on.

        `wall` seconds of `patience` have passed: going on must not risk the results so far. A model whose first few requests took longer
        than the budget does not go on for multiples of that.
        """
        open_ = [found.interval for found in findings if not settled(found.interval, self.margin)]
        if reason == EVIDENCE:
            self._doubted = done if open_ else 0
            return "" if open_ else EVIDENCE
        if self.look == 0:
            self.first = max(self.settings.budget, spent)
        left = (self.looks.at[-1] - self.looks.at[self.look]) * self.first
        if self.heavy:
            left = min(left, self.looks.at[-1] * self.settings.budget - spent)
        if not any(goes_on(interval, self.margin, spent, left) for interval in open_):
            return ending(reason, self.look, decided=not open_)
        if wall * self.looks.at[self.look + 1] / self.looks.at[self.look] > PATIENCE * patience:
            return TIMEOUT
        self.look += 1
        return ""

    def progress(self, spent: float) -> tuple[str, float]:
        """Return the progress text, and the largest share that can be done."""
        return self.looks.progress(self.look, spent / self.first)

    def _decided(self, wager: Wager, seen: list[float], spent: float) -> bool:
        """Whether a difference beyond the margin is certain and its size known well enough, or a difference within it is certain.

        The latter ends a measurement early only if the difference is so small that its direction would hardly become clear.
        """
        if len(seen) < PILOT:
            return False
        differs, not_above, not_below = (value >= self.least for value in wager.highest)
        middle, edge = float(np.median(seen)), math.log1p(self.margin)
        if abs(middle) > edge:
            error, precision = 3 * float(np.std(seen, ddof=1)) / math.sqrt(len(seen)), self.settings.precision
            known = error <= max(2 * precision, 10 * precision * abs(middle))
            return bool(differs and (not_above if middle > 0 else not_below) and known)
        close = abs(middle) < CLOSE * edge
        return bool(not_above and not_below and close and spent >= SAME_SHARE * self.settings.budget)

    def _fewest(self) -> int:
        """Return the fewest rebuilds: calls that take longer than the budget are still measured a few times."""
        if self.fresh:
            return FEWEST_FRESH
        slow = self.one * 2 * FEWEST_REBUILDS >= self.settings.budget
        return FEWEST_REBUILDS if not slow else FEWEST_FRESH if self.heavy else FEWEST_SLOW
