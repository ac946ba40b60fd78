"""The noise between runs, estimated from earlier runs on a machine, so that it need not be estimated from two runs or assumed.

Only differences between consecutive runs of the same case are used. A real change of level is one large difference
among many small ones, and a few large ones do not move the robust scale, so earlier changes of level do not affect it. With many cases,
the shift that a run has in all of them is separated from the noise of each case.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from statistics import median

from steelyard.analyze.noise import FEWEST_FREEDOM, MAD_EFFICIENCY, MANY, TINY, Past, robust_sd
from steelyard.measuring.evidence import Spread
from steelyard.store.index import Entry, Index
from steelyard.store.runs import Run, Store, moment

FEWEST = 4
"""The fewest differences between consecutive runs that a case needs, which is five earlier runs."""
MOST = 100
"""The number of newest differences used: older ones say little about the machine today."""
MOST_FREEDOM = 6.0

Times = Mapping[str, Sequence[tuple[str, float]]]
"""Each case's runs with their times, oldest first."""
Step = tuple[str, str]
"""A run, and the next run that has the case."""


def learn(times: Times) -> Past | None:
    """The noise that earlier runs show; None if there are too few runs."""
    steps = {case: dict(_steps(found)) for case, found in times.items()}
    steps = {case: found for case, found in steps.items() if len(found) >= FEWEST}
    if not steps:
        return None
    together = _together(steps.values())
    own = {}
    for case, found in steps.items():
        alone = [value - together[step] for step, value in found.items() if step in together] if together else list(found.values())
        if len(alone) >= FEWEST:
            own[case] = _scale(alone)
    if not own:
        return None
    usual = median([spread.sd for spread in own.values()])
    moderated = {case: Spread(math.sqrt((spread.sd**2 + max(spread.sd, usual) ** 2) / 2), spread.freedom) for case, spread in own.items()}
    runs = {run for case in own for step in steps[case] for run in step}
    return Past(moderated, _scale(list(together.values())) if together else None, len(runs))


def _steps(times: Sequence[tuple[str, float]]) -> Iterable[tuple[Step, float]]:
    known = [(run, math.log(time)) for run, time in times if math.isfinite(time) and time > 0][-MOST - 1 :]
    for (old, before), (new, after) in pairwise(known):
        yield (old, new), after - before


def _together(steps: Collection[Mapping[Step, float]]) -> dict[Step, float]:
    """The common shifts of all cases from one run to the next, where enough cases are in both; empty if that is rare."""
    found: dict[Step, list[float]] = {}
    for values in steps:
        for step, value in values.items():
            found.setdefault(step, []).append(value)
    known = {step: median(values) for step, values in found.items() if len(values) >= MANY}
    return known if len(known) >= FEWEST else {}


def _scale(steps: Sequence[float]) -> Spread:
    """The noise of one run, from differences between two."""
    freedom = min(MOST_FREEDOM, max(FEWEST_FREEDOM, MAD_EFFICIENCY * len(steps)))
    return Spread(max(robust_sd(steps), TINY) / math.sqrt(2), freedom)


def past_of(store: Store, base: Sequence[Run], head: Sequence[Run]) -> Past | None:
    """The noise from a store's other runs on the machine of a comparison, made before its newest run."""
    sides = [*base, *head]
    keys = {run.header.machine_key for run in sides}
    if len(keys) != 1 or not next(iter(keys)):
        return None
    limit, compared = max(moment(run.header.created) for run in sides), {run.id for run in sides}
    cases = {record.id for run in base for record in run.records} & {record.id for run in head for record in run.records}
    with Index(store) as index:
        index.refresh()
        machines, series = index.machines(), index.every_series(cases)

    def counts(entry: Entry) -> bool:
        here = machines.get(entry.folder) in keys and entry.run not in compared and moment(entry.created) < limit
        return here and entry.status == "ok" and entry.time is not None

    newest = {case: {entry.run: entry.time or 0.0 for entry in found if counts(entry)} for case, found in series.items()}
    return learn({case: list(times.items()) for case, times in newest.items()})
