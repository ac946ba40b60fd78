"""TorchAO's result files for compare, gate, show and report: its CSV of both versions, and its records for CI of both.

All four are read as rows of the last version's CSV, which has a column for everything in the other three.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from steelyard.analyze.foreign.parts import ForeignResult, ForeignSource, number, rows, status_of, table, text, time_of, word
from steelyard.codec import torchao
from steelyard.codec.torchao import BOUNDS, PEAK, SPEEDUPS, TIMES, Question, Row, form_of
from steelyard.dialects.torchao.layers import BASELINE, MODES, TRAINING, sparse_variant
from steelyard.dialects.torchao.lines import ACCURACY
from steelyard.errors import UsageError
from steelyard.model.case import Case
from steelyard.model.record import Figure, Status

MILLI, MEGA, LONGEST_HEAD = 1e-3, 1e6, 10_000
SHAPED_NAME = re.compile(r"(?:.+-)?(\d{1,12})-(\d{1,12})-(\d{1,12})")
PEAK_TEXT = re.compile(rf"'{re.escape(PEAK)}': ([0-9.e+]{{1,30}})")


def lines(content: bytes, name: str) -> list[Row] | None:
    """Return the rows of a TorchAO CSV file by column, or None if the file is not one."""
    head = content.partition(b"\n")[0][:LONGEST_HEAD].decode("utf-8", "replace")
    if not form_of(head.strip().split(",")):
        return None
    try:
        return list(torchao.table(content.decode("utf-8", "replace")))
    except csv.Error:
        return None


def fits(data: Any) -> bool:
    """Whether data is what `lines` returned, or records of the CI runner; records that name a job and its machine are the database's."""
    bare = [row for row in rows(data)[:1] if row.get("runners") == [] and row.get("dependencies") == {} and "timestamp" not in row]
    records = [row for row in bare if table(row.get("benchmark")).get("name") == torchao.API and "metric" in row]
    return bool(records) or any(map(form_of, rows(data)[:1]))


def read(data: Any, path: Path) -> ForeignSource:
    """Return results for the baseline and the recipe of each row, without and with torch.compile, named by case ids."""
    listed = [torchao.like_last(row) for row in rows(data) if form_of(row)] or _from_records(rows(data))
    by_name: dict[str, list[ForeignResult]] = {}
    for result in (result for row in listed for result in _of_row(row)):
        by_name.setdefault(result.name, []).append(result)
    devices = sorted({text(name) for row in listed if (name := word(row.get("arch")) or word(row.get("device")))})
    return ForeignSource([_merged(results) for results in by_name.values()], machine={"accelerator": ", ".join(devices)})


