"""Checks whether an answer is as close to the exact one as honest arithmetic gets, element by element. A constant tolerance would accept
wrong small outputs and refuse long sums. So the reference itself shows how much rounding moves its answer: it is computed in double
precision (`exact`), again on inputs that were each moved at random by one rounding of the admitted format (the change of an element is
its `stir`), and in its own format (its error there is `own`). An element may be off by the sum of

- `near` times its own stir: an algorithm may lose bits. A sum of n numbers in another order is off by up to sqrt(n) stirs, Winograd's
  and Strassen's algorithms lose 2 to 4 bits; single precision has room for 9 bits and is still 4 bits below TF32 and fp16, 7 below bf16.
  Half formats have no such room and do not need it, since they are accumulated in single precision: 2 bits, for intermediate rounding;
- `all` times the usual stir of the whole array: the errors of Strassen's, Winograd's and Fourier's methods depend on the magnitude of the
  array, not of the element. The usual stir is the root mean square, but at most 10 times what 90 % of the elements stay below, so that a
  few large elements do not excuse the rest;
- 16 times the usual error of the reference itself: a candidate may lose what the reference's own arithmetic loses;
- a few units in the last place of the answer, and what is below its smallest normal number.

NaN and infinity must be where the reference has them, in its own format or in the exact one, with the same sign.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from steelyard.measuring.leaves import Array, Piece, precision_of, space_of, widened

UNITS = {"fp64": 2.0**-53, "fp32": 2.0**-24, "tf32": 2.0**-11, "fp16": 2.0**-11, "bf16": 2.0**-8, "fp8": 2.0**-4}
"""The largest relative error of one rounding, from the finest format to the coarsest."""
OWN = 16.0
SLIGHT = 0.1
SAMPLED = 1 << 12
"""How many elements are sampled to estimate the size that nine in ten stay below."""
AT_ONCE, AT_ONCE_CPU = 1 << 22, 1 << 18
"""How many elements are checked at a time, so that a check needs little memory beside the arrays themselves, and on a CPU little enough
for its caches."""


@dataclass(frozen=True)
class Allowance:
    """How far an element may be off: in multiples of its own stir and of the usual one, and in units in the last place."""

    near: float
    all: float
    last: float


FINE, COARSE = Allowance(512.0, 128.0, 16.0), Allowance(4.0, 4.0, 2.0)
ROOMS = {name: FINE if name in ("fp64", "fp32") else COARSE for name in UNITS}
TINY = {"fp64": 2.0**-1022, "fp32": 2.0**-126, "tf32": 2.0**-126, "bf16": 2.0**-126, "fp16": 2.0**-23, "fp8": 2.0**-8}
"""Errors that are always allowed: a device may flush numbers below the smallest normal one; for fp16 and fp8, two of the least steps."""


@dataclass(frozen=True)
class Wanted:
    """One array of the expected answer.

    `answer` is the reference's own, `exact` the same in double precision if that is available, `stirs` are the answers for rounded
    inputs, and `precision` is the coarsest arithmetic that is admitted. The inputs' rounding may be finer than that by the factor
    `stretch`.
    """

    answer: Piece
    exact: Array
    stirs: tuple[Array, ...] = ()
    precision: str = "fp32"
    stretch: float = 1.0


@dataclass(frozen=True)
class Mismatch:
    """How an answer's arrays are not those of the reference: the code is `structure`, `shape` or `dtype`."""

    code: str
    message: str


@dataclass(frozen=True)
class Close:
    """The result for one array: a message if it is wrong, and how far off it is."""

    message: str = ""
    error: float = 0.0
    own: float = 0.0
    spread: float = 0.0
    usual_error: float = 0.0
    usual_own: float = 0.0
    wrong: float = 0.0

    @property
    def merely_rounded(self) -> bool:
        """Whether the errors look like coarse arithmetic: all of them are small, or they are many and small on average."""
        if not self.spread or not math.isfinite(self.error):
            return False
        return self.error <= SLIGHT * self.spread or (self.usual_error <= SLIGHT / 4 * self.spread and self.wrong >= SLIGHT)


def coarser(one: str, other: str) -> str:
    """The coarser of two precisions; either may be unknown."""
    return max(one, other, key=lambda name: UNITS.get(name, 0.0))


def finer(one: str, other: str) -> str:
    """The finer of two precisions; either may be unknown."""
    return min(one, other, key=lambda name: UNITS.get(name, math.inf))


