"""A workload of a test's own, on a virtual clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from steelyard.model.case import Case
from steelyard.model.define import Workload, workload
from steelyard.model.task import Task
from steelyard.registry import Loaded

Build = Callable[[Any], Task]


def case_of(build: Build, variant: Callable[[Task], Task] | None = None, backend: str = "fake") -> tuple[Loaded, Case]:
    """A workload around a body that gets the backend; on the virtual clock every call takes a tenth of a millisecond."""

    def timed(task: Task, be: Any) -> Task:
        fn = task.fn
        assert fn is not None
        if backend != "fake":
            return task
        return replace(task, fn=lambda *args, **kwargs: (be.spend(1e-4), fn(*args, **kwargs))[1])

    @workload("t/own", backend=backend)
    def own(be: Any) -> Task:
        """As the test has it."""
        return timed(build(be), be)

    if variant is not None:

        @own.variant("other")
        def other(task: Task, be: Any) -> Task:
            """As the test has it."""
            return timed(variant(task), be)

    assert isinstance(own, Workload)
    return Loaded({own.name: own}), Case("t/own", (), backend, "other" if variant else "eager")
