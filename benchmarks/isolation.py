"""How many isolated cases a minute holds: workers forked from the nursery against a fresh interpreter for each case.

Every case is a tiny eager torch operator on the CPU with about 10 ms of sampling, in a process of its own, through the real
conductor into a store on disk. The nursery's own start counts against its minute.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from drive import Lap, laps, tiny_cases, without_nursery
from sheet import Goal, Sheet, Spread, Table, count, options, quantity, spread

GOAL = 40.0
BUDGET = 0.010
MINUTE = 60.0


@dataclass(frozen=True)
class Route:
    """One round of cases by one route: the mean per case once running, and what the first case cost beyond that."""

    case: float
    start: float
    timed: float
    worker: float

    @classmethod
    def of(cls, found: Sequence[Lap]) -> Route:
        first, *rest = found
        case = statistics.fmean(lap.wall for lap in rest)
        timed, worker = (statistics.fmean(values) for values in zip(*((lap.timed, lap.worker) for lap in rest), strict=True))
        return cls(case, max(0.0, first.wall - case), timed, worker)

    @property
    def per_minute(self) -> float:
        """Cases in one minute that begins with nothing running."""
        return (MINUTE - self.start) / self.case


def main() -> None:
    """Interleave rounds of both routes and print their ratio."""
    parser = options(__doc__)
    parser.add_argument("--cases", type=count, default=60, help="cases per round through the nursery (default 60)")
    parser.add_argument("--fresh-cases", type=count, default=6, help="cases per round in fresh interpreters (default 6)")
    parser.add_argument("--repeats", type=count, default=5, help="rounds (default 5)")
    chosen = parser.parse_args()
    load = os.getloadavg()
    forked_plan = tiny_cases(chosen.cases + 1, budget=BUDGET, isolate="case")
    fresh_plan = without_nursery(tiny_cases(chosen.fresh_cases + 1, budget=BUDGET, isolate="case"))
    forked, fresh = [], []
    for _ in range(chosen.repeats):
        forked.append(Route.of(laps(forked_plan)))
        fresh.append(Route.of(laps(fresh_plan)))
    sheet(forked, fresh, load).hand_in(chosen.json)


def sheet(forked: Sequence[Route], fresh: Sequence[Route], load: tuple[float, float, float]) -> Sheet:
    """Both routes side by side, and the ratio of each pair of rounds."""
    ratio = Spread.of([one.per_minute / other.per_minute for one, other in zip(forked, fresh, strict=True)])
    rows, figures = [], {}
    for name, rounds in (("nursery", forked), ("fresh interpreter", fresh)):
        parts = {part: Spread.of([getattr(one, part) for one in rounds]) for part in ("case", "per_minute", "timed", "worker", "start")}
        figures[name] = {part: asdict(figure) for part, figure in parts.items()}
        rows.append(
            (
                name,
                spread(parts["case"], "s"),
                f"{parts['per_minute'].median:.0f}",
                quantity(parts["timed"].median, "s"),
                quantity(parts["worker"].median - parts["timed"].median, "s"),
                quantity(parts["case"].median - parts["worker"].median, "s"),
                quantity(parts["start"].median, "s") if parts["start"].median else "-",
            )
        )
    head = ("isolated cases", "wall per case", "per minute", "timed blocks", "rest of case", "around it", "first start")
    table = Table(f"{ratio.rounds} rounds, median (best … worst); the ratio is {spread(ratio, '×')}", head, tuple(rows))
    goal = Goal("isolated cases per minute, nursery against fresh interpreters", ratio.median, GOAL, "×", at_least=True)
    return Sheet("isolation", (table,), (goal,), {**figures, "ratio": asdict(ratio)}, load)


if __name__ == "__main__":
    main()
