"""Users' packages in folders that they name: which files define something, where Python looks for those, and what is in them.

Their code runs in a worker, because the user named its folder. A file that cannot be imported loses only its own definitions.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import traceback
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from steelyard import registry
from steelyard.errors import spoken


@dataclass(frozen=True)
class ListedItem:
    """One item of a list in a user's file, or why the file cannot be imported, which has no list."""

    file: str
    list: str = ""
    value: Any = None
    trouble: str = ""


@dataclass(frozen=True)
class ListTrouble:
    """A file, or an item of a list in one, that cannot be used; `name` is the item's name, if it has one."""

    where: str
    what: str
    name: str = ""
    list: str = ""

    def __str__(self) -> str:
        return f"{self.where}  {self.what}"


@dataclass(frozen=True)
class UserFolder:
    """A folder whose files of a certain name define something, or one file that does.

    `above` is a package that several folders may share, as when a fork adds to it: imports start from the folder that contains it.
    """

    path: Path
    pattern: str
    above: tuple[str, ...] = ()

    @property
    def files(self) -> list[Path]:
        """The files that may have definitions: the named file, or all matching files below the folder, without installed packages."""
        if self.path.is_file():
            return [self.path.resolve()]
        found = [file for file in self.path.rglob(self.pattern) if not _installed(file.relative_to(self.path))]
        return sorted(file.resolve() for file in found if file.is_file())

    @property
    def roots(self) -> tuple[str, ...]:
        """The folders that a worker looks in for the modules of the package."""
        return tuple(dict.fromkeys(str(self.root_of(file)) for file in self.files))

    def root_of(self, file: Path) -> Path:
        """Return the folder to import a file from: above a shared package, above its outermost package, or the folder that was named."""
        parts, length, top = file.parent.parts, len(self.above), self.path.resolve()
        for place in range(len(parts) - 1):
            if length and parts[place : place + length] == self.above:
                return Path(*parts[:place])
        folder = file.parent
        while (folder / "__init__.py").is_file():
            folder = folder.parent
        within = folder == file.parent and not top.is_file() and folder.is_relative_to(top)
        return top if within else folder

    def items(self, lists: Sequence[str], begin: Callable[[str], None], without: Container[str] = ()) -> Iterator[ListedItem]:
        """Yield the items of the lists with these names in every file not in `without`; call it in a worker, as it imports the files.

        `begin` is called with each file before it is imported.
        """
        registry.look_first(self.roots)
        for file in self.files:
            if str(file) in without:
                continue
            begin(str(file))
            try:
                module = self._imported(file)
                found = [ListedItem(str(file), name, value) for name in lists for value in _listed(getattr(module, name, ()))]
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt):
                    raise
                found = [ListedItem(f"{file}{_line(error, file)}", trouble=spoken(error)[:500])]
            yield from found

    def _imported(self, file: Path) -> Any:
        """Import a file by its dotted name, so that files that import each other share definitions; by path if it has no valid name."""
        parts = file.relative_to(self.root_of(file)).with_suffix("").parts
        return importlib.import_module(".".join(parts)) if all(part.isidentifier() for part in parts) else registry.load_file(file)


def answer(folder: UserFolder, kinds: Mapping[str, type[Any]], words: Mapping[str, Any], send: Callable[[Mapping[str, Any]], None]) -> None:
    """Send the items of a folder's lists, of these kinds, as plain data, and what is wrong there; call it in a worker."""
    said: dict[str, list[Any]] = {name: [] for name in kinds}
    troubles: list[ListTrouble] = []
    for item in folder.items(list(kinds), lambda file: send({"importing": file}), words["without"]):
        if item.trouble:
            troubles.append(ListTrouble(item.file, item.trouble))
            continue
        try:
            said[item.list].append([item.file, carried(item.value, kinds[item.list])])
        except Exception as error:  # the items are the user's own objects, and may raise anything
            what = str(error) if isinstance(error, (TypeError, ValueError)) else spoken(error)
            troubles.append(ListTrouble(f"{item.file}  {item.list}", what, name_of(item.value), item.list))
    send({**said, "troubles": [asdict(trouble) for trouble in troubles]})


def carried(item: Any, kind: type[Any]) -> Any:
    """Return a dataclass of a kind as JSON data, with the values of enumerations; ValueError or TypeError if that is not possible."""
    if not isinstance(item, kind):
        raise TypeError(f"{item!r:.80} is not of type {kind.__name__}")
    try:
        return json.loads(json.dumps(asdict(item), allow_nan=False, default=_value))
    except RecursionError:
        raise ValueError("it contains itself, or is nested too deeply") from None


def name_of(item: Any) -> str:
    """Return the name of an item of a user's list if it is text, else an empty string."""
    with contextlib.suppress(Exception):
        if isinstance(item.name, str):
            return str(item.name)
    return ""


def _installed(file: Path) -> bool:
    """Whether a file is in a hidden folder or among an environment's packages."""
    return any(part.startswith(".") or part == "site-packages" for part in file.parts[:-1])


def _value(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    raise TypeError(f"{value!r:.80} is a {type(value).__name__}")


def _line(error: BaseException, file: Path) -> str:
    """Return the line of the file itself that an error passed through, as `:LINE`; empty if there is none."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename) == file]
    return f":{lines[-1]}" if lines else ""


def _listed(value: Any) -> list[Any]:
    """Return a list of definitions; a mapping has them as values."""
    return list(value.values() if isinstance(value, Mapping) else value) if isinstance(value, Iterable) else [value]
