"""Experiment files: every mistake is found in one pass and named by line and key path."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args

from steelyard.codec.parsing import parse
from steelyard.codec.reading import CheckedFile, choice, expect, is_number, quantity, shown, text_value
from steelyard.errors import UsageError
from steelyard.files import read_text, real
from steelyard.model import ranges
from steelyard.model.case import MODES, Case, parse_base, parse_variants
from steelyard.model.dtypes import canonical
from steelyard.model.experiment import (
    BUDGETS,
    MOST_SETTLING,
    Experiment,
    GraphForm,
    Isolation,
    Matrix,
    Reference,
    Rule,
    Sampling,
    Saved,
    Settings,
    device_kind,
)
from steelyard.model.protocol import Clock, Counters, Fixed, Inputs, parse_fixed
from steelyard.model.units import MOST_COUNT, is_amount, parse_bytes, parse_seconds, parse_share

T = TypeVar("T")

_TOP = ("name", "description", "files", "recorded", "settings", "matrix", "include", "pairs", "exclude", "deny")
CASE_KEYS = ("workload", "axes", "backend", "variant", "mode", "device", "threads", "ranks", "env", "flags")
"""The parts of a case, by their keys in a matrix and a rule."""
_RULE = ("tag", "reason")
FORMS = {".toml": "toml", ".yaml": "yaml", ".yml": "yaml", ".json": "json"}
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")


def load_experiment(path: Path) -> Experiment:
    """Read an experiment file; TOML, YAML or JSON by its ending."""
    where, form = str(path), FORMS.get(path.suffix.lower())
    if form is None:
        raise UsageError(f"the format of {where!r} is unknown", do="name a file that ends in .toml, .yaml, .yml or .json")
    text = read_text(path)
    if not text.strip():
        raise UsageError("the file is empty", do="see docs/reference/experiment-file.md for its keys", where=where)
    data = parse(text, where, form)
    if not isinstance(data, dict):
        raise UsageError(f"expected a table of keys, not {shown(data)}", do=f"keys: {', '.join(_TOP)}", where=where)
    return parse_experiment(data, where, text)


def parse_experiment(data: Mapping[str, Any], where: str, text: str | None = None) -> Experiment:
    """Check a whole file and build the Experiment, or raise one error that names every mistake in it."""
    page = CheckedFile(where, text or "")
    page.known(data, "", _TOP)
    folder = Path(where).absolute().parent
    experiment = Experiment(
        name=page.read(data, "", "name", text_value, Path(where).stem or "experiment"),
        description=page.read(data, "", "description", text_value, ""),
        files=page.read(data, "", "files", lambda value: tuple(_file(folder, item) for item in _listed(value)), ()),
        recorded=page.read(data, "", "recorded", quantity(parse_seconds, "a time such as 10ms", lambda number: number > 0), None),
        settings=_settings(page, page.table(data.get("settings", {}), "settings")),
        matrix=tuple(matrix for path, table in page.tables(data, "matrix") for matrix in _matrix(page, table, path).apart()),
        include=tuple(_include(page, data.get("include", []))),
        pairs=tuple(_pairs(page, data.get("pairs", []))),
        exclude=tuple(read_rule(page, table, path, _RULE) for path, table in page.tables(data, "exclude")),
        deny=tuple(_denial(page, table, path) for path, table in page.tables(data, "deny")),
    )
    if not data.get("matrix") and not data.get("include"):
        page.wrong("matrix", "missing: nothing to run without a [[matrix]] or an include list")
    page.finish()
    return experiment


def _settings(page: CheckedFile, table: Mapping[str, Any]) -> Settings:
    page.known(table, "settings", _SETTINGS)
    known = {key: page.read(table, "settings", key, _SETTINGS[key], None) for key in table if key in _SETTINGS}
    return Settings(**{key: value for key, value in known.items() if value is not None})


def _matrix(page: CheckedFile, table: Mapping[str, Any], path: str) -> Matrix:
    page.known(table, path, (*CASE_KEYS, "weight"))
    if "workload" not in table:
        page.wrong(path, "workload is missing: name one or more, or a pattern such as op/*")
    return Matrix(
        workload=page.read(table, path, "workload", _many(text_value), ()),
        axes=_axes(page, table.get("axes", {}), f"{path}.axes"),
        backend=page.read(table, path, "backend", _many(text_value), ()),
        variant=page.read(table, path, "variant", _many(_variant), Matrix.variant),
        mode=page.read(table, path, "mode", _many(choice(MODES)), Matrix.mode),
        device=page.read(table, path, "device", _many(_device), Matrix.device),
        threads=page.read(table, path, "threads", _many(_whole(1)), Matrix.threads),
        ranks=page.read(table, path, "ranks", _many(_whole(1)), Matrix.ranks),
        flags=_flags(page, table, path),
        env=page.read(table, path, "env", _many(text_value), Matrix.env),
        origin=f"{page.where}  {path}",
        weight=page.read(table, path, "weight", _amount, 0.0),
    )


def _amount(value: Any) -> float:
    expect(is_number(value) and is_amount(value), "a number of at least 0", value)
    return float(value)


def _names(page: CheckedFile, table: Any, path: str, *, linked: bool = False) -> dict[str, Any]:
    """A table whose keys are the user's own names, which must be valid in a case id; `linked` keys are names joined by commas."""
    found = {}
    for key, value in page.table(table, path).items():
        names = [name.strip() for name in key.split(",")] if linked and isinstance(key, str) else [key]
        if all(isinstance(name, str) and _KEY.fullmatch(name) for name in names):
            found[",".join(names)] = value
        else:
            page.wrong(f"{path}.{key}", "not a name: letters, digits, '_', '.' and '-', beginning with a letter")
    return found


