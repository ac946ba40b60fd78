"""The command that measures a case again as its run did: with its files, its environment, its base, and every setting that is not a
default.

`show`, `gate`, `report` and the tables of failures all print this command; if no command line gives the same case with the same
settings, they print none.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

from steelyard.errors import UsageError
from steelyard.model.case import Case
from steelyard.model.experiment import BUDGETS, Settings
from steelyard.model.programs import ARGV, NAME, OWN, PREPARE, PROGRAM, values_of
from steelyard.model.protocol import written
from steelyard.model.record import Record
from steelyard.model.units import is_amount
from steelyard.model.values import render_list
from steelyard.store.runs import Header, Run

FOLDER = "path:"
Render = Callable[[str, Any], list[str]]


def repeat_line(record: Record, header: Header, base: Record | None = None) -> str:
    """The command that measures one record of a run again; empty for another tool's case, or if a shell line cannot express it.

    `base` is the record that a program was compared with, since a comparison of programs names both.
    """
    try:
        case = Case.parse(record.id)
    except (UsageError, ValueError):
        return ""
    if "tool" in record.effective:
        return ""
    options = [*_options(header.settings, case), *(["--env", header.env] if header.env else [])]
    if case.workload != PROGRAM:
        files = [f"./{file}" if file.startswith("-") else file for file in header.files if file.endswith(".py")]
        return shlex.join(["steelyard", "run", *files, record.id, *options])
    programs = [params for item in (base, record) if item for params in [_program(item)]]
    if not all(programs):
        return ""
    alike = len(programs) == 2 and _template(programs[0]) == _template(programs[1])
    options += _scanned(programs)
    programs = programs[:1] if alike else programs
    for option, key in (("--command-name", NAME), ("--prepare", PREPARE)):
        given = [str(params.get(key) or "") for params in programs]
        options += [f"{option}={word}" for word in given] if any(given) else []
    flags = record.case.get("flags")
    own = ["--threads", str(case.threads)] if case.threads > 1 else []
    own += [f"--flag={key}={value}" for key, value in (flags.items() if isinstance(flags, Mapping) else ())]
    return shlex.join(["steelyard", "run", *options, *own, *(word for params in programs for word in ("--", *params[ARGV]))])


def repeat_lines(runs: Sequence[Run]) -> Callable[[str, str], str]:
    """A function from a case and its base to the command from the newest of these runs with that case; empty if none has it."""
    known = {record.id: (record, run.header) for run in runs for record in run.records}

    def line(case: str, base: str) -> str:
        if case not in known:
            return ""
        record, header = known[case]
        other = known[base][0] if base != case and base in known else None
        return repeat_line(record, header, other)

    return line


def _program(record: Record) -> Mapping[str, Any]:
    """A program's parameters; empty if one of its words is `--`, which separates programs, or a value has no plain text."""
    params = record.case.get("params")
    argv = params.get(ARGV) if isinstance(params, Mapping) else None
    fits = isinstance(argv, list) and all(isinstance(word, str) and word != "--" for word in argv)
    if (
        not fits
        or not isinstance(params, Mapping)
        or not all(isinstance(value, str | int | float | None) for value in values_of(params).values())
    ):
        return {}
    return params


def _template(params: Mapping[str, Any]) -> list[Any]:
    return [params.get(key) for key in OWN]


def _scanned(programs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Options for the axes filled into programs, each with the base's value first, then the case's."""
    found: dict[str, list[Any]] = {}
    for params in programs:
        for name, value in values_of(params).items():
            found[name] = [*found.get(name, []), *([value] if value not in found.get(name, []) else [])]
    return [word for name, values in found.items() for word in ("-a", f"{name}={render_list(values)}")]


def _options(asked: Mapping[str, Any], case: Case) -> Iterator[str]:
    """Command-line options for every setting that is not the default; invalid values are left out."""
    for item in fields(Settings):
        value = asked.get(item.name, item.default)
        if value is None or value == item.default or item.name not in _RENDER:
            continue
        if item.name == "vs" and value in (case.variant, f"{case.backend}/{case.variant}"):
            continue
        yield from _RENDER[item.name](f"--{item.name.replace('_', '-')}", value)


def _number(unit: str = "") -> Render:
    def render(option: str, value: Any) -> list[str]:
        return [option, f"{value!r}{unit}"] if isinstance(value, (int, float)) and is_amount(value) else []

    return render


def _budget(option: str, value: Any) -> list[str]:
    preset = next((name for name, seconds in BUDGETS.items() if seconds == value), None)
    return [option, preset] if preset else _number("s")(option, value)


def _whole(option: str, value: Any) -> list[str]:
    return [option, str(value)] if isinstance(value, int) and is_amount(value) else []


def _joined(option: str, value: Any) -> list[str]:
    return ["=".join(words)] if (words := _whole(option, value)) else []


def _word(option: str, value: Any) -> list[str]:
    return [option, value] if isinstance(value, str) and value else []


def _switch(option: str, value: Any) -> list[str]:
    return [option if value else option.replace("--", "--no-", 1)] if isinstance(value, bool) else []


def _verify(option: str, value: Any) -> list[str]:
    return _word(option, value) or (["--no-verify"] if value is False else [])


def _base(option: str, value: Any) -> list[str]:
    if isinstance(value, str) and value.startswith(FOLDER):
        return _word("--vs-path", value.removeprefix(FOLDER))
    return _word(option, value)


def _fixed(option: str, value: Any) -> list[str]:
    return _word(option, written(value)) if isinstance(value, Mapping) else []


_RENDER: Mapping[str, Render] = {
    "fixed": _fixed,
    "vs": _base, "budget": _budget, "precision": _number(), "margin": _number(), "settle": _number(), "sampling": _word,
    "warmup": _number("s"), "warmup_runs": lambda option, value: _whole("--warmup", value), "runs": _whole, "rtol": _number(),
    "atol": _number(), "verify": _verify, "reference": _word, "seed": _whole,
    "isolate": _word, "timeout": _number("s"), "memory": _whole, "telemetry": _switch, "peak_memory": _switch, "memory_snapshot": _switch,
    "profile": _switch, "ncu": _switch, "nsys": _switch, "compile_time": _joined, "dump_ir": _word, "rule": _word,
    "runtime_profile": _switch, "save_output": _word,
}  # fmt: skip
