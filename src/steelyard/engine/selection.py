"""Turns what a user types into an experiment: names, globs, case ids, suites, files and commands."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from steelyard import codec, registry
from steelyard.engine import commands, configs, opening
from steelyard.engine.describe import describe
from steelyard.engine.filters import Filters
from steelyard.engine.names import errors_at, select
from steelyard.engine.place import Place
from steelyard.engine.plan import Entries
from steelyard.engine.sides import here, is_side
from steelyard.errors import UsageError
from steelyard.files import open_plain, real
from steelyard.model.case import IDENTITY, Case, parse_base
from steelyard.model.experiment import DEVICES, Experiment, Matrix, Settings, device_kind
from steelyard.model.values import Scanner, render
from steelyard.registry import Catalogue

EXPERIMENT_FILES = (".toml", ".yaml", ".yml", ".json")


@dataclass(frozen=True)
class Request:
    """What a user requested; empty fields leave the experiment's own choice.

    `filters` and `part` choose among the cases that the other fields give. `trust` names other users' runs that may be looked
    up; `on` is the farm that measures. `names` and `prepare` are those of the programs, in their order.
    `options` are the axes with their own option on the command line, which errors about them name.
    """

    selectors: tuple[str, ...] = ()
    commands: tuple[tuple[str, ...], ...] = ()
    axes: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    backend: tuple[str, ...] = ()
    variant: tuple[str, ...] = ()
    mode: tuple[str, ...] = ()
    device: tuple[str, ...] = ()
    threads: tuple[int, ...] = ()
    ranks: tuple[int, ...] = ()
    flags: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    env: str | None = None
    device_index: str = ""
    filters: Filters = field(default_factory=Filters)
    part: str = ""
    trust: tuple[str, ...] = ()
    on: str = ""
    names: tuple[str, ...] = ()
    prepare: tuple[str, ...] = ()


def gather(request: Request, place: Place) -> tuple[Experiment, Catalogue, Entries]:
    """One experiment for everything named, with the catalogue that has its names."""
    named = [word for word in request.selectors if opening.split(word) is None]
    opened = [word for word in request.selectors if word not in named]
    files = tuple(str(real(Path(word))) for word in named if word.endswith(".py"))
    vs = request.settings.get("vs")
    sources = [_load(word, files, request, here(vs, place, files)) for word in named if _is_experiment(word)]
    words = [word for word in named if not _is_experiment(word) and not word.endswith(".py")]
    for file in files:
        _check_readable(Path(file))
    files += tuple(file for source in sources for file in source.files)
    base = vs or next((source.settings.vs for source in sources if source.settings.vs), None)
    catalogue, entries, own = _describe(
        [*words, *(word.partition(":")[0] for word in opened)], request, sources, files, here(base, place, files)
    )
    entries += tuple(entry for word in named if _is_experiment(word) for entry in configs.packages(Path(word)))
    typed = [*_matrices(words, own if not (words or sources or opened) else []), *([Matrix(workload=tuple(opened))] if opened else [])]
    typed = [part for matrix in typed for part in opening.matrices(matrix, catalogue)]
    if not request.variant and request.settings.get("vs") and not is_side(request.settings["vs"]):
        typed = [split for matrix in typed for split in _with_own_variants(matrix, catalogue)]
    matrices = [*_of_files(sources, catalogue), *typed]
    included: list[str | Case] = [text for source in sources for text in source.include]
    included += [word for word in words if "@" in word]
    if request.commands or [word for word in words if "@" in word]:
        _refuse_overrides(request, bool(matrices))
    for id in included if request.env else ():
        if env := (Case.parse(id) if isinstance(id, str) else id).env:
            raise UsageError(f"{id} names its environment itself, so --env cannot be given with it", do=f"leave out --env, or :env={env}")
    _check_options(request.options, matrices, catalogue)
    if request.commands and not matrices:
        commands.check_axes(request)
    strangers = _foreign(matrices, request.axes, catalogue, commands.own_axes(request))
    experiment = Experiment(
        name=" ".join(source.name for source in sources) or "command line",
        description=sources[0].description if len(sources) == 1 else "",
        matrix=tuple(
            part for matrix, foreign in zip(matrices, strangers, strict=True) for part in _override(matrix, request, foreign).apart()
        ),
        include=(*included, *commands.cases(request)),
        pairs=tuple(pair for source in sources for pair in source.pairs),
        rows=tuple(row for source in sources for row in source.rows),
        exclude=tuple(rule for source in sources for rule in source.exclude),
        deny=tuple(rule for source in sources for rule in source.deny),
        settings=_settings(sources, request.settings),
        recorded=sources[0].recorded if len(sources) == 1 else None,
        files=files,
        mistakes=tuple(line for source in sources for line in source.mistakes),
    )
    return experiment, catalogue, entries


def _of_files(sources: Sequence[Experiment], catalogue: Catalogue) -> list[Matrix]:
    """The matrices of experiment files, with the content of files that they open."""
    found = []
    for matrix in (matrix for source in sources for matrix in source.matrix):
        with errors_at(matrix.origin):
            found += opening.matrices(matrix, catalogue)
    return found


def _refuse_overrides(request: Request, elsewhere: bool) -> None:
    """Refuse options that would change nothing, because a case id or a program is complete."""
    own = () if request.commands else ("axes", "threads", "flags")
    asked = [name for name in ("backend", "variant", "mode", "device", "ranks", *own) if getattr(request, name)]
    if asked and not elsewhere:
        raise UsageError(f"a case id or a program is complete, so {', '.join(asked)} cannot be given with it", do="change the id itself")


def _is_experiment(word: str) -> bool:
    return word.endswith(EXPERIMENT_FILES) or word in registry.suites()


def _load(word: str, files: tuple[str, ...], request: Request, place: Place) -> Experiment:
    path = registry.suites().get(word, Path(word))
    return configs.load(path, files, place, request.device[0] if request.device else "") or codec.load_experiment(path)


def _check_readable(path: Path) -> None:
    try:
        open_plain(path).close()
    except OSError as error:
        raise UsageError(f"cannot read {path}", why=error.strerror or str(error), do="check the path") from error


def defined(words: Sequence[str]) -> dict[str, Any]:
    """What Python files define, by kind and name, from a worker that can import their project."""
    files = tuple(str(Path(word).resolve()) for word in words)
    for file in files:
        _check_readable(Path(file))
    found = describe(here(None, Place(), files), files, ())
    return {kind: items for kind, items in found.items() if kind != "modules"}


def _describe(
    words: Sequence[str], request: Request, sources: Sequence[Experiment], files: tuple[str, ...], place: Place
) -> tuple[Catalogue, Entries, list[str]]:
    """Get from a worker what the named files and installed packages define; the conductor imports neither."""
    catalogue = registry.catalogue()
    patterns = [*words, *(name for source in sources for matrix in source.matrix for name in matrix.workload)]
    patterns += [str(item) for source in sources for item in (*source.include, *_listed_cases(source))]
    entries = _named_entries(catalogue, patterns, request, sources)
    if not files and not entries:
        return catalogue, entries, []
    described = describe(place, files, entries)
    for path in [*files, *(name for _, name in entries)]:
        catalogue = catalogue.extend(described, path)
    return catalogue, entries, list(described["workloads"])


def _named_entries(catalogue: Catalogue, patterns: Sequence[str], request: Request, sources: Sequence[Experiment]) -> Entries:
    variants = {step.split("[")[0] for chain in _variant_words(request, sources) for step in chain.split("+")}
    found = list(registry.entries_named({pattern.split("[")[0].split("@")[0] for pattern in patterns}, variants))
    if found:
        found += [("metrics", name) for name, item in catalogue.metrics.items() if item["origin"].startswith("package")]
    return tuple(found)


def _variant_words(request: Request, sources: Sequence[Experiment]) -> list[str]:
    from_files = [variant for source in sources for matrix in source.matrix for variant in matrix.variant]
    vs = None if is_side(request.settings.get("vs")) else parse_base(request.settings.get("vs") or "")[1]
    from_pairs = [str(word).split("@")[-1].split("/")[-1].split(":")[0] for source in sources for pair in source.pairs for word in pair]
    from_cases = [word.split("/")[-1].split(":")[0] for word in request.selectors if "@" in word and opening.split(word) is None]
    from_rows = [case.variant for source in sources for row in source.rows for case in row.cases]
    return [*request.variant, *from_files, *([vs] if vs else []), *from_pairs, *from_cases, *from_rows]


def _listed_cases(source: Experiment) -> list[str | Case]:
    """The cases that pairs and rows of an experiment name."""
    listed = [item for pair in source.pairs for item in pair if isinstance(item, Case) or "@" in item]
    return [*listed, *(case for row in source.rows for case in row.cases)]


def _matrices(words: Sequence[str], own: Sequence[str]) -> list[Matrix]:
    found = [Matrix(workload=tuple(own))] if own else []
    plain = tuple(word for word in words if "@" not in word and "=" not in word)
    found += [Matrix(workload=plain)] if plain else []
    for word in words:
        if "=" in word and "@" not in word:
            scanner = Scanner(word)
            scanner.at = word.index("[") if "[" in word else len(word)
            name = word[: scanner.at]
            pairs = scanner.pairs()
            if not pairs or not scanner.done():
                raise UsageError(f"not a selector: {word!r}", do="write it like 'op/softmax[n=1024]', or use -a n=1024")
            found.append(Matrix(workload=(name,), axes={key: (value,) for key, value in pairs}))
    return found


def _with_own_variants(matrix: Matrix, catalogue: Catalogue) -> list[Matrix]:
    """Add the variants that a user's file defines, for its workloads or for any task, if a base is given without variants to compare."""
    try:
        names = dict.fromkeys(name for pattern in matrix.workload for name in select(pattern, catalogue))
    except UsageError:
        return [matrix]
    found, rest = [], []
    for name in names:
        info = catalogue.workloads[name]
        own = {**info.get("variants", {}), **{key: item for key, item in catalogue.variants.items() if item["origin"] == info["origin"]}}
        fitting = [key for key, item in own.items() if set(item.get("backends") or info["backends"]) & set(info["backends"])]
        if info["origin"] == registry.BUILT_IN or not fitting:
            rest.append(name)
        else:
            found.append(replace(matrix, workload=(name,), variant=tuple(dict.fromkeys([IDENTITY, *fitting]))))
    return [*found, *([replace(matrix, workload=tuple(rest))] if rest else [])]


