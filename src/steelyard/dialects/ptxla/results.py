"""Read the JSONL of PyTorch/XLA's benchmark runner. Rows with one timestamp are one run."""

from __future__ import annotations

import hashlib
import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from steelyard.analyze.foreign.parts import ForeignResult, ForeignSource, number, seconds, table, text, time_of, word
from steelyard.dialects.ptxla.points import WARM_UP
from steelyard.dialects.ptxla.rows import Row, RowTally, parse, take
from steelyard.errors import UsageError
from steelyard.model.case import MODES, Case
from steelyard.model.record import STATUSES, Figure, Status, Verification

STACKS = {
    "eager": ("torch", "eager"), "inductor": ("torch", "compile"), "openxla+lazytensor": ("torch_xla", "eager"),
    "openxla+dynamo": ("torch_xla", "openxla"),
}  # fmt: skip
FURTHER = ("torch_xla2", "keep_model_data_on_cuda", "enable_functionalization")
TROUBLE: tuple[tuple[str, Status], ...] = (
    (r"timed out|TimeoutExpired", "timeout"), (r"out of memory|OutOfMemory|RESOURCE_EXHAUSTED", "oom"),
)  # fmt: skip
LONGEST_FLAG = 500
MOST_COUNTED = 100_000
LONGEST_STEP = 80


@dataclass(frozen=True)
class Lines:
    """A file of a JSON object per line, as rows, with a count of invalid lines."""

    rows: Sequence[Row]
    tally: RowTally


def lines(content: bytes, name: str) -> Lines | None:
    """Return the rows in a file that is not one JSON text; None if it has none."""
    tally = RowTally()
    rows = list(parse(io.BytesIO(content), name, tally))
    return Lines(rows, tally) if rows else None


def fits(data: Any) -> bool:
    """Whether the data is rows by lines, one row, or a list of rows."""
    if isinstance(data, Lines):
        return True
    first = data[0] if isinstance(data, list) and data else data
    return isinstance(first, dict) and all(isinstance(first.get(key), dict) for key in ("model", "experiment", "metrics"))


def read(data: Any, path: Path) -> list[ForeignSource]:
    """Return a source per timestamp, oldest first; the warnings of the whole file are in the newest, which is shown first."""
    found = data if isinstance(data, Lines) else _listed(data, text(path.name))
    occasions: dict[float, list[Row]] = {}
    for row in found.rows:
        occasions.setdefault(-1.0 if row.moment is None else row.moment, []).append(row)
    warnings = [f"{text(path.name)}: {line}" for line in found.tally.lines()]
    made = [_source(moment, rows) for moment, rows in sorted(occasions.items(), key=lambda item: item[0])]
    return [*made[:-1], *(replace(one, warnings=warnings) for one in made[-1:])]


def _listed(data: Any, name: str) -> Lines:
    tally = RowTally()
    items = data if isinstance(data, list) else [data]
    rows = [row for place, item in enumerate(items, 1) if (row := take(item, tally, f"{name}:{place}"))]
    return Lines(rows, tally)


def _source(moment: float, rows: Sequence[Row]) -> ForeignSource:
    """Return the source of some rows; of two rows for one case the last counts, unless it failed and the other did not."""
    devices = sorted({name for row in rows if (name := word(row.experiment.get("accelerator_model")))})
    results: dict[str, ForeignResult] = {}
    for row in rows:
        result = _result(row, several=len(devices) > 1)
        if result.status == "ok" or result.name not in results or results[result.name].status != "ok":
            results[result.name] = result
    created = datetime.fromtimestamp(moment, UTC).isoformat() if moment >= 0 else ""
    names = [text(name) for name in devices]
    on_cpu = all(row.experiment.get("accelerator") == "cpu" for row in rows)
    facts = {"cpu": {"model": ", ".join(names)}} if on_cpu else {"gpus": [{"name": name} for name in names]}
    return ForeignSource(list(results.values()), created, {"accelerator": ", ".join(devices)}, facts=facts if names else {})


def _result(row: Row, several: bool) -> ForeignResult:
    name, case = _case(row, several)
    status, reason = _status(row)
    figures = _figures(row) if not row.error else {}
    if status == "ok" and not figures:
        status, reason = "failed", "it has no time after the first repeat, which compiles too"
    processes = [figures] if figures else ()
    return ForeignResult(name, processes, status, reason, case, _verification(row), _conditions(row))


