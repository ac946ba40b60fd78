"""Steelyard from Python: measure a function in this process, or run an experiment as the command line does."""

from __future__ import annotations

import functools
import inspect
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steelyard.errors import UsageError, unknown
from steelyard.model.experiment import BUDGETS, Experiment, Settings
from steelyard.model.record import Figure
from steelyard.model.task import Task
from steelyard.model.units import parse_budget, percent, plain, with_error

if TYPE_CHECKING:
    from steelyard.measuring.sample import Sample
    from steelyard.store.runs import Run


BUSY = 0.5
"""CPUs kept busy by other programs from which on a result mentions them."""
MORE_THAN_ONE = 1.2
"""CPU seconds per second from which on more than one thread must have run."""


@dataclass(frozen=True, repr=False)
class Measurement:
    """The result of `measure`: figures with intervals, the raw sample they come from, the clock used, and the conditions.

    `threads` is the number of torch threads in this process, if torch is loaded; `cpus` is how many CPUs the function kept busy, and
    `other_load` how many CPUs other processes kept busy meanwhile.
    """

    figures: dict[str, Figure]
    sample: Sample
    clock: str = "host"
    threads: int | None = None
    cpus: float | None = None
    other_load: float | None = None

    @property
    def seconds(self) -> float:
        """Median net time per call."""
        return self.figures["time"].value

    def __str__(self) -> str:
        time = self.figures["time"]
        lost = self.figures["discarded"].value
        words = [with_error(time.value, time.low, time.high, "s"), f"n {time.n}", f"noise {self.sample.noise}"]
        words += [time.caveat] if time.caveat else []
        words += [f"{percent(lost)} of blocks preempted"] if lost else []
        words += [text] if (text := threads_here(self.threads, self.cpus)) else []
        words += [text] if (text := load_here(self.other_load)) else []
        words += [f"clock: {self.clock}"] if self.clock != "host" else []
        host = self.figures.get("host_time")
        words += [f"the host needs {plain(host.value, 's')}"] if host and host.value > time.value else []
        return " · ".join(words)

    def __repr__(self) -> str:
        """The result in one line; the raw sample is in `sample`."""
        return f"<{type(self).__name__}: {self}>"

    def to_dict(self) -> dict[str, Any]:
        """Every figure with its interval in SI units, the raw samples and the conditions, as plain data."""
        told = {"clock": self.clock, "threads": self.threads, "cpus": self.cpus, "other_load": self.other_load, "noise": self.sample.noise}
        return {
            "figures": {name: asdict(figure) for name, figure in self.figures.items()},
            **told,
            "samples": self.sample.per_call.tolist(),
        }

    def to_frame(self, library: str | None = None) -> Any:
        """The figures as a data frame of pandas or polars, with one row each."""
        from steelyard.notebook import frame

        return frame([{"metric": name, **asdict(figure)} for name, figure in self.figures.items()], library)

    def _repr_html_(self) -> str:
        from steelyard.notebook import dots, table

        first, *rest = str(self).split(" · ")
        rows = [[escape(name.replace("_", " ")), escape(with_error(it.value, it.low, it.high, it.unit))] for name, it in self._shown()]
        told = f"<div><b>{escape(first)}</b> <span style='opacity:.7'>{escape(' · '.join(rest))}</span></div>"
        return f"<div>{told}{dots(self.sample.per_call.tolist(), self.figures['time'])}{table(['figure', 'value ± 95 %'], rows)}</div>"

    def _shown(self) -> list[tuple[str, Figure]]:
        """The most important figures; `figures` has all."""
        hidden = ("overhead", "discarded")
        return [(name, figure) for name, figure in self.figures.items() if name not in hidden]


def torch_threads() -> int | None:
    """The number of torch threads in this process; None if torch is not loaded. Imports nothing."""
    torch = sys.modules.get("torch")
    return int(torch.get_num_threads()) if torch is not None and hasattr(torch, "get_num_threads") else None


def threads_here(threads: int | None, cpus: float | None = None) -> str:
    """How many threads this process measured with; if it is not one, with a note that `steelyard run` uses one."""
    if threads is not None:
        return "1 thread" if threads == 1 else f"{threads} threads (steelyard run: 1)"
    return f"{cpus:.1f} CPUs in use (steelyard run: 1 thread)" if cpus is not None and cpus >= MORE_THAN_ONE else ""


