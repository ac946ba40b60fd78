"""Looks up names: built-ins by folder, installed packages by entry point, users' files by path.

Listing names of other packages imports nothing. An entry point's own name is the registered name, so
`steelyard list` reads package metadata only; the package is loaded when the user names the thing.
"""

from __future__ import annotations

import fnmatch
import functools
import importlib
import importlib.util
import inspect
import os
import pkgutil
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from steelyard import clocks  # noqa: F401  imported first, because files loaded below may patch `time`
from steelyard.errors import UsageError, unknown
from steelyard.model import registering
from steelyard.model.about import About
from steelyard.model.define import FAMILY, Metric, Variant, Workload
from steelyard.model.dialect import Dialect
from steelyard.model.operators import DataGenerator, Operator, SpecIterator
from steelyard.model.registering import registered
from steelyard.model.words import find_named, prefixes

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

KINDS: dict[str, Any] = {
    "workloads": Workload, "variants": Variant, "metrics": Metric,
    "operators": Operator, "iterators": SpecIterator, "generators": DataGenerator,
}  # fmt: skip
FOR_CONFIGS = ("operators", "iterators", "generators")
BUILT_IN = "built-in"
FRAMEWORKS = ("triton", "iree", "torchao", "transformers")
"""Packages, besides those of the backends, after which users name files with benchmarks."""


T = TypeVar("T", Workload, dict[str, Any])


class Workloads(dict[str, T]):
    """Workloads by name, where a family such as `timm/*` covers every name below it; only the family itself is listed."""

    def family(self, name: str) -> str:
        """The family that a name belongs to; empty if there is none, and for patterns."""
        parts = name.split("/")
        if not all(parts) or any(sign in name for sign in "*?[]"):
            return ""
        families = ("/".join(parts[:end]) + FAMILY for end in range(len(parts) - 1, 0, -1))
        return next((found for found in families if super(Workloads, self).__contains__(found)), "")

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or (isinstance(name, str) and bool(self.family(name)))

    def __missing__(self, name: str) -> T:
        family = self.family(name)
        if not family:
            raise KeyError(name)
        found = self[family]
        if isinstance(found, Workload):
            return replace(found, name=name, member=name.removeprefix(family.removesuffix("*")))
        return {**found, "name": name}

    def get(self, name: str, default: Any = None) -> Any:
        """Like `dict.get`, with families."""
        try:
            return self[name]
        except KeyError:
            return default


@dataclass(frozen=True)
class Loaded:
    """Definitions found in modules, ready to use: the worker's view."""

    workloads: dict[str, Workload] = field(default_factory=Workloads)
    variants: dict[str, Variant] = field(default_factory=dict)
    metrics: dict[str, Metric] = field(default_factory=dict)
    operators: dict[str, Operator] = field(default_factory=dict)
    iterators: dict[str, SpecIterator] = field(default_factory=dict)
    generators: dict[str, DataGenerator] = field(default_factory=dict)

    def add(self, module: ModuleType) -> Loaded:
        """Add what a module defines; a name that already has another definition is an error."""
        ours = module.__name__.startswith(f"{__package__}.")
        for value in [*vars(module).values(), *registered(module)]:
            for kind, kind_of in KINDS.items():
                if isinstance(value, kind_of):
                    table: dict[str, Any] = getattr(self, kind)
                    built_in = None if ours else _built_in(kind, value.name)
                    known = (
                        dict.get(table, value.name) if ours else table.get(value.name)
                    )  # a built-in may be defined besides the family that covers its name
                    _check_free(kind, value, known, built_in)
                    table[value.name] = value
        return self

    def describe(self) -> dict[str, Any]:
        """The definitions as plain data, for the conductor."""
        return {
            "workloads": {name: item.describe() for name, item in self.workloads.items()},
            "variants": {name: item.describe() for name, item in self.variants.items()},
            "metrics": {name: {"doc": item.doc, "unit": item.unit, "better": item.better} for name, item in self.metrics.items()},
            **{kind: {name: {"doc": item.doc} for name, item in getattr(self, kind).items()} for kind in FOR_CONFIGS},
        }


def _built_in(kind: str, name: str) -> Any:
    """The built-in definition of a name, also with option suffixes: `int4wo-32` is int4wo."""
    table = getattr(_own_definitions(), kind)
    if kind != "variants":
        return table.get(name)
    try:
        found = find_named(name, table)
    except UsageError:
        return None
    return found[0] if found else None


def _check_free(kind: str, value: Any, known: Any, built_in: Any) -> None:
    """Refuse a second definition of a name; the same function, imported again under another module name, is allowed."""
    for other, words in ((built_in, "built in: "), (known, "")):
        if other is None or other is value:
            continue
        if _place(other) != _place(value) or _function(other).__module__ == _function(value).__module__:
            what = f"{kind.removesuffix('s')} {value.name!r} is defined twice"
            raise UsageError(what, why=f"{words}{_place(other)}, and again: {_place(value)}", do="give one of them another name")


