"""A variant that lets the planted operator take a share more."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch

from steelyard import Task, variant
from tests.workloads.traces.planted_operator import EXTRA


@variant("slower", backends=["torch"])
def slower(task: Task, more: int = 4) -> Task:
    """The planted operator makes a few turns more."""

    @contextmanager
    def scope() -> Iterator[None]:
        EXTRA["turns"] = more
        try:
            with (task.scope or torch.no_grad)():
                yield
        finally:
            EXTRA["turns"] = 0

    return replace(task, scope=scope)
