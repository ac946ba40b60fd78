"""Hugging Face's benchmark_v2: text generation measured by users' own bench files, or by levels of configs."""

from steelyard.model.dialect import Dialect

DIALECT = Dialect(
    "hf",
    "Hugging Face's benchmark_v2 of text generation (run_benchmarks, v2).",
    results="steelyard.dialects.hf.results",
    command="steelyard.dialects.hf.command:command",
)
