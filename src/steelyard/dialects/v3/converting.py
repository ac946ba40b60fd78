"""Other tools' results as records of the database: TorchAO's CSV, TritonBench's JSON, and all other formats that Steelyard reads."""

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
    """The checked records of a results file; a file of records is refused, because it is already in the database's form."""
    if file.suffix.lower() == ".csv":
        made = torchao_csv.read(read_text(file, RESULTS), str(file))
    else:
        if file.exists() and fits([placed.record for placed in reading.read(file).found]):
            raise UsageError(f"{file} is already a file of the database", do="to make a CSV of it: steelyard as v3 convert --to torchao")
        made = tritonbench.read(file)
    for number, record in enumerate(made):
        schema.check(record, f"record {number} made from {file}")
    return made


def written(records: Sequence[Mapping[str, Any]]) -> str:
    """Records as the text of a file: a JSON array."""
    return json.dumps(records, indent=1, ensure_ascii=True, allow_nan=False) + "\n"
