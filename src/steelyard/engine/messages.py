"""Messages between the conductor and a worker: jobs one way, answers the other, each a dataclass and one line of JSON.

Only `encode` and `decode` deal with JSON. A worker's end needs only the standard library.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from steelyard.model.case import Case
from steelyard.model.experiment import Settings
from steelyard.model.pair import Pair
from steelyard.model.protocol import Traces
from steelyard.model.record import STATUSES, Arrays, Figure, Record, Status

VERSION = 2
"""Counts changes of the messages. Both ends come from one installation, so nothing compares it yet."""
KIND = "is"


@dataclass(frozen=True)
class Sources:
    """The users' files and packages that define what is measured, and the folders that are searched for packages first."""

    files: tuple[str, ...] = ()
    entries: tuple[tuple[str, str], ...] = ()
    paths: tuple[str, ...] = ()


@dataclass(frozen=True)
class Describe:
    """Describe what the sources define."""

    sources: Sources


@dataclass(frozen=True)
class Check:
    """Check whether the shapes of each case fit, without running it: a Fit each, or if `brief` only for those that cannot run.

    If `brief`, another Fit is still sent now and then, as a sign of life.
    """

    sources: Sources
    cases: tuple[Case, ...]
    brief: bool = False


@dataclass(frozen=True)
class Measure:
    """Measure cases one after another: Started and a RecordAnswer each. `labels` are their names in a file, and `rules` the names of
    their verification rules, if those differ from the settings' rule.

    If `paused`, the worker waits before every case, not just the first, because something else uses the device in between.
    """

    sources: Sources
    settings: Settings
    cases: tuple[Case, ...]
    labels: tuple[str, ...] = ()
    paused: bool = False
    traces: Traces | None = None
    rules: tuple[str, ...] = ()


def parts_of(job: Measure) -> Iterator[tuple[Case, str, Settings]]:
    """Yield each case of a job with its label and with its settings."""
    for number, case in enumerate(job.cases):
        rule = job.rules[number] if number < len(job.rules) else ""
        label = job.labels[number] if number < len(job.labels) else ""
        yield case, label, dataclasses.replace(job.settings, rule=rule) if rule else job.settings


@dataclass(frozen=True)
class Weigh:
    """Compare variants of one point with their base, all together: a PairAnswer each, or Unweighed.

    `suite` is how many comparisons the whole run makes.
    """

    sources: Sources
    settings: Settings
    base: Case
    heads: tuple[Case, ...]
    suite: int = 1


@dataclass(frozen=True)
class Turns:
    """How the two arms of a comparison take turns: the folder of their pipes, which arm begins, on which CPU, for how many seconds.

    `agreed` is what the first pair of processes agreed on, empty for the first.
    """

    seed: str
    token: str
    share: float
    first: int
    cpu: int | None = None
    agreed: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Alternate:
    """Be one arm of a comparison in two processes, 0 for the base: an ArmAnswer, or ArmFailed or PartnerLost."""

    sources: Sources
    settings: Settings
    case: Case
    number: int
    turns: Turns


@dataclass(frozen=True)
class Pass:
    """Do an extra pass besides timing; its files go to `scratch`."""

    sources: Sources
    settings: Settings
    case: Case
    name: str
    scratch: str = ""


@dataclass(frozen=True)
class Export:
    """Make programs of a case, by kind and form, in a folder: Exported for each, and first for its arrays, written if `arrays`.

    `largest` is the largest number in the model's outputs, if an earlier worker has found it.
    """

    sources: Sources
    settings: Settings
    case: Case
    folder: str
    programs: tuple[str, ...]
    arrays: bool = True
    largest: float = 0.0


@dataclass(frozen=True)
class Drive:
    """Run a user's file whose own code calls the runner, which the module `shim` puts in place: Started and a RecordAnswer for each case.

    `held` are results of an earlier drive by case id: the runner gives them back and measures nothing.
    """

    sources: Sources
    settings: Settings
    shim: str
    file: str
    argv: tuple[str, ...] = ()
    held: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Expand:
    """Read a config with users' code loaded: hand `words` to the function `perform` of a dialect's module, which answers Expanded."""

    sources: Sources
    module: str
    words: Mapping[str, Any]


@dataclass(frozen=True)
class Converse:
    """A job that goes step by step: the function `perform` of a module gets `words`, then one Step after another until Go."""

    module: str
    words: Mapping[str, Any]


