"""Files of the database as runs, for compare, gate, show and report.

Records that `steelyard export` wrote become their original cases, with direction, interval, count and status. Those of other writers
have only values and names: a case is identified by what a dashboard groups by, and the direction by the name of the metric.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from steelyard.analyze.foreign import metric_names as metrics
from steelyard.analyze.foreign.parts import ForeignResult, ForeignSource, number, table, text, word
from steelyard.analyze.hud import passed
from steelyard.dialects.v3.export import MODES
from steelyard.dialects.v3.reading import Placed, RecordsFile, parse, taken
from steelyard.errors import UsageError
from steelyard.model.case import Case
from steelyard.model.dtypes import canonical
from steelyard.model.record import STATUSES, Figure, Status
from steelyard.model.values import Digest, digest

TOOL = "v3"
LONGEST_STEP = 80
LONGEST_VALUE = 200
MOST_EXTRA = 24
MOST_COUNTED = 1_000_000
FARTHEST = 2**40
"""Seconds; larger timestamps are not dates."""
PROVENANCE = ("device", "arch")
VOLATILE = re.compile(r"(^|_)(time|timestamp|date|sha|commit|branch|url|uri|id|host|hostname|path|dir|version|command|repro|log)($|_)")
"""Words in the names of extras that say where or when, not what was measured; a case must not depend on such extras."""
READ_MODES = {theirs: ours for ours, theirs in MODES.items()}
KEYS = ("repo", "head_branch", "head_sha", "workflow_id", "run_attempt", "job_id", "servicelab_experiment_id", "servicelab_trial_id")
Occasion = tuple[Any, ...]


@dataclass
class Gathered:
    """A case while its records are read; it has a record for each metric."""

    name: str
    case: dict[str, Any]
    figures: dict[str, Figure] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    units: dict[str, str] = field(default_factory=dict)
    status: Status = "ok"
    reason: str = ""
    conditions: dict[str, Any] = field(default_factory=dict)

    @property
    def result(self) -> ForeignResult:
        """The result with all its figures, or with a reason if it has none."""
        status, reason = self.status, self.reason
        if status == "ok" and not self.figures:
            status, reason = "failed", reason or "it has no value"
        kept = [self.figures] if self.figures and status in ("ok", "wrong") else ()
        told = {key: found for key, found in (("metric_names", self.names), ("metric_units", self.units)) if found}
        return ForeignResult(self.name, kept, status, reason, self.case, conditions={**self.conditions, **told})


def lines(content: bytes, name: str) -> RecordsFile | None:
    """The records of a file that has them by lines; None if it is not such a file."""
    found = parse(content, name)
    return found if fits([placed.record for placed in found.found]) else None


def fits(data: Any) -> bool:
    """Whether the data has records: objects with a metric that has a name and values."""
    if isinstance(data, RecordsFile):
        return True
    some = data[:20] if isinstance(data, list) else [data]
    return any("name" in metric and "benchmark_values" in metric for item in some if (metric := table(table(item).get("metric"))))


def read(data: Any, path: Path) -> list[ForeignSource]:
    """A source for every job and machine, oldest first; the newest, which is shown first, has the warnings on skipped lines."""
    name = text(path.name)
    found = data if isinstance(data, RecordsFile) else taken(data, name)
    occasions: dict[Occasion, list[Placed]] = {}
    for placed in found.found:
        occasions.setdefault(_occasion(placed.record), []).append(placed)
    warnings = list(found.warnings)
    made = sorted((_source(items, warnings) for items in occasions.values()), key=lambda source: source.created)
    return [*made[:-1], *(replace(source, warnings=warnings) for source in made[-1:])]


def _occasion(record: Mapping[str, Any]) -> Occasion:
    """The key of results measured together: the job, or without one the time, and the machine, because a job may have several."""
    extra = _texts(record, "benchmark")
    job = tuple(_plain(record.get(key)) for key in KEYS)
    known = any(job[3:]) or bool(job[2])
    when = "" if known or extra.get("run") else _plain(record.get("timestamp"))
    return (*job, when, extra.get("run", ""), extra.get("machine_key") or place(record))


def _plain(value: Any) -> str:
    return str(value) if isinstance(value, (str, int)) and value else ""


def place(record: Mapping[str, Any]) -> tuple[str, str]:
    """Device and architecture as dashboards show them: by the first runner, then by the benchmark's extras."""
    runners = record.get("runners")
    first = table(runners[0]) if isinstance(runners, list) and runners else {}
    extra = _texts(record, "benchmark")
    return word(first.get("name")) or extra.get("device") or "cpu", word(first.get("type")) or extra.get("arch") or word(
        first.get("cpu_info")
    )


