"""Figures of a machine that are measured once and kept per user, because they belong to the machine and not to a project."""

from __future__ import annotations

import contextlib
import json
import os
import re
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from steelyard.errors import StoreError
from steelyard.model.units import is_amount

VARIABLE = "STEELYARD_CACHE"
_FILE = re.compile(r"[0-9a-f]{12}-([a-z]+)-([1-9][0-9]{0,4})\.json")

Figures = TypeVar("Figures")


def settled_threads(device: str, threads: int) -> int:
    """An accelerator's figures do not depend on how many CPU threads a case has."""
    return threads if device == "cpu" else 1


def quantity(value: Any, *, zero: bool = False) -> float:
    """A figure from a file: a finite number above zero, or zero if that is allowed; raises for other values."""
    if not isinstance(value, (int, float)) or not is_amount(value) or (value == 0 and not zero):
        raise ValueError(f"not a figure: {value!r}")
    return float(value)


@dataclass(frozen=True)
class Shelf(Generic[Figures]):
    """One kind of figures, a file per machine key, device kind and number of threads.

    `name` is both the folder and the doctor's option that measures them; `decode` raises on invalid data.
    """

    name: str
    schema: int
    decode: Callable[[Mapping[str, Any]], Figures]

    def folder(self) -> Path:
        """The folder of the files: in the folder the user names, else in the user's cache."""
        chosen = os.environ.get(VARIABLE)
        if chosen:
            return Path(chosen) / self.name
        caches = os.environ.get("XDG_CACHE_HOME")
        return (Path(caches) if caches else Path.home() / ".cache") / "steelyard" / self.name

    def path(self, key: str, device: str, threads: int) -> Path:
        """The file of one machine, device kind and number of threads."""
        name = f"{key}-{device}-{settled_threads(device, threads)}.json"
        if not _FILE.fullmatch(name):
            raise StoreError(f"{name!r} cannot be a name to save {self.name} under")
        return self.folder() / name

    def load(self, key: str, device: str, threads: int) -> tuple[Figures | None, str]:
        """The figures kept for a device, or None, with a warning if there is a file that cannot be used."""
        try:
            file = self.path(key, device, threads)
            text = file.read_text(encoding="utf-8")
        except (FileNotFoundError, StoreError, RuntimeError):
            return None, ""
        except (OSError, UnicodeDecodeError) as error:
            return None, self._unusable(file, str(error))
        try:
            data = json.loads(text)
            if data["schema"] != self.schema or data["key"] != key:
                raise ValueError(f"schema {data['schema']} of machine {data['key']}")
            return self.decode(data), ""
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
            return None, self._unusable(file, f"{type(error).__name__}: {error}")

    def saved(self, key: str) -> dict[str, Figures]:
        """All figures kept for a machine, by `device-threads`."""
        found = {}
        with contextlib.suppress(OSError, RuntimeError):
            for file in sorted(self.folder().glob(f"{key}-*.json")):
                if match := _FILE.fullmatch(file.name):
                    kept, _ = self.load(key, match[1], int(match[2]))
                    found.update({f"{match[1]}-{match[2]}": kept} if kept else {})
        return found

    def check_writable(self) -> None:
        """Raise before ten seconds of measuring if the result could not be kept."""
        try:
            self.folder().mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.folder()):
                pass
        except (OSError, RuntimeError) as error:
            raise self._unwritable(error) from error

    def save(self, figures: Any, key: str, device: str, threads: int) -> Path:
        """Write figures, which are a dataclass, in place of earlier ones: whole or not at all."""
        file = self.path(key, device, threads)
        data = {"schema": self.schema, "key": key, "device": device, "threads": settled_threads(device, threads), **asdict(figures)}
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            fresh = file.with_suffix(f".{os.getpid()}.new")
            fresh.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
            fresh.replace(file)
        except OSError as error:
            raise self._unwritable(error) from error
        return file

    def _unusable(self, file: Path, why: str) -> str:
        return f"{file} has no valid {self.name} ({why}) and is ignored; write it again: steelyard doctor --{self.name}"

    def _unwritable(self, error: Exception) -> StoreError:
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        do = f"name a writable folder: {VARIABLE}=DIR"
        return StoreError(f"{self.name} cannot be kept here", why=why, do=do, where=str(self.folder()))
