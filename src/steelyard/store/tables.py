"""The runs of a store as tables for SQL: what their columns are, and how a run becomes rows of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from steelyard.model.pair import Pair, weigh
from steelyard.model.record import Record, machine_of
from steelyard.store.moments import utc
from steelyard.store.runs import Run

VERSION = 1
"""Increased when a column changes, so that older tables are made again."""
Row = dict[str, Any]


@dataclass(frozen=True)
class SqlColumn:
    """One column: its name, DuckDB's type, and what it holds."""

    name: str
    type: str
    holds: str


def _columns(text: str) -> tuple[SqlColumn, ...]:
    return tuple(SqlColumn(*map(str.strip, line.split("|"))) for line in text.strip().splitlines())


_OF_RUN = """
    run | VARCHAR | id of the run
    folder | VARCHAR | its folder in the store
    experiment | VARCHAR | name of the experiment or suite; may be empty
    created | TIMESTAMP | when it was measured, UTC
    commit | VARCHAR | commit of the folder where the run was made; null if unknown
    dirty | BOOLEAN | whether files differed from that commit
    machine | VARCHAR | key of the machine: do not compare times of different keys
"""
TABLES: dict[str, tuple[SqlColumn, ...]] = {
    "records": _columns(f"""
    case_id | VARCHAR | the case, as every command writes it
    {_OF_RUN.strip()}
    number | INTEGER | its place in the run: `steelyard show RUN/NUMBER`
    workload | VARCHAR | such as op/softmax
    backend | VARCHAR | such as torch
    variant | VARCHAR | such as eager or compile
    mode | VARCHAR | eval, train, fwd, bwd, call
    device | VARCHAR | kind of device, such as cpu or cuda
    env | VARCHAR | environment it was measured in; empty for the run's own
    threads | INTEGER | CPU threads that the case had
    ranks | INTEGER | processes that the case had
    params | MAP(VARCHAR, VARCHAR) | its parameters as text: `params['n']`
    status | VARCHAR | ok, wrong, failed, oom, timeout, crashed, unsupported, not_applied, not_applicable, skipped
    reason | VARCHAR | why it is not ok
    verified | VARCHAR | passed, failed or none
    time | DOUBLE | seconds a call; null if nothing was timed
    low | DOUBLE | lower end of its 95 % interval
    high | DOUBLE | upper end
    n | BIGINT | samples
    metrics | MAP(VARCHAR, DOUBLE) | all figures by name, in SI units: `metrics['memory']`
    wall_s | DOUBLE | seconds that measuring it took
    """),
    "pairs": _columns(f"""
    head | VARCHAR | the case that was compared
    base | VARCHAR | the case that it was compared with
    {_OF_RUN.strip()}
    number | INTEGER | its place among the comparisons of the run
    base_environment | VARCHAR | environment or checkout of the base
    head_environment | VARCHAR | environment or checkout of the head
    base_commit | VARCHAR | commit of the base, if it has its own
    head_commit | VARCHAR | commit of the head, if it has its own
    time_ratio | DOUBLE | head's time over base's: 1.04 is 4 % slower
    low | DOUBLE | lower end of its interval
    high | DOUBLE | upper end
    confidence | DOUBLE | of that interval, such as 0.99
    p | DOUBLE | chance of a difference this large if there is none
    margin | DOUBLE | change that counts as the same, such as 0.02
    verdict | VARCHAR | slower, faster, same or unclear, of this comparison alone
    material | BOOLEAN | whether the whole interval lies beyond the margin
    rebuilds | INTEGER | how often both arms were built
    measured_s | DOUBLE | seconds that were measured
    """),
    "series": _columns(f"""
    case_id | VARCHAR | the case
    metric | VARCHAR | name of the figure, such as time or memory
    {_OF_RUN.strip()}
    number | INTEGER | its record in the run
    status | VARCHAR | status of that record; compare those that are ok
    value | DOUBLE | the figure, in SI units
    low | DOUBLE | lower end of its 95 % interval
    high | DOUBLE | upper end
    n | BIGINT | samples
    unit | VARCHAR | such as s or B
    better | VARCHAR | lower, higher or none
    """),
}
ORDER = {"records": "case_id, machine, created", "pairs": "head, base, created", "series": "case_id, metric, machine, created"}
"""Sort order of a table's rows, so that the history of one case is found without reading the other cases."""


def schema(table: str) -> str:
    """The columns of a table in the form that DuckDB's `read_json` needs."""
    return "{" + ", ".join(f"{column.name}: '{column.type}'" for column in TABLES[table]) + "}"


def rows(run: Run) -> Iterator[tuple[str, Row]]:
    """Every row of a run, with the name of its table."""
    shared, machines = _shared(run), dict[str, str]()
    for number, record in enumerate(run.records, 1):
        own = shared | {"created": utc(record.started) or shared["created"], "number": number, "status": record.status}
        own["machine"] = machines[record.id] = machine_of(record, run.header.machine_key)
        yield "records", _record(record, own)
        for name, figure in record.metrics.items():
            yield "series", own | {"case_id": record.id, "metric": name} | vars(figure)
    for number, pair in enumerate(run.pairs, 1):
        yield "pairs", _pair(pair, shared | {"number": number, "machine": machines.get(pair.head.id, shared["machine"])})


def _shared(run: Run) -> Row:
    git = run.header.machine.get("git")
    git = git if isinstance(git, Mapping) else {}
    commit = git.get("commit")
    return {
        "run": run.id, "folder": run.path.name, "experiment": run.header.experiment, "created": utc(run.header.created),
        "commit": commit if isinstance(commit, str) else None, "dirty": bool(git.get("dirty")), "machine": run.header.machine_key,
    }  # fmt: skip


def _record(record: Record, own: Row) -> Row:
    case, time = record.case, record.metrics.get("time")
    words = {name: str(case.get(name) or "") for name in ("workload", "backend", "variant", "mode", "device", "env")}
    counts = {name: value for name in ("threads", "ranks") if isinstance(value := case.get(name), int) and abs(value) < 2**31}
    given = case.get("params")
    return own | words | counts | {
        "case_id": record.id, "params": {str(key): str(value) for key, value in given.items()} if isinstance(given, Mapping) else {},
        "reason": record.reason, "verified": record.verification.status if record.verification else "none", "wall_s": record.wall_s,
        "metrics": {name: figure.value for name, figure in record.metrics.items()},
        **({"time": time.value, "low": time.low, "high": time.high, "n": time.n} if time else {}),
    }  # fmt: skip


def _pair(pair: Pair, own: Row) -> Row:
    delta = weigh(pair)
    arms = {
        f"{side}_{what}": getattr(arm, what)
        for side, arm in (("base", pair.base), ("head", pair.head))
        for what in ("environment", "commit")
    }
    return own | arms | {
        "base": pair.base.id, "head": pair.head.id, "time_ratio": pair.ratio, "low": pair.low, "high": pair.high,
        "confidence": pair.confidence, "p": pair.p, "margin": delta.margin, "verdict": delta.verdict, "material": delta.material,
        "rebuilds": pair.rebuilds, "measured_s": pair.measured_s,
    }  # fmt: skip
