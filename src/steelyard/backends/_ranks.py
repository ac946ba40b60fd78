"""Groups of processes through torch.distributed: gloo between CPU ranks, NCCL between GPUs, one GPU for each rank."""

from __future__ import annotations

import os
import socket
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from steelyard.backends.base import Seat
from steelyard.errors import Unsupported
from steelyard.measuring.clock import HostTimer

TRANSPORTS = {"cpu": "gloo", "cuda": "nccl", "rocm": "nccl"}
LOOPBACK = ("lo", "lo0")


class GroupTimer(HostTimer):
    """The host's clock for work that threads hand to each other; it counts no disturbances.

    The transport's threads and ours preempt each other by design. The kernel counts that as involuntary switches, so blocks must
    not be discarded for them.
    """

    def disturbances(self) -> int:
        return 0


def unheld(timer: Any) -> Any:
    """Make a timer use events without holding the stream: ranks would hold theirs for different times and then wait for each other."""
    timer.hold, timer.method = (lambda seconds: None), "events"
    return timer


def take_device(seat: Seat) -> None:
    """Give each rank its own GPU, because two ranks on one GPU would slow each other down."""
    if not torch.cuda.is_available():
        return
    count = torch.cuda.device_count()
    if count < seat.size:
        raise Unsupported(
            f"{seat.size} ranks need {seat.size} GPUs, and {count} are visible here",
            do="use fewer ranks, or make more GPUs visible with CUDA_VISIBLE_DEVICES",
        )
    torch.cuda.set_device(seat.rank)


def join(seat: Seat, device: str, where: Any) -> None:
    """Connect to the other ranks; later calls keep the existing group."""
    if not dist.is_available():
        raise Unsupported("this torch was built without torch.distributed", do="install a build that has it")
    kind = TRANSPORTS.get(device)
    if kind is None or not {"gloo": dist.is_gloo_available, "nccl": dist.is_nccl_available}[kind]():
        raise Unsupported(f"this torch has no way to connect ranks on {device!r}", do=f"install a build with {kind}" if kind else "")
    if dist.is_initialized():
        return
    loopback = next((name for _, name in socket.if_nameindex() if name in LOOPBACK), None)
    if loopback:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback)
    dist.init_process_group(
        kind, store=dist.FileStore(seat.meeting, seat.size) if seat.size > 1 else dist.HashStore(),
        rank=seat.rank, world_size=seat.size, timeout=timedelta(seconds=seat.patience), device_id=where if kind == "nccl" else None,
    )  # fmt: skip


def barrier(where: Any) -> None:
    """Wait for all ranks; on a GPU also until the device has nothing left to do."""
    if where.type == "cpu":
        dist.barrier()
        return
    dist.barrier(device_ids=[where.index])
    torch.cuda.synchronize(where)


def leave() -> None:
    """Take the group down, if there is one."""
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()
