"""The processes and the shared memory of one problem: an examiner, stands for the reference, and a stand for each candidate."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from steelyard.engine import envs
from steelyard.engine.conversation import Conversation, Lost
from steelyard.engine.launch import Nursery, Worker, nursery_modules, start_fresh
from steelyard.engine.limits import MemoryLimit
from steelyard.engine.messages import Prepare
from steelyard.engine.place import Place
from steelyard.engine.process import end_orphans, keep_orphans
from steelyard.engine.referee.drawing import MOST_LOCKED, Drawers, count
from steelyard.engine.referee.needs import calls_for_fresh, uses_torch
from steelyard.engine.referee.options import JudgeOptions
from steelyard.engine.referee.parcel import ALIGNMENT, SharedMemory
from steelyard.engine.referee.partner import Ended, Partner, Sabotaged, restored, send, settings
from steelyard.engine.referee.room import room_for_calls, room_for_drawers
from steelyard.engine.referee.seats import OutputFile, Spare, Stander
from steelyard.engine.referee.sound import sound_facts
from steelyard.errors import UsageError
from steelyard.machine.cpu import affinity
from steelyard.model.judging import Problem, Submission, Trick

TRITON_CACHE = "triton"
"""The folder of a stand in which Triton keeps what it compiles."""
EXAMINER, STAND = "steelyard.engine.referee.examining", "steelyard.engine.referee.stand"
CANDIDATE, NURSERY = "the candidate", "the process that starts the others"
REPLACED = "other files were put in place of the judge's while this candidate was judged"
PREFIX = "steelyard-court-"
FAST_FOLDER = Path("/dev/shm")
MOST_CALLS = 64
READY = {"cpu": 8 << 20}
DEVICE_READY = 64 << 20
"""Bytes of outputs for which memory is provided before a stand starts; a device's blocks have more calls."""
HEAP, KEPT_HEAP = 4, 60 << 20
"""Times the memory of the longest block that a stand on the CPU takes in advance, and the most bytes that the C library keeps."""
START_PATIENCE = 180.0
AWAKE, FEWEST_CPUS = (20e-3, 2e-3), 4
"""Seconds that the judge waits for a stand, and a stand for the judge, without sleeping, on machines with this many CPUs: a process needs
more time to wake up than a device for its kernels."""
USUAL_DRAWS, WORTH_STARTING = 300, 10.0
"""A candidate is called with so many inputs; if drawing them takes this many seconds, it pays to start processes that draw for it alone."""
SOON = 0.05
"""Seconds in which the end of a process shows after the ends of those that it had started."""
FIRST = 2
"""Interpreters that are started besides the examiner's on a device: for the reference and the first candidate."""


