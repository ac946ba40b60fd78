"""How much two runs of the same code differ: the noise in a comparison of runs made apart.

A run is one draw of everything that stays the same within it: the process, its memory layout, the state of the machine in that hour. So the
noise is estimated between runs, never from the many samples inside one. It is estimated from the first of these that is available:
replicate runs of a side; earlier runs on the same machine; the spread of all cases, if most did not change; an assumption.

A shift common to all cases is treated separately. If the runs of both sides take turns in time, or earlier runs show how
much runs usually differ in all cases alike, it is noise like any other. Otherwise it cannot be distinguished from a change of the machine,
so the interval covers both possibilities; and if there are too few cases to show a common shift, the noise between sessions
is taken from earlier runs, or assumed, and added to that between replicates.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from steelyard.measuring.evidence import Spread
from steelyard.measuring.stats import t_quantile
from steelyard.model.units import percent

DEFAULT = 0.10
LEAST = 0.005
MANY = 8
ASSUMED_FREEDOM, FEWEST_FREEDOM = 8.0, 2.0
MAD = 1.4826
MAD_EFFICIENCY = 0.37
TAIL, NORMAL_TAIL = 0.8, 1.2816
UNLIKE = 3.0
"""Degrees of freedom of a t distribution like that of the cases' ratios: its tails are heavy, as cases differ in noise and have bad runs.

