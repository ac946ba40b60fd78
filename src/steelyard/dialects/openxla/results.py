"""OpenXLA's result files for compare, gate, show and report: framework level and compiler level, the original's files and ours."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from steelyard.analyze.foreign import parts
from steelyard.analyze.foreign.parts import ForeignResult, ForeignSource, count, number, rows, seconds, table, text, word
from steelyard.errors import UsageError
from steelyard.model.case import Case
from steelyard.model.record import Figure, Verification

NAME = re.compile(r"models/([^/]{1,120})/inputs/([^/]{1,120})")
LEVELS, USUAL = ("framework_level", "compiler_level"), "INPUT_DATA_MODEL_DEFAULT"
MILLI, MEGA, MOST_THREADS = 1e-3, 1e6, 10_000
MEMORY = {"device_memory_peak_mb": "peak_allocated", "system_memory_vmhwm_mb": "host_peak_memory"}


def fits(data: Any) -> bool:
    """Whether data is a list of benchmarks that have a definition and metrics."""
    listed = rows(table(data).get("benchmarks"))
    return bool(listed) and all("benchmark_name" in table(item.get("definition")) and "metrics" in item for item in listed)


def read(data: Any, path: Path) -> ForeignSource:
    """Return a result for each level of each entry; the last result of a case counts, unless it failed and an earlier one did not."""
    results: dict[str, ForeignResult] = {}
    for item in rows(table(data).get("benchmarks")):
        for level in [name for name in LEVELS if name in table(item.get("metrics"))] or LEVELS[:1]:
            made = _result(item, level)
            if made.status == "ok" or made.name not in results or results[made.name].status != "ok":
                results[made.name] = made
    devices = sorted({word(table(item.get("definition")).get("device")) for item in rows(data.get("benchmarks"))} - {""})
    packages = rows(table(data.get("execution_environment")).get("python_environment"))
    moment = number(table(data.get("trigger")).get("timestamp"))
    created = datetime.fromtimestamp(moment, UTC).isoformat() if moment is not None and 0 <= moment < 1e11 else ""
    versions = {text(item.get("name")): word(item.get("version")) for item in packages[:2000]}
    on_gpu = bool(devices) and all("gpu" in name for name in devices)
    facts = {"gpus": [{"name": name} for name in devices]} if on_gpu else {"cpu": {"model": ", ".join(devices)}}
    return ForeignSource(list(results.values()), created, {"device": ", ".join(devices)}, versions=versions, facts=facts if devices else {})


def _result(item: dict[str, Any], level: str) -> ForeignResult:
    told, figures, ours = table(item.get("definition")), table(table(item.get("metrics")).get(level)), table(item.get("steelyard"))
    found = _figures(figures, ours)
    error = word(figures.get("error"))
    status = parts.status_of(ours["status"]) if word(ours.get("status")) else "ok" if found and not error else "failed"
    status = "timeout" if error == "timeout" else status
    reason = "" if status == "ok" else text(ours.get("reason") or error or "it has no latency", 500)
    if status == "ok" and not found:
        status, reason = "failed", "it has no latency"
    name, case = _case(told, level)
    return ForeignResult(name, [found] if found else (), status, reason, case, _verification(table(ours.get("verification"))))


def _verification(told: dict[str, Any]) -> Verification | None:
    """Return the verification in an entry of ours; the original's entries have only an error."""
    status = word(told.get("status"))
    if status not in ("passed", "failed"):
        return None
    return Verification("passed" if status == "passed" else "failed", text(told.get("against") or ""), text(told.get("message") or "", 500))


def _figures(told: dict[str, Any], ours: dict[str, Any]) -> dict[str, Figure]:
    """Return time, compile time and memory; the time's interval is from our own latencies, or else from a summary's mean and deviation."""
    raw = ours.get("latencies_ms")
    time = parts.time_of(raw if isinstance(raw, list) else [], MILLI)
    if time is None:
        spread, n = number(told.get("stddev_latency_ms")), count(told.get("benchmark_iterations"))
        half = parts.NORMAL_95 * spread * MILLI / math.sqrt(n) if spread is not None and n and n > 1 else None
        time = parts.time_around(seconds(told.get("median_latency_ms", told.get("mean_latency_ms")), MILLI), half, n)
    if time is None:
        return {}
    found = {"time": time}
    first = seconds(told.get("compile_time_ms"), MILLI) or seconds(told.get("compile_time_s"))
    found |= {"compile_time": Figure(first, "s", "lower", n=1)} if first else {}
    for theirs, name in MEMORY.items():
        size = number(told.get(theirs))
        found |= {name: Figure(size * MEGA, "B", "lower", n=1)} if size is not None and size > 0 else {}
    return found


def _case(told: dict[str, Any], level: str) -> tuple[str, dict[str, Any] | None]:
    """Return the id and the case of a definition, or its own name and no case if no case id can express it."""
    name = word(told.get("benchmark_name"), "unnamed")
    model, given = found.groups() if (found := NAME.fullmatch(name)) else (name, USUAL)
    params = {} if given == USUAL else {"input": given}
    threads = count(told.get("num_threads")) or 1
    framework = word(told.get("framework")).rpartition(".")[2].lower() or "openxla"
    cpus = word(told.get("task_topology_cpu_ids")) or word(told.get("taskset"))
    flags = (*((("cpus", cpus),) if cpus else ()), *((("level", level),) if level != LEVELS[0] else ()))
    try:
        device = "cuda" if "gpu" in word(told.get("device")) else "cpu"
        name, compiler, threads = f"foreign/openxla/{model}", _word(told.get("compiler")) or "eager", min(threads, MOST_THREADS)
        case = Case(name, tuple(params.items()), framework, compiler, device=device, threads=threads, flags=flags)
    except UsageError:
        return " ".join([name, framework, word(told.get("compiler")), level]), None
    return case.id, case.plain()


def _word(value: Any) -> str:
    """Return a compiler's name with only the characters that a variant's name may have."""
    return re.sub(r"[^A-Za-z0-9_.-]", "_", word(value).rpartition(".")[2][:40]).lstrip(".-")