def _axes(page: CheckedFile, table: Any, path: str) -> dict[str, tuple[Any, ...]]:
    """Values by axis; a key such as `m,n,k` gives each of its values to all these axes at once."""
    found, seen = _names(page, table, path, linked=True), set[str]()
    for key in found:
        for name in key.split(","):
            if name in seen:
                page.wrong(f"{path}.{key}", f"{name} is given twice")
            seen.add(name)
    return {key: _axis(page, value, path, key) for key, value in found.items()}


def _axis(page: CheckedFile, value: Any, path: str, key: str) -> tuple[Any, ...]:
    """The values of an axis: one value, a list, or a range; in a list a table is a value like any other."""
    if value == []:
        page.wrong(f"{path}.{key}", "an empty list leaves no cases: give at least one value")
    if ranges.is_table(value):
        return page.read({key: value}, path, key, ranges.from_table, ())
    reader = _dtype if "dtype" in key.split(",") else _value
    return tuple(page.read({key: item}, path, key, reader, None) for item in _listed(value))


def _flags(page: CheckedFile, table: Mapping[str, Any], path: str) -> tuple[dict[str, str], ...]:
    if "flags" not in table:
        return ({},)
    if table["flags"] == []:
        page.wrong(f"{path}.flags", "an empty list leaves no cases: give at least one table")
    return tuple(_flag_set(page, flags, f"{path}.flags") for flags in _listed(table["flags"]))


def _flag_set(page: CheckedFile, table: Any, path: str) -> dict[str, str]:
    return {key: page.read({key: value}, path, key, _flag, "") for key, value in _names(page, table, path).items()}


def _include(page: CheckedFile, value: Any) -> Iterable[str]:
    if not isinstance(value, list):
        page.wrong("include", f"expected a list of case ids, not {shown(value)}")
        return
    for index, item in enumerate(value):
        try:
            yield Case.parse(text_value(item)).id
        except (UsageError, ValueError) as error:
            what = error.what if isinstance(error, UsageError) else str(error)
            mark = error.do.find("^") if isinstance(error, UsageError) else -1
            place = f" at {shown(item[mark:] or 'the end')} in {item}" if isinstance(item, str) and mark >= 0 else f": {shown(item)}"
            page.wrong(f"include[{index}]", what + place, near=item if isinstance(item, str) else None)