def _from_records(listed: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Return rows, one for all records of a config; the last version's records are about the compiled form."""
    found: dict[tuple[str, ...], Row] = {}
    for record in listed:
        benchmark, metric = table(record.get("benchmark")), table(record.get("metric"))
        name, more = word(table(record.get("model")).get("name")), table(metric.get("extra_info"))
        row: Row = {key: word(value) for key, value in table(benchmark.get("extra_info")).items()}
        row |= {"output_dir": word(benchmark.get("mode")), "quantization": word(benchmark.get("dtype"))}
        row |= {"sparsity": "" if row.get("sparsity") == "none" else row.get("sparsity", "")}
        row["use_torch_compile"] = str(row.get("use_compile", str("torch_compile_mode" in row).lower()) == "true")
        if shape := SHAPED_NAME.fullmatch(name):
            row |= dict(zip(torchao.SHAPE, shape.groups(), strict=True))
        row = found.setdefault((name, *map(str, row.items())), row)
        base, quantized, question = torchao.FORMS[row["use_torch_compile"] == "True"]
        columns = {
            torchao.SPEEDUP_OF_GUIDE: SPEEDUPS[question], torchao.SPEEDUP: SPEEDUPS[question], torchao.QUANTIZED_TIME: TIMES[quantized],
            torchao.BASELINE_TIME: TIMES[base], torchao.MEMORY: "memory_stats",
        }  # fmt: skip
        column = columns.get(word(metric.get("name")))
        raw = metric.get("benchmark_values")
        values = [value for item in (raw if isinstance(raw, list) else []) if (value := number(item)) is not None]
        if column and values:
            mean = sum(values) / len(values)
            row[column] = f"{{'{PEAK}': {mean}}}" if column == "memory_stats" else mean
        row |= {key: more[key] for key in ("status", "reason") if word(more.get(key))}
        row |= {bound: more.get(key) for key, bound in zip(("ci_low", "ci_high"), BOUNDS[question], strict=False) if key in more}
    return list(found.values())


def _of_row(row: Row) -> Iterator[ForeignResult]:
    """Yield a result for each form that was measured, or one with the reason if none was."""
    sparsity, recipe = word(row.get("sparsity")), word(row.get("quantization"))
    steps = ([] if recipe in ("", BASELINE) else [recipe]) + ([sparse_variant(sparsity) or sparsity] if sparsity else [])
    told = False
    for compiled, (base, quantized, question) in torchao.FORMS.items():
        time = time_of([row.get(TIMES[base])], MILLI)
        if time:
            yield _held(row, [], compiled, {"time": time})
        figures = _figures(row, row.get(TIMES[quantized]), question)
        if steps and (time or figures):
            yield _result(row, steps, compiled, figures)
        told |= bool(time or figures)
    if not told and (steps or row.get("status") != "ok"):
        yield _result(row, steps, row.get("use_torch_compile") == "True", {})


def _result(row: Row, steps: Sequence[str], compiled: bool, figures: Mapping[str, Figure]) -> ForeignResult:
    """Return the result of one form, which is ok if it has figures and no wrong answer, even if another form failed."""
    status: Status = status_of(row["status"]) if word(row.get("status")) else "ok"
    reason = text(row.get("reason") or "", 500)
    if figures and status != "wrong":
        status, reason = "ok", ""
    elif not figures and status == "ok":
        status, reason = "failed", "it has no time"
    return _held(row, steps, compiled, figures, status, reason)


def _figures(row: Row, time: Any, question: Question) -> dict[str, Figure]:
    """Return the figures of one form; the bounds of speedups are of 99 % intervals, so they are wide rather than narrow."""
    found = {"time": figure} if (figure := time_of([time], MILLI)) else {}
    asked: dict[str, Question] = {"speedup": question} | ({"compile_speedup": "eager_vs_compile"} if question == "compile" else {})
    for name, about in asked.items():
        if (speedup := number(row.get(SPEEDUPS[about]))) is not None and speedup > 0:
            low, high = (number(row.get(bound)) for bound in BOUNDS[about][:2])
            found[name] = Figure(speedup, "x", "higher", low, high)
    if not found:
        return {}
    for name in ACCURACY:
        if (value := number(row.get(name))) is not None:
            found[name] = Figure(value, "1" if "sqnr" not in name else "dB", "lower" if name.endswith("error") else "higher")
    peak = PEAK_TEXT.search(str(row.get("memory_stats"))[:1000])
    megabytes = number(peak[1]) if peak else None
    for name, size in (("model_bytes", number(row.get("model_bytes"))), ("peak_allocated", megabytes and megabytes * MEGA)):
        found |= {name: Figure(size, "B", "lower")} if size is not None and size >= 0 else {}
    return found


def _held(
    row: Row, steps: Sequence[str], compiled: bool, figures: Mapping[str, Figure], status: Status = "ok", reason: str = ""
) -> ForeignResult:
    """Return a result named by its case id; without a valid case, it is named by model, parameters and variant."""
    mode, dtype, model = (word(row.get(key)) for key in ("torch_compile_mode", "high_precision_dtype", "model_type"))
    variant = "+".join([*steps, *([f"compile[mode={mode}]" if mode not in ("", "default") else "compile"] if compiled else [])])
    params: dict[str, Any] = {key: int(size) for key in ("m", "k", "n") if (size := number(row.get(key))) is not None}
    params |= {"dtype": dtype} if dtype else {}
    processes, where = [figures] if figures else [], word(row.get("device")) or "cpu"
    try:
        how, named = MODES[torchao.benchmark_mode(row) == TRAINING], f"foreign/torchao/{model or 'layer'}"
        case = Case(named, tuple(params.items()), "torch", variant or "eager", how, device=where)
    except UsageError:
        return ForeignResult(" ".join([model, *map(str, params.values()), variant]), processes, status, reason)
    return ForeignResult(case.id, processes, status, reason, case.plain())


def _merged(results: Sequence[ForeignResult]) -> ForeignResult:
    """Merge the results of a case into one: a baseline is in every row that is compared with it. All its distinct times count."""
    fine = [result for result in results if result.status == "ok"]
    if len(fine) < 2:
        return fine[0] if fine else results[-1]
    times = {process["time"].value for result in fine for process in result.processes if "time" in process}
    return replace(fine[-1], processes=[{**fine[-1].processes[0], **({"time": time} if (time := time_of(times)) else {})}])
