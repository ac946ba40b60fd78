"""The recorded communication of a step as a task: every rank makes its calls, times each, and rank 0 reports the slowest."""

from __future__ import annotations

import collections
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from steelyard import clocks
from steelyard.errors import UsageError
from steelyard.model.record import Figure
from steelyard.model.task import Findings, Task
from steelyard.traces.comms import POINT_TO_POINT, CommCall, RankComms
from steelyard.workloads.traces._exchanges import Buffers, Exchange, ExchangeMaker, Joined
from steelyard.workloads.traces._meeting import Meeting, rebalanced, share, share_numbers

MOST_ROWS = 5000
SPIN = 300_000
"""Nanoseconds before a recorded moment in which we wait in a loop, because sleeping may end too late."""
Ints = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class CommChoice:
    """How recorded calls are made: waiting for each at once, checking data, in equal parts, in shared memory, at the recorded moments."""

    blocking: bool = False
    check: bool = True
    rebalance: bool = False
    reuse: bool = False
    timestamps: bool = False
    last: int = 100
    """Number of last iterations whose times of single calls are kept."""


@dataclass(frozen=True)
class Turn:
    """One step of the schedule: begin the call at a place (-1: none), at a moment after the start, then wait for the calls at `waits`."""

    begins: int
    waits: tuple[int, ...]
    moment: int = 0


def schedule(calls: Sequence[CommCall], *, blocking: bool, timestamps: bool) -> list[Turn]:
    """Return when each call begins and when to wait for it: at once, where the recording waited, or at the end of the step.

    Consecutive messages are begun together: otherwise two ranks that both send before they receive would wait forever.
    """
    turns: list[Turn] = []
    open_requests: dict[tuple[str, int | None], list[int]] = {}
    pending: list[int] = []
    first = next((call.start for call in calls if call.start is not None), 0.0) or 0.0
    for place, call in enumerate(calls):
        moment = round(((call.start or first) - first) * 1e9) if timestamps else 0
        following = calls[place + 1].kind if place + 1 < len(calls) else ""
        waits: list[int] = []
        if call.kind == "wait":
            waits = [each for each in open_requests.pop((call.group, call.request), []) if each in pending]
        elif call.kind in POINT_TO_POINT:
            pending.append(place)
            if following not in POINT_TO_POINT:
                waits = [each for each in pending if calls[each].kind in POINT_TO_POINT]
        elif blocking or call.waits:
            pending.append(place)
            waits = [place]
        else:
            pending.append(place)
            open_requests.setdefault((call.group, call.request), []).append(place)
        pending = [each for each in pending if each not in waits]
        turns.append(Turn(-1 if call.kind == "wait" else place, tuple(waits), moment))
    return [*turns, Turn(-1, tuple(pending))] if pending else turns


