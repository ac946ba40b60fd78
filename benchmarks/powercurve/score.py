"""What the comparisons say together: error rates with exact bounds, estimates read back, and what it all cost."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.powercurve import cells
from benchmarks.powercurve.cells import GPU, LABELS, SEQUENTIAL
from benchmarks.powercurve.results import Outcome
from benchmarks.sheet import Table, quantity

OURS = tuple(LABELS[kind] for kind in cells.OURS)
AFTER, BESIDE = "rule on A then B", "rule on our blocks"


@dataclass(frozen=True)
class Rate:
    """So many of so many, with the exact (Clopper-Pearson) 95 % bounds."""

    count: int
    of: int

    @classmethod
    def among(cls, answers: Iterable[bool]) -> Rate:
        listed = list(answers)
        return cls(sum(listed), len(listed))

    @property
    def share(self) -> float:
        return self.count / self.of if self.of else math.nan

    @property
    def bounds(self) -> tuple[float, float]:
        from scipy.special import betaincinv  # type: ignore[import-untyped]

        if not self.of:
            return 0.0, 1.0
        low = 0.0 if self.count == 0 else float(betaincinv(self.count, self.of - self.count + 1, 0.025))
        high = 1.0 if self.count == self.of else float(betaincinv(self.count + 1, self.of - self.count, 0.975))
        return low, high

    def __str__(self) -> str:
        return f"{self.count}/{self.of}" if self.of else "-"

    def in_full(self) -> str:
        """With its bounds: `0/206 [0, 1.8 %]`."""
        low, high = self.bounds
        return f"{self} [{_points(low)}, {_points(high)} %]" if self.of else "-"

    def plain(self) -> dict[str, Any]:
        """For the JSON."""
        return {"count": self.count, "of": self.of, "bounds": self.bounds}


@dataclass(frozen=True)
class Shot:
    """One comparison as one method judged it."""

    method: str
    op: str
    env: str
    budget: float
    percent: float
    extra: int
    flag: int | None
    estimate: float
    low: float | None = None
    high: float | None = None
    verdict: str = ""
    stop: str = ""
    cpu: float | None = None
    wall: float | None = None
    timed: float | None = None
    called: float | None = None


def shots(outcomes: Iterable[Outcome]) -> Iterator[Shot]:
    """Every method's judgement of every comparison: ours, a shipped tool's, and peers' rules on the same blocks."""
    for one in outcomes:
        cell = (one.op, one.env, one.budget, one.percent, one.extra)
        if one.estimate is not None:
            cost = (one.cpu, one.wall, one.timed, one.called)
            yield Shot(LABELS[one.kind], *cell, one.flag, one.estimate, one.low, one.high, one.verdict, one.stop, *cost)
        for rule, (flag, estimate) in one.rules.items():
            name = f"{rule}, {AFTER if one.kind == SEQUENTIAL else BESIDE}"
            yield Shot(name, *cell, flag, estimate, cpu=one.cpu, wall=one.wall)


@dataclass(frozen=True)
class Row:
    """All comparisons of one method, op, environment and budget."""

    method: str
    op: str
    env: str
    budget: float
    equal: int
    slowed: dict[float, int]
    false_alarms: Rate | None
    caught: dict[float, Rate]
    same: Rate
    unclear: Rate
    coverage: Rate
    sd: float
    read_back: dict[float, float]
    cpu: float
    wall: float
    decided: dict[float, float]
    called: dict[float, float]
    early: Rate

    def plain(self) -> dict[str, Any]:
        """JSON-ready; keys of slowdowns in percent."""
        found = asdict(self)
        for name, value in vars(self).items():
            if isinstance(value, Rate):
                found[name] = value.plain()
            elif isinstance(value, dict):
                found[name] = {f"{key:g}": item.plain() if isinstance(item, Rate) else item for key, item in value.items()}
        return {key: None if isinstance(value, float) and math.isnan(value) else value for key, value in found.items()}


def rows(found: Iterable[Shot]) -> list[Row]:
    """One per method, op, environment and budget; ours first."""
    groups: dict[tuple[str, str, str, float], list[Shot]] = defaultdict(list)
    for shot in found:
        groups[shot.method, shot.op, shot.env, shot.budget].append(shot)

    def place(key: tuple[str, str, str, float]) -> tuple[Any, ...]:
        return key[2], OURS.index(key[0]) if key[0] in OURS else len(OURS), key[0], key[3], key[1]

    return [_row(key, groups[key]) for key in sorted(groups, key=place)]


