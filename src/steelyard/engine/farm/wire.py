"""What a conductor and its stations say to each other: dataclasses, and their form in a frame.

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
    """A group and the number of the attempt at it, by which an answer is distinguished from that of an earlier one."""

    group: int
    attempt: int


@dataclass(frozen=True)
class Joining:
    """A station that is there: its name from the ticket, what its host is, and the attempts that it is at or has answers of.

    `life` is drawn when its process starts: a station that was lost and one that was started anew are told apart by it.
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

    `interpreters` are the conductor's own, by the environment that each belongs to, empty for ours; `suite` is how many comparisons
    the whole run makes. A station says every `beat` seconds that it is there, and waits for a conductor that is away for `patience`.
    `calibrate` asks for Calibrated before the first offer. `here` is the folder that the conductor works in; where `goods` are to be
    fetched, nothing of that is on the station's host.
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
    """How fast a host is, some times over: seconds of fixed work by name, and which share of the time others had its CPU."""

    seconds: Mapping[str, tuple[float, ...]]
    waited: tuple[float, ...]


@dataclass(frozen=True)
class Delayed:
    """A station that has nothing yet cannot begin, and why: another run has its machine."""

    reason: str


@dataclass(frozen=True)
class GoodsWanted:
    """A station asks for the archive of users' files."""


@dataclass(frozen=True)
class GoodsPiece:
    """Some bytes of that archive; the last ones say so."""

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
    """An attempt that no longer counts: what is begun of it is stopped, and its answers are forgotten."""

    mark: AttemptMark


@dataclass(frozen=True)
class Kept:
    """The answers of an attempt up to this number are on the disk, or are not wanted: the station may forget them."""

    mark: AttemptMark
    number: int


@dataclass(frozen=True)
class Farewell:
    """The station is to end, and why."""

    reason: str = ""


@dataclass(frozen=True)
class Beat:
    """A sign of life, either way."""

    case: str = ""


@dataclass(frozen=True)
class CaseBegun:
    """A case of an attempt begins."""

    mark: AttemptMark
    case: str


@dataclass(frozen=True)
class StationWord:
    """A message for a station's progress: a phase of the case, that it waits, or a note."""

    mark: AttemptMark
    kind: Literal["phase", "waiting", "note"]
    text: str
    fraction: float | None = None


@dataclass(frozen=True)
class AttachmentPiece:
    """Some bytes of an attachment, which the record of the answer with this number names."""

    mark: AttemptMark
    number: int
    path: str
    data: bytes


@dataclass(frozen=True)
class GroupAnswer:
    """The next answer of an attempt, counted from 1: a record or a pair as its line, with raw samples, or a pair that was not weighed."""

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
    """An attempt has come to its end with so many answers; `trouble` is why it could not be done on this host at all."""

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
    """A message as the body of a frame."""
    return msgspec.msgpack.encode([type(message).__name__, message], enc_hook=str)


def unpack(body: bytes) -> FarmMessage:
    """The message of a frame; one that is not sound ends the connection."""
    try:
        name, rest = _ENVELOPE.decode(body)
        found: FarmMessage = _DECODERS[name].decode(rest)
    except (msgspec.MsgspecError, KeyError, ValueError, TypeError, RecursionError) as error:
        raise Refused("a message cannot be read", why=" ".join(str(error).split())[:200]) from None
    return found


def read_record(line: bytes) -> Record:
    """A record that a station sent, with the checks that a stored one gets."""
    found: Record = _read(Record, line)
    return found


def read_pair(line: bytes) -> Pair:
    """The same of a pair."""
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
    """The raw samples of an answer, as the store takes them."""
    return {name: (unit, dtype, data) for name, (unit, dtype, data) in answer.arrays.items()}
