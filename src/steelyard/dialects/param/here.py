"""Measure configs and calls in the calling process, with the same engine; if an operator crashes, so does the caller."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from steelyard.dialects.param import expand, native
from steelyard.dialects.param.expand import Mistake
from steelyard.dialects.param.flags import Options, settle
from steelyard.dialects.param.lines import Line
from steelyard.errors import UsageError

if TYPE_CHECKING:
    from steelyard.registry import Loaded

Executor = Callable[[Any, Any], Mapping[str, Any]]
"""Runs one prepared call (`forward`, `args`, `kwargs`) and returns its metric; also receives `op`, `id` and the options."""


def run(source: expand.Source, asked: Options, executor: Executor | None = None, own: Loaded | None = None) -> list[Line]:
    """Run a config and return its records; `own` are operators, iterators and generators that this process registered."""
    from steelyard.backends._torch_state import as_it_was
    from steelyard.dialects.param.config import packages
    from steelyard.dialects.param.session import select
    from steelyard.dialects.param.shim.expanding import expanded
    from steelyard.dialects.param.sink import line_of
    from steelyard.engine import weigh
    from steelyard.engine.bench import open_backend
    from steelyard.engine.messages import Sources
    from steelyard.engine.worker import load
    from steelyard.measuring.calm import calm
    from steelyard.measuring.fixed import take

    loaded = load(Sources(asked.files, tuple(packages(source))), {})
    for kind in ("operators", "iterators", "generators") if own else ():
        getattr(loaded, kind).update(getattr(own, kind))
    sheet = expanded(source, asked.device, loaded)
    chosen = select(sheet.configs, asked) if sheet.configs else []
    found = [*sheet.mistakes, *_mistakes(sheet.source, chosen, loaded)]
    if found:
        raise mistaken(found)
    settings, made = native.settings(asked), list[Line]()
    with as_it_was(), calm():
        be = open_backend("torch")(asked.device.partition(":")[0], threads=asked.threads)
        for item in chosen:
            other = _Own(executor, item, asked) if executor else None
            with be.as_it_was():
                case = native.case_of(item, asked)
                record, arrays = weigh.weigh_case(case, loaded, settings, label=item.full_id, taker=other.take if other else take)
            line = line_of(item, asked, record, arrays)
            made.append(line if other is None or other.metric is None else other.line(line))
    return made


def measure(
    forward: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], label: str, asked: Options, operator: Any = None
) -> dict[str, Any]:
    """Time one function over its arguments and return the `metric` of a record; `operator` may have its own backward pass."""
    from steelyard.backends._torch_state import as_it_was
    from steelyard.dialects.param.sink import metric_of
    from steelyard.engine.bench import open_backend
    from steelyard.engine.fixed import all_arrays
    from steelyard.measuring.calm import calm
    from steelyard.measuring.fixed import take
    from steelyard.model.task import Task
    from steelyard.workloads.operators._gradient import backward_of

    fixed = native.protocol(asked)
    with as_it_was(), calm():
        be = open_backend("torch")(asked.device.partition(":")[0], threads=asked.threads)
        task, labels = Task(forward, tuple(args), dict(kwargs), back=backward_of(operator)), be.labels()
        watch = be.stopwatch(flush=labels.range("[param|clear_cache]") if fixed.flush else None)
        return metric_of(all_arrays(take(task, fixed, watch, labels, label)))


def settled(given: Mapping[str, Any]) -> Options:
    """Return consistent options; each change is a warning."""
    asked, told = settle(Options.from_plain(given))
    for text in told:
        warnings.warn(text, stacklevel=4)
    return asked


def mistaken(mistakes: Sequence[Mistake]) -> UsageError:
    """All mistakes as one error."""
    first, *rest = map(str, mistakes)
    return UsageError(first, why="\n  ".join(rest))


@dataclass
class _Own:
    """A user's executor instead of our loops."""

    executor: Executor
    config: expand.Config
    options: Options
    metric: Mapping[str, Any] | None = None

    def take(self, task: Any, *rest: Any) -> Any:
        """Run the call without our timing."""
        from steelyard.measuring.fixed import Sampled, Taken

        call = SimpleNamespace(forward=task.fn, args=list(task.args), kwargs=dict(task.kwargs))
        self.metric = self.executor(call, SimpleNamespace(op=self.config.op, id=self.config.id, options=self.options))
        return Sampled({"warmup": Taken(), "measure": Taken()})

    def line(self, line: Line) -> Line:
        """The record with the executor's result."""
        ours = {key: value for key, value in line["steelyard"].items() if key not in ("error", "not_applicable", "statistics")}
        return {**line, "metric": self.metric, "steelyard": {**ours, "status": "ok"}}


def _mistakes(source: str, configs: Iterable[expand.Config], loaded: Any) -> list[Mistake]:
    from steelyard.workloads.operators.call import DescribedCall

    known = (loaded.operators, loaded.generators)
    reasons = ((item, DescribedCall(item.op, item.build, item.input, *known, item.generators).examine()[0]) for item in configs)
    return [Mistake(source, item.path, item.op, item.id, reason) for item, reason in reasons if reason]
