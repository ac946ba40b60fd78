"""The three decorators users write: `@workload`, `@variant`, `@metric`.

Each returns a plain object bound to the decorated name; the registry finds them by looking at a
module's attributes, so importing a file registers nothing anywhere.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import linecache
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from steelyard.errors import UsageError, unknown
from steelyard.model.case import MODES, Case
from steelyard.model.dtypes import canonical
from steelyard.model.task import Task
from steelyard.model.words import Word

Body = Callable[..., Task]
GIVEN = ("be", "mode", "loaded", "member", "settings")
"""Arguments of a body that are not axes: the backend, and, if the body takes them, the mode, all registered definitions, the member of a
family to build, and the settings of the run."""
FAMILY = "/*"
"""End of a family's name: `timm/*` covers timm/resnet18 and every other name below it."""


@functools.lru_cache(256)
def fingerprint(*functions: Callable[..., Any]) -> str:
    """A hash of source text, so that an edited workload is not compared with its old version.

    The functions of the same package that they call count too; a framework's own code is identified by its version.
    """
    found: dict[Any, None] = {}
    queue = list(functions)
    while queue:
        function = queue.pop()
        if function not in found:
            found[function] = None
            queue += _called(function)
    text = "\n".join(sorted(_source(function) for function in found))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _called(function: Callable[..., Any]) -> list[Callable[..., Any]]:
    code, names = getattr(function, "__code__", None), getattr(function, "__globals__", {})
    if code is None:
        return []
    if wrapped := getattr(function, "__wrapped__", None):
        return [wrapped]
    used = {name for part in _parts(code) for name in part.co_names}
    home = function.__module__.split(".")[0]
    return [item for name in used if isinstance(item := names.get(name), FunctionType) and item.__module__.split(".")[0] == home]


def _parts(code: CodeType) -> Iterator[CodeType]:
    yield code
    for item in code.co_consts:
        if isinstance(item, CodeType):
            yield from _parts(item)


@functools.lru_cache(maxsize=4096)
def _source(function: Callable[..., Any]) -> str:
    """The source lines a function was compiled from; reading them by number is far cheaper than parsing for the end of a block."""
    code = getattr(function, "__code__", None)
    lines = linecache.getlines(code.co_filename) if code else []
    if code is None or not lines:
        return repr(getattr(function, "__qualname__", function))
    last = max(line for part in _parts(code) for *_, line in part.co_lines() if line)
    return "".join(lines[code.co_firstlineno - 1 : last])


@dataclass(frozen=True)
class Variant:
    """A named change of a task: `Task -> Task`, with keyword options.

    `fresh` means that it hands the task to a compiler and needs a new interpreter, because compilers do not survive a fork; `sticky` that
    building it again is costly, so that a rebuild moves its inputs instead; `asked` that it is part of what is measured, such as an
    optimizer, so that the plain task used for verification has it too; `casts` that it changes formats on purpose, so that a rule that
    compares equal formats applies it to the plain task as well. `words` are options that may be suffixes of the name, in this order:
    `int4wo-128-hqq`. `rule` is a verification rule for its answers in addition to our own, such as `sqnr`; `modes` are the modes in which
    it has a meaning (empty: all). `imports` are modules that it needs, imported before anything is built or timed.
    """

    name: str
    apply: Callable[..., Task]
    doc: str = ""
    backends: tuple[str, ...] = ()
    fresh: bool = False
    sticky: bool = False
    asked: bool = False
    casts: bool = False
    words: tuple[Word, ...] = ()
    rule: str = ""
    modes: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()

    def options(self) -> dict[str, Any]:
        """Option names with their defaults, read from the function's signature."""
        found = {}
        for name, parameter in list(inspect.signature(self.apply).parameters.items())[1:]:
            if name != "be":
                found[name] = None if parameter.default is parameter.empty else parameter.default
        return found

    def choices(self) -> dict[str, list[Any]]:
        """The values of options annotated as Literal or bool, so that a wrong one is found before anything is timed."""
        try:
            hints = get_type_hints(self.apply)
        except (NameError, TypeError):
            return {}
        found = {name: list(get_args(hint)) for name, hint in hints.items() if get_origin(hint) is Literal}
        return found | {name: [True, False] for name, hint in hints.items() if hint is bool and name != "return"}

    def describe(self) -> dict[str, Any]:
        """The variant as plain data."""
        options = self.options()
        return {
            "name": self.name, "doc": self.doc, "options": list(options), "choices": self.choices(),
            "backends": list(self.backends), "fresh": self.fresh, "words": [word.describe() for word in self.words],
            "defaults": {word.option: options.get(word.option) for word in self.words}, "rule": self.rule, "modes": list(self.modes),
        }  # fmt: skip

    def __call__(self, task: Task, be: Any, options: Mapping[str, Any]) -> Task:
        known = self.options()
        for key in options:
            if key not in known:
                raise unknown(f"option of variant {self.name!r}", key, known)
        extra = {"be": be} if "be" in inspect.signature(self.apply).parameters else {}
        return self.apply(task, **extra, **options)


