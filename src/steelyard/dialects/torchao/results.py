"""TorchAO's result files for compare, gate, show and report: its CSV of both versions, and its records for CI of both."""

from __future__ import annotations

import ast
import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from steelyard.analyze.foreign.parts import (
    ForeignResult,
    ForeignSource,
    number,
    rows,
    status_of,
    table,
    text,
    time_of,
    word,
)  # fmt: skip
from steelyard.dialects.torchao.layers import BASELINE, Question, sparse_variant
from steelyard.dialects.torchao.lines import ACCURACY, BOUNDS, CONFIG, PEAK, SEED_METRIC, SPEEDUPS, TIMES
from steelyard.errors import UsageError
from steelyard.model.case import Case
from steelyard.model.record import Figure, Status

START = CONFIG[:6]
API = "micro-benchmark api"
MILLI, MEGA = 1e-3, 1e6
LONGEST_FIELD = 100_000
WRITTEN = re.compile(r"results_(\d{8}_\d{6})(_\d+)?")
SHAPE = re.compile(r"(?:.+-)?(\d{1,12})-(\d{1,12})-(\d{1,12})")
METRICS = {"Fwd Speedup (x)": "speedup", SEED_METRIC: "speedup", "Quantized Fwd Time (ms)": "time", "Bfloat16 Fwd Time (ms)": "base",
           "Allocated Memory (MB)": "peak_allocated"}  # fmt: skip
"""What the records of CI measure, by what we call it."""
Row = Mapping[str, Any]


@dataclass(frozen=True)
class CsvRows:
    """The rows of a CSV file by column; a line that was cut short has fewer."""

    rows: Sequence[Row]


def lines(content: bytes, name: str) -> CsvRows | None:
    """The rows of such a file; None where it is none."""
    if not content.startswith(",".join(START).encode()):
        return None
    try:
        return CsvRows(list(csv.DictReader(io.StringIO(content.decode("utf-8", "replace"), newline=""))))
    except csv.Error:
        return None


def fits(data: Any) -> bool:
    """What `lines` gave, or a list of records of its API."""
    found = rows(data)[:1]
    return isinstance(data, CsvRows) or any(table(row.get("benchmark")).get("name") == API and "metric" in row for row in found)


def read(data: Any, path: Path) -> ForeignSource:
    """A result for each form of each row, by the case of ours that it is like; of two with one case the last that is ok counts."""
    if isinstance(data, CsvRows):
        found = [result for row in data.rows for result in _of_row(row)]
        devices = {word(row.get("device")) for row in data.rows}
    else:
        listed = rows(data)
        found = list(_of_records(listed))
        devices = {word(table(table(row.get("benchmark")).get("extra_info")).get("arch")) for row in listed}
    results: dict[str, ForeignResult] = {}
    for result in found:
        if result.status == "ok" or result.name not in results or results[result.name].status != "ok":
            results[result.name] = _merged(results.get(result.name), result)
    names = ", ".join(sorted(text(name) for name in devices if name))
    moment = WRITTEN.fullmatch(path.stem)
    created = _moment(moment[1]) if moment else ""
    return ForeignSource(list(results.values()), created, {"accelerator": names})


def _moment(written: str) -> str:
    try:
        return datetime.strptime(written, "%d%m%Y_%H%M%S").isoformat()
    except ValueError:
        return ""


def _merged(known: ForeignResult | None, new: ForeignResult) -> ForeignResult:
    """A baseline stands in every row that is held against it, timed anew each time: all of its times count."""
    if known is None or known.status != "ok" or not known.processes or set(new.processes[0]) != {"time"}:
        return new
    return ForeignResult(new.name, [*known.processes, *new.processes], "ok", "", new.case)


