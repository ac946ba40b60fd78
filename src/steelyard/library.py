"""Steelyard from Python: measure a function here and now, or run an experiment as the command line does."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steelyard.errors import UsageError, unknown
from steelyard.model.experiment import BUDGETS, Experiment, Settings
from steelyard.model.record import Figure, Record
from steelyard.model.task import Task
from steelyard.model.units import parse_budget, percent, plain, with_error

if TYPE_CHECKING:
    from steelyard.measuring.sample import Sample
    from steelyard.store.runs import Run


@dataclass(frozen=True)
class Measurement:
    """What `measure` found: figures with intervals, the raw sample they come from, and the clock that took it."""

    figures: dict[str, Figure]
    sample: Sample
    clock: str = "host"

    @property
    def seconds(self) -> float:
        """Median net time per call."""
        return self.figures["time"].value

    def __str__(self) -> str:
        time = self.figures["time"]
        lost = self.figures["discarded"].value
        words = [with_error(time.value, time.low, time.high, "s"), f"n {time.n}", f"noise {self.sample.noise}"]
        words += [f"{percent(lost)} of blocks preempted"] if lost else []
        words += [f"clock: {self.clock}"] if self.clock != "host" else []
        host = self.figures.get("host_time")
        words += [f"the host needs {plain(host.value, 's')}"] if host and host.value > time.value else []
        return " · ".join(words)


def measure(
    fn: Callable[..., Any],
    *args: Any,
    budget: float | str = "quick",
    precision: float = 0.01,
    sampling: str = "blocks",
    flops: float | None = None,
    bytes: float | None = None,
    items: float | None = None,
) -> Measurement:
    """Time a function in this process, with calibration, warm-up, overhead subtraction and an honest interval.

    Where the function gives work to a CUDA device it is that work that is timed, not its launch; `clock` in the result says so.
    """
    from steelyard.drop_in import clock_for
    from steelyard.measuring import metrics
    from steelyard.measuring.figures import figures
    from steelyard.measuring.sample import sample

    if sampling not in ("blocks", "calls"):
        raise UsageError(f"sampling is 'blocks' or 'calls', not {sampling!r}")
    settings = Settings(budget=parse_budget(budget, BUDGETS), precision=precision, sampling="blocks" if sampling == "blocks" else "calls")
    task = Task(fn, args, flops=flops, bytes=bytes, items=items)
    task()
    clock = clock_for(task)
    taken = sample(task, clock.timer, settings)
    found = figures(taken, task, (metrics.compute, metrics.bandwidth, metrics.item_rate))
    if (tally := getattr(clock.timer, "tally", None)) is not None:
        found["host_time"] = Figure(statistics.median(tally.host), "s", "lower", n=len(tally.host))
    return Measurement(found, taken, clock.name)


class Silent:
    """Nobody watches a run started from Python."""

    def started(self, case_id: str) -> None:
        pass

    def phase(self, name: str, fraction: float | None) -> None:
        pass

    def finished(self, record: Record) -> None:
        pass

    def waiting(self, text: str) -> None:
        pass


def run(experiment: Experiment | str | os.PathLike[str], *, store: str | os.PathLike[str] | None = None, **settings: Any) -> Run:
    """Run an experiment object, a suite by name or an experiment file, in isolated workers, and return the saved run."""
    from steelyard import codec, registry
    from steelyard.engine import conduct
    from steelyard.store.runs import Store

    if not isinstance(experiment, Experiment):
        experiment = codec.load_experiment(registry.suites().get(str(experiment), Path(experiment)))
    for name in settings:
        if name not in Settings.__dataclass_fields__:
            raise unknown("setting", name, Settings.__dataclass_fields__)
    if "budget" in settings:
        settings["budget"] = parse_budget(settings["budget"], BUDGETS)
    experiment = replace(experiment, settings=replace(experiment.settings, **settings))
    place = Store.find(None, str(store) if store else None)
    ready = conduct.from_experiment(experiment)
    return conduct.execute(ready, place, ["steelyard.run", experiment.name], lambda writer: Silent()).run