def variant(
    name: str,
    *,
    backends: Sequence[str] = (),
    fresh: bool = False,
    sticky: bool = False,
    asked: bool = False,
    casts: bool = False,
    words: Sequence[Word] = (),
    rule: str = "",
    modes: Sequence[str] = (),
) -> Callable[[Callable[..., Task]], Variant]:
    """Define a way of running tasks: `@variant("twice") def _(task): return replace(task, …)`.

    Further arguments of the function are the variant's options. `backends` are those that it works on (empty: all); `Variant` explains
    the other arguments.
    """

    def define(apply: Callable[..., Task]) -> Variant:
        chosen = (tuple(words), rule, tuple(modes))
        return Variant(name, apply, summary_of(apply), tuple(backends), fresh, sticky, asked, casts, *chosen)

    return define


@dataclass(frozen=True)
class Metric:
    """A metric derived from time and the task; `None` means it does not apply."""

    name: str
    compute: Callable[[float, Task], float | None]
    unit: str
    better: str
    doc: str = ""


def metric(name: str, *, unit: str = "", better: str = "higher") -> Callable[[Callable[[float, Task], float | None]], Metric]:
    """Define a derived figure: `@metric("rows/s", unit="row/s") def _(seconds, task): return task.items / seconds`.

    The function returns None where the figure does not apply. `better` is `higher` or `lower`.
    """
    if better not in ("lower", "higher"):
        raise UsageError(f"metric {name!r}: better is 'lower' or 'higher', not {better!r}")
    return lambda compute: Metric(name, compute, unit, better, summary_of(compute))


@dataclass(frozen=True)
class OpenedFile:
    """One case in a file or folder: the file itself, and what is known about it before it runs.

    `backend` runs it if none is named, `params` are values of the workload's other axes, and `doc` describes the content. `ranks` is
    its number of processes, if the file says so.
    """

    file: Path
    name: str = ""
    backend: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)
    doc: str = ""
    ranks: int = 1


Contents = Callable[[Path], Sequence[OpenedFile]]


