"""Bench: one case with everything that builds it."""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import random
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from steelyard import registry
from steelyard.backends.base import ALONE, Seat
from steelyard.engine import opening
from steelyard.errors import NotApplicable, NotApplied, SteelyardError, Unsupported, told, unknown
from steelyard.machine import binding
from steelyard.measuring import rules
from steelyard.measuring.moving import loose_arrays
from steelyard.measuring.rules import sqnr
from steelyard.model.case import IDENTITY, Case
from steelyard.model.define import Body, Variant, Workload, fingerprint
from steelyard.model.experiment import Settings
from steelyard.model.task import Task
from steelyard.model.words import find_named

TELLING = ("fn", "args", "kwargs", "scope", "prepare", "measure", "parameters", "optimizer")


@dataclass(frozen=True)
class Bench:
    """One case with everything that builds it; every `build` gives a fresh task."""

    case: Case
    workload: Workload
    chain: tuple[tuple[Variant, Mapping[str, Any]], ...]
    backend: Any
    settings: Settings
    loaded: registry.Loaded
    seat: Seat = ALONE

    def open(self) -> Any:
        """A fresh backend instance, so that equal seeds give equal data."""
        if self.case.ranks != self.seat.size:
            raise Unsupported(f"a case of {self.case.ranks} ranks cannot run in a single process")
        binding.bind()
        return self.backend(self.case.device, seed=self.settings.seed, threads=self.case.threads, seat=self.seat)

    def base(self, be: Any = None) -> tuple[Any, Task]:
        """Build the workload's own task, without variants except those that are part of what is measured."""
        be = be or self.open()
        return be, self._under(self.body(self.case.backend, be), be, lambda variant: variant.asked)

    def plain(self, be: Any) -> Task:
        """Build the reference task of another rule: in the variant's formats, with the variants that are part of what is measured."""
        return self._under(self.body(self.case.backend, be), be, lambda variant: variant.asked or variant.casts)

    def _under(self, task: Task, be: Any, which: Callable[[Variant], bool]) -> Task:
        for variant, options in self.chain:
            if which(variant):
                task = _task(variant(task, be, options), f"variant {variant.name}")
        return task

    def body(self, backend: str, be: Any) -> Task:
        """Call the workload's body for one backend."""
        body = self.workload.bodies.get(backend) or self.own_body
        named = body.__code__.co_varnames[: body.__code__.co_argcount]
        given = {"mode": self.case.mode, "loaded": self.loaded, "member": self.workload.member, "settings": self.settings}
        wanted = {name: value for name, value in given.items() if name in named}
        params = opening.given(self.workload, dict(self.case.params))
        task = _task(body(**params, be=be, **wanted), f"workload {self.workload.name}")
        if task.chance and self.settings.verify and self.settings.fixed is None:
            task.chance.stop(drawing=be.draws_exactly)
            kept = "draws its numbers and drops nothing" if be.draws_exactly else "off"
            task = replace(task, effective={**task.effective, "dropout": f"{kept}, so that answers can be compared"})
        return task

    def build(self, be: Any = None) -> tuple[Any, Task]:
        """Build the task with all its variants, in written order; a variant that sets something for the whole process is noted."""
        be = be or self.open()
        task = self.body(self.case.backend, be)
        be.before_variants, be.left_set = be.process_state() if self.chain else (), []
        for variant, options in self.chain:
            before, task = task, _task(variant(task, be, options), f"variant {variant.name}")
            if be.process_state() != be.before_variants:
                be.left_set.append(variant.name)
            if all(getattr(before, name) is getattr(task, name) for name in TELLING):
                raise NotApplied(f"variant {variant.name} changed nothing in the task")
        return be, sqnr.held_at(task, rules.asked(self.settings.other_rule, sqnr.RULE, "floor"))

    def standard(self, task: Task, be: Any = None) -> tuple[Any, Task]:
        """Return the task that a task's answers are compared with: the plain task, or what the variants define in its place."""
        be, plain = self.base(be)
        return be, task.standard.applied(plain) if task.standard else plain

    def ready(self, be: Any, task: Task) -> Task:
        """The task as the case's mode runs it; compilers may do their work here, so it counts as part of the first call."""
        made: Task = be.in_mode(task, self.case.mode)
        return made

    @property
    def sticky(self) -> bool:
        """Whether a variant takes too long to be applied again for every rebuild."""
        return any(variant.sticky for variant, _ in self.chain)

    @property
    def compiles(self) -> bool:
        """Whether a variant hands the task to a compiler."""
        return any(variant.fresh for variant, _ in self.chain)

    def import_needs(self) -> None:
        """Import what the workload and the variants need; missing or broken modules are reported by the workload or variant itself."""
        wanted = (*self.workload.imports, *(name for variant, _ in self.chain for name in variant.imports))
        for module in dict.fromkeys(wanted):
            with contextlib.suppress(Exception):
                importlib.import_module(module)

    @property
    def sources(self) -> str:
        """Fingerprint of all code that shapes the task."""
        return fingerprint(self.own_body, *(variant.apply for variant, _ in self.chain))

    @property
    def own_body(self) -> Body:
        """The workload's function for the case's backend, or for the backend whose functions that one can run."""
        return self.workload.bodies.get(self.case.backend) or self.workload.bodies[self.backend.speaks]

    def rebuilder(self, be: Any, task: Task, rng: random.Random) -> Callable[[], Task]:
        """Return how a comparison rebuilds a task: it moves the whole task if possible, else builds it again. A task that takes long to
        build keeps its code, and its inputs move; if it restores its inputs itself, they stay too.
        """
        if self.rooted(task):
            return lambda: self.ready(be, task)
        if self.sticky or task.heavy:
            return lambda: self.ready(be, be.relocate(task, rng, whole=False))
        if be.movable(task):
            return lambda: self.ready(be, be.relocate(task, rng))
        return lambda: self.ready(*self.build())

    def rooted(self, task: Task) -> bool:
        """Whether a comparison can neither move nor rebuild the task."""
        return self.sticky and task.prepare is not None

    def holds(self, task: Task) -> bool:
        """Whether the task's function is not rebuilt and holds arrays besides its weights, which then are not moved either."""
        return self.sticky and next(loose_arrays(task.fn, {id(item) for item in task.parameters}), None) is not None


