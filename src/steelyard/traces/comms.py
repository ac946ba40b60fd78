"""The communication of a rank in a recorded step: collectives and messages in order, with their groups, sizes and partners.

PyTorch records a call as an operator of `c10d`, which has its arguments, and NCCL's backend records a `record_param_comms` inside it,
which has the group and the number of the request. Either may be missing: gloo writes only the first, old traces only the second.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from steelyard.errors import UsageError
from steelyard.traces.nodes import COMMUNICATION, PROCESS_GROUPS, SIZES, TensorRef, TraceArgument, TraceNode
from steelyard.traces.reading import open_trace
from steelyard.traces.steps import Trace, read_trace

DEFAULT_GROUP = ""
SPACE = "c10d::"
POINT_TO_POINT = ("send", "recv")
QUIET = ("wait", "barrier")
"""Calls that move no message."""
IN_PLACE = ("all_reduce", "all_reduce_coalesced", "broadcast", "reduce", "multicast")
UNEVEN = ("all_to_allv",)
_KINDS = {
    "allreduce": "all_reduce", "allreducecoalesced": "all_reduce_coalesced", "broadcast": "broadcast", "broadcastoop": "broadcast",
    "reduce": "reduce", "reduceoop": "reduce", "allgather": "all_gather", "allgatherv": "all_gather_v", "allgatherbase": "all_gather_base",
    "allgatherintotensor": "all_gather_base", "allgathersingle": "all_gather_base", "gather": "gather", "scatter": "scatter",
    "reducescatter": "reduce_scatter", "reducescatterv": "reduce_scatter_v", "reducescatterbase": "reduce_scatter_base",
    "reducescattertensor": "reduce_scatter_base", "reducescattersingle": "reduce_scatter_base", "alltoall": "all_to_all",
    "alltoallbase": "all_to_all_single", "alltoallsingle": "all_to_all_single", "alltoallv": "all_to_allv", "multicast": "multicast",
    "incast": "incast", "send": "send", "isend": "send", "recv": "recv", "irecv": "recv", "wait": "wait", "barrier": "barrier",
    "monitoredbarrier": "barrier",
}  # fmt: skip
KINDS = tuple(dict.fromkeys(_KINDS.values()))
COLLECTIVES = tuple(kind for kind in KINDS if kind not in (*POINT_TO_POINT, *QUIET))
_RANK_FILE = re.compile(r"rank-(\d{1,6})\.json(\.gz)?", re.ASCII)
_MOST_GROUP_TEXT = 2**24
_LARGEST_WORLD = 2**20


@dataclass(frozen=True)
class RankGroup:
    """A process group: ranks by their global numbers; empty if a trace does not record them, though `size` may be known."""

    name: str
    ranks: tuple[int, ...] = ()
    size: int = 0

    def members(self, world: int) -> tuple[int, ...]:
        """The ranks of the group, of `world` ranks; all if it names none."""
        return self.ranks or tuple(range(world))


@dataclass(frozen=True)
class CommCall:
    """One call: its kind, its group, how many elements each tensor has, and the root or partner by its index in the group."""

    node: int
    kind: str
    group: str = DEFAULT_GROUP
    sends: tuple[int, ...] = ()
    receives: tuple[int, ...] = ()
    dtype: str = "float32"
    in_splits: tuple[int, ...] = ()
    out_splits: tuple[int, ...] = ()
    peer: int | None = None
    tag: int = 0
    request: int | None = None
    waits: bool = False
    """Whether the caller waited for it immediately."""
    start: float | None = None

    @property
    def itemsize(self) -> int:
        """The size of an element in bytes."""
        return SIZES.get(self.dtype, 1)

    @property
    def sent_bytes(self) -> int:
        """The bytes that the rank sends."""
        return sum(self.sends) * self.itemsize

    @property
    def received_bytes(self) -> int:
        """The bytes that the rank receives."""
        return sum(self.receives) * self.itemsize

    @property
    def message_bytes(self) -> int:
        """The size of the message as nccl-tests counts it: the larger side."""
        return max(self.sent_bytes, self.received_bytes)

    @property
    def collective(self) -> bool:
        """Whether all ranks of the group take part."""
        return self.kind not in POINT_TO_POINT and self.kind != "wait"


def bus_share(kind: str, ranks: int) -> float:
    """The fraction of a message that a link carries, by the formulas of nccl-tests."""
    if ranks < 2 or kind in QUIET:
        return 0.0
    if kind.startswith("all_reduce"):
        return 2 * (ranks - 1) / ranks
    return 1.0 if kind in ("broadcast", "reduce", "multicast", "incast", *POINT_TO_POINT) else (ranks - 1) / ranks


@dataclass(frozen=True)
class RankComms:
    """All calls of one rank's step, and the groups in its trace; `unread` counts calls of unknown kinds."""

    path: Path
    calls: tuple[CommCall, ...]
    groups: Mapping[str, RankGroup]
    unread: Mapping[str, int]

    @property
    def world(self) -> int:
        """The number of ranks, as far as the trace shows it."""
        named = [max(group.ranks, default=-1) + 1 for group in self.groups.values()]
        return max([0, *named, *(group.size for group in self.groups.values()), *(call.peer + 1 for call in self.calls if call.peer)])

    def messages(self) -> list[dict[str, Any]]:
        """How often each kind of call was made, and how much it moved, as plain data."""
        kinds = dict.fromkeys(call.kind for call in self.calls)
        rows = []
        for kind in kinds:
            own = [call for call in self.calls if call.kind == kind]
            sizes = sorted(call.message_bytes for call in own)
            rows.append(
                {
                    "kind": kind, "calls": len(own), "sent_bytes": sum(call.sent_bytes for call in own),
                    "received_bytes": sum(call.received_bytes for call in own), "smallest": sizes[0], "median": sizes[len(sizes) // 2],
                    "largest": sizes[-1],
                }
            )  # fmt: skip
        return rows


def rank_files(folder: Path) -> dict[int, Path]:
    """The traces of a folder by rank: `rank-N.json`, also compressed; a missing rank is an error."""
    found: dict[int, Path] = {}
    for item in sorted(folder.iterdir()):
        if name := _RANK_FILE.fullmatch(item.name):
            if int(name[1]) in found:
                raise UsageError(f"{folder} has two traces of rank {int(name[1])}", do="remove one of them")
            found[int(name[1])] = item
    if found and set(found) != set(range(len(found))):
        lacking = next(rank for rank in range(max(found)) if rank not in found)
        raise UsageError(
            f"{folder} has no trace of rank {lacking}", why=f"it has one of rank {max(found)}", do="add rank-N.json for every rank"
        )
    return found


def read_comms(path: Path, step: int | None = None, subgraph: str = "") -> RankComms:
    """The communication of one step of a trace."""
    return comms_of(read_trace(path, step, subgraph), read_groups(path))


def read_groups(path: Path) -> dict[str, RankGroup]:
    """The groups that a trace lists; PyTorch lists them once, before the first step."""
    found: dict[str, RankGroup] = {}
    with open_trace(path) as reader:
        for node in reader:
            if node.name == PROCESS_GROUPS:
                found.update(_listed(node))
    return found


def _listed(node: TraceNode) -> dict[str, RankGroup]:
    text = node.inputs[0].value if node.inputs else None
    if not isinstance(text, str) or len(text) > _MOST_GROUP_TEXT:
        return {}
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    found = {}
    for item in data if isinstance(data, list) else ():
        if not isinstance(item, dict) or not isinstance(name := item.get("pg_name"), (str, int)):
            continue
        ranks, size = item.get("ranks"), item.get("group_size", 0)
        named = tuple(rank for rank in ranks if type(rank) is int and 0 <= rank < _LARGEST_WORLD) if isinstance(ranks, (list, dict)) else ()
        found[str(name)] = RankGroup(str(name), tuple(sorted(set(named))), size if type(size) is int and 0 <= size < _LARGEST_WORLD else 0)
    return found


def comms_of(trace: Trace, groups: Mapping[str, RankGroup]) -> RankComms:
    """The calls of a step in order."""
    known, calls, unread = dict(groups), list[CommCall](), Counter[str]()
    for node in trace.nodes:
        recorded = _recorded_by(trace, node)
        if recorded is None:
            continue
        operator, backend = recorded
        call = _of_backend(backend, known) if backend is not None else None
        if operator is not None:
            call = _joined(_of_operator(operator), call)
        if call is None:
            unread[_written(operator or backend or node)] += 1
        elif call.kind != "init":
            time = (operator or backend or node).time
            calls.append(replace(call, start=time.start if time else None))
    requests = {call.request for call in calls if call.kind == "wait"}
    calls = [replace(call, waits=call.waits or (call.kind == "barrier" and call.request not in requests)) for call in calls]
    return RankComms(trace.path, tuple(_grouped(call, known) for call in calls), known, dict(unread))


def _recorded_by(trace: Trace, node: TraceNode) -> tuple[TraceNode | None, TraceNode | None] | None:
    """The operator of a call and its node from the backend; None if the node is not a call, or is part of a call counted already."""
    if node.is_communication:
        quiet = _written(node) in ("wait", "init")
        around = any(other.is_communication or other.schema.startswith(SPACE) for other in trace.above(node))
        return (None, node) if quiet or not around else None
    if not node.schema.startswith(SPACE):
        return None
    inside = (other for _, other in trace.below(node) if other.is_communication and _written(other) not in ("wait", "init"))
    return node, next(inside, None)


def _written(node: TraceNode) -> str:
    """The name of a call as written in the trace."""
    if node.name != COMMUNICATION:
        return node.overload.removeprefix(SPACE)
    return next((item.value for item in node.inputs if item.kind == "str" and (kind_of(item.value) or item.value == "init")), "?")


def kind_of(name: str) -> str | None:
    """The kind of call that a recorded name means; None if it is unknown."""
    return _KINDS.get(re.sub(r"[^a-z]", "", name.lower().removeprefix("nccl:")))


def _elements(arguments: Iterable[TraceArgument]) -> tuple[TensorRef, ...]:
    return tuple(ref for argument in arguments for ref in argument.tensors())


def _of_operator(node: TraceNode) -> CommCall | None:
    """The call of a c10d operator, from its named arguments; None if its kind is unknown."""
    kind = kind_of(node.overload.removeprefix(SPACE))
    if kind is None:
        return None
    named = dict(zip(_names(node.schema), node.inputs, strict=False))
    inputs = _elements(item for name, item in named.items() if name in ("input", "input_tensor", "input_tensors", "inputs"))
    outputs = _elements(item for name, item in named.items() if name in ("output", "output_tensor", "output_tensors", "outputs"))
    both = _elements(item for name, item in named.items() if name in ("tensor", "tensors"))
    sends, receives = inputs or (both if kind not in ("recv", *QUIET) else ()), outputs or (both if kind not in ("send", *QUIET) else ())
    peer = next((_number(named.get(name)) for name in ("root_rank", "dst", "src") if name in named), None)
    ins, outs = (_numbers(named.get(name)) for name in ("input_split_sizes", "output_split_sizes"))
    return CommCall(
        node.id, "all_to_allv" if kind == "all_to_all_single" and ins else kind,
        sends=tuple(ref.numel for ref in sends), receives=tuple(ref.numel for ref in receives),
        dtype=next((ref.dtype for ref in (*sends, *receives)), "float32"), in_splits=ins, out_splits=outs, peer=peer,
        tag=_number(named.get("tag")) or 0, waits=getattr(named.get("async_op"), "value", None) is False,
    )  # fmt: skip


def _names(schema: str) -> list[str]:
    """The names of an operator's arguments."""
    inside = schema.partition("(")[2].rpartition(" -> ")[0].rstrip(")")
    return [part.partition("=")[0].split()[-1] for part in inside.split(",") if part.strip()]


def _of_backend(node: TraceNode, groups: dict[str, RankGroup]) -> CommCall | None:
    """The call of a `record_param_comms`: the arguments around the call's name are the same in every schema."""
    at = next((place for place, item in enumerate(node.inputs) if item.kind == "str" and kind_of(item.value)), None)
    if at is None:
        return CommCall(node.id, "init") if _written(node) == "init" else None
    kind = kind_of(node.inputs[at].value)
    assert kind is not None

    def beside(distance: int) -> TraceArgument | None:
        place = at + distance
        return node.inputs[place] if 0 <= place < len(node.inputs) else None

    group = _group_name(beside(-2))
    start, stride, size = (_number(beside(place)) for place in (3, 4, 5))
    if group not in groups and size and stride and start is not None and _sound(start, stride, size):
        groups[group] = RankGroup(group, tuple(range(start, start + stride * size, stride)), size)
    sends = _elements(node.inputs[: max(0, at - 3)])
    receives = _elements(node.outputs)
    dtype = next((ref.dtype for ref in (*sends, *receives)), str(node.attributes.get("dtype", "float32")).lower())
    counts = [tuple(ref.numel for ref in refs) for refs in (sends, receives)]
    for place, key in enumerate(("in_msg_nelems", "out_msg_nelems")):
        value = node.attributes.get(key)
        if not counts[place] and type(value) is int and 0 < value < 2**48:
            counts[place] = (value,)
    splits = [_numbers(beside(place)) for place in (1, 2)]
    peer = _number(beside(-1)) if kind in ("broadcast", "reduce", "gather", "scatter", "multicast", "incast", *POINT_TO_POINT) else None
    if kind == "all_to_all_single" and splits[0]:
        kind = "all_to_allv"
    return CommCall(node.id, kind, group, *_sides(kind, *counts), dtype, splits[0], splits[1], peer, request=_request(beside(-3)))


def _sound(start: int, stride: int, size: int) -> bool:
    """Whether these numbers can describe ranks."""
    return min(start, stride, size) >= 0 and start + stride * size <= _LARGEST_WORLD


def _sides(kind: str, sends: tuple[int, ...], receives: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Sizes sent and received, also for kinds whose tensors a backend lists only once."""
    if kind in QUIET:
        return (), ()
    if kind in IN_PLACE:
        return (sends or receives,) * 2
    return ((), receives or sends) if kind == "recv" else (sends or receives, ()) if kind == "send" else (sends, receives)


def _group_name(argument: TraceArgument | None) -> str:
    """A group's name: the argument itself, or the first item of a pair of name and description."""
    value = getattr(argument, "value", None)
    if isinstance(value, tuple) and value:
        value = value[0].value
    return str(value) if isinstance(value, (str, int)) and value != "" else DEFAULT_GROUP


def _request(argument: TraceArgument | None) -> int | None:
    """The number of a request: the argument itself, or the first item of a pair of number and whether it is a message."""
    value = getattr(argument, "value", None)
    if isinstance(value, tuple) and value:
        value = value[0].value
    return value if type(value) is int else None


def _number(argument: TraceArgument | None) -> int | None:
    value = getattr(argument, "value", None)
    return value if type(value) is int else None


def _numbers(argument: TraceArgument | None) -> tuple[int, ...]:
    value = getattr(argument, "value", None)
    found = tuple(item.value for item in value) if isinstance(value, tuple) else ()
    return found if all(type(item) is int and 0 <= item < 2**48 for item in found) else ()


def _joined(operator: CommCall | None, backend: CommCall | None) -> CommCall | None:
    """One call from its two records, either of which may be missing."""
    if operator is None or backend is None:
        return operator or backend
    return replace(operator, group=backend.group, request=backend.request)


def _grouped(call: CommCall, groups: Mapping[str, RankGroup]) -> CommCall:
    """The call, with a group if none is recorded: the only group whose size fits its tensors, else the group of all."""
    if call.group != DEFAULT_GROUP or len(groups) < 2:
        return call
    parts = len(call.receives if call.kind in ("all_gather", "all_to_all") else call.sends if call.kind == "reduce_scatter" else ())
    if call.kind.endswith("_base") and call.sends and call.receives:
        parts = max(call.sends[0], call.receives[0]) // max(1, min(call.sends[0], call.receives[0]))
    fitting = [group for group in groups.values() if parts and len(group.ranks or range(group.size)) == parts]
    return replace(call, group=fitting[0].name) if len(fitting) == 1 and fitting[0].ranks else call


def shrunk(comms: RankComms, rank: int, world: int) -> RankComms:
    """The calls as made by fewer ranks: groups lose the missing ranks, and calls to those are left out."""
    groups = {
        name: replace(group, ranks=tuple(other for other in group.members(comms.world) if other < world), size=0)
        for name, group in comms.groups.items()
    }
    everyone = RankGroup(DEFAULT_GROUP)
    kept = []
    for call in comms.calls:
        before = comms.groups.get(call.group, everyone).members(comms.world)
        after = groups.get(call.group, everyone).members(world)
        peer = before[call.peer] if call.peer is not None and call.peer < len(before) else None
        if rank not in after or (call.kind in POINT_TO_POINT and peer not in after):
            continue
        root = after.index(peer) if peer in after else 0
        sizes = [
            tuple(size for size, member in zip(splits, before, strict=False) if member in after)
            for splits in (call.in_splits, call.out_splits)
        ]
        call = replace(call, peer=root if call.peer is not None else None, in_splits=sizes[0], out_splits=sizes[1])
        kept.append(_fitted(call, len(before), len(after)))
    return RankComms(comms.path, tuple(kept), groups, comms.unread)


def _fitted(call: CommCall, before: int, after: int) -> CommCall:
    """A call with its sizes for fewer ranks: tensors with a part for each rank get fewer parts."""

    def fewer(counts: Sequence[int]) -> tuple[int, ...]:
        return tuple(counts[:after]) if len(counts) == before > 1 else tuple(count * after // before for count in counts)

    if call.in_splits or call.out_splits:
        return replace(call, sends=(sum(call.in_splits),), receives=(sum(call.out_splits),))
    if call.kind.startswith("all_to_all"):
        return replace(call, sends=fewer(call.sends), receives=fewer(call.receives))
    if call.kind.startswith(("all_gather", "gather")):
        return replace(call, receives=fewer(call.receives))
    return replace(call, sends=fewer(call.sends)) if call.kind.startswith(("reduce_scatter", "scatter")) else call
