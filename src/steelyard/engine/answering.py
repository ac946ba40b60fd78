"""The calls that verification makes: a task's answers, and the reference's answers to the same values."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from steelyard.backends._litter import Sketch
from steelyard.backends.base import Leaf
from steelyard.engine.bench import Bench
from steelyard.engine.changes import Replaced, altered, halved, inputs, prints
from steelyard.engine.reference import FIRST, Alike, Unlike, as_built, judge, reference
from steelyard.measuring import verify
from steelyard.model.record import Verification
from steelyard.model.task import Task, observed

LEAST_GRADIENT = 0.9
"""Largest tolerance for gradients, however small they have become. It is below 1, the error of an answer that is all zeros."""
QUICK = 2**14
"""Values of a large answer that are compared first, to see quickly whether it has changed."""

Found = tuple[Any, str, bool]


@dataclass
class Answering:
    """One task that is called for its answers. Free memory is overwritten before a call, so that an old answer in it cannot reappear."""

    bench: Bench
    be: Any
    built: Task
    task: Task | None = None
    before: list[Leaf] | None = None
    found: Found | None = None
    verification: Verification | None = None
    varies: bool = False
    """Whether its answers differ from call to call, so that none can be checked."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Notes for the record on where answers are in memory."""
    _sketches: list[Sketch] = field(default_factory=list)
    _doubt: Verification | None = None
    """The failed check of an answer between timed blocks."""
    _followed: str = ""
    """An input whose changed values led to a right answer."""

    def __post_init__(self) -> None:
        self.wanted = self.bench.settings.scrutinised and self.built.fn is not None and not self.built.rule
        still = self.wanted and not (self.built.prepare or self.built.in_place or self.built.unverified or not self.built.repeatable)
        given = self._given() if still and self.bench.case.mode != "bwd" else {}
        self.prints, self.places = prints(self.be, given), frozenset(given)
        """Fingerprints of inputs; none for the backward pass alone."""

    def _given(self) -> dict[str, Any]:
        """Return the inputs that calls must not change; training may change weights."""
        trained = {id(item) for item in self.built.parameters} if self.bench.case.mode == "train" else set()
        return {path: item for path, item in inputs(self.built).items() if id(item) not in trained}

    def _open(self) -> bool:
        """Whether more checks can change the result."""
        decided = self.verification is not None and self.verification.status == "failed"
        return self.wanted and self.task is not None and not self.task.unverified and not decided

    def _lasting(self) -> bool:
        """Whether a later call should give the same answer as the first."""
        return not self.built.in_place and (self.built.repeatable or self.built.prepare is not None)

    @property
    def _timed(self) -> Task:
        """The task as its mode runs it."""
        assert self.task is not None
        return self.task

    def _steady(self) -> bool:
        """Whether calls can be repeated freely: they restore nothing, change nothing and run only forward."""
        plain = self.built.prepare is None and not self.built.times_itself and not self.varies
        return plain and self._lasting() and self.bench.case.mode in ("eval", "fwd") and self.bench.case.ranks == 1

    def _call(self) -> Any:
        self.be.litter(self._sketches)
        output = observed(self._timed)
        self.be.sync()
        return output

    def _noted(self, found: Verification, check: str) -> Verification:
        done = self.verification.checks if self.verification else []
        return replace(found, checks=[*done, check])

    def _take(self, found: Verification, check: str) -> None:
        """Keep the worse of the earlier and the new result."""
        known = self.verification
        if found.status == "failed":
            once = "right at first, but not after timing" if known and FIRST in known.checks else ""
            place = f"with {check.partition(', ')[2]}" if ", " in check else ""
            words = f"{once} {place}".strip()
            self.verification = self._noted(replace(found, message=f"{words}: {found.message}" if words else found.message), check)
        elif known is None or known.status == "none":
            self.verification = self._noted(found, check)
        else:
            worst = max(known.max_abs or 0.0, found.max_abs or 0.0), max(known.max_rel or 0.0, found.max_rel or 0.0)
            both = known.identical and found.identical
            self.verification = self._noted(replace(known, max_abs=worst[0], max_rel=worst[1], identical=both), check)

    def _answer_to(self, path: str, array: Any, change: Callable[[Any], Any]) -> tuple[Verification, bool] | None:
        """Compare the answer to a changed input; also returns whether the answer differs from before. None if it cannot be compared."""
        leaf = self.be.seen(array, path)
        whole = leaf is not None and not verify.is_floating(leaf.dtype)
        if not isinstance(array, list) and (leaf is None or (whole and not isinstance(change, Replaced))):
            return None
        was = list(array) if leaf is None else self.be.kept(leaf)
        with altered(self.be, array, change) as done:
            if not done:
                return None
            try:
                found = reference(self.bench, self.be, self._timed, self._alike(path, was, change))
            except Exception:
                return None
            if found[0] is None or not self._moved(found[0]):
                return None
            try:
                got = self.be.outputs(self._call())
            except Exception:
                return None
            seen = self._judged(got, found)
            return seen, seen.status != "failed" or self._moved(got)

    def _moved_at_sight(self, answer: Sequence[Leaf]) -> bool:
        """Whether an answer differs from the one before, comparing some of its values first."""
        assert self.before is not None
        for one, other in zip(answer, self.before, strict=True):
            if one.there is None and other.there is None and one.data.size > 2 * QUICK and one.data.shape == other.data.shape:
                step = (one.data.size // QUICK) | 1
                few = [replace(leaf, held=leaf.data.reshape(-1)[::step], whole=None) for leaf in (one, other)]
                if self._compared(few[:1], few[1:]).status == "failed":
                    return True
        return self._moved(answer)

    def _moved(self, answer: Sequence[Leaf]) -> bool:
        """Whether an answer differs from the one before and has no more values that are not finite, which would hide errors."""
        assert self.before is not None
        if len(answer) != len(self.before) or any(_broken(new) > _broken(old) for new, old in zip(answer, self.before, strict=True)):
            return False
        return self._compared(answer, self.before).status == "failed"

    def _compared(self, one: Sequence[Leaf], other: Sequence[Leaf]) -> Verification:
        """Compare two answers of this task, or its answer with its reference's, with the task's own tolerances."""
        task = self._timed
        shares = task.norm_tolerance, task.whole_tolerance
        return verify.compare(one, other, "its first answer", own=task.tolerance, same_dtype=False, norm=shares[0], whole=shares[1])

    def _judged(self, got: list[Leaf], found: Found) -> Verification:
        """Compare a later answer with the reference. Gradients of a model trained by the timed calls are small differences of larger terms,
        so their tolerance uses the size that they had at first.
        """
        seen = judge(self.bench, self.be, self._timed, got, found)
        allowed = self._timed.norm_tolerance
        if seen.status != "failed" or self.bench.case.mode != "train" or allowed is None or not self.before:
            return seen
        first, now = map(_gradient, (self.before, found[0]))
        wider = min(LEAST_GRADIENT, allowed * max(1.0, first / now)) if now > 0 else LEAST_GRADIENT
        return judge(self.bench, self.be, replace(self._timed, norm_tolerance=wider), got, found)

    def _alike(self, path: str | None = None, was: Leaf | list[Any] | None = None, change: Callable[[Any], Any] = halved) -> Alike:
        """Return a context that gives a fresh task of the reference the current trained weights and the changed input."""

        @contextlib.contextmanager
        def enter(other: Any, plain: Task) -> Iterator[None]:
            if self.bench.case.mode == "train":
                _carry(other, [self.be.now(item) for item in self.built.parameters], plain.parameters)
            theirs = inputs(plain).get(path) if path is not None else None
            if path is None or was is None or self._follows(other, theirs, path, was):
                yield
                return
            with altered(other, theirs, change) as done:
                if not done and not isinstance(was, list):
                    raise Unlike
                yield

        return enter

    def _follows(self, other: Any, theirs: Any, path: str, was: Leaf | list[Any]) -> bool:
        """Whether a fresh task's input has changed too, because both tasks share it; Unlike if its values differed before the change."""
        leaf, ours = other.seen(theirs, path), inputs(self.built)[path]
        if leaf is None or isinstance(was, list):
            if isinstance(was, list) and theirs == ours:
                return True
            same = theirs == was
        elif verify.same_values(leaf, self.be.seen(ours, path)):
            return True
        else:
            coarser = max(verify.tolerance(leaf.dtype), verify.tolerance(was.dtype))
            same = verify.compare([leaf], [was], "", own=coarser, same_dtype=False).status == "passed"
        if not same:
            raise Unlike
        return False

    def _wanted_answer(self) -> Found:
        """Return the reference's answer to the current values, computed only once."""
        self.found = self.found or reference(self.bench, self.be, self._timed, as_built)
        return self.found


def _gradient(answer: Sequence[Leaf]) -> float:
    """Return the norm of all gradients together."""
    return math.hypot(*(verify.length(leaf) for leaf in answer if verify.is_gradient(leaf.path)))


def _broken(leaf: Leaf) -> int:
    """Return how many values are not finite."""
    return verify.infinite(leaf) if verify.is_floating(leaf.dtype) else 0


def _carry(other: Any, ours: Sequence[Any], theirs: Sequence[Any]) -> None:
    """Give a fresh task the weights of the timed one."""
    if len(ours) != len(theirs):
        raise Unlike
    for mine, fresh in zip(ours, theirs, strict=True):
        if mine.shape != fresh.shape or (mine is not fresh and not other.alter(fresh, lambda _, mine=mine: mine)):
            raise Unlike
