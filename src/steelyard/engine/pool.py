"""Processes kept warm in pairs, one for the base and one for the head of a comparison, for all comparisons of a run.

Both processes of a pair start with the same memory layout, every pair with another one, so that layout cancels inside a pair and
is sampled across pairs.
"""

from __future__ import annotations

import os
import random
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from steelyard import registry
from steelyard.engine import envs
from steelyard.engine.launch import SHIFTS, Nursery, Worker, can_lay_out, nursery_modules, start_fresh
from steelyard.engine.limits import MemoryLimit
from steelyard.engine.place import Place
from steelyard.engine.plan import Job, at_home
from steelyard.engine.process import end_orphans, end_tree
from steelyard.engine.sides import FREE, MATCHED, BaseSide
from steelyard.errors import SteelyardError
from steelyard.model.case import Case

PAIRS, FREE_PAIRS, FRESH_PAIRS = 8, 12, 6
MOST_STABLES = 2
FORBIDDEN = "free: this system does not let layouts be chosen"

Tell = Callable[[str, float | None], None]
Couple = tuple[Worker, Worker]
Modules = tuple[tuple[str, ...], tuple[str, ...]]
"""What the nurseries of the base and of the head import."""


class NoComparison(SteelyardError):
    """The comparison could not be made; the head's own results are kept."""


class Stable:
    """Workers of one kind in pairs by number: forked from pairs of nurseries, or fresh interpreters if nothing may fork.

    Forks are used once, because what a process did before decides where its buffers are placed. Fresh
    interpreters are kept for the cases that share a worker, as `--isolate` says.
    """

    def __init__(
        self, places: tuple[Place, Place], modules: Modules | None, shifts: Sequence[int | None], mark: str, *, twins: bool = True
    ) -> None:
        self.places, self.shifts, self.mark = places, shifts, mark
        self.held: dict[int, list[Worker]] = {}
        self.unit = ""
        self.nurseries: list[tuple[Nursery, ...]] = []
        try:
            for shift in shifts if modules is not None else ():
                self.nurseries.append(_nurseries(places, modules or ((), ()), mark, shift, twins=twins))
            for nursery in self._nurseries():
                nursery.wait()
        except BaseException:
            self.close()
            raise

    def _nurseries(self) -> Iterator[Nursery]:
        return (nursery for pair in self.nurseries for nursery in pair)

    def serve(self, unit: str) -> None:
        """Let the next jobs of a unit share their workers, and end workers of another unit."""
        if unit != self.unit:
            self._rest()
            self.unit = unit

    def couple(self, number: int) -> Couple:
        """The workers of one pair, the base's first."""
        mine = self.held.setdefault(number, [])
        for arm in range(len(mine), 2):
            fork = self.nurseries[number][arm].fork if self.nurseries else None
            mine.append(fork() if fork else start_fresh(self.places[arm], self.mark, self.shifts[number]))
        return mine[0], mine[1]

    def release(self, couple: Couple) -> None:
        """After a job, end what it left running, and its workers if they are forks."""
        for worker in couple:
            end_tree(worker.pid, itself=False)
        if self.nurseries:
            self._rest()

    def drop(self, couple: Couple) -> None:
        """End both workers whatever they are doing; the next job gets new ones."""
        self.held = {number: mine for number, mine in self.held.items() if mine[0] is not couple[0]}
        for worker in couple:
            worker.stop()
        self._sweep()

    def _rest(self) -> None:
        workers = [worker for mine in self.held.values() for worker in mine]
        self.held = {}
        for worker in workers:
            worker.leave()
        for worker in workers:
            worker.see_off()
        self._sweep()

    def _sweep(self) -> None:
        keep = self.pids()
        for nursery in self._nurseries():
            nursery.sweep(keep)

    def pids(self) -> list[int]:
        """Processes that are meant to run."""
        return [*(nursery.process.pid for nursery in self._nurseries()), *(worker.pid for mine in self.held.values() for worker in mine)]

    def close(self) -> None:
        """End everything."""
        for mine in self.held.values():
            for worker in mine:
                worker.stop()
        self.held = {}
        for nursery in self._nurseries():
            nursery.stop()


def _nurseries(places: tuple[Place, Place], modules: Modules, mark: str, shift: int | None, *, twins: bool) -> tuple[Nursery, Nursery]:
    """Start a pair of nurseries; if their places differ only in folders, both are forked from one process, in drawn order."""
    if not (twins and alike(places) and modules[0] == modules[1]):
        base, head = (Nursery(place, needed, mark, shift, wait=False) for place, needed in zip(places, modules, strict=True))
        return base, head
    if random.random() < 0.5:
        return Nursery.twins(places, modules[0], mark, shift)
    head, base = Nursery.twins((places[1], places[0]), modules[0], mark, shift)
    return base, head


