"""The files of the first version: results of a model's scenarios, and the summary of a run."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

UNITS = {"latency": "seconds", "time_to_first_token": "seconds", "time_per_output_token": "seconds", "tokens_per_second": "tokens/sec"}
"""What is measured, by the original's names; the third is a later version's."""
STAMP = "%Y%m%d_%H%M%S"


def plain(value: Any) -> Any:
    """A value for JSON; types that JSON lacks become text."""
    if hasattr(value, "plain"):
        return plain(value.plain())
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set)):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)


def free(path: Path) -> Path:
    """A free file name, if two files are written in one second."""
    return next(
        found for found in (path, *(path.with_stem(f"{path.stem}_{number}") for number in range(2, 100))) if not found.exists()
    )  # fmt: skip


def save_results(folder: Path, model: str, results: Mapping[str, Mapping[str, Any]]) -> Path:
    """`FOLDER/MODEL/MODEL_benchmark_DATE_TIME.json`."""
    name = "_".join(part for part in str(model).replace("\\", "/").split("/") if part not in ("", ".", "..")) or "model"
    path = free(folder / name / f"{name}_benchmark_{datetime.now().strftime(STAMP)}.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    scenarios = [{"scenario_name": scenario, **plain(result)} for scenario, result in results.items()]
    path.write_text(json.dumps({"model_name": str(model), "benchmark_scenarios": scenarios}, indent=2), encoding="utf-8")
    return path
