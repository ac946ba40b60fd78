"""Checks the names in an experiment against the catalogue: all wrong names are found before anything is expanded or timed."""

from __future__ import annotations

import fnmatch
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from steelyard import registry
from steelyard.engine import envs, opening
from steelyard.engine.filters import TAG, TIER
from steelyard.errors import Mistakes, UsageError, unknown
from steelyard.model.case import HERE, IDENTITY, MODES, Case, VariantSpec, sorted_pairs
from steelyard.model.define import FAMILY
from steelyard.model.experiment import Experiment, Matrix, Rule, Settings
from steelyard.model.words import Word, find_named, in_full
from steelyard.registry import Catalogue

T = TypeVar("T")
MOST_TOLD = 50


def refuse(experiment: Experiment, catalogue: Catalogue) -> None:
    """Raise all wrong names as one error, if there are any."""
    raise_all(mistakes(experiment, catalogue))


def raise_all(found: Sequence[UsageError]) -> None:
    """Raise several errors as one; nothing if there are none."""
    if len(found) == 1:
        raise found[0]
    if found:
        raise Mistakes(found[:MOST_TOLD], more=max(0, len(found) - MOST_TOLD))


def refuse_reference(cases: Iterable[Case], settings: Settings) -> None:
    """Refuse cases that the reference interpreter cannot run, before any of them is measured without a check."""
    known = registry.built_ins().workloads
    for case in cases if settings.reference == "interpreter" else ():
        if (workload := known.get(case.workload)) is None or workload.witness is None:
            why = "the reference interpreter only runs exported programs"
            raise UsageError(f"{case.workload} has no reference interpreter", why=why, do="--reference fp64, or leave --reference out")


def refuse_values(cases: Iterable[Case], origins: Mapping[Case, str], catalogue: Catalogue) -> None:
    """Raise the errors of built-in workloads about parameters that can run nowhere, each once and all as one error."""
    ours = registry.built_ins().workloads
    asked = {name: ours.get(name) if info["origin"] == registry.BUILT_IN else None for name, info in _infos(cases, catalogue)}
    found: dict[str, UsageError] = {}
    for case in cases:
        workload, parameter = asked[case.workload], catalogue.workloads[case.workload].get("opens")
        if parameter and not dict(case.params).get(parameter):
            missing = UsageError(f"{case.workload} needs a file", do=f"write {case.workload}:PATH")
            found.setdefault(str(missing), placed(missing, origins.get(case, "")))
            continue
        if workload is not None and workload.refuse is not None:
            try:
                workload.refuse(dict(case.params), workload.member)
            except UsageError as error:
                found.setdefault(str(error), placed(error, origins.get(case, "")))
    raise_all(list(found.values()))


def _infos(cases: Iterable[Case], catalogue: Catalogue) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name in dict.fromkeys(case.workload for case in cases):
        yield name, catalogue.workloads[name]


@dataclass
class Trial:
    """Names tried so far, and the errors of those that are wrong: each is reported once, however many workloads it is wrong for."""

    catalogue: Catalogue
    found: dict[tuple[str, str], UsageError] = field(default_factory=dict)
    right: set[tuple[str, ...]] = field(default_factory=set)
    """Names that were tried and are right, so that they are not tried again: thousands of matrices of one file may share them."""
    plain: dict[str, Case] = field(default_factory=dict)
    """A case of each workload with default values."""
    selected: dict[str, list[str]] = field(default_factory=dict)
    """The workloads that each pattern selects."""

    def attempt(self, origin: str, what: str, test: Callable[..., T], *args: Any) -> T | None:
        """Return the result of a test; None, with its error noted, if it fails."""
        try:
            return test(*args)
        except UsageError as error:
            self.found.setdefault((origin, what), placed(error, origin))
        return None

    def matrix(self, matrix: Matrix) -> None:
        """Try every name in a matrix, one at a time with defaults for the rest, so that no error hides another."""
        origin = matrix.origin
        for env in matrix.env:
            if env != HERE:
                self.attempt(origin, f"env {env}", envs.find, env)
        names = list(dict.fromkeys(name for pattern in matrix.workload for name in self._selected(pattern, origin)))
        for axis in matrix.axes:
            self.once(("axis", axis, *names), origin, f"axis {axis}", _check_axis, axis, names, matrix, self.catalogue)
        for name in names:
            info = self.catalogue.workloads[name]
            case = self.plain.get(name) or Case(name, backend=next(iter(info.get("backends", ())), "torch"))
            self.plain[name] = case
            if not self.once(("workload", name), origin, f"workload {name}", settle, case, self.catalogue):
                continue
            self.attempt(origin, "size", presets_of, matrix.axes, info)
            for key, words in (("backend", matrix.backend), ("variant", matrix.variant)):
                for word in words:
                    self.once((name, key, word), origin, f"{key} {word}", self._settled, case, key, word)
            for axis, values in matrix.axes.items():
                for value in values if axis in info["axes"] else ():
                    try:
                        _check_value(name, axis, value, info["axes"])
                    except UsageError as error:
                        self.found.setdefault((origin, f"{axis} {value}"), placed(error, origin))

    def _selected(self, pattern: str, origin: str) -> list[str]:
        """Return the workloads that a pattern selects, looked up again only if there were none."""
        if not self.selected.get(pattern):
            self.selected[pattern] = self.attempt(origin, f"workload {pattern}", select, pattern, self.catalogue) or []
        return self.selected[pattern]

    def once(self, key: tuple[str, ...], origin: str, what: str, test: Callable[..., Any], *args: Any) -> bool:
        """Whether a test passes; it is made again only if it failed."""
        before = len(self.found)
        if key not in self.right:
            self.attempt(origin, what, test, *args)
            if len(self.found) == before and (origin, what) not in self.found:
                self.right.add(key)
        return key in self.right

    def _settled(self, case: Case, key: str, value: Any) -> Case:
        return settle(replace(case, **{key: value}), self.catalogue)


