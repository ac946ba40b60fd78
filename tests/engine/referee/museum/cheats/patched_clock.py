"""Makes every clock of Python run a hundred times slower, and works as slowly as the reference."""

import time

import torch

PROBLEM = "rows"
EXPECT = {"harmless"}


def slowed(clock):
    start = clock()
    return lambda: start + type(start)((clock() - start) / 100)


for name in ("perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "time", "time_ns", "process_time", "process_time_ns"):
    setattr(time, name, slowed(getattr(time, name)))


def candidate(x):
    return torch.softmax(x.clone(), -1)
