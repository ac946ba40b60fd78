"""A rank other than the first: builds what rank 0 builds, follows its orders, and times its own share.

`python -m steelyard.engine.peer` reads a job and then orders as JSON lines; it answers each with one line and exits when rank 0 does.
"""

from __future__ import annotations

import gc
import json
import os
import random
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import IO, Any

from steelyard.backends.base import Seat
from steelyard.engine import messages, ranks, weigh
from steelyard.engine.bench import Bench, prepare_bench
from steelyard.engine.process import die_with_parent, settle_allocator, volunteer_for_oom
from steelyard.engine.scrutiny import Scrutiny
from steelyard.engine.worker import load
from steelyard.measuring.clock import Loop, Timer
from steelyard.model.case import Case
from steelyard.model.experiment import Settings
from steelyard.model.task import Task, observed

Say = Callable[[Mapping[str, Any]], None]


def main() -> None:
    """Entry point of a fresh interpreter."""
    die_with_parent()
    volunteer_for_oom()
    settle_allocator()
    orders = os.fdopen(os.dup(0), "r", encoding="utf-8")
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    job = json.loads(orders.readline())
    status, reason = weigh.attempt(lambda: follow(job, orders, lambda message: say(answers, message)), weigh.Notes())
    if status != "ok":
        print(f"rank {job['seat']['rank']}: {reason}", file=sys.stderr, flush=True)
        say(answers, {"error": {"status": status, "reason": reason}})
    sys.stderr.flush()
    os._exit(0 if status == "ok" else 1)


def say(answers: IO[str], message: Mapping[str, Any]) -> None:
    """Send one JSON line to rank 0."""
    answers.write(json.dumps(message) + "\n")
    answers.flush()


def follow(job: Mapping[str, Any], orders: IO[str], answer: Say) -> tuple[Any, str]:
    """Do what rank 0 orders until it sends quit or is gone; calls are in the same order on all ranks, or collectives would not meet."""
    settings, seat = Settings.from_plain(job["settings"]), Seat(**job["seat"])
    loaded = load(messages.read_sources(job["sources"]), {})
    stands = [PeerBench(replace(prepare_bench(Case.from_plain(case), loaded, settings), seat=seat)) for case in job["cases"]]
    answer({"ready": seat.rank})
    for line in orders:
        order = json.loads(line)
        if order["do"] == "quit":
            stands[0].bench.backend.leave()
            break
        if order["do"] == "hurry":
            for each in stands:
                each.bench = replace(each.bench, seat=replace(each.bench.seat, patience=order["patience"]))
            continue
        stand = stands[order["arm"]]
        answer(stand.run(order["calls"]) if order["do"] == "run" else ORDERS[order["do"]](stand))
    return "ok", ""


@dataclass
class PeerBench:
    """One case in this rank's process."""

    bench: Bench
    be: Any = None
    task: Task | None = None
    rebuild: Callable[[], Task] | None = None
    bound: tuple[Timer, Loop] | None = None
    seen: Scrutiny | None = None

    def build(self) -> dict[str, Any]:
        """Build the task with all its variants, and note how to rebuild it with fresh buffers."""
        self.be, self.task = self.bench.build()
        self.rebuild = self.bench.rebuilder(self.be, self.task, random.Random(self.bench.settings.seed))
        return {"built": True}

    def check(self) -> dict[str, Any]:
        """Make the first call and compare its answer with the reference, as rank 0 does."""
        assert self.task is not None
        self.seen = Scrutiny(self.bench, self.be, self.task)
        task = self.bench.ready(self.be, self.task)
        output = observed(task) if task.fn is not None else None
        self.be.sync()
        found = self.seen.first(task, output)
        if task.fn is not None:
            self.bind(task)
        return {"verification": found and asdict(found)}

    def settle(self) -> dict[str, Any]:
        """Get ready for timing without a call before it."""
        assert self.task is not None
        self.bind(self.bench.ready(self.be, self.task))
        return {"ready": True}

    def recheck(self) -> dict[str, Any]:
        """Check the answer after timing."""
        assert self.seen is not None
        found = self.seen.repeat()
        return {"verification": found and asdict(found)}

    def find_out(self) -> dict[str, Any]:
        """Have the task collect its own findings after timing; rank 0 reports them."""
        assert self.task is not None
        if self.task.findings:
            self.task.findings()
        return {"found": True}

    def again(self) -> dict[str, Any]:
        """Rebuild the task with fresh buffers for the next readings."""
        assert self.rebuild is not None
        self.bind(self.rebuild())
        return {"built": True}

    def bind(self, task: Task) -> None:
        """Get ready to time, with the collector out of the way as on rank 0."""
        timer: Timer = self.be.timer()
        self.bound = (timer, timer.bind(task))
        gc.collect()
        gc.disable()

    def run(self, calls: int) -> dict[str, Any]:
        """Take one reading."""
        assert self.bound is not None
        return dict(ranks.timed(self.be, *self.bound, calls))


ORDERS: Mapping[str, Callable[[PeerBench], dict[str, Any]]] = {
    "build": PeerBench.build, "check": PeerBench.check, "rebuild": PeerBench.again,
    "ready": PeerBench.settle, "recheck": PeerBench.recheck, "findings": PeerBench.find_out,
}  # fmt: skip


if __name__ == "__main__":
    main()
