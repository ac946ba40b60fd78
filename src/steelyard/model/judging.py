"""Data of the referee: a problem with its contract, a candidate for it, and the ruling."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from steelyard.model.pair import Delta, Pair
from steelyard.model.record import Figure, Status, Verification

PRECISIONS = ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8")
"""Names of the arithmetic that a contract may allow."""


@dataclass(frozen=True)
class Contract:
    """What a candidate may do besides returning new arrays for given ones; anything not declared here makes the candidate wrong if it is
    detected.

    `persistent` are the numbers of inputs that stay the same from call to call, such as weights: results computed from them may be
    kept. `fills_outputs` means that the last inputs are arrays into which the candidate writes its answer. `precision` is the coarsest
    arithmetic allowed (empty: that of the inputs).
    """

    in_place: bool = False
    persistent: tuple[int, ...] = ()
    reuses_output: bool = False
    fills_outputs: bool = False
    precision: str = ""
    threads: int = 1


@dataclass(frozen=True)
class Problem:
    """What candidates are to compute: a reference and the inputs it is called with, as files that only the examiner's process loads.

    `layout` names the module that reads them, `file` is the file it begins with, `name` the function or class in that file if there are
    several, and `options` are further plain values that the layout needs. `label` is for tables.
    """

    layout: str
    file: str
    name: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    label: str = ""
    contract: Contract = Contract()
    rtol: float | None = None
    atol: float | None = None


@dataclass(frozen=True)
class Submission:
    """A candidate, as files that only its own process loads; `options` are the layout's, such as sources to compile."""

    layout: str
    file: str
    name: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    label: str = ""


@dataclass(frozen=True)
class Trick:
    """A finding of the referee: its kind, which is a key of `TRICKS`, and the evidence in words.

    If `voids` is set, the finding makes the candidate wrong; otherwise it is only reported.
    """

    kind: str
    words: str
    voids: bool = True


TRICKS: Mapping[str, str] = {
    "stale": "memory that already held an answer was returned as a new answer",
    "replay": "an answer was kept from an earlier call",
    "amortised": "calls in a row are faster than calls one by one: work for one is done in another",
    "outside": "work is done outside the timed calls",
    "hidden": "threads or other processes do work that the clock of the call does not see",
    "unfinished": "the answer was not complete when the call had ended",
    "lazy": "the answer is an object that computes only when it is read",
    "forged": "the candidate's process sent messages that only its harness may send",
    "changed-inputs": "inputs are changed by the call",
    "aliased": "an output shares memory with an input or with an earlier output",
    "flags": "process-wide settings were left changed",
    "precision": "the error is larger than the allowed precision explains",
    "impossible": "faster than the memory or the arithmetic of the device allows",
    "trivial": "a candidate that computes nothing passes the same problem",
    "sabotage": "the reference is slower beside this candidate than alone",
    "fallback": "bit-identical to the reference at the same speed: probably the reference itself",
    "weak": "a candidate that computes nothing passes the problem",
    "narrow": "right for the inputs of the problem, wrong for wider ones",
    "left-behind": "processes or files were left behind",
    "kept-output": "an output is overwritten by a later call",
}
"""Kinds of findings and their meanings."""


@dataclass(frozen=True)
class Ruling:
    """The ruling on one candidate: whether its answers are right, how its time compares, and what was seen.

    `status` is `ok` if all answers are right and no finding voids them, else `wrong`, or how the candidate failed. `delta` compares the
    candidate's time with the reference's, by the judge's own clock. `roof` is the share of the device's peak (roofline), if that is known.
    """

    problem: str
    candidate: str
    status: Status
    reason: str = ""
    verification: Verification | None = None
    delta: Delta | None = None
    pair: Pair | None = None
    tricks: tuple[Trick, ...] = ()
    roof: float | None = None
    figures: Mapping[str, Figure] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def correct(self) -> bool:
        """Whether all answers were right and no finding voids them."""
        return self.status == "ok"
