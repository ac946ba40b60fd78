"""Checks of `compare` on two functions besides their time: equal answers before, during and after timing, for old and new values."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from steelyard.backends._litter import Sketch, sketch
from steelyard.backends.base import Leaf
from steelyard.engine.changes import (
    CHANGING,
    FEW,
    Change,
    Reordered,
    Sprinkled,
    altered,
    are_numbers,
    halved,
    in_any_order,
    inputs,
    negated,
    prints,
    rolled,
)
from steelyard.engine.extents import extents, shared_memory
from steelyard.engine.pace import BUSY, kept_by_value, other_threads
from steelyard.engine.precision import COARSE, NOTE, error_to_plain, suspicious
from steelyard.engine.reference import kept
from steelyard.measuring import verify
from steelyard.model.record import Verification
from steelyard.model.task import Task

LATER = "the answers differ after timing: "
STILL = "still those for the old values; they do not depend on {}"
WRITTEN_LATER = "the answer was still being written after its call had returned"
MOST_INPUTS = 6

Build = Callable[[], Task]


@dataclass
class AnswerGuard:
    """Two functions while they are compared; `notes` are remarks for the reader on what is not wrong."""

    be: Any
    base: Build
    head: Build
    names: tuple[str, str] = ("base", "head")
    notes: list[str] = field(default_factory=list)
    identical: bool | None = None
    """Whether the first answers agree in every bit; None if they could not be compared."""
    doubt: str = ""
    """What was wrong between timed blocks; reported only if the base still gives its old answer."""
    _sketches: list[Sketch] = field(default_factory=list)

    def before(self) -> str:
        """Return how the head's answer differs from the base's on equal inputs; empty if it does not."""
        task = self.base()
        other = self.be.relocate(replace(self.head(), args=task.args, kwargs=task.kwargs), random.Random(0))
        found, want, got = self._held_against(task, other)
        self._sketches = [sketch(leaf) for leaf in got]
        self.identical = found.identical if found.status == "passed" else None
        if found.status == "failed":
            return f"the answers differ: {found.message}"
        with contextlib.suppress(Exception):
            self._weigh_error(found, task, want, got)
        return ""

    def between(self, tasks: Sequence[Task]) -> None:
        """Compare the answers of the tasks that are being timed, after some of their blocks and before they are rebuilt."""
        base, head = tasks[:2]
        with contextlib.suppress(Exception):
            if self.doubt or prints(self.be, inputs(base)) != prints(self.be, inputs(head)):
                return
            found, _, _ = self._held_against(base, head)
            self.doubt = f"the answers differ between timed blocks: {found.message}" if found.status == "failed" else ""

    def after(self, timed: Sequence[Task]) -> str:
        """Return what is wrong with the timed head, on its own buffers, by a base that was not timed; empty if both agree."""
        base, head = timed[:2] if timed else (self.base(), self.head())
        fresh, used = (self._given(head, task) for task in (self.base(), base))
        marks = [prints(self.be, inputs(side)) for side in (fresh, head)]
        own = self.be.outputs(used())
        found, want, _ = self._held_against(fresh, head)
        if found.status == "failed" or self.doubt:
            steady = verify.compare(own, want, "base", same_dtype=False).status != "failed"
            if found.status == "failed":
                return LATER + found.message if steady else self._anew()
            return self.doubt if steady else ""
        if marks != [prints(self.be, inputs(side)) for side in (fresh, head)]:
            return ""
        wrong = self._follows(fresh, head, kept(self.be, want))
        if not wrong:
            with contextlib.suppress(Exception):
                wrong = kept_by_value(self.be, head, lambda: fresh, _drawn())
        if not wrong:
            with contextlib.suppress(Exception):
                self._notice(fresh, head)
        return wrong and (wrong if wrong.startswith(LATER) else f"{self.names[1]}: {wrong}")

    def _anew(self) -> str:
        """Compare fresh tasks, since calls of these functions change their state; returns what is wrong."""
        task = self.base()
        found, _, _ = self._held_against(task, self._given(task, self.head()))
        return LATER + found.message if found.status == "failed" else ""

    def _given(self, giver: Task, task: Task) -> Task:
        """Return a task with copies of another's current inputs."""
        made: Task = self.be.relocate(replace(task, args=giver.args, kwargs=giver.kwargs), random.Random(0))
        return made

    def _held_against(self, base: Task, head: Task) -> tuple[Verification, list[Leaf], list[Leaf]]:
        """Compare the head's answer with the base's, which is computed after it; free memory is overwritten first, so it holds neither."""
        self.be.litter(self._sketches)
        made = head()
        self.be.sync()
        got = self.be.outputs(made)
        at_once = kept(self.be, got)
        want = self.be.outputs(base())
        self.be.sync()
        found = verify.compare(at_once, want, "base", same_dtype=False)
        if found.status != "failed" and not all(map(verify.same_values, at_once, self.be.outputs(made))):
            found = Verification("failed", "base", WRITTEN_LATER)
        return found, want, at_once

    def _follows(self, fresh: Task, head: Task, old: list[Leaf]) -> str:
        """Return what is wrong if the head's answer does not change with each input, as the base's does; else empty."""
        followed, stale = list[str](), list[str]()
        mine, theirs = inputs(head), inputs(fresh)
        for path in [path for path, item in mine.items() if path in theirs and self._changeable(item, path)][:MOST_INPUTS]:
            for change in self._changes(mine[path], path):
                seen = self._tried([mine[path], theirs[path]], change, fresh, head, old)
                if seen is None:
                    continue
                found, moved = seen
                if found.status == "failed" and moved and change in (halved, negated):
                    return LATER + found.message
                (followed if found.status != "failed" or moved else stale).append(path)
                break
        if stale and not followed:
            return LATER + STILL.format(stale[0])
        if stale:
            self.notes.append(
                f"{self.names[1]} caches what it computed from {', '.join(stale)}: its answer does not change with its values"
            )
        for path in followed[:1]:
            for few in (Sprinkled(_drawn(), share, by) for share, by in FEW):
                seen = self._tried([mine[path], theirs[path]], few, fresh, head, old)
                if seen is not None and seen[0].status == "failed" and not seen[1]:
                    return LATER + STILL.format(f"part of {path}")
                if seen is not None:
                    break
        return ""

    def _changeable(self, item: Any, path: str) -> bool:
        if isinstance(item, CHANGING):
            return are_numbers(item)
        leaf = self.be.seen(item, path)
        return leaf is not None and (verify.is_floating(leaf.dtype) or in_any_order(leaf.data))

    def _changes(self, item: Any, path: str) -> Iterator[Change]:
        """Yield changes, those that keep structure first; integers repeat only on the CPU, where a bad index cannot break the device."""
        if isinstance(item, list):
            yield rolled
        elif verify.is_floating(self.be.seen(item, path).dtype):
            yield from (halved, negated, Sprinkled(_drawn(), 0.5, -0.5))
        else:
            yield Reordered(_drawn(), drawn=False)
            if self.be.device == "cpu":
                yield Reordered(_drawn(), drawn=True)

    def _tried(self, arrays: Sequence[Any], change: Change, fresh: Task, head: Task, old: list[Leaf]) -> tuple[Verification, bool] | None:
        """Compare the answers to changed inputs; also returns whether the head's moved. None if the base's does not move, or fails."""
        with contextlib.ExitStack() as stack, contextlib.suppress(Exception):
            for array in arrays:
                if not stack.enter_context(altered(self.be, array, change)):
                    return None
            found, want, got = self._held_against(fresh, head)
            if not _moved(want, old):
                return None
            return found, found.status != "failed" or _moved(got, old)
        return None

    def _weigh_error(self, found: Verification, task: Task, want: list[Leaf], got: list[Leaf]) -> None:
        """Note an error far above the base's own, if the base can be computed in double precision."""
        if not suspicious(found, got):
            return
        wide = self.be.upcast(task)
        if wide is not None and (times := error_to_plain(got, want, self.be.outputs(wide()))) > COARSE:
            self.notes.append(f"{self.names[1]}: {NOTE.format(times, self.names[0])}")

    def _notice(self, fresh: Task, head: Task) -> None:
        """Note where answers are in memory, and threads that work besides the calling one."""
        one = head()
        first = list(extents(one))
        two = head()
        if where := shared_memory(first, list(extents(two)), inputs(head)):
            own = fresh()
            begun = list(extents(own))
            if shared_memory(begun, list(extents(fresh())), inputs(fresh)) != where:
                self.notes.append(f"{self.names[1]}: the memory of its answer is {where}")
        del one, two
        ours, theirs = other_threads(self.be, (head, fresh))
        if ours - theirs >= BUSY:
            self.notes.append(f"{self.names[1]}: its other threads kept {ours:.1f} CPUs busy, those of {self.names[0]} {theirs:.1f}")


def _moved(answer: Sequence[Leaf], old: Sequence[Leaf]) -> bool:
    """Whether an answer differs from the one before and has no more values that are not finite."""
    if len(answer) != len(old) or any(
        verify.infinite(new) > verify.infinite(was) for new, was in zip(answer, old, strict=True) if verify.is_floating(new.dtype)
    ):
        return False
    return verify.compare(answer, old, "", same_dtype=False).status == "failed"


def _drawn() -> int:
    return random.SystemRandom().randrange(2**31)
