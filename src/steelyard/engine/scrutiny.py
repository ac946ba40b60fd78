"""A task's answers and inputs, looked at before and after it is timed: what is right once may be wrong a thousand calls later.

After timing the task is called once more, with other values in the same input buffers where its reference can follow them,
so that an answer that was kept from an earlier call does not pass for a fast one.
"""

from __future__ import annotations

import collections
import contextlib
import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from steelyard.backends.base import Leaf
from steelyard.engine.bench import Bench
from steelyard.engine.reference import FIRST, Alike, Unlike, as_built, judge, kept, proof, reference
from steelyard.errors import told
from steelyard.measuring import verify
from steelyard.model.record import Verification
from steelyard.model.task import Task, observed

MOST_TRIALS = 4
LATER, OTHER, INPUTS = "answer after timing", "answer after timing, other values in {}", "inputs unchanged"
COPY = "answer after timing, the inputs copied to another place"
DECLARE = "Task(prepare=…) restores inputs before each call, Task(in_place=True) says that they are meant to change"

CHANGING = (list, set, collections.deque, bytearray)
LEAST_GRADIENT = 0.9
"""However small gradients have become: an answer of nothing but zeros is off by 1."""

Found = tuple[Any, str, bool]


def halved(x: Any) -> Any:
    """Other values of the same signs, order and structure: what is sorted, masked or positive stays so."""
    return x * 0.5


def negated(x: Any) -> Any:
    """For answers that do not depend on scale."""
    return -x


def rolled(x: Any) -> Any:
    """For lists of numbers, which may be indices or sizes: the same ones in another order."""
    return [*x[1:], *x[:1]]


def spoiled(x: Any) -> Any:
    """Values unlikely as results; integers, which may be indices, all become their minimum."""
    return -1 - x if _floating(x) else x * 0 + x.min()


def _floating(x: Any) -> bool:
    return bool(x.dtype.kind in "fc") if isinstance(x, np.ndarray) else bool(x.is_floating_point() or x.is_complex())


def inputs(task: Task) -> dict[str, Any]:
    """Everything that goes into a call, by place: `args[0]`, `kwargs.mask`, `args[1][2]`; a list of plain values is one thing."""
    return dict([*_places(tuple(task.args), "args"), *_places(dict(task.kwargs), "kwargs")])


def _places(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _places(item, f"{path}.{key}")
    elif isinstance(value, tuple) or (isinstance(value, list) and not _plain_list(value)):
        for index, item in enumerate(value):
            yield from _places(item, f"{path}[{index}]")
    else:
        yield path, value


def _numbers(value: Any) -> bool:
    return isinstance(value, list) and len(value) > 1 and all(type(item) in (int, float) for item in value)


def _plain_list(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, (str, int, float, complex, type(None))) for item in value)


def prints(be: Any, items: Mapping[str, Any]) -> dict[str, str]:
    """A fingerprint of each input that can change: arrays, lists of plain values, sets, queues, bytes."""
    made = {}
    for path, item in items.items():
        with contextlib.suppress(Exception):
            found = be.fingerprint(item)
            if found is None and isinstance(item, CHANGING):
                found = hashlib.blake2b(repr(item).encode(), digest_size=16).hexdigest()
            if found is not None:
                made[path] = found
    return made


@contextlib.contextmanager
def altered(be: Any, array: Any, change: Callable[[Any], Any]) -> Iterator[bool]:
    """Change an array's values in place for the body; yields whether that worked."""
    if isinstance(array, list):
        before, array[:] = list(array), change(array)
        try:
            yield array != before
        finally:
            array[:] = before
        return
    try:
        before = be.copy(array)
        done = before is not array and be.alter(array, change)
    except (RuntimeError, MemoryError):
        done = False
    try:
        yield done
    finally:
        if done:
            be.alter(array, lambda _: before)


