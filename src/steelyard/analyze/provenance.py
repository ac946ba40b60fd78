"""Notes on differences in origin between two sides that may explain their difference in time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import msgspec

from steelyard.analyze.conditions import differing
from steelyard.files import first_line
from steelyard.model.pair import Pair
from steelyard.store import sources
from steelyard.store.runs import Run, moment

MOST_NAMED = 4
FEWEST_SWITCHES = 2


def describe(base: Sequence[Run], head: Sequence[Run], shared: Sequence[str]) -> list[str]:
    """Notes on an unpaired comparison, one sentence each: turns in time, commits, edited files, versions, conditions and machines."""
    notes = ["unpaired: base and head were measured at different times, so whatever else changed between them counts too"]
    if len(base) + len(head) > 2 and not alternating(base, head):
        notes.append("the runs of both sides do not take turns in time (base, head, base, head), so a change looks the same as drift")
    notes += [
        *_commits(*([commit_of(run) for run in side] for side in (base, head))),
        *_edited(base, head),
        *_versions(base, head, set(shared)),
        *differing(base, head, shared),
    ]
    if not all(run.header.machine_key for run in chain(base, head)):
        notes.append("not every run says on which machine it was made; both sides are assumed to be from one machine")
    return notes


def alternating(base: Sequence[Run], head: Sequence[Run]) -> bool:
    """Whether the runs of both sides take turns in time, so that drift hits both.

    There must be two changes of side, and as many as the smaller side has runs: one run among many of the other side is not enough.
    """
    times = [(moment(run.header.created), side) for side, runs in enumerate((base, head)) for run in runs]
    if not all(time for time, _ in times):
        return False
    order = [side for _, side in sorted(times)]
    switches = sum(before != after for before, after in pairwise(order))
    fewest = min(len(base), len(head))
    return switches >= max(FEWEST_SWITCHES, fewest)


class RunHead(msgspec.Struct):
    """The part of a run's header that says on which machine and at which commit it was made."""

    machine_key: str = ""
    machine: dict[str, Any] = {}
    farm: str = ""


def head_of(folder: Path) -> RunHead:
    """Read a run's head from the first line only, since a run may have hundreds of records; empty if it cannot be read."""
    try:
        return msgspec.json.decode(first_line(folder / "run.jsonl"), type=dict[str, RunHead])["header"]
    except (OSError, KeyError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return RunHead()


def commit_of(run: Run) -> tuple[str, bool]:
    """The commit that a run's folder was at, and whether files differed from it; empty when unknown."""
    return commit_in(run.header.machine)


def commit_in(machine: Mapping[str, Any]) -> tuple[str, bool]:
    """The commit, and whether files differed from it, from a run's facts about its machine."""
    git = machine.get("git")
    if not isinstance(git, dict) or not isinstance(git.get("commit"), str):
        return "", False
    return git["commit"], bool(git.get("dirty"))


def weighed_commits(pairs: Sequence[Pair]) -> list[str]:
    """A note on both arms' commits, for pairs in which a case was compared with itself from another source."""
    apart = [pair for pair in pairs if pair.base.id == pair.head.id]
    return _commits(*([(arm.commit, arm.dirty) for arm in arms] for arms in ([pair.base for pair in apart], [pair.head for pair in apart])))


def _commits(base: Sequence[tuple[str, bool]], head: Sequence[tuple[str, bool]]) -> list[str]:
    sides = [[f"{commit[:10]}{' with changes' if dirty else ''}" for commit, dirty in side if commit] for side in (base, head)]
    old, new = (_some(list(dict.fromkeys(names))) for names in sides)
    if old == new:
        return [f"both sides are at commit {old}"] if old else []
    return [f"base is at commit {old or 'unknown'}, head at {new or 'unknown'}"]


def _edited(base: Sequence[Run], head: Sequence[Run]) -> list[str]:
    """The user's files that differ between the sides; not listed for two clean commits."""
    told = [commit_of(run) for run in chain(base, head)]
    if all(commit and not dirty for commit, dirty in told) and len(set(told)) > 1:
        return []
    names = _unlike(*([sources.told(run.header.sources, run.records) for run in runs] for runs in (base, head)))
    return [f"files were edited in between: {_some(sorted(names))}"] if names else []


def _versions(base: Sequence[Run], head: Sequence[Run], shared: set[str]) -> list[str]:
    """Libraries whose versions differ between the cases that both sides have."""
    found = _unlike(*([table for run in side for table in _libraries(run, shared)] for side in (base, head)))
    changes = [f"{name} {_some(sorted(old))} → {_some(sorted(new))}" for name, (old, new) in found.items()]
    return [f"versions differ: {_some(changes)}"] if changes else []


def _libraries(run: Run, shared: set[str]) -> Iterator[dict[str, str]]:
    packages: Any = run.header.machine.get("packages")
    for table in (packages if isinstance(packages, dict) else {}, *(item.environment for item in run.records if item.id in shared)):
        yield {name: version for name, version in table.items() if isinstance(version, str) and version[:1].isdigit()}


def _unlike(base: Iterable[Mapping[str, str]], head: Iterable[Mapping[str, str]]) -> dict[str, tuple[set[str], set[str]]]:
    """The names that have different values in the tables of both sides, with those values."""
    sides: tuple[dict[str, set[str]], dict[str, set[str]]] = ({}, {})
    for found, tables in zip(sides, (base, head), strict=True):
        for table in tables:
            for name, value in table.items():
                found.setdefault(name, set()).add(value)
    old, new = sides
    return {name: (old[name], new[name]) for name in old if name in new and old[name] != new[name]}


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more