With 6, unchanged runs of 20 cases whose noise differs twofold and has such tails were called changed 8 to 10 times in 100.
"""
TINY = 1e-6


@dataclass(frozen=True)
class Logs:
    """One case: the logarithm of its figure by run of each side, and the variance within its records."""

    base: Mapping[int, float]
    head: Mapping[int, float]
    within: float = 0.0

    @property
    def ratio(self) -> float:
        """Log of head over base."""
        return math.fsum(self.head.values()) / len(self.head) - math.fsum(self.base.values()) / len(self.base)

    @property
    def share(self) -> float:
        """Variance of the log-ratio in units of the variance of one run."""
        return 1 / len(self.base) + 1 / len(self.head)

    @property
    def freedom(self) -> int:
        """The number of replicates beyond the first of each side."""
        return len(self.base) + len(self.head) - 2


@dataclass(frozen=True)
class Noise:
    """SD of each case's log-ratio; `shift` is the common shift of all cases, which may come from the machine.

    `common` is how much the two sides differ in all cases alike without a change; None if it is unknown.
    """

    spreads: Mapping[str, Spread]
    shift: float
    words: str
    common: Spread | None = None


@dataclass(frozen=True)
class Past:
    """Noise known from earlier runs: `own` is the SD of one run's log-time by case, `shared` that of the shift common to all its cases.

    If `shared` is unknown, `own` includes it.
    """

    own: Mapping[str, Spread]
    shared: Spread | None
    runs: int

    def of(self, case: str) -> Spread | None:
        """The whole noise of one run of a case, with both parts."""
        own = self.own.get(case)
        if own is None or self.shared is None:
            return own
        return Spread(math.hypot(own.sd, self.shared.sd), min(own.freedom, self.shared.freedom))


def between_runs(
    found: Mapping[str, Logs],
    *,
    default: float = DEFAULT,
    floor: float | None = None,
    alternating: bool = False,
    alpha: float = 0.01,
    past: Past | None = None,
) -> Noise:
    """Estimate the noise between runs from the best source available, and name the source in `words`."""
    least = LEAST if floor is None else max(floor, TINY)
    earlier = _from_past(found, past, least) if past else None
    if max((logs.freedom for logs in found.values()), default=0) >= 2:
        known, apart = _from_replicates(found, least, alternating, alpha)
        if alternating or (earlier is None and apart):
            return known
        return _after_the_past(known, earlier) if earlier else _between_sessions(known, default if floor is None else least)
    if earlier:
        return earlier
    if len(found) >= MANY:
        return _from_cases(found, least)
    sd = default if floor is None else least
    spreads = {id: Spread(math.sqrt(sd**2 * logs.share + logs.within), ASSUMED_FREEDOM) for id, logs in found.items()}
    source = (
        "as given" if floor is not None else f"assumed, since there are no replicate runs, few earlier ones and fewer than {MANY} cases"
    )
    return Noise(spreads, 0.0, f"noise between runs: {percent(sd)}, {source}", _usual(spreads))


def _usual(spreads: Mapping[str, Spread]) -> Spread:
    """The median noise of the cases: used for the common part if the two parts are not known separately."""
    return Spread(median([spread.sd for spread in spreads.values()]), min(spread.freedom for spread in spreads.values()))


def _from_past(found: Mapping[str, Logs], past: Past, least: float) -> Noise | None:
    """The noise of earlier runs, but at least that seen in the present cases if they are many; None if most cases are new."""
    known = {id: spread for id in found if (spread := past.of(id))}
    if 2 * len(known) < len(found):
        return None
    loudest = max(spread.sd for spread in known.values())
    tonight = robust_sd([logs.ratio - median([other.ratio for other in found.values()]) for logs in found.values()])
    seen = tonight if len(found) >= MANY else 0.0
    spreads = {}
    for id, logs in found.items():
        one = known.get(id, Spread(loudest, FEWEST_FREEDOM))
        variance = max(max(one.sd, least) ** 2 * logs.share, logs.within, seen**2)
        spreads[id] = Spread(math.sqrt(variance), one.freedom)
    share = median([logs.share for logs in found.values()])
    common = Spread(past.shared.sd * math.sqrt(share), past.shared.freedom) if past.shared else _usual(spreads)
    usual = median([max(spread.sd, least) for spread in known.values()])
    return Noise(spreads, 0.0, f"noise between runs: {percent(usual)}, from {past.runs} earlier runs on this machine", common)


def _after_the_past(known: Noise, earlier: Noise) -> Noise:
    """Noise of replicates made in one hour, plus the noise between hours known from earlier runs."""
    spreads = {id: _sum(spread, earlier.spreads[id]) for id, spread in known.spreads.items()}
    return Noise(spreads, 0.0, f"{known.words}; {earlier.words}", earlier.common)


def _sum(one: Spread, other: Spread) -> Spread:
    """The sum of two independent sources of noise, with the degrees of freedom of Welch and Satterthwaite."""
    first, second = one.sd**2, other.sd**2
    return Spread(math.sqrt(first + second), (first + second) ** 2 / (first**2 / one.freedom + second**2 / other.freedom))


def _from_cases(found: Mapping[str, Logs], least: float) -> Noise:
    """The noise from the spread of the cases' ratios, and the machine's shift from their median, assuming that most did not change."""
    ratios = [logs.ratio for logs in found.values()]
    shift, usual = median(ratios), median([logs.within for logs in found.values()])
    sd = robust_sd([ratio - shift for ratio in ratios])
    freedom = min(UNLIKE, max(2.0, MAD_EFFICIENCY * (len(ratios) - 1)))
    spreads = {
        id: Spread(math.sqrt(max(sd**2 + max(0.0, logs.within - usual), least**2 * logs.share)), freedom) for id, logs in found.items()
    }
    words = f"noise between runs: {percent(max(sd, least * math.sqrt(2)))} of the ratio, from the spread of {len(ratios)} cases"
    return Noise(spreads, shift, f"{words}, assuming that most of them did not change")


def _from_replicates(found: Mapping[str, Logs], least: float, alternating: bool, alpha: float) -> tuple[Noise, bool]:
    """The noise between replicates, from two parts: one common to all cases of a run, known from few runs, and one of each case.

    Also whether the two parts are known separately, for which every replicate needs at least MANY cases.
    """
    rest = {id: _residuals(logs) for id, logs in found.items()}
    shared, runs_freedom = _shared_by_run(rest)
    own = {id: _own_variance(rest[id], shared, logs.freedom) for id, logs in found.items()}
    prior = _prior([(own[id], logs.freedom) for id, logs in found.items() if logs.freedom], alike=bool(shared))
    most = max(logs.freedom for logs in found.values())
    spreads = {}
    for id, logs in found.items():
        freedom = logs.freedom + prior.freedom if shared else float(logs.freedom or most)
        variance = _moderated(own[id], logs.freedom, prior)
        if shared and alternating:
            variance += _inflated(shared, runs_freedom, freedom, alpha)
        spreads[id] = Spread(math.sqrt(max(variance, least**2) * logs.share), freedom)
    usual = median([spread.sd / math.sqrt(found[id].share) for id, spread in spreads.items()])
    shift = median([logs.ratio for logs in found.values()]) if shared and not alternating else 0.0
    runs = [max(map(len, sides)) for sides in zip(*((logs.base, logs.head) for logs in found.values()), strict=True)]
    common = None
    if alternating:
        share = median([logs.share for logs in found.values()])
        common = Spread(math.sqrt(_variance(shared, runs_freedom) * share), float(runs_freedom)) if shared else _usual(spreads)
    words = f"noise between runs: {percent(usual)}, from {runs[0]} base and {runs[1]} head runs"
    return Noise(spreads, shift, words, common), bool(shared)


def _between_sessions(known: Noise, sd: float) -> Noise:
    """Add assumed noise between sessions, once for each side, because replicates made one after the other are from the same hour."""
    drift = Spread(math.sqrt(2) * sd, ASSUMED_FREEDOM)
    spreads = {id: _sum(spread, drift) for id, spread in known.spreads.items()}
    words = f"{known.words}, and {percent(sd)} assumed between the sides, whose runs do not take turns in time"
    return Noise(spreads, known.shift, words, _usual(spreads))


Residuals = dict[tuple[int, int], float]


def _residuals(logs: Logs) -> Residuals:
    """Each run's distance from the mean of its side, for sides with more than one run."""
    found = {}
    for side, values in enumerate((logs.base, logs.head)):
        if len(values) > 1:
            centre = math.fsum(values.values()) / len(values)
            found.update({(side, run): value - centre for run, value in values.items()})
    return found


