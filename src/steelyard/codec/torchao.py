"""TorchAO's result files: the columns of its CSV in both versions, and the names of its metrics, for all who read or write them."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Mapping
from typing import Literal

Form = Literal["baseline_eager", "quantized_eager", "baseline_compiled", "quantized_compiled"]
"""What a row times."""
Question = Literal["eager", "compile", "eager_vs_compile"]
"""What a pair of a row answers: quantized against baseline without and with torch.compile, and what compiling does for quantized."""

SHAPE = ("m", "k", "n")
CONFIG = (
    "name", "quantization", "sparsity", *SHAPE, "high_precision_dtype", "use_torch_compile", "torch_compile_mode", "device",
    "model_type", "output_dir", "enable_profiler", "enable_memory_profiler",
)  # fmt: skip
ONE_FORM = ("baseline_inference_time_in_ms", "model_inference_time_in_ms", "speedup")
"""What the documented version has of a row, which it times without or with torch.compile."""
TIMES: Mapping[Form, str] = {
    "baseline_eager": "baseline_model_eager_inference_time_in_ms", "quantized_eager": "quantized_model_eager_inference_time_in_ms",
    "baseline_compiled": "baseline_model_compiled_inference_time_in_ms",
    "quantized_compiled": "quantized_model_compiled_inference_time_in_ms",
}  # fmt: skip
SPEEDUPS: Mapping[Question, str] = {
    "eager": "eager speedup on baseline", "compile": "compile speedup on baseline", "eager_vs_compile": "eager vs compile speedup",
}  # fmt: skip
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
"""The peak of `memory_stats` that the records have."""


def form_of(heads: Collection[str]) -> str:
    """Which of the two a head line is; empty for neither. Columns may be missing or more, not the measured ones."""
    return next((form for form, measured in MEASURED.items() if {*measured, *SHAPE} <= {*heads}), "")


def table(text: str, *, strict: bool = False) -> csv.DictReader[str]:
    """The rows of a CSV file by column; cells beyond the last column are under an empty name."""
    return csv.DictReader(io.StringIO(text, newline=""), restkey="", strict=strict)
