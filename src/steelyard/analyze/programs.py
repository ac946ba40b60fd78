"""Counts the contents of a compiled program from its text, and compares two programs: operations, fusions, calls and size.

HLO and MLIR are read line by line, only for the names of operations; no program is executed, and other lines are skipped.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

PROGRAM, BASE_PROGRAM = "program_counts", "base_program_counts"
"""Keys of a record for the counts of its programs, and for those of its base's programs."""
MOST_NAMES = 500
LONGEST_NAME = 120
_HLO = re.compile(r"\s*(?:ROOT )?%?[\w.<>\-]+ = ")
_OPCODE = re.compile(r"\s*([a-z][\w\-]*)\(")
_FUSION = re.compile(r"\bkind=k(\w+)")
_TARGET = re.compile(r'custom_call_target="([^"]*)"')
_HEAD = re.compile(r"(ENTRY )?%?[\w.<>\-]+ .*\{\s*$|(ENTRY )?%?[\w.<>\-]+ \{\s*$")
_MLIR = re.compile(r"""\s*(?:%[\w$.\-#:, %]+ = )?"?([a-z_]\w*(?:\.\w+)+)"?[\s(<@{%]""")
_SYMBOL = re.compile(r"@([\w$.\-]+)")
STILL = ("parameter", "constant", "tuple", "get-tuple-element", "bitcast")
"""Instructions of HLO that do nothing when a program runs."""
LAUNCHES = ("dispatch", "call", "custom_call")
"""Endings of the names of operations that pass work to a kernel or another function."""
SKIPPED = ("func.func", "builtin.module", "module")


@dataclass(frozen=True)
class ProgramCounts:
    """Counts of one program: its operations in total and by name, its fusions by kind, and its calls by name.

    `launched` counts the instructions of HLO's entry that do something, which run one after the other; `characters` is the
    length of its text.
    """

    form: str = ""
    operations: int = 0
    launched: int = 0
    names: Mapping[str, int] = field(default_factory=dict)
    fusions: Mapping[str, int] = field(default_factory=dict)
    calls: Mapping[str, int] = field(default_factory=dict)
    characters: int = 0

    def plain(self) -> dict[str, Any]:
        """The counts as JSON-ready data, with only the most frequent names."""
        return asdict(self) | {name: _most(getattr(self, name)) for name in ("names", "fusions", "calls")}

    @classmethod
    def from_plain(cls, data: Any) -> ProgramCounts:
        """The inverse of `plain`, for data from files: values that are not counts are left out."""
        known = data if isinstance(data, Mapping) else {}
        operations, launched, characters = (_counts(known).get(name, 0) for name in ("operations", "launched", "characters"))
        names, fusions, calls = (_counts(known.get(name)) for name in ("names", "fusions", "calls"))
        return cls(str(known.get("form", "")), operations, launched, names, fusions, calls, characters)


@dataclass(frozen=True)
class ProgramChange:
    """One line of a difference: what is counted, how often in the base, and how often in the head."""

    group: str
    name: str
    base: int
    head: int

    @property
    def change(self) -> int:
        """How many more there are in the head; negative if fewer."""
        return self.head - self.base


def _most(table: Mapping[str, int]) -> dict[str, int]:
    return {name[:LONGEST_NAME]: count for name, count in Counter(table).most_common(MOST_NAMES)}


def _counts(data: Any) -> dict[str, int]:
    return {str(name)[:LONGEST_NAME]: count for name, count in data.items() if type(count) is int} if isinstance(data, Mapping) else {}


def count_program(text: str) -> ProgramCounts:
    """Count the contents of an HLO or MLIR text; other text gives zero counts."""
    return _count_hlo(text) if text.lstrip().startswith("HloModule") else _count_mlir(text)


