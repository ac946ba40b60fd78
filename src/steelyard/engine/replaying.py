"""Gets facts about a trace from a worker: a script of its replay, and the operators that cannot be called there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steelyard.engine import describe, envs
from steelyard.engine.messages import Sources
from steelyard.engine.place import Place
from steelyard.files import real

MODULE = "steelyard.workloads.traces.script"


@dataclass(frozen=True)
class ReplayScript:
    """The text of a script, and which operators of the trace are in it."""

    text: str
    facts: Mapping[str, Any]


def replay_script(file: Path, device: str, env: str, words: Mapping[str, Any]) -> ReplayScript:
    """A replay as a Python script; `words` are parameters of the replay, and `output`, `warmup` and `iterations` of the script."""
    said = _ask(file, device, env, words)
    return ReplayScript(said["script"], said["facts"])


def failing_operators(file: Path, device: str, env: str, words: Mapping[str, Any]) -> dict[str, str]:
    """The operators of a trace that cannot be called, with the reason of each; without those that the user skips."""
    return dict(_ask(file, device, env, {**words, "failing": True})["failing"])


def _ask(file: Path, device: str, env: str, words: Mapping[str, Any]) -> dict[str, Any]:
    """Get the answer from a worker, because only workers have torch."""
    place = envs.place(env) if env else Place()
    return describe.expand(place, Sources(), MODULE, {**words, "file": str(real(file)), "device": device})
