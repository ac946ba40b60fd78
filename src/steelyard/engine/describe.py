"""What users' own code says before anything is measured, asked of a worker, so that the conductor never imports it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from steelyard.engine.conversation import Conversation, Lost
from steelyard.engine.launch import start_fresh
from steelyard.engine.messages import Answer, Describe, Described, Expand, Expanded, Sources
from steelyard.engine.place import Place
from steelyard.engine.process import end_orphans
from steelyard.errors import UsageError
from steelyard.model.units import plain

LOADING, EXPANDING = 120.0, 600.0


def describe(place: Place, files: tuple[str, ...], entries: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    """The catalogue of what files and packages define, and the modules they import."""
    what = ", ".join([*files, *(name for _, name in entries)])
    for answer in _answers(place, Describe(Sources(files, entries, place.paths)), LOADING):
        if isinstance(answer, Described):
            return dict(answer.catalogue)
        if isinstance(answer, Lost):
            raise _unloadable(what, answer)
    raise UsageError(f"could not load {what}", why="the process that imported it gave no answer")


def expand(place: Place, sources: Sources, module: str, words: Mapping[str, Any]) -> dict[str, Any]:
    """What `perform` of a dialect's module makes of a file in its language, with the users' files and packages loaded.

    Where it imports users' files itself, it says so by the word `importing` before each, which may then take as long as any import.
    """
    said = dict[str, Any]()
    for answer in _answers(place, Expand(sources, module, words), EXPANDING, LOADING):
        if isinstance(answer, Expanded):
            said |= answer.words
        elif isinstance(answer, Lost):
            if answer.status == "timeout" and "importing" in said:
                raise _unloadable(said["importing"], answer)
            if answer.fault:
                raise UsageError(answer.fault.what, why=answer.fault.why, do=answer.fault.do, where=answer.fault.where)
            raise UsageError("the worker was lost while it expanded the config", why=answer.reason)
    return said


def _answers(place: Place, job: Describe | Expand, first: float, patience: float | None = None) -> Iterator[Answer | Lost]:
    """What a worker that does nothing else says to one job: within `first` seconds, and then each time within `patience`."""
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
    if lost.status == "timeout":
        return UsageError(f"could not load {what}", why=f"importing it takes more than {plain(LOADING, 's')}", do="does it loop?")
    return UsageError(f"could not load {what}", why="the process ended while importing it", do="import it with plain Python to see why")
