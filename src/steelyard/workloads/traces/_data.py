"""Makes the tensors that a replay starts with: in recorded form and memory, with recorded integers or valid indices."""

from __future__ import annotations

import math
import os
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from steelyard.traces.nodes import SIZES, TensorRef
from steelyard.workloads.traces._deciding import Bounds
from steelyard.workloads.traces._program import Given, ReplayProgram, reach

DTYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name in SIZES if hasattr(torch, name)}
LEAST_SCALE = 0.02
HELD = 1 << 30
"""Bytes of caches that a host has at least and frees at once; if data still does not fit, only the worker ends."""


def places(device: str, recorded: Collection[str]) -> Callable[[str], torch.device]:
    """Return a function that gives the device for a recorded one: the measured device for an accelerator, the host for the host.

    If all tensors of a trace are on the host, all go to the measured device.
    """
    target, host = torch.device(device), torch.device("cpu")
    mixed = any(name and not name.startswith(("cpu", "meta")) for name in recorded)

    def place(name: str) -> torch.device:
        if name.startswith("meta"):
            return torch.device("meta")
        return host if mixed and name.startswith("cpu") else target

    return place


@dataclass(frozen=True)
class TensorSource:
    """Makes given tensors: on which device, from which resources, and with which seed and ranges."""

    device_of: Callable[[str], torch.device]
    resources: Path | None = None
    seed: int = 0
    ranges: Mapping[int, Mapping[int, tuple[int, int]]] = field(default_factory=dict)

    def room(self) -> int:
        """Return the free bytes on the device; on a host, a process may get less."""
        if self.device_of("cuda:0").type == "cuda":
            return int(torch.cuda.mem_get_info()[0])
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") + HELD

    def tensors(self, program: ReplayProgram, bounds: Mapping[int, Bounds]) -> list[Any]:
        """Return all given tensors in the order of the program; those of one group share their memory."""
        generator = torch.Generator().manual_seed(self.seed)
        made: dict[int, Any] = {}
        for group in groups_of(program):
            made |= self.group(group, bounds, generator)
        return [made[item.slot] for item in program.given]

    def group(self, members: Sequence[Given], bounds: Mapping[int, Bounds], generator: torch.Generator) -> dict[int, Any]:
        """Return the tensors of one group by slot."""
        joined = Bounds()
        for item in members:
            joined.join(bounds.get(item.slot, Bounds()))
        return self._group(members, joined, generator)

    def _group(self, group: Sequence[Given], wanted: Bounds, generator: torch.Generator) -> dict[int, Any]:
        whole = max(group, key=lambda item: reach(item.ref))
        dtype, place = DTYPES.get(whole.ref.dtype), self.device_of(whole.ref.device)
        if dtype is None:
            raise ValueError(f"tensors of {whole.ref.dtype} cannot be made here")
        if len(group) == 1 and not whole.ref.offset and whole.ref.extent == whole.ref.numel:
            ref = whole.ref
            values = self._values(whole, ref.shape, wanted, generator)
            made = torch.empty_strided(ref.shape, ref.strides or contiguous(ref.shape), dtype=dtype, device=place)
            made.copy_(values)
            return {whole.slot: made}
        count = -(-reach(whole.ref) // dtype.itemsize)
        base = torch.empty(count, dtype=dtype, device=place)
        base.copy_(self._values(whole, (count,), wanted, generator))
        storage, found = base.untyped_storage(), {}
        for item in group:
            own, ref = DTYPES.get(item.ref.dtype), item.ref
            if own is None:
                raise ValueError(f"tensors of {ref.dtype} cannot be made here")
            view = torch.empty(0, dtype=own, device=place)
            view.set_(storage, ref.offset, ref.shape, ref.strides or contiguous(ref.shape))
            found[item.slot] = view
        return found

    def _values(self, item: Given, shape: Sequence[int], wanted: Bounds, generator: torch.Generator) -> Any:
        ref = item.ref
        dtype, count = DTYPES[ref.dtype], math.prod(shape)
        if (dtype.is_floating_point or dtype.is_complex) and wanted.chosen is None:
            drawn = torch.randn(count, generator=generator, dtype=torch.float32).mul_(scale_of(ref))
            return (drawn.abs_().add_(LEAST_SCALE) if wanted.positive else drawn).view(tuple(shape)).to(dtype)
        recorded = self._recorded(item, count)
        if recorded is not None:
            return recorded.view(tuple(shape))
        if wanted.total is not None:
            return torch.linspace(0, wanted.total, count).floor().to(dtype).view(tuple(shape))
        if wanted.chosen is not None:
            chosen = torch.zeros(count, dtype=dtype)
            chosen[: min(count, wanted.chosen)] = 1
            return chosen.view(tuple(shape))
        if wanted.parts is not None:
            return torch.tensor(parts_of(*wanted.parts, count), dtype=dtype).view(tuple(shape))
        low, high = self.ranges.get(item.node, {}).get(item.place, (0, -1))
        if high < low:
            low, high = (1, 1) if wanted.most is None else (0, wanted.most - 1)
        if wanted.most is not None:
            low, high = max(0, min(low, wanted.most - 1)), max(0, min(high, wanted.most - 1))
        if dtype == torch.bool:
            return torch.ones(tuple(shape), dtype=dtype)
        return torch.randint(low, max(low, high) + 1, tuple(shape), generator=generator, dtype=torch.int64).to(dtype)

    def _recorded(self, item: Given, count: int) -> Any:
        """Return integers that were saved beside the trace, or None; a file of another size is ignored."""
        if self.resources is None:
            return None
        path = self.resources / f"nid_{item.node}_tid_{item.place}.dat"
        dtype = DTYPES[item.ref.dtype]
        if not path.is_file() or path.is_symlink() or path.stat().st_size != count * dtype.itemsize:
            return None
        return torch.frombuffer(bytearray(path.read_bytes()), dtype=dtype)


def parts_of(total: int, greatest: int, count: int) -> list[int]:
    """Return lengths that add up to `total`: decreasing from `greatest`, or as equal as possible if that is 0."""
    if not greatest:
        each, more = divmod(total, count)
        return [each + (place < more) for place in range(count)]
    found: list[int] = []
    left = total
    for others in reversed(range(count)):
        found.append(min(greatest, max(1, left - others)))
        left -= found[-1]
    return found


def scale_of(ref: TensorRef) -> float:
    """Return the scale of a tensor's random numbers: one at which products of many layers neither vanish nor overflow."""
    fan = ref.numel // ref.shape[0] if len(ref.shape) > 1 and ref.shape[0] else 1
    return max(LEAST_SCALE, 1 / math.sqrt(max(1, fan)))


def groups_of(program: ReplayProgram) -> list[list[Given]]:
    """Return the given tensors in groups that share memory."""
    members: defaultdict[int, list[Given]] = defaultdict(list)
    for item in program.given:
        members[item.group].append(item)
    return list(members.values())


def contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    steps, step = [], 1
    for size in reversed(shape):
        steps.append(step)
        step *= max(size, 1)
    return tuple(reversed(steps))