@dataclass(frozen=True)
class Workload:
    """A named function of parameters that builds a Task, with one body per framework.

    A name that ends with `/*` is a family: only a library knows its names, and `member` is the name that was requested.
    """

    name: str
    axes: Mapping[str, tuple[Any, ...]]
    tags: tuple[str, ...] = ()
    doc: str = ""
    modes: tuple[str, ...] = ("eval",)
    sizes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    bodies: dict[str, Body] = field(default_factory=dict)
    variants: dict[str, Variant] = field(default_factory=dict)
    member: str = ""
    examine: Callable[[Mapping[str, Any], Any], tuple[str, str]] | None = None
    """Returns why a case with these parameters cannot run, or why that is not known; without this hook, the case is called on meta tensors.
    Cases of built-in workloads with this hook are checked before any case is timed."""
    imports: tuple[str, ...] = ()
    """Modules that its body needs besides the framework, imported before anything is built or timed."""
    refuse: Callable[[Mapping[str, Any], str], None] | None = None
    """Raises UsageError for parameters, and a member of a family, that cannot run anywhere. The conductor calls it for built-in workloads
    when it plans, so it must not import a framework."""
    opens: str = ""
    """The parameter that is a file: `NAME:PATH` selects its cases, whose ids have the content's hash and not the path. The body gets the
    path after the worker has checked that the content is what was planned."""
    contents: Contents | None = None
    """Returns the cases at a path, such as the programs of a folder; without this hook the path is one case. The conductor calls it for
    built-in workloads when it plans, so it must not import a framework."""
    identify: Callable[[Path], str] | None = None
    """Returns the sha256 that identifies such a case, if that is not the file's own: files that belong to it count too, such as recorded
    inputs. Called when a run is planned, and again by the worker."""

    suits: Callable[[Mapping[str, Any]], Sequence[str]] | None = None
    """The backends that can run a file's content; other named backends are dropped. Only for built-in workloads."""
    witness: Callable[[Case, Any], Case | None] | None = None
    """Returns the case whose answer is the reference for a case under these settings and that must run first, or None.
    The conductor calls it for built-in workloads before it measures."""
    free: bool = False
    """Whether cases may have parameters besides its axes, such as those of a program's scan; the body interprets them."""

    def on(self, backend: str) -> Callable[[Body], Body]:
        """Add the body for another framework."""

        def add(body: Body) -> Body:
            self.bodies[backend] = _checked(self, body)
            return body

        return add

    def variant(
        self, name: str, *, backends: Sequence[str] = (), fresh: bool = False
    ) -> Callable[[Callable[..., Task]], Callable[..., Task]]:
        """Add another implementation of only this workload; it is verified against the first."""

        def add(apply: Callable[..., Task]) -> Callable[..., Task]:
            self.variants[name] = Variant(name, apply, summary_of(apply), tuple(backends), fresh)
            return apply

        return add

    def describe(self) -> dict[str, Any]:
        """What the conductor needs to know, as JSON: it never imports a user's file."""
        return {
            "name": self.name, "axes": {key: list(values) for key, values in self.axes.items()}, "tags": list(self.tags),
            "doc": self.doc, "modes": list(self.modes), "sizes": {key: dict(value) for key, value in self.sizes.items()},
            "backends": list(self.bodies), "opens": self.opens, "free": self.free,
            "variants": {name: item.describe() for name, item in self.variants.items()},
        }  # fmt: skip


def workload(
    name: str,
    *,
    axes: Mapping[str, Sequence[Any]] | None = None,
    tags: Sequence[str] = (),
    backend: str | Sequence[str] = "torch",
    modes: Sequence[str] = ("eval",),
    sizes: Mapping[str, Mapping[str, Any]] | None = None,
    examine: Callable[[Mapping[str, Any], Any], tuple[str, str]] | None = None,
    imports: Sequence[str] = (),
    refuse: Callable[[Mapping[str, Any], str], None] | None = None,
    opens: str = "",
    contents: Contents | None = None,
    identify: Callable[[Path], str] | None = None,
    suits: Callable[[Mapping[str, Any]], Sequence[str]] | None = None,
    witness: Callable[[Case, Any], Case | None] | None = None,
    free: bool = False,
) -> Callable[[Body], Workload]:
    """Define what is computed; the function's arguments are the axes, and `be`, which is one of the backends that it is written for.

    `axes` are the usual values of each argument, `sizes` named sets of other values, for `-a size=NAME`. `tags` select it: `tag:smoke`,
    `tier:1`. `modes` are those that it can be measured in: eval, fwd, bwd, train. `backend` is what the decorated body is written for;
    `on` adds another. `imports` are modules that take long to import: that time is reported separately from building. `opens` names
    the argument that is a file's path. The other arguments are hooks that Steelyard's own workloads use (see `Workload`).
    """
    if not isinstance(name, str):
        raise UsageError(f"a workload's name is text, not {name!r}", do='write @workload("my/name", axes={…})')
    axes = {**({opens: ("",)} if opens else {}), **(axes or {})} if opens and isinstance(axes or {}, Mapping) else axes
    values = {key: tuple(value) if isinstance(value, (list, tuple)) else (value,) for key, value in _table(name, "axes", axes).items()}
    for key, items in values.items():
        if not items:
            raise UsageError(f"workload {name!r}: axis {key!r} has no values", do="give it at least one")
        for item in items:
            _check_value(name, key, item)
    for size, preset in _table(name, "sizes", sizes).items():
        for key, item in _table(name, f"size {size!r}", preset).items():
            _check_value(name, key, item)
    for mode in _words(name, "modes", modes):
        if mode not in MODES:
            raise unknown(f"mode of workload {name!r}", str(mode), MODES)
    _words(name, "tags", tags)
    _words(name, "imports", imports)

    def define(body: Body) -> Workload:
        made = Workload(
            name, values, tuple(tags), summary_of(body), tuple(modes), sizes or {}, examine=examine, imports=tuple(imports), refuse=refuse,
            opens=opens, contents=contents, identify=identify, suits=suits, witness=witness, free=free,
        )  # fmt: skip
        for each in [backend] if isinstance(backend, str) else backend:
            made.on(each)(body)
        return made

    return define


