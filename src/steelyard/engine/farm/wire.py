"""The messages between a conductor and its stations: dataclasses, and their encoding in a frame.

Records and pairs travel as the lines of a run, and are read by the same code with the same checks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from steelyard import codec
from steelyard.codec.shapes import within_reach
from steelyard.engine.farm.frames import Refused
from steelyard.engine.plan import Job
from steelyard.errors import StoreError
from steelyard.files import LINE, check_values, limit
from steelyard.model.experiment import ResultRow
from steelyard.model.pair import Pair
from steelyard.model.record import Arrays, Record

VERSION = 1
PIECE = 4 << 20
"""Bytes of an attachment in one message."""
MOST_NAME, MOST_WORDS = 200, 4000


@dataclass(frozen=True)
class AttemptMark:
    """A group and the number of the attempt at it, which distinguishes its answers from those of an earlier attempt."""

    group: int
    attempt: int


@dataclass(frozen=True)
class Joining:
    """A station joins: its name from the ticket, its host, and the attempts that it is working on or has answers of.

    `life` is drawn when its process starts; it distinguishes a station that reconnects from one that was started again.
    """

    name: str
    life: str
    host: str
    pid: int
    machine: Mapping[str, Any]
    key: str
    envs: tuple[str, ...] = ()
    devices: Mapping[str, int] = field(default_factory=dict)
    at: tuple[AttemptMark, ...] = ()
    version: int = VERSION
    steelyard: str = ""

    def __post_init__(self) -> None:
        if any(len(text) > MOST_NAME for text in (self.name, self.life, self.host, self.key, self.steelyard, *self.envs, *self.devices)):
            raise ValueError(f"a name has more than {MOST_NAME} characters")


@dataclass(frozen=True)
class Welcome:
    """What all groups of the run share.

    `interpreters` has the environment's name for each of the conductor's interpreters, empty for the station's own; `suite` is the
    number of comparisons in the whole run. A station sends a Beat every `beat` seconds, and waits for an unreachable conductor for
    `patience` seconds. `calibrate` requests Calibrated before the first offer. `here` is the conductor's working folder; `goods` means
    that the station's host does not have the users' files and must fetch them.
    """

    run: str
    settings: Mapping[str, Any]
    experiment: str = ""
    files: tuple[str, ...] = ()
    entries: tuple[tuple[str, str], ...] = ()
    interpreters: Mapping[str, str] = field(default_factory=dict)
    suite: int = 0
    beat: float = 3.0
    patience: float = 60.0
    sources: Mapping[str, str] = field(default_factory=dict)
    calibrate: bool = False
    here: str = ""
    goods: bool = False


@dataclass(frozen=True)
class Calibrated:
    """A host's speed in several rounds: seconds of fixed work by name, and the share of the time that other programs had its CPU."""

    seconds: Mapping[str, tuple[float, ...]]
    waited: tuple[float, ...]


@dataclass(frozen=True)
class Delayed:
    """Why a station without a group cannot begin, such as another run on its machine."""

    reason: str


@dataclass(frozen=True)
class GoodsWanted:
    """A station's request for the archive of users' files."""


@dataclass(frozen=True)
class GoodsPiece:
    """Some bytes of the archive of users' files; `last` marks the last ones."""

    data: bytes
    last: bool = False


@dataclass(frozen=True)
class Offer:
    """A group to measure: its jobs, its listed pairs, and the records that the run has of it already, as lines."""

    mark: AttemptMark
    jobs: tuple[Job, ...]
    pairs: tuple[Job, ...] = ()
    rows: tuple[ResultRow, ...] = ()
    held: tuple[bytes, ...] = ()
    held_pairs: tuple[bytes, ...] = ()


@dataclass(frozen=True)
class Withdrawal:
    """An attempt that no longer counts: the station stops it and drops its answers."""

    mark: AttemptMark


@dataclass(frozen=True)
class Kept:
    """The answers of an attempt up to this number are on the disk, or are not needed: the station may drop them."""

    mark: AttemptMark
    number: int


