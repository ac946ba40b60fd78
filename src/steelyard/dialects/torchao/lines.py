"""The output for a measured row: the original's CSV columns, console table and CI records, and our own columns."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from steelyard.codec import torchao
from steelyard.codec.torchao import BOUNDS, COLUMNS, ONE_FORM, PEAK, RUNNABLE, SPEEDUP_OF_GUIDE, SPEEDUPS, TIMES, Form, Question
from steelyard.dialects.torchao.layers import DTYPES, OWN_SIZES, LayerRow, shape_text
from steelyard.model.pair import Delta
from steelyard.model.record import Record

Line = dict[str, Any]
"""A value for each column of both forms; unknown values are None."""
ACCURACY = ("sqnr", "sqnr_outliers", "cosine", "max_error", "mean_error")
MAIN = ("speedup_low", "speedup_high", "verdict")
OURS = (
    "status", "reason", "shape_name", *MAIN, *TIMES.values(), *SPEEDUPS.values(),
    *(name for names in BOUNDS.values() for name in names), *ACCURACY, "model_bytes", "baseline_model_bytes", "threads", "noise",
    "case", "run", "notes",
)  # fmt: skip
SPREAD = {"speedup": MAIN[:2], **{SPEEDUPS[question]: names[:2] for question, names in BOUNDS.items()}}
"""The columns with the bounds of each speedup."""
CELLS = {
    "seed": dict(zip(("Baseline Inference Time (ms)", "Inference Time (ms)", "Speedup"), ONE_FORM, strict=True)),
    "last": {
        "Eager Baseline Inference Time (ms)": TIMES["baseline_eager"], "Eager Model Inference Time (ms)": TIMES["quantized_eager"],
        "Eager Speedup": SPEEDUPS["eager"], "Compile Baseline Inference Time (ms)": TIMES["baseline_compiled"],
        "Compile Model Inference Time (ms)": TIMES["quantized_compiled"], "Compile Speedup": SPEEDUPS["compile"],
        "Eager vs Compile Speedup": SPEEDUPS["eager_vs_compile"],
    },
}  # fmt: skip
"""The console table's columns of measured values."""
WRITTEN = {
    "seed": (*COLUMNS["seed"], *(name for name in OURS if name not in COLUMNS["seed"])),
    "last": (*COLUMNS["last"], *(name for name in OURS if name not in (*COLUMNS["last"], *MAIN))),
}
"""The original's columns, followed by ours."""
DIGITS, TIME_DIGITS = 4, 9


def config_line(row: LayerRow) -> Line:
    """Return the columns that are known before a row is measured."""
    told = dict.fromkeys((*COLUMNS["seed"], *OURS)) | row.sizes
    return told | {
        "name": row.name, "quantization": row.quantization, "sparsity": row.sparsity, "use_torch_compile": bool(row.use_compile),
        "high_precision_dtype": DTYPES[row.dtype] if "dtype" in row.params else None, "device": row.device,
        "torch_compile_mode": None if row.use_compile is False else row.mode, "model_type": row.model_type, "output_dir": row.output_dir,
        "enable_profiler": row.profiler, "enable_memory_profiler": row.memory_profiler, "notes": row.note or None,
        "shape_name": row.shape.name if row.sizes else OWN_SIZES,
    }  # fmt: skip


def untried(row: LayerRow) -> Line:
    """Return the line of a row that cannot be measured, such as one with a wrong name."""
    return config_line(row) | {"status": "failed", "reason": row.trouble}


def measured(row: LayerRow, records: Mapping[Form, Record], deltas: Mapping[Question, Delta | str], run: str) -> Line:
    """Return the line of a measured row; a comparison that was not made has its reason instead of a speedup."""
    line = config_line(row)
    base, recipe, main = torchao.FORMS[bool(row.use_compile)]
    for form, record in records.items():
        if "time" in record.metrics:
            line[TIMES[form]] = round(record.metrics["time"].value * 1e3, TIME_DIGITS)
    for question, delta in deltas.items():
        if isinstance(delta, Delta) and delta.ratio and delta.low and delta.high:
            bounds = (1 / delta.high, 1 / delta.low)
            line[SPEEDUPS[question]] = round(1 / delta.ratio, DIGITS)
            line |= dict(zip(BOUNDS[question], (*(round(bound, DIGITS) for bound in bounds), delta.verdict), strict=True))
    subject = base if row.is_baseline else recipe
    line |= dict(zip(ONE_FORM, (line[TIMES[base]], line[TIMES[subject]], line[SPEEDUPS[main]]), strict=True))
    line |= dict(zip(MAIN, (line[name] for name in BOUNDS[main]), strict=True))
    return line | _standing(records, deltas) | _figures(records) | {"case": row.subject.id, "run": run}


def _standing(records: Mapping[Form, Record], deltas: Mapping[Question, Delta | str]) -> Line:
    """Return the status, and the reason of the first failure with the part of the row in which it occurred."""
    for form, record in records.items():
        if record.status != "ok":
            return {"status": record.status, "reason": f"{form.replace('_', ' ')}: {record.reason}"}
    missing = [f"{question.replace('_', ' ')}: not compared: {why}" for question, why in deltas.items() if isinstance(why, str)]
    return {"status": "failed", "reason": missing[0]} if missing else {"status": "ok"}


