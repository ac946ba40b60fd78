"""Whether greedy generation gives the same tokens as the plain task, and if not, how far the logits differ."""

from __future__ import annotations

from typing import Any

import numpy as np

from steelyard.measuring.rules import Answers
from steelyard.measuring.verify import TOLERANCES
from steelyard.model.record import Verification

AGAINST = "the plain task"
PLACE = "out.tokens"
FIGURES = {"equal_tokens": ("1", "higher"), "logit_sqnr": ("dB", "higher")}
"""The share of tokens equal to the plain task's, and the SQNR of the logits at the first token that differs."""
FLOOR = 5.0
SLACK = 4.0
"""Rounding adds up over layers: logits may be off by this many times the tolerance of one operation in their format."""


def judge(answers: Answers, lossy: bool = False, floor: float = FLOOR) -> Verification:
    """Equal tokens pass. Others pass if the logits are close and the plain task's own logits for the two tokens almost tie.

    A `lossy` variant, such as a quantization recipe, may choose other tokens, as long as its logits keep `floor` decibels.
    """
    got, want = answers.candidate(1).get(PLACE), answers.eager(1).get(PLACE)
    if got is None or want is None:
        return Verification("none", message="it returns no tokens")
    if got.shape != want.shape:
        return Verification("failed", AGAINST, f"tokens of shape {got.shape} instead of {want.shape}")
    mine, theirs = np.asarray(got.data), np.asarray(want.data)
    checks, same = ["every token"], mine == theirs
    figures = {"equal_tokens": float(same.mean())}
    if same.all():
        return Verification("passed", AGAINST, identical=True, checks=checks, figures=figures)
    first = int((~same).any(axis=0).argmax())
    figures["first_difference"] = float(first)
    told = f"{same.mean():.0%} of the tokens are those of the plain task, the first that differs is number {first + 1}"
    scored = answers.scored(theirs[:, :first])
    if scored is None:
        return Verification("failed", AGAINST, told, checks=checks, figures=figures)
    own, plain = (np.asarray(leaf.data, float) for leaf in scored)
    figures["logit_sqnr"] = sqnr(own, plain)
    checks.append("logits at the first token that differs")
    if lossy:
        good = figures["logit_sqnr"] >= floor
        more = f"its logits there keep {figures['logit_sqnr']:.1f} dB, at least {floor:g} dB are required"
    else:
        good, more = explained(own, plain, mine[:, first], theirs[:, first], SLACK * TOLERANCES.get(scored[1].dtype, (0.03, 0))[0])
    return Verification("passed" if good else "failed", AGAINST, f"{told}; {more}", checks=checks, figures=figures)


def sqnr(own: Any, plain: Any) -> float:
    """SQNR in decibels of logits against the plain ones, each less their mean."""
    centred = plain - plain.mean(axis=-1, keepdims=True)
    apart = (own - own.mean(axis=-1, keepdims=True)) - centred
    signal, noise = float((centred**2).sum()), float((apart**2).sum())
    return float(min(200.0, 10 * np.log10(signal / noise))) if noise and signal else 200.0


def explained(own: Any, plain: Any, mine: Any, theirs: Any, share: float) -> tuple[bool, str]:
    """Whether logits are within a share of their spread, and almost tie where tokens differ; with the reason in words."""
    spread = plain.std(axis=-1)
    off = np.abs(own - plain).max(axis=-1) / spread
    rows = np.arange(len(mine))
    gap = (plain[rows, theirs] - plain[rows, mine]) / spread
    worst, widest = float(off.max()), float(gap[mine != theirs].max())
    if worst > share:
        return False, f"logits there are off by {worst:.2g} of their spread, rounding explains {share:.2g}"
    if widest > 2 * worst:
        return False, f"logits there are close, but the chosen token is {widest:.2g} of their spread behind"
    return True, f"the two tokens are {widest:.2g} of the logits' spread apart there, which is rounding"
