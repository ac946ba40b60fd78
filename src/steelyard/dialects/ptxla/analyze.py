"""One table from all rows of a folder, as the original's result analyzer makes it, and a database of them that grows."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from steelyard.dialects.ptxla.rows import Row, RowTally, printable, read
from steelyard.errors import UsageError
from steelyard.terminal import save

REPORT = "metric_report"
AXES = ("accelerator", "accelerator_model", "xla", "xla_flags", "dynamo", "torch_xla2", "keep_model_data_on_cuda", "test", "batch_size")
COLUMNS = (
    "timestamp", "suite_name", "model_name", *AXES, "repeat", "iterations_per_run", "error_message", "median_total_time",
    "median_per_iter_time", "xla_median_trace_per_iter_time", "xla_compile_time", "dynamo_compile_time", "outputs_file",
)  # fmt: skip
DIMENSIONS = ("accelerator", "accelerator_model", "xla", "dynamo", "torch_xla2", "keep_model_data_on_cuda", "test")
ON_FAILURE = (
    "median_total_time", "median_per_iter_time", "xla_median_trace_per_iter_time", "xla_compile_time", "dynamo_compile_time",
)  # fmt: skip
NOT_SO = -1
"""The cell for a figure that does not apply, such as the time to trace without XLA."""
DEEPEST = 8


@dataclass(frozen=True)
class Order:
    """Options: what to analyze and how to write it; `timestamp` is for rows that have none."""

    folder: Path
    database: Path
    form: str = "csv"
    timestamp: float = 0.0
    hide_errors: bool = False


@dataclass(frozen=True)
class WrittenFiles:
    """The files written."""

    file: Path
    rows: int
    files: int


def analyze(order: Order, tally: RowTally) -> WrittenFiles:
    """Read every JSONL file of the folder but our own report, and write the report; a CSV goes into the database too."""
    if not order.folder.is_dir():
        raise UsageError(f"there is no folder {str(order.folder)!r}", do="name the runner's --output-dirname")
    files = sorted(path for path in order.folder.glob("*.jsonl") if path.is_file() and path.name != f"{REPORT}.jsonl")
    if not files:
        raise UsageError(f"no results in {str(order.folder)!r}", why="it has no .jsonl file", do="name the runner's --output-dirname")
    rows = [row for path in files for row in read(path, tally)]
    target = order.folder / f"{REPORT}.{order.form}"
    if order.form == "jsonl":
        save(target, "".join(f"{json.dumps(entry(row, order, tally))}\n" for row in rows))
    else:
        records = [record(row, order, tally) for row in rows]
        save(target, _encoded(table(records)))
        extend(order.database, records)
    return WrittenFiles(target, len(rows), len(files))


def record(row: Row, order: Order, tally: RowTally) -> dict[str, Any]:
    """Return a row of the CSV: fixed columns first, then five figures of each metric."""
    experiment = row.experiment
    found: dict[str, Any] = {
        "timestamp": row.timestamp if row.moment is not None else order.timestamp,
        "suite_name": row.model.get("suite_name"), "model_name": row.model["model_name"],
        **{axis: experiment.get(axis) for axis in AXES},
        "repeat": row.repeat, "iterations_per_run": row.iterations_per_run,
        "error_message": row.error if row.error and not order.hide_errors else None,
        "outputs_file": experiment.get("outputs_file") or row.others.get("outputs_file"),
    }  # fmt: skip
    return found if "error" in row.metrics else {**found, **figures(row, tally)}


def entry(row: Row, order: Order, tally: RowTally) -> dict[str, Any]:
    """Return a line of the JSONL: metrics apart from dimensions, and no booleans or nulls, which its database cannot store."""
    experiment, failed = row.experiment, "error" in row.metrics
    batch = experiment.get("batch_size")
    moment = row.moment if row.moment is not None else order.timestamp
    counts = {"batch_size": batch, "repeat": row.repeat, "iterations_per_run": row.iterations_per_run}
    metrics = {"timestamp": int(moment), **{key: NOT_SO if _number(value) is None else value for key, value in counts.items()}}
    told = {key: experiment.get(key) for key in DIMENSIONS}
    outputs = experiment.get("outputs_file") or row.others.get("outputs_file")
    dimensions = {"suite_name": row.model.get("suite_name"), "model_name": row.name, **told, "outputs_file": outputs}
    found: dict[str, Any] = {
        "metrics": {**metrics, **(dict.fromkeys(ON_FAILURE, NOT_SO) if failed else figures(row, tally))},
        "dimensions": {
            **{key: value if isinstance(value, str) else str(value) for key, value in dimensions.items()},
            "run_status": "failure" if failed else "success",
        },
    }  # fmt: skip
    return {**found, "error_message": row.error} if failed and not order.hide_errors else found


def figures(row: Row, tally: RowTally) -> dict[str, float]:
    """Return minimum, median and maximum of all repeats, mean and deviation of all but the first, and maximum minus median."""
    found: dict[str, float] = {}
    xla, dynamo = row.experiment.get("xla"), row.experiment.get("dynamo")
    for name, values in _series(row, tally):
        if name == "trace_per_iter_time" and not xla:
            found |= {f"{word}_{name}": NOT_SO for word in ("min", "median", "max", *(("mean", "std") if len(values) > 1 else ()))}
            continue
        known = [value for value in values if value is not None]
        if len(known) < len(values):
            tally.add(f"incomplete: a value of {printable(name, 60)} is null or not a number; the other values count", row.where)
        found |= _summary(name, known, [value for value in values[1:] if value is not None])
    if "max_total_time" in found:
        beyond = found["max_total_time"] - found["median_total_time"]
        found |= {"dynamo_compile_time": beyond if dynamo else NOT_SO, "xla_compile_time": beyond if xla else NOT_SO}
    return found


def _summary(name: str, known: Sequence[float], later: Sequence[float]) -> dict[str, float]:
    if not known:
        return {}
    found = {f"min_{name}": min(known), f"median_{name}": statistics.median(known), f"max_{name}": max(known)}
    if later:
        found |= {f"mean_{name}": float(np.mean(later)), f"std_{name}": float(np.std(later))}
    return found


def _series(row: Row, tally: RowTally) -> Iterator[tuple[str, list[float | None]]]:
    """Yield each metric as a list of numbers; tables, such as counters, as a list per entry: `dynamo_counters.stats.calls_captured`."""
    for name, values in row.metrics.items():
        listed = values if isinstance(values, list) else [values]
        if any(isinstance(value, dict) for value in listed):
            yield from _entries(str(name), [value if isinstance(value, dict) else {} for value in listed], DEEPEST)
        elif any(isinstance(value, str) for value in listed):
            tally.add(f"ignored: {printable(str(name), 60)} is text", row.where)
        else:
            yield str(name), [_number(value) for value in listed]


def _entries(name: str, tables: Sequence[Mapping[str, Any]], depth: int) -> Iterator[tuple[str, list[float | None]]]:
    """Yield lists from tables; an entry missing in one repeat is 0 there: an operator not called, a counter not increased."""
    for key in dict.fromkeys(key for table in tables for key in table):
        values = [table.get(key, 0) for table in tables]
        if any(isinstance(value, dict) for value in values):
            if depth:
                yield from _entries(f"{name}.{key}", [value if isinstance(value, dict) else {} for value in values], depth - 1)
        elif not any(isinstance(value, (str, list)) for value in values):
            yield f"{name}.{key}", [_number(value) for value in values]


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value) if math.isfinite(value) and abs(value) < 1e150 else None
    except OverflowError:
        return None


def table(records: Sequence[Mapping[str, Any]], columns: Sequence[str] | None = None, header: bool = True) -> str:
    """Return CSV with the fixed columns first, then the other columns of the rows in order of appearance."""
    names = list(columns or columns_of(records))
    written = io.StringIO()
    writer = csv.DictWriter(written, names, lineterminator="\n")
    if header:
        writer.writeheader()
    writer.writerows({name: _text(value) for name, value in record.items()} for record in records)
    return written.getvalue()


def columns_of(records: Iterable[Mapping[str, Any]], first: Iterable[str] = COLUMNS) -> list[str]:
    """The union of columns."""
    return list(dict.fromkeys([*first, *(name for record in records for name in record)]))


def _text(value: Any) -> Any:
    return value.replace("\0", "") if isinstance(value, str) else value


def extend(database: Path, records: Sequence[Mapping[str, Any]]) -> None:
    """Add rows to a CSV that may have other columns: matched by name, not by position; new columns go to the right."""
    try:
        if not database.exists() or database.stat().st_size == 0:
            database.parent.mkdir(parents=True, exist_ok=True)
            save(database, _encoded(table(records)))
            return
        held = _held(database)
        columns = columns_of(records, held)
        if columns != held:
            save(database, _encoded(table([*_rows(database), *records], columns)))
            return
        start = "" if _last_character(database) == b"\n" else "\n"
        with database.open("a", encoding="utf-8", errors="replace", newline="") as file:
            file.write(start + table(records, columns, header=False))
    except OSError as error:
        raise UsageError(f"cannot write {str(database)!r}", why=error.strerror or str(error)) from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{str(database)!r} is not a database of results", why=str(error)) from None


def _held(database: Path) -> list[str]:
    """Return the columns of a database."""
    with database.open(encoding="utf-8", newline="") as file:
        names = next(csv.reader(file), [])
    if not {"timestamp", "model_name"} <= set(names):
        raise UsageError(f"{str(database)!r} is not a database of results", why="its first line does not name the columns of one")
    return names


def _rows(database: Path) -> list[dict[str, Any]]:
    """Return the rows of a database; its messages may be long, and cells beyond its columns are dropped."""
    longest = csv.field_size_limit(2**31 - 1)
    try:
        with database.open(encoding="utf-8", newline="") as file:
            return [{name: value for name, value in record.items() if name is not None} for record in csv.DictReader(file)]
    finally:
        csv.field_size_limit(longest)


def _last_character(path: Path) -> bytes:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1)


def _encoded(text: str) -> bytes:
    """Encode as UTF-8; what cannot be encoded, such as half of a surrogate pair, becomes a question mark."""
    return text.encode("utf-8", "replace")