def _case(row: Row, several: bool) -> tuple[str, dict[str, Any] | None]:
    """Return the id and data of a row's config as our case; a config that no case can express has only a name."""
    experiment = row.experiment
    backend, variant = STACKS.get(row.backend or "", ("ptxla", "eager"))
    batch, test = experiment.get("batch_size"), word(experiment.get("test"))
    size = word(table(row.others.get("steelyard")).get("size"))
    params: dict[str, Any] = ({"batch_size": batch} if type(batch) is int else {}) | ({"size": text(size)} if size else {})
    flags = {key: experiment.get(key) for key in FURTHER if experiment.get(key)}
    flags |= {"XLA_FLAGS": experiment["xla_flags"]} if experiment.get("xla_flags") else {}
    flags |= {key: experiment.get(key) for key in ("dynamo", "xla")} if backend == "ptxla" else {}
    flags |= {"accelerator": experiment.get("accelerator_model")} if several else {}
    flags |= {"test": test} if test not in MODES else {}
    workload = "/".join(("foreign", "ptxla", *(_step(part) for part in (word(row.model.get("suite_name"), "suite"), row.name))))
    try:
        case = Case(
            workload, tuple(params.items()), backend, variant,
            test if test in MODES else "eval", re.sub(r"[^A-Za-z0-9_]", "_", word(experiment.get("accelerator"))) or "cpu",
            flags=tuple((key, text(value, LONGEST_FLAG)) for key, value in flags.items()),
        )  # fmt: skip
    except UsageError:
        return f"{workload} {text(experiment)}", None
    return case.id, case.plain()


def _step(name: str) -> str:
    """Return a name as part of a workload's; a changed one gets a digest, so that different names stay different."""
    plain = re.sub(r"[^A-Za-z0-9_.-]|^[.-]", "_", name[:LONGEST_STEP])
    return plain if plain == name else f"{plain}_{hashlib.sha256(name.encode('utf-8', 'replace')).hexdigest()[:8]}"


def _status(row: Row) -> tuple[Status, str]:
    told = table(row.others.get("steelyard"))
    if not row.error:
        failed = row.verification_code == "FAIL"
        return ("wrong", "its answer differs from that of eager PyTorch") if failed else ("ok", "")
    last = next((line.strip() for line in reversed(row.error.splitlines()) if line.strip()), "it failed")
    known = next((status for status in STATUSES if status == told.get("status") and status != "ok"), None)
    if known:
        return known, last
    if row.error == "SKIP":
        return "skipped", "a rule of the runner"
    return next((status for pattern, status in TROUBLE if re.search(pattern, row.error, re.IGNORECASE)), "failed"), last


def _conditions(row: Row) -> dict[str, Any]:
    """Return the valid facts in our own rows about the machine while measuring."""
    ours, found = table(row.others.get("steelyard")), dict[str, Any]()
    if re.fullmatch(r"[A-D?]", word(ours.get("noise"))):
        found["noise"] = ours["noise"]
    for key in ("threads", "graph_breaks"):
        if type(ours.get(key)) is int and 0 <= ours[key] < MOST_COUNTED:
            found[key] = ours[key]
    load = number(ours.get("other_load"))
    return found | ({"other_load": load} if load is not None and 0 <= load < MOST_COUNTED else {})


def _verification(row: Row) -> Verification | None:
    """Return the runner's verification result; most of its codes mean that answers were not compared."""
    if row.verification_code not in ("PASS", "FAIL"):
        return None
    error = number(row.others.get("verification_mean_rel_error"))
    message = "" if error is None else f"mean relative error {error:.3g}"
    return Verification("passed" if row.verification_code == "PASS" else "failed", "eager PyTorch", message)


def _figures(row: Row) -> dict[str, Figure]:
    """Return the time per iteration after the warm-up, and the times to compile and trace, if the row has them."""
    found: dict[str, Figure] = {}
    per_loop = 1.0 / max(1.0, number(row.iterations_per_run) or 1.0)
    if time := time_of(_steady(row.metrics, "per_iter_time")) or time_of(_steady(row.metrics, "total_time"), per_loop):
        found["time"] = time
    if time and row.experiment.get("xla") and (trace := time_of(_steady(row.metrics, "trace_per_iter_time"))):
        found["trace_time"] = trace
    loops = [seconds(value) for value in _values(row.metrics, "total_time")]
    first, others = loops[:1], [value for value in loops[1:] if value is not None]
    if time and others and first[0] is not None and (beyond := first[0] - math.fsum(others) / len(others)) > 0:
        found["compile_time"] = Figure(beyond, "s", "lower", n=1)
    return found


def _values(metrics: Mapping[str, Any], name: str) -> list[Any]:
    found = metrics.get(name)
    return found if isinstance(found, list) else []


def _steady(metrics: Mapping[str, Any], name: str) -> list[Any]:
    """Return the repeats after the three that warm up; if there are no more, all but the first, which compiles."""
    values = _values(metrics, name)
    return values[WARM_UP:] if len(values) > WARM_UP else values[1:]
