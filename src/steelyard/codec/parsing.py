"""Text to plain data: whatever a parser raises, the user gets an error that names the file and the place.

Parsers raise any exception for a value they cannot make (KeyError for `!!bool x`), need quadratic memory for a key of many dots, and
make numbers that nothing else can print. Every file that people write is read with `parse`.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from steelyard.errors import UsageError, told
from steelyard.files import read_text
from steelyard.model.values import deeper_than

DEEPEST = 20
LONGEST_NUMBER = 300
"""In digits; a longer number does not fit a float, and numbers are compared as floats."""
LONGEST_KEY = 60
MOST_ALIASED = 100_000
_TOML_TOKEN = re.compile(
    r'"""(?:\\.|[^\\])*?"""|\'\'\'.*?\'\'\'|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'|#[^\n]*|[A-Za-z0-9_+-]+|\.|[ \t]+|.', re.DOTALL
)


def load(path: Path, form: str) -> tuple[Any, str]:
    """The data of a file that a user named, and its text, to find the lines of mistakes."""
    text = read_text(path)
    return parse(text, str(path), form), text


def parse(text: str, where: str, form: str, *, aliases: bool = False) -> Any:
    """Plain data from text in a form (toml, yaml, json), not too deep and without numbers too long to print; `aliases`: allow YAML's."""
    try:
        data = parse_yaml(text, where, aliases) if form == "yaml" else PARSERS[form](text, where)
    except UsageError:
        raise
    except RecursionError:
        raise _too_deep(where) from None
    except Exception as error:  # parsers of three libraries; what they raise is not documented
        raise UsageError(f"cannot be read as {form.upper()}", why=told(error, 200), where=where) from None
    if deeper_than(data, DEEPEST):
        raise _too_deep(where)
    for place in _long_numbers(data):
        raise UsageError(f"{place}: a number of more than {LONGEST_NUMBER} digits", where=where)
    return data


def _too_deep(where: str) -> UsageError:
    return UsageError(f"nested more than {DEEPEST} deep", do="use fewer levels", where=where)


def _long_numbers(data: Any, place: str = "") -> Iterator[str]:
    if isinstance(data, int) and data.bit_length() > 3.3 * LONGEST_NUMBER:
        yield place or "the file"
    inside: Any = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in inside:
        if isinstance(key, int) and key.bit_length() > 3.3 * LONGEST_NUMBER:
            yield f"a key of {place or 'the file'}"
        elif isinstance(value, (int, dict, list)):
            step = f"[{key}]" if isinstance(data, list) else str(key)[:LONGEST_KEY]
            yield from _long_numbers(value, f"{place}{step}" if step.startswith("[") else f"{place}.{step}".lstrip("."))


def parse_toml(text: str, where: str) -> Any:
    """TOML as plain data; an error names the line of the mistake."""
    import tomllib

    _check_keys(text, where)
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        what, _, place = str(error).partition(" (at ")
        line = re.match(r"line (\d+)", place)
        at = f":{line[1]}" if line else f":{len(text.splitlines())}"
        raise UsageError(f"not valid TOML: {what}", where=where + at) from None


def _check_keys(text: str, where: str) -> None:
    """Refuse keys of very many parts, for which the parser's memory grows with the square of their length."""
    if all(line.count(".") < DEEPEST for line in text.split("\n")):
        return
    parts = line = 1
    dotted = False
    for match in _TOML_TOKEN.finditer(text):
        token = match.group()
        if token.isspace() and token != "\n":
            continue
        parts = parts + 1 if token == "." and not dotted else parts if dotted else 1
        dotted = token == "."
        if parts > DEEPEST:
            raise UsageError(f"a key of more than {DEEPEST} parts", do="use fewer: no file here needs more", where=f"{where}:{line}")
        line += token.count("\n")


def parse_json(text: str, where: str) -> Any:
    """JSON as plain data; a key given twice is an error."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
            raise UsageError(f"{twice[:LONGEST_KEY]}: given twice", where=where)
        return found

    try:
        return json.loads(text, object_pairs_hook=once)
    except json.JSONDecodeError as error:
        raise UsageError(f"not valid JSON: {error.msg}", where=f"{where}:{error.lineno}") from None


def parse_yaml(text: str, where: str, aliases: bool = False) -> Any:
    """YAML as plain data; an error names the line of the mistake."""
    import yaml

    def at(node: Any) -> str:
        return f"{where}:{node.start_mark.line + 1}"

    class Loader(yaml.SafeLoader):
        """Refuses a key given twice, where plain YAML would drop the first, and aliases that make a small file endless."""

        depth = whole = 0

        def __init__(self, stream: str) -> None:
            super().__init__(stream)
            self.sizes: dict[Any, int] = {}

        def compose_node(self, parent: Any, index: Any) -> Any:
            alias: Any = self.peek_event() if self.check_event(yaml.AliasEvent) else None  # type: ignore[no-untyped-call]
            if alias and not aliases:
                raise UsageError("aliases are not supported", do="write the value out", where=at(alias))
            if self.depth > DEEPEST:
                raise _too_deep(where)
            before, self.whole, self.depth = self.whole, self.whole + 1, self.depth + 1
            node = super().compose_node(parent, index)
            self.depth -= 1
            if not alias:
                self.sizes[node] = self.whole - before
                return node
            self.whole += self.sizes.get(node, MOST_ALIASED)
            if self.whole > MOST_ALIASED:
                raise UsageError("aliases of aliases make this file endless", do="write the values out", where=at(alias))
            return node

        def compose_mapping_node(self, anchor: Any) -> Any:
            node = super().compose_mapping_node(anchor)
            seen: set[str] = set()
            for key, _ in node.value:
                if isinstance(key, yaml.ScalarNode):
                    if key.value in seen:
                        raise UsageError(f"{key.value[:LONGEST_KEY]}: given twice", where=at(key))
                    seen.add(key.value)
            return node

        def construct_object(self, node: Any, deep: bool = False) -> Any:
            kind = str(node.tag).rpartition(":")[2]
            if kind in ("int", "float") and isinstance(node.value, str) and len(node.value) > LONGEST_NUMBER:
                raise UsageError(f"a number of more than {LONGEST_NUMBER} digits", where=at(node))
            try:
                return super().construct_object(node, deep)
            except (UsageError, yaml.YAMLError, RecursionError):
                raise
            except Exception as error:  # its constructors check little, and raise what Python raises
                what = f"not valid YAML: no {kind} can be made of {str(node.value)[:LONGEST_KEY]!r}"
                raise UsageError(what, why=told(error, 200), where=at(node)) from None

    try:
        return yaml.load(text, Loader)  # a SafeLoader: plain data only
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise UsageError(f"not valid YAML: {error.problem}", where=f"{where}:{mark.line + 1}" if mark else where) from None
    except yaml.YAMLError as error:
        raise UsageError("not valid YAML", why=told(error, 200), where=where) from None


PARSERS: Mapping[str, Callable[[str, str], Any]] = {"toml": parse_toml, "json": parse_json}
