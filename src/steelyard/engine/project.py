"""Where workers look for a project's own packages: one order for every command, so that what `run` can import, `nightly` can too."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path


def root_of(folder: Path) -> Path:
    """The top of the git checkout that a folder lies in; outside of one, the folder itself."""
    return next((above for above in (folder, *folder.parents) if (above / ".git").exists()), folder)


def search_path(here: Path, files: Sequence[str] = (), roots: Iterable[Path] = ()) -> tuple[str, ...]:
    """Folders to import from before what is installed: of each file its own, then `here` and each root, all with their `src` first.

    A file that lies in none of these projects comes after them, so that it cannot bring packages of another one along.
    """
    project = [folder for place in (here, *roots) for folder in (place / "src", place) if folder.is_dir()]
    own = [Path(file).parent for file in files]
    inside = [folder for folder in own if any(folder.is_relative_to(place) for place in project)]
    return tuple(dict.fromkeys(map(str, (*inside, *project, *own))))


def around(here: Path, files: Sequence[str]) -> tuple[str, ...]:
    """What the user's files can import: the modules beside them, and the projects of the current folder and of the files."""
    return search_path(here, files, [root_of(here), *(root_of(Path(file).parent) for file in files)])
