"""A PARAM config as an experiment: expanded here, or by a worker where users' own code has a part in it."""

from __future__ import annotations

from pathlib import Path

from steelyard.dialects.param import expand, native, reading, session
from steelyard.engine import converse
from steelyard.engine.launch import Place
from steelyard.errors import Mistakes, UsageError
from steelyard.model.experiment import Experiment

kind = "PARAM config"


def recognise(path: Path) -> bool:
    """Whether it is a PARAM config; a file that is no JSON at all is left to whoever can say why."""
    try:
        return path.suffix.lower() == ".json" and expand.recognise(reading.read(path).data)
    except UsageError:
        return False


def read(path: Path, files: tuple[str, ...] = (), place: Place | None = None, device: str = "cpu") -> Experiment:
    """The experiment of a config; one of which nothing can be run is a mistake."""
    found = sheet(path, files, place, device)
    if found.mistakes and not found.configs:
        raise Mistakes([UsageError(str(mistake)) for mistake in found.mistakes], about=f"nothing in {path} can be run")
    return native.experiment(found)


def packages(path: Path) -> list[tuple[str, str]]:
    """Installed operators, iterators and generators that a config names."""
    return session.packages(path)


def sheet(path: Path, files: tuple[str, ...] = (), place: Place | None = None, device: str = "cpu") -> expand.Sheet:
    """A config expanded; iterators and generators that are not ours are asked of a worker, with the user's files loaded."""
    found, entries = expand.load(path, device=device), packages(path)
    if not found.mistakes or not (files or entries):
        return found
    place = place or Place()
    job = {
        "do": "shim", "shim": session.SHIM, "stage": "expand", "source": str(path), "options": {"device": device},
        "files": list(files), "entries": [list(entry) for entry in entries], "paths": list(place.paths),
    }  # fmt: skip
    with converse.talking(place=place) as talk:
        for message in talk.ask(job):
            if "sheet" in message:
                return session.sheet_of(message["sheet"])
            if "lost" in message:
                raise UsageError(f"could not expand {path}", why=str(message["lost"]["reason"]))
    raise UsageError(f"could not expand {path}", why="the worker gave no answer")
