"""Where the time of a call went, from an Nsight Systems export: launch, kernels, waiting."""

from __future__ import annotations

import bisect
import contextlib
import re
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from urllib.parse import quote

from steelyard.errors import UsageError

STRINGS, RANGES, CALLS, KERNELS, GRAPHS = (
    "StringIds", "NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
)  # fmt: skip
NEEDED = {
    STRINGS: ("id", "value"),
    RANGES: ("start", "end", "text", "globalTid"),
    CALLS: ("start", "end", "globalTid", "correlationId", "nameId"),
}
MADE_BY = "nsys profile -t cuda,nvtx, then nsys export --type sqlite"
SYNC = "cudaDeviceSynchronize"
PROCESS_SHIFT = 24
"""A global thread id holds the process id above its lowest 24 bits."""

Tables = Mapping[str, frozenset[str]]


@dataclass(frozen=True)
class Span:
    """A named span of time, from one nanosecond to another."""

    name: str
    start: int
    end: int


@dataclass(frozen=True)
class Launch:
    """A call of the CUDA runtime, and the kernel that it started, if any."""

    correlation: int
    call: Span
    kernel: Span | None = None


@dataclass(frozen=True)
class CallRange:
    """One call between its NVTX marks, with what the CUDA runtime did meanwhile in the same process."""

    key: str
    label: re.Match[str]
    span: Span
    process: int
    kernels: list[Launch] = field(default_factory=list)
    syncs: list[Launch] = field(default_factory=list)

    def parts(self) -> dict[str, int | None]:
        """Nanoseconds of the whole call, to its first kernel, in kernels, from the last kernel to the end, and of the last wait for the
        device; None if there was no kernel or no wait."""
        ran = [launch.kernel for launch in self.kernels if launch.kernel]
        wait = self.syncs[-1].call if self.syncs else None
        return {
            "call": self.span.end - self.span.start,
            "first_kernel": min(kernel.start for kernel in ran) - self.span.start if ran else None,
            "kernels": sum(kernel.end - kernel.start for kernel in ran) if ran else None,
            "after_kernels": self.span.end - max(kernel.end for kernel in ran) if ran else None,
            "wait": wait.end - wait.start if wait else None,
        }


def read(source: Path, label: re.Pattern[str]) -> list[CallRange]:
    """Return the ranges whose label matches, in order of their start, each with its launches and waits."""
    with contextlib.closing(_opened(source)) as export:
        try:
            return list(_call_ranges(export, _tables(export, source), label))
        except (sqlite3.Error, TypeError, ValueError) as error:
            raise _no_export(source, str(error)) from None


def _opened(source: Path) -> sqlite3.Connection:
    """Return a read-only connection to the file."""
    if not source.is_file():
        raise UsageError(f"no such file: {str(source)!r}", do=f"make it with {MADE_BY}")
    export = sqlite3.connect(f"file:{quote(str(source.resolve()))}?mode=ro", uri=True)
    export.text_factory = lambda raw: raw.decode("utf-8", "replace")
    export.execute("PRAGMA trusted_schema = OFF")
    return export


def _no_export(source: Path, why: str) -> UsageError:
    return UsageError("not an Nsight Systems export", why=why, do=f"make it with {MADE_BY}", where=str(source))


