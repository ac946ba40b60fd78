"""The four collectives that training and inference are made of, with bandwidths by the formulas of nccl-tests.

`bytes` is the whole message: what each rank holds before all_reduce, reduce_scatter and all_to_all, and after all_gather.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from steelyard.errors import NotApplicable, Unsupported
from steelyard.model.define import metric, workload
from steelyard.model.dtypes import SIZES, canonical
from steelyard.model.task import Task
from steelyard.workloads.collectives import patterns

if TYPE_CHECKING:
    from steelyard.backends.base import Backend, Seat

AXES: dict[str, list[Any]] = {"bytes": [1 << 20], "dtype": ["fp32"]}
PRESETS: dict[str, dict[str, Any]] = {"small": {"bytes": 4096}, "h200": {"bytes": 1 << 30, "dtype": "bf16"}}
TAGS = ["collective", "bandwidth"]


@metric("bus_bandwidth", unit="B/s")
def bus_bandwidth(seconds: float, task: Task) -> float | None:
    """Bytes per second on each link, for any number of ranks: comparable with the hardware's figure."""
    moved = task.effective.get("bus_bytes")
    return moved / seconds if moved else None


@metric("algorithm_bandwidth", unit="B/s")
def algorithm_bandwidth(seconds: float, task: Task) -> float | None:
    """The size of the whole message divided by the time, as a caller sees it."""
    message = task.effective.get("message_bytes")
    return message / seconds if message else None


def seated(bytes: int, dtype: str, be: Backend) -> tuple[Seat, int]:
    """Return this rank's seat, and the number of whole elements in a rank's share of the message."""
    name = canonical(dtype)
    if name.startswith(("fp8", "bool", "complex")):
        raise Unsupported(f"collectives are not measured in {name}", do="use another dtype, such as int8 or bf16")
    seat = be.join()
    share = int(bytes // (SIZES[name] * seat.size))
    if share < 1:
        raise NotApplicable(f"{bytes} bytes of {name} are less than one value for each of {seat.size} ranks")
    return seat, share


def collective(
    fn: Callable[..., Any], args: tuple[Any, ...], reference: Callable[[], Any], message: int, factor: float, *, in_place: bool = False
) -> Task:
    """Return a task with the bytes it moves; `factor` is the share of the message that a link carries."""
    moved = {"message_bytes": message, "bus_bytes": round(message * factor)}
    return Task(fn, args, reference=reference, effective=moved, in_place=in_place)


@workload("collective/all_reduce", axes=AXES, tags=TAGS, sizes=PRESETS)
def all_reduce(bytes: int, dtype: str, be: Backend) -> Task:
    """The sum over all ranks on every rank, in place; bound by the links between them. Values grow from call to call."""
    import torch.distributed as dist

    seat, share = seated(bytes, dtype, be)
    count = share * seat.size
    data = be.array(patterns.values(seat.rank, count, patterns.SUMMED), canonical(dtype))

    def fn(data: Any) -> Any:
        dist.all_reduce(data)
        return data

    def reference() -> Any:
        return be.array(patterns.sums(seat.size, count), canonical(dtype))

    return collective(fn, (data,), reference, data.nbytes, 2 * (seat.size - 1) / seat.size, in_place=True)


def filled(call: Callable[[Any, Any], Any], out: Any, data: Any, expected: Callable[[], Any], seat: Seat, dtype: str, be: Backend) -> Task:
    """Return a collective that fills one array from another; the larger array is the message, and each rank has its share already."""

    def fn(out: Any, data: Any) -> Any:
        call(out, data)
        return out

    def reference() -> Any:
        return be.array(expected(), canonical(dtype))

    return collective(fn, (out, data), reference, max(out.nbytes, data.nbytes), (seat.size - 1) / seat.size)


@workload("collective/all_gather", axes=AXES, tags=TAGS, sizes=PRESETS)
def all_gather(bytes: int, dtype: str, be: Backend) -> Task:
    """The shares of all ranks on every rank; bound by the links between them."""
    import torch.distributed as dist

    seat, share = seated(bytes, dtype, be)
    data = be.array(patterns.values(seat.rank, share, patterns.MOVED), canonical(dtype))
    gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    out = be.full(share * seat.size, dtype=dtype)
    return filled(gather, out, data, lambda: patterns.parts(seat.size, share, 0, share), seat, dtype, be)


@workload("collective/reduce_scatter", axes=AXES, tags=TAGS, sizes=PRESETS)
def reduce_scatter(bytes: int, dtype: str, be: Backend) -> Task:
    """The sum over all ranks, a share of it on each; bound by the links between them."""
    import torch.distributed as dist

    seat, share = seated(bytes, dtype, be)
    count, mine = share * seat.size, slice(seat.rank * share, (seat.rank + 1) * share)
    data = be.array(patterns.values(seat.rank, count, patterns.SUMMED), canonical(dtype))
    scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
    return filled(scatter, be.full(share, dtype=dtype), data, lambda: patterns.sums(seat.size, count)[mine], seat, dtype, be)


@workload("collective/all_to_all", axes=AXES, tags=TAGS, sizes=PRESETS)
def all_to_all(bytes: int, dtype: str, be: Backend) -> Task:
    """A share from every rank to every other; bound by the links between them."""
    import torch.distributed as dist

    seat, share = seated(bytes, dtype, be)
    count, mine = share * seat.size, slice(seat.rank * share, (seat.rank + 1) * share)
    data = be.array(patterns.values(seat.rank, count, patterns.MOVED), canonical(dtype))
    received = be.full(count, dtype=dtype)
    return filled(dist.all_to_all_single, received, data, lambda: patterns.parts(seat.size, count, mine.start, mine.stop), seat, dtype, be)
