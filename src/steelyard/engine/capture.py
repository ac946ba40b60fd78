"""Execution traces of a case or of a user's script, on the conductor's side: one worker, or one for each rank."""

from __future__ import annotations

import socket
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steelyard.engine import conduct
from steelyard.engine.conversation import Conversation, Lost, listen
from steelyard.engine.launch import start_fresh
from steelyard.engine.messages import Expand, Expanded, Sources
from steelyard.engine.place import Place
from steelyard.engine.process import end_orphans
from steelyard.engine.selection import Request
from steelyard.errors import SteelyardError, UsageError
from steelyard.store.runs import Store

RECORDER = "steelyard.engine.recording"
OBSERVER = "execution_trace_observer"
"""Text in log lines of PyTorch's recorder; they do not explain a failure and are skipped."""


@dataclass(frozen=True)
class Captured:
    """What one rank recorded: its trace, the profiler's trace, and how long a step takes without recording, if known."""

    trace: Path
    profile: Path | None = None
    step_seconds: float | None = None


def capture_case(request: Request, store: Store, output: Path, timeout: float, *, profile: bool, resources: bool) -> Captured:
    """Record one call of the single case that a request selects."""
    ready = conduct.prepare(request, store)
    if len(ready.jobs) != 1:
        named = ", ".join(job.case.id for job in ready.jobs[:3])
        raise UsageError(f"{len(ready.jobs)} cases are selected", why=named, do="name one by its id, or narrow it with -a and --mode")
    (job,) = ready.jobs
    if job.case.ranks > 1:
        raise UsageError("a case of several ranks cannot be recorded", do="record a script with --ranks")
    words = {"case": job.case.plain(), "profile": profile, "resources": resources, "output": str(output.absolute())}
    return _recorded([job.place], ready.sources_of(job), words, timeout)[0]


@dataclass(frozen=True)
class ScriptRecording:
    """A script to record: in how many processes, with how many threads each, and which steps of its training.

    Without a number of ranks it runs as one process, without torchrun's variables.
    """

    file: Path
    argv: tuple[str, ...] = ()
    ranks: int | None = None
    threads: int = 1
    steps: tuple[int, int] | None = None


def capture_script(script: ScriptRecording, output: Path, timeout: float, *, profile: bool, resources: bool) -> list[Captured]:
    """Record a script: once, or in several processes that find each other as torchrun's do."""
    if not script.file.is_file():
        raise UsageError("there is no such file", do="name the Python file that is to be run", where=str(script.file))
    words = {
        "script": str(script.file.absolute()), "argv": list(script.argv), "steps": list(script.steps) if script.steps else None,
        "profile": profile, "resources": resources, "output": str(output.absolute()),
    }  # fmt: skip
    port = _free_port()
    flags = [_flags(rank, script.ranks, port) for rank in range(script.ranks)] if script.ranks else [()]
    places = [Place(threads=script.threads, flags=each) for each in flags]
    return _recorded(places, Sources(), words, timeout)


def _flags(rank: int, ranks: int, port: int) -> tuple[tuple[str, str], ...]:
    """Return the environment variables for one process of a distributed job."""
    told = {
        "RANK": rank,
        "LOCAL_RANK": rank,
        "WORLD_SIZE": ranks,
        "LOCAL_WORLD_SIZE": ranks,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
    }
    return ("MASTER_ADDR", "127.0.0.1"), *((name, str(value)) for name, value in told.items())


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _recorded(places: Sequence[Place], sources: Sources, words: Mapping[str, Any], timeout: float) -> list[Captured]:
    """Return each worker's recording; if a worker is lost the other workers are ended, since they would wait for it."""
    mark = uuid.uuid4().hex
    talks = [Conversation(start_fresh(place, mark)) for place in places]
    found: dict[int, Captured] = {}
    try:
        for talk in talks:
            talk.ask(Expand(sources, RECORDER, words), timeout)
        while waiting := [talk for talk in talks if not talk.over]:
            for talk, answer in listen(waiting):
                if isinstance(answer, Expanded):
                    found[talks.index(talk)] = _captured(answer.words)
                elif isinstance(answer, Lost):
                    raise _failure(answer, talks.index(talk), len(talks))
    finally:
        for talk in talks:
            talk.worker.stop()
        end_orphans(mark, ())
    if len(found) < len(talks):
        raise SteelyardError("a worker ended without an answer")
    return [found[number] for number in range(len(talks))]


def _captured(words: Mapping[str, Any]) -> Captured:
    profile = words.get("profile")
    return Captured(Path(words["trace"]), Path(profile) if profile else None, words.get("step_seconds"))


def _failure(lost: Lost, rank: int, ranks: int) -> UsageError:
    who = f"rank {rank}: " if ranks > 1 else ""
    if lost.fault:
        return UsageError(f"{who}{lost.fault.what}", why=lost.fault.why, do=lost.fault.do, where=lost.fault.where)
    last = next((line.strip() for line in reversed(lost.stderr.splitlines()) if line.strip() and OBSERVER not in line), "")
    return UsageError(f"{who}nothing was recorded: {lost.reason}", why=last[:300] if last not in lost.reason else "")
