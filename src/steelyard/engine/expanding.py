"""Asking a worker to read a file in another system's language, where users' own code has a part in that."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from steelyard.engine.conversation import Conversation, Lost
from steelyard.engine.launch import start_fresh
from steelyard.engine.messages import Expand, Expanded, Sources
from steelyard.engine.place import Place
from steelyard.engine.process import end_orphans
from steelyard.errors import UsageError

PATIENCE = 600.0


def expand(place: Place, sources: Sources, module: str, words: Mapping[str, Any]) -> dict[str, Any]:
    """What `perform` of a module says to these words, with the users' files and packages loaded."""
    mark = uuid.uuid4().hex
    talk, said = Conversation(start_fresh(place, mark)), dict[str, Any]()
    try:
        talk.ask(Expand(sources, module, words), PATIENCE)
        for answer in talk.answers():
            if isinstance(answer, Expanded):
                said |= answer.words
            elif isinstance(answer, Lost):
                if answer.fault:
                    raise UsageError(answer.fault.what, why=answer.fault.why, do=answer.fault.do, where=answer.fault.where)
                raise UsageError("the worker was lost while it expanded the config", why=answer.reason)
        return said
    finally:
        talk.worker.stop()
        end_orphans(mark, ())
