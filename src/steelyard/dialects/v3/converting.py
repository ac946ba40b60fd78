"""Other tools' results as records of the database: TorchAO's CSV, TritonBench's JSON, and every other file that is read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from steelyard.dialects.v3 import reading, schema, torchao_csv, tritonbench
from steelyard.dialects.v3.results import fits
from steelyard.errors import UsageError
from steelyard.files import RESULTS, read_text


def records(file: Path) -> list[dict[str, Any]]:
    """All records that a file of results makes, each checked; a file of records is refused, since it is there already."""
    if file.suffix.lower() == ".csv":
        made = torchao_csv.read(read_text(file, RESULTS), str(file))
    else:
        if file.exists() and fits([placed.record for placed in reading.read(file).found]):
            raise UsageError(f"{file} is a file of the database already", do="steelyard as v3 convert --to torchao makes a CSV of it")
        made = tritonbench.read(file)
    for number, record in enumerate(made):
        schema.check(record, f"record {number} made from {file}")
    return made


def written(records: Sequence[Mapping[str, Any]]) -> str:
    """Records as a file of them: a JSON array."""
    return json.dumps(records, indent=1, ensure_ascii=True, allow_nan=False) + "\n"