def structure(got: Sequence[Piece], want: Sequence[Piece]) -> Mismatch | None:
    """Return how an answer differs in structure, shapes or formats; None if it does not."""
    mine, theirs = [piece.path for piece in got], [piece.path for piece in want]
    if mine != theirs:
        if len(mine) != len(theirs):
            return Mismatch("structure", f"{_count(len(mine))} instead of {len(theirs)}")
        place = next(index for index, path in enumerate(mine) if path != theirs[index])
        return Mismatch("structure", f"an array at {mine[place]} instead of {theirs[place]}")
    for one, other in zip(got, want, strict=True):
        if one.shape != other.shape:
            return Mismatch("shape", f"{one.path}: shape {one.shape} instead of {other.shape}")
        if one.dtype != other.dtype:
            return Mismatch("dtype", f"{one.path}: dtype {one.dtype} instead of {other.dtype}")
    return None


def _count(number: int) -> str:
    return "no output array" if not number else f"{number} output array{'s' * (number != 1)}"


def spread_of(array: Array) -> tuple[float, float]:
    """Mean and standard deviation of the finite values."""
    total, squares, count = 0.0, 0.0, 0
    for (part,) in _parts(array):
        wide, space = _real(widened(part)), space_of(part)
        if _all_finite(wide):
            total, count = total + float(wide.sum()), count + len(wide)
            continue
        finite = space.isfinite(wide)
        total, count = total + float(space.where(finite, wide, 0.0).sum()), count + int(finite.sum())
    mean = total / count if count else 0.0
    for (part,) in _parts(array):
        wide, space = _real(widened(part)), space_of(part)
        off = wide - mean
        off = off if _all_finite(off) else space.where(space.isfinite(wide), off, 0.0)
        squares += float((off * off).sum())
    return mean, math.sqrt(squares / count) if count else 0.0


def size_of(array: Array) -> float:
    """Return the scale of relative errors: the spread of the values, or their size if all are the same."""
    mean, spread = spread_of(array)
    return spread or abs(mean)


def judge_piece(got: Piece, want: Wanted) -> Close:
    """Compare one array with the expected one; they have the same shape and format."""
    if not math.prod(got.shape):
        return Close()
    if not want.answer.floating and got.dtype not in ("float", "complex"):
        return _exactly(got, want)
    return _closely(got, want)


def _exactly(got: Piece, want: Wanted) -> Close:
    """Compare integers: each must be the reference's own, or one that rounded inputs give at the same place, as in a tie."""
    space, start, wrong, first, far = got.space, 0, 0, -1, 0.0
    for mine, *others in _parts(got.array, want.answer.array, want.exact, *want.stirs):
        bad = mine != others[0]
        for other in others[1:]:
            bad = bad & (mine != other)
        if bad.any():
            first = start + int(space.argmax(bad * 1)) if first < 0 else first
            wrong += int(bad.sum())
            far = max(far, float(space.abs(widened(mine) - widened(others[0])).max()))
        start += len(mine)
    if not wrong:
        return Close()
    place = _place(first, got.shape)
    words = (
        f"{wrong} of {math.prod(got.shape)} values differ, first at {place}: {_shown(got, first)} instead of {_shown(want.answer, first)}"
    )
    return Close(words, error=far)


def _closely(got: Piece, want: Wanted) -> Close:
    unit, room = UNITS[want.precision], ROOMS[want.precision]
    rounding = max(room.last * unit, 2 * UNITS.get(_stored(got), unit))
    tiny = max(TINY[want.precision], TINY.get(_stored(got), 0.0))
    near, stir, own = room.near * want.stretch, _usual_stir(want), _usual(_errors(want.answer.array, want.exact))
    floor = room.all * want.stretch * stir + OWN * own + tiny
    space, start, found, worst = got.space, 0, Close(spread=size_of(want.exact), usual_own=own), (0.0, -1)
    wrong, sum_squares, count, far, theirs_far = 0, 0.0, 0, 0.0, 0.0
    for mine, answer, exact, *stirs in _parts(got.array, want.answer.array, want.exact, *want.stirs):
        x, a, e = widened(mine), widened(answer), widened(exact)
        tame = _all_finite(x) and _all_finite(e)
        if not tame and (message := _odd(x, a, e, got, want, start)):
            return Close(message, math.inf, spread=found.spread)
        finite = None if tame else space.isfinite(x) & space.isfinite(e)
        error = space.abs(x - e) if finite is None else space.where(finite, space.abs(x - e), 0.0)
        size = space.abs(e) if finite is None else space.abs(space.where(finite, e, 0.0))
        bound = floor + near * _near(stirs, e, space) + rounding * size
        bad = error > bound
        if bad.any():
            wrong += int(bad.sum())
            excess = space.where(bad, error / bound, 0.0)
            at = int(space.argmax(excess))
            worst = max(worst, (float(excess[at]), start + at))
        far, theirs_far = max(far, float(error.max())), max(theirs_far, float(_distance(a, e).max()))
        sum_squares, start = sum_squares + float((error * error).sum()), start + len(mine)
        count += len(mine) if finite is None else int(finite.sum())
    message = ""
    if wrong:
        message = (
            f"{wrong} of {math.prod(got.shape)} values are further off than {want.precision} arithmetic explains; worst at "
            f"{_place(worst[1], got.shape)}: {_shown(got, worst[1])} instead of {_shown_exact(want, worst[1])}, "
            f"{worst[0]:.3g} times what is allowed"
        )
    return Close(message, far, theirs_far, found.spread, math.sqrt(sum_squares / max(count, 1)), own, wrong / math.prod(got.shape))