def _texts(record: Mapping[str, Any], column: str) -> dict[str, str]:
    """The texts beside a column; other values are left out."""
    return {key: value for key, value in table(table(record.get(column)).get("extra_info")).items() if isinstance(value, str)}


def _source(items: Sequence[Placed], warnings: list[str]) -> ForeignSource:
    gathered: dict[str, Gathered] = {}
    seen: dict[tuple[str, str], str] = {}
    again: list[str] = []
    for placed in items:
        name, case = _case(placed.record)
        into = gathered.setdefault(name, Gathered(name, case))
        figure = _add(into, placed.record)
        if (name, figure) in seen:
            again.append(placed.where)
        seen[name, figure] = placed.where
    if again:
        more = f" and {len(again) - 1} more" if len(again) > 1 else ""
        warnings.append(f"{again[0]}{more}: the same case and metric again in one job; the last one counts")
    record = items[0].record
    extra, (device, arch) = _texts(record, "benchmark"), place(record)
    moments = [found for item in items if (found := number(item.record.get("timestamp"))) and 0 < found < FARTHEST]
    created = datetime.fromtimestamp(min(moments), UTC).isoformat().replace("+00:00", "Z") if moments else ""
    named = {"cpu": {"model": text(arch)}} if device == "cpu" else {"gpus": [{"name": text(arch)}]}
    return ForeignSource(
        [one.result for one in gathered.values()], created, {"device": device, "arch": arch},
        word(record.get("head_sha")) or extra.get("commit", ""), extra.get("dirty") == "true", _versions(record), (),
        named if arch else {}, word(record.get("head_branch")) or extra.get("branch", ""), extra.get("machine_key", "")[:64],
    )  # fmt: skip


def _versions(record: Mapping[str, Any]) -> dict[str, str]:
    told = {name: table(item) for name, item in table(record.get("dependencies")).items()}
    return {text(name): word(item.get("version")) or word(item.get("sha")) for name, item in told.items() if item}


