"""One record in full: every metric, what was requested and done, and the command that repeats it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rich.text import Text

from steelyard.analyze.conditions import OTHER_LOAD, conditions
from steelyard.analyze.programs import BASE_PROGRAM, PROGRAM, program_changes, summary_words
from steelyard.analyze.repeat import repeat_line
from steelyard.model.experiment import PASSES
from steelyard.model.pair import Delta, Pair, told_from_chance, weigh, weigh_part
from steelyard.model.parts import NAMES as PART_NAMES
from steelyard.model.parts import OPERATOR, WEIGHED, generates
from steelyard.model.parts import TOLD as PARTS
from steelyard.model.record import BAD, MONITOR, Figure, Record, Verification
from steelyard.model.units import percent
from steelyard.model.units import plain as quantity
from steelyard.report.cells import aligned, clean, cut, delta_text, figure_text, flattened, parts_of, reason, status_words
from steelyard.report.columns import tokens_rate
from steelyard.report.monitor import monitor_rows
from steelyard.report.page import Page, Rows
from steelyard.report.replay import FACTS, coverage_rows, kind_rows, memory_rows, operator_rows
from steelyard.store.runs import Run

PHASES = {"build_time": "build", "first_call_time": "first call"}
TOLD = {
    "top_kernels", "traceback", "warmup_blocks", "warmup_time", "blocks", "calls_per_block", "stopped_by", "noise", OTHER_LOAD, "wall",
    MONITOR, PROGRAM, BASE_PROGRAM, *FACTS,
}  # fmt: skip
LONGEST_NAME = 64
MOST_CHANGES = 12
SHARES = ("discarded", "roof", "ttft_roof", "itl_roof")
NAMES = {
    "time": "median time",
    "time_q10": "10th percentile",
    "time_p50": "p50",
    "time_p90": "p90",
    "time_p99": "p99",
    "overhead": "loop overhead",
    "predicted_time": "predicted time",
    "ttft": "TTFT",
    "itl": "ITL",
    "tpot": "TPOT",
    "tokens": "tokens per second",
    "ttft_roof": "prefill, of the roof",
    "itl_roof": "decoding, of the roof",
}


def record_detail(record: Record, run: Run, *, width: int = 100) -> Text:
    """Everything known about one record, in sections that are left out when empty."""
    number = next((index for index, other in enumerate(run.records, 1) if other.id == record.id and other.started == record.started), None)
    page = Page(width)
    page.title(record.id, status_words(record), "red" if record.status in BAD else "green" if record.status == "ok" else "yellow")
    page.rows(
        "",
        [
            ("run", f"{run.header.id}/{number}" if number else run.header.id),
            ("started", record.started),
            ("took", quantity(record.wall_s, "s") if record.wall_s else ""),
            ("with", " · ".join(conditions(run.header.machine, [record])) if "time" in record.metrics else ""),
        ],
    )
    page.text("reason", reason(record) if record.status != "ok" else "")
    page.text("traceback", str(record.effective.get("traceback") or ""))
    page.rows("figures", _figures(_told(record)))
    page.rows("replay", coverage_rows(record.effective))
    page.rows("slowest calls of one iteration", operator_rows(record.effective))
    page.rows("kinds of operators in one iteration", kind_rows(record))
    page.rows("memory that operators allocate in one iteration", memory_rows(record.effective))
    page.rows("phases", _phases(record))
    page.rows("where the time went", _wall(record.effective.get("wall")))
    page.rows("the machine while measuring", monitor_rows(record.effective.get(MONITOR)))
    page.rows("top kernels", _kernels(record.effective.get("top_kernels")))
    page.rows("weighed against", _weighed(record, run))
    page.rows("programs, base → head", _programs(record))
    page.rows("verification", _verification(record.verification))
    page.rows("requested and effective", _settings(record))
    page.rows("source", [(name, digest) for name, digest in record.source.items()])
    page.rows("environment", [(name, _value(value)) for name, value in flattened(record.environment)])
    page.rows("attachments", [(item.kind, f"{item.path}  sha256 {item.sha256[:12]}") for item in record.attachments])
    page.rows(
        "samples",
        [(item.name, f"{item.count} × {item.dtype}{f' in {item.unit}' if item.unit not in ('', '1') else ''}") for item in record.samples],
    )
    page.text("repeat", repeat_line(record, run.header))
    return page.drawn()


def _told(record: Record) -> Mapping[str, Figure]:
    """The figures of a record; for requests the most important times come first, and the rate is in tokens."""
    if not generates(record.metrics):
        return record.metrics
    rate = tokens_rate(record)
    first = ("time", *PARTS, "tpot")
    found = {name: record.metrics[name] for name in first if name in record.metrics} | ({"tokens": rate} if rate else {})
    return found | {name: figure for name, figure in record.metrics.items() if name not in (*first, "item_rate")}


def _figures(metrics: Mapping[str, Figure]) -> Rows:
    names = [name for name in metrics if name not in PHASES and not name.startswith(OPERATOR)]
    texts = aligned([None if name in SHARES else parts_of(metrics[name]) for name in names])
    rows = []
    for name, text in zip(names, texts, strict=True):
        figure = metrics[name]
        n = f"   n {quantity(figure.n, '', 1)}" if figure.n else ""
        n += f"   {figure.caveat}" if name == "time" and figure.caveat else ""
        better = f"   {figure.better} is better" if figure.better != "none" and name not in NAMES else ""
        rows.append((NAMES.get(name, name), f"{percent(figure.value) if name in SHARES else text}{n}{better}"))
    return rows


def _phases(record: Record) -> Rows:
    done = record.effective
    rows = [(label, figure_text(record.metrics[name])) for name, label in PHASES.items() if name in record.metrics]
    ended = {"flat": "until flat", "time": "until its time was spent", "runs": "as many as requested"}.get(
        str(done.get("warmup")), _value(done.get("warmup"))
    )
    spent = quantity(done["warmup_time"], "s") if isinstance(done.get("warmup_time"), (int, float)) else ""
    rows.append(("warm-up", ", ".join(filter(None, (_blocks(done.get("warmup_blocks")), spent, ended)))))
    calls = done.get("calls_per_block")
    steady = _blocks(done.get("blocks")) + (f" of {calls} call{'' if calls == 1 else 's'}" if calls and done.get("blocks") else "")
    stop = f"until {done['stopped_by']}" if done.get("stopped_by") else ""
    rows.append(("steady", ", ".join(filter(None, (steady, stop, f"noise {done['noise']}" if done.get("noise") else "")))))
    return rows


def _wall(spent: Any) -> Rows:
    """The seconds of each phase, from the start of its worker to its comparison."""
    known = spent.items() if isinstance(spent, Mapping) else ()
    return [(clean(str(name)), quantity(seconds, "s")) for name, seconds in known if isinstance(seconds, (int, float))]


def _kernels(rows: Any) -> Rows:
    """The few kernels that took longest in the profile; all are in its attachment.

    Kernel names contain whole template lists; they are cut, since their beginnings distinguish them.
    """
    known = [row for row in rows if isinstance(row, Mapping)] if isinstance(rows, list) else []
    return [
        (
            str(row.get("where", "")),
            f"{quantity(row['total'], 's'):>9}  {row['calls']} × {quantity(row['mean'], 's')}  {cut(clean(row['name']), LONGEST_NAME)}",
        )
        for row in known
        if isinstance(row.get("total"), float) and isinstance(row.get("mean"), float) and {"calls", "name"} <= set(row)
    ]


def _blocks(count: Any) -> str:
    return f"{quantity(count, '', 1)} block{'' if count == 1 else 's'}" if isinstance(count, int) else ""


def _weighed(record: Record, run: Run) -> Rows:
    rows, parts = [], judged_parts(run)
    for pair, delta in judged(run):
        if record.id in (pair.base.id, pair.head.id):
            as_head = record.id == pair.head.id
            other = pair.base.id if as_head else pair.head.id
            label = clean(f"{other}  {pair.base.environment}" if as_head and pair.base.environment else other)
            interval = f"interval of {percent(pair.confidence)} over {pair.rebuilds} rebuilds, {pair.quads} rounds"
            lines = [label, f"{delta_text(delta)} · {interval}", _own_blocks(pair)]
            lines += [*_parts(pair, parts.get(id(pair), ())), " · ".join(_evidence(pair))]
            lines += [clean(text) for text in (delta.reason, *pair.notes)]
            rows.append(("base" if as_head else "head", "\n".join(filter(None, lines))))
    return rows


def _programs(record: Record) -> Rows:
    """How the compiled programs differ from the base's: a line for each, then the largest differences."""
    rows = []
    for name, changes in program_changes(record.effective).items():
        most = [f"{row.group} {row.name}  {row.base} → {row.head}" for row in changes if row.group != "all"][:MOST_CHANGES]
        rows.append((clean(name), "\n".join(map(clean, [summary_words(changes), *most]))))
    return rows