def _pairs(page: CheckedFile, value: Any) -> Iterable[tuple[str, str]]:
    """Yield heads and bases: each a case id or a variant, with or without its backend; a head may apply to only one workload."""
    if not isinstance(value, list):
        page.wrong("pairs", f"expected a list of [head, base], not {shown(value)}")
        return
    for index, item in enumerate(value):
        if not isinstance(item, list) or len(item) != 2:
            page.wrong(f"pairs[{index}]", f"expected [head, base], not {shown(item)}")
            continue
        words = [page.read({name: word}, f"pairs[{index}]", name, _arm, "") for name, word in zip(("head", "base"), item, strict=True)]
        if all(words):
            yield words[0], words[1]


def _arm(value: Any) -> str:
    word = text_value(value)
    if ":" in word:
        return Case.parse(word).id
    workload, sign, word = word.rpartition("@")
    if sign:
        return f"{workload}@{_arm(word)}"
    backend, variant = parse_base(word)
    return f"{backend}/{_variant(variant)}" if backend else _variant(variant)


def read_rule(page: CheckedFile, table: Mapping[str, Any], path: str, more: Iterable[str]) -> Rule:
    """The rule in a table, with its reason; `more` are the keys that it may have beside those of a case."""
    page.known(table, path, (*CASE_KEYS, *more))
    readers: dict[str, Callable[[Any], Any]] = {
        "workload": text_value, "backend": text_value, "variant": _variant, "mode": choice(MODES), "device": text_value,
        "threads": _whole(1), "ranks": _whole(1), "env": text_value, "tag": text_value,
    }  # fmt: skip
    match: dict[str, Any] = {key: page.read(table, path, key, reader, None) for key, reader in readers.items() if key in table}
    for key, value in _names(page, table.get("axes", {}), f"{path}.axes").items():
        match[f"axes.{key}"] = page.read({key: value}, f"{path}.axes", key, _dtype if key == "dtype" else _value, None)
    match |= {f"flags.{key}": value for key, value in _flag_set(page, table.get("flags", {}), f"{path}.flags").items()}
    if not match:
        page.wrong(path, "has no key of a case, so it would match every case: name a workload, backend, axes, …")
    return Rule(match, page.read(table, path, "reason", text_value, ""))


def _denial(page: CheckedFile, table: Mapping[str, Any], path: str) -> Rule:
    """The rule of a denial; it needs a reason for the records of the cases that it skips."""
    if "reason" not in table:
        page.wrong(path, "reason is missing: it is recorded with every case that the rule skips")
    return read_rule(page, table, path, _RULE)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _many(reader: Callable[[Any], T]) -> Callable[[Any], tuple[T, ...]]:
    def read(value: Any) -> tuple[T, ...]:
        expect(value != [], "at least one value", value)
        return tuple(reader(item) for item in _listed(value))

    return read


def _variant(value: Any) -> str:
    return "+".join(map(str, parse_variants(text_value(value)))) or "eager"


def _device(value: Any) -> str:
    return device_kind(text_value(value))


