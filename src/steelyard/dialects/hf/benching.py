"""One bench file in a worker: imported, its runner found and called with what it takes, and what became of it told to the conductor."""

from __future__ import annotations

import importlib.util
import inspect
import json
import logging
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from steelyard.engine.driving import Runner
from steelyard.errors import SteelyardError, told

OURS = ("preset", "variants")
"""What only benches that name it are given: the original's runners know nothing of it."""


class PipeLog(logging.Handler):
    """A bench's log, line by line to the conductor."""

    def __init__(self, tell: Callable[[Mapping[str, Any]], None]) -> None:
        super().__init__()
        self.tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        """One line, with its level."""
        self.tell({"log": self.format(record), "level": record.levelname})


def run(file: Path, words: Sequence[str], runner: Runner, asked: Counter[str]) -> None:
    """Do it; an error in the bench is told with its kind, and ends the job as a fault of the bench."""
    given = json.loads(words[0])
    level = given.pop("log_level", "INFO")
    log = logging.getLogger("benchmark_v2")
    log.setLevel(level)
    log.propagate = False
    log.handlers = [PipeLog(runner.tell)]
    function = found_runner(loaded(file), file.stem)
    if function is None:
        runner.tell({"outcome": "no_runner", "reason": f"{file.name} has neither run_{file.stem} nor run_benchmark"})
        return
    words_of = taken(function, {"logger": log, **given})
    answer = function(**words_of)
    skips = "enable_mock" in words_of and not given.get("enable_mock") and ("mock" in file.stem or "enable_mock" in named(function))
    skipped = answer is None and not asked.total() and skips
    path = str(answer) if isinstance(answer, (str, Path)) else ""
    runner.tell({"outcome": "skipped" if skipped else "completed", "path": path})


def loaded(file: Path) -> Any:
    """The bench file as a module; its folder and the one above are searched, as a run from there would."""
    for folder in (file.parent, file.parent.parent):
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise SteelyardError(f"the bench cannot be imported: {told(error, 500)}", where=_line(error, file)) from error
    return module


def _line(error: BaseException, file: Path) -> str:
    """The line of the bench that it came from."""
    if isinstance(error, SyntaxError) and error.filename == str(file):
        return f"{file}:{error.lineno}"
    lines = [line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == str(file)]
    return f"{file}:{lines[-1]}" if lines else str(file)


def found_runner(module: Any, stem: str) -> Callable[..., Any] | None:
    """`run_<name of the file>`, else `run_benchmark`."""
    found = getattr(module, f"run_{stem}", None) or getattr(module, "run_benchmark", None)
    return found if callable(found) else None


def named(function: Callable[..., Any]) -> set[str]:
    """The parameters that a function names."""
    parameters = inspect.signature(function).parameters.values()
    return {item.name for item in parameters if item.kind not in (item.VAR_KEYWORD, item.VAR_POSITIONAL)}


def taken(function: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """What a runner takes of what there is: what it names, or all of the original's words where it takes any."""
    known = named(function)
    anything = any(item.kind is item.VAR_KEYWORD for item in inspect.signature(function).parameters.values())
    return {name: value for name, value in given.items() if name in known or (anything and name not in OURS)}
