"""Task: the built thing a worker times, and what is known about it beforehand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from steelyard.errors import UsageError
from steelyard.model.record import Arrays, Figure
from steelyard.model.units import check_tolerance


@dataclass(frozen=True)
class Reading:
    """What a task that times itself returns for one run: seconds, and any other quantities by metric name.

    `parts` are times inside of the run in nanoseconds, such as that to the first token: each becomes a metric with an interval, and
    has a verdict of its own in a comparison. `series` are all raw times of a kind, in nanoseconds, such as those between tokens.
    """

    seconds: float
    extras: Mapping[str, float] = field(default_factory=dict)
    parts: Mapping[str, float] = field(default_factory=dict)
    series: Mapping[str, Sequence[int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Findings:
    """What a task reports about itself after timing: facts for its record, raw series and figures of its own.

    Ranks find it out together: all of them are asked at the same time, and what rank 0 gives back counts.
    """

    facts: Mapping[str, Any] = field(default_factory=dict)
    arrays: Arrays = field(default_factory=dict)
    figures: Mapping[str, Figure] = field(default_factory=dict)


Step = Callable[[], Any]
Scope = Callable[[], AbstractContextManager[Any]]
MOST_PENDING = 1000


@dataclass(frozen=True)
class Backward:
    """How a task's backward pass is run on the output of a call.

    `step` makes the pass for one output, with everything that is not the pass itself done before it is returned; None if there is nothing
    to differentiate. `clear` drops what a pass left, or the next would add to it. `pending` is how many outputs may wait for their pass.
    `again` makes a pass that can be repeated over one output, for a capture.
    """

    step: Callable[[Any], Step | None]
    clear: Step = lambda: None
    pending: int = MOST_PENDING
    again: Callable[[Any], Step] | None = None


@dataclass(frozen=True)
class Amounts:
    """The least work of a part of a run: operations and bytes moved, and how often a run has that part."""

    flops: float | None = None
    bytes: float | None = None
    times: int = 1


@dataclass(frozen=True)
class Standard:
    """The requirement on answers of a variant that costs accuracy on purpose: the least signal-to-noise ratio in decibels.

    `make` makes of the plain task the one that they are compared with, such as a pruned one, and `words` say what that is; without it
    that is the plain task. `loss` is the figure for what `make` itself costs against the plain task, where that is something.
    """

    floor: float
    words: str = "the plain task"
    make: Callable[[Task], Task] | None = None
    loss: str = ""

    def applied(self, plain: Task) -> Task:
        """The task whose answers are the reference."""
        return self.make(plain) if self.make else plain


class Chance(Protocol):
    """A task's randomness, such as dropout, and how to switch it off where answers are compared."""

    def stop(self, *, drawing: bool) -> None:
        """Switch it off permanently; with `drawing` random numbers are still drawn, so that their cost stays."""

    def stopped(self) -> AbstractContextManager[None]:
        """Switch it off inside a `with` block."""