def _of_row(row: Row) -> Iterator[ForeignResult]:
    """The forms that a row of a CSV has times for; one that has none at all is told by its recipe."""
    last = TIMES["quantized_eager"] in row and not row.get("model_inference_time_in_ms")
    if last:
        yield from _of_last(row)
        return
    compiled = word(row.get("use_torch_compile")) == "True"
    mode = word(row.get("torch_compile_mode")) if compiled else ""
    if base := _time(row.get("baseline_inference_time_in_ms")):
        yield _result(row, "", mode, {"time": base}, compiled=compiled)
    if row.get("quantization") == BASELINE and not row.get("sparsity") and base:
        return
    figures = _figures(row, row.get("model_inference_time_in_ms"), {"speedup": ("speedup", "speedup_low", "speedup_high")})
    yield _result(row, _recipe(row), mode, figures, compiled=compiled)
    if TIMES["quantized_compiled"] in row and row.get(TIMES["quantized_compiled"]) and not compiled:
        yield from (result for result in _of_last(row) if result.case and "compile" in result.case["variant"])


def _of_last(row: Row) -> Iterator[ForeignResult]:
    mode = word(row.get("torch_compile_mode"))
    plain = row.get("quantization") == BASELINE and not row.get("sparsity")
    wanted: tuple[tuple[bool, Question], ...] = ((False, "eager"), (True, "compile"))
    for compiled, question in wanted:
        ending = "compiled" if compiled else "eager"
        if base := _time(row.get(f"baseline_model_{ending}_inference_time_in_ms")):
            yield _result(row, "", mode, {"time": base}, compiled=compiled)
        if plain and base:
            continue
        speedups = {"speedup": (SPEEDUPS[question], *BOUNDS[question][:2])}
        if compiled:
            speedups["compile_speedup"] = (SPEEDUPS["eager_vs_compile"], *BOUNDS["eager_vs_compile"][:2])
        figures = _figures(row, row.get(f"quantized_model_{ending}_inference_time_in_ms"), speedups)
        yield _result(row, _recipe(row), mode, figures, compiled=compiled)


def _time(value: Any) -> Figure | None:
    return time_of([value], MILLI)


def _figures(row: Row, time: Any, speedups: Mapping[str, tuple[str, ...]]) -> dict[str, Figure]:
    found = {"time": figure} if (figure := _time(time)) else {}
    for name, (value, low, high) in speedups.items():
        if (speedup := number(row.get(value))) is not None and speedup > 0:
            found[name] = Figure(speedup, "x", "higher", number(row.get(low)), number(row.get(high)))
    for name in ACCURACY:
        if (error := number(row.get(name))) is not None:
            better = "higher" if name in ("sqnr", "cosine") else "lower"
            found[name] = Figure(error, "dB" if name == "sqnr" else "1", better)  # type: ignore[arg-type]
    for name, size in (("model_bytes", number(row.get("model_bytes"))), ("peak_allocated", _peak(row.get("memory_stats")))):
        if size is not None and size >= 0:
            found[name] = Figure(size, "B", "lower")
    return found


def _peak(value: Any) -> float | None:
    """The peak in the dictionary that the original writes as Python's text."""
    said = word(value)
    if not said.startswith("{") or len(said) > LONGEST_FIELD:
        return None
    try:
        peak = number(table(ast.literal_eval(said)).get(PEAK))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    return peak * MEGA if peak is not None else None


def _recipe(row: Row) -> str:
    quantization, sparsity = word(row.get("quantization")), word(row.get("sparsity"))
    steps = [] if quantization in ("", BASELINE) else [quantization]
    return "+".join([*steps, *([sparse_variant(sparsity) or sparsity] if sparsity else [])])


def _result(row: Row, recipe: str, mode: str, figures: Mapping[str, Figure], *, compiled: bool) -> ForeignResult:
    sizes = {key: int(size) for key in ("m", "k", "n") if (size := number(row.get(key))) is not None}
    name, case = _named(word(row.get("model_type"), "layer"), sizes, word(row.get("high_precision_dtype")), recipe, mode,
                        word(row.get("device")), compiled=compiled)  # fmt: skip
    status, reason = _status(row) if recipe else ("ok", "")
    if status == "ok" and "time" not in figures:
        status, reason = "failed", "it has no time"
    return ForeignResult(name, [figures] if "time" in figures else (), status, reason, case)