def _count_hlo(text: str) -> ProgramCounts:
    names, fusions, calls = Counter[str](), Counter[str](), Counter[str]()
    launched, entry = 0, False
    for line in text.splitlines():
        opcode = opcode_of(line)
        if not opcode:
            entry = line.startswith("ENTRY") if _HEAD.match(line) else entry
            continue
        names[opcode] += 1
        launched += entry and opcode not in STILL
        if opcode == "fusion":
            kind = _FUSION.search(line)
            fusions[kind[1].lower() if kind else "unnamed"] += 1
        elif opcode == "custom-call":
            target = _TARGET.search(line)
            calls[target[1] if target else "unnamed"] += 1
    return ProgramCounts("hlo", names.total(), launched, dict(names), dict(fusions), dict(calls), len(text))


def opcode_of(line: str) -> str:
    """The operation in one line of HLO, after the shape of its result, which may be a tuple; empty if the line has none."""
    begun = _HLO.match(line)
    if not begun:
        return ""
    past = _past_tuple(line, begun.end()) if line.startswith("(", begun.end()) else line.find(" ", begun.end())
    found = _OPCODE.match(line, past) if past >= 0 else None
    return found[1] if found else ""


def _past_tuple(line: str, place: int) -> int:
    """The index after the tuple shape that begins here; -1 if it is not closed."""
    depth = 0
    while place < len(line):
        depth += {"(": 1, ")": -1}.get(line[place], 0)
        place += 1
        if not depth:
            return place
    return -1


def _count_mlir(text: str) -> ProgramCounts:
    names, calls = Counter[str](), Counter[str]()
    for line in text.splitlines():
        found = _MLIR.match(line)
        if not found or found[1] in SKIPPED:
            continue
        names[found[1]] += 1
        if found[1].endswith(LAUNCHES):
            symbol = _SYMBOL.search(line, found.end(1))
            calls[symbol[1] if symbol else "unnamed"] += 1
    kinds = {name: count for name, count in names.items() if name.endswith((".dispatch", "executable.export"))}
    return ProgramCounts("mlir" if names else "", names.total(), calls.total(), dict(names), kinds, dict(calls), len(text))


def differences(base: ProgramCounts, head: ProgramCounts) -> list[ProgramChange]:
    """The totals of both, then every count that differs, in each group the largest difference first."""
    sums = [("operations", base.operations, head.operations), ("launched", base.launched, head.launched)]
    found = [ProgramChange("all", name, *both) for name, *both in sums]
    for group in ("fusions", "calls", "names"):
        before, after = getattr(base, group), getattr(head, group)
        rows = [ProgramChange(_GROUPS[group], name, before.get(name, 0), after.get(name, 0)) for name in sorted({*before, *after})]
        found += sorted((row for row in rows if row.change), key=lambda row: -abs(row.change))
    return found


_GROUPS = {"fusions": "fusion", "calls": "call", "names": "operation"}


def program_changes(effective: Mapping[str, Any]) -> dict[str, list[ProgramChange]]:
    """How the programs of a record differ from those of its base, for the names that both have; empty if one of them has no programs."""
    own, other = ({str(name): ProgramCounts.from_plain(found) for name, found in _table(effective, key)} for key in (PROGRAM, BASE_PROGRAM))
    return {name: differences(other[name], own[name]) for name in own if name in other}


def _table(effective: Mapping[str, Any], key: str) -> Iterator[tuple[Any, Any]]:
    found = effective.get(key)
    yield from found.items() if isinstance(found, Mapping) else ()


def summary_words(changes: Sequence[ProgramChange]) -> str:
    """The difference in one line: `120 operations instead of 134, 3 fusions fewer`; `the same operations` if there is none."""
    told = [f"{row.head} {row.name} instead of {row.base}" for row in changes if row.group == "all" and row.change]
    fused = sum(row.change for row in changes if row.group == "fusion")
    told += [f"{abs(fused)} {'fusion' if abs(fused) == 1 else 'fusions'} {'more' if fused > 0 else 'fewer'}"] if fused else []
    changed = any(row.change for row in changes)
    return ", ".join(told) or ("as many operations, but of other kinds" if changed else "the same operations")
