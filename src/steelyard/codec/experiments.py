"""Experiment files: every mistake is found in one pass and named by line and key path."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args

from steelyard.errors import UsageError, did_you_mean
from steelyard.model.case import MODES, Case, parse_variants
from steelyard.model.dtypes import canonical
from steelyard.model.experiment import BUDGETS, Experiment, Isolation, Matrix, Rule, Sampling, Settings
from steelyard.model.units import parse_bytes, parse_seconds, parse_share

T = TypeVar("T")

_TOP = ("name", "description", "files", "settings", "matrix", "include", "exclude")
_MATRIX = ("workload", "axes", "backend", "variant", "mode", "device", "threads", "ranks", "flags")
_EXCLUDE = (*_MATRIX, "reason")
DEEPEST = 20
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")


def load_experiment(path: Path) -> Experiment:
    """Read an experiment file; TOML, YAML or JSON by its ending."""
    where = str(path)
    readers = {".toml": _toml, ".yaml": _yaml, ".yml": _yaml, ".json": _json}
    read = readers.get(path.suffix.lower())
    if read is None:
        raise UsageError(f"cannot tell the format of {where!r}", do="experiment files end in .toml, .yaml, .yml or .json")
    text = _text_of(path)
    if not text.strip():
        raise UsageError("the file is empty", do="see docs/reference/experiment-file.md for what goes in it", where=where)
    try:
        data = read(text, where)
        deep = _nested(data)
    except RecursionError:
        deep = True
    except (ValueError, OverflowError) as error:
        raise UsageError(f"cannot be read as {path.suffix[1:].upper()}", why=str(error), where=where) from None
    if deep:
        raise UsageError(f"nested more than {DEEPEST} deep", do="no value of an experiment needs that", where=where)
    if not isinstance(data, dict):
        raise UsageError(f"expected a table of keys, not {_shown(data)}", do=f"keys: {', '.join(_TOP)}", where=where)
    return parse_experiment(data, where, text)


def _nested(data: Any) -> bool:
    level = [data]
    for _ in range(DEEPEST):
        level = [item for part in level if isinstance(part, (dict, list)) for item in (part.values() if isinstance(part, dict) else part)]
    return bool(level)


def _text_of(path: Path) -> str:
    if path.exists() and not path.is_file():
        raise UsageError(f"cannot read {str(path)!r}", why="it is a folder, a pipe or a device", do="name a file")
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        folder = path.parent
        names = [item.name for item in folder.iterdir()] if folder.is_dir() else []
        raise UsageError(f"no such file: {str(path)!r}", do=did_you_mean(path.name, names)) from None
    except OSError as error:
        raise UsageError(f"cannot read {str(path)!r}", why=error.strerror or str(error)) from None
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise UsageError("not a text file", why="it is not UTF-8, or holds zero bytes", where=str(path))
    return text


def _toml(text: str, where: str) -> Any:
    import tomllib

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        what, _, place = str(error).partition(" (at ")
        line = re.match(r"line (\d+)", place)
        at = f":{line[1]}" if line else f":{len(text.splitlines())}"
        raise UsageError(f"not valid TOML: {what}", where=where + at) from None


def _json(text: str, where: str) -> Any:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        for index, (key, _) in enumerate(pairs):
            if key in (other for other, _ in pairs[:index]):
                raise UsageError(f"{key}: given twice", where=where)
        return dict(pairs)

    try:
        return json.loads(text, object_pairs_hook=once)
    except json.JSONDecodeError as error:
        raise UsageError(f"not valid JSON: {error.msg}", where=f"{where}:{error.lineno}") from None


def _yaml(text: str, where: str) -> Any:
    import yaml

    class Loader(yaml.SafeLoader):
        """Refuses a key given twice, where plain YAML would drop the first, and aliases, which can make a small file endless."""

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                event: Any = self.get_event()  # type: ignore[no-untyped-call]
                raise UsageError("aliases are not read", do="write the value out", where=f"{where}:{event.start_mark.line + 1}")
            return super().compose_node(parent, index)

        def compose_mapping_node(self, anchor: Any) -> Any:
            node = super().compose_mapping_node(anchor)
            names = [(key.value, key.start_mark.line + 1) for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
            for index, (name, line) in enumerate(names):
                if name in (other for other, _ in names[:index]):
                    raise UsageError(f"{name}: given twice", where=f"{where}:{line}")
            return node

    try:
        return yaml.load(text, Loader)  # a SafeLoader: plain data only
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise UsageError(f"not valid YAML: {error.problem}", where=f"{where}:{mark.line + 1}" if mark else where) from None
    except yaml.YAMLError as error:
        raise UsageError("not valid YAML", why=str(error), where=where) from None


def parse_experiment(data: Mapping[str, Any], where: str, text: str | None = None) -> Experiment:
    """Check a whole file and build the Experiment, or raise one error that names every mistake in it."""
    page = _Page(where, text or "")
    page.known(data, "", _TOP)
    folder = Path(where).absolute().parent
    experiment = Experiment(
        name=page.read(data, "", "name", _text, Path(where).stem or "experiment"),
        description=page.read(data, "", "description", _text, ""),
        files=page.read(data, "", "files", lambda value: tuple(_file(folder, item) for item in _listed(value)), ()),
        settings=_settings(page, data.get("settings", {})),
        matrix=tuple(_matrix(page, table, path) for path, table in page.tables(data, "matrix")),
        include=tuple(_include(page, data.get("include", []))),
        exclude=tuple(_rule(page, table, path) for path, table in page.tables(data, "exclude")),
    )
    if not data.get("matrix") and not data.get("include"):
        page.wrong("matrix", "missing: nothing to run without a [[matrix]] or an include list")
    page.finish()
    return experiment


def line_of(text: str, key: str) -> int | None:
    """The line on which a key is set; None when no line or more than one could be meant."""
    pattern = re.compile(rf"""(?<![\w-])["']?{re.escape(key)}["']?\s*(?:[=:]|\]|\.[\w."'-]+\s*[=:\]])""")
    found = [number for number, line in enumerate(text.splitlines(), 1) if pattern.search(line) and line.lstrip()[0] != "#"]
    return found[0] if len(found) == 1 else None


class _Page:
    """One file being read, and the mistakes found in it so far."""

    def __init__(self, where: str, text: str) -> None:
        self.where, self.text = where, text
        self.mistakes: list[tuple[str, str, str]] = []

    def wrong(self, path: str, what: str, do: str = "", near: str | None = None) -> None:
        key = re.sub(r"\[\d+\]$", "", path.rpartition(".")[2] or path)
        line = line_of(self.text, key)
        if near is not None:
            hits = [number for number, row in enumerate(self.text.splitlines(), 1) if near in row]
            line = hits[0] if len(hits) == 1 else line
        self.mistakes.append((f"{self.where}:{line}" if line else self.where, f"{path}: {what}", do))

    def known(self, table: Mapping[Any, Any], path: str, allowed: Iterable[str]) -> None:
        names = sorted(allowed)
        for key in table:
            if key not in names:
                whole = f"{path}.{key}" if path else str(key)
                self.wrong(whole, f"unknown key (allowed: {', '.join(names)})", did_you_mean(str(key), names))

    def read(self, table: Mapping[str, Any], path: str, key: str, reader: Callable[[Any], T], default: T) -> T:
        if key not in table:
            return default
        try:
            return reader(table[key])
        except UsageError as error:
            self.wrong(f"{path}.{key}" if path else key, error.what, error.do)
        return default

    def tables(self, data: Mapping[str, Any], key: str) -> list[tuple[str, Mapping[str, Any]]]:
        """The tables of an array, each with its key path; a single table is an array of one."""
        value = data.get(key, [])
        whole = [(f"{key}[{index}]", table) for index, table in enumerate(value)] if isinstance(value, list) else [(key, value)]
        for path, table in whole:
            if not isinstance(table, dict):
                self.wrong(path, f"expected a table, not {_shown(table)}")
        return [(path, table) for path, table in whole if isinstance(table, dict)]

    def finish(self) -> None:
        if len(self.mistakes) == 1:
            where, what, do = self.mistakes[0]
            raise UsageError(what, do=do, where=where)
        if self.mistakes:
            lines = [f"{where}  {what}{f'; {do}' if do else ''}" for where, what, do in self.mistakes]
            raise UsageError(f"{len(lines)} mistakes", why="\n  ".join(lines), where=self.where)


def _settings(page: _Page, table: Any) -> Settings:
    if not isinstance(table, dict):
        page.wrong("settings", f"expected a table, not {_shown(table)}")
        return Settings()
    page.known(table, "settings", _SETTINGS)
    known = {key: page.read(table, "settings", key, _SETTINGS[key], None) for key in table if key in _SETTINGS}
    return Settings(**{key: value for key, value in known.items() if value is not None})


def _matrix(page: _Page, table: Mapping[str, Any], path: str) -> Matrix:
    page.known(table, path, _MATRIX)
    if "workload" not in table:
        page.wrong(path, "workload is missing: name one or more, or a pattern such as op/*")
    return Matrix(
        workload=page.read(table, path, "workload", _many(_text), ()),
        axes={key: _axis(page, value, path, key) for key, value in _names(page, table.get("axes", {}), f"{path}.axes").items()},
        backend=page.read(table, path, "backend", _many(_text), ()),
        variant=page.read(table, path, "variant", _many(_variant), Matrix.variant),
        mode=page.read(table, path, "mode", _many(_choice(MODES)), Matrix.mode),
        device=page.read(table, path, "device", _many(_text), Matrix.device),
        threads=page.read(table, path, "threads", _many(_whole(1)), Matrix.threads),
        ranks=page.read(table, path, "ranks", _many(_whole(1)), Matrix.ranks),
        flags=_flags(page, table, path),
        origin=f"{page.where}  {path}",
    )


def _names(page: _Page, table: Any, path: str) -> dict[str, Any]:
    """A table whose keys are the user's own names, which must be able to stand in a case id."""
    if not isinstance(table, dict):
        page.wrong(path, f"expected a table, not {_shown(table)}")
        return {}
    for key in table:
        if not isinstance(key, str) or not _KEY.fullmatch(key):
            page.wrong(f"{path}.{key}", "not a name: letters, digits, '_', '.' and '-', beginning with a letter")
    return {key: value for key, value in table.items() if isinstance(key, str) and _KEY.fullmatch(key)}