def _function(item: Any) -> Any:
    """The function that a definition was made of."""
    names = {Metric: "compute", Variant: "apply", Operator: "make", SpecIterator: "expand", DataGenerator: "make"}
    function: Any = next(iter(item.bodies.values())) if isinstance(item, Workload) else getattr(item, names[type(item)])
    function = function.args[0] if isinstance(function, functools.partial) and function.args else function
    return inspect.unwrap(getattr(function, "forward", function))


def _place(item: Any) -> str:
    """File and line of a definition's function; if it is not a plain function, the name of its type."""
    function = _function(item)
    code = getattr(function, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else f"{type(function).__module__}.{type(function).__qualname__}"


@dataclass(frozen=True)
class Catalogue:
    """Everything that can be named, as plain descriptions: the conductor's view; `sources` has the hashes of the users' files behind it."""

    workloads: dict[str, dict[str, Any]]
    variants: dict[str, dict[str, Any]]
    metrics: dict[str, dict[str, Any]]
    backends: dict[str, dict[str, Any]]
    operators: dict[str, dict[str, Any]] = field(default_factory=dict)
    iterators: dict[str, dict[str, Any]] = field(default_factory=dict)
    generators: dict[str, dict[str, Any]] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)

    def variant(self, workload: str, name: str) -> dict[str, Any]:
        """The variant that a name means for a workload, with or without option suffixes."""
        own: dict[str, dict[str, Any]] = self.workloads[workload]["variants"]
        found = find_named(name, own, self.variants)
        if found is None:
            raise unknown(f"variant of {workload}", name, [*own, *self.variants])
        return found[0]

    def extend(self, described: Mapping[str, Any], origin: str) -> Catalogue:
        """This catalogue with the descriptions of a file or package added; they replace those of the same name."""
        merged = {
            kind: type(table)({**table, **{name: {**item, "origin": origin} for name, item in described.get(kind, {}).items()}})
            for kind in KINDS
            for table in [getattr(self, kind)]
        }
        return Catalogue(**merged, backends=self.backends, sources={**self.sources, **described.get("modules", {})})


def built_ins() -> Loaded:
    """Every built-in definition, in new tables; these modules import no framework at top level."""
    own = _own_definitions()
    return Loaded(**{kind: type(table)(table) for kind in KINDS for table in [getattr(own, kind)]})


@functools.cache
def _own_definitions() -> Loaded:
    found = Loaded().add(importlib.import_module("steelyard.measuring.metrics"))
    for package in ("steelyard.workloads", "steelyard.variants"):
        for module in _walk(package):
            found.add(module)
    return found


def _walk(package: str) -> Iterator[ModuleType]:
    root = importlib.import_module(package)
    for info in pkgutil.walk_packages(root.__path__, f"{package}."):
        if not info.ispkg and not info.name.rpartition(".")[2].startswith("_"):
            yield importlib.import_module(info.name)


def catalogue() -> Catalogue:
    """Built-ins described in full, installed packages by name only."""
    described = built_ins().describe()
    found = Catalogue(Workloads(), {}, {}, {name: {"doc": "", "origin": BUILT_IN} for name in backend_names()}).extend(described, BUILT_IN)
    for kind in (*KINDS, "backends"):
        for name, point in entry_points(kind).items():
            getattr(found, kind).setdefault(name, {"name": name, "doc": "", "origin": f"package {_distribution(point)}"})
    return found


def entry_points(kind: str) -> dict[str, EntryPoint]:
    """Installed definitions of one kind by name, read from metadata without importing anything."""
    from importlib.metadata import entry_points as installed

    return {point.name: point for point in installed(group=f"steelyard.{kind}")}


def _distribution(point: EntryPoint) -> str:
    return point.dist.name if point.dist else "unknown"


def load_entry(kind: str, name: str) -> ModuleType:
    """Import the package behind an entry point, because the user named it."""
    point = entry_points(kind).get(name)
    if point is None:
        raise unknown(kind.removesuffix("s"), name, entry_points(kind))
    return registering.loaded(functools.partial(importlib.import_module, point.module))


