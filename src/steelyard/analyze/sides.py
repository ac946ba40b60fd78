"""What a user names as a side of a comparison: a run, several, a commit, or another tool's file or folder of files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from steelyard.analyze.compare import RunsSide
from steelyard.analyze.provenance import commit_in, head_of
from steelyard.errors import StoreError, UsageError
from steelyard.files import existing
from steelyard.store.refs import locate
from steelyard.store.runs import Run, Store, moment, read_run

MOST_RUNS = 1000
_END = r"latest(?:~\d{1,9})?|[a-z0-9]{3,12}"
_RANGE = re.compile(rf"({_END})\.\.({_END})")
_COMMIT = re.compile(r"[0-9a-f]{4,64}")


def find(store: Store, ref: str) -> RunsSide:
    """The runs that a reference names, oldest first: `k3f9`, `latest~3..latest`, `a1b2,c3d4`, a commit, a path, a file, or `FILE#2`."""
    words = [ref] if existing(ref) or "," not in ref else [word.strip() for word in ref.split(",")]
    if not all(words):
        raise UsageError(f"not a reference: {ref!r}", do="name a run, a file, latest, latest~3..latest, a commit, or several by commas")
    runs = {(run.path, run.id): run for word in words for run in _runs(store, word)}
    if len(runs) > MOST_RUNS:
        raise UsageError(f"{ref!r} means {len(runs)} runs", why=f"at most {MOST_RUNS} are compared at once", do="name fewer")
    ordered = sorted(runs.values(), key=lambda run: moment(run.header.created))
    return RunsSide(_name(ref, ordered), tuple(ordered))


def with_past(store: Store, base: RunsSide, head: RunsSide) -> RunsSide:
    """The head with the noise between runs known from other runs of the store, if those can be read."""
    from steelyard.analyze.past import past_of

    try:
        return replace(head, past=past_of(store, base.runs, head.runs))
    except (OSError, StoreError):
        return head


def _name(ref: str, runs: list[Run]) -> str:
    if path := existing(ref):
        return path.name or ref
    ids = [run.id for run in runs]
    shown = ids[0] if len(ids) == 1 else f"{len(ids)} runs"
    return shown if ref == shown else f"{ref} ({shown})" if len(ref) <= 40 else shown


def _runs(store: Store, word: str) -> list[Run]:
    path = existing(word)
    if "#" in word or (path and path.name != "run.jsonl"):
        from steelyard.analyze.foreign import named

        if (runs := named(word)) is not None:
            return list(runs)
    if not path and (ends := _RANGE.fullmatch(word)):
        return _between(store, ends[1], ends[2])
    try:
        return [read_run(locate(store, word))]
    except UsageError:
        found = list(_of_commit(store, word)) if _COMMIT.fullmatch(word) else []
        if not found:
            raise
        return found


def _between(store: Store, first: str, last: str) -> list[Run]:
    """All readable runs of the store from one to another, in either order."""
    ends = [locate(store, end) for end in (first, last)]
    paths = [info.path for info in store.runs() if info.readable or info.path in ends]
    places = sorted(map(paths.index, ends))
    return [read_run(store.at_hand(path)) for path in paths[places[0] : places[1] + 1]]


def _of_commit(store: Store, prefix: str) -> Iterator[Run]:
    """Runs made at one commit; a prefix of several is refused, since they are not the same code."""
    folders = [(folder, commit) for folder in store.folders() if (commit := commit_in(head_of(folder).machine)[0]).startswith(prefix)]
    commits = {commit for _, commit in folders}
    if len(commits) > 1:
        shown = ", ".join(sorted(commit[:12] for commit in commits)[:6])
        raise UsageError(f"commit {prefix!r} is ambiguous", why=f"runs were made at {shown}", do="give more of its digits")
    return (read_run(folder) for folder, _ in folders)
