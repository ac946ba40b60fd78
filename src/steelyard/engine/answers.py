"""The answers a verification rule can request: the case's own from its initial weights, the eager ones, and those in double precision."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from steelyard.backends.base import Leaf
from steelyard.engine.bench import Bench
from steelyard.engine.changes import altered
from steelyard.engine.changes import inputs as given_arrays
from steelyard.engine.reference import kept
from steelyard.errors import Unsupported, told
from steelyard.measuring import rules
from steelyard.measuring.verify import is_floating
from steelyard.model.record import Figure, Verification
from steelyard.model.task import Standard, Task

ADAPTIVE = ("adam", "adamw")
OUTLIER = 20.0
GRADIENTS = ".gradients"


@dataclass(frozen=True)
class RuleCheck:
    """The check of a case by a verification rule other than ours; created before the first call, applied after timing."""

    bench: Bench
    be: Any
    task: Task
    state: Sequence[Any]
    rule: str

    @classmethod
    def of(cls, bench: Bench, be: Any, task: Task) -> RuleCheck | None:
        """Return the check for a case; None if no other rule applies to it."""
        rule = bench.settings.other_rule or (cls.own(bench, task) if bench.settings.scrutinised else "")
        return cls(bench, be, task, be.state(task) if bench.case.mode == "train" else (), rule) if rule else None

    @staticmethod
    def own(bench: Bench, task: Task) -> str:
        """Return the rule of the task or of a variant. If both have one, a variant loses accuracy on purpose: the task's rule is used with
        its option `lossy` if it has that, else the variant's rule.
        """
        named = next((variant.rule for variant, _ in bench.chain if variant.rule), "")
        if not task.rule or not named:
            return task.rule or named
        return f"{task.rule}[lossy=true]" if rules.takes(task.rule, "lossy") else named

    def verdict(self, own: Verification | None = None) -> tuple[Verification, dict[str, Figure]]:
        """The rule's result combined with our own, and its numbers; if the rule cannot be applied, that is the result, and the times are
        kept."""
        if own is not None and own.status == "failed":
            return own, {}
        try:
            found = rules.judge(self.rule, CaseAnswers(self.bench, self.be, self.task, self.state))
        except Unsupported as error:
            found = Verification("none", message=told(error, 500), code=rules.RAISED)
        except Exception as error:
            found = Verification("none", message=f"verification raised: {told(error, 500)}", code=rules.RAISED)
        if own is not None:
            found = replace(found, checks=[*own.checks, *found.checks])
        return found, rules.metrics(self.rule, found)


@dataclass(frozen=True)
class CaseAnswers:
    """The answers of a case that was timed; `state` has its initial weights."""

    bench: Bench
    be: Any
    task: Task
    state: Sequence[Any]

    @property
    def mode(self) -> str:
        """That of the case."""
        return self.bench.case.mode

    @property
    def device(self) -> str:
        """That of the case."""
        return self.bench.case.device

    @property
    def rate(self) -> float | None:
        """How far a step of the optimizer moves a weight, where that does not depend on the gradient's size."""
        return float(self.task.effective["rate"]) if self.task.effective.get("optimizer") in ADAPTIVE else None

    @property
    def standard(self) -> Standard | None:
        """The standard for a variant that costs accuracy."""
        return self.task.standard

    def candidate(self, calls: int) -> dict[str, Leaf]:
        """Return the answer of the timed task, from its initial weights and with a fresh optimizer."""
        if self.state:
            self.be.rewind(self.task, self.state)
        with self.task.chance.stopped() if self.task.chance else contextlib.nullcontext():
            return self._leaves(self.be, self.task, calls)

    def eager(self, calls: int) -> dict[str, Leaf]:
        """Return the answer of the plain task, built anew; PyTorch on the CPU computes it for runtimes that have that as witness."""
        be = self._plain()
        return self._leaves(be, _certain(self.bench.plain(be)), calls)

    def double(self, calls: int) -> dict[str, Leaf]:
        """Return the plain task's answer in double precision, without variants that change formats."""
        be, task = self.bench.base(self._plain())
        wide = be.upcast(_certain(task))
        if wide is None:
            raise Unsupported("there is no form of it in double precision")
        return self._leaves(be, wide, calls)

    def beside(self, inputs: int, *, outliers: bool) -> Iterator[tuple[dict[str, Leaf], dict[str, Leaf]]]:
        """Yield the answers of the timed task and of its reference to the same inputs, with new values each time. Real activations have a
        few channels far larger than the rest, which a narrow format then loses: `outliers` draws such values. A task whose inputs cannot be
        changed keeps its own.
        """
        want = self._answering(self._plain(), held=True)
        for _ in self._draws(inputs, outliers):
            yield self._judged(self.candidate(1)), want()

    def standards(self, inputs: int) -> Iterator[tuple[dict[str, Leaf], dict[str, Leaf]]]:
        """Yield the answers of the reference and of the plain task to normally distributed inputs, if variants define a reference."""
        if self.standard is not None and self.standard.make is not None:
            held, plain = self._answering(self._plain(), held=True), self._answering(self._plain(), held=False)
            for _ in self._draws(inputs, outliers=False):
                yield held(), plain()

    def _answering(self, be: Any, *, held: bool) -> Callable[[], dict[str, Leaf]]:
        """Return a function that computes the answer to the current inputs, from the initial state: of the plain task, or if `held` of the
        reference that variants make from it."""
        other, task = self.bench.standard(self.task, be) if held else self.bench.base(be)
        task = replace(_certain(task), args=self.task.args, kwargs=self.task.kwargs)
        state = other.state(task) if self.mode == "train" else ()

        def answer() -> dict[str, Leaf]:
            if state:
                other.rewind(task, state)
            return self._judged(self._leaves(other, task, 1))

        return answer

    def _draws(self, inputs: int, outliers: bool) -> Iterator[None]:
        """Draw new values for all floating-point inputs, `inputs` times; if that is not possible, yield once with the current values."""
        given = {path: array for path, array in given_arrays(self.task).items() if self._floating(array, path)}
        draw, count = self.bench.open(), 0
        for _ in range(inputs if given else 0):
            with contextlib.ExitStack() as stack:
                change = functools.partial(_drawn, draw, outliers)
                done = [stack.enter_context(altered(self.be, array, change)) for array in given.values()]
                if all(done):
                    count += 1
                    yield
        if not count and not outliers:
            yield

    def _judged(self, leaves: dict[str, Leaf]) -> dict[str, Leaf]:
        """The arrays by which accuracy is judged: for a training step its gradients, since the weights hardly move."""
        return {path: leaf for path, leaf in leaves.items() if GRADIENTS in path} if self.mode == "train" else leaves

    def scored(self, answer: Any) -> tuple[Leaf, Leaf] | None:
        """Return the scores of an answer by the timed function and by the plain task's; None if a task has no score."""
        be = self._plain()
        found = []
        for place, task in ((self.be, self.task), (be, _certain(self.bench.plain(be)))):
            if task.score is None or task.fn is None:
                return None
            found.append(place.outputs(task.score(task.fn, answer))[0])
        return found[0], found[1]

    def _floating(self, array: Any, path: str) -> bool:
        leaf = self.be.seen(array, path)
        return leaf is not None and is_floating(leaf.dtype)

    def _plain(self) -> Any:
        return self.be.witness() or self.bench.open()

    def _leaves(self, be: Any, task: Task, calls: int) -> dict[str, Leaf]:
        """Return the leaves of an answer by path; calls that draw random numbers get the same ones each time."""
        be.sow()
        return {leaf.path: leaf for leaf in kept(be, be.outputs(be.answer(task, self.mode, calls)))}


def _drawn(draw: Any, outliers: bool, like: Any) -> Any:
    """Draw normal numbers; with outliers one channel in two hundred, and at least one, is twenty times as large."""
    shape = tuple(like.shape)
    drawn = draw.randn(*shape)
    if not outliers or not shape:
        return drawn
    scales = np.ones(shape[-1], np.float32)
    scales[:: min(200, len(scales))] = OUTLIER
    return drawn * draw.array(scales, "fp32")


def _certain(task: Task) -> Task:
    """Return the task with its randomness stopped, for a task that is built only for its answer."""
    if task.chance:
        task.chance.stop(drawing=False)
    return task