def _parts(pair: Pair, deltas: Sequence[Delta]) -> list[str]:
    """A line for each part: its verdict, and its figures in both arms."""
    told = []
    for delta in deltas:
        part = pair.parts[delta.metric]
        both = f" · {figure_text(part.base)} → {figure_text(part.head)}" if part.base and part.head else ""
        told.append(clean(f"{PART_NAMES.get(delta.metric, delta.metric)} {delta_text(delta)}{both}"))
    return told


def _own_blocks(pair: Pair) -> str:
    """The times of both arms' blocks and the commits of both arms, the base first."""
    times = [figure_text(arm.time) for arm in (pair.base, pair.head) if arm.time]
    commits = [f"{arm.commit[:10]}{' with changes' if arm.dirty else ''}" for arm in (pair.base, pair.head) if arm.commit]
    told = [f"interleaved {' → '.join(times)}" if len(times) == 2 else "", f"commit {' → '.join(commits)}" if len(commits) == 2 else ""]
    return clean(" · ".join(filter(None, told)))


def judged(run: Run) -> list[tuple[Pair, Delta]]:
    """Every pair of a run with its verdict, judged together as in the run's table; pairs with an arm that is not ok are `failed`."""
    sound = _sound(run)
    found = dict(zip(map(id, sound), told_from_chance([weigh(pair) for pair in sound]), strict=True))
    failed = {id(pair): replace(weigh(pair), verdict="failed", reason="one of the two cases is not ok") for pair in run.pairs}
    return [(pair, found.get(id(pair), failed[id(pair)])) for pair in run.pairs]


