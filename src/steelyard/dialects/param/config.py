"""Convert a PARAM config to an experiment: expanded here, or in a worker if it uses users' own code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from steelyard import registry
from steelyard.dialects.param import expand, native, reading
from steelyard.dialects.param.expand import Sheet, Source
from steelyard.engine import describe
from steelyard.engine.messages import Sources
from steelyard.engine.place import Place
from steelyard.errors import Mistakes, UsageError
from steelyard.model.experiment import Experiment

kind = "PARAM config"
KINDS = ("operators", "iterators", "generators")
EXPANDER = "steelyard.dialects.param.shim.expanding"


def recognise(path: Path) -> bool:
    """Whether a file is a PARAM config; a file that is not JSON is left to a reader that can report why."""
    try:
        return path.suffix.lower() == ".json" and expand.recognise(reading.read(path).data)
    except UsageError:
        return False


def read(path: Path, files: tuple[str, ...] = (), place: Place | None = None, device: str = "cpu") -> Experiment:
    """Return the experiment of a config; an error if nothing in it can run."""
    found = sheet(path, files, place, device)
    if found.mistakes and not found.configs:
        raise Mistakes([UsageError(str(mistake)) for mistake in found.mistakes], about=f"nothing in {path} can be run")
    return native.experiment(found)


def packages(source: Source) -> list[tuple[str, str]]:
    """Return the installed operators, iterators and generators that a config uses, by their registered names."""
    installed = {kind: registry.entry_points(kind) for kind in KINDS}
    if not any(installed.values()):
        return []
    data = reading.read(source).data if isinstance(source, Path) else source
    used = set(data) | {value for info in data.values() if isinstance(info, Mapping) for value in info.values() if isinstance(value, str)}
    return [(kind, name) for kind, points in installed.items() for name in points if name in used]


def sheet(source: Source, files: Sequence[str] = (), place: Place | None = None, device: str = "cpu", *, lenient: bool = False) -> Sheet:
    """Expand a config; users' iterators and generators run in a worker, with the user's files loaded.

    `lenient` accepts what the original accepts, with a warning.
    """
    found, entries = expand.sheet(source, device=device, lenient=lenient), packages(source)
    if not found.mistakes or not (files or entries):
        return found
    place, own = place or Place(), {"source": str(source)} if isinstance(source, Path) else {"data": source}
    said = describe.expand(
        place, Sources(tuple(files), tuple(entries), place.paths), EXPANDER, {**own, "device": device, "lenient": lenient}
    )
    if "sheet" not in said:
        raise UsageError(f"could not expand {source if isinstance(source, Path) else expand.SPOKEN}", why="the worker sent no result")
    return expand.sheet_of(said["sheet"])
