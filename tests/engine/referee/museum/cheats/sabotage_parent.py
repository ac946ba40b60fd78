"""Ends the process that it was started from, so that no further ones can be started."""

import contextlib
import os
import signal
from pathlib import Path

import torch

PROBLEM = "rows"
EXPECT = {"sabotage"}
CALLS, PARENT = [], os.getppid()


def of_the_harness(pid):
    try:
        return b"steelyard.engine" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def candidate(x):
    CALLS.append(1)
    if len(CALLS) == 5 and of_the_harness(PARENT):
        with contextlib.suppress(OSError):
            os.kill(PARENT, signal.SIGKILL)
    return torch.softmax(x, -1)
