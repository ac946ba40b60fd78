"""Compares two functions in a script or a notebook, within seconds, without a store or a worker."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from html import escape
from typing import TYPE_CHECKING, Any

from steelyard import registry
from steelyard.drop_in import WaitedCall, clock_for, cuda_in_use
from steelyard.errors import UsageError
from steelyard.library import check_keywords, load_here, threads_here, torch_threads
from steelyard.measuring.clock import WaitingTimer
from steelyard.model.experiment import BUDGETS, Settings
from steelyard.model.pair import MARGIN, Arm, Delta, Pair, weigh
from steelyard.model.task import Task
from steelyard.model.units import parse_budget, parse_share

if TYPE_CHECKING:
    from steelyard.backends.base import Backend
    from steelyard.measuring.clock import Timer


SAME_CODE = "the answers agree in every bit, at the same speed: both may be the same code"
LEFT = "changed by the functions, and restored: {}"


@dataclass(frozen=True, repr=False)
class Weighed(Delta):
    """The result of `compare`: a Delta with the pair it comes from, readable as text and in a notebook.

    `threads` is the number of torch threads in this process, if torch is loaded; `other_load` is how many CPUs other processes kept busy.
    `identical` is whether the first answers agree in every bit; at the same speed, both may then be the same code.
    """

    pair: Pair | None = None
    threads: int | None = None
    other_load: float | None = None
    identical: bool | None = None

    def __repr__(self) -> str:
        """The result in one line; the evidence is in `pair`."""
        return f"<{type(self).__name__}: {super().__str__()}>"

    def __str__(self) -> str:
        pair = self.pair
        if pair is None:
            return super().__str__()
        facts = [*pair.facts, *(text for text in (threads_here(self.threads), load_here(self.other_load)) if text)]
        return "\n  ".join([super().__str__(), " · ".join(facts), *pair.notes])

    def to_dict(self) -> dict[str, Any]:
        """The effect, its interval and the pair it comes from, as plain data."""
        found = {name: getattr(self, name) for name in Delta.__dataclass_fields__}
        found |= {"effect": self.effect, "threads": self.threads, "other_load": self.other_load, "identical": self.identical}
        return {**found, "pair": asdict(self.pair) if self.pair else None}

    def to_frame(self, library: str | None = None) -> Any:
        """The result as a data frame of pandas or polars, with one row."""
        from steelyard.notebook import frame

        return frame([{name: value for name, value in self.to_dict().items() if name != "pair"}], library)

    def _repr_html_(self) -> str:
        lines = str(self).split("\n")
        rest = "".join(f"<div style='opacity:.7'>{escape(line.strip())}</div>" for line in lines[1:])
        return f"<div style='font-family:sans-serif'><div><b>{escape(lines[0])}</b></div>{self._bar()}{rest}</div>"

    def _bar(self) -> str:
        """An SVG of the interval, with the margin behind it and a mark at no change."""
        if self.low is None or self.high is None or self.ratio is None:
            return ""
        reach = 1.2 * max(abs(self.low - 1), abs(self.high - 1), self.margin)

        def x(value: float) -> float:
            return round(160 + 150 * (value - 1) / reach, 1)

        label = escape(f"ratio {self.ratio:.4g}, interval {self.low:.4g} to {self.high:.4g}", quote=True)
        edge = (x(1 / (1 + self.margin)), x(1 + self.margin))
        return (
            f"<svg role='img' aria-label='{label}' width='320' height='24'>"
            f"<rect x='{edge[0]}' y='4' width='{edge[1] - edge[0]:.1f}' height='16' fill='currentColor' opacity='.12'/>"
            "<line x1='160' x2='160' y1='2' y2='22' stroke='currentColor' stroke-dasharray='2 2'/>"
            f"<line x1='{x(self.low)}' x2='{x(self.high)}' y1='12' y2='12' stroke='currentColor' stroke-width='3'/>"
            f"<circle cx='{x(self.ratio)}' cy='12' r='4' fill='currentColor'/></svg>"
        )


def compare(
    base: Callable[..., Any],
    head: Callable[..., Any],
    *args: Any,
    setup: Callable[[], Any] | None = None,
    budget: float | str = "normal",
    margin: float | str = MARGIN,
    names: tuple[str, str] | None = None,
    verify: bool = True,
    seed: int | None = None,
    **kwargs: Any,
) -> Weighed:
    """Measure whether `head` takes more or less time than `base`, both called with `args` and `kwargs`, or with what `setup` returns.

    `setup` is called for new inputs at every rebuild, so that the result does not depend on their values or on where they are in memory.
    Both functions get copies of the same inputs; inputs that cannot be copied are made for each function separately. A tuple is passed as
    arguments, a mapping as keywords. Without `setup`, `args` and the objects that the functions hold (arrays, containers, modules and plain
    objects) are copied to new addresses. If a function holds something that cannot be copied, such as an open file, the interval is wider
    and a note says so.
    """
    from steelyard.engine.guards import AnswerGuard
    from steelyard.engine.pairs import pair_from
    from steelyard.machine.load import watch_others
    from steelyard.measuring import paired, schedule
    from steelyard.measuring.settling import BROKEN_OFF

    if setup is not None and (args or kwargs):
        raise UsageError("compare takes inputs either directly or from setup, not both")
    for fn in (base, head, *((setup,) if setup else ())):
        if not callable(fn):
            raise UsageError(f"compare takes functions, not {type(fn).__name__}")
    if setup is None:
        options = {"setup": setup, "budget": budget, "margin": margin, "names": names, "verify": verify, "seed": seed}
        check_keywords(compare, [base, head], kwargs, options)
    be = backend_here(_plain(base, args, kwargs, setup))
    labels = names or (_label(base, "base"), _label(head, "head"))
    labels = labels if labels[0] != labels[1] else (f"{labels[0]} (first)", f"{labels[1]} (second)")
    share = parse_share(margin) if isinstance(margin, str) else margin
    settings = Settings(budget=parse_budget(budget, BUDGETS), margin=share)
    rng = random.Random(seed)

    def build(fn: Callable[..., Any], make: Callable[[], Any] | None = setup) -> Task:
        return be.relocate(_plain(fn, args, kwargs, make), rng)

    builds = [functools.partial(build, fn) for fn in (base, head, base)]
    weighed = builds
    if setup is not None and not be.stays(_plain(_nothing, (), {}, setup)):
        drawn = DrawnInputs(setup, len(builds))
        weighed = [functools.partial(build, fn, functools.partial(drawn.of, arm)) for arm, fn in enumerate((base, head, base))]
    guard, timed = AnswerGuard(be, builds[0], builds[1], labels), list[Task]()
    waits = any(isinstance(fn, WaitedCall) for fn in (base, head))
    timer = WaitingTimer(torch_threads() or 1) if waits else _timer(be, [build() for build in builds])
    with be.wholly_as_it_was() as changed:
        differ = guard.before() if verify else ""
        with watch_others() as others:
            doing = schedule.weigh_arms(
                weighed[:2], timer, settings, rng.randrange(2**31), placebo=weighed[2],
                check=lambda tasks: timed.extend(tasks[:2]), look=guard.between if verify else None,
            )  # fmt: skip
        if verify:
            differ = differ or guard.after(timed)
        left = changed()
    found = doing.finding()
    held = {kind for fn in (base, head) for kind in be.stays(Task(fn))} if base is not head else set()
    found = paired.unmoved(found, sorted(held)) if held else found
    arms = (Arm(labels[0]), Arm(labels[1]))
    how = {"stopped_by": doing.stop, "looks": doing.looks, "measured_s": doing.spent, "schedule": "rounds", "margin": share}
    pair = pair_from(found, doing.rounds(), 1, arms, **how)
    if doing.broken:
        pair = replace(pair, notes=[*pair.notes, BROKEN_OFF.format(doing.broken)])
    notes = [*guard.notes, *([LEFT.format(", ".join(left))] if left else [])]
    pair = replace(pair, notes=[*pair.notes, *notes])
    delta = weigh(pair)
    if guard.identical and delta.verdict == "same":
        pair = replace(pair, notes=[*pair.notes, SAME_CODE])
    if differ:
        delta = replace(delta, verdict="failed", reason=differ)
    told = {name: getattr(delta, name) for name in Delta.__dataclass_fields__}
    return Weighed(**told, pair=pair, threads=torch_threads(), other_load=others.cpus, identical=guard.identical)


class DrawnInputs:
    """Inputs from `setup`, made once per rebuild and shared by all arms, so that two draws of inputs cannot pass for a difference
    between the functions.

    Every rebuild builds each arm once, in any order, so an arm's rebuild is identified by its number of requests.
    """

    def __init__(self, setup: Callable[[], Any], arms: int) -> None:
        self.setup, self.asked = setup, [0] * arms
        self.number, self.made = 0, None

    def of(self, arm: int) -> Any:
        """The inputs of an arm's next rebuild, the same for all arms; the caller copies them."""
        self.asked[arm] += 1
        if self.asked[arm] != self.number:
            self.number, self.made = self.asked[arm], self.setup()
        made = self.made
        if min(self.asked) == self.number:
            self.made = None
        return made


