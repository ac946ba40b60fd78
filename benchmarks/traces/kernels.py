"""Kernels of a step and of its replay on a GPU, by PyTorch's profiler: as many of them, and in total as long.

    python -m benchmarks.traces.kernels [FOLDER]

A Llama block and a ResNet-50, each a whole training step. Exits with 3 where counts differ or times are more than 5 % apart.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from benchmarks.traces.record import record, replay
from torch.profiler import ProfilerActivity, profile

ROUNDS, ALLOWED = 10, 0.05
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama block": ("model/llama", {"batch": 2, "seq": 2048, "layers": 1, "hidden": 4096, "heads": 32, "kv_heads": 8, "ffn": 14336,
                                    "vocab": 32000, "dtype": "bf16"}),
    "resnet50": ("model/resnet50", {"batch": 64, "image": 224, "width": 64, "classes": 1000, "dtype": "fp32"}),
}  # fmt: skip


@dataclass(frozen=True)
class KernelTotals:
    """What a profiler saw of one call: kernels by name, and their seconds together."""

    counts: Counter[str]
    seconds: float

    @property
    def launched(self) -> int:
        """All of them."""
        return sum(self.counts.values())


def seen(call: Callable[[], None]) -> KernelTotals:
    """The kernels of some calls, copies and fills included, per call; ranges that a program marks, such as an optimizer's, are none."""
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU], acc_events=True) as found:
        for _ in range(ROUNDS):
            call()
        torch.cuda.synchronize()
    events = [event for event in found.events() if event.device_type == torch.autograd.DeviceType.CUDA and not event.is_user_annotation]
    counts = Counter(event.name for event in events)
    return KernelTotals(
        Counter({name: count // ROUNDS for name, count in counts.items()}), sum(event.device_time for event in events) * 1e-6 / ROUNDS
    )


def compare(name: str, folder: Path) -> tuple[KernelTotals, KernelTotals, dict[str, Any]]:
    """A step and its replay, each with its kernels, and what the replay covers."""
    workload, params = CASES[name]
    own = record(workload, "train", folder / f"{name.replace(' ', '-')}.json", "cuda", params)
    again = replay(own.trace, "cuda")
    return seen(own.step), seen(again.run), dict(again.facts)


def main(folder: Path) -> int:
    """A line per case, and the kernels that differ."""
    good = True
    for name in CASES:
        step, played, facts = compare(name, folder)
        ratio = played.seconds / step.seconds
        same = step.launched == played.launched
        good &= same and abs(ratio - 1) <= ALLOWED
        print(
            f"{name}: {facts['replayed']} of {facts['operators']} operators; kernels {step.launched} and {played.launched}; "
            f"kernel time {step.seconds * 1e3:.3f} ms and {played.seconds * 1e3:.3f} ms, ratio {ratio:.3f}",
            flush=True,
        )
        for row in facts["skipped"]:
            print(f"  skipped {row['count']} x {row['operator']}: {row['why']}")
        for kernel, count in ((step.counts - played.counts) + Counter()).items():
            print(f"  the step alone: {count} x {kernel[:100]}")
        for kernel, count in ((played.counts - step.counts) + Counter()).items():
            print(f"  the replay alone: {count} x {kernel[:100]}")
    return 0 if good else 3


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit(main(Path(sys.argv[1])))
    with tempfile.TemporaryDirectory() as place:
        sys.exit(main(Path(place)))
