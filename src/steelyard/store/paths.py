"""Checks the file names in stored files: a name that leads out of its folder, by itself or through a link, is refused."""

from __future__ import annotations

from pathlib import Path

from steelyard.errors import StoreError


def inside(folder: Path, name: str, what: str) -> Path:
    """The path of a name below a folder; absolute names, `..` and links that lead out are errors."""
    try:
        root = folder.resolve()
        path = (root / name).resolve()
        plain = bool(name) and not Path(name).is_absolute() and ".." not in Path(name).parts
        if plain and path != root and path.is_relative_to(root):
            return path
    except (OSError, ValueError, RuntimeError):
        pass
    raise StoreError(f"{what} {name!r} is outside its folder", why="a run's files are in its folder; it was edited or has a bad link")