@dataclass(frozen=True)
class Step:
    """The next step of a Converse; each is answered by one Stepped."""

    words: Mapping[str, Any]


@dataclass(frozen=True)
class Prepare:
    """Import what a backend needs, and its compiler where something will be compiled, and wake the device; then wait for a job.

    With `triton`, a folder, Triton is loaded too: it compiles its driver there unless it finds it, which takes a C compiler's time.
    `locks` are files of inputs that a candidate will get, which are mapped and locked in memory for the device. `modules` are imported
    instead of what measuring needs.
    """

    backend: str
    device: str
    compiles: bool = False
    triton: str = ""
    locks: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()


@dataclass(frozen=True)
class Go:
    """Permission to begin timing, for a worker that sent Waiting."""


@dataclass(frozen=True)
class Quit:
    """End of all jobs."""


@dataclass(frozen=True)
class Described:
    """What the sources define, and the users' modules that were imported for it, by digest."""

    catalogue: Mapping[str, Any]


@dataclass(frozen=True)
class Ready:
    """A worker is about to measure; `environment` has the facts that only its framework knows about what it runs on."""

    environment: Mapping[str, Any]


@dataclass(frozen=True)
class Started:
    """A case of several begins; `unplanned` is the whole case if a user's code requested it."""

    case: str
    unplanned: Case | None = None


@dataclass(frozen=True)
class Retire:
    """Why this worker should get no more jobs; the rest of its job was not begun."""

    reason: str


@dataclass(frozen=True)
class Phase:
    """The current phase of a job and the fraction that is done, sent between blocks of timing."""

    name: str
    fraction: float | None = None


@dataclass(frozen=True)
class Waiting:
    """Everything is built; timing begins when the conductor sends Go, since it may do other work until then."""


@dataclass(frozen=True)
class Fit:
    """The check of a case without running it: why it cannot run, or why that could not be checked; neither, if its shapes fit."""

    case: str
    wrong: str = ""
    unchecked: str = ""


@dataclass(frozen=True)
class RecordAnswer:
    """A case's record, its raw samples, and the users' modules it imported, by digest.

    The record has no case and no requested settings, which the conductor knows; if `as_before`, it has no environment and no
    source either, since they are those of the record before it.
    """

    record: Record
    arrays: Arrays
    modules: Mapping[str, Any]
    as_before: bool = False


@dataclass(frozen=True)
class PairAnswer:
    """A comparison and its raw blocks."""

    pair: Pair
    arrays: Arrays


@dataclass(frozen=True)
class Unweighed:
    """Why a comparison could not be made."""

    reason: str


@dataclass(frozen=True)
class ArmAnswer:
    """The plan that an arm followed, and its raw blocks."""

    figures: Mapping[str, Any]
    arrays: Arrays


@dataclass(frozen=True)
class ArmFailed:
    """Why an arm has no answer."""

    status: Status
    reason: str


@dataclass(frozen=True)
class PartnerLost:
    """The other arm's process has ended; the reason is known only there."""

    reason: str


@dataclass(frozen=True)
class Found:
    """What a pass adds to a record: figures, facts about how they were measured, and files by kind and path."""

    figures: Mapping[str, Figure] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    files: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Expanded:
    """What a dialect's module made of a config, as data of its own form."""

    words: Mapping[str, Any]


@dataclass(frozen=True)
class Stepped:
    """The result of a Step."""

    words: Mapping[str, Any]


@dataclass(frozen=True)
class Exported:
    """One program of a case, or its arrays: `ok` with what its manifest needs, or another status with the reason."""

    program: str
    status: str
    words: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Fault:
    """A job that could not be done at all, as the parts of a SteelyardError."""

    what: str
    why: str = ""
    do: str = ""
    where: str = ""


@dataclass(frozen=True)
class Done:
    """The job is finished."""


Order = Describe | Check | Measure | Weigh | Alternate | Pass | Export | Drive | Expand | Converse | Step | Prepare | Go | Quit
Answer = (
    Described | Ready | Started | Retire | Phase | Waiting | Fit | RecordAnswer | PairAnswer | Unweighed | ArmAnswer | ArmFailed
    | PartnerLost | Found | Expanded | Stepped | Exported | Fault | Done
)  # fmt: skip
Message = Order | Answer
Stored = Callable[[type, Any], Any]
"""Reads a part of a message with all the checks of a stored run; only the conductor needs it."""