def _axis(page: _Page, value: Any, path: str, key: str) -> tuple[Any, ...]:
    if value == []:
        page.wrong(f"{path}.axes.{key}", "an empty list leaves no cases: give at least one value")
    reader = _dtype if key == "dtype" else _value
    return tuple(page.read({key: item}, f"{path}.axes", key, reader, None) for item in _listed(value))


def _flags(page: _Page, table: Mapping[str, Any], path: str) -> tuple[dict[str, str], ...]:
    if "flags" not in table:
        return ({},)
    if table["flags"] == []:
        page.wrong(f"{path}.flags", "an empty list leaves no cases: give at least one table")
    return tuple(_flag_set(page, flags, f"{path}.flags") for flags in _listed(table["flags"]))


def _flag_set(page: _Page, table: Any, path: str) -> dict[str, str]:
    return {key: page.read({key: value}, path, key, _flag, "") for key, value in _names(page, table, path).items()}


def _include(page: _Page, value: Any) -> Iterable[str]:
    if not isinstance(value, list):
        page.wrong("include", f"expected a list of case ids, not {_shown(value)}")
        return
    for index, item in enumerate(value):
        try:
            yield Case.parse(_text(item)).id
        except (UsageError, ValueError) as error:
            what = error.what if isinstance(error, UsageError) else str(error)
            mark = error.do.find("^") if isinstance(error, UsageError) else -1
            place = f" at {_shown(item[mark:] or 'the end')} in {item}" if isinstance(item, str) and mark >= 0 else f": {_shown(item)}"
            page.wrong(f"include[{index}]", what + place, near=item if isinstance(item, str) else None)


