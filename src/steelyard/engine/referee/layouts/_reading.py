"""What a Python file defines, and what its contract says, read from its text: none of it is executed."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from steelyard import files
from steelyard.errors import UsageError, unknown
from steelyard.model.judging import PRECISIONS, Contract, Problem

CONTRACT = "CONTRACT"
TOLERANCES = ("rtol", "atol")
BETWEEN = "::"


@dataclass(frozen=True)
class Outline:
    """The names that a file binds at its top level; `open` if a star import may bind others."""

    path: Path
    functions: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    names: frozenset[str] = frozenset()
    open: bool = False
    contract: Mapping[str, Any] = field(default_factory=dict)

    def has(self, *names: str) -> bool:
        """Whether all of these are bound, or may be."""
        return self.open or self.names.issuperset(names)

    def need(self, name: str, do: str) -> str:
        """Return a name that must be there, or raise."""
        if not self.has(name):
            raise UsageError(f"it has no {name!r}", do=do, where=str(self.path))
        return name


def split(path: str) -> tuple[Path, str]:
    """File and name of `FILE.py::name`; the name is empty if none is given."""
    file, _, name = path.partition(BETWEEN)
    if name and not name.isidentifier():
        raise UsageError(f"{name!r} is not a name", do="write FILE.py::name", where=file)
    return files.expanded(file, "the file"), name


def outline(path: Path) -> Outline:
    """Read what a Python file defines; a syntax error in it is a `UsageError`."""
    return outline_of(files.read_text(path), path)


def outline_of(text: str, path: Path) -> Outline:
    """The same for text that is part of another file."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            body = ast.parse(text).body
    except SyntaxError as error:
        raise UsageError(f"{type(error).__name__}: {error.msg}", where=f"{path}:{error.lineno or 1}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise UsageError("not a Python file", why=str(error), where=str(path)) from None
    nodes = list(_top(body))
    functions = [node.name for node in nodes if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    classes = [node.name for node in nodes if isinstance(node, ast.ClassDef)]
    bound = {name for node in nodes for name in _bound(node)}
    return Outline(
        path, tuple(dict.fromkeys(functions)), tuple(dict.fromkeys(classes)), frozenset({*functions, *classes, *bound} - {"*"}),
        "*" in bound, _contract(nodes, path),
    )  # fmt: skip


def outlined(path: Path) -> Outline | None:
    """The same for any file: None if it is not Python."""
    try:
        return outline(path) if path.suffix == ".py" and path.is_file() else None
    except (UsageError, OSError):
        return None


def _top(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements of the top level, including those under `if`, `try` and `with`."""
    for node in body:
        yield node
        if isinstance(node, (ast.If, ast.Try, ast.With)):
            handlers = [inner for handler in getattr(node, "handlers", []) for inner in handler.body]
            yield from _top([*node.body, *getattr(node, "orelse", []), *getattr(node, "finalbody", []), *handlers])


def _bound(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        yield from ((alias.asname or alias.name).partition(".")[0] for alias in node.names)
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    for target in targets:
        yield from (inner.id for inner in ast.walk(target) if isinstance(inner, ast.Name))


def _contract(nodes: Sequence[ast.stmt], path: Path) -> Mapping[str, Any]:
    """The literal that is assigned to CONTRACT."""
    for node in nodes:
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None and CONTRACT in _bound(node):
            where = f"{path}:{node.lineno}"
            try:
                found = ast.literal_eval(node.value)
            except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
                found = None
            if not isinstance(found, dict) or not all(isinstance(key, str) for key in found):
                do = f'write {CONTRACT} = {{"in_place": True}}'
                raise UsageError(f"{CONTRACT} is not a literal", why="the file is read, not executed", do=do, where=where)
            return found
    return {}


def under_contract(problem: Problem, told: Mapping[str, Any], where: str = "") -> Problem:
    """Apply what a contract says to a problem: the parts of a Contract by name, and `rtol` and `atol`."""
    kinds: dict[str, Any] = {"in_place": bool, "reuses_output": bool, "fills_outputs": bool, "threads": int, "precision": str}
    known = [part.name for part in fields(Contract)]
    changes: dict[str, Any] = {}
    for key, value in told.items():
        if key in TOLERANCES:
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < float("inf"):
                raise UsageError(f"{key} of the contract is not a tolerance: {value!r}", do="write a number of at least 0", where=where)
            problem = replace(problem, rtol=float(value)) if key == "rtol" else replace(problem, atol=float(value))
            continue
        if key not in known:
            raise unknown("part of a contract", key, [*known, *TOLERANCES], where=where)
        if key == "persistent":
            value = _numbers(value, where)
        elif not isinstance(value, kinds[key]) or (kinds[key] is int and (isinstance(value, bool) or value < 1)):
            raise UsageError(f"{key} of the contract cannot be {value!r}", do=f"write a {kinds[key].__name__}", where=where)
        if key == "precision" and value and value not in PRECISIONS:
            raise unknown("precision", value, PRECISIONS, where=where)
        changes[key] = value
    return replace(problem, contract=replace(problem.contract, **changes))


def _numbers(value: Any, where: str) -> tuple[int, ...]:
    if not isinstance(value, (list, tuple)) or not all(type(item) is int and item >= 0 for item in value):
        raise UsageError(f"persistent of the contract cannot be {value!r}", do="list the numbers of inputs, from 0", where=where)
    return tuple(value)


def chosen(problems: Sequence[Problem], only: Sequence[str], names: Mapping[str, Sequence[int]]) -> list[Problem]:
    """The problems that `only` names, in their own order; `names` has the places of each name's problems."""
    if not only:
        return list(problems)
    for word in only:
        if word not in names:
            raise unknown("problem", word, names)
    kept = {place for word in only for place in names[word]}
    return [problem for place, problem in enumerate(problems) if place in kept]
