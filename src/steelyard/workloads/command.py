"""The workload behind `steelyard run -- PROGRAM …`."""

from __future__ import annotations

from typing import Any

from steelyard.model import programs
from steelyard.model.define import workload
from steelyard.model.task import Task


@workload("command", axes={"argv": [["true"]]}, backend="command", tags=["shell"], free=True)
def command(be: Any, **params: Any) -> Task:
    """A program from start to exit: wall time, CPU time and peak memory."""
    task: Task = be.program(programs.words_of(params), programs.preparation(params))
    return task
