"""The examiner: loads a problem in a process that runs no candidate, draws its inputs, and checks whether an answer is right."""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Sequence
from typing import Any

from steelyard import registry
from steelyard.backends.base import Leaf
from steelyard.engine.referee import matters
from steelyard.engine.referee.expecting import Expected, Oracle, all_cpus
from steelyard.engine.referee.nulls import LAST, Null, alike, candidates
from steelyard.engine.referee.posed import Posed
from steelyard.engine.referee.widening import WIDENINGS, widen
from steelyard.errors import told
from steelyard.measuring import verify
from steelyard.measuring.closeness import Close, judge_piece, spread_of, structure
from steelyard.measuring.leaves import Array, Piece, arrays_of, as_format, pieces, space_of, widened
from steelyard.model.judging import Problem, Trick
from steelyard.model.record import Verification

PRECISION = "precision"
"""The code of an answer that is wrong only because its rounding is coarser than what is admitted."""
LAYOUTS = "steelyard.engine.referee.layouts"
SEEDS = 2**32
NULL_DRAWS = 3
TRIED = 1 << 40
"""Draws from this number on are for testing the problem itself; no candidate sees them."""


class Examiner:
    """One problem, loaded on a device: its inputs, its expected answers, and its weak spots.

    `nonce` is the judge's secret for one trial. Inputs depend on it and on the number of the draw, and on nothing that a candidate sees.
    """

    def __init__(self, problem: Problem, device: str, threads: int, posed: Posed | None = None) -> None:
        self.problem, self.device = problem, device
        self.posed = posed or pose(problem, device)
        first = self.posed.draw(0)
        framework = "numpy" if all(space_of(array).__name__ == "numpy" for array in arrays_of(list(first))) else "torch"
        self.be = registry.load_backend(framework)(device, threads=threads)
        self.oracle = Oracle(self.posed.reference, problem.contract, self.be)
        self._persistent: dict[bytes, dict[int, Any]] = {}
        self._wide: dict[bytes, list[str]] = {}
        self._outputs: int | None = None
        self._passing: dict[bytes, dict[str, Null]] = {}

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
        return widen(drawn, wide, nonce + number.to_bytes(8, "little"), self._fixed(drawn)) if wide else drawn

    def answer(self, inputs: Sequence[Any]) -> Any:
        """What the reference gives for inputs, in their own format."""
        return self.oracle.answer(inputs)

    def check(self, inputs: Sequence[Any], output: Any) -> Verification:
        """Whether an answer to these inputs is right."""
        return self._check(self.oracle.expect(inputs), output)

    def scale(self, nonce: bytes) -> list[tuple[float, float]]:
        """Mean and spread of each array of an answer."""
        return [spread_of(piece.array) for piece in pieces(self.answer(self.draw(nonce, 0)))]

    def widenings(self, nonce: bytes) -> list[str]:
        """The widenings under which the reference still gives an answer, and finite numbers wherever it did before."""
        if nonce not in self._wide:
            own = pieces(self.answer(self.draw(nonce, TRIED)))
            self._wide = {nonce: [name for name in WIDENINGS if self._widens(nonce, name, own)]}
        return list(self._wide[nonce])

    def _widens(self, nonce: bytes, name: str, own: Sequence[Piece]) -> bool:
        plain, drawn = self.draw(nonce, TRIED), self.draw(nonce, TRIED, name)
        if all(map(_same, arrays_of(list(plain)), arrays_of(list(drawn)))):
            return False
        try:
            found = pieces(self.answer(drawn))
        except Exception:
            return False
        return not structure(found, own) and all(map(_no_less_finite, found, own))

    def weakness(self, nonce: bytes) -> list[Trick]:
        """What the null candidates that pass show about the problem."""
        passing = self.passing(nonce)
        if LAST in passing:
            return [_constant(self._fails_wide(nonce, passing[LAST]))]
        wide = {name: self._fails_wide(nonce, null) for name, null in passing.items()}
        return [_weak(name, fails, self.widenings(nonce)) for name, fails in wide.items()]

    def passing(self, nonce: bytes) -> dict[str, Null]:
        """The null candidates that pass on every one of `NULL_DRAWS` draws."""
        if nonce not in self._passing:
            alive: dict[str, Null] | None = None
            for number in range(TRIED, TRIED + NULL_DRAWS):
                expected = self.oracle.expect(self.draw(nonce, number))
                tried = dict(candidates(expected)) if alive is None else alive
                other = self.answer(self.draw(nonce, number + NULL_DRAWS))
                alive = {name: null for name, null in tried.items() if self._takes(null, expected, other)}
                if not alive:
                    break
            self._passing = {nonce: alive or {}}
        return self._passing[nonce]

    def _takes(self, null: Null, expected: Expected, other: Any) -> bool:
        """Whether the verifier accepts a null candidate's answer."""
        made = self._made(null, expected, other)
        return made is not None and self._check(expected, made).status == "passed"

    def _made(self, null: Null, expected: Expected, other: Any) -> Any:
        try:
            return null(expected, other, self.answer)
        except Exception:
            return None

    def _fails_wide(self, nonce: bytes, null: Null) -> list[str]:
        """The widenings for which a null candidate's answer is wrong."""
        found = []
        for wide in self.widenings(nonce):
            expected = self.oracle.expect(self.draw(nonce, TRIED, wide))
            if not self._takes(null, expected, self.answer(self.draw(nonce, TRIED + NULL_DRAWS, wide))):
                found.append(wide)
        return found

    def equals_null(self, inputs: Sequence[Any], output: Any) -> str:
        """The name of a null candidate that passes this problem, if the output is its answer and not the right one.

        Inputs for which its answer is right cannot decide that; wider inputs are used for it.
        """
        for nonce, passing in self._passing.items():
            expected = self.oracle.expect(inputs) if passing else None
            for name, null in passing.items():
                assert expected is not None
                made = self._made(null, expected, self.answer(self.draw(nonce, TRIED)))
                if made is not None and alike(output, made) and self._check(expected, made).status == "failed":
                    return name
        return ""

    def least_bytes(self, nonce: bytes) -> float:
        """Bytes that have to be moved for any right answer: those of the answer, and of the inputs that were found to matter."""
        inputs = self.draw(nonce, TRIED)
        return float(sum(piece.array.nbytes for piece in pieces(self.answer(inputs)))) + self._input_bytes(inputs, nonce)

    def _input_bytes(self, inputs: Sequence[Any], nonce: bytes) -> float:
        outputs = self._filled(inputs)
        read = [item for place, item in enumerate(inputs) if place not in outputs]
        return matters.bytes_that_matter(read, lambda changed: self.answer([*changed, *inputs[len(read) :]]), seed_of(nonce, TRIED))

    def _filled(self, inputs: Sequence[Any]) -> set[int]:
        """The inputs that are memory for the answer: the last ones, as many as it has arrays."""
        if not self.problem.contract.fills_outputs:
            return set()
        if self._outputs is None:
            self._outputs = len(pieces(self.answer(inputs)))
        return set(range(max(0, len(inputs) - self._outputs), len(inputs)))

    def _fixed(self, inputs: Sequence[Any]) -> set[int]:
        """The places of the inputs that no widening changes."""
        return {*self.problem.contract.persistent, *self._filled(inputs)}

    def _check(self, expected: Expected, output: Any) -> Verification:
        want = expected.pieces
        got = [_beside(piece, want[place]) if place < len(want) else piece for place, piece in enumerate(pieces(output))]
        if other := structure(got, want):
            return Verification("failed", expected.against, other.message, code=other.code)
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

    def _by_tolerance(self, got: Sequence[Piece], expected: Expected) -> Verification:
        """Check by the problem's own tolerance, against the reference in its own format."""
        asked = (self.problem.rtol, self.problem.atol)
        mine, theirs = [_leaf(piece) for piece in got], [_leaf(piece) for piece in expected.pieces]
        return verify.compare(mine, theirs, "the reference", asked=asked)


