"""The user's own files that a run used, by hash: which files and hashes a run recorded, and whether all its records are of the same
code."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from steelyard.model.record import FILE, Record


def told(sources: Mapping[str, str], records: Iterable[Record]) -> dict[str, str]:
    """Every file that a run recorded, with its last hash."""
    found = dict(sources)
    for record in records:
        found |= files_of(record)
    return found


def files_of(record: Record) -> dict[str, str]:
    """The files that a record loaded first, or first in this version."""
    return {key.removeprefix(FILE): digest for key, digest in record.source.items() if key.startswith(FILE)}


def mixed(sources: Mapping[str, str], records: Iterable[Record]) -> Iterator[str]:
    """A sentence for every file that was edited between two records of one run."""
    found = dict(sources)
    for number, record in enumerate(records, 1):
        for name, digest in files_of(record).items():
            if found.setdefault(name, digest) != digest:
                found[name] = digest
                yield f"{name} was edited while the run was measured: from record {number} on the code is different"