def entries_named(workloads: Iterable[str], variants: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """The installed workloads and variants that names or globs mean, as kind and name; variants may have option suffixes.

    Built-in names are not looked for in packages.
    """
    named, written = list(workloads), list(variants)
    starts = {start for word in written for start, _ in prefixes(word)}
    found = []
    for kind, words in (("workloads", named), ("variants", [*written, *starts])):
        own = getattr(_own_definitions(), kind)
        foreign = [name for name in entry_points(kind) if name not in own]
        found += [(kind, name) for name in foreign if any(fnmatch.fnmatchcase(name, word) for word in words)]
    return tuple(found)


def find_variant(name: str) -> tuple[Variant, dict[str, Any]] | None:
    """The variant of a name, with the options in its suffixes; one from an installed package is loaded."""
    known = built_ins()
    for kind, entry in entries_named((), [name]):
        known.add(load_entry(kind, entry))
    return find_named(name, known.variants)


def load_file(path: str | Path, *, again: bool = False) -> ModuleType:
    """Import a user's Python file under a name of its own, because the user named it.

    Modules beside it can be imported, now and when its functions are called. A process loads a file once; with `again` it is loaded as a
    new module, which shares nothing with the previous one.
    """
    file = Path(path).resolve()
    name = f"steelyard_user_{file.stem}_{zlib.crc32(str(file).encode()):08x}"
    if name in sys.modules and not again:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise UsageError(f"not a Python file: {file}")
    module, before = importlib.util.module_from_spec(spec), list(sys.path)
    sys.modules[name] = module
    if str(file.parent) not in sys.path:
        look_first([str(file.parent)])
    try:
        execute = functools.partial(spec.loader.exec_module, module)
        registering.loaded(lambda: execute() or module)
    except BaseException as error:
        sys.modules.pop(name, None)
        sys.path[:] = before
        if isinstance(error, SyntaxError):
            raise _misspelt(error, file) from None
        raise
    return module


def look_first(folders: Sequence[str]) -> None:
    """Import from these folders before what is installed, and never from them in place of Python's own modules.

    A folder with a file such as torch.py or a package such as jax (people name benchmarks after frameworks) is searched after what is
    installed, so that `import torch` means the framework.
    """
    if not folders:
        return
    own = Path(os.__file__).parent
    python = [entry for entry in sys.path if entry in (str(own), str(own / "lib-dynload"))]
    wanted = list(dict.fromkeys(folder for folder in folders if folder not in python))
    last = [folder for folder in wanted if any((Path(folder) / file).is_file() for name in frameworks() for file in _files_of(name))]
    rest = [entry for entry in sys.path if entry not in (*python, *wanted)]
    sys.path[:] = [*python, *(folder for folder in wanted if folder not in last), *rest, *last]


def _files_of(name: str) -> tuple[str, str]:
    """The files that a module can be in its folder: a file, or a package."""
    return f"{name}.py", f"{name}/__init__.py"


def _misspelt(error: SyntaxError, file: Path) -> UsageError:
    place = f"{error.filename or file}" + (f":{error.lineno}" if error.lineno else "")
    return UsageError(f"{type(error).__name__}: {error.msg}", why=(error.text or "").strip()[:200], where=place)


def backend_names() -> list[str]:
    """The built-in backends, from the files of their folder; none is imported."""
    return list(_built_in_backends())


@functools.cache
def _built_in_backends() -> tuple[str, ...]:
    found = pkgutil.iter_modules([str(Path(__file__).parent / "backends")])
    return tuple(sorted(info.name for info in found if info.name != "base" and not info.name.startswith("_")))


@functools.cache
def about_backend(name: str) -> About:
    """The facts in a backend's own file (`ABOUT`), read without importing it."""
    if name in backend_names():
        file = Path(__file__).parent / "backends" / f"{name}.py"
    else:
        module = backend_module(name)
        spec = importlib.util.find_spec(module) if module else None
        if spec is None or not spec.origin or not spec.origin.endswith(".py"):
            return About()
        file = Path(spec.origin)
    return About.read(file.read_text(encoding="utf-8"))


def frameworks() -> set[str]:
    """Package names that always mean the framework, even if a file has the same name."""
    return {*FRAMEWORKS, *(package for name in backend_names() if (package := about_backend(name).package))}


def backend_of(package: str) -> About | None:
    """The backend that a package belongs to."""
    return next((about for name in backend_names() if package and (about := about_backend(name)).package == package), None)


def backend_module(name: str) -> str:
    """The module that defines a backend; empty for an unknown one."""
    if name in backend_names():
        return f"steelyard.backends.{name}"
    point = entry_points("backends").get(name)
    return point.module if point else ""


def load_backend(name: str, extra: Mapping[str, Any] | None = None) -> Any:
    """The backend class of a name; ImportError is left to the caller, who knows what to advise."""
    if extra and name in extra:
        return extra[name]
    if name in backend_names():
        return importlib.import_module(f"steelyard.backends.{name}").BACKEND
    point = entry_points("backends").get(name)
    if point is None:
        raise unknown("backend", name, [*backend_names(), *entry_points("backends")])
    return point.load()


def dialects() -> Iterator[Dialect]:
    """The dialects: ours first, which are the folders of one package, then installed ones; each is loaded when the iteration reaches it."""
    folder = Path(__file__).parent / "dialects"
    for info in pkgutil.iter_modules([str(folder)]):
        if info.ispkg:
            yield importlib.import_module(f"steelyard.dialects.{info.name}").DIALECT
    for point in entry_points("dialects").values():
        try:
            yield point.load()
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            raise UsageError(f"dialect {point.name} of package {_distribution(point)} cannot be loaded", why=why) from error


def serve(name: str) -> None:
    """Make the import names of a dialect's original load our modules, for users' files written for the original."""
    found = next((dialect for dialect in dialects() if dialect.name == name), None)
    if found and found.names:
        importlib.import_module(found.names).serve()


def attribute(spot: str) -> Any:
    """The object that `package.module:attribute` names."""
    module, _, name = spot.partition(":")
    return getattr(importlib.import_module(module), name)


def suites() -> dict[str, Path]:
    """Named experiments that come with Steelyard."""
    folder = Path(__file__).parent / "suites"
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}
