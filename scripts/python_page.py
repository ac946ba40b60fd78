"""The reference page of Steelyard's names in Python, from the code's own signatures and docstrings."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Iterator, Sequence
from typing import Any

import steelyard
from steelyard.backends.base import Backend
from steelyard.comparing import Weighed
from steelyard.library import Measurement
from steelyard.model.define import Variant, Workload
from steelyard.model.judging import Ruling
from steelyard.model.record import Figure
from steelyard.store.runs import Run

SECTIONS: dict[str, tuple[str, Sequence[str | type]]] = {
    "Measure and compare": (
        "Guide: [Measure a function](../howto/measure-a-function.md).",
        ("measure", "compare", "run", "do_bench", Measurement, Weighed, Run),
    ),
    "Define": (
        "Guides: [your own workload](../howto/own-workload.md), [variant and metric](../howto/own-variant-and-metric.md), "
        "[recipes](../howto/recipes.md), [operators](../howto/own-operators.md).",
        (
            *("workload", Workload, "Task", "Reading", Backend, "variant", Variant, "metric", "operator", "iterator", "generator"),
            *("register_recipe", "Pruning", "register_model"),
        ),
    ),
    "Experiments": (
        "The same as an [experiment file](experiment-file.md). Guide: "
        "[a whole experiment](../howto/measure-a-function.md#a-whole-experiment).",
        ("Experiment", "Matrix", "Rule", "Settings", "Case"),
    ),
    "Results": ("What they hold is told in [Read a result](../howto/read-a-result.md) and [Figures](figures.md).", ("Record", Figure)),
    "Judge kernels": ("Guide: [Judge kernels by program](../howto/judge.md).", ("judge", "judge_all", Ruling)),
    "Record what runs": ("Guide: [Execution traces](../howto/traces.md).", ("capture",)),
}
OFFERED = {Backend: ("randn", "uniform", "integers", "full", "array", "copy", "join", "barrier")}
"""What of a large class is for users."""
APART = {"__version__"}
WIDTH = 100


def python_page() -> str:
    """Every public name, by what it is for."""
    named = {name for _, names in SECTIONS.values() for name in names if isinstance(name, str)}
    if named ^ (set(steelyard.__all__) - APART):
        raise ValueError(f"in steelyard.__all__ or on the page, not in both: {sorted(named ^ (set(steelyard.__all__) - APART))}")
    parts = ["# Python", "Written by `make docs` from the code; change it there."]
    parts.append(
        "Names are loaded when first used, so `import steelyard` costs next to nothing. `steelyard.__version__` is the version. Classes "
        "without `steelyard.` before them are what functions return or are given. PARAM's configs have a module of their own: "
        "[operators from Python](../howto/param-from-python.md)."
    )
    for title, (words, names) in SECTIONS.items():
        parts += [f"## {title}", words]
        for name in names:
            parts += entry(name)
    return "\n\n".join(parts) + "\n"


def entry(name: str | type) -> Iterator[str]:
    """One name: how it is written, its words, and what it holds."""
    thing = getattr(steelyard, name) if isinstance(name, str) else name
    title = f"steelyard.{name}" if isinstance(name, str) else name.__name__
    yield f"### {title}"
    if not inspect.isclass(thing):
        yield f"```python\ndef {signature(thing.__name__, thing)}: ...\n```"
    yield inspect.getdoc(thing) or ""
    if inspect.isclass(thing):
        yield from fields(thing)
        yield from members(thing)


def fields(kind: type) -> Iterator[str]:
    """The fields of a dataclass, which are its arguments too."""
    if not dataclasses.is_dataclass(kind):
        return
    rows = [f"| `{item.name}` | `{escaped(str(item.type))}` | {default(item)} |" for item in dataclasses.fields(kind) if shown(item.name)]
    yield "\n".join(["| field | type | default |", "|---|---|---|", *rows])


def default(item: dataclasses.Field[Any]) -> str:
    """What a field is when it is not given."""
    if item.default_factory is not dataclasses.MISSING:
        value = item.default_factory()
    elif item.default is not dataclasses.MISSING:
        value = item.default
    else:
        return ""
    return f"`{escaped(literal(value))}`"


def members(kind: type) -> Iterator[str]:
    """Public methods and properties that say what they do, own ones first, each in a line."""
    found: dict[str, str] = {}
    for home in (home for home in kind.__mro__ if home.__module__.startswith("steelyard.")):
        for name, value in vars(home).items():
            if name not in found and shown(name) and (kind not in OFFERED or name in OFFERED[kind]):
                found[name] = member(name, value)
    lines = [line for line in found.values() if line]
    if lines:
        yield "\n".join(lines)


def member(name: str, value: Any) -> str:
    """`- `name(arguments)`: what it does`, or nothing for a plain value."""
    inner = value.__func__ if isinstance(value, (classmethod, staticmethod)) else value
    if isinstance(inner, (property, functools.cached_property)):
        getter = inner.fget if isinstance(inner, property) else inner.func
        return f"- `{name}`: {sentence(getter)}" if sentence(getter) else ""
    return f"- `{signature(name, inner, width=1000)}`: {sentence(inner)}" if inspect.isfunction(inner) and sentence(inner) else ""


def signature(name: str, function: Any, width: int = WIDTH) -> str:
    """How it is called, in one line where that fits, else with an argument a line."""
    asked = inspect.signature(function)
    answer = f" -> {asked.return_annotation}" if asked.return_annotation is not inspect.Signature.empty else ""
    pieces = list(arguments([item for item in asked.parameters.values() if item.name not in ("self", "cls")]))
    line = f"{name}({', '.join(pieces)}){answer}"
    return line if len(line) <= width else "\n".join([f"{name}(", *(f"    {piece}," for piece in pieces), f"){answer}"])


def arguments(items: Sequence[inspect.Parameter]) -> Iterator[str]:
    """Each with its type and default, and a star where keywords begin."""
    starred = False
    for item in items:
        if item.kind is inspect.Parameter.KEYWORD_ONLY and not starred:
            yield "*"
        starred |= item.kind in (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_POSITIONAL)
        stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}.get(item.kind, "")
        value = "" if item.default is inspect.Parameter.empty else f" = {literal(item.default)}"
        yield f"{stars}{item.name}: {item.annotation}{value}"


def literal(value: Any) -> str:
    """A default as one would write it."""
    if callable(value):
        return "..."
    if dataclasses.is_dataclass(value):
        return f"{type(value).__name__}()"
    return f'"{value}"' if isinstance(value, str) else repr(value).replace("'", '"')


def sentence(function: Any) -> str:
    """The first sentence of a docstring, on one line."""
    return " ".join((inspect.getdoc(function) or "").split("\n\n")[0].split())


def shown(name: str) -> bool:
    """Whether a name is public."""
    return not name.startswith("_")


def escaped(text: str) -> str:
    """Text that may stand in a table."""
    return text.replace("|", "\\|")