def _override(matrix: Matrix, request: Request, foreign: Collection[str]) -> Matrix:
    asked = {
        name: getattr(request, name) for name in ("backend", "variant", "mode", "device", "threads", "ranks") if getattr(request, name)
    }
    flags = tuple({**own, **request.flags} for own in matrix.flags)
    env = Matrix.env if request.env else matrix.env
    axes = {name: values for name, values in request.axes.items() if name not in foreign}
    return replace(matrix, axes={**matrix.axes, **axes}, flags=flags, env=env, **asked)


def _foreign(matrices: Sequence[Matrix], axes: Iterable[str], catalogue: Catalogue, programs: Sequence[str]) -> list[set[str]]:
    """For each matrix the given axes that are only those of other matrices or of programs; unknown axes are an error later."""
    have = [_axes_of(matrix, catalogue) for matrix in matrices]
    known = set[str]().union(*have, *(key.split(",") for key in programs))
    return [{key for key in axes if set(key.split(",")) & known - own} for own in have]


def _check_options(options: Sequence[str], matrices: Sequence[Matrix], catalogue: Catalogue) -> None:
    """Refuse an option for a parameter that no named workload has."""
    known = set[str]().union(*(_axes_of(matrix, catalogue) for matrix in matrices))
    for name in options:
        if known and name not in known:
            raise UsageError(
                f"--{name} applies to nothing that is named to run", why=f"none of the workloads has a parameter {name}",
                do=f"name a workload that has it, such as a recorded trace: steelyard run trace:FILE --{name} …",
            )  # fmt: skip


