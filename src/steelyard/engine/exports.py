"""Exporting a case's programs, in a worker that has the case's framework and an exporter: each in its own file, reported one by one.

An exporter that ends the process loses the program that it was making; those reported before are kept.
"""

from __future__ import annotations

import contextlib
import importlib
import tempfile
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from steelyard import files, registry
from steelyard.artifacts.forms import mismatch
from steelyard.engine.bench import prepare_bench
from steelyard.engine.messages import Export, Exported, Phase
from steelyard.engine.worker import Send
from steelyard.errors import NotApplicable, SteelyardError, Unsupported, told
from steelyard.exporters import subjects
from steelyard.exporters.subjects import Exportable
from steelyard.exporters.ways import SCRATCH, WAYS, ExportWay, chosen

ARRAYS = "arrays"
SHARES = {"tflite_fp16": 0.02, "tflite_dynamic_range_quant": 0.1, "tflite_int8": 0.25}
"""Allowed error of quantised programs' outputs, as shares of the largest number in the model's own outputs."""
LONGEST = 1500


def perform(job: Export, loaded: registry.Loaded, send: Send) -> None:
    """Make the requested files in order; first the arrays with the programs' inputs."""
    ways = [way for word in job.programs for way in chosen(job.case.backend, (word,))]
    folder = Path(job.folder)
    subject: Exportable | None = None
    largest = float(job.largest)
    with tempfile.TemporaryDirectory(prefix=SCRATCH, dir=folder, ignore_cleanup_errors=True) as scratch:
        if any(not way.source for way in ways) or job.arrays:
            send(Phase(ARRAYS))
            subject, facts = prepare(job, loaded)
            subject.kept["scratch"] = scratch
            inputs, outputs, largest = subjects.record(subject, Path(scratch) if not job.arrays else folder, outputs=job.arrays)
            found: dict[str, Any] = {
                "inputs": list(map(asdict, inputs)),
                "outputs": list(map(asdict, outputs)),
                "largest": largest,
                **facts,
            }
            if job.arrays:
                found["tolerance"] = asdict(subjects.tolerance_of(subject.task, largest, outputs))
            else:
                largest = float(job.largest)
            send(Exported(ARRAYS, "ok", found))
        for way in ways:
            send(Phase(way.key))
            send(_made(way, subject, folder, largest))


def prepare(job: Export, loaded: registry.Loaded) -> tuple[Exportable, dict[str, Any]]:
    """Return the case as exporters need it: for inference, and without variants that compile, since the program's reader does that."""
    if job.case.mode != "eval":
        raise NotApplicable(f"programs are exported for inference, not for mode {job.case.mode}", do="--mode eval")
    bench = prepare_bench(job.case, loaded, job.settings)
    usual = registry.about_backend(job.case.backend).usual
    bench = replace(
        bench, chain=tuple((variant, options) for variant, options in bench.chain if not variant.fresh and variant.name != usual)
    )
    be, task = bench.build()
    module = importlib.import_module(f"steelyard.exporters.{job.case.backend}")
    found: Exportable = module.prepare(task, be)
    return found, {"versions": be.versions(), "weights": str(task.effective.get("weights", "seeded"))}


def _made(way: ExportWay, subject: Exportable | None, folder: Path, largest: float) -> Exported:
    """Make one program, or report why there is none; a file that a failed exporter left is removed."""
    path = folder / way.file
    try:
        module, _, name = way.make.partition(":")
        make: Callable[[Any, Path, str], dict[str, Any]] = getattr(importlib.import_module(f"steelyard.exporters.{module}"), name)
        source = _source(way, folder) if way.source else subject
        words = make(source, path, way.kind)
        if not path.is_file() or not path.stat().st_size:
            raise SteelyardError(f"{way.file} was not written", why="its exporter raised no error")
        if trouble := mismatch(path, way.form):
            raise SteelyardError(f"{way.file} {trouble}", why="its exporter wrote something else")
        if way.kind in SHARES and largest:
            words["tolerance"] = {"atol": SHARES[way.kind] * largest, "rtol": 0.0}
        return Exported(way.key, "ok", words)
    except ModuleNotFoundError as error:
        return _gone(way, path, "unsupported", f"{error.name} is not installed here", f"steelyard env create {way.stack}")
    except (Unsupported, NotApplicable) as error:
        return _gone(way, path, "unsupported", told(error, LONGEST), "")
    except Exception as error:  # exporters may raise anything; a failure loses only its own program
        return _gone(way, path, "failed", told(error, LONGEST), files.no_room(folder))


def _source(way: ExportWay, folder: Path) -> Path:
    before = next(item for item in WAYS if (item.framework, item.key) == (way.framework, way.source))
    if not (folder / before.file).is_file():
        raise Unsupported(f"it is made from {before.file}, which does not exist")
    return folder / before.file


def _gone(way: ExportWay, path: Path, status: str, reason: str, do: str) -> Exported:
    with contextlib.suppress(OSError):
        path.unlink()
    return Exported(way.key, status, {"reason": reason, "do": do})
