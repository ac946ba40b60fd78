"""Checks a task's answers and inputs before and after it is timed: what is right once may be wrong a thousand calls later.

After timing the task is called once more, with other values in the same input buffers if its reference can use them,
so that an answer kept from an earlier call does not look like a fast one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from steelyard.backends._litter import sketch
from steelyard.backends.base import Leaf
from steelyard.engine.answering import Answering
from steelyard.engine.changes import (
    CHANGING,
    FEW,
    Replaced,
    Sprinkled,
    altered,
    are_numbers,
    halved,
    inputs,
    negated,
    prints,
    rolled,
    spoiled,
)
from steelyard.engine.extents import extents, shared_memory
from steelyard.engine.pace import kept_by_value
from steelyard.engine.precision import measured_error
from steelyard.engine.reference import FIRST, Unlike, judge, kept, proof, reference
from steelyard.errors import told
from steelyard.measuring import verify
from steelyard.model.record import Verification
from steelyard.model.task import Task, clean_up, observed

MOST_TRIALS = 4
LATER, OTHER, INPUTS = "answer after timing", "answer after timing, other values in {}", "inputs unchanged"
COPY = "answer after timing, the inputs copied to another place"
BETWEEN, PACE, PART = "answer between timed blocks", "pace with values never seen before", "answer after timing, other values in part of {}"
MEMORY = "output_memory"
OTHER_SEED = 7919
DECLARE = "Task(prepare=…) restores inputs before each call, Task(in_place=True) says that they are meant to change"


class Scrutiny(Answering):
    """Checks one task from its building to the end of its timing; made before its first call."""

    def first(self, task: Task, output: Any) -> Verification | None:
        """Compare the first answer with the best reference, and report which that was; both are kept for later."""
        self.task = task
        if not self.wanted:
            return None
        if task.unverified:
            self.verification = Verification("none", "", task.unverified)
            return self.verification
        got = self.be.outputs(output)
        self._sketches = [sketch(leaf) for leaf in got]
        self.found = reference(self.bench, self.be, task)
        if self.found[0] is None:
            self.before, self.verification = kept(self.be, got), Verification("none", "", self.found[1])
        else:
            self.before, self.verification = self.found[0], self._noted(judge(self.bench, self.be, task, got, self.found), FIRST)
            self._prove()
            self.verification = measured_error(self.bench, self.be, task, got, self.found, self.verification)
        return self.verification

    def _prove(self) -> None:
        """If an answer was compared with the same framework, also check that this computes what the workload means."""
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
        """Check after timing that the inputs are unchanged, and that the answer is right, for other values too.

        `task` is for one whose first answer was not checked.
        """
        if task is not None and self.wanted:
            self.task = task
            self.before = kept(self.be, self.be.outputs(self._call())) if not task.unverified else None
            self._sketches = [sketch(leaf) for leaf in self.before or ()]
        if not self._open():
            return self.verification
        if self.prints and not self._inputs_hold():
            return self.verification
        self._paced()
        if not self._open():
            return self.verification
        for trial in (self._others, self._same):
            if trial():
                break
        for further in (self._partly, self._placed):
            if self._open():
                further()
        if self._doubt is not None and self._open():
            self.verification = self._noted(self._doubt, BETWEEN)
        return self.verification

    def glance(self) -> None:
        """Check one call between timed blocks, at a random moment: its answer must be right as well."""
        still = self._lasting() and self.built.prepare is None and self.bench.case.mode not in ("train", "bwd")
        if still and self._open() and self.found is not None and self.found[0] is not None:
            seen = judge(self.bench, self.be, self._timed, self.be.outputs(observed(self._timed)), self.found)
            if seen.status == "failed":
                self._doubt = replace(seen, message=f"right at first, but not while it was timed: {seen.message}")
            elif self.verification is not None:
                self.verification = replace(self.verification, checks=[*self.verification.checks, BETWEEN])

    def answer_of(self, copy: Task) -> list[Leaf] | None:
        """The answer of a copy that was built elsewhere for timing; None if it may differ from the task's own."""
        if not self.wanted or copy.unverified or not self._lasting() or self.bench.case.mode == "train":
            return None
        output = observed(copy)
        self.be.sync()
        return kept(self.be, self.be.outputs(output))

    def copied(self, answer: list[Leaf] | None) -> Verification | None:
        """Check a copy's answer after timing; its inputs have the same values as the task's."""
        if answer is None or not self._open():
            return self.verification
        found = self._wanted_answer()
        if found[0] is not None:
            self._take(judge(self.bench, self.be, self._timed, answer, found), COPY)
        elif self.before is not None and not self.varies:
            self._take(self._compared(answer, self.before), COPY)
        return self.verification

    def repeat(self) -> Verification | None:
        """Check the answer of one more call; ranks have only this, because all of them must make the same calls."""
        if self.wanted and self._lasting() and self.task is not None and not self.task.unverified:
            got = self.be.outputs(self._call())
            if self._open() and self.found is not None and self.found[0] is not None:
                self._take(judge(self.bench, self.be, self.task, got, self.found), LATER)
        return self.verification

    def _inputs_hold(self) -> bool:
        """Whether inputs are unchanged; buffers for results, caches and running statistics may change."""
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
        """The inputs that every further call adds; a cache that the first call filled does not count."""
        if given.keys() <= self.places:
            return []
        self._call()
        return sorted(self._given().keys() - given.keys())

    def _harmless(self, array: Any) -> bool:
        """Whether the content of an array before a call does not matter: the answer does not depend on it, or the call overwrites it.

        A call with other content in it shows both.
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
        """Check answers to other values in the same buffers; return whether the reference could be computed for any."""
        unknown = self.before is None or (self.found is not None and self.found[0] is None)
        if unknown or self.built.prepare or not self._lasting() or self.bench.case.mode == "bwd":
            return False
        stale, trials = "", 0
        for path, array in inputs(self.built).items():
            if path not in self.prints or (isinstance(array, CHANGING) and not are_numbers(array)):
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
                    self._followed = path if found.status == "passed" else ""
                    if stale:
                        self.facts["kept_inputs"] = f"the answer does not follow other values in {stale}, only in {path}"
                    return True
                stale = stale or path
                break
        if not stale and self._redrawn():
            return True
        if stale:
            self._take(
                Verification("failed", "", f"the answer is still that for the old values; it does not follow {stale}"),
                OTHER.format(stale),
            )
        return bool(stale)

    def _redrawn(self) -> bool:
        """Check the answer to whole numbers from another seed of the workload; return whether there were any that it should depend on."""
        items = {path: self.be.seen(item, path) for path, item in inputs(self.built).items() if path in self.prints}
        paths = [path for path, leaf in items.items() if leaf is not None and not verify.is_floating(leaf.dtype) and leaf.shape]
        if not paths:
            return False
        drawn: list[Task] = []
        try:
            other, task = replace(self.bench, settings=replace(self.bench.settings, seed=self.bench.settings.seed + OTHER_SEED)).build()
            drawn.append(task)
            given = inputs(task)
            for path in paths:
                leaf = other.seen(given.get(path), path)
                if leaf is None or verify.is_floating(leaf.dtype) or leaf.data.shape != leaf.shape:
                    continue
                answer = self._answer_to(path, inputs(self.built)[path], Replaced(np.array(leaf.data)))
                if answer is None:
                    continue
                found, moved = answer
                if found.status == "failed" and not moved:
                    found = Verification("failed", "", f"the answer is still that for the old values; it does not follow {path}")
                self._take(found, OTHER.format(path))
                return True
        except Exception:
            return False
        finally:
            clean_up(drawn)
        return False

    def _partly(self) -> None:
        """Check the answer to other values in a few places: it must change, unless the reference does not change either."""
        array = inputs(self.built).get(self._followed)
        if not self._followed or isinstance(array, list):
            return
        for change in (Sprinkled(self._drawn(), share, by) for share, by in FEW):
            with contextlib.suppress(Exception):
                with altered(self.be, array, change) as done:
                    moved = done and self._moved_at_sight(self.be.outputs(self._call()))
                if moved or not done:
                    return
                answer = self._answer_to(self._followed, array, change)
                if answer is not None and not answer[1]:
                    words = f"the answer is still that for the old values; it does not follow part of {self._followed}"
                    self._take(Verification("failed", "", words), PART.format(self._followed))
                if answer is not None:
                    return

    def _drawn(self) -> int:
        return int(np.random.default_rng().integers(2**31))

    def _paced(self) -> None:
        """Check that new values take no longer than the timed ones, or no more so than for the plain task."""
        if not self._steady() or not self.prints or self.verification is None:
            return
        others: list[Task] = []

        def plain() -> Task:
            be, task = self.bench.standard(self._timed)
            others.append(task)
            return self.bench.ready(be, task)

        varied = not all(variant.asked for variant, _ in self.bench.chain)
        try:
            message = kept_by_value(self.be, self._timed, plain if varied else None, self._drawn())
        except Exception:
            return
        finally:
            clean_up(others)
        if message:
            self.verification = self._noted(Verification("failed", "", message), PACE)
        else:
            self.verification = replace(self.verification, checks=[*self.verification.checks, PACE])

    def _placed(self) -> None:
        """Note where answers are in memory, if that is in an input or always in the same place."""
        if not self._steady() or self.built.in_place:
            return
        with contextlib.suppress(Exception):
            one = observed(self._timed)
            first = list(extents(one))
            two = observed(self._timed)
            if found := shared_memory(first, list(extents(two)), inputs(self.built)):
                self.facts[MEMORY] = found
            self.be.sync()
            del one, two

    def _same(self) -> bool:
        """Compare the answer to the current values with the reference, or without one with the first answer."""
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
