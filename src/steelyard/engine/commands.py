"""Programs typed after `--` as cases: one for each program and each combination of the axis values that its words use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

from steelyard.engine.place import THREAD_VARIABLES
from steelyard.errors import UsageError
from steelyard.model.case import Case
from steelyard.model.programs import ARGV, NAME, OWN, PREPARE, PROGRAM, used, values_of
from steelyard.model.units import number_of

if TYPE_CHECKING:
    from steelyard.engine.selection import Request


def cases(request: Request) -> list[Case]:
    """Return the cases of all programs, program by program in the order in which they were typed."""
    return [case for own in _each(request) for case in own]


def bases(request: Request) -> dict[Case, Case] | None:
    """Return the base of each case: the first program at the same values, or for a single program its first values.

    None if there is only one case.
    """
    each = _each(request)
    found = [case for own in each for case in own]
    if len(found) < 2:
        return None
    if len(each) == 1:
        return dict.fromkeys(found, found[0])
    return {case: _nearest(case, each[0]) for case in found}


def _nearest(case: Case, first: Sequence[Case]) -> Case:
    """Return the case of the first program that has the most values in common."""
    own = values_of(dict(case.params))
    return max(first, key=lambda base: sum(own.get(name) == value for name, value in values_of(dict(base.params)).items()))


def _each(request: Request) -> list[list[Case]]:
    """Return the cases of each program."""
    if not request.commands:
        for option, given in (("--command-name", request.names), ("--prepare", request.prepare)):
            if given:
                raise UsageError(f"{option} is for programs, and none is given", do=f"steelyard run {option} … -- PROGRAM ARG…")
        return []
    names = _for_each("--command-name", request.names, len(request.commands))
    lines = request.prepare * len(request.commands) if len(request.prepare) == 1 else request.prepare
    before = _for_each("--prepare", lines, len(request.commands))
    programs = [
        {ARGV: list(argv)} | ({NAME: name} if name else {}) | ({PREPARE: line} if line else {})
        for argv, name, line in zip(request.commands, names, before, strict=True)
    ]
    return [list(_points(program, request)) for program in programs]


def _for_each(option: str, given: Sequence[str], count: int) -> Sequence[str]:
    if given and len(given) != count:
        why = f"it was given {number_of(len(given), 'time')}, for {number_of(count, 'program')}"
        raise UsageError(f"{option} does not fit the programs", why=why, do="give it once for each program, in the same order")
    return given or [""] * count


def own_axes(request: Request) -> list[str]:
    """Return the axes that the words of some program use, as `{n}`."""
    texts = [word for argv in request.commands for word in argv] + [*request.names, *request.prepare]
    return [key for key in request.axes if used(texts, key.split(","))]


def check_axes(request: Request) -> None:
    """Refuse an axis that no program uses, since it would change nothing."""
    own = own_axes(request)
    for key in request.axes:
        if key not in own:
            word = key.split(",")[0]
            raise UsageError(
                f"no program uses axis {word}",
                do=f"write {{{word}}} where its value goes: -a {word}=1..4:1 -- ./prog {{{word}}}",
            )
        for name in set(key.split(",")) & set(OWN):
            raise UsageError(f"an axis of programs cannot be called {name}", do="choose another name")


def _points(program: Mapping[str, Any], request: Request) -> Iterator[Case]:
    """Yield a case for every combination of the values that a program uses, with the requested threads and flags.

    By default a program chooses its threads itself, so a request for one thread is expressed by setting the thread variables.
    """
    texts = [*program[ARGV], program.get(NAME, ""), program.get(PREPARE, "")]
    keys = [key for key in own_axes(request) if used(texts, key.split(","))]
    threads = request.threads[0] if request.threads else 1
    asked = dict.fromkeys(THREAD_VARIABLES, "1") if request.threads and threads == 1 else {}
    flags = tuple((asked | {**request.flags}).items())
    for values in product(*(request.axes[key] for key in keys)):
        params = dict(program)
        for key, value in zip(keys, values, strict=True):
            params |= dict.fromkeys(key.split(","), value)
        yield Case(PROGRAM, tuple(params.items()), backend=PROGRAM, threads=threads, flags=flags)