def _row(key: tuple[str, str, str, float], group: Sequence[Shot]) -> Row:
    equal = [shot for shot in group if not shot.percent]
    by_size = {size: [shot for shot in group if shot.percent == size] for size in sorted({shot.percent for shot in group} - {0})}
    ruled = any(shot.flag is not None for shot in group)
    judged = [shot for shot in group if shot.verdict]
    return Row(
        *key, equal=len(equal), slowed={size: len(these) for size, these in by_size.items()},
        false_alarms=Rate.among(bool(shot.flag) for shot in equal) if ruled else None,
        caught={size: Rate.among(shot.flag == 1 for shot in these) for size, these in by_size.items()} if ruled else {},
        same=Rate.among(shot.verdict == "same" for shot in judged if not shot.percent),
        unclear=Rate.among(shot.verdict == "unclear" for shot in judged),
        coverage=Rate.among(covered(group)), sd=statistics.pstdev(shot.estimate for shot in equal) if len(equal) > 1 else math.nan,
        read_back={size: _median(math.expm1(shot.estimate) for shot in these) for size, these in by_size.items()},
        cpu=_median(shot.cpu for shot in group), wall=_median(shot.wall for shot in group),
        decided={size: _median(shot.timed for shot in these) for size, these in [(0.0, equal), *by_size.items()]},
        called={size: _median_of_all(shot.called for shot in these) for size, these in by_size.items()},
        early=Rate.among(shot.stop == "evidence" for shot in group if shot.stop),
    )  # fmt: skip


def covered(group: Sequence[Shot]) -> Iterator[bool]:
    """Whether each interval holds the truth: zero for equal arms, else the extra work times what a unit of it cost as read back."""
    costs = [math.expm1(shot.estimate) / shot.extra for shot in group if shot.extra]
    cost = statistics.median(costs) if costs else 0.0
    for shot in group:
        if shot.low is not None or shot.high is not None or shot.verdict:
            truth = math.log1p(max(-0.9, shot.extra * cost))
            yield (shot.low is None or shot.low <= truth) and (shot.high is None or truth <= shot.high)


def _median(values: Iterable[float | None]) -> float:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else math.nan


def _median_of_all(values: Iterable[float | None]) -> float:
    """Those that never came count as endless, or the slow ones would flatter."""
    listed = [math.inf if value is None else value for value in values]
    return statistics.median(listed) if listed else math.nan


def tables(listed: Sequence[Row]) -> list[Table]:
    """Error rates, then estimates and effort; the device apart, for its slowdowns are smaller."""
    made = []
    for where, mine in (("CPU", [row for row in listed if row.env != GPU]), ("GPU", [row for row in listed if row.env == GPU])):
        if mine:
            sizes = sorted({size for row in mine for size in row.slowed})
            made += [_errors(where, mine, sizes), _effort(where, mine, sizes)]
    return made


def _errors(where: str, listed: Sequence[Row], sizes: Sequence[float]) -> Table:
    title = f"{where}: false alarms on equal arms with 95 % bounds, and slowdowns caught (right direction)"
    head = ("method", "op", "env", "budget", "false alarms", *(f"caught {size:g} %" for size in sizes), "same", "unclear", "coverage")
    cells = []
    for row in listed:
        alarms = f"no rule, n {row.equal}" if row.false_alarms is None else row.false_alarms.in_full()
        caught = [str(row.caught.get(size, "-")) for size in sizes]
        cells.append((*_names(row), alarms, *caught, str(row.same), str(row.unclear), str(row.coverage)))
    return Table(title, head, tuple(cells))


def _effort(where: str, listed: Sequence[Row], sizes: Sequence[float]) -> Table:
    title = f"{where}: SD of the log-ratio on equal arms, slowdowns as read back, medians of CPU and wall time, and of time in blocks"
    back, blocks = [f"back {size:g} %" for size in sizes], [f"blocks {size:g} %" for size in (0, *sizes)]
    head = ("method", "op", "env", "budget", "A/A SD", *back, "CPU", "wall", *blocks, "early")
    cells = []
    for row in listed:
        read = [f"{100 * row.read_back[size]:+.2f} %" if size in row.read_back else "-" for size in sizes]
        spent = [_or_dash(row.decided.get(size, math.nan), _seconds) for size in (0, *sizes)]
        sd = _or_dash(row.sd, lambda value: f"{100 * value:.3f} %")
        cells.append((*_names(row), sd, *read, _or_dash(row.cpu, _seconds), _or_dash(row.wall, _seconds), *spent, str(row.early)))
    return Table(title, head, tuple(cells))


def _names(row: Row) -> tuple[str, str, str, str]:
    return row.method, row.op, row.env, f"{row.budget:g} s" if row.budget else "its own"


def _seconds(value: float) -> str:
    return quantity(value, "s")


def _or_dash(value: float, text: Callable[[float], str]) -> str:
    return "-" if math.isnan(value) else text(value)


def _points(share: float) -> str:
    return f"{100 * share:.2g}" if 0 < share < 0.995 else f"{100 * share:.0f}"
