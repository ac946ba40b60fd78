"""Run one bench file in a worker: import it, find its runner, call that with the arguments it takes, and report the outcome to
the conductor."""

from __future__ import annotations

import inspect
import json
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from steelyard import registry
from steelyard.engine.driving import Runner

OURS = ("preset", "variants")
"""Arguments passed only to benches that name them, because the original's runners lack them."""


class PipeLog(logging.Handler):
    """Sends a bench's log to the conductor, line by line."""

    def __init__(self, tell: Callable[[Mapping[str, Any]], None]) -> None:
        super().__init__()
        self.tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        """Send one line, with its level."""
        self.tell({"log": self.format(record), "level": record.levelname})


def run(file: Path, words: Sequence[str], runner: Runner, asked: Counter[str]) -> None:
    """Run a bench file; an exception of the bench ends the job and is reported as the bench's."""
    given = json.loads(words[0])
    log = logging.getLogger("benchmark_v2")
    log.setLevel(given.pop("log_level", "INFO"))
    log.propagate, log.handlers = False, [PipeLog(runner.tell)]
    registry.look_first([str(file.parent), str(file.parent.parent)])
    module = registry.load_file(file)
    function = getattr(module, f"run_{file.stem}", None) or getattr(module, "run_benchmark", None)
    if not callable(function):
        runner.tell({"outcome": "no_runner", "reason": f"{file.name} has neither run_{file.stem} nor run_benchmark"})
        return
    passed = taken(function, {"logger": log, **given})
    answer = None
    try:
        answer = function(**passed)
    except SystemExit as ending:
        if ending.code:
            raise
    skipped = answer is None and not asked.total() and "enable_mock" in passed and not given.get("enable_mock") and "mock" in file.stem
    path = str(answer) if isinstance(answer, (str, Path)) else ""
    runner.tell({"outcome": "skipped" if skipped else "completed", "path": path})


def taken(function: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments for a runner: those it names, or all of the original's if it takes any keyword."""
    parameters = inspect.signature(function).parameters
    anything = any(item.kind is item.VAR_KEYWORD for item in parameters.values())
    return {name: value for name, value in given.items() if name in parameters or (anything and name not in OURS)}
