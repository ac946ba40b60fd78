"""Tries failed cases again: a new run takes over from an earlier one all that is not to be measured again.

Records are only added to a run, and none to a sealed one, so a second attempt never changes the first: it is a child of that run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from steelyard.engine import modules
from steelyard.errors import NothingMeasured, StoreError, UsageError, unknown
from steelyard.files import open_plain
from steelyard.model.record import BAD, STATUSES, Attachment, Record, Status
from steelyard.store import sources
from steelyard.store.refs import locate
from steelyard.store.runs import Header, Run, RunInfo, RunWriter, Store, read_run
from steelyard.store.samples import read_all

MOST_NAMED, MOST_TRIED = 4, 5
WORDS: dict[str, tuple[Status, ...]] = {
    **{status: (status,) for status in BAD},
    "failed": BAD,
    "all": tuple(status for status in STATUSES if status not in ("ok", "skipped")),
}
"""The words of `--retry`; as in a gate's policy, `failed` is any failure, and `all` is everything that is not ok."""


def parse_retry(words: Sequence[str]) -> frozenset[Status]:
    """The statuses that these words mean."""
    for word in words:
        if word not in WORDS:
            raise unknown("outcome to retry", word, WORDS)
    return frozenset(status for word in words for status in WORDS[word])


def begin(store: Store, header: Header, ref: str | None, again: Collection[Status]) -> RunWriter | None:
    """Start a run with all results of the newest run with the same fingerprint, or of the named one, except those with these statuses.

    None if there is no such run. An unfinished one with nothing to try again is continued.
    """
    old = _earlier(store, header.fingerprint, ref)
    if old is None:
        return None
    if not any(record.status in again for record in old.records):
        if old.seal is None:
            return store.resume(header.fingerprint, str(old.path))
        why = f"run {old.id} has all cases, and none is {' or '.join(sorted(again))}"
        raise NothingMeasured("nothing to try again", why=why, do="leave out --retry to measure everything again")
    reopened = store.resume(header.fingerprint, str(old.path)) if old.seal is None else None
    writer = store.create(replace(header, parent=old.id))
    try:
        _take_over(old, writer, again)
        if reopened:
            reopened.seal(f"continued as run {writer.id}")
    except BaseException:
        writer.close()
        raise
    finally:
        if reopened:
            reopened.close()
    return writer


def other_code(store: Store, header: Header, ref: str | None, *, sealed: bool) -> str:
    """Why the earlier run had other code: the user's files that were edited since; empty if none were.

    Files known before anything runs are part of the fingerprint; those that a case imported are compared here.
    """
    first, tries = "", 0
    for info in store.runs() if ref is None else [_info(store, ref)]:
        if info is None or not info.readable or (info.sealed and not sealed):
            continue
        same = info.fingerprint == header.fingerprint
        if not same and (tries == MOST_TRIED or (info.experiment, info.machine_key) != (header.experiment, header.machine_key)):
            continue
        tries += 1
        named = edited_since(store.at_hand(info.path), header.cases)
        why = f"{_listed(named)} {'was' if len(named) == 1 else 'were'} edited after run {info.id} was started" if named else ""
        if same:
            return why
        first = first or why
    return first


def edited_since(folder: Path, cases: Sequence[str] | None = None) -> list[str]:
    """The user's files that were edited since a run; none for a run of other cases."""
    run = read_run(folder)
    if cases is not None and run.header.cases != cases:
        return []
    return modules.edited(sources.told(run.header.sources, run.records), Path.cwd())


def _info(store: Store, ref: str) -> RunInfo | None:
    path = locate(store, ref).resolve()
    return next((info for info in store.runs() if info.path.resolve() == path), None)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:MOST_NAMED]) + (f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else "")


def _earlier(store: Store, fingerprint: str, ref: str | None) -> Run | None:
    if ref:
        run = read_run(locate(store, ref))
        if run.header.fingerprint != fingerprint:
            why = "its cases, settings, code or machine differ from those of this command"
            raise UsageError(f"run {run.id} is another experiment", why=why, do="repeat its own command, or start a new run")
        return run
    found = next((info for info in store.runs() if info.readable and info.fingerprint == fingerprint), None)
    return store.open(found) if found else None


def _take_over(old: Run, writer: RunWriter, again: Collection[Status]) -> None:
    """Copy records and pairs with their samples and attachments."""
    kept = {record.id: record for record in old.records if record.status not in again}
    for record in kept.values():
        writer.append(replace(record, attachments=list(_attached(old, record, writer)), samples=[]), read_all(old.path, record.samples))
    for pair in old.pairs:
        if pair.head.id in kept:
            writer.append_pair(replace(pair, samples=[]), read_all(old.path, pair.samples))


def _attached(old: Run, record: Record, writer: RunWriter) -> Iterator[Attachment]:
    for item in record.attachments:
        try:
            with open_plain(old.attachment(item)) as file:
                data = file.read()
        except (OSError, StoreError):
            continue
        yield writer.attach(item.kind, Path(item.path).name, data)
