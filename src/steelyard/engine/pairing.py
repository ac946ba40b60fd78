"""The pairs that an experiment lists for comparison, and its rows of cases and pairs: every name is settled, nothing is timed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from steelyard.engine.names import same_variant, settle
from steelyard.errors import UsageError, unknown
from steelyard.model.case import Case
from steelyard.model.experiment import Experiment, ResultRow
from steelyard.registry import Catalogue

CasePair = tuple[Case, Case]
"""Head and base."""
SHARED = ("device", "threads", "ranks", "flags", "env")
"""The parts of a case that decide where and how its worker runs: two arms that differ in them differ in more than what is compared."""


def rows_of(experiment: Experiment, catalogue: Catalogue) -> list[ResultRow]:
    """Return the rows with their cases settled."""
    found = []
    for row in experiment.rows:
        cases = tuple(settle(case, catalogue) for case in row.cases)
        found.append(replace(row, cases=cases, pairs=tuple((settle(head, catalogue), settle(base, catalogue)) for head, base in row.pairs)))
    if len({row.key for row in found}) < len(found):
        raise UsageError("two rows have the same key", do="give each its own")
    return found


def pairs_of(experiment: Experiment, rows: Sequence[ResultRow], cases: Collection[Case], catalogue: Catalogue) -> dict[CasePair, str]:
    """Return every pair once, those of rows last, with the key of the first row that names it."""
    listed = [pair for head, base in experiment.pairs for pair in _meant(head, base, cases, catalogue)]
    found = dict.fromkeys(listed, "")
    for row in rows:
        for pair in row.pairs:
            found.setdefault(pair, row.key)
    for head, base in found:
        _check(head, base)
    if found and experiment.settings.vs:
        raise UsageError("pairs and vs both say what is compared", do="leave one of them out")
    return found


def _meant(head: str | Case, base: str | Case, cases: Iterable[Case], catalogue: Catalogue) -> list[CasePair]:
    """Return the pairs that two words mean: one if the head is a case, else one for every case that the head's word matches.

    A word may be for one workload only, `op/softmax@torch/eager`; it may match no case, as when a filter left the case out.
    """
    if isinstance(head, Case) or ":" in head:
        heads = [_case(head, catalogue)]
    else:
        workload, _, word = head.rpartition("@")
        if workload and workload not in catalogue.workloads:
            raise unknown("workload", workload, catalogue.workloads, where="pairs")
        heads = [case for case in cases if workload in ("", case.workload) and same_variant(word, case, catalogue)]
        if not heads and not workload:
            raise UsageError(f"pairs: no case matches {head}", do="add it to the variants of a matrix, or write a whole case id")
    if isinstance(base, Case) or ":" in base:
        return [(case, _case(base, catalogue)) for case in heads]
    return [(case, settle(case.against(base.rpartition("@")[2]), catalogue)) for case in heads]


def _case(item: str | Case, catalogue: Catalogue) -> Case:
    return settle(Case.parse(item) if isinstance(item, str) else item, catalogue)


def _check(head: Case, base: Case) -> None:
    if head == base:
        raise UsageError(f"{head} is compared with itself", do="name another base")
    for name in SHARED:
        if getattr(head, name) != getattr(base, name):
            raise UsageError(f"{head} cannot be compared with {base}", why=f"they differ in {name}", do="measure both and compare two runs")


def whole_rows(rows: Iterable[ResultRow], kept: AbstractSet[Case]) -> tuple[ResultRow, ...]:
    """Return the rows whose cases were all kept by rules and filters."""
    return tuple(row for row in rows if {*row.cases, *(case for pair in row.pairs for case in pair)} <= kept)
