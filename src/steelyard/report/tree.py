"""Records as a tree: workload, then the point in its parameters, then variant or backend; common parts are written once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from steelyard.model.record import Record
from steelyard.report.cells import COMMAND, USUAL, clean, facets, pad

BRANCH, LAST, TRUNK, BLANK = "├─ ", "└─ ", "│  ", "   "
FOLD = 44


@dataclass(frozen=True)
class TreeLeaf:
    """One row: a record by its index in the run, and the label that distinguishes it within its point."""

    index: int
    label: str


@dataclass(frozen=True)
class TreePoint:
    """One set of parameters, with the variants and backends measured there."""

    label: str
    leaves: tuple[TreeLeaf, ...]


@dataclass(frozen=True)
class Group:
    """One workload, with the parameters that all its points share."""

    workload: str
    shared: str
    points: tuple[TreePoint, ...]


@dataclass(frozen=True)
class TreeLine:
    """A line of the tree: `label` in the first column; `index` is None if it has no figures and may use the full width."""

    label: str
    index: int | None = None
    indent: str = ""


def group(records: Sequence[Record]) -> list[Group]:
    """Sort records under their workloads in the order in which they were first seen."""
    by_workload: dict[str, list[int]] = {}
    for index, record in enumerate(records):
        by_workload.setdefault(_workload(record), []).append(index)
    one_device = len({record.case.get("device", "cpu") for record in records}) == 1
    plain = {(record.case.get("backend"), record.case.get("variant")) for record in records} <= {(_backend(records[0]), "eager")}
    return [_group(workload, records, members, one_device, plain) for workload, members in by_workload.items()]


def _workload(record: Record) -> str:
    return clean(record.case.get("workload", record.id))


def _backend(record: Record) -> str:
    return str(record.case.get("backend", ""))


def _group(workload: str, records: Sequence[Record], members: list[int], one_device: bool, plain: bool) -> Group:
    by_member = {index: facets(records[index].case) for index in members}
    keys = list(dict.fromkeys(key for found in by_member.values() for key in found))
    shared = {key for key in keys if len({found.get(key) for found in by_member.values()}) == 1}
    first = by_member[members[0]]
    unset = {key for key, value in (records[members[0]].case.get("params") or {}).items() if value is None or value == ""}
    usual = unset | {key for key, text in first.items() if USUAL.get(key) == text} | ({"device"} if one_device else set())
    said = [first[key] for key in keys if key in shared - usual]
    differing = [key for key in keys if key not in shared]
    widths = {key: max(cell_len(found.get(key, "")) for found in by_member.values()) for key in differing}
    points: dict[str, list[int]] = {}
    for index in members:
        label = " ".join(pad(by_member[index].get(key, ""), widths[key]) for key in differing).rstrip()
        points.setdefault(label, []).append(index)
    labels = _leaf_labels(records, members, plain and (len(points) > 1 or workload == COMMAND))
    made = tuple(TreePoint(label, tuple(TreeLeaf(index, labels[index]) for index in at)) for label, at in points.items())
    return Group(workload, " ".join(said), made)


def _leaf_labels(records: Sequence[Record], members: list[int], silent: bool) -> dict[int, str]:
    """The variant, with the backend if a workload ran on several; empty if both are the same everywhere."""
    if silent:
        return dict.fromkeys(members, "")
    backends = {index: clean(_backend(records[index])) for index in members}
    variants = {index: clean(records[index].case.get("variant", "eager")) for index in members}
    if len(set(backends.values())) == 1:
        return variants
    if set(variants.values()) == {"eager"}:
        return backends
    widest = max(map(cell_len, backends.values()))
    return {index: f"{pad(backends[index], widest)} {variants[index]}" for index in members}


def lines(groups: Sequence[Group], room: int) -> list[TreeLine]:
    """The tree drawn for a first column of `room` columns.

    Rows are inline, as in `├─ n=1024  eager`, if they fit; else a point has a line of its own above its leaves, and a
    leaf that is still too long has one above its figures. A workload with a single row takes one line if it fits.
    """
    drawn: list[TreeLine] = []
    for item in groups:
        title = item.shared if item.workload == COMMAND and item.shared else "  ".join(filter(None, (item.workload, item.shared)))
        only = item.points[0].leaves if len(item.points) == 1 else ()
        folded = "  ".join(filter(None, (title, only[0].label if only and only[0].label != "eager" else "")))
        if len(only) == 1 and cell_len(folded) <= min(room, FOLD):
            drawn.append(TreeLine(folded, only[0].index))
            continue
        drawn.append(TreeLine(title))
        if only:
            drawn += _stacked([TreePoint(leaf.label, (TreeLeaf(leaf.index, ""),)) for leaf in only], room)
            continue
        inline = _inline(item.points)
        drawn += inline if all(cell_len(line.label) <= room for line in inline) else _stacked(item.points, room)
    return drawn


def _inline(points: Sequence[TreePoint]) -> list[TreeLine]:
    widest = max(cell_len(point.label) for point in points)
    drawn = []
    for point in points:
        last = point is points[-1]
        for number, leaf in enumerate(point.leaves):
            stem = (LAST if last else BRANCH) if number == 0 else (BLANK if last else TRUNK)
            label = pad(point.label if number == 0 else "", widest)
            drawn.append(TreeLine(f"{stem}{label}  {leaf.label}".rstrip() if number == 0 else f"{stem}{label}  {leaf.label}", leaf.index))
    return drawn


def _stacked(points: Sequence[TreePoint], room: int) -> list[TreeLine]:
    drawn: list[TreeLine] = []
    for point in points:
        last = point is points[-1]
        trunk = BLANK if last else TRUNK
        if len(point.leaves) == 1 and not point.leaves[0].label:
            drawn += _row(LAST if last else BRANCH, trunk, TreeLeaf(point.leaves[0].index, point.label), room)
            continue
        drawn.append(TreeLine((LAST if last else BRANCH) + (point.label or "–"), None, trunk))
        for leaf in point.leaves:
            drawn += _row(trunk, trunk, leaf, room)
    return drawn


def _row(stem: str, trunk: str, leaf: TreeLeaf, room: int) -> list[TreeLine]:
    label = stem + (leaf.label or "eager")
    if cell_len(label) <= room:
        return [TreeLine(label, leaf.index)]
    return [TreeLine(label, None, trunk), TreeLine(trunk.rstrip(), leaf.index)]
