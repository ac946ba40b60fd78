"""How a case is sampled by another system's rules: a fixed number of calls, timed as that system times them. Our own sampling, by budget
and precision, is in Settings and needs no protocol.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from steelyard.errors import UsageError, unknown
from steelyard.model.units import is_amount

Clock = Literal["discrete", "continuous", "events", "fastest"]
Inputs = Literal["same", "fresh", "random"]
Counters = Literal["none", "counts", "reports"]


@dataclass(frozen=True)
class Fixed:
    """A fixed number of untimed warm-ups and timed repeats, whatever the times are.

    With the clock `discrete` each call is timed from idle to idle; `continuous` times all calls without a pause and divides; `events`
    times each call by two marks on the device's own queue; `fastest` repeats each call many times and takes the shortest. `rehearse` is
    a number of calls before the warm-ups that are not recorded. `warmup_time` and `repeat_time` replace `warmup` and `repeats`: as many
    calls are made as fill these seconds, estimated from a few calls. `flush` empties the device's cache before each call. `ranges` is the
    first word of the labels shown by profiling tools, and in traces if the run is `traced`.

    A repeat is `calls` calls, issued one after another and waited for at the end. `inputs` says whether all calls get the same
    inputs, copies made before the repeat is timed, or copies with other random numbers. `cold` means that nothing is called before the
    first repeat, which therefore includes compilation; its time is kept separately. `counters` keeps what the framework counted in
    each repeat, and with `reports` also the framework's own text about it.
    """

    warmup: int = 0
    repeats: int = 1
    clock: Clock = "discrete"
    backward: bool = False
    rehearse: int = 0
    flush: bool = False
    ranges: str = ""
    traced: bool = False
    calls: int = 1
    inputs: Inputs = "same"
    cold: bool = False
    counters: Counters = "none"
    warmup_time: float | None = None
    repeat_time: float | None = None

    def __post_init__(self) -> None:
        for name, choices in (("clock", Clock), ("inputs", Inputs), ("counters", Counters)):
            if getattr(self, name) not in get_args(choices):
                raise unknown(name, str(getattr(self, name)), get_args(choices))
        for name, least in (("warmup", 0), ("repeats", 0), ("rehearse", 0), ("calls", 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise UsageError(f"{name} is {str(value)[:60]}", do=f"give a whole number of at least {least}")
        for name in ("warmup_time", "repeat_time"):
            if (seconds := getattr(self, name)) is not None and not is_amount(seconds):
                raise UsageError(f"{name} is {str(seconds)[:60]}", do="give a finite number of seconds")
        for name in ("backward", "flush", "cold"):
            if not isinstance(getattr(self, name), bool):
                raise UsageError(f"{name} is {str(getattr(self, name))[:60]}", do="leave it out, or write it without a value")
        timed = self.warmup_time is not None or self.repeat_time is not None
        if self.cold and (self.warmup or self.rehearse or timed):
            raise UsageError("a cold first repeat has no calls before it", do="leave out warmup, rehearse and times, or cold")
        if self.grouped and (self.backward or self.flush or self.rehearse or timed or self.clock not in ("discrete", "fastest")):
            raise UsageError(
                "repeats of several calls, other inputs and counters are for whole calls by the clock discrete or fastest",
                do="leave out backward, flush, rehearse and times, or take one call per repeat with the same inputs",
            )

    @property
    def grouped(self) -> bool:
        """Whether a repeat is more than one plain call."""
        return self.calls > 1 or self.inputs != "same" or self.counters != "none" or self.clock == "fastest"

    def plain(self) -> dict[str, Any]:
        """The protocol as JSON-ready data, without defaults."""
        usual = Fixed()
        return {name: value for name, value in vars(self).items() if value != getattr(usual, name)}


_WRITTEN = re.compile(r"(\d{1,9})\+(\d{1,9})(?::(\w+))?((?:,[^,]+)*)")
_WORDS = ("backward", "rehearse", "flush", "calls", "inputs", "cold", "counters")
"""Options that may follow the clock, each as a word or as `name=value`."""


def parse_fixed(text: str) -> Fixed:
    """Read a protocol: `5+20` is 5 warm-ups and 20 repeats, `5+20:events` has another clock, `0+10,calls=5,cold` has options."""
    found = _WRITTEN.fullmatch(text.strip())
    if found is None or int(found[2]) < 1:
        raise UsageError(
            f"not a number of calls: {text!r:.60}", do="write warm-ups and repeats as 5+20, 5+20:events, or 0+10,calls=5,inputs=fresh,cold"
        )
    more: dict[str, Any] = {"clock": found[3] or "discrete"}
    for word in found[4].split(",")[1:]:
        name, given, value = (part.strip() for part in word.partition("="))
        if name not in _WORDS:
            raise unknown("word for calls", name, _WORDS)
        more[name] = (int(value) if value.isdecimal() and len(value) < 10 else value) if given else True
    return Fixed(int(found[1]), int(found[2]), **more)


def written(fixed: Mapping[str, Any]) -> str:
    """A protocol in its plain form, written as `parse_fixed` reads it; empty if it cannot be written that way."""
    usual = Fixed()
    told = {name: value for name, value in fixed.items() if hasattr(usual, name) and value != getattr(usual, name)}
    head = f"{told.pop('warmup', usual.warmup)}+{told.pop('repeats', usual.repeats)}"
    clock = f":{told.pop('clock')}" if "clock" in told else ""
    more = "".join(f",{name}" if value is True else f",{name}={value}" for name, value in told.items() if name in _WORDS)
    return head + clock + more if told.keys() <= {*_WORDS, "ranges", "traced"} else ""


@dataclass(frozen=True)
class Traces:
    """Which traces to record of everything measured in one process, in files whose names begin with `stem`.

    `profile` is a trace by the framework's profiler, with the device's `counters` if any are named, `per_kernel` if that is set;
    `execution` is an execution trace of the operators.
    """

    stem: str
    profile: bool = False
    execution: bool = False
    counters: tuple[str, ...] = ()
    per_kernel: bool = False
