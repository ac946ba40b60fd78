"""Describes users' code (workloads, variants, axes) by asking a worker, so that the conductor never imports it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from steelyard.engine.conversation import Conversation, Lost
from steelyard.engine.launch import start_fresh
from steelyard.engine.messages import Answer, Describe, Described, Expand, Expanded, Sources
from steelyard.engine.packages import ListTrouble, UserFolder
from steelyard.engine.place import Place
from steelyard.engine.process import end_orphans
from steelyard.errors import UsageError
from steelyard.model.units import plain

LOADING, EXPANDING = 120.0, 600.0


def describe(place: Place, files: tuple[str, ...], entries: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    """Return the catalogue of what files and packages define, and the modules they import."""
    what = ", ".join([*files, *(name for _, name in entries)])
    for answer in _answers(place, Describe(Sources(files, entries, place.paths)), LOADING):
        if isinstance(answer, Described):
            return dict(answer.catalogue)
        if isinstance(answer, Lost):
            raise _unloadable(what, answer)
    raise UsageError(f"could not load {what}", why="the process that imported it gave no answer")


class UnloadableFile(UsageError):
    """A user's file whose import ended its process, or took too long."""

    def __init__(self, file: str, lost: Lost) -> None:
        late = lost.status == "timeout"
        why = f"importing it takes more than {plain(LOADING, 's')}" if late else f"the process ended while importing it: {lost.reason}"
        super().__init__(
            f"could not load {file}", why=why, do="check it for an endless loop" if late else "import it with plain Python to see why"
        )
        self.file = file


def listed(place: Place, folder: UserFolder, module: str, kinds: Mapping[str, type[Any]]) -> tuple[dict[str, list[Any]], list[ListTrouble]]:
    """Return the items of the lists in a user's folder, as these kinds of data, and what is wrong with the items that are unusable.

    `perform` of the module answers as `packages.answer` does. A file that crashes or hangs its worker loses only its own definitions.
    """
    words, lost = {"folder": str(folder.path.resolve())}, dict[str, ListTrouble]()
    said: dict[str, Any] | None = None
    while said is None:
        try:
            said = expand(place, Sources(paths=folder.roots), module, {**words, "without": [*lost]})
        except UnloadableFile as error:
            if error.file in lost:
                raise
            lost[error.file] = ListTrouble(error.file, f"{error.why}; {error.do}")
    troubles = [*lost.values(), *(ListTrouble(**item) for item in said["troubles"])]
    held: dict[str, list[Any]] = {name: [] for name in kinds}
    for name, kind in kinds.items():
        for where, data in said[name]:
            try:
                held[name].append(msgspec.convert(data, kind))
            except msgspec.ValidationError as error:
                called = str(data["name"])
                troubles.append(ListTrouble(f"{where}  {name}", f"{called}: {error}", called, name))
    return held, troubles


def expand(place: Place, sources: Sources, module: str, words: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `perform` of a dialect's module makes of a config, with the users' files and packages loaded.

    If it imports users' files itself, it sends the key `importing` before each, which then has the time limit of any import.
    """
    said = dict[str, Any]()
    for answer in _answers(place, Expand(sources, module, words), EXPANDING, LOADING):
        if isinstance(answer, Expanded):
            said |= answer.words
        elif isinstance(answer, Lost):
            if "importing" in said and not answer.fault:
                raise UnloadableFile(str(said["importing"]), answer)
            if answer.fault:
                raise UsageError(answer.fault.what, why=answer.fault.why, do=answer.fault.do, where=answer.fault.where)
            raise UsageError("the worker was lost while it expanded the config", why=answer.reason)
    return said


def _answers(place: Place, job: Describe | Expand, first: float, patience: float | None = None) -> Iterator[Answer | Lost]:
    """Yield the answers of a separate worker to one job: the first within `first` seconds, then each within `patience`."""
    mark = uuid.uuid4().hex
    talk = Conversation(start_fresh(place, mark))
    try:
        talk.ask(job, first if patience is None else patience, first)
        yield from talk.answers()
    finally:
        talk.worker.stop()
        end_orphans(mark, ())


def _unloadable(what: str, lost: Lost) -> UsageError:
    if lost.fault:
        return UsageError(f"could not load {what}: {lost.fault.what}", why=lost.fault.why, do=lost.fault.do, where=lost.fault.where)
    return UnloadableFile(what, lost)
