"""Checks whether an answer is still right: outputs are compared leaf by leaf, with a message for each kind of difference."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from steelyard.model.record import Verification
from steelyard.model.units import check_tolerance

TOLERANCES: dict[str, tuple[float, float]] = {
    "fp64": (1e-9, 1e-10), "fp32": (1e-4, 1e-5), "fp16": (1e-2, 2e-3), "bf16": (3e-2, 1e-2),
    "fp8e4m3": (0.15, 0.1), "fp8e5m2": (0.3, 0.2), "fp8e4m3fnuz": (0.15, 0.1), "fp8e5m2fnuz": (0.3, 0.2), "fp8e8m0": (0.5, 0.5),
    "complex32": (1e-2, 2e-3), "complex64": (1e-4, 1e-5), "complex128": (1e-9, 1e-10),
}  # fmt: skip
EXACT = (0.0, 0.0)
GRADIENTS, LOSS = ("out.gradients", "out.updates"), "out.loss"
SKEW = 0.5

Array = Any


class LeafLike(Protocol):
    """One output array with its place and format; `there` and `space` are for one on a device."""

    @property
    def path(self) -> str: ...
    @property
    def dtype(self) -> str: ...
    @property
    def data(self) -> Array: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def there(self) -> Any: ...
    @property
    def space(self) -> Any: ...


def is_floating(dtype: str) -> bool:
    """Whether a format, by our name or its framework's, is a floating or complex one."""
    return dtype.removeprefix("torch.").startswith(("fp", "bf", "float", "bfloat", "complex"))


def _is_complex(dtype: str) -> bool:
    return dtype.removeprefix("torch.").startswith("complex")


def _both(got: LeafLike, want: LeafLike) -> tuple[Any, Any, Any]:
    """Two arrays with the module that computes with them: on their device if it is the same, else as numpy arrays."""
    one, other = got.there, want.there
    if one is None or other is None or one.device != other.device:
        return got.data, want.data, np
    return one, other, got.space


def _wide(array: Any, space: Any, complex_too: bool) -> Any:
    """An array in double precision."""
    dtype = space.complex128 if complex_too else space.float64
    if space is not np:
        return array.to(dtype)
    with np.errstate(invalid="ignore"):  # what an answer left unwritten may be a signalling NaN
        return np.asarray(array, dtype)


def side_by_side(got: LeafLike, want: LeafLike) -> tuple[Array, Array, Any]:
    """Two arrays in double precision on their device, or on the host, with the module whose functions work on them."""
    mine, theirs, space = _both(got, want)
    complex_too, _ = _formats(got, want)
    return _wide(mine, space, complex_too), _wide(theirs, space, complex_too), space


def _first_that_works(leaf: LeafLike, work: Callable[[Any, Any], float]) -> float:
    """A figure of an array, computed on its device, or on the host if the device lacks the memory or the operation."""
    if leaf.there is not None:
        with contextlib.suppress(RuntimeError, NotImplementedError):
            return work(_wide(leaf.there, leaf.space, _is_complex(leaf.dtype)), leaf.space)
    return work(_wide(leaf.data, np, _is_complex(leaf.dtype)), np)


def length(leaf: LeafLike) -> float:
    """The square root of the sum of squares."""
    return float(_first_that_works(leaf, lambda array, space: float(space.linalg.norm(array))))


def infinite(leaf: LeafLike) -> int:
    """How many values are not finite."""
    return int(_first_that_works(leaf, lambda array, space: int((~space.isfinite(array)).sum())))


def same_values(one: LeafLike, other: LeafLike) -> bool:
    """Whether two arrays have the same values; NaN equals NaN."""
    mine, theirs, _ = _both(one, other)
    try:
        return _same(mine, theirs)
    except (RuntimeError, NotImplementedError):
        return _same(one.data, other.data)


def _same(mine: Any, theirs: Any) -> bool:
    return tuple(mine.shape) == tuple(theirs.shape) and bool(((mine == theirs) | ((mine != mine) & (theirs != theirs))).all())


