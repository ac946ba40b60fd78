"""Results of TritonBench, and of every other tool whose files Steelyard reads, as records of the database."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from steelyard.analyze.foreign import read_file
from steelyard.analyze.foreign.metric_names import SHOWN
from steelyard.dialects.v3 import export
from steelyard.model.record import Record
from steelyard.store.runs import Run

PREFIX = "foreign/tritonbench:"
NAMES = {"time": "latency (ms)", "compute": "tflops", "bandwidth": "gbps"}
_MODE = re.compile(r"_(fwd_no_grad|fwd_bwd|fwd|bwd)$")
Row = dict[str, Any]


def read(path: Path) -> list[Row]:
    """All records of a file; a failed case has a record with its status and no value."""
    return [record for run in read_file(path) for record in of_run(run)]


def of_run(run: Run) -> list[Row]:
    """A run as records, with an operator, its input and its implementation in their own columns.

    A machine that the file does not name is left out, so that the metadata of the CI job can add it.
    """
    known = {record.id: record for record in run.records}
    made = export.records(run)
    nowhere = not (run.header.machine.get("cpu") or run.header.machine.get("gpus"))
    for row in made:
        if nowhere:
            del row["runners"]
        id = row["benchmark"]["extra_info"]["case"]
        if id.startswith(PREFIX):
            _place(row, known[id])
    return made


def _place(row: Row, record: Record) -> None:
    operator, _, rest = record.id.removeprefix(PREFIX).partition(" ")
    point, _, provider = rest.rpartition(" ")
    mode = _MODE.search(operator)
    name = operator[: mode.start()] if mode else operator
    metric = row["metric"]
    figure = metric["extra_info"]["figure"]
    unit = SHOWN.get(record.metrics[figure].unit, ("", 1.0))[0] if figure in record.metrics else ""
    metric["name"] = NAMES.get(figure, metric["name"]) if unit or figure == "time" else metric["name"]
    row["benchmark"] = {
        "name": "tritonbench", "mode": mode[1] if mode else "", "dtype": "", "extra_info": {"x": point} if point else {},
    }  # fmt: skip
    row["model"] = {"name": name, "type": "tritonbench", "backend": provider or "unknown", "origins": ["tritonbench"]}
    row["inputs"] = {"x": {"dtype": "", "extra_info": {"x_val": point}}} if point else {}
