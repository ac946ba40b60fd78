"""A result file as an experiment: the suite's benchmarks that it names are measured again.

Definitions are looked up by name among our own; modules that a file names are never imported.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from steelyard.analyze.foreign.parts import rows, table, word
from steelyard.dialects.openxla import catalogue, results
from steelyard.dialects.openxla.session import COMPILERS, ToolOptions, case_of, refused
from steelyard.engine.place import Place
from steelyard.errors import Mistakes, UsageError
from steelyard.files import RESULTS, read_whole
from steelyard.model.experiment import Experiment, ResultRow

kind = "OpenXLA result file"


def _data(path: Path) -> Any:
    try:
        return json.loads(read_whole(path, RESULTS)) if path.suffix.lower() == ".json" else None
    except (OSError, ValueError, RecursionError, UsageError):
        return None


def recognise(path: Path) -> bool:
    """Whether a file has the keys of a result file; a file that is not JSON is left to a reader that reports the mistake."""
    return results.fits(_data(path))


def read(path: Path, files: tuple[str, ...] = (), place: Place | None = None, device: str = "") -> Experiment:
    """Return an experiment of the file's benchmarks; a benchmark that the suite lacks is a mistake."""
    sizes = {size: {case.name: case for case in catalogue.of_suite(size).cases} for size in ("", "tiny", "small")}
    made, mistakes = dict[str, ResultRow](), list[UsageError]()
    for item in rows(_data(path)["benchmarks"]):
        told = table(item.get("definition"))
        name, compiler = word(told.get("benchmark_name")), word(told.get("compiler"))
        known = sizes.get(word(table(item.get("steelyard")).get("preset")), sizes[""])
        tool = catalogue.tool_of(known[name]) if name in known else ""
        if not tool:
            mistakes.append(UsageError(f"not in the suite: {name!r:.200}", do="yours: steelyard as openxla … --definitions DIR"))
            continue
        where = device or ("host-gpu" if "gpu" in word(told.get("device")) else "host-cpu")
        options = ToolOptions(tool, (), {"cpu": "host-cpu", "cuda": "host-gpu"}.get(where, where), path, compiler=compiler)
        if compiler not in COMPILERS[tool] or refused(options):
            mistakes.append(UsageError(f"{name}: {refused(options) or f'{tool} has no compiler {compiler!r:.40}'}"))
            continue
        made[f"{name} {compiler}"] = ResultRow(f"{name} {compiler}", (case_of(known[name], options),))
    if not made:
        raise Mistakes(mistakes, about=f"nothing in {path} can be run") if mistakes else UsageError(f"{path} names no benchmark")
    return Experiment(str(path), rows=tuple(made.values()), mistakes=tuple(str(mistake) for mistake in mistakes))