def tolerance(
    dtype: str, asked: tuple[float | None, float | None] = (None, None), own: tuple[float, float] | None = None
) -> tuple[float, float]:
    """Relative and absolute tolerance: the user's first, then the task's, then the format's."""
    whole = dtype.removeprefix("torch.").startswith(("int", "uint", "bool"))
    usual = own or (EXACT if whole else TOLERANCES.get(dtype, TOLERANCES["fp32"]))
    found = (usual[0] if asked[0] is None else asked[0], usual[1] if asked[1] is None else asked[1])
    for value, name in zip(found, ("rtol", "atol"), strict=True):
        check_tolerance(value, name)
    return found


def compare(
    got: Sequence[LeafLike],
    want: Sequence[LeafLike],
    against: str,
    *,
    asked: tuple[float | None, float | None] = (None, None),
    own: tuple[float, float] | None = None,
    same_dtype: bool = True,
    norm: float | None = None,
    whole: float | None = None,
) -> Verification:
    """Compare all outputs; the first difference decides the message, the worst error the figures.

    An element passes when |got - want| <= atol * rms(want) + rtol * |want|: the absolute part scales with the output, so wrong small
    outputs are not accepted. `same_dtype` is off when the reference was computed in higher precision. With `norm`, gradients and updates
    are checked as whole arrays, because in half precision their elements scatter: the norm of the error is at most that share of the
    array's, and the length along the reference is off by at most half of that, which noise hardly changes but a wrong scale does; with
    `whole` all arrays are, for formats of few bits. The loss is one number and has only the relative tolerance.
    """
    if len(got) != len(want):
        return Verification("failed", against, f"{len(got)} output arrays instead of {len(want)}")
    if not got:
        return Verification("none", against, "the task returns no arrays to compare")
    worst = Verification("passed", against, max_abs=0.0, max_rel=0.0)
    for mine, theirs in zip(got, want, strict=True):
        rtol, atol = tolerance(mine.dtype, asked, own)
        if mine.path == LOSS and asked[1] is None:
            atol = 0.0
        share = norm if is_gradient(mine.path) else whole if asked == (None, None) else None
        found = _structure(mine, theirs, same_dtype) or _compared(mine, theirs, rtol, atol, share)
        if isinstance(found, str):
            return Verification("failed", against, f"{mine.path}: {found}", rtol=rtol, atol=atol)
        message, max_abs, max_rel = found
        if message:
            return Verification("failed", against, f"{mine.path}: {message}", max_abs, max_rel, rtol, atol)
        worst = Verification("passed", against, "", max(max_abs, worst.max_abs or 0.0), max(max_rel, worst.max_rel or 0.0), rtol, atol)
    return replace(worst, identical=worst.max_abs == 0.0 and all(map(_identical, got, want)))


def _compared(got: LeafLike, want: LeafLike, rtol: float, atol: float, norm: float | None) -> str | tuple[str, float, float]:
    """Compare the values on their device, or on the host if the device lacks the memory or the operation."""
    mine, theirs, space = _both(got, want)
    try:
        return _values(mine, theirs, space, _formats(got, want), rtol, atol, norm)
    except (RuntimeError, NotImplementedError):
        if space is np:
            raise
        return _values(got.data, want.data, np, _formats(got, want), rtol, atol, norm)


def _formats(got: LeafLike, want: LeafLike) -> tuple[bool, bool]:
    """Whether either of two arrays is complex, and whether either is floating or complex."""
    return _is_complex(got.dtype) or _is_complex(want.dtype), is_floating(got.dtype) or is_floating(want.dtype)


def is_gradient(path: str) -> bool:
    """Whether an output is a gradient or an optimizer's update."""
    return path.startswith(GRADIENTS)


def _identical(got: LeafLike, want: LeafLike) -> bool:
    """Whether two arrays agree in every bit of one format."""
    mine, theirs, space = _both(got, want)
    if got.dtype != want.dtype or mine.dtype != theirs.dtype:
        return False
    if space is np:
        return bool(mine.tobytes() == theirs.tobytes())
    try:
        one, other = (array.reshape(-1).contiguous().view(space.uint8) for array in (mine, theirs))
        return bool((one == other).all())
    except (RuntimeError, NotImplementedError):
        return bool(got.data.tobytes() == want.data.tobytes())


