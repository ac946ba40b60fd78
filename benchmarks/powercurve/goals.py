"""The figures that were promised, row by row as they were set, each with what was measured and whether it is enough."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from benchmarks.powercurve.cells import FREE, GPU, GRAPH, HOGS, LABELS, LONG, MATCHED, ONE, OPERATORS, QUIET, SHORT, SMALLEST
from benchmarks.powercurve.score import Rate, Shot
from benchmarks.sheet import Table, quantity

EQUAL_ARMS, EACH = 1000, 60
DEVICE_SD = {"mm256": 0.0010, "mm1024": 0.0010, "mm4096": 0.0004}
DEVICE_SECONDS = 0.15
DEVICE_ADD = {0.5: 0.15, 1.0: 0.1}
MOST_OVER = 1.1


@dataclass(frozen=True)
class Promise:
    """One figure: its goal in words, what was measured, whether that reaches it, and how many comparisons it still lacks.

    A goal of None is only reported.
    """

    name: str
    env: str
    goal: str
    found: str
    reached: bool | None
    lacks: int = 0

    @property
    def state(self) -> str:
        if self.found == "-":
            return "no data"
        if self.reached is None:
            return "reported"
        word = "reached" if self.reached else "missed"
        return f"{word} so far, {self.lacks} more to come" if self.lacks else word


def promises(found: Sequence[Shot]) -> list[Promise]:
    """All rows, quiet and with hogs apart."""
    listed = [promise for env in (QUIET, HOGS) for promise in _on_cpu(found, env)]
    return listed + list(_on_device(found))


def table(listed: Sequence[Promise]) -> Table:
    """As in the work item, with a verdict each."""
    rows = tuple((one.name, one.env, one.goal, one.found, one.state) for one in listed)
    return Table("Goals", ("figure", "env", "goal", "measured", "state"), rows)


def _on_cpu(found: Sequence[Shot], env: str) -> Iterator[Promise]:
    def pick(kind: str, ops: Sequence[str], budget: float | None, percent: float) -> list[Shot]:
        return [
            shot for shot in found
            if shot.method == LABELS[kind] and shot.env == env and shot.op in ops and shot.percent == percent
            and (budget is None or shot.budget == budget)
        ]  # fmt: skip

    def alarms(name: str, shots: Sequence[Shot], most: float, enough: int) -> Promise:
        return _rate(f"{name}: false alarms", env, Rate.among(bool(shot.flag) for shot in shots), most, enough, at_least=False)

    def caught(name: str, kind: str, ops: Sequence[str], budget: float, least: dict[float, float], only: str = "") -> Iterator[Promise]:
        for percent, share in least.items():
            rate = Rate.among(shot.flag == 1 for shot in pick(kind, ops, budget, percent))
            enough, binding = EACH * min(len(ops), 2), only in ("", env)
            yield _rate(f"{name}: caught {percent:g} %", env, rate, share, enough, at_least=True, binding=binding)

    yield alarms("all CPU ops, one process", pick(ONE, SHORT + LONG + OPERATORS, None, 0), 0.005, EQUAL_ARMS)
    yield alarms("twelve operators, one process", pick(ONE, OPERATORS, None, 0), 0.005, EQUAL_ARMS // 2)
    yield from caught("twelve operators, one process, 0.65 s", ONE, OPERATORS, 0.65, {1: 0.95, 2: 0.98})
    yield from caught("matmul, one process, 2 s", ONE, ("matmul",), 2.0, {0.5: 0.95})
    yield from caught("twelve operators, one process, 2 s", ONE, OPERATORS, 2.0, {0.5: 0.95})
    yield from caught("adds and matmul, one process, 0.65 s", ONE, SHORT, 0.65, {1: 0.95, 2: 0.98, 5: 1.0})
    yield from caught("adds and matmul, one process, 0.15 s", ONE, SHORT, 0.15, {1: 0.90, 2: 0.95, 5: 1.0})
    for op in LONG:
        held = Rate.among(not shot.flag for shot in pick(ONE, (op,), 3.0, 0))
        yield _rate(f"{op}, 3 s: equal arms whose interval holds zero", env, held, 0.99, 100, at_least=True)
        yield from caught(f"{op}, 3 s", ONE, (op,), 3.0, {2: 0.90, 5: 0.98}, only=QUIET)
    yield from caught("two processes, matched layout, 0.75 s", MATCHED, SHORT, 0.75, {1: 0.80, 2: 0.95, 5: 1.0})
    yield alarms("two processes, matched layout", pick(MATCHED, SHORT, 0.75, 0), 0.01, 200)
    yield from caught("two processes, free layout, 2 s", FREE, SHORT, 2.0, {2: 0.75, 5: 0.98})
    yield alarms("two processes, free layout", pick(FREE, SHORT, 2.0, 0), 0.01, 200)
    times = [shot.timed if shot.stop == "evidence" else math.inf for shot in pick(ONE, ("adds",), 0.65, 5)]
    yield _seconds("adds, 5 %: median measured time until stopped by evidence", env, [one for one in times if one is not None], 0.08)
    same = Rate.among(shot.verdict == "same" for shot in pick(ONE, SHORT, 0.65, 0))
    yield _rate("equal arms end `same` within 2 %, 0.65 s", env, same, 0.95, EACH * len(SHORT), at_least=True)


def _on_device(found: Sequence[Shot]) -> Iterator[Promise]:
    ours = [shot for shot in found if shot.method == LABELS[GRAPH]]
    for op, most in DEVICE_SD.items():
        mine = [shot for shot in ours if shot.op == op and not shot.percent]
        if not mine:
            yield Promise(f"{op}: A/A SD", GPU, f"<= {100 * most:.2f} % in <= {DEVICE_SECONDS:g} s", "-", None)
            continue
        sd, wall = statistics.pstdev(shot.estimate for shot in mine), statistics.median(shot.wall or math.inf for shot in mine)
        goal = f"<= {100 * most:.2f} % in <= {DEVICE_SECONDS:g} s"
        said = f"{100 * sd:.3f} % in {quantity(wall, 's')}, n {len(mine)}"
        yield Promise(f"{op}: A/A SD", GPU, goal, said, sd <= most and wall <= DEVICE_SECONDS, max(0, 40 - len(mine)))
    for percent, most in DEVICE_ADD.items():
        mine = [shot for shot in ours if shot.op == "add20m" and shot.percent == percent]
        rate, wall = Rate.among(shot.flag == 1 for shot in mine), statistics.median([shot.wall or math.inf for shot in mine] or [math.inf])
        goal, reached = f">= 95 % in {most:g} s", rate.of > 0 and rate.share >= 0.95 and wall <= MOST_OVER * most
        said = f"{rate.in_full()} in {quantity(wall, 's')}" if rate.of else "-"
        yield Promise(f"add20m: caught {percent:g} %", GPU, goal, said, reached, max(0, 40 - rate.of))

    for percent in SMALLEST:
        mine = [shot for shot in ours if shot.op == "add20m" and shot.percent == percent]
        rate, wall = Rate.among(shot.flag == 1 for shot in mine), statistics.median([shot.wall or math.inf for shot in mine] or [math.inf])
        yield Promise(f"add20m: caught {percent:g} %", GPU, "-", f"{rate.in_full()} in {quantity(wall, 's')}" if rate.of else "-", None)


def _rate(name: str, env: str, rate: Rate, limit: float, enough: int, *, at_least: bool, binding: bool = True) -> Promise:
    compare: Callable[[float, float], bool] = (lambda share, edge: share >= edge) if at_least else (lambda share, edge: share <= edge)
    goal = f"{'>=' if at_least else '<='} {100 * limit:g} %" if binding else "-"
    return Promise(name, env, goal, rate.in_full(), compare(rate.share, limit) if binding else None, max(0, enough - rate.of))


def _seconds(name: str, env: str, times: Sequence[float], most: float) -> Promise:
    if not times:
        return Promise(name, env, f"<= {most:g} s", "-", None)
    middle = statistics.median(times)
    said = f"{quantity(middle, 's')}, n {len(times)}" if math.isfinite(middle) else f"most did not stop early, n {len(times)}"
    return Promise(name, env, f"<= {most:g} s", said, middle <= most, max(0, EACH - len(times)))
