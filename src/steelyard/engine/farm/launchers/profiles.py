"""Profiles of a team's machines, from a small TOML file that is checked completely before anything is started."""

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
    """Return the files in which profiles are looked up by name, in order: the project's, then the user's."""
    home = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    found = [Path.cwd() / FILE, root_of(Path.cwd()) / FILE, home / "steelyard" / FILE]
    return list(dict.fromkeys(found))


def find(kind: str, words: str, keys: Collection[str], *, required: bool = False) -> tuple[Mapping[str, Any], CheckedFile] | None:
    """Return a profile by its name or file; None if there is none and the words may mean something else."""
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
    """Read a number of stations."""
    expect(isinstance(value, int) and not isinstance(value, bool) and 0 < value <= MOST, f"a number from 1 to {MOST}", value)
    return int(value)


def texts(value: Any) -> tuple[str, ...]:
    """Read a list of texts."""
    expect(isinstance(value, list) and bool(value), "a list of texts", value)
    return tuple(text_value(item) for item in value)


def variables(value: Any) -> Mapping[str, str]:
    """Read the stations' environment variables: valid names with text."""
    expect(isinstance(value, dict), "a table of variables", value)
    for name in value:
        expect(bool(_VARIABLE.fullmatch(name)), "the name of a variable", name)
    return {name: text_value(str(item) if isinstance(item, int) else item) for name, item in value.items()}


def names(value: Any) -> tuple[str, ...]:
    """Read names of environments or modules; options and shell syntax are refused."""
    found = texts(value)
    for item in found:
        expect(bool(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_./+-]*", item)), "a name", item)
    return found


def interpreter(value: Any) -> str:
    """Read a Python interpreter, by path or name."""
    text = text_value(value)
    expect(not text.startswith("-"), "a Python, such as /shared/venv/bin/python", value)
    return text


def address(value: Any) -> str:
    """Read this machine's IP address as other hosts reach it; a host name could resolve differently there, and 0.0.0.0 reaches nothing."""
    text = text_value(value)
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        found = None
    expect(found is not None and not found.is_unspecified, "an address of this machine, such as 10.0.0.5", value)
    return text


seconds = quantity(parse_seconds, "a duration such as 60s", lambda value: 0 < value <= 7 * 86400)
