"""One arm of a comparison in two processes: builds the case, then takes turns with the other arm, block by block.

The arms hand a token to each other through named pipes; the arm that has it runs, the other sleeps. Both draw the same order
from the same seed. After each hand-over one block is not timed, so that caches and predictors are the arm's own again.
An arm that dies closes its pipe, which the other sees at once.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import random
import select
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from steelyard import clocks, registry
from steelyard.engine import ranks, weigh
from steelyard.engine.bench import Bench, prepare_bench
from steelyard.engine.messages import Alternate, ArmAnswer, ArmFailed, PartnerLost
from steelyard.engine.reference import reason
from steelyard.engine.scrutiny import Scrutiny
from steelyard.engine.worker import Send, teller
from steelyard.errors import SteelyardError
from steelyard.measuring.clock import HostTimer, Loop, Timer
from steelyard.measuring.moving import scraps
from steelyard.measuring.sample import calibrate, empty_cost, fastest, quiet_collector, single
from steelyard.model.record import Arrays, Status
from steelyard.model.task import Reading, Task, clean_up, first_time, observed, recorded

WARM_BLOCKS = 4
MOST_REBUILDS, FEWEST_BETWEEN, REBUILDING = 12, 4, 0.25
LONG = 5e-3
MOST_QUADS = 5000
TOKEN = b"t"
PART = "part "
"""Prefix of the series with the times of one part of each block: `part op:aten::mm`."""


class OtherArmLost(SteelyardError):
    """The other arm's process has ended; the reason is known only there."""


@dataclass(frozen=True)
class Agreement:
    """The plan of both arms: calls per block of each, the number of quads and rebuilds, and what they cost.

    The first pair of processes rebuilds once, to measure what that costs.
    """

    calls: tuple[int, int]
    quads: int
    rebuilds: int
    overhead: float
    quad: float
    doubt: float = 0.0


def perform(job: Alternate, loaded: registry.Loaded, send: Send, gate: Callable[[], None]) -> None:
    """Do one arm's part in one pair of processes; any failure is reported to the conductor."""
    lost = False

    def work() -> tuple[Status, str]:
        nonlocal lost
        try:
            with Token(Path(job.turns.token), job.number) as token, seated(job.turns.cpu) as rise:
                return _take_part(job, loaded, send, gate, token, rise)
        except OtherArmLost:
            lost = True
            raise

    status, reason = weigh.attempt(work, weigh.Notes())
    if lost:
        send(PartnerLost(reason))
    elif status != "ok":
        send(ArmFailed(status, reason))


def _take_part(
    job: Alternate, loaded: registry.Loaded, send: Send, gate: Callable[[], None], token: Token, rise: Callable[[], None]
) -> tuple[Status, str]:
    case, settings, tell = job.case, job.settings, teller(send)
    bench = prepare_bench(case, loaded, settings)
    bench.backend.reset()
    tell("build", None)
    with bench.backend.wholly_as_it_was(), ranks.assemble([case], settings, job.sources, bench.backend.leave) as crew:
        bench = replace(bench, seat=crew.seat)
        rng = random.Random(f"{job.turns.seed} {job.number}")
        holes, began = scraps(rng), clocks.perf_counter()
        with _ready(bench, crew) as (seen, task, output):
            be = seen.be
            building = clocks.perf_counter() - began
            if task.inspect:
                task.inspect()
            verification = crew.agree(seen.first(task, output) if crew.peers else None)
            del output
            timer = crew.timer(be) if crew.peers or be.device == "cpu" else be.pair_timer([task])
            led = crew.lead(be, task, settings)
            if single(led):
                rise()
            source = BlockSource(led, timer, None if single(led) else bench.rebuilder(be, task, rng), rng, building)
            with quiet_collector(), contextlib.closing(source):
                gate()
                agreed, arrays = _alternate(job, be, source, token)
                copied = seen.answer_of(source.copy) if source.copy and not crew.peers else None
            verification = weigh.recheck(seen, crew, task)
            verification = seen.copied(copied) or verification
        del holes
        if settings.verify and not crew.peers and not (verification and verification.status == "failed"):
            with _ready(bench, crew) as (seen, task, output):
                verification = seen.first(task, output)
    if verification and verification.status == "failed":
        return "wrong", reason(verification)
    figures = {**asdict(agreed), "renewal": source.renewal, "source": bench.sources, "single": single(led)}
    figures["method"] = getattr(timer, "method", "")
    send(ArmAnswer(figures, arrays))
    return "ok", ""


