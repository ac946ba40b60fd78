"""A saved run as records of the database: one for each figure of a case; facts without a column are in `extra_info`."""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from steelyard.analyze.foreign.metric_names import titled, written
from steelyard.analyze.repeat import repeat_lines
from steelyard.dialects.v3.schema import FLOAT32, VERSION
from steelyard.errors import UsageError
from steelyard.model import effects
from steelyard.model.case import Case, parse_variants
from steelyard.model.dtypes import ALIASES
from steelyard.model.pair import Pair
from steelyard.model.record import Figure, Record
from steelyard.model.values import render
from steelyard.store.runs import Run, moment

NAME = "steelyard"
LEFT_OUT = ("overhead", "discarded", "time_q10", "build_time")
"""Figures about the measurement itself, not about what was measured."""
MODES = {"eval": "inference", "train": "training"}
REPOS = {
    "torch": "pytorch/pytorch",
    "torchao": "pytorch/ao",
    "torch_xla": "pytorch/xla",
    "triton": "triton-lang/triton",
    "jax": "jax-ml/jax",
}
CONDITIONS = ("noise", "other_load", "graph_breaks")
"""Facts of a record on noise, and on how often a compiler fell back."""
SPARSE = ("sparse", "semi", "2:4")
LONGEST_REASON = 500
TORCH_NAMES = {"fp64": "float64", "fp32": "float32", "fp16": "float16", "bf16": "bfloat16"} | {
    ours: theirs for theirs, ours in ALIASES.items() if theirs.startswith("float8_")
}
Row = dict[str, Any]


def text(run: Run) -> str:
    """A run as the text of a file: a JSON array."""
    return json.dumps(records(run), indent=1, ensure_ascii=True, allow_nan=False) + "\n"


def text_of(file: Path) -> str:
    """Another tool's results as such a text."""
    from steelyard.dialects.v3.converting import records, written

    return written(records(file))


def records(run: Run) -> list[Row]:
    """A record for every figure of every case; a failed case has one record with status and reason, and no value."""
    last = {record.id: record for record in run.records}
    again = repeat_lines((run,))
    made: list[Row] = []
    for record in last.values():
        common = _common(run, record, again(record.id, record.id))
        made += [{**common, "metric": metric} for metric in _metrics(run, record, last)]
    return made


def _common(run: Run, record: Record, repeat: str) -> Row:
    case, created = record.case, moment(run.header.created)
    dtype = str(case.get("params", {}).get("dtype") or "")
    dtype = TORCH_NAMES.get(dtype, dtype)
    params = {key: value if isinstance(value, str) else json.dumps(value, default=str) for key, value in case.get("params", {}).items()}
    workload = str(case.get("workload", ""))
    return {
        **({"timestamp": int(created)} if created > 0 else {}),
        "schema_version": VERSION,
        "runners": [_runner(run, str(case.get("device", "cpu")))],
        "benchmark": {
            "name": NAME, "mode": MODES.get(str(case.get("mode")), str(case.get("mode", ""))), "dtype": dtype,
            "extra_info": _identity(run, record, repeat),
        },
        "model": {
            "name": _model(record), "type": workload.partition("/")[0], "backend": f"{case.get('backend', '')}/{case.get('variant', '')}",
            "origins": [NAME],
        },
        "inputs": {"parameters": {"dtype": dtype, "extra_info": params}} if params else {},
        "dependencies": _dependencies(run, record),
    }  # fmt: skip


def _model(record: Record) -> str:
    """The parts of a case that a dashboard's other key columns lack: the workload with its parameters, threads, ranks, flags."""
    try:
        case = Case.parse(record.id)
    except UsageError:
        return record.id
    plain = Case(case.workload, case.params, threads=case.threads, ranks=case.ranks, flags=case.flags, env=case.env).id
    return plain.replace("@torch/eager:eval", "", 1)


def _identity(run: Run, record: Record, repeat: str) -> dict[str, str]:
    """All that distinguishes this case from others, and the command that repeats it, as texts, because the column takes only these."""
    case, machine = record.case, run.header.machine
    steps = [str(step) for step in parse_variants(str(case.get("variant", "eager")))]
    sparse = [step for step in steps if any(word in step for word in SPARSE)]
    commit = machine.get("git") or {}
    config = json.dumps([record.id, record.case, record.requested], sort_keys=True, default=str)
    found = {
        "device": case.get("device", "cpu"),
        "arch": _arch(run, str(case.get("device", "cpu"))),
        "backend": case.get("backend"),
        "variant": case.get("variant"),
        "use_compile": "true" if any("compile" in step or step.startswith("jit") for step in steps) else "false",
        "sparsity": case.get("params", {}).get("sparsity") or "+".join(sparse) or "none",
        "threads": case.get("threads", 1),
        "ranks": case.get("ranks", 1),
        **{f"flag.{key}": value for key, value in case.get("flags", {}).items()},
        "env": case.get("env"),
        "case": record.id,
        "config_hash": hashlib.sha256(config.encode()).hexdigest()[:16],
        "repro": repeat,
        "run": run.id,
        "machine_key": run.header.machine_key,
        "commit": commit.get("commit"),
        "branch": commit.get("branch"),
        "dirty": "true" if commit.get("dirty") else None,
    }
    return {key: value if isinstance(value, str) else render(value) for key, value in found.items() if value not in (None, "")}


