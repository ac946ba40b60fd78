"""Collectives between the operators of a replay: c10d operators on the replay's own tensors, in the groups they were recorded in."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist

from steelyard.traces.comms import POINT_TO_POINT, SPACE, RankComms
from steelyard.traces.nodes import TraceNode
from steelyard.workloads.traces._exchanges import Joined
from steelyard.workloads.traces._meeting import Meeting
from steelyard.workloads.traces._operators import FoundOperator


@dataclass
class Between:
    """The collectives of a rank's replay. They are made only if `live` is set; before that they leave tensors unchanged.

    Ranks may need different numbers of trials, so nothing is sent to other ranks before all trials are done.
    """

    live: bool = False
    sent: list[Any] = field(default_factory=list)
    """Messages in flight: a rank that sends before it receives must not wait until its message is sent."""

    def operators(self, nodes: Mapping[int, TraceNode], own: RankComms, meeting: Meeting) -> dict[int, FoundOperator]:
        """Return the operator to call for each node that is a collective or a message."""
        joined, found = meeting.join(), {}
        for call in own.calls:
            node = nodes.get(call.node)
            if node is None or not node.schema.startswith(SPACE) or call.group not in joined:
                continue
            base = node.overload.removeprefix(SPACE)
            speak = CALLS.get(base)
            if speak is None:
                continue
            packet = getattr(torch.ops.c10d, base)
            made = functools.partial(self.call, functools.partial(speak, joined[call.group]), call.kind in POINT_TO_POINT)
            found[node.id] = FoundOperator(f"{SPACE}{base}", made, torch._C._get_schema(f"{SPACE}{base}", ""), packet)
        return found

    def call(self, speak: Callable[..., Sequence[Any]], message: bool, *args: Any) -> Any:
        """Make a call, wait for it unless it is a message, and return the tensors that it fills, as c10d does."""
        if self.live:
            works = speak(*args)
            if message:
                self.sent += works
            else:
                self.settle()
                for work in works:
                    work.wait()
        return args[0], None

    def settle(self) -> None:
        """Wait for all messages in flight."""
        for work in self.sent:
            work.wait()
        self.sent.clear()


def _each(function: Callable[..., Any], joined: Joined, tensors: Sequence[Any], **more: Any) -> list[Any]:
    return [function(tensor, group=joined.group, async_op=True, **more) for tensor in tensors]


def _base(name: str, older: str, joined: Joined, out: Any, data: Any) -> list[Any]:
    function = getattr(dist, name, None) or getattr(dist, older)
    return [function(out, data, group=joined.group, async_op=True)]


def _swap(joined: Joined, out: Any, data: Any, _: Any, outs: Any, ins: Any, *rest: Any) -> list[Any]:
    return [dist.all_to_all_single(out, data, list(outs) or None, list(ins) or None, group=joined.group, async_op=True)]


def _gather(joined: Joined, outs: Any, ins: Any, _: Any, root: int, *rest: Any) -> list[Any]:
    here = joined.place == root
    return [dist.gather(ins[0], list(outs[0]) if here else None, joined.ranks[root], group=joined.group, async_op=True)]


def _scatter(joined: Joined, outs: Any, ins: Any, _: Any, root: int, *rest: Any) -> list[Any]:
    here = joined.place == root
    return [dist.scatter(outs[0], list(ins[0]) if here else None, joined.ranks[root], group=joined.group, async_op=True)]


def _send(joined: Joined, tensors: Any, _: Any, to: int, tag: int = 0, *rest: Any) -> list[Any]:
    return [dist.isend(tensor, joined.ranks[to], group=joined.group, tag=tag) for tensor in tensors]


def _receive(joined: Joined, tensors: Any, _: Any, source: int, tag: int = 0, *rest: Any) -> list[Any]:
    return [dist.irecv(tensor, joined.ranks[source], group=joined.group, tag=tag) for tensor in tensors]


CALLS: Mapping[str, Callable[..., Sequence[Any]]] = {
    "allreduce_": lambda at, tensors, *rest: _each(dist.all_reduce, at, tensors),
    "allreduce_coalesced_": lambda at, tensors, *rest: [at.group.allreduce_coalesced(list(tensors))],
    "broadcast_": lambda at, tensors, _, root, *rest: _each(dist.broadcast, at, tensors, src=at.ranks[root]),
    "reduce_": lambda at, tensors, _, op, root, *rest: _each(dist.reduce, at, tensors, dst=at.ranks[root]),
    "allgather_": lambda at, outs, ins, *rest: [dist.all_gather(list(outs[0]), ins[0], group=at.group, async_op=True)],
    "_allgather_base_": lambda at, out, data, *rest: _base("all_gather_single", "all_gather_into_tensor", at, out, data),
    "gather_": _gather,
    "scatter_": _scatter,
    "reduce_scatter_": lambda at, outs, ins, *rest: [dist.reduce_scatter(outs[0], list(ins[0]), group=at.group, async_op=True)],
    "_reduce_scatter_base_": lambda at, out, data, *rest: _base("reduce_scatter_single", "reduce_scatter_tensor", at, out, data),
    "alltoall_base_": _swap,
    "alltoall_": lambda at, outs, ins, *rest: [dist.all_to_all(list(outs), list(ins), group=at.group, async_op=True)],
    "send": _send,
    "recv_": _receive,
    "barrier": lambda at, *rest: [dist.barrier(group=at.group, async_op=True)],
    "monitored_barrier_": lambda at, *rest: [dist.barrier(group=at.group, async_op=True)],
}
"""The function to call for each c10d operator, with its recorded arguments; reductions are sums, as traces do not record which."""