def _rule(page: _Page, table: Mapping[str, Any], path: str) -> Rule:
    page.known(table, path, _EXCLUDE)
    readers: dict[str, Callable[[Any], Any]] = {
        "workload": _text, "backend": _text, "variant": _variant, "mode": _choice(MODES), "device": _text,
        "threads": _whole(1), "ranks": _whole(1),
    }  # fmt: skip
    match: dict[str, Any] = {key: page.read(table, path, key, reader, None) for key, reader in readers.items() if key in table}
    for key, value in _names(page, table.get("axes", {}), f"{path}.axes").items():
        match[f"axes.{key}"] = page.read({key: value}, f"{path}.axes", key, _dtype if key == "dtype" else _value, None)
    match |= {f"flags.{key}": value for key, value in _flag_set(page, table.get("flags", {}), f"{path}.flags").items()}
    if not match:
        page.wrong(path, "matches nothing in particular, so it would drop every case: name a workload, backend, axes, …")
    return Rule(match, page.read(table, path, "reason", _text, ""))


def _expect(good: bool, expected: str, value: Any) -> None:
    if not good:
        raise UsageError(f"expected {expected}, not {_shown(value)}")


def _shown(value: Any) -> str:
    text = json.dumps(value, default=str, ensure_ascii=False, skipkeys=True)
    return text if len(text) <= 60 else f"{text[:57]}…"


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _many(reader: Callable[[Any], T]) -> Callable[[Any], tuple[T, ...]]:
    def read(value: Any) -> tuple[T, ...]:
        _expect(value != [], "at least one value", value)
        return tuple(reader(item) for item in _listed(value))

    return read


