"""Ranks exchange their lists of calls, so that calls without a partner are refused before any rank waits for them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from steelyard.errors import UsageError
from steelyard.traces.comms import POINT_TO_POINT, CommCall, RankComms
from steelyard.workloads.traces._exchanges import Joined, mismatch

_SAID = ("node", "kind", "group", "sends", "receives", "dtype", "in_splits", "out_splits", "peer", "tag")


def share(data: Any, device: Any, size: int) -> list[Any]:
    """Return the plain data of all ranks in order of rank. It is sent as JSON, because received data must not run code."""
    if size == 1:
        return [data]
    own = torch.frombuffer(bytearray(json.dumps(data).encode()), dtype=torch.uint8).to(device)
    counts = [torch.zeros(1, dtype=torch.int64, device=device) for _ in range(size)]
    dist.all_gather(counts, torch.tensor([own.numel()], dtype=torch.int64, device=device))
    most = max(int(count) for count in counts)
    padded = torch.zeros(most, dtype=torch.uint8, device=device)
    padded[: own.numel()] = own
    everyone = [torch.zeros_like(padded) for _ in range(size)]
    dist.all_gather(everyone, padded)
    return [json.loads(bytes(np.asarray(text[: int(count)].cpu()))) for text, count in zip(everyone, counts, strict=True)]


def share_numbers(data: Any, device: Any, size: int) -> list[Any]:
    """Return the integer arrays of all ranks, which may differ in shape."""
    shapes = share(list(data.shape), device, size)
    if size == 1:
        return [data]
    most = max([1, *(int(np.prod(shape)) for shape in shapes)])
    padded = torch.zeros(most, dtype=torch.int64, device=device)
    padded[: data.size] = torch.from_numpy(np.ascontiguousarray(data.reshape(-1))).to(device)
    everyone = [torch.zeros_like(padded) for _ in range(size)]
    dist.all_gather(everyone, padded)
    return [np.asarray(found.cpu())[: int(np.prod(shape))].reshape(shape) for found, shape in zip(everyone, shapes, strict=True)]


@dataclass(frozen=True)
class Meeting:
    """The calls of all ranks, the same on every rank, and the groups in which they are made."""

    rank: int
    size: int
    calls: Sequence[Sequence[CommCall]]
    groups: Mapping[str, tuple[int, ...]]

    @classmethod
    def hold(cls, own: RankComms, rank: int, size: int, device: Any) -> Meeting:
        """Exchange the lists with all ranks; raise UsageError with the first calls that do not match."""
        said = {
            "calls": [{key: value for key, value in asdict(call).items() if key in _SAID} for call in own.calls],
            "groups": {name: list(group.members(size)) for name, group in own.groups.items() if name},
        }
        heard = share(said, device, size)
        calls = [list(own.calls) if place == rank else [_call(call) for call in item["calls"]] for place, item in enumerate(heard)]
        groups, calls = _distinct([item["groups"] for item in heard], calls)
        groups[""] = tuple(range(size))
        for name in dict.fromkeys(call.group for one in calls for call in one):
            groups.setdefault(name, tuple(range(size)))
        found = cls(rank, size, calls, groups)
        found._check(str(own.path))
        return found

    def sequence(self, rank: int, group: str) -> list[CommCall]:
        """Return the collectives of a rank in a group, in order."""
        return [call for call in self.calls[rank] if call.group == group and call.collective]

    def join(self) -> dict[str, Joined]:
        """Make the groups on all ranks in the same order, and return those of this rank; the group of all ranks exists already."""
        found = {}
        used = {call.group for one in self.calls for call in one}
        for name in sorted(self.groups):
            ranks = self.groups[name]
            if name not in used:
                continue
            group = dist.group.WORLD if len(ranks) == self.size else dist.new_group(list(ranks))
            if self.rank in ranks:
                found[name] = Joined(group, ranks, ranks.index(self.rank))
        return found

    def _check(self, where: str) -> None:
        for name, ranks in self.groups.items():
            if any(rank >= self.size for rank in ranks):
                raise UsageError(
                    f"group {name or 'of all'} has rank {max(ranks)}, but only {self.size} ranks replay it",
                    do="give --ranks the recorded number, or shrink=true to leave the other ranks out", where=where,
                )  # fmt: skip
            self._check_partners(name, ranks, where)
            each = [self.sequence(rank, name) for rank in ranks]
            for place, calls in enumerate(zip(*each, strict=False)):
                if mismatch(calls):
                    told = ", ".join(f"rank {rank} {_told(call)}" for rank, call in zip(ranks, calls, strict=True))
                    raise UsageError(
                        f"ranks make different calls: call {place} of group {name or 'of all'} is {told}",
                        why="they would wait forever",
                        where=where,
                    )
            if len(set(map(len, each))) > 1:
                told = ", ".join(f"rank {rank} {len(calls)}" for rank, calls in zip(ranks, each, strict=True))
                what = f"ranks make different numbers of calls: {told} in group {name or 'of all'}"
                raise UsageError(what, why="they would wait forever", where=where)
        sent, awaited = self._messages("send"), self._messages("recv")
        for key in {**sent, **awaited}:
            if sent[key] != awaited[key]:
                source, target, _, count = key
                raise UsageError(
                    f"rank {source} sends {sent[key]} messages of {count} elements to rank {target}, which expects {awaited[key]}",
                    why="one of them would wait forever", where=where,
                )  # fmt: skip

    def _check_partners(self, name: str, ranks: Sequence[int], where: str) -> None:
        """Raise UsageError if a rank calls in a group that it is not in, or with a root or partner outside the group."""
        for rank, calls in enumerate(self.calls):
            for call in (call for call in calls if call.group == name):
                if rank not in ranks:
                    raise UsageError(f"rank {rank} calls {_told(call)} in group {name}, to which it does not belong", where=where)
                if call.peer is not None and not 0 <= call.peer < len(ranks):
                    raise UsageError(f"rank {rank} calls {_told(call)} with rank {call.peer} of a group of {len(ranks)}", where=where)

    def _messages(self, kind: str) -> Counter[tuple[int, int, str, int]]:
        found: Counter[tuple[int, int, str, int]] = Counter()
        for rank, calls in enumerate(self.calls):
            for call in calls:
                if call.kind == kind:
                    members = self.groups[call.group]
                    other = members[call.peer or 0] if (call.peer or 0) < len(members) else -1
                    ends = (rank, other) if kind == "send" else (other, rank)
                    found[(*ends, call.group, sum(call.sends if kind == "send" else call.receives))] += 1
        return found


def _distinct(
    groups: Sequence[Mapping[str, Sequence[int]]], calls: Sequence[Sequence[CommCall]]
) -> tuple[dict[str, tuple[int, ...]], list[list[CommCall]]]:
    """Return all groups under unique names, and the calls with these names: ranks may have used one name for different groups."""
    meant: dict[str, set[tuple[int, ...]]] = {}
    for own in groups:
        for name, ranks in own.items():
            meant.setdefault(name, set()).add(tuple(ranks))
    found: dict[str, tuple[int, ...]] = {}
    renamed = []
    for own, said in zip(groups, calls, strict=True):
        names = {name: name if len(meant[name]) == 1 else f"{name} of {','.join(map(str, ranks))}" for name, ranks in own.items()}
        found |= {names[name]: tuple(ranks) for name, ranks in own.items()}
        renamed.append([replace(call, group=names.get(call.group, call.group)) for call in said])
    return found, renamed


def _call(data: Mapping[str, Any]) -> CommCall:
    words: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in data.items()}
    return CommCall(**words)


def _told(call: CommCall) -> str:
    return f"{call.kind} of {sum(call.sends or call.receives)} {call.dtype} (node {call.node})"


def rebalanced(calls: Sequence[CommCall]) -> list[CommCall]:
    """Return an uneven exchange with equal parts for all ranks and the same total size."""
    size = len(calls)
    part = sum(sum(call.in_splits or call.sends) for call in calls) // (size * size)
    equal = (part,) * size
    return [replace(call, sends=(part * size,), receives=(part * size,), in_splits=equal, out_splits=equal) for call in calls]


def allowed(comms: RankComms, allow: Sequence[str], most: int | None, *, one_trace: bool) -> tuple[RankComms, dict[str, int]]:
    """Return the calls to make, and how many are left out for each reason."""
    kept, left = list[CommCall](), Counter[str]()
    for call in comms.calls:
        if allow and call.kind not in (*allow, "wait"):
            left["not among the allowed kinds"] += 1
        elif one_trace and call.kind in POINT_TO_POINT:
            left["a message between two ranks, and all ranks read one trace"] += 1
        elif most is not None and len(kept) >= most:
            left[f"beyond the first {most}"] += 1
        else:
            kept.append(call)
    left.update({f"of an unknown kind: {name}": count for name, count in comms.unread.items()})
    return replace(comms, calls=tuple(kept)), dict(left)