@dataclass(frozen=True)
class Opening:
    """What the examiner knows of the problem: sizes, how an answer looks, its scale, weak spots, and what may be widened."""

    input_bytes: int
    output_bytes: int
    provision_bytes: int
    arrays: int
    answer: Mapping[str, Any]
    scale: Sequence[Sequence[float]]
    least_bytes: float
    widenings: tuple[str, ...]
    device_name: str
    tricks: tuple[Trick, ...]
    room: int
    """Most bytes of inputs and outputs that are ready at a time, unless one call needs more."""

    @property
    def calls(self) -> int:
        """How many calls' inputs and outputs fit into shared memory at a time."""
        each = _rounded(self.input_bytes, self.arrays) + _rounded(self.output_bytes, 8)
        return max(1, min(MOST_CALLS, self.room // max(each, 1)))


@dataclass
class Court:
    """One problem with all that belongs to judging it; no process and no file is left behind."""

    problem: Problem
    options: JudgeOptions
    place: Place
    torch: bool
    folder: Path
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)
    nursery: Nursery | None = None
    bases: list[Stander] = field(default_factory=list)
    spares: list[Spare] = field(default_factory=list)
    idle: list[OutputFile] = field(default_factory=list)
    """Files for outputs that no stand uses now."""
    files: dict[str, tuple[int, int] | None] = field(default_factory=dict)
    """Files shared with stands, each with its identity when it was made, because later processes open them by name."""
    spoilt: bool = False
    """Whether one of these files has been replaced."""
    triton: bool = False
    """Whether a candidate is written in Triton, as far as is known: interpreters then load it in advance."""
    launches: dict[str, bytes] = field(default_factory=dict)
    """What Triton had the C compiler make in the reference's process, for the folders of later ones: it takes longest to compile."""
    many: bool = False
    """Whether many candidates are judged, so that processes to draw inputs pay off."""
    drawing: bool = False
    """Whether processes that draw inputs besides the examiner were started."""
    drawn: int = 0
    one_draw: float = 0.0
    """Seconds of the examiner's last draw."""
    seated: int = 0
    calm: dict[int, float] = field(default_factory=dict)
    """Seconds that a call of the reference took in each of its stands before any candidate ran."""
    until: float | None = None
    """The deadline of the current candidate."""
    leaving: list[Partner] = field(default_factory=list)
    """Stands that were killed and may not have ended yet."""
    heard: Partner | None = None
    """The current candidate: it is stopped while inputs are drawn and answers are checked."""

    @classmethod
    @contextlib.contextmanager
    def open(cls, problem: Problem, options: JudgeOptions, *, triton: bool = False) -> Iterator[Court]:
        """Start the examiner and have it pose the problem; `triton` says whether a candidate is written in Triton."""
        torch = uses_torch(problem)
        place = Place(threads=options.threads)
        place = envs.place(options.env, place) if options.env else envs.place_for("torch" if torch else "numpy", place)
        root = FAST_FOLDER if FAST_FOLDER.is_dir() and os.access(FAST_FOLDER, os.W_OK) else None
        keep_orphans()
        sweep(root)
        court = cls(problem, options, place, torch, Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=root)), triton=triton)
        try:
            court._begin()
            yield court
        finally:
            court._close()
            keep_orphans(False)

    @property
    def on_device(self) -> bool:
        """Whether candidates run on a device: then each has an interpreter of its own, because contexts do not survive a fork."""
        return self.options.device != "cpu"

    def _begin(self) -> None:
        self.make_ready(FIRST)
        if not self.on_device:
            self.nursery = Nursery(self.place, (*nursery_modules("torch" if self.torch else "numpy"), EXAMINER, STAND), self.mark)
            self.nursery_settings = settings(self.nursery.process.pid)
        self.examiner = Partner(Conversation(self._worker(fresh=False), subject="the examiner"), START_PATIENCE)
        secret = self._words() | {"nonce": os.urandom(16).hex()}
        told = dict(self.examiner.begin(EXAMINER, secret))
        told["tricks"] = tuple(Trick(*item) for item in told["tricks"])
        self.opening = Opening(**{**told, "widenings": tuple(told["widenings"])}, room=room_for_calls(self.options.memory, self.folder))
        self._share()
        self.examiner.remember()
        each = _rounded(self.opening.input_bytes, self.opening.arrays)
        self.drawers = Drawers(
            lambda: self._worker(fresh=False), secret | {"draws": True}, self.folder, 2 * self.opening.calls, each, START_PATIENCE
        )

    def draw_in_parallel(self) -> bool:
        """Have several processes draw inputs if that pays off; return whether they have just become ready.

        With many candidates they start at the first one and draw from the second on; they are waited for if drawing takes long. The
        reference's stands open the files that they write to before a candidate runs, which could replace these files.
        """
        slow = self.one_draw * USUAL_DRAWS > WORTH_STARTING
        if not slow and not self.many:
            return False
        started, self.drawing = self.drawing, True
        number = min(count(len(affinity()), self.options.device), room_for_drawers(self.opening.input_bytes))
        if not started and number:
            self.drawers.start(number, self.torch)
            self.files |= {path: _inode(path) for path in self.drawers.files}
        if (started or slow) and self.drawers.ready(self.examiner, self.inputs):
            for base in self.bases:
                base.step("open", files=self.drawers.files, locks=self.drawers.locks)
            return True
        return False

    @property
    def awake(self) -> tuple[float, float]:
        """Seconds that the judge waits for a stand, and a stand for the judge, without sleeping."""
        return AWAKE if self.on_device and len(affinity()) >= FEWEST_CPUS else (0.0, 0.0)

    def timed(self, partner: Partner, do: str) -> tuple[float, float]:
        """Return the seconds that a step takes while interpreters that load are stopped, which would disturb it, and those of rousing.

        A stand of a device exchanges a few words with the judge before, so that neither has to wake up; it could use that to work.
        """
        talks = [*(spare.talk for spare in self.spares), *self.drawers.talks]
        began, loading, roused = time.monotonic(), [talk.worker.pid for talk in talks], 0.0
        try:
            send(loading, signal.SIGSTOP)
            if self.on_device:
                roused = partner.step("wait")[1]
            return partner.step(do)[1], roused
        finally:
            send(loading, signal.SIGCONT)
            for talk in talks:
                talk.deadline = None if talk.deadline is None else talk.deadline + time.monotonic() - began

    @property
    def locks(self) -> bool:
        """Whether stands lock the examiner's inputs in memory for a device, which is not worth it if other processes draw most."""
        size = 2 * self.opening.calls * _rounded(self.opening.input_bytes, self.opening.arrays)
        return self.on_device and not self.many and size <= MOST_LOCKED

    def begin_again(self) -> None:
        """Start the examiner and the reference again because a candidate has ended some; what was drawn before is gone."""
        self.see_off()
        for partner in (*self.bases, self.examiner):
            partner.close()
        self.drawers.close()
        self.drawing, self.spoilt = False, False
        self.bases.clear()
        self.idle.clear()
        for spare in self.spares:
            spare.talk.worker.stop()
        self.spares.clear()
        if self.nursery is not None:
            self.nursery.stop()
        end_orphans(self.mark, [spare.talk.worker.pid for spare in self.spares])
        self._remove_folder()
        self.folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=self.folder.parent))
        self._begin()

    def _remove_folder(self) -> None:
        """Remove the folder, or whatever a candidate has put in its place."""
        if self.folder.is_dir() and not self.folder.is_symlink():
            shutil.rmtree(self.folder, ignore_errors=True)
        else:
            self.folder.unlink(missing_ok=True)

    def lost_files(self) -> bool:
        """Whether a candidate has removed files that the judge shares with stands, or put others in their place."""
        others = any(_inode(path) != was for path, was in self.files.items()) or not all(file.intact for file in self.idle)
        self.spoilt = self.spoilt or others
        return self.spoilt

    def lost_nursery(self) -> bool:
        """Whether the process that starts the others has ended; all that it has started end with it, and that may be noticed first."""
        if self.nursery is None:
            return False
        until = time.monotonic() + SOON
        while self.nursery.process.poll() is None:
            if time.monotonic() > until:
                return False
            time.sleep(SOON / 10)
        return True

    def untouched(self, asked: Sequence[Partner] | None = None) -> None:
        """Raise `Sabotaged` if a candidate has changed the judge's own files or processes: all, or those that will be asked next."""
        if self.nursery is not None and (done := restored(self.nursery.process.pid, self.nursery_settings)):
            raise Sabotaged(f"{NURSERY} {done} while this candidate was judged")
        if self.lost_files():
            raise Sabotaged(REPLACED)
        for partner in self.own if asked is None else asked:
            partner.check_untouched()

    @property
    def own(self) -> list[Partner]:
        """The judge's own processes, in which no candidate's code runs."""
        return [self.examiner, *self.drawers.partners, *self.bases]

    def _share(self) -> None:
        calls = self.opening.calls
        inputs = 2 * calls * _rounded(self.opening.input_bytes, self.opening.arrays)
        self.inputs = SharedMemory.create(self.folder / "inputs", inputs).path
        goods = SharedMemory.create(self.folder / "provisions", _rounded(self.opening.provision_bytes, 4096)).path
        self.files = {path: _inode(path) for path in (self.inputs, goods)}
        specs, _ = self.examiner.step("share", inputs=self.inputs, provisions=goods)
        self.provisions = {"file": goods, "init": specs["init"], "weights": specs["weights"], "seed": 42}

    def _words(self) -> dict[str, Any]:
        problem = asdict(self.problem)
        return {"problem": problem, "device": self.options.device, "threads": self.options.threads, "torch": self.torch}

    def _worker(self, *, fresh: bool) -> Worker:
        if self.nursery is not None and not fresh:
            try:
                return self.nursery.fork()
            except UsageError as error:
                raise Ended("crashed", str(error), subject=NURSERY, lost=True) from None
        return start_fresh(self.place, self.mark)

    def seat(self, submission: Submission | None) -> tuple[Stander, Mapping[str, Any]]:
        """Start a stand for a candidate, or for the reference if there is none; return it with the facts that loading it reported."""
        base = submission is None
        self.untouched()
        self.seated += 1
        folder = Path(tempfile.mkdtemp(prefix=f"stand-{self.seated}-", dir=self.folder))
        room = self.opening.calls * (_rounded(self.opening.output_bytes, 64) + _rounded(self.opening.input_bytes, self.opening.arrays))
        outputs = self._output_file(2 * room)
        fresh = self.on_device or (submission is not None and calls_for_fresh(submission))
        talk, triton = self._talk(fresh=fresh, base=base)
        if triton:
            self._lay_launches(folder / TRITON_CACHE)
        words = self._words() | {
            "base": base, "candidate": None if submission is None else asdict(submission), "contract": asdict(self.problem.contract),
            "folder": str(folder), "inputs": self.inputs, "locks": self.locks,
            "others": self.drawers.files if self.drawers.partners else [], "locks_others": self.drawers.locks,
            "outputs": outputs.path, "ready": outputs.ready, "provisions": self.provisions,
            "scale": self.opening.scale, "answer": self.opening.answer, "awake": self.awake[1],
            "heap": 0 if self.on_device else min(KEPT_HEAP, HEAP * room),
        }  # fmt: skip
        partner = Stander(talk, self.options.timeout, folders=(folder, *([Path(triton)] if triton else ())), outputs=outputs)
        partner.talk.awake = self.awake[0]
        partner.until, partner.limit = None if base else self.until, self.options.limit
        try:
            if not self.on_device and self.options.threads == 1:
                partner.pin({max(affinity())})
            told = partner.begin(STAND, words, max(self.options.timeout, START_PATIENCE if base else 0.0))
            partner.remember()
        except BaseException:
            self.unseat(partner)
            raise
        if base and triton:
            self.launches = {str(file.relative_to(triton)): file.read_bytes() for file in Path(triton).glob("*/*.so")}
        if not base:
            self.heard = partner
        return partner, sound_facts(told.get("facts"))

    def _output_file(self, size: int) -> OutputFile:
        """Return a file for outputs that no stand uses, or a new one with memory for the longest block, or for a part of that."""
        while self.idle:
            if (found := self.idle.pop()).intact:
                return found
        ready = min(READY.get(self.options.device, DEVICE_READY), self.opening.calls * _rounded(self.opening.output_bytes, 8))
        return OutputFile.create(self.folder / f"outputs-{uuid.uuid4().hex}", size, ready)

    def _talk(self, *, fresh: bool, base: bool) -> tuple[Conversation, str]:
        """Return a worker for a stand, with the folder in which it has compiled what Triton needs, if it has."""
        subject = "the reference" if base else CANDIDATE
        triton = ""
        talk = None
        while fresh and self.spares and talk is None:
            spare = self.spares.pop(0)
            if not any(isinstance(answer, Lost) for answer in spare.talk.answers()):
                talk, triton = spare.talk, spare.triton
                talk.subject = subject
        if talk is None:
            talk = Conversation(self._worker(fresh=fresh), subject=subject)
        if self.options.memory is not None and not base:
            talk.limit = MemoryLimit.create(self.options.memory, f"{os.getpid()}-{talk.worker.pid}")
            talk.limit.admit(talk.worker.pid)
        return talk, triton

    def _lay_launches(self, folder: Path) -> None:
        for path, content in self.launches.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content)

    def make_ready(self, count: int) -> None:
        """Start interpreters for later candidates, which import the framework and wake the device meanwhile."""
        while self.on_device and len(self.spares) < count:
            spare = Spare(
                Conversation(start_fresh(self.place, self.mark)), tempfile.mkdtemp(prefix="triton-", dir=self.folder) if self.triton else ""
            )
            if spare.triton:
                self._lay_launches(Path(spare.triton))
            locks = self.drawers.files if hasattr(self, "drawers") and self.drawers.locks else ()
            job = Prepare("torch", self.options.device, triton=spare.triton, locks=tuple(locks), modules=(STAND,))
            spare.talk.ask(job, START_PATIENCE)
            self.spares.append(spare)

    def unseat(self, partner: Partner, *, wait: bool = True) -> list[int]:
        """End a stand with all that it has started, and remove its files; return the processes below it that were still running.

        Without `wait` it is killed at once, and waited for when calls of the next one will be timed, or when that one has ended: a device
        needs a tenth of a second to take back what a process had.
        """
        self.see_off()
        left = partner.left_running()
        self.heard = None if partner is self.heard else self.heard
        partner.kill()
        self.leaving.append(partner)
        if wait or not self.on_device:
            self.see_off()
        else:
            end_orphans(self.mark, self._known())
        return left

    def see_off(self) -> None:
        """Wait for the stands that were killed, and end and remove what they have left."""
        if not self.leaving:
            return
        for partner in self.leaving:
            partner.close()
            if partner.talk.limit is not None:
                partner.talk.limit.release()
            if isinstance(partner, Stander):
                if partner.outputs.intact:
                    self.idle.append(partner.outputs)
                else:
                    partner.outputs.remove()
                for folder in partner.folders:
                    shutil.rmtree(folder, ignore_errors=True)
        self.leaving.clear()
        end_orphans(self.mark, self._known())
        if self.nursery is not None and self.nursery.process.poll() is None:
            self.nursery.sweep(self._known())

    def _known(self) -> list[int]:
        found = [
            self.examiner.pid,
            *self.drawers.pids,
            *(base.pid for base in self.bases),
            *(spare.talk.worker.pid for spare in self.spares),
            *(partner.pid for partner in self.leaving),
        ]
        found += [self.heard.pid] if self.heard is not None else []
        return [*found, *([self.nursery.process.pid] if self.nursery else [])]

    def numbers(self, count: int) -> list[int]:
        """So many numbers of draws that were never used."""
        self.drawn += count
        return list(range(self.drawn - count + 1, self.drawn + 1))

    def draw(self, numbers: Sequence[int], wide: str = "") -> list[Mapping[str, Any]]:
        """Draw inputs for these calls into shared memory; they replace those that were there."""
        with self.still():
            self.untouched(self.drawers.desks(self.examiner, numbers))
            if not wide:
                began, alone = time.monotonic(), not self.drawers.partners
                drawn = self.drawers.draw(self.examiner, numbers)
                self.one_draw = (time.monotonic() - began) / len(numbers) if alone else self.one_draw
                return drawn
            found, _ = self.examiner.step("draw", numbers=list(numbers), wide=wide)
        return list(found["slots"])

    def prepare(self, numbers: Sequence[int]) -> None:
        """Have the inputs of calls that will be timed drawn, but not put into shared memory."""
        self.see_off()
        with self.still():
            self.untouched()
            self.drawers.prepare(numbers)

    def still(self) -> contextlib.AbstractContextManager[None]:
        """Stop the current candidate: work it did meanwhile would not be timed."""
        return contextlib.nullcontext() if self.heard is None else self.heard.standing_still()

    def hold(self, slots: Sequence[Mapping[str, Any]], numbers: Sequence[int], place: int) -> None:
        """Raise if the inputs of a call are not in shared memory as they were drawn: a process that maps them can also write there."""
        if not self.drawers.holds(self.examiner, slots[place], numbers[place]):
            raise Sabotaged("the reference's inputs were overwritten while this candidate was judged")

    def verify(self, partner: Partner, items: Sequence[Mapping[str, Any]], wide: str = "") -> list[Mapping[str, Any]]:
        """Return the examiner's findings on answers that a stand has shown."""
        assert isinstance(partner, Stander)
        with self.still():
            self.untouched([self.examiner])
            found, _ = self.examiner.step("verify", outputs=partner.outputs.path, items=list(items), wide=wide)
        return list(found["found"])

    def _close(self) -> None:
        with contextlib.suppress(OSError):
            self.see_off()
        for partner in (*self.bases, *([self.examiner] if hasattr(self, "examiner") else [])):
            partner.close()
        if hasattr(self, "drawers"):
            self.drawers.close()
        for spare in self.spares:
            spare.talk.worker.stop()
        if self.nursery is not None:
            self.nursery.stop()
        end_orphans(self.mark, ())
        self._remove_folder()


def _inode(path: str) -> tuple[int, int] | None:
    """Return the device and inode of a file, or None if there is no such file."""
    with contextlib.suppress(OSError):
        found = Path(path).stat(follow_symlinks=False)
        return found.st_dev, found.st_ino
    return None


def sweep(root: Path | None) -> None:
    """Remove folders left by judges that were killed."""
    for folder in Path(root or tempfile.gettempdir()).glob(f"{PREFIX}*"):
        pid = folder.name.removeprefix(PREFIX).partition("-")[0]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists():
            shutil.rmtree(folder, ignore_errors=True)


def _rounded(size: int, arrays: int) -> int:
    """Bytes with room for aligning each array."""
    return size + (arrays + 2) * ALIGNMENT