@dataclass(frozen=True)
class Farewell:
    """The order to a station to end, and why."""

    reason: str = ""


@dataclass(frozen=True)
class Beat:
    """A sign of life, from either side."""

    case: str = ""


@dataclass(frozen=True)
class CaseBegun:
    """A case of an attempt begins."""

    mark: AttemptMark
    case: str


@dataclass(frozen=True)
class StationWord:
    """A station's progress: a phase of the case, why it waits, or a note."""

    mark: AttemptMark
    kind: Literal["phase", "waiting", "note"]
    text: str
    fraction: float | None = None


@dataclass(frozen=True)
class AttachmentPiece:
    """Some bytes of an attachment; the record in the answer with this number names it."""

    mark: AttemptMark
    number: int
    path: str
    data: bytes


@dataclass(frozen=True)
class GroupAnswer:
    """The next answer of an attempt, counted from 1: a record or a pair as its line, with raw samples, or a pair that was not compared."""

    mark: AttemptMark
    number: int
    kind: Literal["record", "pair", "unweighed"]
    line: bytes = b""
    arrays: Mapping[str, tuple[str, str, bytes]] = field(default_factory=dict)
    case: str = ""
    base: str = ""
    reason: str = ""


@dataclass(frozen=True)
class GroupDone:
    """The end of an attempt, numbered after its last answer; `trouble` is why it could not be done on this host."""

    mark: AttemptMark
    number: int
    trouble: str = ""

    def __post_init__(self) -> None:
        if len(self.trouble) > MOST_WORDS:
            raise ValueError(f"a trouble has more than {MOST_WORDS} characters")


FarmMessage = (
    Joining | Welcome | Calibrated | Delayed | GoodsWanted | GoodsPiece | Offer | Withdrawal | Kept | Farewell | Beat | CaseBegun
    | StationWord | AttachmentPiece | GroupAnswer | GroupDone
)  # fmt: skip
_KINDS: Mapping[str, type] = {kind.__name__: kind for kind in FarmMessage.__args__}
_ENVELOPE = msgspec.msgpack.Decoder(tuple[str, msgspec.Raw])
_DECODERS: Mapping[str, msgspec.msgpack.Decoder[Any]] = {name: msgspec.msgpack.Decoder(kind) for name, kind in _KINDS.items()}


def pack(message: FarmMessage) -> bytes:
    """Return a message as the body of a frame."""
    return msgspec.msgpack.encode([type(message).__name__, message], enc_hook=str)


def unpack(body: bytes) -> FarmMessage:
    """Return the message of a frame; an invalid one is refused, which ends the connection."""
    try:
        name, rest = _ENVELOPE.decode(body)
        found: FarmMessage = _DECODERS[name].decode(rest)
    except (msgspec.MsgspecError, KeyError, ValueError, TypeError, RecursionError) as error:
        raise Refused("a message cannot be read", why=" ".join(str(error).split())[:200]) from None
    return found


def read_record(line: bytes) -> Record:
    """Read a record that a station sent, with the checks that a stored one gets."""
    found: Record = _read(Record, line)
    return found


def read_pair(line: bytes) -> Pair:
    """Read a pair that a station sent, with the checks that a stored one gets."""
    found: Pair = _read(Pair, line)
    return found


def _read(kind: type[Any], line: bytes) -> Any:
    most = limit(LINE)
    if len(line) > most:
        raise Refused(f"a {kind.__name__.lower()} of {len(line)} bytes is too large", why=f"it may have {most}")
    try:
        check_values(line, most, "the line")
        return codec.decode(kind, line, checked=within_reach(line))
    except StoreError as error:
        raise Refused(f"a station sent what is not a {kind.__name__.lower()}", why=" ".join(str(error).split())[:200]) from None


def arrays_of(answer: GroupAnswer) -> Arrays:
    """Return the raw samples of an answer, as the store takes them."""
    return {name: (unit, dtype, data) for name, (unit, dtype, data) in answer.arrays.items()}
