"""What users' files and packages define, asked of a worker, so that the conductor never imports them."""

from __future__ import annotations

import uuid
from typing import Any

from steelyard.engine.conversation import Conversation, Lost
from steelyard.engine.launch import start_fresh
from steelyard.engine.messages import Describe, Described, Sources
from steelyard.engine.place import Place
from steelyard.engine.process import end_orphans
from steelyard.errors import UsageError

PATIENCE = 120.0


def describe(place: Place, files: tuple[str, ...], entries: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    """The catalogue of what they define, and the modules they import."""
    mark = uuid.uuid4().hex
    talk = Conversation(start_fresh(place, mark))
    what = ", ".join([*files, *(name for _, name in entries)])
    try:
        talk.ask(Describe(Sources(files, entries, place.paths)), PATIENCE)
        for answer in talk.answers():
            if isinstance(answer, Described):
                return dict(answer.catalogue)
            if isinstance(answer, Lost):
                raise _unloadable(what, answer)
        raise UsageError(f"could not load {what}", why="the process that imported it gave no answer")
    finally:
        talk.worker.stop()
        end_orphans(mark, ())


def _unloadable(what: str, lost: Lost) -> UsageError:
    if lost.fault:
        return UsageError(f"could not load {what}: {lost.fault.what}", why=lost.fault.why, do=lost.fault.do, where=lost.fault.where)
    if lost.status == "timeout":
        return UsageError(f"could not load {what}", why="importing it takes more than two minutes")
    return UsageError(f"could not load {what}", why="the process ended while importing it", do="import it with plain Python to see why")
