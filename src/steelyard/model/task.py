"""Task: what a worker builds and times, and what is known about it beforehand."""

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

    `parts` are times within the run in nanoseconds, such as the time to the first token: each becomes a metric with an interval, and
    has its own verdict in a comparison. `series` are all raw times of a kind, in nanoseconds, such as those between tokens.
    """

    seconds: float
    extras: Mapping[str, float] = field(default_factory=dict)
    parts: Mapping[str, float] = field(default_factory=dict)
    series: Mapping[str, Sequence[int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Findings:
    """What a task reports about itself after timing: facts for its record, raw series and figures of its own.

    All ranks compute it at the same time, and the result of rank 0 counts.
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

    `step` prepares the pass for one output and returns a function that runs only the pass; None if there is nothing to differentiate.
    `clear` drops the gradients of a pass, because the next pass would add to them. `pending` is how many outputs may wait for their pass.
    `again` makes a pass that can be repeated over one output, for a capture.
    """

    step: Callable[[Any], Step | None]
    clear: Step = lambda: None
    pending: int = MOST_PENDING
    again: Callable[[Any], Step] | None = None


@dataclass(frozen=True)
class Amounts:
    """The least work of one part of a run, as operations and bytes moved, and how often that part occurs in a run."""

    flops: float | None = None
    bytes: float | None = None
    times: int = 1


@dataclass(frozen=True)
class Standard:
    """The accuracy required of a variant that gives up accuracy on purpose: the least signal-to-noise ratio in decibels.

    `make` turns the plain task into the reference for its answers, such as a pruned model; without it the plain task is the reference.
    `words` describe the reference. `loss` is the name of the figure for the accuracy that `make` itself costs, if it costs any.
    """

    floor: float
    words: str = "the plain task"
    make: Callable[[Task], Task] | None = None
    loss: str = ""

    def applied(self, plain: Task) -> Task:
        """The task whose answers are the reference."""
        return self.make(plain) if self.make else plain


class Chance(Protocol):
    """Switches off a task's randomness, such as dropout, so that answers can be compared."""

    def stop(self, *, drawing: bool) -> None:
        """Switch it off permanently; with `drawing` random numbers are still drawn, so that their cost stays."""

    def stopped(self) -> AbstractContextManager[None]:
        """Switch it off inside a `with` block."""


@dataclass(frozen=True)
class Task:
    """A function with its inputs, and everything that a fair measurement needs to know about it.

    `parameters` are what training updates, `loss` turns an output into a scalar, and `optimizer` makes an optimizer for the
    parameters if it is not the usual one. `phases` are parts of the task that are also timed separately. `repeatable=False` means one
    call per block; `in_place` means that calls change their inputs on purpose, so that the next answer differs. `prepare` runs
    untimed before each call; `scope` is entered around a block, for process-wide state. `measure` replaces `fn` for tasks that time
    themselves. `observe` makes one call for verification, if `fn` returns less than has to be checked; `unverified` says why there is
    nothing to compare, such as random answers. `inspect` returns after the first call what a variant really did, and raises
    NotApplied if that is nothing; it is called again after timing. `back` is the backward pass from an output, if it is timed
    separately. `chance` switches off randomness, such as dropout. `figures` computes metrics from an answer, such as a perplexity.
    `reading` extracts the times from what a call returned, for calls that time their own parts, such as a stream of tokens; `amounts`
    is the work of those parts. `rule` is the verification rule for its answers in place of our own, and `score` rates a given answer,
    for such a rule. `heavy` means that building it again takes too long, so that a comparison moves its weights and inputs to other
    addresses instead. `own_threads` means that other threads than the calling one do the work, so that the calling thread's CPU time
    is not that of a call. `norm_tolerance` limits the error of each gradient array as a share of its norm, `whole_tolerance` that of
    every array. `standard` is for variants that give up accuracy on purpose. `refused` explains an error of the first call, such as a
    missing kernel. `against` describes what `reference` returns, and `same_dtype` means that answers must have its formats too;
    `explain` returns the cause of a wrong answer, from the arrays of that answer and of the right one. `findings` returns, after
    timing, what the task reports about itself, such as the time of each of its calls.
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
        """Make one call, prepared and inside the scope, and return the output that verification checks."""
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
    """Make one call and return its answer in the form that is compared."""
    if task.observe is None:
        return task()
    if task.scope is None:
        return task.observe()
    with task.scope():
        return task.observe()


def recorded(task: Task, readings: list[Reading]) -> Task:
    """A task that also adds each of its readings to a list; unchanged if it does not time itself."""
    measure, reading = task.measure, task.reading

    def keep(found: Reading) -> Reading:
        readings.append(found)
        return found

    if measure is not None:
        return replace(task, measure=lambda: keep(measure()))
    return task if reading is None else replace(task, reading=lambda output: keep(reading(output)))


def nested(outer: Scope | None, inner: Scope) -> Scope:
    """Two scopes as one that enters the outer scope first. Scopes are entered once per block, so they add nothing to a call."""
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
