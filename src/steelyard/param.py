"""PARAM's benchmark from Python: write arguments and configs as data, run them, get the records that the output file would have.

    from steelyard.param import config, run, spec, tensor

    records = run(config("torch.mm", spec(tensor(128, 64), tensor(64, 32))), iterations=10, backward=True)

Configs are plain dictionaries in the grammar of PARAM's config files, so everything that a file can contain can be added by hand.
"""

from __future__ import annotations

import json
import operator
import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from steelyard.dialects.param import expand, here, lines
from steelyard.dialects.param.expand import Mistake
from steelyard.dialects.param.flags import Options
from steelyard.dialects.param.here import Executor
from steelyard.dialects.param.lines import Line
from steelyard.dialects.param.watching import ConfigWatch
from steelyard.errors import UsageError

Argument = dict[str, Any]
Spec = dict[str, Any]
Configs = Mapping[str, Any] | Sequence[Mapping[str, Any]] | str | os.PathLike[str]


def tensor(*shape: Any, dtype: str = "float", requires_grad: bool | None = None, **more: Any) -> Argument:
    """A tensor argument: `tensor(128, 64)`; `more` are further keys of the grammar, such as distribution, index or __range__."""
    found: Argument = {"type": "tensor", "dtype": dtype, "shape": list(shape), **more}
    return found if requires_grad is None else {**found, "requires_grad": requires_grad}


def value(kind: str, given: Any = None, *, range: Sequence[float] | None = None, **more: Any) -> Argument:
    """Any other argument: `value("int", 3)`, `value("float", range=(0, 1))`, `value("tuple", [value("int", 1), …])`."""
    if range is not None:
        return {"type": kind, "value_range": list(range), **more}
    return {"type": kind, **more} if kind == "none" else {"type": kind, "value": given, **more}


def spec(*args: Any, **kwargs: Any) -> Spec:
    """The arguments of one call, or one build; plain numbers, text, None and lists of these need no wrapping."""
    return {"args": [argument(item) for item in args], "kwargs": {name: argument(item) for name, item in kwargs.items()}}


def argument(item: Any) -> Argument:
    """A Python value described as an argument, unless it is one already."""
    if isinstance(item, Mapping) and "type" in item:
        return dict(item)
    if item is None:
        return value("none")
    for kind, known in (("bool", bool), ("int", int), ("double", float), ("str", str)):
        if isinstance(item, known):
            return value(kind, item)
    if isinstance(item, complex):
        return value("complex", [item.real, item.imag])
    if isinstance(item, (list, tuple)):
        return value("tuple" if isinstance(item, tuple) else "genericlist", [argument(part) for part in item])
    raise UsageError(f"cannot make an argument from {item!r}", do="describe it with tensor(…) or value(…)")


def config(op: str, inputs: Spec | Sequence[Spec], builds: Spec | Sequence[Spec] | None = None, **info: Any) -> dict[str, Any]:
    """A config of one operator: its inputs, and its builds if it must be built first (`builds=[]` builds it without arguments).

    `info` are further keys of the operator, such as input_iterator="RangeConfigIterator" or seed=7.
    """
    entry: dict[str, Any] = {} if builds is None else {"build": [builds] if isinstance(builds, Mapping) else list(builds)}
    entry["input"] = [inputs] if isinstance(inputs, Mapping) else list(inputs)
    names = {"input_data_generator": expand.DEFAULT_GENERATOR}
    if builds is not None:
        names["build_data_generator"] = expand.DEFAULT_GENERATOR
    return {op: {**names, **info, "config": [entry]}}