def pose(problem: Problem, device: str) -> Posed:
    """Load a problem through its layout."""
    posed: Posed = importlib.import_module(LAYOUTS).named(problem.layout).pose(problem, device)
    return posed


def seed_of(nonce: bytes, number: int) -> int:
    """The seed of a draw: it cannot be predicted without the nonce."""
    return int.from_bytes(hashlib.blake2b(number.to_bytes(8, "little"), key=nonce[:64], digest_size=4).digest(), "little") % SEEDS


def _constant(fails: Sequence[str]) -> Trick:
    if not fails:
        return Trick("trivial", "the answer is the same for all inputs", voids=False)
    words = f"the answer is the same for all inputs of the problem, but not for wider ones ({', '.join(fails)})"
    return Trick("weak", words, voids=False)


def _weak(name: str, fails: Sequence[str], tried: Sequence[str]) -> Trick:
    """What a passing null candidate shows about a problem: it is weak, or trivial if the null candidate passes with wider inputs too."""
    if fails:
        return Trick("weak", f"{name} passes for the answer; with wider inputs ({', '.join(fails)}) it does not", voids=False)
    if tried:
        return Trick("trivial", f"{name} passes for the answer, with wider inputs ({', '.join(tried)}) too", voids=False)
    return Trick("weak", f"{name} passes for the answer, and no wider inputs could be tried", voids=False)


def _same(one: Array, other: Array) -> bool:
    return bool(((one == other) | ((one != one) & (other != other))).all())


def _no_less_finite(found: Piece, own: Piece) -> bool:
    space = found.space
    return not found.floating or bool((space.isfinite(widened(found.array)) | ~space.isfinite(widened(own.array))).all())


@all_cpus()
def _by_closeness(got: Sequence[Piece], expected: Expected) -> Verification:
    """Check each element against the exact answer; the message is about the first wrong array, the figures about the worst."""
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
        code=PRECISION if message and all(not item.message or item.merely_rounded for item in found) else "",
    )  # fmt: skip


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0 if not part else float("inf")


def _identical(got: Piece, want: Piece) -> bool:
    return verify.same_values(_leaf(got), _leaf(want))


def _leaf(piece: Piece) -> Leaf:
    """Return a piece as a `Leaf` with all its elements, for `verify`."""
    if piece.space.__name__ == "numpy":
        return Leaf(piece.path, piece.dtype, piece.array, piece.shape)
    return Leaf(piece.path, piece.dtype, None, piece.shape, piece.array, piece.space, lambda there: there.cpu().numpy())


def _beside(got: Piece, want: Piece) -> Piece:
    """Return an answer on the reference's device, in the answer's own format."""
    if got.space is want.space and getattr(got.array, "device", None) == getattr(want.array, "device", None):
        return got
    if got.dtype != want.dtype:
        return got
    return Piece(got.path, got.dtype, as_format(got.array, want.array))