@dataclass
class CommReplay:
    """The calls of this rank with their groups and buffers; it keeps the times of single calls during the measurement."""

    comms: RankComms
    meeting: Meeting
    choice: CommChoice
    device: Any
    exchanges: list[Exchange | None]
    left: Mapping[str, int]
    kept: collections.deque[Ints] = field(default_factory=collections.deque)
    bad: dict[str, int] = field(default_factory=dict)
    checks: int = 0

    @classmethod
    def build(cls, comms: RankComms, left: Mapping[str, int], choice: CommChoice, seat: Any, device: Any) -> CommReplay:
        """Exchange calls with the other ranks, make groups and buffers, and check every call once if requested."""
        if choice.timestamps and not any(call.start is not None for call in comms.calls):
            raise UsageError("the trace has no times", do="add those of a profiler with steelyard trace link", where=str(comms.path))
        meeting = Meeting.hold(comms, seat.rank, seat.size, device)
        joined = meeting.join()
        backend = "gloo" if device.type == "cpu" else "nccl"
        buffers = Buffers(device, choice.reuse)
        found = cls(comms, meeting, choice, device, _exchanges(meeting, joined, choice, buffers, backend), left)
        found.kept = collections.deque(maxlen=choice.last)
        if choice.check:
            found.verify()
        return found

    def task(self) -> Task:
        """Return the task; one call of it is the whole step."""
        run = self.runner()
        made = [item for item in self.exchanges if item is not None]
        moved = {
            "message_bytes": sum(item.message_bytes for item in made), "bus_bytes": round(sum(item.bus_bytes for item in made)),
            "communication": self.facts(),
        }  # fmt: skip

        def fn() -> dict[str, Any]:
            run()
            return self.answer()

        return Task(fn, (), effective=moved, reference=self.right if self.choice.check else None, findings=self.findings, in_place=True)

    def answer(self) -> dict[str, Any]:
        """Return how many values were wrong at the last check, for each kind of call."""
        return {kind: torch.tensor([float(self.bad.get(kind, 0))]) for kind in self.kinds()} if self.choice.check else {}

    def right(self) -> dict[str, Any]:
        """Return the expected answer: no wrong values for any kind of call."""
        return {kind: torch.zeros(1) for kind in self.kinds()}

    def kinds(self) -> list[str]:
        """Return the kinds of calls that are made, in order."""
        return list(dict.fromkeys(item.call.kind for item in self.exchanges if item is not None))

    def verify(self) -> None:
        """Make every call once with known data, and count the values that are wrong."""
        self.bad = {}
        run: list[Exchange] = []
        for place, item in enumerate(self.exchanges):
            if item is None:
                continue
            run.append(item)
            following = self.exchanges[place + 1] if place + 1 < len(self.exchanges) else None
            if item.call.kind in POINT_TO_POINT and following is not None and following.call.kind in POINT_TO_POINT:
                continue
            for each in run:
                each.fill()
            self._sync()
            for work in [work for each in run for work in each.issue()]:
                work.wait()
            self._sync()
            for each in run:
                self.bad[each.call.kind] = self.bad.get(each.call.kind, 0) + each.wrong()
            run = []
        self.checks += 1

    def _sync(self) -> None:
        if self.device.type != "cpu":
            torch.cuda.synchronize(self.device)

    def runner(self) -> Callable[[], None]:
        """Return a function that makes all calls once and keeps how long each took."""
        calls, now = self.comms.calls, clocks.perf_counter_ns
        turns = [
            (turn.begins, turn.waits, turn.moment)
            for turn in schedule(calls, blocking=self.choice.blocking, timestamps=self.choice.timestamps)
        ]
        issues = [item.issue if item is not None else None for item in self.exchanges]
        on_device, sync = self.device.type != "cpu", self._sync
        count = len(calls)

        def run() -> None:
            began, took = [0] * count, [0] * count
            works: list[Any] = [()] * count
            start = now()
            for begins, waits, moment in turns:
                if moment:
                    await_moment(start + moment)
                if begins >= 0:
                    began[begins] = now()
                    works[begins] = issues[begins]()  # type: ignore[misc]
                for place in waits:
                    for work in works[place]:
                        work.wait()
                    works[place] = ()
                    if on_device:
                        sync()
                    took[place] = now() - began[place]
            self.kept.append(np.asarray(took, np.int64))

        return run

    def facts(self) -> dict[str, Any]:
        """Return what is replayed and how, for the record."""
        carried = {item.call.dtype: item.dtype for item in self.exchanges if item is not None and item.dtype != item.call.dtype}
        groups = {name or "all": list(ranks) for name, ranks in self.meeting.groups.items()}
        return {
            "messages": self.comms.messages(), "left_out": dict(self.left), "groups": groups, "blocking": self.choice.blocking,
            "rebalanced": self.choice.rebalance, "reused_memory": self.choice.reuse, "recorded_moments": self.choice.timestamps,
            "data_checked": self.choice.check, "reduction": "sum", **({"carried_as": carried} if carried else {}),
        }  # fmt: skip

    def findings(self) -> Findings:
        """Check the data once more, exchange times with all ranks, and return the time of each call on its rank and on the slowest one."""
        if self.choice.check:
            self.verify()
        own = (
            np.asarray(self.kept, np.int64).reshape(len(self.kept), len(self.comms.calls))
            if self.kept
            else np.zeros((0, len(self.comms.calls)), np.int64)
        )
        size, rank = self.meeting.size, self.meeting.rank
        every = share_numbers(own, self.device, size)
        rounds = min(len(found) for found in every)
        if not rounds:
            return Findings()
        every = [found[len(found) - rounds :] for found in every]
        slowest = self._slowest(every)
        rows = share([_row(item, own[-rounds:, place], slowest[:, place]) for place, item in self._shown()], self.device, size)
        kinds = [self._kind_row(kind, slowest) for kind in self.kinds()]
        if rank:
            return Findings()
        return Findings({"communication_times": kinds, "communication_ranks": rows}, {}, _figures(kinds))

    def _shown(self) -> list[tuple[int, Exchange]]:
        return [(place, item) for place, item in enumerate(self.exchanges) if item is not None][:MOST_ROWS]

    def _slowest(self, every: Sequence[Ints]) -> Ints:
        """Return the time of each call on the slowest rank; calls of different ranks match by their order in the group."""
        calls, size = self.meeting.calls, self.meeting.size
        places: list[dict[tuple[str, int], int]] = []
        for rank in range(size):
            counted: collections.Counter[str] = collections.Counter()
            found = {}
            for place, call in enumerate(calls[rank]):
                if call.collective:
                    found[call.group, counted[call.group]] = place
                    counted[call.group] += 1
            places.append(found)
        slowest = every[self.meeting.rank].copy()
        for key, place in places[self.meeting.rank].items():
            for rank in self.meeting.groups[key[0]]:
                slowest[:, place] = np.maximum(slowest[:, place], every[rank][:, places[rank][key]])
        return slowest

    def _kind_row(self, kind: str, slowest: Ints) -> dict[str, Any]:
        own = [place for place, item in enumerate(self.exchanges) if item is not None and item.call.kind == kind]
        times = slowest[:, own].astype(float) * 1e-9
        made = [item for item in self.exchanges if item is not None and item.call.kind == kind]
        bus, message = sum(item.bus_bytes for item in made), sum(item.message_bytes for item in made)
        total = float(np.median(times.sum(axis=1)))
        rate = {"bus_bandwidth": bus / total, "algorithm_bandwidth": message / total} if total and bus else {}
        return {
            "kind": kind, "calls": len(own), "message_bytes": message, "total": total, "max": float(times.max()), "min": float(times.min()),
            "avg": float(times.mean()), "p50": float(np.percentile(times, 50)), "p95": float(np.percentile(times, 95)), "n": times.size,
            **rate,
        }  # fmt: skip


