"""The result files of the first version, and helpers for all files of benchmark_v2."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

UNITS = {"latency": "seconds", "time_to_first_token": "seconds", "time_per_output_token": "seconds", "tokens_per_second": "tokens/sec"}
"""The units of the measured values, by the original's names; the third is from a later version."""
STAMP = "%Y%m%d_%H%M%S"


def plain(value: Any) -> Any:
    """A value as plain data for JSON; types that JSON lacks become text."""
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
    """A path that does not exist yet, for the case that two files are written in the same second."""
    return next(
        found for found in (path, *(path.with_stem(f"{path.stem}_{number}") for number in range(2, 100))) if not found.exists()
    )  # fmt: skip


def save_results(folder: Path, model: str, results: Mapping[str, Mapping[str, Any]]) -> Path:
    """Write `FOLDER/MODEL/MODEL_benchmark_DATE_TIME.json` and return its path."""
    name = "_".join(part for part in str(model).replace("\\", "/").split("/") if part not in ("", ".", "..")) or "model"
    path = free(folder / name / f"{name}_benchmark_{datetime.now().strftime(STAMP)}.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    scenarios = [{"scenario_name": scenario, **plain(result)} for scenario, result in results.items()]
    path.write_text(json.dumps({"model_name": str(model), "benchmark_scenarios": scenarios}, indent=2), encoding="utf-8")
    return path