@dataclass(frozen=True)
class Task:
    """A function with its inputs; everything else is what the measurement needs to know to be fair.

    `parameters` are what training updates, `loss` turns an output into a scalar and `optimizer` makes of the parameters what updates
    them, where it is not the usual one; `phases` are parts of the task that
    are also timed on their own. `repeatable=False` means one call per block; `in_place` that calls change their
    inputs on purpose and answer otherwise the next time; `prepare` runs untimed before each call;
    `scope` is entered around a block for process-wide state; `measure` replaces `fn` for tasks that time themselves;
    `observe` is one call as verification sees it, where `fn` returns less; `unverified` is why there is nothing to compare,
    such as answers left to chance. `inspect` says after the first call what a
    variant really did, and raises NotApplied when that is nothing; it is asked again after timing. `back` is the pass back from
    an output, where it is timed apart from the call. `chance` turns off what calls leave to chance, such as dropout.
    `figures` computes metrics from an answer, such as a perplexity. `reading` extracts the times from what a call returned, for calls that
    time themselves part by part, such as a stream of tokens; `amounts` are what those parts do. `rule` is the verification rule
    that its answers are held to in place of our own, and `score` rates a given answer, for such a rule.
    `heavy` says that building it again takes too long: a comparison moves its weights and inputs to other addresses instead.
    `own_threads` says that others than the calling thread do the work, so that its CPU time cannot stand for that of a call.
    `norm_tolerance` holds gradients as whole arrays to that share of their norm, `whole_tolerance` every array. `standard` is for
    variants that cost accuracy on purpose. `refused` explains an error of the first call, such as a missing kernel.
    `against` says in words what `reference` gives, and `same_dtype` that answers must have its formats too; `explain` is asked for the
    cause of a wrong answer, with the arrays of that answer and of the right one.
    `findings` returns after timing what the task reports about itself, such as the time of each of its calls.
    """

    fn: Callable[..., Any] | None = None
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    flops: float | None = None
    bytes: float | None = None
    items: float | None = None
    parameters: tuple[Any, ...] = ()
    loss: Callable[[Any], Any] | None = None
    optimizer: Callable[[Any], Any] | None = None
    phases: Mapping[str, Task] = field(default_factory=dict)
    reference: Callable[[], Any] | None = None
    tolerance: tuple[float, float] | None = None
    norm_tolerance: float | None = None
    whole_tolerance: float | None = None
    any_dtype: bool = False
    unverified: str = ""
    observe: Callable[[], Any] | None = None
    repeatable: bool = True
    in_place: bool = False
    prepare: Callable[[], None] | None = None
    scope: Scope | None = None
    measure: Callable[[], Reading] | None = None
    inspect: Callable[[], Mapping[str, Any]] | None = None
    cleanup: Callable[[], None] | None = None
    back: Backward | None = None
    chance: Chance | None = None
    figures: Callable[[Any], Mapping[str, Figure]] | None = None
    reading: Callable[[Any], Reading] | None = None
    amounts: Mapping[str, Amounts] = field(default_factory=dict)
    rule: str = ""
    heavy: bool = False
    own_threads: bool = False
    score: Callable[[Callable[..., Any], Any], Any] | None = None
    standard: Standard | None = None
    refused: Callable[[Exception], Exception] | None = None
    against: str = ""
    same_dtype: bool = False
    explain: Callable[[Sequence[Any], Sequence[Any]], str] | None = None
    findings: Callable[[], Findings] | None = None
    effective: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.tolerance is not None:
            if not isinstance(self.tolerance, (tuple, list)) or len(self.tolerance) != 2:
                raise UsageError(f"the task's tolerance is {str(self.tolerance)[:60]}", do="give a pair: relative, absolute")
            for value, name in zip(self.tolerance, ("relative", "absolute"), strict=True):
                check_tolerance(value, f"the task's {name} tolerance")
        for share, name in ((self.norm_tolerance, "norm"), (self.whole_tolerance, "whole")):
            if share is not None:
                check_tolerance(share, f"the task's {name} tolerance")

    @property
    def times_itself(self) -> bool:
        """Whether a run reports its own time."""
        return self.measure is not None or self.reading is not None

    def timed_run(self) -> Reading:
        """One run of a task that times itself; the caller enters its scope."""
        if self.measure is not None:
            return self.measure()
        if self.reading is None or self.fn is None:
            raise TypeError("this task does not time itself")
        if self.prepare:
            self.prepare()
        return self.reading(self.fn(*self.args, **self.kwargs))

    def __call__(self) -> Any:
        """One call, prepared and in scope: what verification looks at."""
        if self.prepare:
            self.prepare()
        if self.fn is None:
            raise TypeError("this task times itself and has no function to call")
        if self.scope is None:
            return self.fn(*self.args, **self.kwargs)
        with self.scope():
            return self.fn(*self.args, **self.kwargs)


@contextmanager
def first_time(task: Task) -> Iterator[None]:
    """Context for a task's first call: an error that the variant can explain is raised with that explanation."""
    try:
        yield
    except Exception as error:
        meant = task.refused(error) if task.refused else error
        if meant is error:
            raise
        raise meant from error


def observed(task: Task) -> Any:
    """The answer of one call in the form that is compared."""
    if task.observe is None:
        return task()
    if task.scope is None:
        return task.observe()
    with task.scope():
        return task.observe()


def recorded(task: Task, readings: list[Reading]) -> Task:
    """The task with every reading of it added to a list; unchanged where it does not time itself."""
    measure, reading = task.measure, task.reading

    def keep(found: Reading) -> Reading:
        readings.append(found)
        return found

    if measure is not None:
        return replace(task, measure=lambda: keep(measure()))
    return task if reading is None else replace(task, reading=lambda output: keep(reading(output)))


def nested(outer: Scope | None, inner: Scope) -> Scope:
    """Two scopes as one, the outer of which is entered first; around a block, so that entering costs no call anything."""
    if outer is None:
        return inner

    @contextmanager
    def enter() -> Iterator[None]:
        with outer(), inner():
            yield

    return enter


def clean_up(tasks: Iterable[Task]) -> None:
    """Release resources that tasks hold, such as files or processes."""
    for task in tasks:
        if task.cleanup:
            task.cleanup()