def load_here(other_load: float | None) -> str:
    """How busy other programs kept the machine while measuring, if that is worth mentioning."""
    return f"other programs kept {other_load:.1f} CPUs busy" if other_load is not None and other_load >= BUSY else ""


def check_keywords(
    who: Callable[..., Any], functions: Sequence[Callable[..., Any]], keywords: Iterable[str], options: Mapping[str, Any]
) -> None:
    """Check the keywords for the functions: one that is also an option of ours, or that no function takes, is an error.

    `keywords` are those for the functions, `options` are all of ours; an option with its default value counts as not given.
    """
    given = {name for name, value in options.items() if value != (who.__kwdefaults__ or {})[name]}
    for fn in functions:
        known, any_other = _parameters(fn)
        name = getattr(fn, "__name__", type(fn).__name__)
        if both := sorted(given & known):
            raise UsageError(
                f"{both[0]} is an option of {who.__name__} and an argument of {name}", why="it is ambiguous which of the two is meant",
                do=f"bind the function's argument: {who.__name__}(functools.partial({name}, {both[0]}=…), …)",
            )  # fmt: skip
        if not any_other and (strange := sorted(set(keywords) - known)):
            raise unknown(f"argument of {name}, or option of {who.__name__}", strange[0], {*known, *options})


def _parameters(fn: Callable[..., Any]) -> tuple[set[str], bool]:
    """Names that a function takes by keyword, except bound ones, and whether it takes any keyword (also if it has no signature)."""
    try:
        found = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):
        return set(), True
    bound = set(fn.keywords) if isinstance(fn, functools.partial) else set()
    names = {item.name for item in found if item.kind in (item.POSITIONAL_OR_KEYWORD, item.KEYWORD_ONLY)}
    return names - bound, any(item.kind == item.VAR_KEYWORD for item in found)


def measure(
    fn: Callable[..., Any],
    *args: Any,
    budget: float | str = "quick",
    precision: float = 0.01,
    sampling: str = "blocks",
    flops: float | None = None,
    bytes: float | None = None,
    items: float | None = None,
    **kwargs: Any,
) -> Measurement:
    """Time a function in this process, with calibration, warm-up, overhead subtraction and an interval.

    It is called with `args` and with every keyword that is not an option above. If the function gives work to a CUDA device, that work is
    timed, not its launch; `clock` in the result says so.
    """
    from steelyard.drop_in import clock_for
    from steelyard.machine.load import watch_others
    from steelyard.measuring import metrics
    from steelyard.measuring.figures import figures
    from steelyard.measuring.sample import sample

    if sampling not in ("blocks", "calls"):
        raise UsageError(f"sampling is 'blocks' or 'calls', not {sampling!r}")
    options = {"budget": budget, "precision": precision, "sampling": sampling, "flops": flops, "bytes": bytes, "items": items}
    check_keywords(measure, [fn], kwargs, options)
    settings = Settings(budget=parse_budget(budget, BUDGETS), precision=precision, sampling="blocks" if sampling == "blocks" else "calls")
    task = Task(fn, args, kwargs, flops=flops, bytes=bytes, items=items)
    task()
    clock = clock_for(task)
    began = time.perf_counter(), time.process_time()
    with watch_others() as others:
        taken = sample(task, clock.timer, settings)
    wall, busy = time.perf_counter() - began[0], time.process_time() - began[1]
    found = figures(taken, task, (metrics.compute, metrics.bandwidth, metrics.item_rate))
    if (tally := getattr(clock.timer, "tally", None)) is not None:
        found["host_time"] = Figure(statistics.median(tally.host), "s", "lower", n=len(tally.host))
    return Measurement(found, taken, clock.name, torch_threads(), busy / wall if wall > 0 else None, others.cpus)


def run(experiment: Experiment | str | os.PathLike[str], *, store: str | os.PathLike[str] | None = None, **settings: Any) -> Run:
    """Run an experiment object, a suite by name or an experiment file, in isolated workers, and return the saved run.

    Progress is shown as a bar in a notebook, and as a live line on a terminal.
    """
    from steelyard import codec, registry
    from steelyard.engine import conduct
    from steelyard.notebook import readable, watch
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
    look = watch(len(ready.jobs))
    try:
        return readable(conduct.execute(ready, place, ["steelyard.run", experiment.name], lambda writer: look).run)
    finally:
        look.close()
