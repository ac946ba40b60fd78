"""A recorded step as a workload: `steelyard run trace:FILE` repeats the recorded calls, without the model's code or data."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steelyard.errors import Unsupported, UsageError
from steelyard.model.define import OpenedFile, workload
from steelyard.model.experiment import Settings
from steelyard.model.task import Task
from steelyard.model.units import plain as quantity
from steelyard.traces.comms import rank_files
from steelyard.workloads.traces import folders

if TYPE_CHECKING:
    from steelyard.traces.nodes import TraceNode
    from steelyard.workloads.traces._coverage import Coverage
    from steelyard.workloads.traces._trial import Fitted

WHAT = ("full", "compute", "communication")
ALLOCATION = ("auto", "ahead", "lazy")
DEFAULTS: Mapping[str, Sequence[Any]] = {
    "what": ["full"], "subgraph": [""], "step": [None], "skip": [None],
    "imports": [None], "allocation": ["auto"], "coverage": [0.0],
}  # fmt: skip


@dataclass(frozen=True)
class ReplayChoice:
    """Which part of a trace is replayed, and how."""

    what: str
    subgraph: str
    step: int | None
    skip: tuple[str, ...]
    imports: tuple[str, ...]
    allow: tuple[str, ...] = ()


def _refuse(params: Mapping[str, Any], member: str) -> None:
    """Refuse invalid parameters before anything is read."""
    for name, known in (("what", WHAT), ("allocation", ALLOCATION)):
        if params.get(name, known[0]) not in known:
            raise UsageError(f"{name} of a replay is {params[name]!r:.60}", do=f"give one of {', '.join(known)}")
    coverage = params.get("coverage", 0.0)
    if type(coverage) not in (int, float) or not 0 <= coverage <= 1:
        raise UsageError(f"the required coverage is {coverage!r:.60}", do="give a share from 0 to 1")
    step = params.get("step")
    if step is not None and (type(step) is not int or step < 0):
        raise UsageError(f"the step of a replay is {step!r:.60}", do="give its number, counted from 0")
    for name in ("skip", "imports"):
        value = params.get(name)
        if value is not None and not all(isinstance(word, str) for word in ([value] if isinstance(value, str) else value)):
            raise UsageError(f"{name} of a replay is {value!r:.60}", do="give names")


def _contents(path: Path) -> list[OpenedFile]:
    """Return one case for a trace or for the traces of all ranks (rank-N.json); for another folder, one case per trace."""
    if not path.is_dir() or rank_files(path):
        return [folders.opened(path)]
    return [folders.opened(item) for item in sorted(path.iterdir()) if item.name.endswith((".json", ".json.gz"))]


@workload(
    "trace", axes=DEFAULTS, tags=["trace"], modes=["eval"], opens="file", contents=_contents, identify=folders.identify, refuse=_refuse
)
def trace(
    file: str, what: str, subgraph: str, step: int | None, skip: Any, imports: Any, allocation: str, coverage: float, be: Any,
    settings: Settings,
) -> Task:  # fmt: skip
    """A recorded execution trace, replayed operator by operator on tensors of the recorded shapes and formats."""
    import torch

    from steelyard.workloads.traces import _comms, _lazily, _play, _task, comms

    choice = ReplayChoice(what, subgraph or "", step, _words(skip), _agreed(_words(imports), settings.allow), tuple(settings.allow))
    if what == "communication":
        return comms.build(file, step, subgraph or "", be, _comms.CommChoice())
    seat = be.join() if be.seat.size > 1 else be.seat
    own = str(folders.of_rank(Path(file), seat.rank))
    made = _prepared(own, _stamp(Path(own)), choice, str(be.where), be.seed, seat.size)
    fitted = made.fitted
    lazy, source = _lazy(allocation, made, be), made.source(be.seed)
    steps = _play.Linker(fitted.program, source.device_of).steps(fitted.found)
    tensors = source.tensors(fitted.program, made.bounds) if not lazy else ()
    steps = _lazily.with_makers(steps, fitted.program, source, made.bounds) if lazy else steps
    replayed = _task.ReplayTask(made, steps, tuple(tensors), be.device, settings.peak_memory and seat.size == 1)
    facts = {"replay": {**made.facts(), "allocation": "lazy" if lazy else "ahead"}}
    if seat.size > 1:
        return replace(replayed.on_ranks(coverage), scope=torch.no_grad, in_place=True, effective=facts)
    rule = f"replay[coverage={coverage:g}]" if coverage else "replay"
    return replace(replayed.task(), scope=torch.no_grad, rule=rule, in_place=True, effective=facts)


def _words(value: Any) -> tuple[str, ...]:
    """Return words from a list, or from text with + between them."""
    return () if value is None else tuple(value.split("+")) if isinstance(value, str) else tuple(value)


def _agreed(modules: Sequence[str], allow: Sequence[str]) -> tuple[str, ...]:
    """Return the modules if the user allowed each: an experiment file may name modules too, and importing one runs its code."""
    for name in modules:
        if f"import:{name}" not in allow:
            raise Unsupported(
                f"module {name[:80]!r} is not imported", why="importing it runs its code", do=f"allow it with --allow import:{name[:80]}"
            )
    return tuple(modules)


def _lazy(allocation: str, made: PreparedReplay, be: Any) -> bool:
    """Whether given tensors are made when they are first needed: if requested, or if all at once do not fit."""
    from steelyard.workloads.traces import _task

    room = _task.free_memory(be.device)
    if allocation == "lazy" or room is None:
        return allocation == "lazy"
    ahead, lazily = (made.fitted.program.peak_bytes(lazy=each) for each in (False, True))
    if allocation == "auto" and ahead > room >= lazily:
        return True
    if (lazily if allocation == "auto" else ahead) > room:
        raise Unsupported(f"the replay needs {quantity(ahead, 'B')}, but only {quantity(room, 'B')} are free", do="replay a subgraph")
    return False


@dataclass(frozen=True)
class PreparedReplay:
    """A trace that was read, fitted to this build of torch and tried once; every build of its task shares it."""

    path: Path
    fitted: Fitted
    coverage: Coverage
    resources: Path | None
    bounds: Any
    device: str
    opened: int
    threads: int
    recorded_on: tuple[str, ...]
    order: tuple[TraceNode, ...]

    def source(self, seed: int) -> Any:
        """Return the source of given tensors."""
        from steelyard.workloads.traces import _data

        ranges = {node.id: node.tensor_ranges for node in self.order if node.tensor_ranges}
        return _data.TensorSource(_data.places(self.device, self.recorded_on), self.resources, seed, ranges)

    def facts(self) -> dict[str, Any]:
        """Return what is replayed and what is not, for the record."""
        threads = "as recorded" if self.threads <= 1 else f"{self.threads} recorded; one thread makes all calls in their recorded order"
        given = self.fitted.program
        return {
            **self.coverage.facts(), "opened": self.opened, "threads": threads, "streams": "one",
            "recorded_on": list(self.recorded_on), "given_tensors": len(given.given), "given_bytes": given.given_bytes,
        }  # fmt: skip


def prepared(file: str, words: Mapping[str, Any], device: str) -> PreparedReplay:
    """Return a trace prepared for a device, by its parameters, for uses other than measuring."""
    choice = ReplayChoice(
        words.get("what") or WHAT[0],
        words.get("subgraph") or "",
        words.get("step"),
        _words(words.get("skip")),
        _words(words.get("imports")),
    )
    return _prepared(file, _stamp(Path(file)), choice, device, 0)


def _stamp(path: Path) -> tuple[int, ...]:
    """Return times and sizes that change when a trace or a file recorded with it changes."""
    return tuple(number for file in folders.parts(path) for number in (file.stat().st_mtime_ns, file.stat().st_size))


@functools.lru_cache(maxsize=4)
def _prepared(file: str, stamp: tuple[int, ...], choice: ReplayChoice, device: str, seed: int, ranks: int = 1) -> PreparedReplay:
    """Read a trace, choose its nodes, fit and try them; cached, because a comparison builds its task many times."""
    from steelyard.traces.steps import read_trace
    from steelyard.workloads.traces import _bounds, _choice, _coverage, _data, _kernels, _operators, _trial

    path, between = Path(file), None
    trace = read_trace(path, choice.step, choice.subgraph)
    kernels = _kernels.TritonKernels.of(trace.resources, choice.allow, device)
    known = _operators.KnownOperators.after(choice.imports, kernels.find)
    nodes, opened = _choice.chosen(trace, known.composite)
    if choice.what == "compute":
        nodes = [node for node in nodes if not _choice.speaks(node)]
    elif ranks > 1:
        known, between = _together(trace, known, device)
    if not nodes:
        raise UsageError("the trace has no operator to replay", why="no node has a schema", where=str(path))
    devices = tuple(sorted({ref.device for node in nodes for argument in (*node.inputs, *node.outputs) for ref in argument.tensors()}))
    found, reasons = _trial.refused(nodes, known, dict.fromkeys(choice.skip, ""))
    ranges = {node.id: node.tensor_ranges for node in nodes if node.tensor_ranges}
    source = _data.TensorSource(_data.places(device, devices), trace.resources, seed, ranges)
    fitted = _trial.try_out(nodes, found, reasons, source)
    if between is not None:
        between.live = True
    costs = {node.id: _coverage.cost_of(node, trace, known) for node in nodes}
    coverage = _coverage.Coverage(nodes, fitted.program.skipped, fitted.strange, costs, _coverage.unseen_code(trace, known))
    threads = len({node.tid for node in nodes})
    bounds = _bounds.bounds_of(fitted.program, fitted.found)
    return PreparedReplay(path, fitted, coverage, trace.resources, bounds, device, opened, threads, devices, tuple(nodes))


def _together(trace: Any, known: Any, device: str) -> tuple[Any, Any]:
    """Exchange calls with all ranks; return the operators with calls to other ranks, and the switch that enables these."""
    import torch
    import torch.distributed as dist

    from steelyard.traces.comms import comms_of, read_groups
    from steelyard.workloads.traces import _between, _meeting

    own = comms_of(trace, read_groups(trace.path))
    meeting = _meeting.Meeting.hold(own, dist.get_rank(), dist.get_world_size(), torch.device(device))
    between = _between.Between()
    return replace(known, between=between.operators(trace.by_id, own, meeting)), between