def _structure(got: LeafLike, want: LeafLike, same_dtype: bool) -> str | None:
    if got.shape != want.shape:
        return f"shape {got.shape} instead of {want.shape}"
    if same_dtype and got.dtype != want.dtype:
        return f"dtype {got.dtype} instead of {want.dtype}"
    return None


def _values(
    raw: Array, raw_want: Array, space: Any, formats: tuple[bool, bool], rtol: float, atol: float, norm: float | None
) -> str | tuple[str, float, float]:
    """What is wrong with the values, the largest error and the largest relative one; only a text if there are no such numbers."""
    if not math.prod(raw.shape):
        return "", 0.0, 0.0
    complex_too, fractions = formats
    mine, theirs = _wide(raw, space, complex_too), _wide(raw_want, space, complex_too)
    count = math.prod(mine.shape)
    for name, test in (("NaN", space.isnan), ("infinite", space.isinf)):
        extra, lost = test(mine) & ~test(theirs), test(theirs) & ~test(mine)
        if extra.any():
            return f"{int(extra.sum())} of {count} values are {name}, first at {_place(extra, space)}; the reference has none there"
        if lost.any():
            return f"{int(lost.sum())} values of the reference are {name} and ours are not, first at {_place(lost, space)}"
    finite = space.isfinite(theirs)
    if not finite.all():
        infinite = space.isinf(theirs)
        if not (mine[infinite] == theirs[infinite]).all():
            return "infinite values have the wrong sign"
        mine, theirs = space.where(finite, mine, 0), space.where(finite, theirs, 0)
    error, size = space.abs(mine - theirs), space.abs(theirs)
    if not fractions:
        error = space.where((raw != raw_want) & (error < 1), 1.0, error)
    if norm is not None:
        return _as_a_whole(mine, theirs, error, norm, space)
    rms = usual_size(size, space)
    bad = ~(error <= atol * rms + rtol * size)
    max_abs, max_rel = float(error.max()), float((error / size.clip(min=rms or 1.0)).max())
    if not bad.any():
        return "", max_abs, max_rel
    where = tuple(int(k) for k in np.unravel_index(int(space.argmax(space.where(bad, error, 0.0))), tuple(error.shape)))
    message = (
        f"{int(bad.sum())} of {count} values differ beyond rtol {rtol:g}, atol {atol:g} x rms; "
        f"largest error {float(error[where]):.3g} at {where}: {_shown(raw[where])} instead of {_shown(raw_want[where])}"
    )
    return message, max_abs, max_rel


def _as_a_whole(got: Array, want: Array, error: Array, norm: float, space: Any) -> tuple[str, float, float]:
    """Check by norm: the error as a share of the reference, and the length of the part along the reference."""
    unit = max(float(space.abs(want).max()), float(space.abs(got).max())) or 1.0
    got, want = got / unit, want / unit
    length = float(space.linalg.norm(want))
    off = float(space.linalg.norm(got - want)) / (length or 1.0)
    along = float((want.conj() * got).sum().real) / length**2 if length else 1.0
    message = ""
    if not off <= norm:
        message = f"off by {off:.2g} of its norm, {norm:g} allowed"
    elif not abs(along - 1) <= SKEW * norm:
        message = f"{along:.2g} times what it should be, {SKEW * norm:g} off allowed"
    return message, float(error.max()), off


def usual_size(size: Array, space: Any) -> float:
    """Root mean square, but not far above the usual size: one huge value, such as a mask, must not make the rest pass."""
    largest = float(size.max())
    if not largest:
        return 0.0
    rms = largest * math.sqrt(float(((size / largest) ** 2).mean()))
    usual = float(space.quantile(size.reshape(-1)[:: max(1, math.prod(size.shape) // 1_000_000)], 0.9))
    return min(rms, 10 * usual) if usual else rms


def _shown(value: Any) -> str:
    number = value.item()
    return f"{number:.6g}" if isinstance(number, (float, complex)) else str(number)


def _place(mask: Array, space: Any) -> tuple[int, ...]:
    return tuple(int(k) for k in np.unravel_index(int(space.argmax(mask * 1)), tuple(mask.shape)))
