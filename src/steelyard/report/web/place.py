"""The folder of a site: files are written atomically, and only files that the site wrote are replaced or removed."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
from collections.abc import Collection
from itertools import chain, count
from pathlib import Path, PurePosixPath
from typing import Any

from steelyard.errors import StoreError, UsageError
from steelyard.files import open_plain
from steelyard.model.record import Attachment
from steelyard.report.cells import clean
from steelyard.store.runs import Run

LARGEST_ATTACHMENT = 256 * 2**20
FOLDERS = ("runs", "assets")
ACTIVE = frozenset({
    "html", "htm", "xhtml", "xht", "shtml", "mhtml", "mht", "svg", "svgz", "xml", "xsl", "xslt", "js", "mjs", "wasm", "css",
    "php", "phtml", "cgi", "pl", "asp", "aspx", "jsp",
})  # fmt: skip
"""Endings of files that a browser or a server would run, also before `.gz`; attachments with them are shown only as text."""
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_PART = re.compile(r"\.[A-Za-z0-9_.-]{1,100}\.\d+\.part")
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]+")


class SiteFolder:
    """A folder that is a site or may become one; paths in it are given from its root, with slashes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.written: list[str] = []

    def claim(self, manifest: str, format: str) -> None:
        """Make the folder, or make sure that it is a site; a folder with other files is refused."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if any(self.folder.iterdir()) and self.manifest(manifest).get("format") != format:
                why = f"it is not empty, and its {manifest} is missing or not of this version"
                raise UsageError(f"{str(self.folder)!r} is not a site", why=why, do="name an empty or a new folder")
            for name in FOLDERS:
                if (self.folder / name).is_symlink():
                    raise UsageError(
                        f"{str(self.folder / name)!r} is a link", why="a site writes only into its own folders", do="remove it"
                    )
                (self.folder / name).mkdir(exist_ok=True)
        except OSError as error:
            raise self._trouble(error) from None
        if not self.manifest(manifest):
            self.write(manifest, json.dumps({"format": format}).encode())
            self.written.clear()

    def manifest(self, name: str) -> dict[str, Any]:
        """The manifest of an earlier build; empty if it cannot be read."""
        with contextlib.suppress(ValueError, RecursionError):
            found = json.loads(self.text(name) or "{}")
            return found if isinstance(found, dict) else {}
        return {}

    def text(self, name: str) -> str:
        """A file's text; empty if there is no such file."""
        try:
            with open_plain(self.folder / name) as file:
                return file.read().decode("utf-8", "replace")
        except OSError:
            return ""

    def has(self, name: str) -> bool:
        """Whether a file is there."""
        return self._own(name) and (self.folder / name).is_file()

    def write(self, name: str, content: bytes) -> None:
        """Write a file atomically; readers see the old one until then."""
        path = self.folder / name
        part = path.with_name(f".{path.name[:100]}.{os.getpid()}.part")
        try:
            path.parent.mkdir(exist_ok=True)
            part.write_bytes(content)
            part.replace(path)
        except OSError as error:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)
            raise self._trouble(error) from None
        self.written.append(name)

    def copy(self, run: Run, item: Attachment, folder: str, taken: Collection[str], warnings: list[str]) -> str:
        """Copy an attachment next to its run's page under a harmless unused name; return the name, empty if it cannot be read."""
        try:
            source = run.attachment(item)
            size = source.stat().st_size
            if size > LARGEST_ATTACHMENT:
                warnings.append(f"run {run.id}: {clean(item.path)} is too large for the site ({size >> 20} MiB)")
                return ""
            plain = self.harmless(PurePosixPath(item.path).name)
            name = next(name for name in chain([plain], (f"{number}-{plain}" for number in count(2))) if name not in taken)
            path = self.folder / folder / name
            path.parent.mkdir(exist_ok=True)
            part = path.with_name(f".{name[:100]}.{os.getpid()}.part")
            with open_plain(source) as file, part.open("wb") as target:
                shutil.copyfileobj(file, target)
            part.replace(path)
        except (OSError, StoreError):
            return ""
        self.written.append(f"{folder}/{name}")
        return name

    def tidy(self) -> None:
        """Remove files that a killed build left half written; call it only while no other build runs."""
        for folder in FOLDERS:
            for depth in ("*", "*/*"):
                for path in (self.folder / folder).glob(f"{depth}.part"):
                    if _PART.fullmatch(path.name) and not path.parent.is_symlink():
                        with contextlib.suppress(OSError):
                            path.unlink()

    def remove(self, names: set[str]) -> list[str]:
        """Remove files that an earlier build wrote, and the folders that become empty."""
        removed = []
        for name in sorted(name for name in names if "/" in name and self._own(name)):
            path = self.folder / name
            with contextlib.suppress(OSError):
                path.unlink()
                removed.append(name)
            if path.parent.parent != self.folder:
                with contextlib.suppress(OSError):
                    path.parent.rmdir()
        return removed

    def _own(self, name: str) -> bool:
        """Whether a path is one that a site can have written; other paths in a list of files are ignored."""
        parts = name.split("/")
        if not all(_PLAIN.fullmatch(part) for part in parts) or (len(parts) > 1 and parts[0] not in FOLDERS) or len(parts) > 3:
            return False
        above = ["/".join(parts[:end]) for end in range(1, len(parts))]
        return not any((self.folder / folder).is_symlink() for folder in above)

    @staticmethod
    def plain(name: str) -> str:
        """A run's name as a file name and as a part of a URL."""
        return name if _PLAIN.fullmatch(name) else f"run-{hashlib.sha256(name.encode('utf-8', 'surrogateescape')).hexdigest()[:16]}"

    @staticmethod
    def harmless(name: str) -> str:
        """An attachment's name with plain characters and an ending that no browser runs."""
        plain = _UNSAFE.sub("_", name).lstrip("._-")[-80:].lstrip("._-") or "file"
        suffixes = plain.lower().split(".")[1:]
        return f"{plain}.txt" if not suffixes or not ACTIVE.isdisjoint(suffixes) else plain

    def _trouble(self, error: OSError) -> UsageError:
        why = f"{error.strerror or error}: {error.filename or self.folder}"
        return UsageError(f"cannot write the site {str(self.folder)!r}", why=why, do="check the folder, or name another with --site DIR")
