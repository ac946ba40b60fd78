"""Judges one candidate: checks its answers, and times its calls one by one and in blocks, against the reference in another process.

The judge stamps every step with its own clock. A candidate that moves work out of the calls moves it into a step that is stamped as
well, and one whose answers come from anything but the inputs of the call is wrong, because no inputs of calls that count are used twice.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from steelyard.engine.referee.charges import amortised, by_time
from steelyard.engine.referee.court import Court
from steelyard.engine.referee.evidence import Block, Evidence
from steelyard.engine.referee.gains import undecided
from steelyard.engine.referee.options import BUDGETS
from steelyard.engine.referee.partner import Partner
from steelyard.model.judging import Submission

CHECKS, SERIAL, WIDE = 3, 10, 3
MOST_SERIAL = 200
"""Most calls one by one, if fewer do not show whether they save as much time as blocks do."""
TOGETHER = 3
"""Calls in a row whose outputs must all be right afterwards."""
BLOCK = {"cpu": 1.5e-3}
DEVICE_BLOCK = 4e-3
"""Seconds of work that a block should have, so that the cost of requesting it is a small part."""
FEWEST_ROUNDS, MOST_ROUNDS = 6, {"cpu": 24}
"""Rounds in the usual budget; on a device no more than the fewest, because each needs new inputs, which the host draws."""
WARM_UPS = {"cpu": 5}
"""Turns of both arms before those that count; on a device one, which takes the memory that is needed from the system."""
AUDITED, FEWEST_AUDITS = 0.25, 3
AUDITED_QUICK, AUDITED_SLOW = 0.5, 0.05
"""How often the answer of a call by itself is checked: mostly after a quick call, because a call that gives no answer is quicker."""
SHOWN, SHOWN_DEVICE = 0.5, 1.0
"""How often the reference shows its outputs as well, to measure what showing costs: only after the candidate's turn, because the
candidate could read them, or see from them that its own will be checked."""
VERIFIED = 2
"""Outputs of an audited block that are verified, chosen after the block."""
OTHERS = 24
LATE = 0.02
"""Seconds until a wrong answer is checked again, in case a thread is still writing it."""
EQUAL = 10
"""How often a wrong candidate is called again with the same inputs, at most: memory for outputs has one of two noises, and several calls
can get the same one."""
COARSE = 0.1
"""A wrong answer that is off by less than this share of the answers' spread is a precision problem."""


class Void(Exception):
    """Ends a trial early: the candidate is wrong."""


