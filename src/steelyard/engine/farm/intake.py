"""Checks what a station sends before it is stored: only cases of its own group are accepted, and its paths are never used."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import PurePosixPath

from steelyard.analyze.machines import SPEED
from steelyard.engine.after import LARGEST_FILE
from steelyard.engine.farm.fleet import StationView
from steelyard.engine.farm.frames import Refused
from steelyard.engine.farm.groups import JobGroup
from steelyard.engine.farm.placing import HostOffer
from steelyard.engine.farm.wire import AttachmentPiece, AttemptMark, GroupAnswer, Joining, arrays_of, read_pair, read_record
from steelyard.model.pair import Pair
from steelyard.model.record import HOST, Arrays, Attachment, Record
from steelyard.store.runs import RunWriter
from steelyard.store.samples import SIZES

MOST_FILES, MOST_BYTES = 200, 2 * LARGEST_FILE
"""Limits for a station's incomplete attachments, which are held in memory until their record arrives."""
_PATH = re.compile(r"attachments/[A-Za-z0-9][A-Za-z0-9._-]{0,120}")


def offer_of(joining: Joining) -> HostOffer:
    """Return the resources of a station's host."""
    memory = joining.machine.get("memory")
    total = memory.get("total") if isinstance(memory, Mapping) else 0
    return HostOffer(joining.key[:64], dict(joining.devices), total if isinstance(total, int) else 0, joining.envs)


def take_piece(piece: AttachmentPiece, view: StationView) -> None:
    """Add some bytes to an attachment; an unsafe name or too many bytes are refused."""
    if not _PATH.fullmatch(piece.path):
        raise Refused(f"an attachment is called {piece.path[:80]!r}", why="its path leads out of its folder, or is not a plain name")
    mine = {key for key in view.files if key[0] == piece.mark}
    if (piece.mark, piece.path) not in mine and len(mine) >= MOST_FILES:
        raise Refused(f"more than {MOST_FILES} attachments are incomplete")
    held = view.files.setdefault((piece.mark, piece.path), bytearray())
    if len(held) + len(piece.data) > LARGEST_FILE:
        raise Refused(f"an attachment is larger than {LARGEST_FILE >> 20} MiB")
    if sum(map(len, view.files.values())) + len(piece.data) > MOST_BYTES:
        raise Refused(f"more than {MOST_BYTES >> 20} MiB of attachments are incomplete")
    held += piece.data


def forget_files(view: StationView, mark: AttemptMark) -> None:
    """Drop the incomplete attachments of an attempt."""
    view.files = {key: data for key, data in view.files.items() if key[0] != mark}


def record_of(answer: GroupAnswer, group: JobGroup, view: StationView, writer: RunWriter) -> tuple[Record, Arrays]:
    """Return an answer's record as it is stored here: with its files in this run, and its host. Refuse a case that is not in the group."""
    record = read_record(answer.line)
    job = next((job for job in group.jobs if job.case.id == record.id), None)
    if job is None:
        raise Refused(f"it sent a record of {record.id[:120]!r}", why=f"group {group.number} has no such case")
    speed = {SPEED: dict(view.kind_speed)} if view.kind_speed else {}
    where = {"name": view.joining.host, "station": view.name, "machine": view.offer.machine, "attempt": answer.mark.attempt, **speed}
    kept = [_kept_file(item, answer.mark, view, writer) for item in record.attachments]
    effective = {**record.effective, HOST: where}
    return replace(record, case=job.case.plain(), samples=[], attachments=kept, effective=effective), _checked(arrays_of(answer))


def _kept_file(item: Attachment, mark: AttemptMark, view: StationView, writer: RunWriter) -> Attachment:
    data = view.files.pop((mark, item.path), None)
    if data is None:
        raise Refused(f"a record names the attachment {item.path[:80]!r}", why="no such file was sent")
    if hashlib.sha256(data).hexdigest() != item.sha256:
        raise Refused(f"the attachment {item.path[:80]!r} has another hash than its record says")
    return writer.attach(item.kind, f"{len(writer.done) + 1}-{PurePosixPath(item.path).name}", bytes(data))


def pair_of(answer: GroupAnswer, group: JobGroup) -> tuple[Pair, Arrays]:
    """Return an answer's comparison; refuse a pair that is not in the group."""
    pair = read_pair(answer.line)
    wanted = {(job.case.id, job.vs.id) for job in (*group.jobs, *group.pairs) if job.vs}
    if (pair.head.id, pair.base.id) not in wanted:
        raise Refused(f"it sent a comparison of {pair.head.id[:120]!r}", why=f"group {group.number} has no such pair")
    return replace(pair, samples=[]), _checked(arrays_of(answer))


def _checked(arrays: Arrays) -> Arrays:
    for name, (_, dtype, data) in arrays.items():
        if dtype not in SIZES or len(data) % SIZES[dtype]:
            raise Refused(f"samples {name[:60]!r} are not {dtype[:20]!r} values")
    return arrays


def told_of(record: Record) -> Mapping[str, object]:
    """Return where a record was measured, as it says; empty if it was measured here."""
    found = record.effective.get(HOST)
    return found if isinstance(found, Mapping) else {}