def _shared_by_run(rest: Mapping[str, Residuals]) -> tuple[dict[tuple[int, int], float], int]:
    """The shift common to all cases of each run, with its degrees of freedom; empty if there are too few cases."""
    by_run: dict[tuple[int, int], list[float]] = {}
    for residuals in rest.values():
        for run, value in residuals.items():
            by_run.setdefault(run, []).append(value)
    if not by_run or min(map(len, by_run.values())) < MANY:
        return {}, 0
    return {run: median(values) for run, values in by_run.items()}, len(by_run) - len({side for side, _ in by_run})


def _own_variance(residuals: Residuals, shared: Mapping[tuple[int, int], float], freedom: int) -> float:
    squares = [(value - shared.get(run, 0.0)) ** 2 for run, value in residuals.items()]
    return math.fsum(squares) / freedom if freedom else 0.0


def _inflated(shared: Mapping[tuple[int, int], float], runs_freedom: int, freedom: float, alpha: float) -> float:
    """The variance common to a run, widened because it is known from few runs, so that one t quantile fits both parts."""
    return _variance(shared, runs_freedom) * (t_quantile(1 - alpha / 2, float(runs_freedom)) / t_quantile(1 - alpha / 2, freedom)) ** 2


def _variance(shared: Mapping[tuple[int, int], float], freedom: int) -> float:
    return math.fsum(value**2 for value in shared.values()) / freedom


def _moderated(variance: float, freedom: int, prior: Spread) -> float:
    """A case's variance averaged with the prior; never below its own, since other cases being quiet does not make this one quiet."""
    if not freedom:
        return prior.sd**2
    weight = prior.freedom or freedom
    return max(variance, (freedom * variance + weight * prior.sd**2) / (freedom + weight))


def _prior(known: Sequence[tuple[float, int]], *, alike: bool) -> Spread:
    """The prior for a case's variance, from all cases: its usual size, and degrees of freedom that say how similar the cases are.

    The moments of the log-variances decide (Smyth 2004): similar cases are pooled fully, dissimilar ones hardly at all.
    With `alike` False, for few cases, their runs moved together, so the pool has a size but no degrees of freedom of its own.
    """
    total = sum(freedom for _, freedom in known)
    mean = math.fsum(freedom * variance for variance, freedom in known) / total
    if not alike:
        return Spread(math.sqrt(mean), 0.0)
    logs = [math.log(max(variance, TINY**2)) - digamma(freedom / 2) + math.log(freedom / 2) for variance, freedom in known]
    centre = math.fsum(logs) / len(logs)
    spread = math.fsum((value - centre) ** 2 for value in logs) / (len(logs) - 1)
    excess = spread - math.fsum(trigamma(freedom / 2) for _, freedom in known) / len(known)
    if excess <= trigamma(total / 2):
        return Spread(math.exp(centre / 2), float(total))
    freedom = 2 * _inverse_trigamma(excess)
    return Spread(math.exp((centre + digamma(freedom / 2) - math.log(freedom / 2)) / 2), freedom)


def robust_sd(away: Sequence[float]) -> float:
    """A robust SD of distances from a centre: the larger of two estimates, one from their median and one from their 80 % quantile."""
    ordered = sorted(map(abs, away))
    return max(MAD * median(ordered), ordered[int(TAIL * (len(ordered) - 1))] / NORMAL_TAIL)


def exp(value: float) -> float:
    """The exponential, limited to finite numbers."""
    return math.exp(min(max(value, -700.0), 700.0))


def digamma(x: float) -> float:
    """Derivative of log gamma, by recurrence and its asymptotic series."""
    below = 0.0
    while x < 8:
        below -= 1 / x
        x += 1
    f = 1 / x**2
    return below + math.log(x) - 0.5 / x - f * (1 / 12 - f * (1 / 120 - f * (1 / 252 - f * (1 / 240 - f / 132))))


def trigamma(x: float) -> float:
    """Second derivative of log gamma, computed like digamma."""
    below = 0.0
    while x < 8:
        below += 1 / x**2
        x += 1
    f = 1 / x**2
    return below + 1 / x + f / 2 + f / x * (1 / 6 - f * (1 / 30 - f * (1 / 42 - f * (1 / 30 - f * 5 / 66))))


def _inverse_trigamma(value: float) -> float:
    low, high = 1e-3, 1e6
    for _ in range(80):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if trigamma(middle) > value else (low, middle)
    return math.sqrt(low * high)
