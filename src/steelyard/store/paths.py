"""Names in stored files are names inside one folder: whatever leads out of it, by itself or through a link, is refused."""

from __future__ import annotations

from pathlib import Path

from steelyard.errors import StoreError


def inside(folder: Path, name: str, what: str) -> Path:
    """The file that a name means below a folder; absolute names, steps upwards and links that lead out are none."""
    try:
        root = folder.resolve()
        path = (root / name).resolve()
        plain = bool(name) and not Path(name).is_absolute() and ".." not in Path(name).parts
        if plain and path != root and path.is_relative_to(root):
            return path
    except (OSError, ValueError, RuntimeError):
        pass
    raise StoreError(f"{what} {name!r} lies outside of its folder", why="a run's files lie in its folder; it was edited or has a bad link")
