"""Other systems' config files as experiments: recognised by content, and expanded by a worker where users' own code has a part in it."""

from __future__ import annotations

from pathlib import Path

from steelyard.dialects.param import expand, native, reading, session
from steelyard.engine import converse
from steelyard.engine.launch import Place
from steelyard.engine.plan import Entries
from steelyard.errors import Mistakes, UsageError
from steelyard.model.experiment import Experiment


def load(path: Path, files: tuple[str, ...] = (), place: Place | None = None, device: str = "cpu") -> Experiment | None:
    """The experiment of a config in a known dialect; None for a file that is none."""
    if not is_param(path):
        return None
    sheet = param_sheet(path, files, place, device)
    if sheet.mistakes and not sheet.configs:
        raise Mistakes([UsageError(str(mistake)) for mistake in sheet.mistakes], about=f"nothing in {path} can be run")
    return native.experiment(sheet)


def is_param(path: Path) -> bool:
    """Whether it is a PARAM config; a file that is no JSON at all is left to whoever can say why."""
    try:
        return path.suffix.lower() == ".json" and expand.recognise(reading.read(path).data)
    except UsageError:
        return False


def packages(path: Path) -> Entries:
    """Installed operators, iterators and generators that a config names: naming them is what loads their packages."""
    return tuple(session.packages(path)) if is_param(path) else ()


def param_sheet(path: Path, files: tuple[str, ...] = (), place: Place | None = None, device: str = "cpu") -> expand.Sheet:
    """A PARAM config expanded; iterators and generators that are not ours are asked of a worker, with the user's files loaded."""
    sheet, entries = expand.load(path, device=device), packages(path)
    if not sheet.mistakes or not (files or entries):
        return sheet
    place = place or Place()
    job = {
        "do": "shim", "dialect": "param", "stage": "expand", "source": str(path), "options": {"device": device},
        "files": list(files), "entries": [list(entry) for entry in entries], "paths": list(place.paths),
    }  # fmt: skip
    with converse.talking(place=place) as talk:
        for message in talk.ask(job):
            if "sheet" in message:
                return session.sheet_of(message["sheet"])
            if "lost" in message:
                raise UsageError(f"could not expand {path}", why=str(message["lost"]["reason"]))
    raise UsageError(f"could not expand {path}", why="the worker gave no answer")
