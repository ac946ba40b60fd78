"""The other side of a comparison that cannot share a process with this one: another environment, checkout or backend.

`env:NAME` runs the same files under another interpreter. `path:DIR` uses DIR in place of the current folder: the
named files are at the same relative places there, and packages are imported from there, and from its checkout, first.
A base on another backend is a separate side for each case: frameworks disturb each other's threads and memory, and some
cannot be installed together. `flags:WORDS` is the same case with other flags of its compiler, or other variables: both are read when a
process starts, so that base also has its own processes.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from steelyard import registry
from steelyard.engine import envs, project
from steelyard.engine.place import Place
from steelyard.errors import UsageError
from steelyard.files import expanded, real
from steelyard.machine import facts
from steelyard.machine.cpu import attempt
from steelyard.model.case import Case

ENVIRONMENT, FOLDER, FLAGS = "env:", "path:", "flags:"
MATCHED, FREE, TWO_BUILDS, TWO_BACKENDS = "matched", "free", "free: two builds", "free: two backends"
CODE, COMPILED = (".py", ".so", ".pyd", ".dylib"), (".so", ".pyd", ".dylib")
MOST_FILES = 20_000
_VARIABLE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)


Origin = tuple[str, bool]


@dataclass(frozen=True)
class BaseSide:
    """The base's side of a comparison: its name, where its workers run, and which files they load.

    `layout` says how memory layouts are controlled: equal ones help only if both sides load the same libraries.
    `identity` must stay the same for a run to be continued. `facing` is the name of the head's side, if it has one. `origins` are
    the commits of the base and the head, and whether files differed from them. `fresh` says that its workers must not be forked,
    even if the head's may be.
    """

    label: str
    place: Place
    files: tuple[str, ...] = ()
    layout: str = MATCHED
    identity: tuple[Any, ...] = ()
    notes: tuple[str, ...] = ()
    facing: str = ""
    origins: tuple[Origin, Origin] = (("", False), ("", False))
    fresh: bool = False


def is_side(vs: str | None) -> bool:
    """Whether a base is a side and not a variant; no variant has a colon in its name."""
    return vs is not None and vs.startswith((ENVIRONMENT, FOLDER, FLAGS))


def base_of(case: Case, vs: str) -> Case:
    """The case that another is compared with in the same environment: the same point as a variant, on a backend, or with flags."""
    return replace(case, flags=tuple(_flags(case, vs).items())) if vs.startswith(FLAGS) else case.against(vs)


def _flags(case: Case, vs: str) -> dict[str, Any]:
    """The base's variables: the case's own, replaced by those that the words set; without words, none.

    Words that begin with a dash are flags of the backend's compiler and are joined in the variable that it reads.
    """
    try:
        words = shlex.split(vs.removeprefix(FLAGS))
    except ValueError as error:
        raise UsageError(f"cannot read the flags in {vs!r}", why=str(error), do="quote them as for a shell") from error
    own, flags, found = registry.about_backend(case.backend).flags, list[str](), dict[str, Any](case.flags if words else ())
    for word in words:
        if word.startswith("-"):
            flags.append(word)
        elif named := _VARIABLE.fullmatch(word):
            found[named[1]] = named[2]
        else:
            raise UsageError(f"{word!r} is not a flag", do="write compiler flags, --xla_…, or variables, NAME=VALUE", where=f"--vs {vs}")
    if flags and not own:
        why = f"backend {case.backend} has no variable for compiler flags"
        raise UsageError(f"{case.id} cannot be compared with {vs}", why=why, do="name the variable to set: flags:NAME=VALUE")
    return found | ({own: shlex.join(flags)} if flags else {})


def here(vs: str | None, place: Place, files: Sequence[str]) -> Place:
    """Where the head runs: as without a base, but if the base takes packages only from a folder, so does the head from ours."""
    own = Path.cwd()
    if vs is not None and vs.startswith(FOLDER):
        return replace(place, paths=project.search_path(own, files, [project.root_of(own)]))
    return replace(place, paths=project.around(own, files)) if files else place


def there(vs: str | None, place: Place, files: Sequence[str]) -> BaseSide | None:
    """The base's side, after checking it; None if the base runs in the same environment, or there is none."""
    if vs is None or not vs.startswith((ENVIRONMENT, FOLDER)):
        return None
    return _environment(vs, place, files) if vs.startswith(ENVIRONMENT) else _folder(vs, place, files)


