"""Records and pairs made by hand, so that report tests need neither a backend nor a store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from steelyard.model.case import Case
from steelyard.model.pair import Arm, Pair
from steelyard.model.record import Figure, Record, Verification
from steelyard.store.runs import Header, Run

HEADER = Header("k3f9", machine={"gpus": [{"name": "NVIDIA H200", "driver": "580.159", "clocks_set": False}]})


def run_of(records: Sequence[Record], pairs: Sequence[Pair] = (), header: Header = HEADER) -> Run:
    """A run that was never saved."""
    return Run(Path("nowhere"), header, tuple(records), tuple(pairs))


def figures(
    seconds: float, half: float, *, n: int = 420, bytes: float | None = 16.78e6, discarded: float = 0.0, **more: Figure
) -> dict[str, Figure]:
    low, high = seconds - half, seconds + half
    found = {"time": Figure(seconds, "s", "lower", low, high, n), "discarded": Figure(discarded, "1", "none", n=n)}
    if bytes:
        found["bandwidth"] = Figure(bytes / seconds, "B/s", "higher", bytes / high, bytes / low, n)
    return {**found, **more}


def record(
    id: str,
    metrics: dict[str, Figure] | None = None,
    status: Any = "ok",
    reason: str = "",
    noise: str = "A",
    device: str = "cuda",
    **more: Any,
) -> Record:
    case = replace(Case.parse(id), device=device)
    return Record(
        case.id,
        case.plain(),
        status,
        reason,
        metrics or {},
        effective={"noise": noise} if metrics else {},
        started="2025-11-15T03:00:00Z",
        wall_s=1.3,
        environment={case.backend: "2.13.0"} if case.backend == "torch" else {},
        **more,
    )


def pair(base: Record, head: Record, ratio: float, half: float) -> Pair:
    return Pair(Arm(base.id), Arm(head.id), ratio, ratio - half, ratio + half, 0.99, 8, 64, 1, (16, 16))


def softmax() -> Run:
    """The example of the design page."""
    rows = [
        record("op/softmax[m=4096,n=1024,dtype=bf16]@torch/eager:eval", figures(11.42e-6, 0.06e-6, bytes=16.78e6)),
        record("op/softmax[m=4096,n=1024,dtype=bf16]@torch/compile:eval", figures(9.87e-6, 0.05e-6, n=480, bytes=16.78e6)),
        record("op/softmax[m=4096,n=8192,dtype=bf16]@torch/eager:eval", figures(61.3e-6, 0.2e-6, n=160, bytes=134.2e6)),
        record("op/softmax[m=4096,n=8192,dtype=bf16]@torch/compile:eval", figures(61.1e-6, 0.3e-6, n=160, bytes=134.2e6)),
    ]
    return run_of(rows, [pair(rows[0], rows[1], 0.862, 0.007), pair(rows[2], rows[3], 0.997, 0.004)])


def mixed() -> Run:
    """Several workloads, statuses, rates and a command: what a real evening looks like."""
    wrong = Verification("failed", "eager", "out differs", 0.31, 0.04, 1e-2, 1e-5)
    rows = [
        *softmax().records,
        record(
            "op/matmul[k=4096,m=4096,n=4096,dtype=bf16]@torch/eager:eval",
            figures(212.7e-6, 1.9e-6, n=88, bytes=None, compute=Figure(6.46e14, "FLOP/s", "higher", 6.40e14, 6.52e14, 88)),
            noise="B",
        ),
        record(
            "op/matmul[k=4096,m=4096,n=4096,dtype=bf16]@torch/int8wo+compile[mode=max-autotune]:eval",
            figures(398.1e-6, 2.2e-6, n=88, bytes=None, discarded=0.042),
            noise="C",
        ),
        record(
            "op/matmul[k=4096,m=4096,n=4096,dtype=bf16]@jax/eager:eval",
            status="unsupported",
            reason="backend jax is not installed here: steelyard env create jax makes an environment that has it, and then -B jax runs it",
        ),
        record("layer/attention[heads=32,seq=2048,dtype=fp16]@torch/eager:train", figures(3.41e-3, 0.04e-3, n=31, bytes=None)),
        record(
            "layer/attention[heads=32,seq=2048,dtype=fp16]@torch/compile:train",
            figures(2.11e-3, 0.04e-3, n=31, bytes=None),
            "wrong",
            "out[0] differs from eager: 0.31 at (3, 17), allowed 0.01",
            verification=wrong,
        ),
        record("layer/attention[heads=32,seq=8192,dtype=fp16]@torch/eager:train", None, "oom", "asked for 17.2 GB, 11.0 GB free"),
        record('command[argv=[sleep,"0.1"]]@command/eager:eval', figures(0.1013, 0.0004, n=20, bytes=None)),
    ]
    return run_of(rows, [*softmax().pairs, pair(rows[4], rows[5], 1.872, 0.02)])