def _figures(records: Mapping[Form, Record]) -> Line:
    """Return accuracy, sizes, threads and noise grade of the last form that was measured."""
    last = ([record for record in records.values() if record.metrics] or [*records.values()])[-1]
    found: Line = {name: last.metrics[name].value for name in (*ACCURACY, "model_bytes") if name in last.metrics}
    told = {"baseline_model_bytes": "bytes_before", "threads": "threads", "noise": "noise"}
    return found | {column: last.effective[name] for column, name in told.items() if name in last.effective}


def csv_text(lines: Sequence[Line], form: str, *, header: bool = True) -> str:
    """Return rows as CSV in the original's format: None is empty, and text that a spreadsheet would run gets a leading quote."""
    file = io.StringIO()
    writer = csv.writer(file)
    if header:
        writer.writerow(WRITTEN[form])
    rows = ([_one_line(line[name]) for name in WRITTEN[form]] for line in lines)
    writer.writerows([f"'{cell}" if str(cell).startswith(RUNNABLE) and isinstance(cell, str) else cell for cell in row] for row in rows)
    return file.getvalue()


def _one_line(value: Any) -> Any:
    """Return text without line breaks, so that a row is one line for other tools too."""
    return re.sub(r"[\x00-\x1f\x7f]+", " ", value) if isinstance(value, str) else value


def table(lines: Sequence[Line], form: str) -> str:
    """Return the original's grid; a row without a speedup shows its status instead."""
    from tabulate import tabulate  # type: ignore[import-untyped]

    rows = [
        [line["name"], line["quantization"], line["sparsity"] or "none", shape_text(line["shape_name"], _sizes(line)),
         *(_cell(line, name) for name in CELLS[form].values()), str(line["enable_profiler"])]
        for line in lines
    ]  # fmt: skip
    heads = ["Name", "Quantization", "Sparsity", "Shape", *CELLS[form], "Profiler Enabled"]
    return str(tabulate(rows, heads, "grid", disable_numparse=True))


def _sizes(line: Line) -> list[int]:
    return [line[axis] for axis in torchao.SHAPE if line[axis] is not None]


def _cell(line: Line, name: str) -> str:
    if line[name] is None:
        return str(line["status"]) if name in SPREAD and line["status"] != "ok" else "-"
    if name not in SPREAD:
        return f"{line[name]:.4g}"
    low, high = SPREAD[name]
    return f"{line[name]:.2f}x [{line[low]:.2f}, {line[high]:.2f}]"


def ci_text(lines: Sequence[Line], form: str, arches: Mapping[str, str]) -> str:
    """The JSON for PyTorch's benchmark database; `arches` are the names of devices by kind."""
    made = [record for line in lines for record in _records(line, form, arches.get(line["device"], "unknown"))]
    return json.dumps(made, indent=2)


def _records(line: Line, form: str, arch: str) -> list[dict[str, Any]]:
    """Return the one record of a row, or the last version's four, which are about the compiled form."""
    if form == "seed":
        return [_record(line, arch, "", SPEEDUP_OF_GUIDE, line["speedup"], "x", SPREAD["speedup"])]
    peaks = line["memory_stats"] or {}
    asked: tuple[tuple[Any, ...], ...] = (
        (torchao.SPEEDUP, line[SPEEDUPS["compile"]], "x", BOUNDS["compile"][:2]),
        (torchao.BASELINE_TIME, line[TIMES["baseline_compiled"]], "ms"),
        (torchao.QUANTIZED_TIME, line[TIMES["quantized_compiled"]] if line["status"] == "ok" else None, "ms"),
        (torchao.MEMORY, peaks.get(PEAK, peaks.get("peak_memory")), "MB"),
    )
    return [_record(line, arch, f"{line['quantization']}-", *one) for one in asked]


def _record(line: Line, arch: str, prefix: str, name: str, value: Any, unit: str, bounds: Sequence[str] = ()) -> dict[str, Any]:
    """Return one record: the original's keys, and ours as text in `extra_info`, since the database takes only text there."""
    compiled = bool(prefix) or line["use_torch_compile"]
    how = {"device": line["device"], "arch": arch} | ({"torch_compile_mode": line["torch_compile_mode"]} if prefix else {})
    ours = {
        "sparsity": line["sparsity"] or "none", "use_compile": str(compiled).lower(), "name": line["name"],
        "model_type": line["model_type"], "high_precision_dtype": line["high_precision_dtype"], "shape_name": line["shape_name"],
    } | ({"torch_compile_mode": line["torch_compile_mode"]} if compiled and not prefix else {})  # fmt: skip
    more = {"unit": unit, "better": "higher" if unit == "x" else "lower", "status": line["status"], "reason": _one_line(line["reason"])}
    more |= dict(zip(("ci_low", "ci_high"), (line[bound] for bound in bounds), strict=False)) | {"case": line["case"]}
    if value is None and line["status"] == "ok":
        more["reason"] = "not measured" if name != SPEEDUP_OF_GUIDE else "the baseline has no speedup over itself"
    return {
        "benchmark": {
            "name": torchao.API, "mode": line["output_dir"].rpartition("/")[2], "dtype": line["quantization"],
            "extra_info": {key: item for key, item in {**how, **ours}.items() if item is not None},
        },
        "model": {
            "name": prefix + ("-".join(map(str, _sizes(line))) or line["model_type"]), "type": torchao.LAYER, "origins": ["torchao"],
        },
        "metric": {
            "name": name, "benchmark_values": [] if value is None else [value], "target_value": 0.0,
            "extra_info": {key: str(item) for key, item in more.items() if item is not None},
        },
        "runners": [],
        "dependencies": {},
    }  # fmt: skip
