"""Record: one case measured, with everything needed to judge and repeat it."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, get_args

T = TypeVar("T")
SCHEMA = 1
FEWEST = 6
"""The least number of samples from which a 95 % interval of the median can be computed, for any distribution."""

Status = Literal["ok", "wrong", "failed", "oom", "timeout", "crashed", "unsupported", "not_applied", "not_applicable", "skipped"]
STATUSES: tuple[Status, ...] = get_args(Status)
BAD: tuple[Status, ...] = ("wrong", "failed", "oom", "timeout", "crashed")

MONITOR = "monitor"
"""Key in a record's effective config for what its machine was doing: busy CPUs, memory of the run's processes, and its GPUs."""

HOST = "host"
"""Key in the effective config of a farm's record for the host that made it: name, station, machine key, and number of the attempt."""

UNWEIGHED, UNWEIGHED_OTHERS, WEIGHED = "unweighed", "unweighed_others", "weighed_together"
"""Keys in a record's effective config: why its comparison was not made; the same for earlier cases that were to be compared with it, by id;
and over how many comparisons its comparison time is shared."""

NOT_WEIGHED = "not weighed: "
"""Prefix of the reason for a comparison that was not made."""

REFERENCE = "reference_only"
"""The fact of a record whose backend only shows what is right: that it is slow is no news."""
FILE = "file:"
"""Prefix of the hash of a user's file among the fingerprints of a record's source."""

Arrays = dict[str, tuple[str, str, bytes]]
"""Raw samples before they are written to the sidecar: name -> unit, numpy dtype, bytes."""

FORMATS = {"<f8": "<d", "<f4": "<f", "<i8": "<q", "<i4": "<i", "<u8": "<Q", "<u4": "<I"}
SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}


def in_seconds(arrays: Arrays, name: str) -> list[float]:
    """The times of a raw series in seconds, in the order in which they were taken; empty if there is no such series."""
    unit = arrays[name][0] if name in arrays else "s"
    return [value * SECONDS[unit] for value in numbers(arrays, name)]


def numbers(arrays: Arrays, name: str) -> list[float]:
    """The values of a raw series, in its own unit."""
    _, dtype, data = arrays.get(name, ("", "<f8", b""))
    return [value for (value,) in struct.iter_unpack(FORMATS[dtype], data)]


@dataclass(frozen=True)
class Figure:
    """One measured quantity: SI value, unit, which way is better, and its 95 % interval over n samples."""

    value: float
    unit: str
    better: Literal["lower", "higher", "none"] = "none"
    low: float | None = None
    high: float | None = None
    n: int | None = None

    @property
    def caveat(self) -> str:
        """Why a time is shown without ±; empty if it has an interval around it."""
        if self.unit == "s" and self.value <= 0 and self.high:
            return "too short to distinguish from an empty call"
        if self.low is None and self.n is not None and self.n < FEWEST:
            return f"fewer than {FEWEST} samples have no interval"
        return ""


@dataclass(frozen=True)
class Verification:
    """Whether the answer is still right, against what, and by how much it is off.

    `checks` lists what was compared, and when; `identical` means that the two answers agree in every bit: nothing was lost, or both came
    from the same code. `code` is the name of the result in another system's rule, and `figures` are that rule's numbers.
    """

    status: Literal["passed", "failed", "none"]
    against: str = ""
    message: str = ""
    max_abs: float | None = None
    max_rel: float | None = None
    rtol: float | None = None
    atol: float | None = None
    identical: bool = False
    checks: list[str] = field(default_factory=list)
    code: str = ""
    figures: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Attachment:
    """A file kept beside the run: a trace, a log, a profile."""

    kind: str
    path: str
    sha256: str


@dataclass(frozen=True)
class Series:
    """The position of one array of raw samples in the run's samples.bin."""

    name: str
    unit: str
    dtype: str
    count: int
    offset: int


def altered(item: T, **values: Any) -> T:
    """Like `dataclasses.replace` in a fifth of the time, for records and pairs: a run makes thousands, and their constructors check
    nothing."""
    made = object.__new__(type(item))
    vars(made).update(vars(item) | values)
    return made


@dataclass(frozen=True)
class Record:
    """One case measured; `requested` is what was asked for, `effective` what was done."""

    id: str
    case: dict[str, Any]
    status: Status
    reason: str = ""
    metrics: dict[str, Figure] = field(default_factory=dict)
    requested: dict[str, Any] = field(default_factory=dict)
    effective: dict[str, Any] = field(default_factory=dict)
    verification: Verification | None = None
    environment: dict[str, Any] = field(default_factory=dict)
    source: dict[str, str] = field(default_factory=dict)
    samples: list[Series] = field(default_factory=list)
    attachments: list[Attachment] = field(default_factory=list)
    started: str = ""
    wall_s: float = 0.0
    schema: int = SCHEMA


def machine_of(record: Record, key: str) -> str:
    """The comparability key of the machine that a record was made on: on a farm from the record, else from its run."""
    host = record.effective.get(HOST)
    own = host.get("machine") if isinstance(host, Mapping) else None
    return own if isinstance(own, str) else key


def unweighed(records: Iterable[Record]) -> dict[str, str]:
    """Why requested comparisons were not made, by the ids of their cases."""
    found: dict[str, str] = {}
    for record in records:
        if UNWEIGHED in record.effective:
            found[record.id] = str(record.effective[UNWEIGHED])
        others = record.effective.get(UNWEIGHED_OTHERS)
        found |= {str(id): str(why) for id, why in others.items()} if isinstance(others, Mapping) else {}
    return found