def _case(record: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Id and case: our own, by the id in the record, or else one made of what dashboards group by."""
    id = _texts(record, "benchmark").get("case", "")
    if id and table(record.get("benchmark")).get("name") is not None:
        try:
            case = Case.parse(id)
        except UsageError:
            pass
        else:
            return case.id, {**case.plain(), "params": _params(case, record)}
    return _foreign_case(record)


def _params(case: Case, record: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters in full: of long ones the id has only digests, and the inputs have the values."""
    told = table(table(table(record.get("inputs")).get("parameters")).get("extra_info"))
    found: dict[str, Any] = {}
    for key, value in case.params:
        found[key] = value
        if isinstance(value, Digest):
            given = told.get(key)
            found[key] = next((one for one in _readings(given) if digest(one) == value), str(value))
    return found


def _readings(given: Any) -> list[Any]:
    if not isinstance(given, str):
        return []
    try:
        return [json.loads(given), given]
    except (ValueError, RecursionError):
        return [given]


def _foreign_case(record: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    benchmark, model = table(record.get("benchmark")), table(record.get("model"))
    mode, dtype, backend = word(benchmark.get("mode")), word(benchmark.get("dtype")), word(model.get("backend"))
    params: dict[str, Any] = {}
    if dtype:
        params[_dtype_key(dtype)] = dtype
    if mode and mode not in READ_MODES:
        params["mode"] = mode
    extras = {**_texts(record, "benchmark"), **{f"model.{key}": value for key, value in _texts(record, "model").items()}}
    for key in sorted(key for key in extras if key not in PROVENANCE and not VOLATILE.search(key.rpartition(".")[2].lower()))[:MOST_EXTRA]:
        params.setdefault(_key(key), _value(extras[key]))
    name = "/".join(("foreign", TOOL, _step(word(benchmark.get("name")) or "benchmark"), _step(word(model.get("name")) or "model")))
    device = re.sub(r"[^A-Za-z0-9_]", "_", place(record)[0])[:40] or "cpu"
    case = Case(name, tuple(params.items()), _step(backend) if backend else TOOL, mode=READ_MODES.get(mode, "eval"), device=device)
    return case.id, case.plain()


@functools.lru_cache(256)
def _dtype_key(dtype: str) -> str:
    """`dtype`, or `recipe` if a recipe such as int8wo is in place of a number format."""
    try:
        canonical(dtype)
    except UsageError:
        return "recipe"
    return "dtype"


def _value(given: str) -> str | bool | int:
    """A text, or the number or boolean that it obviously is."""
    if given in ("true", "false"):
        return given == "true"
    return int(given) if re.fullmatch(r"0|[1-9][0-9]{0,17}", given) else text(given, LONGEST_VALUE)


def _key(name: str) -> str:
    plain = re.sub(r"[^A-Za-z0-9_.-]", "_", name[:LONGEST_STEP])
    return plain if re.match(r"[A-Za-z_]", plain) else f"_{plain}"


def _step(name: str) -> str:
    """A name as a step of a workload's name; if more than spaces had to be changed, with a digest, so that names stay distinct."""
    plain = re.sub(r"[^A-Za-z0-9_.-]|^[.-]", "_", name[:LONGEST_STEP])
    return plain if plain == name.replace(" ", "_") else f"{plain}_{hashlib.sha256(name.encode('utf-8', 'replace')).hexdigest()[:8]}"


def _add(into: Gathered, record: Mapping[str, Any]) -> str:
    """Add a record's metric to its case; return the name of the figure."""
    metric, extra = table(record.get("metric")), _texts(record, "metric")
    title = word(metric.get("name")) or "value"
    unit = metrics.unit_of(title, extra.get("unit", ""))[0]
    name = text(extra.get("figure") or metrics.figure_name(title, unit))
    listed = metric.get("benchmark_values")
    values = [found for value in (listed if isinstance(listed, list) else []) if (found := _number(value)) is not None]
    status, reason = _status(extra)
    figure = _ours(extra, values) if "figure" in extra else _theirs(title, extra, values) if values else None
    if figure and not all(math.isfinite(end) for end in (figure.value, figure.low, figure.high) if end is not None):
        figure = None
    if status == "ok" and figure and figure.value == 0 and "figure" not in extra and _cannot_be_nothing(name, figure):
        status, figure, reason = "failed", None, f"its {text(title)} is 0, which some writers use for a failed case"
    if status != "ok" and into.status == "ok":
        into.status, into.reason = status, reason
    if "figure" in extra and "case" in _texts(record, "benchmark"):
        into.conditions |= _conditions(into.case, extra)
    elif figure:
        into.names[name] = text(title)
    if figure:
        into.figures[name] = figure
        told = metrics.told_unit(title, extra.get("unit", ""))
        if told and told != metrics.written(name, figure.unit)[0]:
            into.units[name] = text(told)
    return name


def _status(extra: Mapping[str, str]) -> tuple[Status, str]:
    """Our own status, or pass or fail from another writer's status, with the reason."""
    told, reason = extra.get("status", ""), extra.get("reason", "")
    known = next((status for status in STATUSES if status == told), None)
    if known:
        return known, reason
    failed = passed(told) is False or extra.get("is_failure", "").lower() == "true"
    return ("failed", reason or text(told)) if failed else ("ok", "")


def _conditions(case: Mapping[str, Any], extra: Mapping[str, str]) -> dict[str, Any]:
    """The valid facts of our own records about the machine during measurement."""
    found: dict[str, Any] = {"threads": case["threads"]}
    if re.fullmatch(r"[A-D?]", extra.get("noise", "")):
        found["noise"] = extra["noise"]
    load, breaks = number(extra.get("other_load")), number(extra.get("graph_breaks"))
    found |= {"other_load": load} if load is not None and 0 <= load < MOST_COUNTED else {}
    return found | ({"graph_breaks": int(breaks)} if breaks is not None and 0 <= breaks < MOST_COUNTED else {})


def _number(value: Any) -> float | None:
    return None if isinstance(value, str) else number(value)


def _cannot_be_nothing(name: str, figure: Figure) -> bool:
    """Whether 0 is invalid: it is for a time or a speedup, but not for a count or a loss."""
    return figure.unit == "s" or any(word in name for word in ("speedup", "latency", "time"))


def _theirs(title: str, extra: Mapping[str, str], values: Sequence[float]) -> Figure:
    unit, factor = metrics.unit_of(title, extra.get("unit", ""))
    better = extra.get("direction", "")
    known = "lower" if better == "lower" else "higher" if better == "higher" else metrics.direction(title)
    return metrics.figure(values, unit, factor, "lower" if known == "none" and unit == "s" else known)


def _ours(extra: Mapping[str, str], values: Sequence[float]) -> Figure | None:
    """A figure that our own export wrote, with all its facts."""
    value = values[0] if values else number(extra.get("value"))
    if value is None:
        return None
    unit, factor = metrics.UNITS.get(extra.get("unit", "").lower(), (text(extra.get("unit", ""), 20), 1.0))
    better = extra.get("direction", "")
    low, high, n = (number(extra.get(key)) for key in ("ci_low", "ci_high", "n"))
    known = low is not None and high is not None and low <= high
    return Figure(
        value * factor, unit, "lower" if better == "lower" else "higher" if better == "higher" else "none",
        low * factor if known and low is not None else None, high * factor if known and high is not None else None,
        int(n) if n is not None and 0 <= n < 1e15 else None,
    )  # fmt: skip