def _stored(piece: Piece) -> str:
    return precision_of(piece.array)


def _odd(x: Array, answer: Array, exact: Array, got: Piece, want: Wanted, start: int) -> str:
    """Return what is wrong with NaN and infinity: each must be the reference's own, in its format or in the exact one."""
    space = got.space
    strange = ~space.isfinite(x)
    lost = ~strange & ~space.isfinite(exact)
    if not strange.any() and not lost.any():
        return ""
    known = _alike(x, answer, space) | _alike(x, exact, space)
    extra = strange & ~known
    if extra.any():
        at = int(space.argmax(extra * 1))
        return (
            f"{int(extra.sum())} of {math.prod(got.shape)} values are {_shown(got, start + at)}, first at {_place(start + at, got.shape)}; "
            f"the reference has {_shown(want.answer, start + at)} there"
        )
    if lost.any():
        at = int(space.argmax(lost * 1))
        return (
            f"{int(lost.sum())} values of the reference are {_shown(want.answer, start + at)} and these are not, first at "
            f"{_place(start + at, got.shape)}: {_shown(got, start + at)}"
        )
    return ""


def _alike(one: Array, other: Array, space: Any) -> Array:
    """Return where two arrays are equal or both NaN."""
    return (space.isnan(one) & space.isnan(other)) | (one == other)


def _near(stirs: Sequence[Array], exact: Array, space: Any) -> Array:
    """Return how far rounded inputs move each element: the root mean square over all tries."""
    if not stirs:
        return space.zeros_like(space.abs(exact))
    total = space.zeros_like(space.abs(exact))
    for stir in stirs:
        off = _distance(widened(stir), exact)
        total = total + off * off
    return space.sqrt(total / len(stirs))


def _all_finite(array: Array) -> bool:
    """Whether the sum is finite, and so every element; False may also mean that the sum overflowed."""
    with np.errstate(all="ignore"):
        total = array.sum()
    return bool(space_of(total).isfinite(total))


def _distance(one: Array, other: Array) -> Array:
    """Return how far two arrays are apart, element by element; 0 where one of them is not finite."""
    space = space_of(one)
    off = space.abs(one - other)
    return off if _all_finite(off) else space.where(space.isfinite(off), off, 0.0)


def _usual_stir(want: Wanted) -> float:
    found = [_usual(_errors(stir, want.exact)) for stir in want.stirs]
    return math.sqrt(sum(value * value for value in found) / len(found)) if found else 0.0


def _errors(one: Array, other: Array) -> Iterator[Array]:
    """Yield how far two arrays are apart, part by part; 0 where one of them is not finite."""
    for mine, theirs in _parts(one, other):
        yield _distance(widened(mine), widened(theirs))


def _usual(sizes: Iterator[Array]) -> float:
    """Return the root mean square, at most 10 times what 90 % of a sample stay below; an odd step avoids the length of a row."""
    squares, count, sample = 0.0, 0, []
    for size in sizes:
        squares, count = squares + float((size * size).sum()), count + len(size)
        kept = size[:: (len(size) // SAMPLED) | 1] if len(size) > SAMPLED else size
        sample.append(np.asarray(kept) if space_of(kept) is np else kept.cpu().numpy())
    if not count or not squares:
        return 0.0
    rms = math.sqrt(squares / count)
    usual = float(np.quantile(np.concatenate(sample), 0.9))
    return min(rms, 10 * usual) if usual else rms


def _real(array: Array) -> Array:
    return space_of(array).abs(array) if str(array.dtype).rpartition(".")[2].startswith("complex") else array


def _parts(*arrays: Array) -> Iterator[tuple[Array, ...]]:
    """Yield parts of flattened arrays of one shape."""
    flat = [array.reshape(-1) for array in arrays]
    size = AT_ONCE_CPU if str(getattr(flat[0], "device", "cpu")) == "cpu" else AT_ONCE
    for start in range(0, len(flat[0]), size):
        yield tuple(array[start : start + size] for array in flat)


def _place(index: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(k) for k in np.unravel_index(index, shape)) if shape else ()


def _shown(piece: Piece, index: int) -> str:
    return _text(piece.array.reshape(-1)[index])


def _shown_exact(want: Wanted, index: int) -> str:
    return _text(want.exact.reshape(-1)[index])


def _text(value: Any) -> str:
    number = value.item()
    return f"{number:.7g}" if isinstance(number, (float, complex)) else str(number)