@dataclass
class Hearing:
    """A loaded candidate with the reference's stands, and all checks of it."""

    court: Court
    head: Partner
    seen: Evidence
    rng: random.Random = field(default_factory=random.SystemRandom)
    asked: list[int] = field(default_factory=list)
    """Draws that the candidate was called with so far."""

    def check(self) -> None:
        """Check answers to a few draws, each by itself and several together, and then inputs, aliases and settings."""
        for _ in range(CHECKS):
            self._alone(self.court.numbers(1)[0], inputs=True)
        contract = self.court.problem.contract
        if not contract.in_place and not contract.fills_outputs:
            self._aliases()
        if not contract.reuses_output:
            self._together()
        for wide in self.court.opening.widenings[:WIDE]:
            self._widened(wide)
        self._flags()

    def _flags(self) -> None:
        """Add a finding if settings of the process are not as they were before the candidate was loaded."""
        if changed := self.head.step("state")[0]["changed"]:
            self.seen.tell("flags", f"{', '.join(changed[:4])} left changed for the whole process")

    def _alone(self, number: int, *, inputs: bool = False) -> Mapping[str, Any]:
        """Do one call with the inputs of one draw, and return what the examiner finds about its answer."""
        self._land(self.court.draw([number]))
        self.head.step("call")
        return self._shown([number], [0], inputs=inputs)[0]

    def _land(self, slots: Sequence[Mapping[str, Any]]) -> None:
        self.head.step("land", slots=list(slots))

    def _shown(self, numbers: Sequence[int], which: Sequence[int], *, inputs: bool = False, wide: str = "") -> list[Mapping[str, Any]]:
        """Have some outputs shown and verified; the first that is wrong ends the trial."""
        shown, _ = self.head.step("show", which=list(which), inputs=inputs)
        return self._judged(shown, numbers, which, wide)

    def _judged(self, shown: Mapping[str, Any], numbers: Sequence[int], which: Sequence[int], wide: str = "") -> list[Mapping[str, Any]]:
        items = [
            {"number": numbers[place], "output": output, "others": [*numbers, *self.asked[-OTHERS:]],
             "inputs": shown["inputs"][index] if shown["inputs"] else None}
            for index, (place, output) in enumerate(zip(which, shown["outputs"], strict=True))
        ]  # fmt: skip
        found = self.court.verify(self.head, items, wide)
        for place, item in zip(which, found, strict=True):
            if not wide:
                self._take(item, numbers[place], numbers)
        self.asked += numbers
        return found

    def _take(self, found: Mapping[str, Any], number: int, together: Sequence[int]) -> None:
        seen = self.seen
        seen.checked.append(found)
        if found["status"] == "failed":
            seen.wrong = found
            self._explain(found, number, together)
            raise Void
        if (changed := found.get("changed")) and not self.court.problem.contract.in_place:
            places = ", ".join(str(place) for place in changed)
            seen.tell("changed-inputs", f"input {places} is not as it was before the call; a contract may declare in_place")
            raise Void
        if found.get("null"):
            seen.tell("trivial", f"its answer is that of a candidate that computes nothing ({found['null']}), which passes this problem")

    def _explain(self, found: Mapping[str, Any], number: int, together: Sequence[int]) -> None:
        """Add a finding on where a wrong answer comes from, if that can be seen."""
        if found.get("lazy") or found.get("class"):
            self.seen.tell("lazy", f"{found.get('class') or 'the output'}: its memory does not contain the answer: {found['message']}")
        elif found.get("like") is not None:
            later = found["like"] in together and together.index(found["like"]) > (together.index(number) if number in together else 0)
            if later:
                self.seen.tell("kept-output", "the output of a call has the answer of a later one; a contract may declare reuses_output")
            else:
                self.seen.tell("replay", "the answer is that of an earlier call")
        elif self._late(found, together.index(number)):
            self.seen.tell("unfinished", "the answer was still being written after its call had returned")
        elif _error(found) < COARSE:
            self.seen.tell("precision", "close to the answer, but further off than the admitted arithmetic explains")
            self._flags()
        elif self._unwritten(number):
            self.seen.tell("stale", "part of the answer is what was in memory before: equal inputs give other values there")
        elif len(self.seen.checked) > 1 and self.seen.checked[0]["status"] == "passed":
            self.seen.tell("replay", "right at first and wrong for inputs that came later")

    def _late(self, found: Mapping[str, Any], place: int) -> bool:
        """Whether the memory of a wrong answer has changed although nothing was called since."""
        time.sleep(LATE)
        shown, _ = self.head.step("show", which=[place], inputs=False)
        item = {"number": self.asked[-1] if self.asked else 0, "output": shown["outputs"][0], "others": [], "inputs": None, "digest": True}
        return self.court.verify(self.head, [item])[0].get("digest") != found.get("digest")

    def _unwritten(self, number: int) -> bool:
        """Whether the answer to equal inputs depends on what was in memory before; tested only if the candidate is wrong.

        Other calls are made in between, inputs are overwritten before they are freed, and free memory gets new noise before each call.
        """
        digests = set()
        for other in self.court.numbers(EQUAL):
            for each in (other, number):
                self.head.step("spoil")
                self._land(self.court.draw([each]))
                self.head.step("litter")
                self.head.step("call")
            shown, _ = self.head.step("show", which=[0], inputs=False)
            item = {"number": number, "output": shown["outputs"][0], "others": [], "inputs": None, "digest": True}
            digests.add(self.court.verify(self.head, [item])[0].get("digest"))
            if len(digests) > 1:
                return True
        return False

    def _aliases(self) -> None:
        """Overwrite the inputs of the last call and check its output again."""
        number = self.asked[-1]
        self.head.step("spoil")
        shown, _ = self.head.step("show", which=[0], inputs=False)
        item = {"number": number, "output": shown["outputs"][0], "others": [], "inputs": None}
        if self.court.verify(self.head, [item])[0]["status"] == "failed":
            self.seen.tell("aliased", "the output shares memory with an input: it changes when the input is overwritten")
            raise Void

    def _together(self) -> None:
        count = min(TOGETHER, self.court.opening.calls)
        numbers = self.court.numbers(count)
        self._land(self.court.draw(numbers))
        self.head.step("call")
        self._shown(numbers, range(count))

    def begin_again(self) -> None:
        """Check the first answers of another process of the same candidate."""
        if self.court.problem.contract.reuses_output:
            self._alone(self.court.numbers(1)[0])
        else:
            self._together()

    def _widened(self, wide: str) -> None:
        number = self.court.numbers(1)[0]
        self._land(self.court.draw([number], wide))
        self.head.step("call")
        found = self._shown([number], [0], wide=wide)[0]
        if found["status"] == "failed":
            if found.get("null"):
                words = f"for wider inputs ({wide}) its answer is that of a candidate that computes nothing ({found['null']})"
                self.seen.tell("trivial", words)
            known = any(trick.kind == "trivial" for trick in self.seen.tricks)
            self.seen.tell("narrow", f"wrong for wider inputs ({wide}): {found['message']}", voids=known)

    def one_by_one(self, base: Partner) -> None:
        """Time single calls of both arms, each with inputs copied in just before; some answers are taken at once, chosen after the call."""
        drawn = self.court.numbers(SERIAL)
        begun = not self.seen.serial
        self.court.prepare(drawn)
        for turn, number in enumerate(drawn):
            numbers = [number]
            slots, times = self.court.draw(numbers), [0.0, 0.0]
            for arm in self.rng.sample((0, 1), 2):
                partner = (base, self.head)[arm]
                with self._turn(base, arm):
                    partner.step("land", slots=slots)
                    times[arm], _ = self.court.timed(partner, "call")
                    if not arm:
                        self.court.hold(slots, numbers, 0)
                    elif (begun and turn < 2) or self.rng.random() < self._suspicion(times[1]):
                        self._shown(numbers, [0])
            if begun:
                self.seen.empty.append(self._empty(base))
            self.seen.serial.append((times[0], times[1]))

    def _suspicion(self, took: float) -> float:
        """The chance that the answer of a single call is checked: high for one that is quicker than three in four of those before."""
        known = sorted(head for _, head in self.seen.serial)
        return AUDITED_QUICK if not known or took <= known[len(known) // 4] else AUDITED_SLOW

    def confirm(self, base: Partner) -> None:
        """Continue with calls one by one until they confirm the gain of the blocks or rule it out, or the candidate's budget is spent."""
        spent = 0.0
        while undecided(self.seen.claim, self.seen.serial) and len(self.seen.serial) < MOST_SERIAL and spent < self.court.options.budget:
            self.one_by_one(base)
            spent += sum(map(sum, self.seen.serial[-SERIAL:]))

    def in_doubt(self, pair: int, *, last: bool) -> bool:
        """Whether times of this pair are evidence against the candidate; they are forgotten then, to be measured again."""
        by_blocks = last and bool(amortised(self.seen, self.court.options.device))
        if not by_blocks and not by_time(self.seen.of(pair)):
            return False
        self.seen.set_aside(pair)
        if by_blocks:
            self.seen.serial.clear()
        return True

    def _turn(self, base: Partner, arm: int) -> _Turn:
        return _Turn(base, self.head, arm)

    def _empty(self, base: Partner) -> float:
        with self._turn(base, 0):
            return self.court.timed(base, "wait")[0]

    def in_blocks(self, base: Partner, pair: int, budget: float) -> None:
        """Time rounds of blocks, every arm twice in drawn order; some blocks are audited, chosen after their calls."""
        most = self._block_calls()
        seconds = sum(statistics.median(times) for times in zip(*self.seen.serial, strict=True))
        usual = MOST_ROUNDS.get(self.court.options.device, FEWEST_ROUNDS)
        rounds = min(round(usual * self.court.options.budget / BUDGETS["normal"]), int(budget / max(2 * most * seconds, 1e-9)))
        rounds = max(FEWEST_ROUNDS, rounds)
        audits, shown = 0, SHOWN_DEVICE if self.court.on_device else SHOWN
        self._warm_up(base, most, budget)
        for number in range(rounds):
            calls = self.rng.randint(max(1, most // 2), most)
            numbers = self.court.numbers(2 * calls)
            slots = self.court.draw(numbers)
            order = self.rng.sample((0, 1), 2)
            chosen = [self.rng.random() < AUDITED for _ in range(2)]
            if number >= rounds - FEWEST_AUDITS and audits < FEWEST_AUDITS:
                chosen[self.rng.randrange(2)] = True
            audits += sum(chosen)
            for turn, arm in enumerate((*order, *order[::-1])):
                half = turn // 2
                mine = slice(half * calls, (half + 1) * calls)
                look = chosen[half] if arm else bool(turn % 2) and self.rng.random() < shown
                with self._turn(base, arm):
                    self._block(base, (pair, number, half, arm), slots[mine], numbers[mine], audit=look)
            self.seen.empty.append(self._empty(base))

    def _warm_up(self, base: Partner, most: int, budget: float) -> None:
        """Call both arms in turn as often as the longest block does: what is new to a process or has left the CPU's caches takes longer."""
        slots, until = self.court.draw(self.court.numbers(most)), time.monotonic() + budget
        for _ in range(WARM_UPS.get(self.court.options.device, 1)):
            for arm in self.rng.sample((0, 1), 2):
                partner = (base, self.head)[arm]
                with self._turn(base, arm):
                    partner.step("land", slots=slots)
                    partner.step("call")
            if time.monotonic() > until:
                return

    def _block(self, base: Partner, place: tuple[int, ...], slots: Sequence[Any], numbers: Sequence[int], *, audit: bool) -> None:
        pair, number, half, arm = place
        partner = (base, self.head)[arm]
        begun = self._cpu(partner)
        _, land = partner.step("land", slots=list(slots))
        landed = self._cpu(partner)
        took, roused = self.court.timed(partner, "call")
        called = self._cpu(partner)
        show, shown = None, None
        which = [len(slots) - 1] if self.court.problem.contract.reuses_output else list(range(len(slots)))
        if audit:
            shown, show = partner.step("show", which=which, inputs=False)
        around = self._cpu(partner) - called + landed - begun
        shown_outputs = len(which) if audit else 0
        cpu = called - landed
        self.seen.blocks.append(Block(pair, number, half, arm, len(slots), land, took, show, cpu, around, roused, shown_outputs))
        if not arm:
            self.court.hold(slots, numbers, self.rng.randrange(len(slots)))
        if shown is not None and arm:
            picked = self.rng.sample(range(len(which)), min(VERIFIED, len(which)))
            part = {"outputs": [shown["outputs"][index] for index in picked], "inputs": []}
            self._judged(part, numbers, [which[index] for index in picked])

    def _cpu(self, partner: Partner) -> float:
        """The CPU seconds of a process so far; NaN on a device, where they say nothing about how long calls take."""
        return math.nan if self.court.on_device else partner.cpu()

    def _block_calls(self) -> int:
        """Calls in the longest block: enough work for the judge's clock, and no more inputs than fit."""
        overhead = self.seen.overhead
        call = max(1e-7, min(statistics.median(times) for times in zip(*self.seen.serial, strict=True)) - overhead)
        wanted = BLOCK.get(self.court.options.device, DEVICE_BLOCK)
        fitting: int = round(max(wanted, 10 * overhead) / call)
        return max(1, min(self.court.opening.calls, fitting))


def _error(found: Mapping[str, Any]) -> float:
    """How far off an answer is, as a share of the answers' spread; infinity if that is not a number."""
    error = (found.get("figures") or {}).get("error", 1.0)
    return math.inf if error is None else float(error)


@dataclass
class _Turn:
    """The turn of one arm: the process of the other, with all that it has started, is stopped meanwhile.

    Both are treated alike, because a process that gets a signal takes time from the one that runs.
    """

    base: Partner
    head: Partner
    arm: int

    def __enter__(self) -> None:
        (self.head, self.base)[self.arm].pause()
        if not self.arm:
            self.base.check_untouched()

    def __exit__(self, *_: object) -> None:
        (self.head, self.base)[self.arm].resume()


def hear(court: Court, submission: Submission, pairs: int, stand: Callable[[int], Partner]) -> Evidence:
    """Judge one candidate as far as it gets; `stand` returns the reference's stand for each pair of processes.

    A candidate's process that ends raises `Ended`; what was found before is lost, because none of it can be trusted. If times are evidence
    against the candidate, one pair is measured again with another process of it, and what that shows counts: processes of the same code
    differ, also in how fast they copy and launch.
    """
    seen, repeated = Evidence(), False
    places = list(range(pairs))
    for turn, pair in enumerate(places):
        head, facts = court.seat(submission)
        seen.facts.update(facts)
        trial = Hearing(court, head, seen)
        try:
            if turn == 0:
                trial.check()
                trial.one_by_one(stand(0))
            else:
                trial.begin_again()
                if not seen.serial:
                    trial.one_by_one(stand(pair))
            trial.in_blocks(stand(pair), pair, court.options.budget / pairs)
            if turn == len(places) - 1:
                trial.confirm(stand(pair))
            if not repeated and trial.in_doubt(pair, last=turn == len(places) - 1):
                repeated = True
                places.append(pair)
            elif turn == len(places) - 1 and court.options.kernels:
                seen.facts["kernels"] = head.step("kernels")[0]["kernels"]
        except Void:
            return seen
        finally:
            if left := court.unseat(head, wait=turn < len(places) - 1):
                seen.tell("left-behind", f"processes that it had started were still running: {len(left)}", voids=False)
    return seen