def together(configs: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Merge several configs into one; an operator in several of them gets all their entries, if nothing else about it differs."""
    found: dict[str, Any] = {}
    for op, info in (item for config in configs for item in config.items()):
        if op not in found:
            found[op] = {**info, "config": [*info.get("config", [])]}
        elif {**found[op], "config": []} != {**info, "config": []}:
            raise UsageError(
                f"{op} is in two configs that differ in more than inputs",
                do="use one iterator and generator for it, or run each config alone",
            )
        else:
            found[op]["config"] += info.get("config", [])
    return found


@dataclass
class Listening(ConfigWatch):
    """Collects the messages of a session."""

    records: list[Line] = field(default_factory=list)
    mistakes: list[Mistake] = field(default_factory=list)

    def mistake(self, mistake: Mistake) -> None:
        """Keep a mistake, for the error or for a warning."""
        self.mistakes.append(mistake)

    def warning(self, text: str) -> None:
        """Issue a Python warning."""
        warnings.warn(text, stacklevel=2)

    def waiting(self, text: str) -> None:
        """Show why a call takes long."""
        warnings.warn(text, stacklevel=2)

    def finished(self, line: Line) -> None:
        """Keep a record for the caller."""
        self.records.append(line)


@dataclass(frozen=True)
class Outcome:
    """The result of a run: its records, the files it wrote by PARAM's names for them, and its exit code."""

    records: list[Line]
    files: dict[str, str]
    mistakes: list[Mistake]
    code: int


def run(configs: Configs, *, warmup: int = 1, iterations: int = 1, device: str = "cpu", **options: Any) -> list[Line]:
    """Run configs in a worker process and return their records; the record of a failed config has the reason.

    `options` are those of the command line (`backward=True`, `exec_mode="continuous"`, `files=["my_ops.py"]`). A mistake in a
    config is an error before anything runs.
    """
    return carry_out(configs, Options.from_plain({"warmup": warmup, "iteration": iterations, "device": device, **options})).records


def run_to_file(configs: Configs, output: str | os.PathLike[str], *, keep_going: bool = False, **options: Any) -> Outcome:
    """Like `run`, and write an output file: exactly `output` if it ends in .json, else a new file whose name begins with it.

    With `keep_going` mistakes are warnings, and the valid configs are measured.
    """
    words = {"iteration" if name == "iterations" else name: item for name, item in options.items()}
    return carry_out(configs, Options.from_plain({**words, "output_prefix": os.fspath(output)}), to_file=True, strict=not keep_going)


def carry_out(configs: Configs, options: Options, *, to_file: bool = False, strict: bool = True) -> Outcome:
    """Run one whole session, as the command line does; with a file, the run is saved in the store as well."""
    from steelyard.dialects.param import session
    from steelyard.store.runs import Store

    ears = Listening()
    made = session.begin(options, ears, to_file=to_file, strict=strict, store=Store.find() if to_file else None)
    code = made.run(_source(configs))
    if ears.mistakes and strict:
        raise here.mistaken(ears.mistakes)
    for mistake in ears.mistakes:
        ears.warning(str(mistake))
    return Outcome(ears.records, made.files, ears.mistakes, code)


def _source(configs: Configs) -> expand.Source:
    if isinstance(configs, (str, os.PathLike)):
        return Path(configs)
    return _plain(configs if isinstance(configs, Mapping) else together(configs))


def _plain(config: Mapping[str, Any]) -> dict[str, Any]:
    """A config as a file would have it: tuples become lists, and integers of other libraries become Python's."""
    try:
        found: dict[str, Any] = json.loads(json.dumps(config, default=operator.index))
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError("a config must be plain data: numbers, texts, lists and dictionaries", why=str(error)) from None
    return found


def run_here(
    configs: Configs, *, warmup: int = 1, iterations: int = 1, device: str = "cpu", executor: Executor | None = None, **options: Any
) -> list[Line]:
    """Run configs in this process, which then loads torch and users' files; an operator that crashes ends this process.

    `executor` runs each prepared call in your own way; its result is the record's metric.
    """
    return here.run(_source(configs), _asked(warmup, iterations, device, options), executor)


def _asked(warmup: int, iterations: int, device: str, options: Mapping[str, Any]) -> Options:
    return here.settled({"warmup": warmup, "iteration": iterations, "device": device, **options})


def measure_call(
    forward: Callable[..., Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, *,
    name: str = "call", id: str = "0|0|0", warmup: int = 1, iterations: int = 1, device: str = "cpu", **options: Any,
) -> dict[str, Any]:  # fmt: skip
    """Time a function with your own arguments in this process, and return the `metric` of a record."""
    return here.measure(forward, args, kwargs or {}, f"{name}|{id}", _asked(warmup, iterations, device, options))


def read_records(path: str | os.PathLike[str]) -> list[Line]:
    """The records of an output file, PARAM's or ours; only the last one of a config that was measured several times."""
    return list(lines.read(Path(path)).records.values())