def _environment(label: str, place: Place, files: Sequence[str]) -> BaseSide:
    env = envs.find(label.removeprefix(ENVIRONMENT))
    found = envs.place(env.name, place)
    identity = (found.python, env.stack, sorted(env.packages.items()))
    return BaseSide(
        label, found, tuple(files), MATCHED if found.python == place.python else TWO_BUILDS, identity, origins=(_origin(Path.cwd()),) * 2
    )


def _folder(label: str, place: Place, files: Sequence[str]) -> BaseSide:
    named = expanded(label.removeprefix(FOLDER), "the base")
    root, own = real(named), Path.cwd()
    if not label.removeprefix(FOLDER) or not root.is_dir():
        why = "it is a file" if root.is_file() else "there is no such folder"
        raise UsageError(f"cannot take the base from {str(named)!r}", why=why, do="name the folder of another checkout or build")
    matching, shared = [], []
    for file in map(Path, files):
        inside = file.is_relative_to(own)
        found = root / file.relative_to(own) if inside else file
        if not found.is_file():
            raise UsageError(
                f"{named} has no {file.relative_to(own)}", why="the base is taken from the same relative path there",
                do="check the folder; to use one file for both sides, run from outside both checkouts",
            )  # fmt: skip
        matching.append(str(found))
        shared += [] if inside else [f"{file.name} is outside the current folder and is the same file for both"]
    mine, theirs = list(modules_below(own)), list(modules_below(root))
    hashes = [hashlib.sha256(Path(file).read_bytes()).hexdigest() for file in matching]
    identity = (str(root), hashes, attempt(facts.git, root), _stamp(root, theirs))
    layout = MATCHED if _same_builds(own, mine, root, theirs) else TWO_BUILDS
    theirs_alone = [top] if (top := project.root_of(root)) != project.root_of(own) else []
    moved = replace(place, paths=project.search_path(root, matching, theirs_alone), folder=str(root))
    return BaseSide(label, moved, tuple(matching), layout, identity, tuple(shared), origins=(_origin(root), _origin(own)))


def _origin(root: Path) -> Origin:
    """The commit of a folder, empty if git does not track its files, as with a build folder inside a checkout."""
    found = attempt(facts.git, root) or {}
    commit = found.get("commit") if attempt(facts.tracked, root) else None
    return (commit, bool(found.get("dirty"))) if isinstance(commit, str) else ("", False)


def modules_below(root: Path) -> Iterator[Path]:
    """Files below a folder that an import could reach, up to a limit."""
    queue, seen = [root], 0
    while queue and seen < MOST_FILES:
        for path in sorted(attempt(lambda folder: list(folder.iterdir()), queue.pop(0)) or []):
            seen += 1
            if path.is_dir() and not path.is_symlink() and path.name.isidentifier() and path.name != "__pycache__":
                queue.append(path)
            elif path.suffix in CODE and path.is_file():
                yield path.relative_to(root)


def _stamp(root: Path, modules: Sequence[Path]) -> str:
    stats = [(str(path), (root / path).stat()) for path in modules]
    return hashlib.sha256(repr([(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats]).encode()).hexdigest()


def _same_builds(own: Path, mine: Sequence[Path], root: Path, theirs: Sequence[Path]) -> bool:
    """Whether both folders have the same compiled libraries: those of two builds differ in size, and so in their place in memory."""
    ours, others = ({path for path in found if path.suffix in COMPILED} for found in (mine, theirs))
    return ours == others and all(_digest(own / path) == _digest(root / path) for path in ours)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