def _status(row: Row) -> tuple[Status, str]:
    said = word(row.get("status"))
    return (status_of(said), text(row.get("reason") or "", 500)) if said else ("ok", "")


def _named(
    model: str, sizes: Mapping[str, int], dtype: str, recipe: str, mode: str, device: str, *, compiled: bool
) -> tuple[str, dict[str, Any] | None]:
    """A case like ours, whose id is the name; what no case can hold is named by itself."""
    options = f"[mode={mode}]" if mode and mode != "default" else ""
    variant = "+".join(step for step in (recipe, f"compile{options}" if compiled else "") if step)
    params: dict[str, Any] = {**sizes, **({"dtype": dtype} if dtype else {})}
    try:
        case = Case(f"foreign/torchao/{model}", tuple(params.items()), "torch", variant or "eager", device=device or "cpu")
    except UsageError:
        return " ".join([model, *map(str, sizes.values()), dtype, variant, device]), None
    return case.id, case.plain()


def _of_records(listed: Sequence[Mapping[str, Any]]) -> Iterator[ForeignResult]:
    """Records of one config are one result, and its baseline another; those of the first version have a speedup and no time."""
    groups: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for record in listed:
        benchmark, extra = table(record.get("benchmark")), table(table(record.get("benchmark")).get("extra_info"))
        keys = ("device", "torch_compile_mode", "sparsity", "use_compile", "model_type", "high_precision_dtype")
        point = (word(table(record.get("model")).get("name")), word(benchmark.get("dtype")), *(word(extra.get(key)) for key in keys))
        groups.setdefault(point, []).append(record)
    for (name, dtype, device, mode, sparsity, use_compile, model, precision), members in groups.items():
        shape = SHAPE.fullmatch(name)
        sizes = dict(zip(("m", "k", "n"), map(int, shape.groups()), strict=True)) if shape else {}
        metrics = {word(table(record.get("metric")).get("name")): table(record.get("metric")) for record in members}
        found = {ours: value for said, ours in METRICS.items() if (value := _value(metrics.get(said))) is not None}
        compiled = use_compile == "true" if use_compile else bool(mode)
        recipe = _recipe({"quantization": dtype, "sparsity": "" if sparsity == "none" else sparsity})
        where = (sizes, precision, recipe, mode if compiled else "", device)
        told, case = _named(model or "layer", *where, compiled=compiled)
        if "base" in found and (base := _time(found["base"])):
            below, base_case = _named(model or "layer", sizes, precision, "", mode if compiled else "", device, compiled=compiled)
            yield ForeignResult(below, [{"time": base}], case=base_case)
        if not recipe and "base" in found:
            continue
        yield _of_group(told, case, found, table(next(iter(metrics.values())).get("extra_info")))


def _of_group(name: str, case: Mapping[str, Any] | None, found: Mapping[str, float], extra: Mapping[str, Any]) -> ForeignResult:
    figures: dict[str, Figure] = {"time": time} if "time" in found and (time := _time(found["time"])) else {}
    if found.get("speedup", 0) > 0:
        figures["speedup"] = Figure(found["speedup"], "x", "higher", number(extra.get("ci_low")), number(extra.get("ci_high")))
    if "peak_allocated" in found:
        figures["peak_allocated"] = Figure(found["peak_allocated"] * MEGA, "B", "lower")
    status: Status = status_of(extra["status"]) if word(extra.get("status")) else "ok"
    reason = text(extra.get("reason") or "", 500)
    if status == "ok" and not {"time", "speedup"} & set(figures):
        status, reason = "failed", "it has no value"
    return ForeignResult(name, [figures] if figures else (), status, reason, case)


def _value(metric: Mapping[str, Any] | None) -> float | None:
    """The mean of the values, as the dashboard has it."""
    values = (metric or {}).get("benchmark_values")
    known = [value for item in (values if isinstance(values, list) else []) if (value := number(item)) is not None]
    return sum(known) / len(known) if known else None
