"""Choosing among the cases of a selection by a part of their ids, as plain text or as a regular expression."""

from __future__ import annotations

import re
import signal
import threading
import warnings
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from steelyard.errors import UsageError
from steelyard.model.case import Case
from steelyard.model.experiment import Rule

TAG, TIER = "tag:", "tier:"
WORDS = re.compile(r"(^|\s)(and|or|not)\s")
MOST_NAMED = 400
PATIENCE = 20.0
"""CPU seconds for matching all cases of a plan. A case takes microseconds, but some expressions need years to reject a text."""


@dataclass(frozen=True)
class Filters:
    """A case is kept if one of `keep` matches, or `keep` is empty, and none of `drop` does.

    A text matches if it is part of the case id, or is found in the id or the workload name as a regular expression; `^` and `$` anchor it.
    `softmax and not n=8` combines parts of an id with `and`, `or` and `not`, like pytest's `-k`.
    `tag:…` must match one of the workload's tags in full, and `tier:1` is the tag of that name.
    """

    keep: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for option, texts in (("--filter", self.keep), ("--exclude", self.drop)):
            for text in texts:
                if not text.strip():
                    raise UsageError(f"{option} is empty", why="an unset shell variable does that", do="leave it out")
                try:
                    with warnings.catch_warnings(action="ignore"):
                        re.compile(text.removeprefix(TAG))
                except (re.error, RecursionError, OverflowError) as error:
                    why = f"not a regular expression: {error}"
                    part = max(re.split(r"\W+", text.removeprefix(TAG)), key=len) or "softmax"
                    do = f"a part of the case id is enough: {option} {part}"
                    raise UsageError(f"{option} {text!r} cannot be read", why=why, do=do) from None

    def against(self, case: Case, tags: Collection[str]) -> Rule | None:
        """Return the filter that leaves a case out, as a rule; None if none does."""
        for text in self.drop:
            if fits(text, case, tags):
                return Rule({"--exclude": text})
        if self.keep and not any(fits(text, case, tags) for text in self.keep):
            return Rule({"--filter": self.keep[0] if len(self.keep) == 1 else list(self.keep)})
        return None

    def advice(self, cases: Sequence[Case]) -> str:
        """Return a remedy for an empty selection: a filter that would match if upper and lower case did not matter; else empty."""
        near = [text for text in self.keep if any(re.search(text, case.id, re.IGNORECASE) for case in cases)]
        return f"upper and lower case differ: --filter '(?i){near[0]}'" if near else ""


def expression(text: str) -> re.Pattern[str]:
    """Compile a regular expression that a user wrote, for options that take no plain text."""
    try:
        with warnings.catch_warnings(action="ignore"):
            return re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise UsageError(f"not a regular expression: {text!r:.120}", why=str(error), do="quote signs such as ( and + with \\") from None


def fitting(patterns: Sequence[str], names: Sequence[str], what: str) -> list[str]:
    """Return the names that a pattern matches in full; a pattern that matches none is an error that lists all names."""
    wanted = [expression(pattern) for pattern in patterns]
    for pattern in wanted:
        if not any(map(pattern.fullmatch, names)):
            listed = (
                "\n    ".join(["a pattern must match a whole name; these are all names:", *names[:MOST_NAMED]])
                if names
                else f"there is no {what}"
            )
            raise UsageError(f"no {what} is named {pattern.pattern!r:.200}", why=listed)
    return [name for name in names if any(pattern.fullmatch(name) for pattern in wanted)]


def fits(text: str, case: Case, tags: Collection[str]) -> bool:
    """Whether a text is part of a case's id, or found there or in its workload's name as an expression; tags are matched in full."""
    if text.startswith(TAG):
        return any(re.fullmatch(text.removeprefix(TAG), tag) for tag in tags)
    if text.startswith(TIER):
        return any(re.fullmatch(text, tag) for tag in tags)
    if text in case.id or any(re.search(text, name) for name in (case.id, case.workload)):
        return True
    ways = text.split(" or ") if WORDS.search(text) else []
    return any(all(_part_fits(part.strip(), case) for part in way.split(" and ")) for way in ways)


def _part_fits(part: str, case: Case) -> bool:
    """Whether one part of `softmax and not n=8`, such as `softmax` or `not n=8`, holds for a case's id."""
    refused = part.startswith("not ")
    wanted = part.removeprefix("not ").strip()
    return bool(wanted) and (wanted in case.id) != refused


@contextmanager
def patient(filters: Filters) -> Iterator[None]:
    """Refuse expressions that take too long to match; only the main thread can interrupt matching, by a signal."""
    asked = [*filters.keep, *filters.drop]
    if not asked or threading.current_thread() is not threading.main_thread():
        yield
        return

    def give_up(number: int, frame: object) -> None:
        what = f"{' or '.join(map(repr, asked))} takes too long to match"
        raise UsageError(what, why="a repetition inside a repetition is tried in every possible way", do="write (a+)+ as a+")

    before = signal.signal(signal.SIGVTALRM, give_up)
    signal.setitimer(signal.ITIMER_VIRTUAL, PATIENCE)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
