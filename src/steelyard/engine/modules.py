"""Which of the user's own files a worker has loaded, by hash: both parts of a resumed run must use the same code, also outside git.

The worker reports what it imported; the conductor keeps each file once, in the header or with the record that first loaded it.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import json
import os
import site
import sys
import sysconfig
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from steelyard.model.record import FILE, Record

LARGEST = 64 << 20
INSTALLED = ("site-packages", "dist-packages")


def user_modules() -> dict[str, str]:
    """Return the hashes of the user's modules imported so far: files in the working folder or on Python's configured paths,
    without those of Python, of installed packages and of ours."""
    return dict(_imported(os.getcwd(), tuple(sys.path), len(sys.modules)))  # noqa: PTH109 - called for every record, and a Path costs more


@functools.lru_cache(1)
def _imported(here: str, path: tuple[str, ...], count: int) -> Mapping[str, str]:
    """Find the user's modules, again only if something was imported since: there may be many small cases and thousands of modules."""
    ours = _not_the_users()
    roots = {here, *(entry for entry in path if entry and Path(entry).is_absolute())}
    found = {}
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or not Path(file).is_absolute() or any(name in file for name in INSTALLED):
            continue
        if _below(file, roots) and not _below(file, ours):
            found[named(file, Path(here))] = _seen(file)
    return dict(sorted(found.items()))


def imported_since(known: Collection[str], ours: Collection[str]) -> list[str]:
    """Return modules that are not in `known`, without Python's, the frameworks' and ours: these set again what they need."""
    usual = {*ours, *sys.stdlib_module_names, __name__.partition(".")[0]}
    return [name for name in list(sys.modules) if name not in known and name.partition(".")[0] not in usual]


def _below(file: str, roots: Iterable[str]) -> bool:
    return any(file.startswith(f"{root.rstrip(os.sep)}{os.sep}") for root in roots)


@functools.cache
def _not_the_users() -> frozenset[str]:
    paths = sysconfig.get_paths()
    python = [paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib") if name in paths]
    python += [*site.getsitepackages(), site.getusersitepackages()]
    return frozenset({*python, *map(os.path.realpath, python), str(Path(__file__).parents[1])})


@functools.cache
def _seen(file: str) -> str:
    """Return the hash of a module, computed once, as a process imports it only once."""
    return digest_of(Path(file))


def digest_of(file: Path) -> str:
    """Return a digest that changes with a file's content; empty if it cannot be read."""
    try:
        stat = file.stat()
        if stat.st_size > LARGEST:
            return f"{stat.st_size}-{stat.st_mtime_ns}"
        return hashlib.sha256(file.read_bytes()).hexdigest()[:16]
    except OSError:
        return ""


def named(file: str | Path, folder: Path) -> str:
    """Return a file's path relative to a folder if it is inside, else the path itself."""
    path = Path(file)
    return str(path.relative_to(folder) if path.is_relative_to(folder) else path)


def programs(argv: Iterable[Any], folder: Path) -> dict[str, str]:
    """Return the digests of the user's own files that a command line names, such as a script or a program that was built here."""
    paths = [Path(os.path.normpath(folder / str(word))) for word in argv if word and "\0" not in str(word) and len(str(word)) < 1000]
    return {named(path, folder): digest_of(path) for path in paths if path.is_relative_to(folder) and path.is_file()}


def noted(record: Record, loaded: Mapping[str, str], known: dict[str, str]) -> Record:
    """Return the record with the fingerprint of all modules that its worker had, and the hashes of those not recorded before."""
    if not loaded:
        return record
    fresh = {name: digest for name, digest in loaded.items() if known.get(name) != digest}
    known.update(fresh)
    whole = hashlib.sha256(json.dumps(sorted(loaded.items())).encode()).hexdigest()[:12]
    return replace(record, source={**record.source, "modules": whole, **{f"{FILE}{name}": digest for name, digest in fresh.items()}})


def edited(held: Mapping[str, str], folder: Path) -> list[str]:
    """Return the files that were changed since a run recorded their digests."""
    return [name for name, digest in held.items() if digest_of(folder / name) != digest]


@functools.cache
def imports_of(file: str) -> frozenset[str]:
    """Return the packages that a Python file imports, also inside functions; empty if it cannot be read."""
    found: set[str] = set()
    with contextlib.suppress(OSError, ValueError, SyntaxError, RecursionError):
        for node in ast.walk(ast.parse(Path(file).read_bytes())):
            names = [item.name for item in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.module and not node.level else []
            found |= {name.partition(".")[0] for name in names}
    return frozenset(found)
