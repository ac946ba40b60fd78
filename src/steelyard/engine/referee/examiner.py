"""The examiner: poses a problem in a process that no candidate enters, draws its inputs, and says whether an answer is right."""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Sequence
from typing import Any

from steelyard import registry
from steelyard.backends.base import Leaf
from steelyard.engine.referee.expecting import Expectation, Oracle
from steelyard.engine.referee.posed import Posed
from steelyard.errors import told
from steelyard.measuring import verify
from steelyard.measuring.closeness import Close, judge_piece, spread_of, structure
from steelyard.measuring.leaves import Piece, arrays_of, as_format, pieces, space_of
from steelyard.model.judging import Problem
from steelyard.model.record import Verification

LAYOUTS = "steelyard.engine.referee.layouts"
SEEDS = 2**32


class Examiner:
    """One problem, posed on a device: what is drawn for it, what is expected, and what its question is worth.

    `nonce` is the judge's secret for one trial. What is drawn follows from it and a number, and from nothing that a candidate sees.
    """

    def __init__(self, problem: Problem, device: str, threads: int, posed: Posed | None = None) -> None:
        self.problem = problem
        self.posed = posed or pose(problem, device)
        first = self.posed.draw(0)
        framework = "numpy" if all(space_of(array).__name__ == "numpy" for array in arrays_of(list(first))) else "torch"
        self.be = registry.load_backend(framework)(device, threads=threads)
        self.oracle = Oracle(self.posed.reference, problem.contract, self.be)
        self._persistent: dict[bytes, dict[int, Any]] = {}

    def draw(self, nonce: bytes, number: int, wide: str = "") -> Sequence[Any]:
        """The inputs of a draw; persistent ones are those of draw 0, and `wide` names a widening of the others."""
        drawn = list(self.posed.draw(seed_of(nonce, number)))
        kept = self.problem.contract.persistent
        if kept and number:
            first = self._persistent.get(nonce)
            if first is None:
                whole = self.posed.draw(seed_of(nonce, 0))
                first = {place: whole[place] for place in kept if place < len(whole)}
                self._persistent = {nonce: first}
            for place, value in first.items():
                drawn[place] = value
        return drawn

    def check(self, inputs: Sequence[Any], output: Any) -> Verification:
        """Whether an answer to these inputs is right."""
        return self._check(self.oracle.expect(inputs), output)

    def scale(self, nonce: bytes) -> list[tuple[float, float]]:
        """Mean and spread of each array of an answer."""
        return [spread_of(piece.array) for piece in self.oracle.expect(self._first(nonce)).pieces]

    def _first(self, nonce: bytes) -> Sequence[Any]:
        return self.draw(nonce, 0)

    def _check(self, expected: Expectation, output: Any) -> Verification:
        want = expected.pieces
        got = [_beside(piece, want[place]) if place < len(want) else piece for place, piece in enumerate(pieces(output))]
        if message := structure(got, want):
            return Verification("failed", expected.against, message)
        found = self._by_tolerance(got, expected) if self._has_tolerance else _by_closeness(got, expected)
        if found.status == "failed" or self.posed.check is None:
            return found
        try:
            message = self.posed.check(expected.inputs, output)
        except Exception as error:
            message = told(error, 300)
        return Verification("failed", "the problem's own check", message) if message else found

    @property
    def _has_tolerance(self) -> bool:
        return self.problem.rtol is not None or self.problem.atol is not None

    def _by_tolerance(self, got: Sequence[Piece], expected: Expectation) -> Verification:
        """By what the problem says itself, against the reference in its own format."""
        asked = (self.problem.rtol, self.problem.atol)
        mine, theirs = [_leaf(piece) for piece in got], [_leaf(piece) for piece in expected.pieces]
        return verify.compare(mine, theirs, "the reference", asked=asked)


def pose(problem: Problem, device: str) -> Posed:
    """Load a problem by its layout."""
    posed: Posed = importlib.import_module(LAYOUTS).named(problem.layout).pose(problem, device)
    return posed


def seed_of(nonce: bytes, number: int) -> int:
    """The seed of a draw: without the nonce nobody can tell it."""
    return int.from_bytes(hashlib.blake2b(number.to_bytes(8, "little"), key=nonce[:64], digest_size=4).digest(), "little") % SEEDS


def _by_closeness(got: Sequence[Piece], expected: Expectation) -> Verification:
    """Element by element against the exact answer; the first array that is wrong decides the words, the worst the figures."""
    found: list[Close] = []
    message = ""
    for piece, want in zip(got, expected.wanted, strict=True):
        found.append(judge_piece(piece, want))
        if found[-1].message and not message:
            message = f"{piece.path}: {found[-1].message}"
    figures = {
        "error": max((_share(item.error, item.spread) for item in found), default=0.0),
        "own_error": max((_share(item.own, item.spread) for item in found), default=0.0),
        "times_own": max((_share(item.usual_error, item.usual_own) for item in found if item.usual_error), default=0.0),
    }
    identical = not message and all(map(_identical, got, expected.pieces))
    words = message or expected.note
    return Verification(
        "failed" if message else "passed" if got else "none", expected.against, words or ("" if got else "there are no arrays to compare"),
        max_abs=max((item.error for item in found), default=None), identical=bool(got) and identical, figures=figures,
    )  # fmt: skip


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0 if not part else float("inf")


def _identical(got: Piece, want: Piece) -> bool:
    return verify.same_values(_leaf(got), _leaf(want))


def _leaf(piece: Piece) -> Leaf:
    """For comparisons of the house, with every element of it."""
    if piece.space.__name__ == "numpy":
        return Leaf(piece.path, piece.dtype, piece.array, piece.shape)
    return Leaf(piece.path, piece.dtype, None, piece.shape, piece.array, piece.space, lambda there: there.cpu().numpy())


def _beside(got: Piece, want: Piece) -> Piece:
    """An answer where the reference's lies, in its own format."""
    if got.space is want.space and getattr(got.array, "device", None) == getattr(want.array, "device", None):
        return got
    if got.dtype != want.dtype:
        return got
    return Piece(got.path, got.dtype, as_format(got.array, want.array))
