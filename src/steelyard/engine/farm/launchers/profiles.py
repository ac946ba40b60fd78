"""How a team's machines are reached, as a small TOML file: read whole, and checked before anything is started."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from steelyard.codec.parsing import load
from steelyard.codec.reading import CheckedFile, expect, quantity, text_value
from steelyard.engine.project import root_of
from steelyard.errors import unknown
from steelyard.model.units import parse_seconds

FILE = "farm.toml"
MOST = 4096
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def places() -> list[Path]:
    """The files in which profiles are looked up by name, in order: the project's, then the user's."""
    home = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    found = [Path.cwd() / FILE, root_of(Path.cwd()) / FILE, home / "steelyard" / FILE]
    return list(dict.fromkeys(found))


def find(kind: str, words: str, keys: Collection[str], *, required: bool = False) -> tuple[Mapping[str, Any], CheckedFile] | None:
    """A profile by its name or its file; None where the words name none and may mean something else."""
    if words.endswith(".toml") or "/" in words:
        data, text = load(Path(words), "toml")
        page = CheckedFile(words, text)
        page.known(data, "", keys)
        return data, page
    known: set[str] = set()
    for file in places():
        if not file.is_file():
            continue
        data, text = load(file, "toml")
        page = CheckedFile(str(file), text)
        table = page.table(data.get(kind, {}), kind)
        page.finish()
        known |= set(table)
        if words in table:
            found = page.table(table[words], f"{kind}.{words}")
            page.known(found, f"{kind}.{words}", keys)
            return found, page
    if required:
        raise unknown(f"{kind} profile", words, known, listing=f"[{kind}.NAME] in {FILE} here or in ~/.config/steelyard")
    return None


def count_value(value: Any) -> int:
    """A number of stations."""
    expect(isinstance(value, int) and not isinstance(value, bool) and 0 < value <= MOST, f"a number from 1 to {MOST}", value)
    return int(value)


def texts(value: Any) -> tuple[str, ...]:
    """A list of texts."""
    expect(isinstance(value, list) and bool(value), "a list of texts", value)
    return tuple(text_value(item) for item in value)


def variables(value: Any) -> Mapping[str, str]:
    """Variables that stations have: names of shells, and text."""
    expect(isinstance(value, dict), "a table of variables", value)
    for name in value:
        expect(bool(_VARIABLE.fullmatch(name)), "the name of a variable", name)
    return {name: text_value(str(item) if isinstance(item, int) else item) for name, item in value.items()}


def names(value: Any) -> tuple[str, ...]:
    """Names of environments or modules: no options, no words of a shell."""
    found = texts(value)
    for item in found:
        expect(bool(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_./+-]*", item)), "a name", item)
    return found


def interpreter(value: Any) -> str:
    """A Python by its path or name."""
    text = text_value(value)
    expect(not text.startswith("-"), "a Python, such as /shared/venv/bin/python", value)
    return text


def address(value: Any) -> str:
    """An address of this machine as others reach it: a name may mean another one here than there, and 0.0.0.0 means none."""
    text = text_value(value)
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        found = None
    expect(found is not None and not found.is_unspecified, "an address of this machine, such as 10.0.0.5", value)
    return text


seconds = quantity(parse_seconds, "a duration such as 60s", lambda value: 0 < value <= 7 * 86400)