def _whole(least: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        expect(isinstance(value, int) and is_number(value) and least <= value <= MOST_COUNT, f"a whole number of at least {least}", value)
        return int(value)

    return read


def _times(value: Any) -> float:
    expect(is_number(value) and 0 <= value <= MOST_SETTLING, f"a number of budgets from 0 to {MOST_SETTLING:g}", value)
    return float(value)


def _tolerance(value: Any) -> float:
    number = value
    if isinstance(value, str) and re.fullmatch(r"[0-9.]+[eE][+-]?[0-9]+", value):
        number = float(value)
    expect(is_number(number) and is_amount(number), "a finite number of at least 0", value)
    return float(number)


def _budget(value: Any) -> float:
    if isinstance(value, str) and value in BUDGETS:
        return BUDGETS[value]
    if isinstance(value, str) and not re.match(r"\s*[0-9.]", value):
        choice((*BUDGETS, "a time such as 30s"))(value)
    return quantity(parse_seconds, f"{', '.join(BUDGETS)}, or a time such as 30s", lambda number: number > 0)(value)


def _yes_or_no(value: Any) -> bool:
    expect(isinstance(value, bool), "true or false", value)
    return bool(value)


def _flag(value: Any) -> str:
    expect(isinstance(value, (str, bool)) or is_number(value), "text, a number, true or false", value)
    expect("\0" not in str(value), "text without zero bytes", value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _value(value: Any) -> Any:
    if isinstance(value, list):
        return [_value(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _value(item) for key, item in value.items()}
    plain = value is None or isinstance(value, (str, bool, float)) or (isinstance(value, int) and is_number(value))
    expect(plain, "text, a number, true, false, null, a list or a table", value)
    return value


def _dtype(value: Any) -> Any:
    return canonical(value) if isinstance(value, str) else _value(value)


def _file(folder: Path, value: Any) -> str:
    path = folder / text_value(value)
    try:
        fits = path.suffix == ".py" and path.is_file()
    except OSError as error:
        raise UsageError(f"no file can have this name: {shown(value)}", do=error.strerror or str(error)) from None
    if not fits:
        what = "no such file" if path.suffix == ".py" else "not a .py file"
        raise UsageError(f"{what}: {shown(value)}", do=f"name a file relative to {folder.name or folder}/")
    return str(real(path))


_seconds = quantity(parse_seconds, "a time such as 200ms", lambda number: number >= 0)
_FIXED: Mapping[str, Callable[[Any], Any]] = {
    "warmup": _whole(0), "repeats": _whole(1), "clock": choice(get_args(Clock)), "backward": _yes_or_no, "rehearse": _whole(0),
    "flush": _yes_or_no, "calls": _whole(1), "inputs": choice(get_args(Inputs)), "cold": _yes_or_no,
    "counters": choice(get_args(Counters)), "warmup_time": _seconds, "repeat_time": _seconds,
}  # fmt: skip


def _fixed(value: Any) -> Fixed:
    """A fixed protocol from text such as `5+20:events`, or from a table."""
    if isinstance(value, str):
        return parse_fixed(value)
    if not isinstance(value, dict):
        raise UsageError(f"expected text such as 5+20, or a table, not {shown(value)}")
    if wrong := [str(key) for key in value if key not in _FIXED]:
        raise UsageError(f"unknown key {wrong[0]} (allowed: {', '.join(_FIXED)})")
    return Fixed(**{key: _FIXED[key](item) for key, item in value.items()})


_SETTINGS: Mapping[str, Callable[[Any], Any]] = {
    "budget": _budget,
    "precision": quantity(parse_share, "a share such as 1% or 0.01", lambda share: 0 < share < 1),
    "margin": quantity(parse_share, "a share such as 2% or 0.02", lambda share: 0 < share < 1),
    "settle": _times,
    "sampling": choice(get_args(Sampling)),
    "warmup": _seconds,
    "warmup_runs": _whole(0),
    "rtol": _tolerance,
    "atol": _tolerance,
    "verify": lambda value: value if value == "full" else _yes_or_no(value),
    "reference": choice(get_args(Reference)),
    "seed": _whole(0),
    "timeout": quantity(parse_seconds, "a time such as 60s", lambda number: number > 0),
    "memory": lambda value: int(quantity(parse_bytes, "a size such as 8GiB", lambda number: number >= 1)(value)),
    "isolate": choice(get_args(Isolation)),
    "vs": text_value,
    "runs": _whole(1),
    "telemetry": _yes_or_no,
    "peak_memory": _yes_or_no,
    "memory_snapshot": _yes_or_no,
    "profile": lambda value: value if value == "stacks" else _yes_or_no(value),
    "ncu": _yes_or_no,
    "nsys": _yes_or_no,
    "compile_time": _whole(1),
    "dump_ir": choice(get_args(GraphForm)),
    "runtime_profile": _yes_or_no,
    "save_output": choice(get_args(Saved)),
    "fixed": _fixed,
    "rule": text_value,
}