def alike(places: tuple[Place, Place]) -> bool:
    """Whether both places can be the same interpreter in the same environment."""
    bare = [replace(place, paths=(), folder="") for place in places]
    return bare[0] == bare[1]


class Pool:
    """The processes kept warm for all comparisons of a run; `close` ends them all."""

    def __init__(self, pairs: int = PAIRS) -> None:
        self.pairs, self.mark = pairs, uuid.uuid4().hex
        self.stables: dict[Any, Stable] = {}
        self.limits: dict[int, tuple[Worker, MemoryLimit]] = {}
        self._broken: dict[Any, str] = {}
        self._draw = random.SystemRandom()

    def layout(self, job: Job, side: BaseSide) -> str:
        """A note on memory layouts: programs and ranks have their own, and layouts of two builds are never quite equal."""
        case = job.case
        if case.device != "cpu" or case.ranks != 1 or case.backend == "command":
            return FREE
        if side.layout != MATCHED or (alike(places_of(job, side)) and forks(job, side)):
            return side.layout
        return FREE if not one_thread(job) else MATCHED if can_lay_out() else FORBIDDEN

    def count(self, job: Job, side: BaseSide) -> int:
        """How many pairs a comparison may have: more if layouts differ inside them, fewer if each needs fresh interpreters."""
        usual = self.pairs if side.layout == MATCHED else self.pairs * FREE_PAIRS // PAIRS
        return usual if forks(job, side) else min(usual, FRESH_PAIRS)

    def stable(self, job: Job, side: BaseSide, tell: Tell, *, anew: bool = False) -> Stable:
        """The stable of a job's workers; `anew` replaces an existing one. If there are too many, the least recently used is closed."""
        chosen = one_thread(job) and can_lay_out() and side.layout != FREE
        places = places_of(job, side)
        modules = (nursery_modules(_base(job).backend), nursery_modules(job.case.backend)) if forks(job, side) else None
        key = (*places, chosen, modules, self.count(job, side))
        if key in self._broken:
            raise NoComparison(self._broken[key])
        found = self.stables.pop(key, None)
        if found and anew:
            found.close()
            found = None
        if found is None:
            while len(self.stables) >= MOST_STABLES:
                self.stables.pop(next(iter(self.stables))).close()
            shifts = [self._draw.randrange(SHIFTS) if chosen else None for _ in range(self.count(job, side))]
            tell("warming up processes", None)
            try:
                found = Stable(places, modules, shifts, self.mark, twins=side.layout != FREE)
            except (SteelyardError, OSError) as error:
                self._broken[key] = f"its processes could not be started: {said(error)}"
                raise NoComparison(self._broken[key]) from error
        self.stables[key] = found
        found.serve(job.unit)
        return found

    def forget(self, stable: Stable) -> None:
        """Close a stable that no longer works; the next job starts it again."""
        self.stables = {key: item for key, item in self.stables.items() if item is not stable}
        stable.close()

    def limit(self, worker: Worker, most: int | None) -> MemoryLimit | None:
        """The limit that a worker is under, as long as it lives."""
        if most is None:
            return None
        if worker.pid not in self.limits:
            self.limits[worker.pid] = worker, MemoryLimit.create(most, f"{os.getpid()}-{worker.pid}")
            self.limits[worker.pid][1].admit(worker.pid)
        return self.limits[worker.pid][1]

    def tidy(self) -> None:
        """Clean up after workers that have ended: their limits, and processes that outlived them."""
        for pid in [pid for pid, (worker, _) in self.limits.items() if worker.gone]:
            self.limits.pop(pid)[1].release()
        end_orphans(self.mark, [pid for stable in self.stables.values() for pid in stable.pids()])

    def close(self) -> None:
        """End every process that was started here."""
        for stable in self.stables.values():
            stable.close()
        self.stables = {}
        self.tidy()


def places_of(job: Job, side: BaseSide) -> tuple[Place, Place]:
    """Where the base and the head of a job run, with the variables of each."""
    base = _base(job)
    return at_home(base, envs.place_for(base.backend, side.place)), job.place


def _base(job: Job) -> Case:
    return job.vs or job.case


def forks(job: Job, side: BaseSide) -> bool:
    """Whether both arms of a job can run in forked workers, if no compiled job shares them."""
    return not side.fresh and not job.compiles and job.case.device == "cpu" and registry.about_backend(job.case.backend).forks


def one_thread(job: Job) -> bool:
    """Whether a job runs in one thread of one process on the host, so that one CPU is enough and memory layout matters."""
    case = job.case
    return case.device == "cpu" and case.threads == 1 and case.ranks == 1 and case.backend != "command"


def said(error: Exception) -> str:
    """An error in one line."""
    return "; ".join(part for part in (error.what, error.why) if part) if isinstance(error, SteelyardError) else str(error)