def _figures(kinds: Sequence[Mapping[str, Any]]) -> dict[str, Figure]:
    """Return the figures of each kind of call: median time, 95th percentile, and bus bandwidth."""
    found = {}
    for row in kinds:
        found[f"{row['kind']}_time"] = Figure(row["p50"], "s", "lower", n=row["n"])
        found[f"{row['kind']}_time_p95"] = Figure(row["p95"], "s", "lower", n=row["n"])
        if "bus_bandwidth" in row:
            found[f"{row['kind']}_bus_bandwidth"] = Figure(row["bus_bandwidth"], "B/s", "higher", n=row["n"])
    return found


def _row(item: Exchange, own: Ints, slowest: Ints) -> dict[str, Any]:
    """Return one call of this rank as plain data."""
    call = item.call
    return {
        "node": call.node, "kind": call.kind, "group": call.group, "request": call.request, "sent_bytes": call.sent_bytes,
        "received_bytes": call.received_bytes, "dtype": call.dtype, "ranks": len(item.ranks), "time": float(np.median(own)) * 1e-9,
        "slowest": float(np.median(slowest)) * 1e-9, "sends": sum(call.sends), "receives": sum(call.receives),
    }  # fmt: skip


def _exchanges(meeting: Meeting, joined: Mapping[str, Joined], choice: CommChoice, buffers: Buffers, backend: str) -> list[Exchange | None]:
    """Return this rank's calls; None where the recording only waited."""
    met: collections.Counter[str] = collections.Counter()
    sequences = {name: [meeting.sequence(rank, name) for rank in meeting.groups[name]] for name in joined}
    found: list[Exchange | None] = []
    for call in meeting.calls[meeting.rank]:
        if call.kind == "wait":
            found.append(None)
            continue
        here = joined[call.group]
        peers = [call]
        if call.collective:
            peers = [sequence[met[call.group]] for sequence in sequences[call.group]]
            met[call.group] += 1
            if choice.rebalance and call.kind == "all_to_allv":
                peers = rebalanced(peers)
            call = peers[here.place]
        found.append(ExchangeMaker(here, buffers, backend).make(call, peers))
    return found


def await_moment(moment: int) -> None:
    """Wait for a moment of the clock: sleep while there is time enough, then wait in a loop."""
    while (left := moment - clocks.perf_counter_ns()) > 0:
        if left > SPIN:
            time.sleep((left - SPIN) * 1e-9)