def _text(value: Any) -> str:
    _expect(isinstance(value, str) and bool(value.strip()), "text", value)
    _expect(not _CONTROL.search(value), "text without control characters", value)
    return str(value)


def _variant(value: Any) -> str:
    return "+".join(map(str, parse_variants(_text(value)))) or "eager"


def _choice(names: Iterable[str]) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if value not in tuple(names):
            raise UsageError(f"expected one of {', '.join(names)}, not {_shown(value)}", do=did_you_mean(str(value), names))
        return str(value)

    return read


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e300


def _whole(least: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        _expect(isinstance(value, int) and _is_number(value) and value >= least, f"a whole number of at least {least}", value)
        return int(value)

    return read


def _tolerance(value: Any) -> float:
    number = value
    if isinstance(value, str) and re.fullmatch(r"[0-9.]+[eE][+-]?[0-9]+", value):
        number = float(value)
    _expect(_is_number(number) and number >= 0, "a number of at least 0", value)
    return float(number)


def _quantity(read: Callable[[str], float], expected: str, fits: Callable[[float], bool]) -> Callable[[Any], float]:
    def reader(value: Any) -> float:
        number = value
        if isinstance(value, str):
            try:
                number = read(value)
            except OverflowError:
                number = math.inf
        _expect(_is_number(number) and fits(number), expected, value)
        return float(number)

    return reader


def _budget(value: Any) -> float:
    if isinstance(value, str) and value in BUDGETS:
        return BUDGETS[value]
    if isinstance(value, str) and not re.match(r"\s*[0-9.]", value):
        _choice((*BUDGETS, "a time such as 30s"))(value)
    return _quantity(parse_seconds, f"{', '.join(BUDGETS)}, or a time such as 30s", lambda number: number > 0)(value)


def _yes_or_no(value: Any) -> bool:
    _expect(isinstance(value, bool), "true or false", value)
    return bool(value)


def _flag(value: Any) -> str:
    _expect(isinstance(value, (str, bool)) or _is_number(value), "text, a number, true or false", value)
    _expect("\0" not in str(value), "text without zero bytes", value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _value(value: Any) -> Any:
    if isinstance(value, list):
        return [_value(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _value(item) for key, item in value.items()}
    plain = value is None or isinstance(value, (str, bool, float)) or (isinstance(value, int) and _is_number(value))
    _expect(plain, "text, a number, true, false, null, a list or a table", value)
    return value


def _dtype(value: Any) -> Any:
    return canonical(value) if isinstance(value, str) else _value(value)


def _file(folder: Path, value: Any) -> str:
    path = folder / _text(value)
    if path.suffix != ".py" or not path.is_file():
        what = "no such file" if path.suffix == ".py" else "not a .py file"
        raise UsageError(f"{what}: {_shown(value)}", do=f"paths are relative to {folder.name or folder}/")
    return str(path.resolve())


_SETTINGS: Mapping[str, Callable[[Any], Any]] = {
    "budget": _budget,
    "precision": _quantity(parse_share, "a share such as 1% or 0.01", lambda share: 0 < share < 1),
    "sampling": _choice(get_args(Sampling)),
    "warmup": _quantity(parse_seconds, "a time such as 200ms", lambda number: number >= 0),
    "rtol": _tolerance,
    "atol": _tolerance,
    "verify": _yes_or_no,
    "seed": _whole(0),
    "timeout": _quantity(parse_seconds, "a time such as 60s", lambda number: number > 0),
    "memory": lambda value: int(_quantity(parse_bytes, "a size such as 8GiB", lambda number: number >= 1)(value)),
    "isolate": _choice(get_args(Isolation)),
    "vs": _text,
    "runs": _whole(1),
    "telemetry": _yes_or_no,
    "peak_memory": _yes_or_no,
    "memory_snapshot": _yes_or_no,
    "profile": _yes_or_no,
    "ncu": _yes_or_no,
    "compile_time": _whole(1),
}