def encode(message: Message) -> str:
    """Return a message as one line, without its end; numbers that JSON cannot represent become null."""
    whole = {KIND: type(message).__name__, **vars(message)}
    try:
        return _ENCODER.encode(whole)
    except ValueError:
        return _ENCODER.encode(_finite(whole))


def decode(line: bytes | str, stored: Stored | None = None, parse: Callable[[Any], Any] = json.loads) -> Message | None:
    """Return the message of a line, or None if it is not a message, as when a library writes to every open file.

    A line that names a kind of message but is not valid raises ValueError. `stored` reads the parts that a stored run has too,
    and `parse` the JSON itself.
    """
    try:
        plain = parse(line)
    except (ValueError, RecursionError):
        return None
    kind = _KINDS.get(str(plain.pop(KIND, None))) if isinstance(plain, dict) else None
    if kind is None:
        return None
    try:
        types = _ANNOTATIONS[kind]
        made: Message = kind(**{name: _read(value, types[name], stored) for name, value in plain.items()})
        return made
    except Exception as error:
        raise ValueError(f"not a valid {kind.__name__}: {error}") from error


def _read(value: Any, annotation: str, stored: Stored | None) -> Any:
    if annotation in _READERS:
        return _READERS[annotation](value)
    assert stored is not None, f"{annotation} is read by the conductor alone"
    if annotation == "Mapping[str, Figure]":
        return {_text(name): stored(Figure, figure) for name, figure in value.items()}
    return stored({"Record": Record, "Pair": Pair}[annotation], value)


def _plain(value: Any) -> Any:
    """JSON forms of types that JSON lacks."""
    if isinstance(value, Case):
        return {**value.plain(), "id": value.id}
    if isinstance(value, (bytes, memoryview)):
        return base64.b64encode(value).decode()
    if dataclasses.is_dataclass(value):
        return vars(value)
    if isinstance(value, Mapping):
        return dict(value)
    return str(value)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, (str, bytes, Case)):
        return value
    if dataclasses.is_dataclass(value):
        value = vars(value)
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value


_ENCODER = json.JSONEncoder(separators=(",", ":"), default=_plain, allow_nan=False)


def _one_of(*kinds: type) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise TypeError(f"{value!r:.60} is not of type {' or '.join(kind.__name__ for kind in kinds)}")
        return value

    return read


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.60} is not of type str")
    return value


def _status(value: Any) -> Any:
    if value not in STATUSES:
        raise TypeError(f"{value!r:.60} is not a status")
    return value


def _read_pairs(value: Any) -> tuple[tuple[str, str], ...]:
    return tuple((_text(first), _text(second)) for first, second in value)


def _read_case(value: Any) -> Case:
    """Return a case with its id, which takes longer to compute than to send."""
    found = Case.from_plain(value)
    if "id" in value:
        vars(found)["id"] = _text(value["id"])
    return found


def read_sources(value: Any) -> Sources:
    """Sources from their JSON."""
    return Sources(tuple(map(_text, value["files"])), _read_pairs(value["entries"]), tuple(map(_text, value["paths"])))


def _read_arrays(value: Any) -> Arrays:
    return {_text(name): (_text(unit), _text(dtype), base64.b64decode(data)) for name, (unit, dtype, data) in value.items()}


_READERS: Mapping[str, Callable[[Any], Any]] = {
    "str": _text, "int": _one_of(int), "float": _one_of(int, float), "float | None": _one_of(int, float, type(None)),
    "int | None": _one_of(int, type(None)), "Status": _status, "Mapping[str, Any]": _one_of(dict),
    "Case": _read_case, "Case | None": lambda value: None if value is None else _read_case(value),
    "tuple[Case, ...]": lambda value: tuple(map(Case.sent, value)),
    "Settings": Settings.from_plain, "Sources": read_sources, "Turns": lambda value: Turns(**value), "bool": _one_of(bool),
    "Traces | None": lambda value: None if value is None else Traces(**{**value, "counters": tuple(value["counters"])}),
    "tuple[str, ...]": lambda value: tuple(map(_text, value)),
    "Arrays": _read_arrays, "tuple[tuple[str, str], ...]": _read_pairs,
}  # fmt: skip
"""Functions that read the value of a field, by its annotation above."""
_KINDS: Mapping[Any, type] = {kind.__name__: kind for kind in (*Order.__args__, *Answer.__args__)}
_ANNOTATIONS: Mapping[type, Mapping[str, str]] = {
    kind: {item.name: str(item.type) for item in dataclasses.fields(kind)} for kind in _KINDS.values()
}