def mistakes(experiment: Experiment, catalogue: Catalogue) -> list[UsageError]:
    """Return every wrong name and every value of the wrong type, each once and with its place."""
    trial = Trial(catalogue)
    for matrix in experiment.matrix:
        trial.matrix(matrix)
    for item in experiment.include:
        trial.attempt("", f"include {item}", lambda it: settle(Case.parse(it) if isinstance(it, str) else it, catalogue), item)
    for case in [case for row in experiment.rows for case in (*row.cases, *itertools.chain.from_iterable(row.pairs))]:
        bare = replace(case, params=(), variant=IDENTITY)
        if trial.once(("workload", case.workload, case.backend), "", f"workload {case.workload}", settle, bare, catalogue):
            trial.once(("row", case.id), "", f"case {case}", settle, case, catalogue)
    return list(trial.found.values())


def _check_axis(axis: str, names: Sequence[str], matrix: Matrix, catalogue: Catalogue) -> None:
    """Refuse an axis that no workload has; `size` means the presets where no axis has that name."""
    have = {key for name in names for key in catalogue.workloads[name].get("axes", ())}
    sized = axis == "size" and any("size" not in catalogue.workloads[name].get("axes", ()) for name in names)
    if names and axis not in have and not sized:
        raise unknown("axis", axis, sorted(have), where=f"{matrix.origin}.axes" if matrix.origin else "")


@contextmanager
def errors_at(origin: str) -> Iterator[None]:
    """Report wrong names inside with their place in a file."""
    try:
        yield
    except UsageError as error:
        if (told := placed(error, origin)) is error:
            raise
        raise told from None


def placed(error: UsageError, origin: str) -> UsageError:
    """Return an error with its place in a file, unless it has one already."""
    return error if error.where or not origin else UsageError(error.what, why=error.why, do=error.do, where=origin)