def _task(made: Any, maker: str) -> Task:
    if not isinstance(made, Task):
        raise SteelyardError(f"{maker} returned {type(made).__name__}, not a Task", do="return Task(fn, args, …), or replace(task, …)")
    return made


def prepare_bench(case: Case, loaded: registry.Loaded, settings: Settings) -> Bench:
    """Find the workload, backend and variants of a case; raise Unsupported with the remedy for what is missing here."""
    workload = loaded.workloads.get(case.workload)
    if workload is None:
        raise unknown("workload", case.workload, loaded.workloads, listing="steelyard list")
    backend = open_backend(case.backend, case.env)
    if case.backend not in workload.bodies and backend.speaks not in workload.bodies:
        raise Unsupported(
            f"{workload.name} has no implementation for backend {case.backend}", do=f"it has one for {', '.join(workload.bodies)}"
        )
    if case.mode not in workload.modes:
        raise NotApplicable(f"{workload.name} has no mode {case.mode}; it has {', '.join(workload.modes)}")
    chain = []
    for step in case.chain:
        found = find_named(step.name, workload.variants, loaded.variants)
        if found is None:
            raise unknown("variant", step.name, [*workload.variants, *loaded.variants, IDENTITY])
        variant, written = found
        if variant.backends and case.backend not in variant.backends:
            raise Unsupported(f"variant {variant.name} works with {', '.join(variant.backends)}, not with backend {case.backend}")
        if variant.modes and case.mode not in variant.modes:
            raise NotApplicable(
                f"{variant.name} is for mode {' and '.join(variant.modes)}, not for {case.mode}", do=f"--mode {variant.modes[0]}"
            )
        chain.append((variant, {**written, **dict(step.options)}))
    return Bench(case, workload, tuple(chain), backend, settings, loaded)


def open_backend(name: str, env: str = "") -> Any:
    """Load a backend; a framework that is not installed raises Unsupported."""
    try:
        backend = registry.load_backend(name)
        forget_garbage()
        return backend
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("steelyard"):
            raise
        missing = error.name or str(error)
        remedy = registry.about_backend(name).remedy
        where, do = (f"in environment {env}", f"name another environment in env, or {remedy}") if env else ("here", remedy)
        raise Unsupported(f"backend {name} needs {missing}, which is not installed {where}", do=do) from error
    except Exception as error:
        if isinstance(error, ImportError) or not _ours(error):
            why, do = told(error, 300), "its packages do not fit together; see steelyard env list"
            raise Unsupported(f"backend {name} cannot be loaded here", why=why, do=do) from error
        raise


def _ours(error: Exception) -> bool:
    """Whether an error was raised in this package: then it is a bug of ours, not of an installation."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return Path(frame.f_code.co_filename).is_relative_to(Path(__file__).parents[1])


@functools.cache
def forget_garbage(modules: int = 0) -> None:
    """Freeze objects that imports left, so that garbage collection skips them; repeated when more modules are loaded.

    A collection before each case costs 70 ms otherwise, and several in a case 80 ms each once a compiler is imported.
    """
    gc.collect()
    gc.freeze()