@contextlib.contextmanager
def _ready(bench: Bench, crew: ranks.Ranks) -> Iterator[tuple[Scrutiny, Task, Any]]:
    """Build the task and call it once; yields it with its first answer.

    With several ranks the answer is checked now; without, after the blocks, since checking changes the heap.
    """
    crew.tell("build")
    be, built = bench.build()
    crew.gather()
    seen = Scrutiny(bench, be, built)
    try:
        crew.tell("check")
        with first_time(built):
            task = bench.ready(be, built)
            output = observed(task) if task.fn is not None else task.measure() if task.measure else None
            be.sync()
        yield seen, task, output
    finally:
        clean_up([built])


@contextlib.contextmanager
def seated(cpu: int | None) -> Iterator[Callable[[], None]]:
    """Pin this process to one CPU, shared with the other arm, as SCHED_BATCH: an arm that wakes must not preempt the one that woke it.

    Yields a function that undoes both early, for tasks that need more than one CPU or are timed call by call.
    """
    if cpu is None:
        yield lambda: None
        return
    before = os.sched_getaffinity(0)

    def rise() -> None:
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
            os.sched_setaffinity(0, before)

    os.sched_setaffinity(0, {cpu})
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    try:
        yield rise
    finally:
        rise()


class Token:
    """The right to run, handed over through a pipe in each direction; the pipes also carry what the arms must agree on."""

    def __init__(self, folder: Path, arm: int) -> None:
        self.inward = os.open(folder / str(arm), os.O_RDONLY | os.O_NONBLOCK)
        self.outward, self._to = -1, folder / str(1 - arm)

    def __enter__(self) -> Token:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for end in (self.inward, self.outward):
            if end >= 0:
                os.close(end)

    def meet(self) -> None:
        """Open the pipe to the other arm, which has opened its reading end already."""
        try:
            self.outward = os.open(self._to, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            raise OtherArmLost("the other arm has gone") from error
        os.set_blocking(self.outward, True)

    def say(self, message: Mapping[str, Any]) -> None:
        """Send a short line to the other arm."""
        self._write(json.dumps(message).encode() + b"\n")

    def hear(self) -> dict[str, Any]:
        """Return the other arm's line; waits with poll, since an empty pipe reads as closed until the other arm has opened its end."""
        line = b""
        while not line.endswith(b"\n"):
            waiting = select.poll()
            waiting.register(self.inward, select.POLLIN)
            waiting.poll()
            line += self._read(1)
        os.set_blocking(self.inward, True)
        found: dict[str, Any] = json.loads(line)
        return found

    def give(self) -> None:
        """Hand the token to the other arm."""
        self._write(TOKEN)

    def take(self) -> None:
        """Sleep until it is this arm's turn."""
        self._read(1)

    def _write(self, data: bytes) -> None:
        try:
            os.write(self.outward, data)
        except BrokenPipeError as error:
            raise OtherArmLost("the other arm has gone") from error

    def _read(self, count: int) -> bytes:
        data = os.read(self.inward, count)
        if not data:
            raise OtherArmLost("the other arm has gone")
        return data


class BlockSource:
    """Where the blocks of an arm come from: its task as first built, then rebuilt at other places in memory."""

    def __init__(self, task: Task, timer: Timer, rebuild: Callable[[], Task] | None, rng: random.Random, building: float) -> None:
        self.task, self.timer, self.rebuild, self.rng, self.building = task, timer, rebuild, rng, building
        self._readings: list[Reading] = []
        self.parts: list[Mapping[str, float]] = []
        """The times of parts inside each timed block, by name, if the task reports any."""
        self.loop = self.bound(task)
        self.renewal: float | None = None
        self._holes: list[Any] = []
        self.copy: Task | None = None

    def bound(self, task: Task) -> Loop:
        """Return the task as a loop that keeps the readings its runs report."""
        return self.timer.bind(recorded(task, self._readings))

    def note(self) -> None:
        """Keep the parts of the last run, which was a timed block."""
        if self._readings:
            self.parts.append(self._readings[-1].parts)
            self._readings.clear()

    def renew(self, calls: int) -> None:
        """Rebuild the task on a heap with other holes, and warm up; nothing of the last build is kept."""
        assert self.rebuild is not None
        began = clocks.perf_counter()
        self.close()
        self._holes = scraps(self.rng)
        self.copy = self.rebuild()
        self.loop = self.bound(self.copy)
        for _ in range(WARM_BLOCKS):
            self.loop(calls)
        self.renewal = clocks.perf_counter() - began

    def close(self) -> None:
        """Release what a rebuilt task holds outside of memory; the first task is released by its maker."""
        made, self.copy = self.copy, None
        clean_up([made] if made else [])


def _alternate(job: Alternate, be: Any, source: BlockSource, token: Token) -> tuple[Agreement, Arrays]:
    """Connect, agree on the plan, take turns; returns the blocks of this arm in order of time."""
    arm, task = job.number, source.task
    token.meet()
    _time_alike(source, token)
    agreed = _agree(job, source, token)
    before = be.graphs()
    calls = agreed.calls[arm]
    untimed = 0 if task.times_itself or agreed.quad / 4 > LONG else calls
    order = turns(coins(job.turns.seed, agreed.quads))
    took, busy, hit = take_turns(arm, order, source, calls, untimed, token, agreed.rebuilds, holds=arm == job.turns.first)
    if be.graphs() != before:
        raise SteelyardError("something was compiled during the comparison", why="the comparison is invalid")
    return agreed, {
        "took": ("ns", "<i8", np.asarray(took, "<i8").tobytes()),
        "busy": ("ns", "<i8", np.asarray(busy, "<i8").tobytes()),
        "hit": ("1", "|u1", np.asarray(hit, "|u1").tobytes()),
        **_parts(source.parts, len(took)),
    }


def _parts(blocks: Sequence[Mapping[str, float]], count: int) -> Arrays:
    """Return the times of each part that every timed block has a time for, one series per part."""
    names = sorted(set.intersection(*map(set, blocks))) if blocks and len(blocks) == count else []
    return {f"{PART}{name}": ("ns", "<f8", np.asarray([block[name] for block in blocks], "<f8").tobytes()) for name in names}


def _time_alike(source: BlockSource, token: Token) -> None:
    """Have both arms timed by the same method: if one of them cannot be replayed on its device, neither is."""
    mine = getattr(source.timer, "method", "")
    token.say({"method": mine})
    if token.hear()["method"] != mine and hasattr(source.timer, "use_events"):
        source.timer.use_events()
        source.loop = source.bound(source.task)


def _agree(job: Alternate, source: BlockSource, token: Token) -> Agreement:
    """Warm up the arms one after the other and agree on a plan; in the first pair of processes each arm measures its calls before that."""
    known, arm = dict(job.turns.agreed) or None, job.number
    theirs = None if arm == job.turns.first else token.hear()
    mine = _probe(source) if known is None else {}
    calls, block = (mine["calls"], mine["calls"] * mine["seconds"]) if known is None else (known["calls"][arm], known["quad"] / 4)
    for _ in range(WARM_BLOCKS if block <= LONG else 0):
        source.loop(calls)
    token.say(mine)
    theirs = token.hear() if theirs is None else theirs
    if known is not None:
        return Agreement(**{**known, "calls": tuple(known["calls"])})
    return settle((theirs, mine) if arm else (mine, theirs), job.turns.share)


def _probe(source: BlockSource) -> dict[str, Any]:
    """Measure what calls, empty calls and building cost in this arm."""
    task, loop, timer = source.task, source.loop, source.timer
    calls = 1 if single(task) else calibrate(loop, timer)
    seconds = max(1, loop(1) if task.times_itself else fastest(loop, calls)) * 1e-9 / calls
    overhead, doubt = (0.0, 0.0) if task.times_itself or not timer.net else empty_cost(task, timer, calls)
    building = source.building if source.rebuild else None
    return {"calls": calls, "seconds": seconds, "overhead": overhead, "doubt": doubt, "building": building}


def settle(said: Sequence[Mapping[str, Any]], share: float) -> Agreement:
    """Return the plan from the timings of both arms: blocks of equally many calls unless one is far faster, quads to fill the time.

    Unequal blocks would have unequal overhead, which would look like a difference. If there is time for it,
    the task is rebuilt along the way, since its place in memory matters.
    """
    base, head = (int(arm["calls"]) for arm in said)
    few = min(base, head)
    calls = (few, few) if max(base, head) <= 2 * few else (base, head)
    quad = 2 * sum(count * arm["seconds"] for count, arm in zip(calls, said, strict=True))
    quads = min(MOST_QUADS, max(1 if quad > share else 2, int(share / quad)))
    building = max((math.inf if arm["building"] is None else float(arm["building"])) for arm in said)
    rebuilds = 2 if quads >= 2 * FEWEST_BETWEEN and building < share else 1
    overhead, doubt = min((arm["overhead"], arm["doubt"]) for arm in said)
    return Agreement(calls, quads, rebuilds, overhead, quad, doubt)


def affordable(renewals: Sequence[float | None], quads: int, share: float) -> int:
    """Return how often every further pair of processes builds its task, given what rebuilding cost in the first."""
    dearest = max((math.inf if seconds is None else seconds) for seconds in renewals)
    return max(1, min(MOST_REBUILDS, quads // FEWEST_BETWEEN, 1 + int(REBUILDING * share / max(dearest, 1e-9))))


def coins(seed: str, quads: int) -> list[bool]:
    """Return for each quad whether the base comes first; the conductor draws the same from the seed."""
    rng = random.Random(seed)
    return [rng.random() < 0.5 for _ in range(quads)]


def turns(drawn: Sequence[bool]) -> list[int]:
    """Return the arm of each block in turn: ABBA or BAAB for each quad, by its coin."""
    return [arm for base_first in drawn for arm in ((0, 1, 1, 0) if base_first else (1, 0, 0, 1))]


def _busy_clock(task: Task, timer: Timer) -> Callable[[], int]:
    """Return a clock for the CPU time of blocks that this thread runs; for other blocks, one that always returns 0."""
    plain = isinstance(timer, HostTimer) and timer.now is clocks.perf_counter_ns and not task.times_itself
    return clocks.thread_time_ns if plain else lambda: 0


def take_turns(
    arm: int, order: Sequence[int], source: BlockSource, calls: int, untimed: int, token: Token, rebuilds: int, *, holds: bool
) -> tuple[list[int], list[int], list[bool]]:
    """Return nanoseconds, CPU nanoseconds and whether it was disturbed for each block of this arm; if `holds`, it has the token first."""
    took, busy, hit = [], [], []
    timer, loop, clock = source.timer, source.loop, _busy_clock(source.task, source.timer)
    renewals = {4 * (number * len(order) // 4 // rebuilds) for number in range(1, rebuilds)}
    for number, turn in enumerate(order):
        if number in renewals:
            holds = _renew_in_turn(source, token, calls, holds)
            loop = source.loop
        if turn != arm:
            if holds:
                token.give()
                holds = False
            continue
        if not holds:
            token.take()
            holds = True
            if untimed:
                loop(untimed)
        cuts, began = timer.disturbances(), clock()
        took.append(loop(calls))
        busy.append(clock() - began)
        hit.append(timer.disturbances() > cuts)
        source.note()
    if holds:
        token.give()
    else:
        token.take()
    return took, busy, hit


def _renew_in_turn(source: BlockSource, token: Token, calls: int, holds: bool) -> bool:
    """Rebuild while the other arm sleeps, then let it do the same; returns whether this arm has the token afterwards."""
    if not holds:
        token.take()
    source.renew(calls)
    if holds:
        token.give()
    return not holds
