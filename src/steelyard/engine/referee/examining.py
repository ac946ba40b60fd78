"""The examiner's process: inputs go out as bytes, answers come back as bytes, and expected answers never leave the process."""

from __future__ import annotations

import contextlib
import functools
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from steelyard.engine.process import close_to_others, recycle_memory
from steelyard.engine.referee.examiner import Examiner
from steelyard.engine.referee.parcel import SharedMemory, arrays, pack, prepare_tensors, size_of, unpack
from steelyard.engine.referee.stand import Hear, Say, told_failure, tuples
from steelyard.measuring.leaves import arrays_of
from steelyard.model.judging import Contract, Problem
from steelyard.model.record import Verification

MOST_KEPT, KEPT_BYTES = 512, 1 << 28
"""How many draws' inputs are remembered, and how many bytes of them, unless the last step has more."""


def perform(words: Mapping[str, Any], say: Say, hear: Hear) -> None:
    """Load a problem and do the judge's steps with it until there are no more."""
    close_to_others()
    recycle_memory()
    if words["torch"]:
        prepare_tensors().use_threads(words["threads"])
    problem = Problem(**{**words["problem"], "contract": Contract(**tuples(words["problem"]["contract"]))})
    device = "cpu" if words.get("draws") else words["device"]
    desk = Desk(lambda: Examiner(problem, device, words["threads"]), bytes.fromhex(words["nonce"]))
    say(told_failure(desk.begin_drawing if words.get("draws") else desk.open))
    while (step := hear(0.0)) is not None:
        say({"token": step.words["token"], **told_failure(functools.partial(desk.do, step.words))})