def _arch(run: Run, device: str) -> str:
    machine = run.header.machine
    gpus, cpu = machine.get("gpus") or [], machine.get("cpu") or {}
    if device != "cpu" and gpus:
        return str(gpus[0].get("name") or device)
    return str(cpu.get("model") or cpu.get("arch") or "unknown")


def _runner(run: Run, device: str) -> Row:
    """The machine in the columns that dashboards filter by: `name` is the kind of device, `type` its model."""
    machine = run.header.machine
    cpu, memory, gpus = machine.get("cpu") or {}, machine.get("memory") or {}, machine.get("gpus") or []
    system = machine.get("os") or {}
    made: Row = {
        "name": device,
        "type": _arch(run, device),
        "cpu_info": " ".join(str(cpu[key]) for key in ("model", "arch") if cpu.get(key)),
    }
    made |= {"cpu_count": _whole(cpu.get("cpus"), 1), "mem_info": _gigabytes(memory.get("total"))}
    made |= {"avail_mem_in_gb": _whole(memory.get("available"), 1e9)}
    if gpus:
        first = gpus[0]
        made |= {"gpu_info": str(first.get("name") or ""), "gpu_count": len(gpus), "gpu_mem_info": _gigabytes(first.get("memory"))}
        made |= {"avail_gpu_mem_in_gb": _whole(first.get("memory"), 1e9)}
    extra = {"system": system.get("system"), "kernel": system.get("kernel"), "driver": gpus[0].get("driver") if gpus else None}
    known = {key: value for key, value in made.items() if value}
    return {**known, "extra_info": {key: str(value) for key, value in extra.items() if value}}


def _whole(value: Any, unit: float) -> int:
    known = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value / unit < 2**32
    return int(value / unit) if known else 0


def _gigabytes(value: Any) -> str:
    return f"{value / 1e9:.0f} GB" if isinstance(value, (int, float)) and value > 0 else ""


def _dependencies(run: Run, record: Record) -> Row:
    packages = dict(run.header.machine.get("packages") or {})
    packages |= {key: value for key, value in record.environment.items() if key in packages or key in REPOS}
    packages["python"] = (run.header.machine.get("python") or {}).get("version")
    return {
        name: {**({"repo": REPOS[name]} if name in REPOS else {}), "version": version}
        for name, version in packages.items()
        if isinstance(version, str) and version
    }


def _metrics(run: Run, record: Record, records: Mapping[str, Record]) -> Iterator[Row]:
    """Yield the `metric` column of every record of a case."""
    known = {name: figure for name, figure in record.metrics.items() if name not in LEFT_OUT and _holds(figure)}
    if not known:
        yield _metric("time", Figure(math.nan, "s", "lower"), record)
    for name, figure in sorted(known.items(), key=lambda item: item[0] != "time"):
        yield _metric(name, figure, record)
    if record.status == "ok":
        bases = Counter(_base(pair) for pair in run.pairs if pair.head.id == record.id)
        for pair in run.pairs:
            base = records.get(pair.base.id)
            if pair.head.id == record.id and (base is None or base.status == "ok") and effects.bounded(pair.ratio, pair.low, pair.high):
                name = f"speedup over {_base(pair)}" if bases[_base(pair)] == 1 else f"speedup over {pair.base.id}"
                gain = Figure(1 / pair.ratio, "1", "higher", 1 / pair.high, 1 / pair.low, pair.rebuilds)
                more = {"base": pair.base.id, "confidence": repr(pair.confidence), "paired": "true"}
                yield _metric(name, gain, record, more)


def _base(pair: Pair) -> str:
    """The name of a speedup's base: the other stack, or the environment of the same case."""
    if pair.base.id == pair.head.id:
        return pair.base.environment or pair.base.commit[:12] or "base"
    try:
        case = Case.parse(pair.base.id)
    except UsageError:
        return pair.base.id
    return f"{case.backend}/{case.variant}"


def _holds(figure: Figure) -> bool:
    """Whether a figure fits the column."""
    return math.isfinite(figure.value) and abs(figure.value / written("", figure.unit)[1]) <= FLOAT32


def _metric(name: str, figure: Figure, record: Record, more: Mapping[str, str] = {}) -> Row:
    """One figure, with its value only if the case is ok, so that no dashboard shows a wrong or missing time as a time."""
    unit, factor = written(name, figure.unit)
    good = record.status == "ok" and math.isfinite(figure.value)
    told: dict[str, Any] = {
        "unit": unit, "direction": figure.better, "figure": name, "status": record.status,
        "reason": " ".join(record.reason.split())[:LONGEST_REASON] or None,
        "ci_low": None if figure.low is None else repr(figure.low / factor),
        "ci_high": None if figure.high is None else repr(figure.high / factor),
        "n": figure.n,
        "value": repr(figure.value / factor) if math.isfinite(figure.value) and not good else None,
        "is_failure": None if record.status == "ok" else "true",
        **{key: record.effective.get(key) for key in CONDITIONS},
        **more,
    }  # fmt: skip
    extra = {key: str(value) for key, value in told.items() if value is not None}
    values = [figure.value / factor] if good else []
    return {"name": titled(name, unit), "benchmark_values": values, "target_value": 0.0, "extra_info": extra}
