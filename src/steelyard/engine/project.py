"""Where workers look for a project's packages: in the same order for every command, so that `nightly` can import what `run` can."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path


def root_of(folder: Path) -> Path:
    """The top folder of the git checkout that a folder is in; outside of one, the folder itself."""
    return next((above for above in (folder, *folder.parents) if (above / ".git").exists()), folder)


def search_path(here: Path, files: Sequence[str] = (), roots: Iterable[Path] = ()) -> tuple[str, ...]:
    """Folders to import from before what is installed: each file's own folder, then `here` and each root, these with their `src` first.

    The folder of a file outside these projects comes after them, so that its packages do not replace theirs.
    """
    project = [folder for place in (here, *roots) for folder in (place / "src", place) if folder.is_dir()]
    own = [Path(file).parent for file in files]
    inside = [folder for folder in own if any(folder.is_relative_to(place) for place in project)]
    return tuple(dict.fromkeys(map(str, (*inside, *project, *own))))


def around(here: Path, files: Sequence[str]) -> tuple[str, ...]:
    """What the user's files can import: the modules beside them, and the projects of the current folder and of the files."""
    return search_path(here, files, [root_of(here), *(root_of(Path(file).parent) for file in files)])
