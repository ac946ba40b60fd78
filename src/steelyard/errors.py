"""Errors a user can act on: what happened, why, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

PASS, BUG, USAGE, FAILED, REGRESSION, NOTHING, INCONCLUSIVE, INTERRUPTED = 0, 1, 2, 3, 4, 5, 6, 130
PRECEDENCE = (USAGE, INTERRUPTED, NOTHING, REGRESSION, FAILED, INCONCLUSIVE)


class SteelyardError(Exception):
    """A problem with a cause and a remedy; printed without a traceback."""

    exit_code = BUG

    def __init__(self, what: str, *, why: str = "", do: str = "", where: str = "") -> None:
        super().__init__(what)
        self.what, self.why, self.do, self.where = what, why, do, where

    def __str__(self) -> str:
        head = f"{self.where}  {self.what}" if self.where else self.what
        return "\n  ".join(part for part in (head, self.why, self.do) if part)


class UsageError(SteelyardError):
    """The command, a file or a name in it is wrong; nothing was timed."""

    exit_code = USAGE


class Mistakes(UsageError):
    """Several mistakes in one error; `parts` has each by itself."""

    def __init__(self, parts: Sequence[UsageError], *, about: str = "", where: str = "", more: int = 0) -> None:
        lines = ["; ".join(str(part).split("\n  ")) for part in parts]
        why = "\n  ".join([*lines, *([f"… and {more} more"] if more else [])])
        count = f"{len(parts) + more} mistake{'' if len(parts) + more == 1 else 's'}"
        super().__init__(f"{about}: {count}" if about else count, why=why, where=where)
        self.parts = tuple(parts)


def parts_of(error: SteelyardError) -> Sequence[SteelyardError]:
    """The mistakes in an error; the error itself if it is only one."""
    return error.parts if isinstance(error, Mistakes) else (error,)


class StoreError(SteelyardError):
    """Results could not be read or written; what was saved before stays saved."""

    exit_code = USAGE


class NothingMeasured(SteelyardError):
    """There was nothing to measure or nothing that could be compared; this never counts as a pass."""

    exit_code = NOTHING


class HostsLost(SteelyardError):
    """No other machine is left to measure on; what was saved stays saved, and the run can go on."""

    exit_code = NOTHING


class Unsupported(SteelyardError):
    """This machine or environment cannot run the case; the reason and the remedy are kept in its record."""


class WrongAnswer(SteelyardError):
    """A case obviously computes something wrong, even before answers are compared."""


class NotApplicable(SteelyardError):
    """The measurement has no meaning for this workload, such as the backward pass of an op without one."""


class NotApplied(SteelyardError):
    """The variant left the task as it was, so timing it would compare the task with itself."""


def status_of(error: BaseException) -> str:
    """The status of a record whose measurement raised this."""
    for kind, word in ((Unsupported, "unsupported"), (NotApplicable, "not_applicable"), (NotApplied, "not_applied")):
        if isinstance(error, kind):
            return word
    return "oom" if out_of_memory(error) else "failed"


def spoken(error: BaseException) -> str:
    """An exception's type and message, even if it has no message or fails to print."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return type(error).__name__


def told(error: BaseException, longest: int = 2000) -> str:
    """An error in one line; the parts of our own errors are separated by semicolons."""
    if isinstance(error, SteelyardError):
        return "; ".join(" ".join(part.split()) for part in str(error)[:longest].splitlines() if part.strip())
    return " ".join(f"{type(error).__name__}: {error}"[:longest].split())


def exit_code(held: Iterable[int]) -> int:
    """The exit code of several outcomes: the most important one."""
    codes = set(held)
    return next((code for code in PRECEDENCE if code in codes), PASS)


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """A hint with the nearest valid spelling, empty if none is near."""
    import difflib

    near = difflib.get_close_matches(name, list(names), n=3, cutoff=0.5)
    return f"did you mean {' or '.join(near)}?" if near else ""


def unknown(kind: str, name: str, names: Iterable[str], *, where: str = "", listing: str = "", meant: str = "") -> UsageError:
    """The error for a name that does not exist; `meant` is the right name, if it is known."""
    known = sorted(names)
    hint = f"did you mean {meant}?" if meant else did_you_mean(name, known)
    if listing:
        hint = f"{hint}   all: {listing}" if hint else f"all: {listing}"
    elif len(known) <= 12:
        hint = f"{hint}   known: {', '.join(known)}" if hint else f"known: {', '.join(known) or 'none'}"
    return UsageError(f"no {kind} named {name!r}", do=hint, where=where)


def out_of_memory(error: BaseException) -> bool:
    """Whether an exception means out of memory; frameworks word it differently."""
    if isinstance(error, MemoryError) or "OutOfMemory" in type(error).__name__:
        return True
    return any(words in spoken(error) for words in ("can't allocate memory", "RESOURCE_EXHAUSTED"))