def points(asked: Mapping[str, Sequence[Any]], info: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return every combination of parameter values, for each requested size preset."""
    usual, found = info["axes"], []
    for size in presets_of(asked, info) or [None]:
        preset = {key: [value] for key, value in info["sizes"][size].items()} if size is not None else {}
        axes = {key: list(asked.get(key, preset.get(key, values))) for key, values in usual.items()}
        found += [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
    return found


def presets_of(asked: Mapping[str, Sequence[Any]], info: Mapping[str, Any]) -> Sequence[Any]:
    """Return the requested size presets; one that the workload lacks is an error. `size` may also be an axis of its own."""
    presets = asked.get("size", ()) if "size" not in info["axes"] else ()
    for size in presets:
        if not isinstance(size, str) or size not in info["sizes"]:
            raise unknown(f"size of {info['name']}", str(size), info["sizes"])
    return presets


def select(pattern: str, catalogue: Catalogue) -> list[str]:
    """Return the workload names for an exact name, a glob, `tag:NAME`, or `tier:N`, which is the tag of that name."""
    names = catalogue.workloads
    if pattern in names and not any(sign in pattern for sign in "*?["):
        return [pattern]
    if pattern.startswith((TAG, TIER)):
        tag = pattern.removeprefix(TAG)
        tagged = [name for name, info in names.items() if tag in info.get("tags", ())]
        found = [name for name in tagged if not name.endswith(FAMILY) and not names[name].get("opens")]
        if not found:
            raise unknown("tag", tag, {tag for info in names.values() for tag in info.get("tags", ())})
        return found
    family = next((name for name in names if name.endswith(FAMILY) and pattern.startswith(name[:-1])), "")
    if family and any(sign in pattern for sign in "*?["):
        why = "only a library knows the names below it"
        raise UsageError(f"{pattern} cannot be expanded", why=why, do=f"name one: {names[family]['doc']}")
    found = sorted(fnmatch.filter(names, pattern)) if any(sign in pattern for sign in "*?[") else []
    found = [name for name in found if not name.startswith("fake/") or pattern.startswith("fake")]
    found = [name for name in found if "axes" in names[name] and not name.endswith(FAMILY) and not names[name].get("opens")]
    if not found:
        folder = pattern.rsplit("/", 1)[0] if "/" in pattern else ""
        known = any(name.startswith(f"{folder}/") for name in names)
        raise unknown("workload", pattern, names, listing=f"steelyard list '{folder}/*'" if known else "steelyard list")
    return found


def settle(case: Case, catalogue: Catalogue) -> Case:
    """Check every name in a case, fill in omitted parameters, and write its variants in their canonical spelling."""
    info = catalogue.workloads.get(case.workload)
    if info is None:
        raise unknown("workload", case.workload, catalogue.workloads, listing="steelyard list")
    if "axes" not in info:
        raise UsageError(
            f"{case.workload} belongs to {info['origin']}, which was not loaded", do="name the workload itself on the command line"
        )
    if case.backend not in catalogue.backends:
        raise unknown("backend", case.backend, catalogue.backends)
    axes: Mapping[str, Sequence[Any]] = info["axes"]
    for key, _ in case.params:
        if key not in axes and not info.get("free"):
            raise unknown(f"axis of {case.workload}", key, axes)
    for key, value in case.params:
        _check_value(case.workload, key, value, axes)
    if info.get("opens"):
        case = opening.settled(case, info["opens"])
    chain = []
    for step in case.chain:
        found = find_named(step.name, info["variants"], catalogue.variants)
        if found is None:
            kind = f"variant of {case.workload}"
            names = [IDENTITY, *info["variants"], *catalogue.variants]
            meant = f"{step.name}/{IDENTITY}" if step.name in catalogue.backends else ""
            raise unknown(kind, step.name, names, listing="steelyard list variants", meant=meant)
        variant, written = found
        for option, value in step.options if "options" in variant else ():
            if option in written:
                raise UsageError(f"{option} of variant {step.name} is given twice", do="write it either after the name or in brackets")
            if option not in variant["options"]:
                raise unknown(f"option of variant {step.name}", option, variant["options"])
            for word in variant.get("words", ()):
                if word["option"] == option:
                    Word.of(word).check(value, step.name)
            choices = variant.get("choices", {}).get(option)
            if choices and value not in [choice for choice in choices if type(choice) is type(value)]:
                raise unknown(f"{option} of variant {step.name}", str(value), map(str, choices))
        chain.append(_spelt(step, variant, written))
    given = dict(case.params)
    variant_text = "+".join(map(str, chain)) or IDENTITY
    if given.keys() >= axes.keys() and variant_text == case.variant:
        return case
    return replace(case, params=tuple({**{key: values[0] for key, values in axes.items()}, **given}.items()), variant=variant_text)


def _spelt(step: VariantSpec, variant: Mapping[str, Any], written: Mapping[str, Any]) -> VariantSpec:
    """Return a step with its options and their defaults written after its name; unchanged if its variant takes none there."""
    words = [Word.of(word) for word in variant.get("words", ())]
    if not words:
        return step
    name, left = in_full(variant["name"], words, {**variant["defaults"], **written, **dict(step.options)})
    own = dict(step.options) | dict(written)
    return VariantSpec(name, sorted_pairs({key: value for key, value in left.items() if key in own}))


def same_variant(written: str, case: Case, catalogue: Catalogue) -> bool:
    """Whether a base as it was typed, `int4wo` or `torch/int4wo`, means a settled case."""
    meant = case.against(written)
    if meant == case:
        return True
    try:
        return settle(meant, catalogue) == case
    except UsageError:
        return False


def fits(rule: Rule, case: Case, catalogue: Catalogue) -> bool:
    """Whether a rule matches a settled case; it may spell a variant as a user does."""
    tags = catalogue.workloads[case.workload].get("tags", ())
    if rule.fits(case, tags):
        return True
    written = rule.match.get("variant")
    if not isinstance(written, str) or "-" not in case.variant:
        return False
    rest = replace(rule, match={key: value for key, value in rule.match.items() if key != "variant"})
    try:
        return rest.fits(case, tags) and same_variant(f"{case.backend}/{written}", case, catalogue)
    except UsageError:
        return False


def _check_value(workload: str, key: str, value: Any, axes: Mapping[str, Sequence[Any]]) -> None:
    """Refuse a value whose type is not that of its axis."""
    usual = axes[key][0] if axes.get(key) else None
    number = isinstance(usual, (int, float)) and not isinstance(usual, bool)
    if number and (isinstance(value, (str, list, dict, bool)) or value is None):
        raise UsageError(f"axis {key} of {workload} takes a number, not {value!r}", do=f"for example -a {key}={usual}")
    if isinstance(usual, bool) and not isinstance(value, bool):
        raise UsageError(f"axis {key} of {workload} is true or false, not {value!r}")
    if isinstance(usual, int) and isinstance(value, float):
        raise UsageError(f"axis {key} of {workload} takes a whole number, not {value!r}", do=f"for example -a {key}={usual}")


def check_modes(modes: Sequence[str]) -> None:
    """Refuse unknown modes from the command line, before they reach a case."""
    for mode in modes:
        if mode not in MODES:
            raise unknown("mode", mode, MODES)
