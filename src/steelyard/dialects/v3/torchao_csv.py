"""Convert TorchAO's CSV files, with the columns of its guide or of its last version, to records of the database and back."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from steelyard.codec import torchao
from steelyard.codec.torchao import BASELINE_TIME, COLUMNS, FILES, QUANTIZED_TIME, SHAPE, SPEEDUP, SPEEDUPS, TIMES, form_of
from steelyard.dialects.v3.schema import VERSION
from steelyard.errors import UsageError

ACROSS = "Eager vs Compile Speedup (x)"
MEASURED: dict[str, dict[str, tuple[str, str]]] = {
    "seed": dict(zip(torchao.ONE_FORM, ((BASELINE_TIME, ""), (QUANTIZED_TIME, ""), (SPEEDUP, "")), strict=True)),
    "last": {
        TIMES["baseline_eager"]: (BASELINE_TIME, "false"), TIMES["quantized_eager"]: (QUANTIZED_TIME, "false"),
        TIMES["baseline_compiled"]: (BASELINE_TIME, "true"), TIMES["quantized_compiled"]: (QUANTIZED_TIME, "true"),
        SPEEDUPS["eager"]: (SPEEDUP, "false"), SPEEDUPS["compile"]: (SPEEDUP, "true"), SPEEDUPS["eager_vs_compile"]: (ACROSS, "true"),
    },
}  # fmt: skip
"""A column's metric, and whether it is of the compiled model; the guide has a separate column for that."""
IDENTITY = ("device", "sparsity", "high_precision_dtype", "torch_compile_mode", "model_type")
CARRIED = ("name", "output_dir", "enable_profiler", "enable_memory_profiler", *FILES)
"""Cells for which the database has no column; they are kept in the metric's extras, so that converting back loses nothing."""
MARK, ROW = "csv.columns", "csv.row"
NOTHING = ("", "None", "nan")
Row = dict[str, Any]


def read(text: str, where: str) -> list[Row]:
    """A record for every figure of every row, except empty ones."""
    reader = torchao.table(text, strict=True)
    made: list[Row] = []
    try:
        form = form_of(reader.fieldnames or ())
        if not form:
            raise UsageError("not a results file of TorchAO", why="its columns are neither the guide's nor the last version's", where=where)
        for row in reader:
            if "" in row:
                raise UsageError("a row has more cells than there are columns", where=f"{where}:{reader.line_num}")
            made += _records({key: value or "" for key, value in row.items()}, form, f"{where}:{reader.line_num}", reader.line_num)
    except csv.Error as error:
        raise UsageError(f"not a CSV file: {error}", where=f"{where}:{reader.line_num}") from None
    if not made:
        raise UsageError("no row has a figure", where=where)
    return made


def _records(row: Mapping[str, str], form: str, where: str, line: int) -> Iterator[Row]:
    carried = {f"csv.{key}": row[key] for key in CARRIED if row.get(key)} | {MARK: form, ROW: str(line)}
    compiled = row.get("use_torch_compile", "").lower()
    status = row.get("status", "").strip() or "ok"
    if status != "ok":
        carried |= {"status": status, "reason": row.get("reason", "")}
    for column, (name, use) in MEASURED[form].items():
        cell = row.get(column, "").strip()
        if cell in NOTHING and status == "ok":
            continue
        failed = status != "ok" and "baseline" not in column
        if failed and not name.endswith("(x)"):
            continue
        extra = {"unit": "x" if name.endswith("(x)") else "ms", "direction": "higher" if name.endswith("(x)") else "lower", **carried}
        values = [] if failed or cell in NOTHING else [_number(cell, column, where)]
        metric = {"name": name, "benchmark_values": values, "target_value": 0.0, "extra_info": extra}
        yield {**_common(row, use or ("true" if compiled == "true" else "false")), "metric": metric}


def _number(cell: str, column: str, where: str) -> float:
    try:
        found = float(cell)
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise UsageError(f"{column}: expected a number, not {cell[:60]!r}", where=where)
    return found


def _common(row: Mapping[str, str], compiled: str) -> Row:
    extra = {"use_compile": compiled, **{key: row.get(key, "") for key in IDENTITY}}
    sizes = [row[key] for key in SHAPE if row[key]]
    return {
        "schema_version": VERSION,
        "benchmark": {
            "name": torchao.API, "mode": torchao.benchmark_mode(row), "dtype": row.get("quantization", ""),
            "extra_info": {key: value for key, value in extra.items() if value},
        },
        "model": {
            "name": "-".join(sizes) or row.get("model_type", ""), "type": torchao.LAYER, "origins": ["torchao"],
        },
    }  # fmt: skip


def write(records: Sequence[Mapping[str, Any]], form: str = "") -> str:
    """The text of a CSV file: a row for every original row of the records, or for every case if they are not from such a file."""
    metrics = {name for columns in MEASURED.values() for name, _ in columns.values()}
    known = [record for record in records if _part(record, "metric").get("name") in metrics]
    if not known:
        why = f"only records of these metrics do: {', '.join(sorted(metrics))}"
        raise UsageError("no record fits a row of TorchAO's file", why=why)
    form = form or next((mark for record in known if (mark := _extra(record, "metric").get(MARK)) in COLUMNS), "last")
    rows: dict[tuple[str, ...], Row] = {}
    for record in known:
        rows.setdefault(_row_key(record, form), _shared(record)).update(_measured(record, form))
    made = io.StringIO()
    writer = csv.DictWriter(made, COLUMNS[form], lineterminator="\n", restval="", extrasaction="ignore")
    writer.writeheader()
    writer.writerows(rows.values())
    return made.getvalue()


def _part(record: Mapping[str, Any], column: str) -> Mapping[str, Any]:
    found = record.get(column)
    return found if isinstance(found, dict) else {}


def _extra(record: Mapping[str, Any], column: str) -> Mapping[str, Any]:
    return _part(_part(record, column), "extra_info")


def _row_key(record: Mapping[str, Any], form: str) -> tuple[str, ...]:
    benchmark, extra = _part(record, "benchmark"), _extra(record, "benchmark")
    told = [_part(record, "model").get("name"), benchmark.get("dtype")]
    told += [extra.get(key) for key in IDENTITY]
    told += [_extra(record, "metric").get(ROW), extra.get("use_compile") if form == "seed" else ""]
    return tuple(str(value or "") for value in told)


def _shared(record: Mapping[str, Any]) -> Row:
    """The cells of a row that say what was measured; a model's name ends in its shape."""
    extra, beside = _extra(record, "benchmark"), _extra(record, "metric")
    sizes = str(_part(record, "model").get("name", "")).split("-")[-3:]
    row: Row = dict(zip(SHAPE, sizes, strict=True)) if len(sizes) == 3 and all(size.isdecimal() for size in sizes) else {}
    row |= {"quantization": _part(record, "benchmark").get("dtype", ""), "use_torch_compile": str(extra.get("use_compile") == "true")}
    row |= {key: extra.get(key, "") for key in IDENTITY}
    return row | {key: beside.get(f"csv.{key}", "") for key in CARRIED}


def _measured(record: Mapping[str, Any], form: str) -> Row:
    metric, use = _part(record, "metric"), _extra(record, "benchmark").get("use_compile") or "false"
    values = metric.get("benchmark_values")
    found = [column for column, (name, of) in MEASURED[form].items() if name == metric.get("name") and of in ("", use)]
    return {found[0]: repr(values[0])} if found and isinstance(values, list) and values else {}
