"""Makes the recorded calls between ranks: buffers of the recorded sizes, the call, and the expected data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from steelyard.traces.comms import IN_PLACE, POINT_TO_POINT, CommCall, bus_share
from steelyard.workloads.collectives import patterns
from steelyard.workloads.traces._data import DTYPES

GLOO = frozenset({"float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "int64"})
"""Formats that gloo can send; other formats are sent as bytes."""
NCCL = GLOO | {"bool", "float8_e4m3fn", "float8_e5m2"}
CARRIER = "uint8"


@dataclass(frozen=True)
class Exchange:
    """One call: `issue` begins it and returns what to wait for, `fill` writes the data to send, `wrong` counts wrong values."""

    call: CommCall
    ranks: tuple[int, ...]
    issue: Callable[[], Sequence[Any]]
    fill: Callable[[], None]
    wrong: Callable[[], int]
    message_bytes: int
    dtype: str

    @property
    def bus_bytes(self) -> float:
        """Bytes of the message that a link carries."""
        return self.message_bytes * bus_share(self.call.kind, len(self.ranks))


@dataclass(frozen=True)
class Joined:
    """A group that exists: torch's group, its ranks, and this rank's place in it."""

    group: Any
    ranks: tuple[int, ...]
    place: int

    @property
    def size(self) -> int:
        """Number of ranks in the group."""
        return len(self.ranks)


@dataclass
class Buffers:
    """Memory for messages: separate for each call, or with `reuse` shared by all messages of one format."""

    device: Any
    reuse: bool = False
    held: dict[tuple[str, str], Any] = field(default_factory=dict)

    def get(self, role: str, dtype: str, count: int, *, own: bool = False) -> Any:
        """Return a buffer for `count` elements."""
        if own or not self.reuse:
            return torch.zeros(count, dtype=DTYPES[dtype], device=self.device)
        found = self.held.get((role, dtype))
        if found is None or found.numel() < count:
            found = self.held[role, dtype] = torch.zeros(count, dtype=DTYPES[dtype], device=self.device)
        return found[:count]

    @property
    def nbytes(self) -> int:
        """Bytes of shared memory."""
        return sum(tensor.nbytes for tensor in self.held.values())


def carried(dtype: str, backend: str) -> str:
    """Return the format in which elements are sent."""
    return dtype if dtype in (GLOO if backend == "gloo" else NCCL) and dtype in DTYPES else CARRIER


class ExchangeMaker:
    """Makes the calls of one rank; `peers` are the same call on every rank of the group."""

    def __init__(self, joined: Joined, buffers: Buffers, backend: str) -> None:
        self.joined, self.buffers, self.backend = joined, buffers, backend

    def make(self, call: CommCall, peers: Sequence[CommCall]) -> Exchange:
        """Return a call with its buffers."""
        dtype = carried(call.dtype, self.backend)
        scale = 1 if dtype == call.dtype else call.itemsize
        issue, sent, expected = getattr(self, f"_{call.kind}")(_scaled(call, scale), [_scaled(peer, scale) for peer in peers], dtype)

        def fill() -> None:
            for tensor, values in sent():
                tensor.copy_(torch.from_numpy(np.ascontiguousarray(values)))

        def wrong() -> int:
            bad = 0
            for tensor, values in expected():
                want = torch.from_numpy(np.ascontiguousarray(values)).to(tensor.device).to(tensor.dtype)
                bad += int((tensor != want).sum())
            return bad

        return Exchange(call, self.joined.ranks, issue, fill, wrong, self._message(call, peers), dtype)

    def _message(self, call: CommCall, peers: Sequence[CommCall]) -> int:
        return max([call.message_bytes, *(peer.message_bytes for peer in peers)], default=0)

    def _root(self, call: CommCall) -> int:
        return self.joined.ranks[call.peer or 0]

    def _values(self, count: int, below: int, place: int | None = None) -> Any:
        return patterns.values(self.joined.place if place is None else place, count, below)

    def _in_place(self, call: CommCall, dtype: str) -> list[Any]:
        return [self.buffers.get(f"in{place}", dtype, count) for place, count in enumerate(call.sends)]

    def _all_reduce(self, call: CommCall, peers: Sequence[CommCall], dtype: str) -> Any:
        tensors, group = self._in_place(call, dtype), self.joined.group

        def issue() -> Sequence[Any]:
            return [dist.all_reduce(tensor, group=group, async_op=True) for tensor in tensors]

        return issue, lambda: self._summands(tensors), lambda: self._sums(tensors)

    def _summands(self, tensors: Sequence[Any]) -> Any:
        return [(tensor, self._values(tensor.numel(), patterns.SUMMED)) for tensor in tensors]

    def _sums(self, tensors: Sequence[Any]) -> Any:
        return [(tensor, patterns.sums(self.joined.size, tensor.numel())) for tensor in tensors]

    def _all_reduce_coalesced(self, call: CommCall, peers: Sequence[CommCall], dtype: str) -> Any:
        tensors, group = self._in_place(call, dtype), self.joined.group

        def issue() -> Sequence[Any]:
            return [group.allreduce_coalesced(tensors)]

        return issue, lambda: self._summands(tensors), lambda: self._sums(tensors)

    def _broadcast(self, call: CommCall, peers: Sequence[CommCall], dtype: str) -> Any:
        tensors, group, root = self._in_place(call, dtype), self.joined.group, self._root(call)

        def issue() -> Sequence[Any]:
            return [dist.broadcast(tensor, root, group=group, async_op=True) for tensor in tensors]

        def sent() -> Any:
            return [(tensor, self._values(tensor.numel(), patterns.MOVED)) for tensor in tensors]

        def expected() -> Any:
            return [(tensor, self._values(tensor.numel(), patterns.MOVED, call.peer or 0)) for tensor in tensors]

        return issue, sent, expected

    _multicast = _broadcast

    def _reduce(self, call: CommCall, peers: Sequence[CommCall], dtype: str) -> Any:
        tensors, group, root = self._in_place(call, dtype), self.joined.group, self._root(call)
        here = self.joined.place == (call.peer or 0)

        def issue() -> Sequence[Any]:
            return [dist.reduce(tensor, root, group=group, async_op=True) for tensor in tensors]

        return issue, lambda: self._summands(tensors), lambda: self._sums(tensors) if here else []

    def _incast(self, call: CommCall, peers: Sequence[CommCall], dtype: str) -> Any:
        count, group, root = sum(call.sends or call.receives), self.joined.group, self._root(call)
        data = self.buffers.get("in0", dtype, count)
        others = [place for place in range(self.joined.size) if place != (call.peer or 0)]
        if self.joined.place != (call.peer or 0):
            return lambda: [dist.isend(data, root, group=group)], lambda: [(data, self._values(count, patterns.MOVED))], list
        rooms = [self.buffers.get("out", dtype, count, own=True) for _ in others]

        def issue() -> Sequence[Any]:
            return [dist.irecv(room, self.joined.ranks[place], group=group) for room, place in zip(rooms, others, strict=True)]

        return issue, list, lambda: [
            (room, self._values(count, patterns.MOVED, place)) for room, place in zip(rooms, others, strict=True)
        ]  # fmt: skip

    def _all_gather(self, call: CommCall, peers: Sequence[CommCall], dtype: str) -> Any:
        counts, group, size = [sum(peer.sends) for peer in peers], self.joined.group, self.joined.size
        data, out = self.buffers.get("in0", dtype, sum(call.sends)), self.buffers.get("out", dtype, sum(counts))
        parts = list(out.split(counts))
        if len(set(counts)) == 1:

            def issue() -> Sequence[Any]:
                return [dist.all_gather(parts, data, group=group, async_op=True)]
        else:

            def issue() -> Sequence[Any]:
                parts[self.joined.place].copy_(data)
                return [dist.broadcast(parts[place], self.joined.ranks[place], group=group, async_op=True) for place in range(size)]

        return issue, lambda: self._moved(data), lambda: self._gathered(parts)

    _all_gather_v = _all_gather

    def _moved(self, data: Any) -> Any:
        return [(data, self._values(data.numel(), patterns.MOVED))]

    def _gathered(self, parts: Sequence[Any]) -> Any:
        return [(part, self._values(part.numel(), patterns.MOVED, place)) for place, part in enumerate(parts)]

    def _all_gather_base(self, call: CommCall, peers: Sequence[CommCall], dtype: str) -> Any:
        count, group = sum(call.sends), self.joined.group
        data, out = self.buffers.get("in0", dtype, count), self.buffers.get("out", dtype, count * self.joined.size)
        gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
        return lambda: [gather(out, data, group=group, async_op=True)], lambda: self._moved(data), lambda: self._gathered(out.split(count))

    def _gather(self, call: CommCall, peers: Sequence[CommCall], dtype: str) -> Any:
        count, group, root = sum(call.sends), self.joined.group, self._root(call)
        data, here = self.buffers.get("in0", dtype, count), self.joined.place == (call.peer or 0)
        parts = list(self.buffers.get("out", dtype, count * self.joined.size).split(count)) if here else []

        def issue() -> Sequence[Any]:
            return [dist.gather(data, parts or None, root, group=group, async_op=True)]

        return issue, lambda: self._moved(data), lambda: self._gathered(parts)

    def _scatter(self, call: CommCall, peers: Sequence[CommCall], dtype: str) -> Any:
        count, group, root = sum(call.receives), self.joined.group, self._root(call)
        out, here, size = self.buffers.get("out", dtype, count), self.joined.place == (call.peer or 0), self.joined.size
        data = self.buffers.get("in0", dtype, count * size if here else 0)
        parts = list(data.split(count)) if here else None
        mine = slice(self.joined.place * count, (self.joined.place + 1) * count)

        def issue() -> Sequence[Any]:
            return [dist.scatter(out, parts, root, group=group, async_op=True)]

        def expected() -> Any:
            return [(out, self._values(count * size, patterns.MOVED, call.peer or 0)[mine])]

        return issue, lambda: self._moved(data) if here else [], expected

    def _reduce_scatter(self, call: CommCall, peers: Sequence[CommCall], dtype: str) -> Any:
        counts, group, me = [sum(peer.receives) for peer in peers], self.joined.group, self.joined.place
        data, out = self.buffers.get("in0", dtype, sum(counts)), self.buffers.get("out", dtype, counts[me])
        parts, start = list(data.split(counts)), sum(counts[:me])
        if len(set(counts)) == 1:

            def issue() -> Sequence[Any]:
                return [dist.reduce_scatter(out, parts, group=group, async_op=True)]
        else:

            def issue() -> Sequence[Any]:
                works = [dist.reduce(part, self.joined.ranks[place], group=group, async_op=True) for place, part in enumerate(parts)]
                works[me].wait()
                out.copy_(parts[me])
                return works

        return issue, lambda: self._summands([data]), lambda: self._scattered(out, sum(counts), start)

    _reduce_scatter_v = _reduce_scatter

    def _scattered(self, out: Any, whole: int, start: int) -> Any:
        return [(out, patterns.sums(self.joined.size, whole)[start : start + out.numel()])]

    def _reduce_scatter_base(self, call: CommCall, peers: Sequence[CommCall], dtype: str) -> Any:
        count, group, size = sum(call.receives), self.joined.group, self.joined.size
        data, out = self.buffers.get("in0", dtype, count * size), self.buffers.get("out", dtype, count)
        scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
        return (
            lambda: [scatter(out, data, group=group, async_op=True)], lambda: self._summands([data]),
            lambda: self._scattered(out, count * size, self.joined.place * count),
        )  # fmt: skip

    def _all_to_all(self, call: CommCall, peers: Sequence[CommCall], dtype: str) -> Any:
        return self._swap(call, peers, dtype, listed=True)

    def _all_to_all_single(self, call: CommCall, peers: Sequence[CommCall], dtype: str) -> Any:
        return self._swap(call, peers, dtype, listed=False)

    _all_to_allv = _all_to_all_single

    def _swap(self, call: CommCall, peers: Sequence[CommCall], dtype: str, *, listed: bool) -> Any:
        me, group, size = self.joined.place, self.joined.group, self.joined.size
        splits = [split_of(peer, size) for peer in peers]
        ins, outs = splits[me], [other[me] for other in splits]
        data, out = self.buffers.get("in0", dtype, sum(ins)), self.buffers.get("out", dtype, sum(outs))
        given, got = list(data.split(ins)), list(out.split(outs))

        def issue() -> Sequence[Any]:
            if listed:
                return [dist.all_to_all(got, given, group=group, async_op=True)]
            return [dist.all_to_all_single(out, data, outs, ins, group=group, async_op=True)]

        def expected() -> Any:
            for place, part in enumerate(got):
                whole, start = sum(splits[place]), sum(splits[place][:me])
                yield part, self._values(whole, patterns.MOVED, place)[start : start + part.numel()]

        return issue, lambda: self._moved(data), expected

    def _send(self, call: CommCall, peers: Sequence[CommCall], dtype: str) -> Any:
        data, group, other = self.buffers.get("in0", dtype, sum(call.sends), own=True), self.joined.group, self._root(call)
        return lambda: [dist.isend(data, other, group=group, tag=call.tag)], lambda: self._moved(data), list

    def _recv(self, call: CommCall, peers: Sequence[CommCall], dtype: str) -> Any:
        count, group, other = sum(call.receives), self.joined.group, self._root(call)
        out = self.buffers.get("out", dtype, count, own=True)
        return (
            lambda: [dist.irecv(out, other, group=group, tag=call.tag)], list,
            lambda: [(out, self._values(count, patterns.MOVED, call.peer or 0))],
        )  # fmt: skip

    def _barrier(self, call: CommCall, peers: Sequence[CommCall], dtype: str) -> Any:
        group = self.joined.group
        return lambda: [dist.barrier(group=group, async_op=True)], list, list


def _scaled(call: CommCall, scale: int) -> CommCall:
    """Return the call with its sizes in elements of a format that is `scale` times smaller."""
    if scale == 1:
        return call
    sends, receives, ins, outs = (
        tuple(count * scale for count in counts) for counts in (call.sends, call.receives, call.in_splits, call.out_splits)
    )
    return replace(call, sends=sends, receives=receives, in_splits=ins, out_splits=outs)


def split_of(call: CommCall, size: int) -> list[int]:
    """Return how many elements go to each rank: as recorded, one tensor each, or equal parts."""
    if len(call.in_splits) == size:
        return list(call.in_splits)
    return list(call.sends) if len(call.sends) == size > 1 else [sum(call.sends) // size] * size


def mismatch(calls: Sequence[CommCall]) -> bool:
    """Whether the ranks' calls differ: in their kind, or in their sizes if these must be equal."""
    first = calls[0]
    if any(other.kind != first.kind for other in calls):
        return True
    equal = first.kind in (*IN_PLACE, "all_gather_base", "gather", "incast") and first.kind not in POINT_TO_POINT
    return equal and len({sum(other.sends) for other in calls}) > 1