def judged_parts(run: Run) -> dict[int, list[Delta]]:
    """The verdicts on the parts of each sound pair, by the pair's identity."""
    places = [(id(pair), weigh_part(pair, name)) for pair in _sound(run) for name in sorted(pair.parts, key=_place)]
    found: dict[int, list[Delta]] = {}
    for (place, _), delta in zip(places, told_from_chance([delta for _, delta in places]), strict=True):
        found.setdefault(place, []).append(delta)
    return found


def _place(name: str) -> int:
    return WEIGHED.index(name) if name in WEIGHED else len(WEIGHED)


def _sound(run: Run) -> list[Pair]:
    broken = {record.id for record in run.records if record.status != "ok"}
    return [pair for pair in run.pairs if not {pair.base.id, pair.head.id} & broken]


def _evidence(pair: Pair) -> list[str]:
    """What a verdict is based on."""
    found = [f"p {pair.p:.2g}"] if pair.p is not None else []
    found += [f"noise floor {percent(pair.floor)} a rebuild"] if pair.floor is not None else []
    looks = f" after {pair.looks} looks" if pair.looks > 1 else ""
    found += [f"stopped by {clean(pair.stopped_by)}{looks}"] if pair.stopped_by else []
    found += [f"{quantity(pair.measured_s, 's')} spent"] if pair.measured_s else []
    found += [f"{pair.processes} processes, layout {clean(pair.layout)}"] if pair.processes > 1 else []
    lost = max(pair.discarded.values(), default=0.0)
    found += [f"{percent(lost)} of blocks disturbed"] if lost else []
    return [*found, f"{clean(pair.clock)} time"] if pair.clock not in ("", "wall") else found


def _verification(found: Verification | None) -> Rows:
    if found is None or found.status == "none":
        checks = "; ".join(map(clean, found.checks)) if found else ""
        return [("result", "not verified" + (f": {clean(found.message)}" if found and found.message else "")), ("checked", checks)]
    errors = [f"{name} {value:.2g}" for name, value in (("absolute", found.max_abs), ("relative", found.max_rel)) if value is not None]
    allowed = [f"{name} {value:g}" for name, value in (("rtol", found.rtol), ("atol", found.atol)) if value is not None]
    same = "bit-identical: nothing was lost, or both are the same code" if found.identical and found.status == "passed" else ""
    return [
        ("result", f"{'✓' if found.status == 'passed' else '✗'} {found.status}"), ("against", found.against), ("message", found.message),
        ("largest error", same or ", ".join(errors)), ("allowed", ", ".join(allowed)), ("checked", "; ".join(map(clean, found.checks))),
    ]  # fmt: skip


def _settings(record: Record) -> Rows:
    """The settings and parameters that were requested, and what was done if that is something else."""
    rows, params = [], record.case.get("params") or {}
    requested = {**{key: value for key, value in params.items() if key in record.effective}, **record.requested}
    for key in dict.fromkeys((*requested, *record.effective)):
        if key in TOLD or (key in PASSES and not requested.get(key)):
            continue
        asked, done = _value(requested.get(key)), _value(record.effective.get(key))
        both = key in requested and key in record.effective
        text = done if not both and key in record.effective else asked if asked == done or not both else f"{asked} → {done}"
        rows.append((key, text if text else "–"))
    return rows


def _value(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    return clean(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
