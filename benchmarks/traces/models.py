"""Every model of ours, in eval and in train: how much of a recorded step is replayed, and how its time compares with the step's.

    python -m benchmarks.traces.models [NAME…]

Step and replay take turns, so that what else the machine does hits both. Autograd's own bookkeeping in Python and C++ is not replayed,
so a replay of a training step is a little faster than the step; the calls themselves are the same.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from benchmarks.traces.record import record, replay

MODELS = ("bert", "dlrm", "gpt", "llama", "mlp", "resnet50", "vit")
ROUNDS = 15


def timed(call: Callable[[], None]) -> float:
    """Seconds of one call, of CPU time, which others on the machine cannot stretch."""
    start = time.process_time()
    call()
    return time.process_time() - start


def main(names: list[str]) -> None:
    """A line per model and mode."""
    torch.set_num_threads(1)
    print(f"{'model':<10} {'mode':<6} {'operators':>9} {'replayed':>9} {'opened':>7} {'step':>10} {'replay':>10} {'ratio':>6}")
    for name in names or MODELS:
        for mode in ("eval", "train"):
            with tempfile.TemporaryDirectory() as folder:
                own = record(f"model/{name}", mode, Path(folder) / "step.json")
                again = replay(own.trace)
            turns = [(timed(own.step), timed(again.run)) for _ in range(ROUNDS)]
            step, played = (statistics.median(column) for column in zip(*turns, strict=True))
            ratio = statistics.median(second / first for first, second in turns)
            facts = again.facts
            counts = f"{facts['operators']:>9} {facts['replayed']:>9} {facts['opened']:>7}"
            print(f"{name:<10} {mode:<6} {counts} {step * 1e3:>7.2f} ms {played * 1e3:>7.2f} ms {ratio:>6.2f}", flush=True)
            for row in facts["skipped"]:
                print(f"{'':<17} skipped {row['count']} x {row['operator']}: {row['why']}")


if __name__ == "__main__":
    main(sys.argv[1:])
