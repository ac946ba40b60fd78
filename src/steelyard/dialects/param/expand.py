"""From a PARAM config to the list of configs to run: iterators, macros and ids, with every mistake found in one pass.

The order is part of the format, because ids count along it: operators, config entries, builds, inputs, and within a ranged
spec nested loops with args before kwargs, earlier arguments outside, and attributes in the order in which they are written.
Results share their unchanged parts: do not modify them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from steelyard.dialects.param import grammar, reading
from steelyard.dialects.param.grammar import LIST, RANGE, BrokenRule, Faults, shown
from steelyard.dialects.param.macros import Room, Spec, combinations
from steelyard.dialects.param.reading import JsonText, Place, place_text, printable
from steelyard.errors import UsageError, did_you_mean

Iterators = Mapping[str, Callable[..., Iterable[tuple[Any, Any]]]]

DEFAULT, RANGED, EMBEDDING = "DefaultConfigIterator", "RangeConfigIterator", "SplitTableBatchedEmbeddingBagsCodegenInputIterator"
BUILT_IN = (DEFAULT, RANGED, EMBEDDING)
DEFAULT_GENERATOR = "PyTorch:DefaultDataGenerator"
DEFAULT_GENERATORS = frozenset({DEFAULT_GENERATOR, "SplitTableBatchedEmbeddingBagsCodegenInputDataGenerator"})
NAMES = ("build_iterator", "input_iterator", "build_data_generator", "input_data_generator")
MOST_MISTAKES = 1000
NO_ITERATORS: Iterators = MappingProxyType({})


@dataclass(frozen=True)
class Mistake:
    """One mistake in a config: file and line, JSON path, operator, the ids that cannot run, what is wrong and what to do."""

    where: str
    path: str
    op: str
    id: str
    what: str
    do: str = ""

    def __str__(self) -> str:
        place = "  ".join(part for part in (self.where, self.path) if part)
        whose = " ".join(part for part in (self.op, self.id) if part)
        return "".join((place, "  " if place else "", f"{whose}: " if whose else "", self.what, f"; {self.do}" if self.do else ""))


@dataclass(frozen=True)
class Config:
    """One operator with one build and one input, macros expanded. A build of None is absent; [] is called without arguments."""

    op: str
    id: str
    build: Any
    input: Spec
    path: str
    generators: tuple[str, str]
    seed: int | None = None

    @property
    def full_id(self) -> str:
        """The id that is unique in a file."""
        return f"{self.op}|{self.id}"


@dataclass(frozen=True)
class Sheet:
    """An expanded config: all that can run, all mistakes, and how many combinations the filters dropped."""

    source: str
    configs: tuple[Config, ...]
    mistakes: tuple[Mistake, ...]
    dropped: int = 0
    warnings: tuple[Mistake, ...] = ()
    """Warnings about what the original ignores, if `lenient`; else these are mistakes."""


Source = Path | Mapping[str, Any]
SPOKEN = "config"
"""The name in messages of a config that is not a file."""


def sheet(
    source: Source | JsonText | str,
    where: str = SPOKEN,
    *,
    device: str = "cpu",
    iterators: Iterators = NO_ITERATORS,
    generators: Collection[str] = DEFAULT_GENERATORS,
    most: int = 100_000,
    lenient: bool = False,
) -> Sheet:
    """Expand a file, a text that was read with its lines, or data in place of one; an error if it is not a PARAM config.

    `most` limits the configs, counted before they are made; `lenient` accepts what the original accepts.
    """
    if isinstance(source, (str, Path)):
        source = reading.read(Path(source))
    page = source if isinstance(source, JsonText) else JsonText(where, "", source)
    if not recognise(page.data):
        do = 'a PARAM config maps operator names to objects with "input_data_generator" and "config"'
        raise UsageError("not a PARAM config", do=do, where=page.where)
    return _Expansion(page, device, iterators, generators, most, lenient).sheet()


def sheet_of(plain: Mapping[str, Any]) -> Sheet:
    """Rebuild a sheet from the plain data that a worker sent."""
    configs = [Config(**{**item, "generators": tuple(item["generators"])}) for item in plain["configs"]]
    mistakes, warnings = (tuple(Mistake(**item) for item in plain[name]) for name in ("mistakes", "warnings"))
    return Sheet(plain["source"], tuple(configs), mistakes, plain["dropped"], warnings)


def recognise(data: Any) -> bool:
    """Whether parsed JSON is a PARAM config: operator names to objects that have a config list or name a data generator.

    An object that also has measurements is another system's result.
    """
    infos = [info for info in data.values() if isinstance(info, dict) and "measurements" not in info] if isinstance(data, dict) else []
    return any(isinstance(info.get("config"), list) or "input_data_generator" in info for info in infos)


class _Enough(Exception):
    """There are so many mistakes that reading stops."""


@dataclass(frozen=True)
class _Half:
    """How the builds or the inputs of one operator are read."""

    key: str
    iterator: str
    generator: str
    sure: bool

    @property
    def strict(self) -> bool:
        """Whether arguments are checked: only those of the default generator have a known grammar."""
        return self.generator == DEFAULT_GENERATOR


Found = tuple[str, Any, Place]


class _Expansion:
    """One file being expanded, and what was found so far."""

    def __init__(self, page: JsonText, device: str, iterators: Iterators, generators: Collection[str], most: int, lenient: bool) -> None:
        self.page, self.device, self.iterators, self.most, self.lenient = page, device, iterators, most, lenient
        if taken := [name for name in iterators if _bare(name) in map(_bare, BUILT_IN)]:
            raise UsageError(f"iterator {taken[0]!r} is PARAM's own", why="one of your files defines it too", do="give yours another name")
        self.generators = {_bare(name): name for name in (*generators, *DEFAULT_GENERATORS)}
        self.configs: list[Config] = []
        self.wrong: dict[tuple[Place, str], tuple[str, str, str]] = {}
        self.odd: dict[tuple[Place, str], tuple[str, str, str]] = {}
        self.dropped = 0
        self.op = ""
        self.twice: dict[Place, list[Place]] = {}
        for place, _ in page.twice:
            self.twice.setdefault(_scope(place), []).append(place)

    def sheet(self) -> Sheet:
        enough = ""
        try:
            for op, info in self.page.data.items():
                self.operator(op, info)
        except _Enough:
            enough = f"more than {MOST_MISTAKES} mistakes; the rest was not read"
        mistakes = [*self.told(self.wrong), *([Mistake(self.page.where, "", "", "", enough)] if enough else [])]
        return Sheet(self.page.where, tuple(self.configs), tuple(mistakes), self.dropped, tuple(self.told(self.odd)))

    def told(self, found: Mapping[tuple[Place, str], tuple[str, str, str]]) -> list[Mistake]:
        """Return faults as mistakes with their lines."""
        lines = {**self.page.lines([place for place, _ in found]), **dict(self.page.twice)} if self.page.text else {}
        return [
            Mistake(
                f"{self.page.where}:{lines[place]}" if place in lines else self.page.where,
                place_text(place), printable(op), id, printable(what), printable(do),
            )
            for (place, what), (op, id, do) in found.items()
        ]  # fmt: skip

    def report(self, faults: Iterable[BrokenRule], id: str) -> bool:
        """Keep faults as mistakes, each once; returns whether there were none."""
        clean = True
        for fault in faults:
            if fault.loose and self.lenient:
                self.odd.setdefault((fault.place, fault.what), (self.op, id, fault.do))
                continue
            clean = False
            self.wrong.setdefault((fault.place, fault.what), (self.op, id, fault.do))
            if len(self.wrong) > MOST_MISTAKES:
                raise _Enough
        return clean

    def once(self, scope: Place, id: str) -> bool:
        """Whether no key of an object is given twice; each that is, is ambiguous and reported."""
        do = "remove one, or merge the two"
        return self.report((BrokenRule(place, f"key {shown(place[-1])} is given twice", do) for place in self.twice.get(scope, ())), id)

    def operator(self, op: Any, info: Any) -> None:
        self.op = str(op)
        place: Place = (self.op,)
        if not (isinstance(op, str) and op.strip() and op.isprintable() and "|" not in op):
            self.report([BrokenRule(place, "an operator's name is printable text without '|'")], "")
            return
        if not isinstance(info, dict):
            self.report([replace(grammar.expected(place, "an object with input_data_generator and config", info), loose=True)], "")
            return
        good = self.once(place, "")
        good &= self.report(grammar.unknown_keys(info, place, (*NAMES, "config", "seed")), "")
        build, input = (self.half(info, place, key) for key in ("build", "input"))
        good &= self.report(_seed_faults(info, place), "") and build.sure and input.sure
        entries = info.get("config")
        if not isinstance(entries, list) or not entries:
            fault = grammar.expected((*place, "config"), "a list of one or more entries", entries)
            self.report([fault if "config" in info else grammar.missing(place, "config")], "")
            return
        for index, entry in enumerate(entries):
            self.entry(entry, (*place, "config", index), build, input, info.get("seed") if good else None, good)

    def half(self, info: Mapping[str, Any], place: Place, key: str) -> _Half:
        """Return the iterator and the generator of an operator's builds or inputs."""
        faults: list[BrokenRule] = []
        iterator = info.get(f"{key}_iterator", DEFAULT)
        names = {_bare(name): name for name in (*self.iterators, *BUILT_IN)}
        if not isinstance(iterator, str) or _bare(iterator) not in names:
            faults.append(_unknown((*place, f"{key}_iterator"), "iterator", iterator, names))
            iterator = RANGED
        generator = info.get(f"{key}_data_generator")
        if f"{key}_data_generator" not in info:
            if key == "input":
                faults.append(grammar.missing(place, "input_data_generator", f'usually "{DEFAULT_GENERATOR}"'))
            generator = DEFAULT_GENERATOR if key == "input" else ""
        elif not isinstance(generator, str) or _bare(generator) not in self.generators:
            faults.append(_unknown((*place, f"{key}_data_generator"), "data generator", generator, self.generators.values()))
            generator = ""
        generator = self.generators.get(_bare(generator), "")
        return _Half(key, names.get(_bare(iterator), RANGED), generator, self.report(faults, ""))

    def entry(self, entry: Any, place: Place, build: _Half, input: _Half, seed: int | None, good: bool) -> None:
        index = str(place[-1])
        if not isinstance(entry, dict):
            self.report([grammar.expected(place, "an object with input, and build if there is one", entry)], index)
            return
        good &= self.once(place, index)
        if {build.iterator, input.iterator} <= set(BUILT_IN):
            good &= self.report(grammar.unknown_keys(entry, place, ("build", "input")), index)
        builds = self.builds(entry, place, build, index)
        inputs = entry.get("input")
        if not isinstance(inputs, list) or not inputs:
            fault = grammar.expected((*place, "input"), "a list of one or more specs", inputs)
            self.report([fault if "input" in entry else grammar.missing(place, "input")], index)
            return
        per_build = input.iterator not in (DEFAULT, RANGED)
        whose = builds[0][0] if len(builds) == 1 else "*"
        shared = [] if per_build else self.found(entry, place, input, f"{index}|{whose}|", len(builds))
        for build_id, spec, _ in builds:
            own = self.found({**entry, "build": spec}, place, input, f"{index}|{build_id}|", 1) if per_build else shared
            texts = {at: place_text(at) for at in {at for _, _, at in own}}
            names = (build.generator, input.generator)
            whole = (Config(self.op, f"{index}|{build_id}|{id}", spec, item, texts[at], names, seed) for id, item, at in own)
            self.configs += whole if good else ()

    def builds(self, entry: Mapping[str, Any], place: Place, half: _Half, index: str) -> list[Found]:
        """Return the builds of an entry with their ids; one that is absent or empty has the id 0."""
        specs, at = entry.get("build"), (*place, "build")
        if specs is None:
            return [("0", None, at)]
        if not half.generator and half.sure:
            self.report(
                [grammar.missing(place[:1], "build_data_generator", f'usually "{DEFAULT_GENERATOR}", because there is a build')], ""
            )
            half = _Half(half.key, half.iterator, DEFAULT_GENERATOR, False)
        if not isinstance(specs, list):
            self.report([grammar.expected(at, "a list of specs", specs)], index)
            return []
        found = self.found(entry, place, half, f"{index}|", 1) if specs else [("0", [], at)]
        return found if half.sure else []

    def found(self, entry: Mapping[str, Any], place: Place, half: _Half, prefix: str, times: int) -> list[Found]:
        """Return all specs of an iterator, each with its id and its place; `times` is how often each will be used."""
        suffix = "|*" if half.key == "build" else ""
        at: Place = (*place, half.key)
        room = Room((self.most - len(self.configs)) // max(1, times), self.most)
        if half.iterator not in BUILT_IN:
            return self.custom(entry, at, half, f"{prefix}*{suffix}", room)
        found: list[Found] = []
        for index, spec in enumerate(entry[half.key]):
            where = (*at, index)
            id = f"{prefix}{index if half.iterator == DEFAULT else f'{index}_*'}{suffix}"
            once = self.once(where, id)
            left = Room(room.left - len(found), self.most)
            if half.iterator == DEFAULT:
                given = self.plain(spec, where, half, id)
                if given and not self.report(left.faults(1, at), id):
                    break
            elif half.iterator == RANGED:
                given = self.ranged(spec, where, half, id, left)
            else:
                given = self.embedded(entry.get("build"), spec, where, half, id, left)
            found += given if once else []
        return found

    def plain(self, spec: Any, place: Place, half: _Half, id: str) -> list[Found]:
        """Check a spec that is used unchanged."""
        good = self.report(grammar.spec_faults(spec, place, macros=False, strict=half.strict), id)
        if isinstance(spec, dict) and half.strict:
            for key, arg in grammar.arguments(spec):
                good &= self.report(grammar.argument_faults(arg, (*place, *key)), id)
            good &= self.report(grammar.reference_faults(spec, place), id)
        return [(str(place[-1]), spec, place)] if good else []

    def ranged(self, spec: Any, place: Place, half: _Half, id: str, room: Room) -> list[Found]:
        """Return all combinations of a spec with macros, in the order of nested loops."""
        found, dropped = combinations(spec, place, half.strict, room, lambda faults: self.report(faults, id))
        self.dropped += dropped
        return [(f"{place[-1]}_{number}", item, place) for number, item in found]

    def embedded(self, build: Any, spec: Any, place: Place, half: _Half, id: str, room: Room) -> list[Found]:
        """Return inputs of the batched embedding operator: the tables come from the build, batch size and pooling factor from the input."""
        tables = build.get("args") if isinstance(build, dict) else None
        args = spec.get("args") if isinstance(spec, dict) else None
        if not isinstance(tables, list) or len(tables) < 6:
            self.report([BrokenRule(place, f"{EMBEDDING} needs a build of 6 arguments or more")], id)
            return []
        if not isinstance(args, list) or len(args) < 2 or not all(isinstance(arg, dict) for arg in args):
            self.report([BrokenRule(place, f"{EMBEDDING} needs the arguments batch_size and pooling_factor")], id)
            return []
        if not self.report(grammar.unknown_keys(spec, place, ("args", "kwargs")), id):
            return []
        plain = {"args": [{key: ["value"] if key in (RANGE, LIST) else value for key, value in arg.items()} for arg in args]}
        found = self.ranged(plain, place, half, id, room)
        before, after = tables[:3], tables[4:6]
        return [(number, {"args": [*before, *item["args"][:2], *after], "kwargs": {}}, at) for number, item, at in found]

    def custom(self, entry: Mapping[str, Any], place: Place, half: _Half, id: str, room: Room) -> list[Found]:
        """Return the specs of a user's iterator, which may raise, never end, or yield something other than ids and specs."""
        found: dict[str, Found] = {}
        name = half.iterator
        try:
            for given in self.iterators[name](copy.deepcopy(dict(entry)), half.key, self.device):
                if not isinstance(given, (tuple, list)) or len(given) != 2 or not _is_id(given[0]) or str(given[0]) in found:
                    self.report([BrokenRule(place, f"iterator {name} gave {shown(given)}", "yield pairs of a new id and a spec")], id)
                    break
                if not self.report(room.faults(len(found) + 1, place), id):
                    found.clear()
                    break
                found[str(given[0])] = (str(given[0]), given[1], place)
        except _Enough:
            raise
        except Exception as error:
            self.report([BrokenRule(place, f"iterator {name} raised {type(error).__name__}: {printable(str(error), 200)}")], id)
        return [(number, spec, at) for number, spec, at in found.values() if self.plain(spec, at, half, id)]


def _is_id(value: Any) -> bool:
    """Whether a value can be an id, which becomes part of a longer one divided by `|`."""
    text = str(value) if isinstance(value, (int, str)) else ""
    return 0 < len(text) < 100 and text.isprintable() and "|" not in text


def _bare(name: str) -> str:
    """Return a name without its prefix `PyTorch:`, which older files write with two colons."""
    return name.removeprefix("PyTorch:").removeprefix(":")


def _scope(place: Place) -> Place:
    """Return the smallest unit that a repeated key makes unusable: a spec, an entry or an operator."""
    return place[:5] if len(place) > 5 else place[:3] if len(place) > 3 else place[:1]


def _seed_faults(info: Mapping[str, Any], place: Place) -> Faults:
    seed = info.get("seed", 0)
    if not grammar.is_whole(seed) or seed < 0:
        yield grammar.expected((*place, "seed"), "a whole number from 0", seed)


def _unknown(place: Place, kind: str, name: Any, names: Iterable[str]) -> BrokenRule:
    known = sorted(names)
    hint = did_you_mean(name[:100], known) if isinstance(name, str) else ""
    return BrokenRule(place, f"no {kind} named {shown(name)}", hint or f"known: {', '.join(known)}")