def _table(name: str, what: str, value: Mapping[str, Any] | None) -> Mapping[str, Any]:
    if value is not None and not (isinstance(value, Mapping) and all(isinstance(key, str) for key in value)):
        raise UsageError(f"workload {name!r}: {what} are a dictionary by name, not {_shown(value)}")
    return value or {}


def _words(name: str, what: str, value: Sequence[str]) -> Sequence[str]:
    """Check that a value is a list of words; a single string would be read as a list of its letters."""
    if not isinstance(value, (list, tuple)) or not all(isinstance(word, str) for word in value):
        raise UsageError(
            f"workload {name!r}: {what} are a list of words, not {_shown(value)}",
            do=f'write {what}=["{"eval" if what == "modes" else "smoke"}"]',
        )
    return value


def _check_value(name: str, axis: str, value: Any) -> None:
    """Check that a value of an axis can be written in a case id; any other value would be measured under a wrong id."""
    if axis == "dtype" and value is not None:
        if not isinstance(value, str):
            raise UsageError(f"workload {name!r}: a dtype is a name such as 'fp32', not {_shown(value)}")
        canonical(value)
    if not _is_plain(value):
        raise UsageError(
            f"workload {name!r}: axis {axis!r} cannot have the value {_shown(value)}",
            do="use finite numbers, text, booleans, None, or lists and dictionaries of these; build the rest in the function",
        )


def _is_plain(value: Any, depth: int = 0) -> bool:
    if depth > 20:
        return False
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _is_plain(item, depth + 1) for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return all(_is_plain(item, depth + 1) for item in value)
    return math.isfinite(value) if isinstance(value, float) else value is None or isinstance(value, (bool, int, str))


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def _checked(owner: Workload, body: Body) -> Body:
    signature = inspect.signature(body).parameters
    open_ended = any(parameter.kind is parameter.VAR_KEYWORD for parameter in signature.values())
    for axis in owner.axes:
        if axis not in signature and not open_ended:
            raise UsageError(
                f"workload {owner.name!r}: axis {axis!r} is not an argument of {body.__name__}()",
                do=f"add it to the function or drop it from axes (arguments: {', '.join(signature)})",
            )
    for key, parameter in signature.items():
        if (
            key not in (*owner.axes, *GIVEN)
            and parameter.default is parameter.empty
            and parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
        ):
            raise UsageError(
                f"workload {owner.name!r}: argument {key!r} of {body.__name__}() has no axis", do="give it values in axes={…} or a default"
            )
    return body


def summary_of(value: Any) -> str:
    """The first line of a definition's docstring."""
    return (inspect.getdoc(value) or "").strip().split("\n")[0]
