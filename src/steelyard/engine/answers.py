"""What a verification rule may ask of a case: its own answers from the start, eager's, and those in double precision."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from steelyard.backends.base import Leaf
from steelyard.engine.bench import Bench
from steelyard.engine.reference import kept
from steelyard.errors import Unsupported, told
from steelyard.measuring import rules
from steelyard.model.record import Verification
from steelyard.model.task import Task

ADAPTIVE = ("adam", "adamw")


@dataclass(frozen=True)
class RuleCheck:
    """A case that another rule than ours looks at, made before anything is called; it looks when the timing is over."""

    bench: Bench
    be: Any
    task: Task
    state: Sequence[Any]

    @classmethod
    def of(cls, bench: Bench, be: Any, task: Task) -> RuleCheck | None:
        """None where our own rule holds, or none."""
        return cls(bench, be, task, be.state(task) if bench.case.mode == "train" else ()) if bench.settings.other_rule else None

    def verdict(self) -> Verification:
        """What the rule says; one that cannot be applied says that, and the times stay."""
        try:
            return rules.judge(self.bench.settings.other_rule, CaseAnswers(self.bench, self.be, self.task, self.state))
        except Exception as error:
            return Verification("none", message=f"verification raised: {told(error, 500)}", code=rules.RAISED)


@dataclass(frozen=True)
class CaseAnswers:
    """The answers of a case that was timed; `state` is what its weights were before."""

    bench: Bench
    be: Any
    task: Task
    state: Sequence[Any]

    @property
    def mode(self) -> str:
        """That of the case."""
        return self.bench.case.mode

    @property
    def device(self) -> str:
        """That of the case."""
        return self.bench.case.device

    @property
    def rate(self) -> float | None:
        """How far a step of the optimizer moves a weight, where that does not depend on the gradient's size."""
        return float(self.task.effective["rate"]) if self.task.effective.get("optimizer") in ADAPTIVE else None

    def candidate(self, calls: int) -> dict[str, Leaf]:
        """What was timed, with the weights that it began with and an optimizer that has seen nothing."""
        if self.state:
            self.be.rewind(self.task, self.state)
        with self.task.chance.stopped() if self.task.chance else contextlib.nullcontext():
            return self._leaves(self.be, self.task, calls)

    def eager(self, calls: int) -> dict[str, Leaf]:
        """The plain task, built anew; that of another runtime on the CPU, by PyTorch itself."""
        be = self._plain()
        return self._leaves(be, _certain(self.bench.plain(be)), calls)

    def double(self, calls: int) -> dict[str, Leaf]:
        """The same in double precision, without what changes formats."""
        be, task = self.bench.base(self._plain())
        wide = be.upcast(_certain(task))
        if wide is None:
            raise Unsupported("there is no form of it in double precision")
        return self._leaves(be, wide, calls)

    def _plain(self) -> Any:
        return self.be.witness() or self.bench.open()

    def _leaves(self, be: Any, task: Task, calls: int) -> dict[str, Leaf]:
        """From the same random numbers each time, for what calls draw by themselves."""
        be.sow()
        return {leaf.path: leaf for leaf in kept(be, be.outputs(be.answer(task, self.mode, calls)))}


def _certain(task: Task) -> Task:
    """A task that is built for its answer alone, without what it leaves to chance."""
    if task.chance:
        task.chance.stop(drawing=False)
    return task