@dataclass
class Scrutiny:
    """One task between its building and the end of its timing; made before its first call."""

    bench: Bench
    be: Any
    built: Task
    task: Task | None = None
    before: list[Leaf] | None = None
    found: Found | None = None
    verification: Verification | None = None
    varies: bool = False
    """Its answers differ from call to call, and nothing says which is right."""

    def __post_init__(self) -> None:
        self.wanted = self.bench.settings.scrutinised and self.built.fn is not None and not self.built.rule
        still = self.wanted and not (self.built.prepare or self.built.in_place or self.built.unverified or not self.built.repeatable)
        given = self._given() if still and self.bench.case.mode != "bwd" else {}
        self.prints, self.places = prints(self.be, given), frozenset(given)
        """Fingerprints of inputs; none for the backward pass alone."""

    def first(self, task: Task, output: Any) -> Verification | None:
        """Compare the first answer with the best reference there is, and say which that was; both are kept for later."""
        self.task = task
        if not self.wanted:
            return None
        if task.unverified:
            self.verification = Verification("none", "", task.unverified)
            return self.verification
        got = self.be.outputs(output)
        self.found = reference(self.bench, self.be, task)
        if self.found[0] is None:
            self.before, self.verification = kept(self.be, got), Verification("none", "", self.found[1])
        else:
            self.before, self.verification = self.found[0], self._noted(judge(self.bench, self.be, task, got, self.found), FIRST)
            self._prove()
        return self.verification

    def _prove(self) -> None:
        """Where an answer was held against the same framework, also show that this computes what the workload means."""
        if self.verification is None or self.verification.status != "passed" or self.found is None:
            return
        try:
            shown = proof(self.bench, self.be, self.found[1])
        except Exception as error:
            self.verification = self._noted(self.verification, f"not by numpy at a small size: {told(error, 200)}")
            return
        if shown is not None and shown.status == "failed":
            self.verification = shown
        elif shown is not None:
            self.verification = self._noted(self.verification, shown.checks[0])

    def again(self, task: Task | None = None) -> Verification | None:
        """What holds after timing: the inputs are as they were, and the answer is right, for other values too.

        `task` is for one whose first answer was not looked at.
        """
        if task is not None and self.wanted:
            self.task = task
            self.before = kept(self.be, self.be.outputs(self._call())) if not task.unverified else None
        if not self._open():
            return self.verification
        if self.prints and not self._inputs_hold():
            return self.verification
        for trial in (self._others, self._same):
            if trial():
                break
        return self.verification

    def answer_of(self, copy: Task) -> list[Leaf] | None:
        """What a copy answers that was built elsewhere for timing; None where it need not be what the task itself answers."""
        if not self.wanted or copy.unverified or not self._lasting() or self.bench.case.mode == "train":
            return None
        output = observed(copy)
        self.be.sync()
        return kept(self.be, self.be.outputs(output))

    def copied(self, answer: list[Leaf] | None) -> Verification | None:
        """What holds after timing of a copy with this answer; its inputs have the values of the task's own."""
        if answer is None or not self._open():
            return self.verification
        found = self._wanted_answer()
        if found[0] is not None:
            self._take(judge(self.bench, self.be, self._timed, answer, found), COPY)
        elif self.before is not None and not self.varies:
            self._take(self._compared(answer, self.before), COPY)
        return self.verification

    def repeat(self) -> Verification | None:
        """The answer of one more call; ranks have only this, since all of them must make the same calls."""
        if self.wanted and self._lasting() and self.task is not None and not self.task.unverified:
            got = self.be.outputs(self._call())
            if self._open() and self.found is not None and self.found[0] is not None:
                self._take(judge(self.bench, self.be, self.task, got, self.found), LATER)
        return self.verification

    def _given(self) -> dict[str, Any]:
        """What calls must leave as it is; training moves weights."""
        trained = {id(item) for item in self.built.parameters} if self.bench.case.mode == "train" else set()
        return {path: item for path, item in inputs(self.built).items() if id(item) not in trained}

    def _open(self) -> bool:
        """Whether there is anything left to find out."""
        decided = self.verification is not None and self.verification.status == "failed"
        return self.wanted and self.task is not None and not self.task.unverified and not decided

    def _lasting(self) -> bool:
        """Whether a later call is meant to give the answer of the first."""
        return not self.built.in_place and (self.built.repeatable or self.built.prepare is not None)

    @property
    def _timed(self) -> Task:
        """The task as its mode runs it."""
        assert self.task is not None
        return self.task

    def _call(self) -> Any:
        output = observed(self._timed)
        self.be.sync()
        return output

    def _noted(self, found: Verification, check: str) -> Verification:
        done = self.verification.checks if self.verification else []
        return replace(found, checks=[*done, check])

    def _take(self, found: Verification, check: str) -> None:
        """The worse of what was known and what was found now."""
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

    def _inputs_hold(self) -> bool:
        """Whether inputs are as they were; buffers for results, caches and running statistics may change."""
        given = self._given()
        now = prints(self.be, given)
        changed = [path for path, was in self.prints.items() if now.get(path) != was]
        for path in changed:
            del self.prints[path]
        read = [path for path in changed if path in given and not self._harmless(given[path])]
        read += [*self.places - given.keys(), *self._grown(given)]
        if not read:
            known = self.verification or Verification("none")
            self.verification = replace(known, checks=[*known.checks, INPUTS]) if not changed else known
            return True
        which = f"{', '.join(sorted(set(read)))} {'was' if len(set(read)) == 1 else 'were'}"
        message = f"{which} changed by the timed calls, so they did not compute what the first one did; {DECLARE}"
        self.verification = self._noted(Verification("failed", "", message), INPUTS)
        return False

    def _grown(self, given: Mapping[str, Any]) -> list[str]:
        """What calls add to their inputs again and again; a cache that the first of them filled is none of it."""
        if given.keys() <= self.places:
            return []
        self._call()
        return sorted(self._given().keys() - given.keys())

    def _harmless(self, array: Any) -> bool:
        """Whether it does not matter what is in an array before a call: the answer does not depend on it, or the call writes over it.

        Both are seen by a call with something else in it.
        """
        leaf = self.be.leaf(array)
        if leaf is None:
            return False
        left, usual = np.array(leaf[1]), kept(self.be, self.be.outputs(self._call()))
        with altered(self.be, array, spoiled) as done:
            if not done:
                return True
            spoilt = np.array(self.be.leaf(array)[1])
            try:
                answer = kept(self.be, self.be.outputs(self._call()))
            except Exception:
                return False
            after = np.array(self.be.leaf(array)[1])
        if usual and self._compared(answer, usual).status == "passed":
            return True
        same = after == left
        if left.dtype.kind in "fc":
            rtol, atol = verify.tolerance(leaf[0])
            with np.errstate(all="ignore"):
                same |= np.abs(after - left) <= atol * float(np.abs(left).max(initial=0.0)) + rtol * np.abs(left)
            same |= np.isnan(after) & np.isnan(left)
        untouched = after == spoilt
        return bool(np.array_equal(spoilt, left) or ((same | untouched).all() and not untouched.all()))

    def _others(self) -> bool:
        """The answer to other values in the same buffers; whether there were any that the reference could be computed for."""
        unknown = self.before is None or (self.found is not None and self.found[0] is None)
        if unknown or self.built.prepare or not self._lasting() or self.bench.case.mode == "bwd":
            return False
        stale, trials = "", 0
        for path, array in inputs(self.built).items():
            if path not in self.prints or (isinstance(array, CHANGING) and not _numbers(array)):
                continue
            for change in (rolled,) if isinstance(array, list) else (halved, negated):
                if trials == MOST_TRIALS:
                    break
                trials += 1
                answer = self._answer_to(path, array, change)
                if answer is None:
                    continue
                found, moved = answer
                if found.status == "passed" or moved:
                    self._take(found, OTHER.format(path))
                    return True
                stale = stale or path
                break
        if stale:
            self._take(
                Verification("failed", "", f"the answer is still that for the old values; it does not follow {stale}"),
                OTHER.format(stale),
            )
        return bool(stale)

    def _answer_to(self, path: str, array: Any, change: Callable[[Any], Any]) -> tuple[Verification, bool] | None:
        """How the answer to a changed input compares, and whether it differs from before; None where unknown."""
        leaf = self.be.seen(array, path)
        if not isinstance(array, list) and (leaf is None or not verify.is_floating(leaf.dtype)):
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

    def _moved(self, answer: Sequence[Leaf]) -> bool:
        """Whether an answer is another than the one before, and no worse to compare: values that are not finite hide what is wrong."""
        assert self.before is not None
        if len(answer) != len(self.before) or any(_broken(new) > _broken(old) for new, old in zip(answer, self.before, strict=True)):
            return False
        return self._compared(answer, self.before).status == "failed"

    def _compared(self, one: Sequence[Leaf], other: Sequence[Leaf]) -> Verification:
        """Two answers of this task, or of it and its reference, within what the task itself allows."""
        task = self._timed
        shares = task.norm_tolerance, task.whole_tolerance
        return verify.compare(one, other, "its first answer", own=task.tolerance, same_dtype=False, norm=shares[0], whole=shares[1])

    def _judged(self, got: list[Leaf], found: Found) -> Verification:
        """Hold a later answer against the reference.

        Gradients of a model that timing has trained are what is left of larger terms, and rounding is a share of those: they
        are held to the size that they had at first.
        """
        seen = judge(self.bench, self.be, self._timed, got, found)
        allowed = self._timed.norm_tolerance
        if seen.status != "failed" or self.bench.case.mode != "train" or allowed is None or not self.before:
            return seen
        first, now = map(_gradient, (self.before, found[0]))
        wider = min(LEAST_GRADIENT, allowed * max(1.0, first / now)) if now > 0 else LEAST_GRADIENT
        return judge(self.bench, self.be, replace(self._timed, norm_tolerance=wider), got, found)

    def _alike(self, path: str | None = None, was: Leaf | list[Any] | None = None, change: Callable[[Any], Any] = halved) -> Alike:
        """A fresh task of the reference with the weights that training has moved by now, and with the changed input."""

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
        """Whether an input of a fresh task is changed already, as where both share it; one that was another before is no such input."""
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

    def _same(self) -> bool:
        """Check the answer to the current values against the reference, or without one against the first answer."""
        if not self._lasting():
            return False
        if self.bench.case.mode == "train":
            try:
                found = reference(self.bench, self.be, self._timed, self._alike())
            except Unlike:
                return False
        else:
            found = self._wanted_answer()
        if found[0] is not None:
            self._take(self._judged(self.be.outputs(self._call()), found), LATER)
        elif self.bench.case.mode != "train":
            self._first_again()
        return True

    def _wanted_answer(self) -> Found:
        """What is right for the values there are, found once."""
        self.found = self.found or reference(self.bench, self.be, self._timed, as_built)
        return self.found

    def _first_again(self) -> None:
        """Without a reference, a later answer that differs and stays so is wrong; one that keeps changing is random."""
        if self.before is None:
            return
        answer = kept(self.be, self.be.outputs(self._call()))
        known = self.verification or Verification("none", "", self.found[1] if self.found else "")
        found = self._compared(answer, self.before)
        if found.status != "failed":
            self.verification = replace(known, checks=[*known.checks, f"{LATER}, as the first"])
        elif self._compared(self.be.outputs(self._call()), answer).status == "failed":
            self.varies = True
            self.verification = replace(known, message=f"{known.message}; its answers differ from call to call".lstrip("; "))
        else:
            self._take(found, LATER)


def _gradient(answer: Sequence[Leaf]) -> float:
    """The length of all gradients together."""
    return math.hypot(*(verify.length(leaf) for leaf in answer if verify.is_gradient(leaf.path)))


def _broken(leaf: Leaf) -> int:
    """How many values are not finite."""
    return verify.infinite(leaf) if verify.is_floating(leaf.dtype) else 0


def _carry(other: Any, ours: Sequence[Any], theirs: Sequence[Any]) -> None:
    """Give a fresh task the weights of the timed one."""
    if len(ours) != len(theirs):
        raise Unlike
    for mine, fresh in zip(ours, theirs, strict=True):
        if mine.shape != fresh.shape or (mine is not fresh and not other.alter(fresh, lambda _, mine=mine: mine)):
            raise Unlike