def _tables(export: sqlite3.Connection, source: Path) -> Tables:
    """Return the column names of each table that is read; anything but a table, such as a view, is ignored."""
    names = {name for (name,) in export.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    found = {
        name: frozenset(row[1] for row in export.execute(f"PRAGMA table_info({name})"))
        for name in (*NEEDED, KERNELS, GRAPHS) if name in names
    }  # fmt: skip
    if STRINGS not in found:
        raise _no_export(source, "it has no table of strings")
    for name, columns in NEEDED.items():
        if missing := set(columns) - found.get(name, frozenset()):
            what = f"table {name} has no {', '.join(sorted(missing))}" if name in found else f"it has no table {name}"
            raise _no_export(source, f"{what}, so it was made without CUDA and NVTX or by another version")
    return found


def _call_ranges(export: sqlite3.Connection, tables: Tables, label: re.Pattern[str]) -> Iterator[CallRange]:
    launches, syncs = _by_process(_launches(export, tables)), _by_process(_syncs(export))
    for found in _innermost(_labelled(export, tables, label)):
        found.kernels.extend(_within(launches.get(found.process, []), found.span))
        found.kernels.sort(key=lambda launch: launch.kernel.start if launch.kernel else 0)
        found.syncs.extend(_within(syncs.get(found.process, []), found.span))
        yield found


def _labelled(export: sqlite3.Connection, tables: Tables, label: re.Pattern[str]) -> Iterator[CallRange]:
    """Yield the ranges whose label matches; a label may be in the table of strings, by its number."""
    text, join = "r.text", ""
    if "textId" in tables[RANGES]:
        text, join = "COALESCE(r.text, s.value)", f"LEFT JOIN {STRINGS} s ON s.id = r.textId"
    query = f"""SELECT r.rowid, {text}, r.start, r.end, r.globalTid FROM {RANGES} r {join}
        WHERE r.end IS NOT NULL ORDER BY r.start, r.end DESC"""
    for key, words, start, end, thread in export.execute(query):
        if match := label.fullmatch(str(words)):
            yield CallRange(str(key), match, Span(match["part"], start, end), _process(thread))


def _innermost(ranges: Iterable[CallRange]) -> list[CallRange]:
    """Return the ranges of calls: a phase may have the same label as its calls, and then its range is around theirs."""
    kept: list[CallRange] = []
    last: dict[tuple[str, int], int] = {}
    for found in ranges:
        key = (found.label[0], found.process)
        at = last.get(key)
        if at is not None and found.span.end <= kept[at].span.end:
            kept[at] = found
        else:
            last[key] = len(kept)
            kept.append(found)
    return kept


def _launches(export: sqlite3.Connection, tables: Tables) -> Iterator[tuple[int, Launch]]:
    """Yield kernels and whole CUDA graphs with the call that started them; correlation ids count per process."""
    for table, name in ((KERNELS, "k.demangledName"), (GRAPHS, "NULL")):
        if table in tables:
            ours = f"AND k.globalPid >> {PROCESS_SHIFT} = c.globalTid >> {PROCESS_SHIFT}" if "globalPid" in tables[table] else ""
            query = f"""SELECT c.globalTid, c.correlationId, cs.value, c.start, c.end, COALESCE(ks.value, 'CUDA graph'), k.start, k.end
                FROM {table} k JOIN {CALLS} c ON c.correlationId = k.correlationId {ours}
                LEFT JOIN {STRINGS} cs ON cs.id = c.nameId LEFT JOIN {STRINGS} ks ON ks.id = {name}"""
            for thread, correlation, call, start, end, kernel, first, last in export.execute(query):
                yield _process(thread), Launch(correlation, Span(str(call), start, end), Span(str(kernel), first, last))


def _syncs(export: sqlite3.Connection) -> Iterator[tuple[int, Launch]]:
    query = f"""SELECT c.globalTid, c.correlationId, s.value, c.start, c.end FROM {CALLS} c
        JOIN {STRINGS} s ON s.id = c.nameId WHERE s.value LIKE '{SYNC}%'"""
    for thread, correlation, call, start, end in export.execute(query):
        yield _process(thread), Launch(correlation, Span(str(call), start, end))


def _process(thread: int | None) -> int:
    return (thread or 0) >> PROCESS_SHIFT


_start_of_call = attrgetter("call.start")


def _by_process(launches: Iterable[tuple[int, Launch]]) -> dict[int, list[Launch]]:
    """Return the launches of each process, from all its threads, in call order: autograd runs backward passes on its own threads."""
    found: dict[int, list[Launch]] = defaultdict(list)
    for process, launch in launches:
        found[process].append(launch)
    return {process: sorted(items, key=_start_of_call) for process, items in found.items()}


def _within(launches: Sequence[Launch], span: Span) -> list[Launch]:
    first = bisect.bisect_left(launches, span.start, key=_start_of_call)
    last = bisect.bisect_right(launches, span.end, key=_start_of_call)
    return [launch for launch in launches[first:last] if launch.call.end <= span.end]