def _axes_of(matrix: Matrix, catalogue: Catalogue) -> set[str]:
    """The axes of a matrix's workloads; an unknown name is reported later, with its place."""
    with contextlib.suppress(UsageError):
        names = [name for pattern in matrix.workload for name in select(pattern, catalogue)]
        return {axis for name in names for axis in catalogue.workloads[name].get("axes", ())}
    return set()


def _settings(sources: Sequence[Experiment], asked: Mapping[str, Any]) -> Settings:
    """The settings of the files, which must agree on what the command line leaves out, because a run has one value of each."""
    found = [asdict(source.settings) for source in sources]
    for name in found[0] if found else ():
        said = {render(own[name]): source.name for own, source in zip(found, sources, strict=True)}
        if name not in asked and len(said) > 1:
            why = ", ".join(f"{source}: {value}" for value, source in said.items())
            raise UsageError(f"the files disagree about {name}", why=why, do=f"give --{name.replace('_', '-')}, or run them one by one")
    return replace(sources[0].settings if sources else Settings(), **asked)


def read_devices(words: Sequence[str]) -> tuple[tuple[str, ...], str]:
    """Device kinds, which are part of a case, and the one index, which is not: `cuda:1` is a place, not an identity."""
    kinds, indices = [], set()
    for word in words:
        kind, sign, index = word.partition(":")
        kinds.append(device_kind(kind, DEVICES))
        if sign and kind == "cpu":
            why = "a cpu has no index: all of its cores are one device"
            raise UsageError(f"there is no device {word!r}", why=why, do="write -d cpu; --threads says how many cores")
        if sign and not index:
            raise UsageError(f"not a device: {word!r}", why="its number is missing", do=f"write {kind} or {kind}:1")
        indices |= {index} if index else set()
    if len(indices) > 1 or any(not index.isdecimal() for index in indices):
        raise UsageError(f"one device index at a time, not {', '.join(sorted(indices))}", do="for example -d cuda:1")
    return tuple(dict.fromkeys(kinds)), next(iter(indices), "")