def _nothing(*args: Any, **kwargs: Any) -> None:
    return None


def backend_here(call: Callable[[], Any]) -> Backend:
    """The backend for this process: torch if it is loaded already, on the GPU if the call uses one; otherwise numpy."""
    name, options = "numpy", {}
    if (threads := torch_threads()) is not None:
        name, options = "torch", {"device": "cpu" if cuda_in_use(call) is None else "cuda", "threads": threads}
    found: Backend = registry.load_backend(name)(**options)
    return found


def _timer(be: Backend, tasks: list[Task]) -> Timer:
    """The device's clock if it can time every function, else the host's clock with a wait for the device."""
    if be.device == "cpu":
        return be.timer()
    clocks = [clock_for(task) for task in tasks]
    waiting = next((clock.timer for clock in clocks if not clock.name.startswith("device")), None)
    return waiting or be.pair_timer(tasks)


def _label(fn: Callable[..., Any], otherwise: str) -> str:
    name = getattr(fn, "__name__", "") or type(fn).__name__
    return otherwise if name == "<lambda>" else str(name)


def _plain(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], setup: Callable[[], Any] | None) -> Task:
    """A task that calls the function with the given inputs, or with those that `setup` makes."""
    if setup is None:
        return Task(fn, args, kwargs)
    made = setup()
    if isinstance(made, Mapping):
        return Task(fn, kwargs=made)
    return Task(fn, made if isinstance(made, tuple) else (made,))
