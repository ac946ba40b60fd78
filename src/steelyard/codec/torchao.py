"""TorchAO's result files: the columns of its CSV in both versions, and the names of its metrics, for all that read or write them."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Mapping
from typing import Any, Literal

Form = Literal["baseline_eager", "quantized_eager", "baseline_compiled", "quantized_compiled"]
"""The model that a row times."""
Question = Literal["eager", "compile", "eager_vs_compile"]
"""The pairs of a row: quantized against baseline without and with torch.compile, and quantized without against with it."""

SHAPE = ("m", "k", "n")
CONFIG = (
    "name", "quantization", "sparsity", *SHAPE, "high_precision_dtype", "use_torch_compile", "torch_compile_mode", "device",
    "model_type", "output_dir", "enable_profiler", "enable_memory_profiler",
)  # fmt: skip
ONE_FORM = ("baseline_inference_time_in_ms", "model_inference_time_in_ms", "speedup")
"""The columns of the documented version, which times a row either without or with torch.compile."""
TIMES: Mapping[Form, str] = {
    "baseline_eager": "baseline_model_eager_inference_time_in_ms", "quantized_eager": "quantized_model_eager_inference_time_in_ms",
    "baseline_compiled": "baseline_model_compiled_inference_time_in_ms",
    "quantized_compiled": "quantized_model_compiled_inference_time_in_ms",
}  # fmt: skip
SPEEDUPS: Mapping[Question, str] = {
    "eager": "eager speedup on baseline", "compile": "compile speedup on baseline", "eager_vs_compile": "eager vs compile speedup",
}  # fmt: skip
BOUNDS = {question: (f"{question}_low", f"{question}_high", f"{question}_verdict") for question in SPEEDUPS}
"""Our own columns that follow each speedup's."""
FORMS: Mapping[bool, tuple[Form, Form, Question]] = {
    False: ("baseline_eager", "quantized_eager", "eager"), True: ("baseline_compiled", "quantized_compiled", "compile"),
}  # fmt: skip
"""Baseline, recipe and the pair of both, by whether torch.compile is used."""
FILES = ("profiler_json_path", "memory_profile_path", "memory_visualization_path", "memory_stats")
MEASURED = {"seed": ONE_FORM, "last": (*TIMES.values(), *SPEEDUPS.values())}
COLUMNS = {
    "seed": (*CONFIG, *MEASURED["seed"], *FILES),
    "last": (*(name for name in CONFIG if name != "use_torch_compile"), *MEASURED["last"], *FILES),
}
"""All columns of the documented version and of the last one, in their order."""

API = "micro-benchmark api"
LAYER = "micro-benchmark custom layer"
SPEEDUP_OF_GUIDE = "speedup(wrt bf16)"
SPEEDUP, BASELINE_TIME, QUANTIZED_TIME = "Fwd Speedup (x)", "Bfloat16 Fwd Time (ms)", "Quantized Fwd Time (ms)"
MEMORY = "Allocated Memory (MB)"
PEAK = "allocated_bytes.all.peak"
"""The peak among `memory_stats` that the records have."""
RUNNABLE = ("=", "+", "-", "@")
"""How a cell begins that a spreadsheet treats as a formula."""
Row = dict[str, Any]
"""One row, by column."""


def form_of(heads: Collection[str]) -> str:
    """The version that a head line belongs to; empty for neither. Columns may be missing or extra, but not the measured ones."""
    return next((form for form, measured in MEASURED.items() if {*measured, *SHAPE} <= {*heads}), "")


def table(text: str, *, strict: bool = False) -> csv.DictReader[str]:
    """The rows of a CSV file by column; cells beyond the last column are under an empty name."""
    return csv.DictReader(io.StringIO(text, newline=""), restkey="", strict=strict)


def benchmark_mode(row: Mapping[str, Any]) -> str:
    """The benchmark mode of a row, from the last folder of its results."""
    return "training" if str(row.get("output_dir") or "").rstrip("/").rpartition("/")[2] == "training" else "inference"


def like_last(row: Row) -> Row:
    """A row of the documented version, which has one form, with the last version's columns for that form."""
    if form_of(row) != "seed":
        return row
    base, recipe, question = FORMS[row.get("use_torch_compile") == "True"]
    known = dict(zip((TIMES[base], TIMES[recipe], SPEEDUPS[question]), map(row.get, ONE_FORM), strict=True))
    return row | known | dict(zip(BOUNDS[question], (row.get("speedup_low"), row.get("speedup_high")), strict=False))
