"""Variants that let a rank of a replay die, hang or raise in the middle of timing."""

from __future__ import annotations

import itertools
import os
import signal
import time
from dataclasses import replace
from typing import Any

from steelyard import Task, variant

WHEN = 5


@variant("faulty", backends=["torch"])
def faulty(task: Task, how: str = "dies", rank: int = 1) -> Task:
    """A rank does what it is told in its sixth call."""
    turn, here, call = itertools.count(), os.environ["RANK"] == str(rank), task.fn
    assert call is not None

    def fn(*args: Any) -> Any:
        if next(turn) == WHEN and here:
            if how == "dies":
                os.kill(os.getpid(), signal.SIGKILL)
            if how == "hangs":
                time.sleep(1e6)
            raise ValueError("told to fail")
        return call(*args)

    return replace(task, fn=fn)
