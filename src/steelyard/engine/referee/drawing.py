"""Processes that draw inputs in parallel with the examiner; with one process, a small kernel's trial would mostly wait for inputs."""

from __future__ import annotations

import hashlib
import itertools
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from steelyard.engine.conversation import Conversation, Lost
from steelyard.engine.launch import Worker
from steelyard.engine.messages import Prepare
from steelyard.engine.referee.parcel import SharedMemory, arrays
from steelyard.engine.referee.partner import Ended, Partner

DRAWING = "steelyard.engine.referee.examining"
SUBJECT = "a process that draws inputs"
MOST = 14
TRIED = (1, 2)
"""Draws in which a process has to agree with the examiner before it is used."""
FEWEST = 4
"""Fewest draws that are worth more than one process."""
MOST_LOCKED = 4 << 30
"""Most bytes of inputs that are locked in memory for a device: locking takes time in every candidate's process, as does copying without."""


def count(cpus: int, device: str) -> int:
    """Return how many processes draw inputs: seven in eight CPUs if candidates run on a device, otherwise all but one; at most MOST."""
    return max(1, min(MOST, cpus * 7 // 8 if device != "cpu" else cpus - 1))


@dataclass
class Drawers:
    """The processes that draw inputs; one is used only if its first draws are the same as the examiner's.

    They have no expected answers. If inputs do not depend on the seed alone, other processes draw other inputs; then the examiner
    draws alone. `worker` starts a process, `words` is the examiner's job with its nonce, `most` the draws that are needed at a time, `each`
    the bytes of one.
    """

    worker: Callable[[], Worker]
    words: Mapping[str, Any]
    folder: Path
    most: int
    each: int
    patience: float
    talks: list[Conversation] = field(default_factory=list)
    partners: list[Partner] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    prepared: dict[int, Partner] = field(default_factory=dict)
    """Numbers whose inputs have been drawn already, each with the process that keeps them."""

    def start(self, number: int, torch: bool) -> None:
        """Start this many processes, without waiting for them."""
        for _ in range(number):
            talk = Conversation(self.worker(), subject=SUBJECT)
            talk.ask(Prepare("torch" if torch else "numpy", "cpu", modules=(DRAWING,)), self.patience)
            self.talks.append(talk)
            self.files.append(SharedMemory.create(self.folder / f"inputs-{uuid.uuid4().hex}", self._size(number)).path)

    def ready(self, examiner: Partner, inputs: str) -> bool:
        """Wait for started processes, and compare their first draws with the examiner's; return whether any were waited for."""
        talks, self.talks = self.talks, []
        if not talks:
            return False
        files, self.files = self.files, []
        wanted, _ = examiner.step("draw", numbers=list(TRIED), wide="")
        known = content(wanted["slots"], SharedMemory.open(inputs))
        for talk, file in zip(talks, files, strict=True):
            partner = Partner(talk, self.patience)
            if not any(isinstance(answer, Lost) for answer in talk.answers()) and self._agrees(partner, file, known):
                partner.remember()
                self.partners.append(partner)
                self.files.append(file)
            else:
                partner.close()
        return True

    def _size(self, desks: int) -> int:
        """The bytes of one process's share of the draws."""
        return max(len(TRIED), -(-self.most // desks)) * self.each

    @property
    def locks(self) -> bool:
        """Whether stands lock the files in memory for a device."""
        return self.words["device"] != "cpu" and len(self.files) * self._size(max(1, len(self.files))) <= MOST_LOCKED

    def _agrees(self, partner: Partner, file: str, known: bytes) -> bool:
        try:
            partner.begin(DRAWING, self.words)
            partner.step("lay", inputs=file)
            found, _ = partner.step("draw", numbers=list(TRIED), wide="")
        except Ended:
            return False
        return content(found["slots"], SharedMemory.open(file)) == known

    def prepare(self, numbers: Sequence[int]) -> None:
        """Have inputs drawn that will be requested one by one; no other process can see them before."""
        self.prepared.clear()
        if len(self.partners) >= FEWEST:
            parts = shares(numbers, len(self.partners))
            waits = [desk.hand("prepare", numbers=part) for desk, part in zip(self.partners, parts, strict=True)]
            for desk, part, read in zip(self.partners, parts, [wait() for wait in waits], strict=True):
                read()
                self.prepared |= dict.fromkeys(part, desk)

    def desks(self, examiner: Partner, numbers: Sequence[int]) -> list[Partner]:
        """Return the processes that will draw these inputs; on the CPU the examiner is one of them."""
        if len(numbers) == 1 and numbers[0] in self.prepared:
            return [self.prepared[numbers[0]]]
        if len(numbers) < FEWEST or not self.partners:
            return [examiner]
        return [*self.partners, *([examiner] if self.words["device"] == "cpu" else [])]

    def draw(self, examiner: Partner, numbers: Sequence[int]) -> list[Mapping[str, Any]]:
        """Return the inputs of these draws, each process drawing a share."""
        desks = self.desks(examiner, numbers)
        parts = shares(numbers, len(desks))
        waits = [desk.hand("draw", numbers=part, wide="") for desk, part in zip(desks, parts, strict=True)]
        found: list[Mapping[str, Any]] = []
        for desk, read in zip(desks, [wait() for wait in waits], strict=True):
            slots = read()["slots"]
            file = "" if desk is examiner else self.files[place_of(desk, self.partners)]
            found += [{**slot, "file": file} for slot in slots] if file else list(slots)
        return found

    def holds(self, examiner: Partner, slot: Mapping[str, Any], number: int) -> bool:
        """Whether inputs in shared memory are still as they were drawn, according to the process that drew them."""
        place = self.files.index(slot["file"]) if slot.get("file") else -1
        found, _ = (self.partners[place] if place >= 0 else examiner).step("held", slot=slot, number=number)
        return bool(found["held"])

    def close(self) -> None:
        """End the processes."""
        for partner in self.partners:
            partner.close()
        for talk in self.talks:
            talk.worker.stop()
        self.partners.clear()
        self.prepared.clear()
        self.talks.clear()
        self.files.clear()

    @property
    def pids(self) -> Iterator[int]:
        """The process ids of all of them, also of those still starting."""
        yield from (partner.pid for partner in self.partners)
        yield from (talk.worker.pid for talk in self.talks)


def place_of(desk: Partner, partners: Sequence[Partner]) -> int:
    """Return the place of a process among others."""
    return next(place for place, partner in enumerate(partners) if partner is desk)


def shares(numbers: Sequence[int], count: int) -> list[list[int]]:
    """Divide numbers into this many parts, whose sizes differ by one at most."""
    ends = [len(numbers) * place // count for place in range(count + 1)]
    return [list(numbers[start:end]) for start, end in itertools.pairwise(ends)]


def content(slots: Sequence[Mapping[str, Any]], memory: SharedMemory) -> bytes:
    """Return a digest of drawn inputs: their form, and the bytes of their arrays."""
    made = hashlib.blake2b(digest_size=16)
    for slot in slots:
        for item in arrays(slot):
            made.update(repr([item[name] for name in ("library", "dtype", "shape", "strides", "bytes")]).encode())
            made.update(memory.at(item["start"], item["bytes"]).tobytes())
        made.update(repr(_plain(slot)).encode())
    return made.digest()


def _plain(spec: Mapping[str, Any]) -> Any:
    """Return the tree without its arrays."""
    if "items" in spec:
        return [spec.get("kind"), spec.get("keys"), [_plain(item) for item in spec["items"]]]
    return spec.get("value")