@dataclass
class Desk:
    """A problem with the inputs that were handed out for it."""

    pose: Any
    nonce: bytes
    handed: dict[tuple[int, str], Sequence[Any]] = field(default_factory=dict)
    memory: SharedMemory | None = None
    scratch: SharedMemory = field(default_factory=SharedMemory.private)
    """Where inputs are written again to compare them with what is in shared memory; always the same pages, because new ones take longer."""
    keeps: int = 0
    """Draws whose inputs are remembered, or those of the last step if they are more; others are drawn again from their number."""
    last: int = 1
    """How many draws the last step asked for."""
    ahead: dict[int, Sequence[Any]] = field(default_factory=dict)
    """Inputs that were drawn already, and that are not in shared memory yet."""

    def begin_drawing(self) -> Mapping[str, Any]:
        """Load the reference only to draw inputs, on the host: inputs are kept until the next ones are drawn."""
        self.examiner = self.pose()
        return {}

    def open(self) -> Mapping[str, Any]:
        """Load the reference; return the sizes of inputs and answers, and all that is known of the problem itself."""
        self.examiner = self.pose()
        inputs = self._inputs(0)
        self.keeps = min(MOST_KEPT, KEPT_BYTES // max(1, sum(int(array.nbytes) for array in arrays_of(list(inputs)))))
        answer = self.examiner.answer(inputs)
        spec, given = pack(answer, SharedMemory.private()), pack(tuple(inputs), SharedMemory.private())
        posed = self.examiner.posed
        init, weights = pack(tuple(posed.init), SharedMemory.private()), pack(dict(posed.weights), SharedMemory.private())
        return {
            "answer": spec, "input_bytes": size_of(given), "output_bytes": size_of(spec), "arrays": len(inputs),
            "provision_bytes": size_of(init) + size_of(weights),
            "scale": [list(pair) for pair in self.examiner.scale(self.nonce)],
            "tricks": [[trick.kind, trick.words, trick.voids] for trick in self.examiner.weakness(self.nonce)],
            "widenings": self.examiner.widenings(self.nonce),
            "least_bytes": self.examiner.least_bytes(self.nonce), "device_name": str(self.examiner.be.facts().get("device_name", "")),
        }  # fmt: skip

    def do(self, words: Mapping[str, Any]) -> Mapping[str, Any]:
        """Do one step, by its name."""
        if words["do"] == "share":
            self.memory = SharedMemory.open(words["inputs"], grows=True)
            goods = SharedMemory.open(words["provisions"])
            posed = self.examiner.posed
            return {"init": pack(tuple(posed.init), goods), "weights": pack(dict(posed.weights), goods)}
        if words["do"] == "lay":
            self.memory = SharedMemory.open(words["inputs"], grows=True)
            return {}
        if words["do"] == "prepare":
            self.ahead = {number: self.examiner.draw(self.nonce, number, "") for number in words["numbers"]}
            return {}
        if words["do"] == "draw":
            return {"slots": self.draw(words["numbers"], words["wide"])}
        if words["do"] == "held":
            assert self.memory is not None
            return {"held": not self._changed(self.memory, words["slot"], self._inputs(words["number"]))}
        return {"found": self.verify(SharedMemory.open(words["outputs"]), words["items"], words["wide"])}

    def draw(self, numbers: Sequence[int], wide: str) -> list[Mapping[str, Any]]:
        """Draw new inputs into shared memory, in place of those that were there."""
        assert self.memory is not None
        self.memory.used = 0
        if not self.keeps:
            self.handed.clear()
        self.last = len(numbers)
        return [pack(tuple(self._inputs(number, wide)), self.memory) for number in numbers]

    def _inputs(self, number: int, wide: str = "") -> Sequence[Any]:
        found = self.handed.get((number, wide))
        if found is None:
            known = None if wide else self.ahead.pop(number, None)
            found = self.handed[number, wide] = self.examiner.draw(self.nonce, number, wide) if known is None else known
            while len(self.handed) > max(self.keeps, self.last):
                self.handed.pop(next(iter(self.handed)))
        return found

    def verify(self, memory: SharedMemory, items: Sequence[Mapping[str, Any]], wide: str) -> list[Mapping[str, Any]]:
        """Check each answer: return what is wrong with it, if anything, and what is known of where it comes from."""
        return [self._verified(memory, item, wide) for item in items]

    def _verified(self, memory: SharedMemory, item: Mapping[str, Any], wide: str) -> Mapping[str, Any]:
        spec, number = item["output"], item["number"]
        if "unreadable" in spec:
            return {"status": "failed", "message": spec["unreadable"], "lazy": True}
        inputs = self._inputs(number, wide)
        answer = unpack(spec, memory, self.examiner.device)
        found: Verification = self.examiner.check(inputs, answer)
        told: dict[str, Any] = {
            "status": found.status, "message": found.message, "identical": found.identical, "figures": dict(found.figures),
            "max_abs": found.max_abs, "max_rel": found.max_rel, "against": found.against, "code": found.code,
        }  # fmt: skip
        if found.status == "failed" or item.get("digest"):
            told["digest"] = hashlib.blake2b(b"".join(map(memoryview, _bytes(memory, spec))), digest_size=16).hexdigest()
        told["null"] = self.examiner.equals_null(inputs, answer)
        if found.status == "failed":
            told["class"] = next((str(each["class"]) for each in arrays(spec) if "class" in each), "")
            told["like"] = self._like(answer, number, item.get("others", ()), wide)
        if item.get("inputs") is not None:
            told["changed"] = self._changed(memory, item["inputs"], inputs)
        return told

    def _like(self, answer: Any, number: int, others: Sequence[int], wide: str) -> int | None:
        """Return the draw whose answer this is instead, among those that the candidate was called with."""
        for other in others:
            with contextlib.suppress(Exception):
                if other != number and self.examiner.check(self._inputs(other, wide), answer).status == "passed":
                    return other
        return None

    def _changed(self, memory: SharedMemory, spec: Mapping[str, Any], inputs: Sequence[Any]) -> list[int]:
        """Return the places of the inputs whose bytes have changed since they were drawn."""
        if "unreadable" in spec:
            return [0]
        self.scratch.used = 0
        before = pack(tuple(inputs), self.scratch)
        pairs = zip(spec["items"], before["items"], strict=False)
        return [place for place, (now, was) in enumerate(pairs) if not _same(_bytes(memory, now), _bytes(self.scratch, was))]


def _bytes(memory: SharedMemory, spec: Mapping[str, Any]) -> list[Any]:
    return [memory.at(item["start"], item["bytes"]) for item in arrays(spec)]


def _same(now: Sequence[Any], was: Sequence[Any]) -> bool:
    return len(now) == len(was) and all(map(np.array_equal, now, was))
