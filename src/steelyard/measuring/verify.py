"""Is the answer still right? Outputs are compared leaf by leaf, each kind of difference in its own words."""

from __future__ import annotations

from collections.abc import Sequence
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

Array = np.ndarray[Any, Any]


class LeafLike(Protocol):
    """One output array with its place and format."""

    @property
    def path(self) -> str: ...
    @property
    def dtype(self) -> str: ...
    @property
    def data(self) -> Array: ...
    @property
    def shape(self) -> tuple[int, ...]: ...


def tolerance(
    dtype: str, asked: tuple[float | None, float | None] = (None, None), own: tuple[float, float] | None = None
) -> tuple[float, float]:
    """Relative and absolute tolerance: the user's word first, then the task's, then the format's."""
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
) -> Verification:
    """Compare all outputs; the first difference decides the message, the worst error the figures.

    An element passes when |got - want| <= atol * rms(want) + rtol * |want|: the absolute part scales with the output, so
    small outputs are not waved through. `same_dtype` is off when the reference was computed in higher precision. With
    `norm`, gradients and updates pass as whole arrays, since in half precision their elements scatter: the norm of the error
    is at most that share of the array's own, and the length along the reference is off by half of that at most, which noise
    hardly moves and a wrong scale does. The loss is one number and has the relative tolerance alone.
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
        share = norm if is_gradient(mine.path) else None
        found = _structure(mine, theirs, same_dtype) or _values(mine.data, theirs.data, rtol, atol, share)
        if isinstance(found, str):
            return Verification("failed", against, f"{mine.path}: {found}", rtol=rtol, atol=atol)
        message, max_abs, max_rel = found
        if message:
            return Verification("failed", against, f"{mine.path}: {message}", max_abs, max_rel, rtol, atol)
        worst = Verification("passed", against, "", max(max_abs, worst.max_abs or 0.0), max(max_rel, worst.max_rel or 0.0), rtol, atol)
    return replace(worst, identical=worst.max_abs == 0.0 and all(map(_identical, got, want)))


def is_gradient(path: str) -> bool:
    """Whether an output is a gradient or what an optimizer made of one."""
    return path.startswith(GRADIENTS)


def _identical(got: LeafLike, want: LeafLike) -> bool:
    """Whether two arrays agree in every bit of one format."""
    return got.dtype == want.dtype and got.data.dtype == want.data.dtype and got.data.tobytes() == want.data.tobytes()


def _structure(got: LeafLike, want: LeafLike, same_dtype: bool) -> str | None:
    if got.shape != want.shape:
        return f"shape {got.shape} instead of {want.shape}"
    if same_dtype and got.dtype != want.dtype:
        return f"dtype {got.dtype} instead of {want.dtype}"
    return None


def _values(got: Array, want: Array, rtol: float, atol: float, norm: float | None = None) -> str | tuple[str, float, float]:
    if got.size == 0:
        return "", 0.0, 0.0
    wide = np.complex128 if got.dtype.kind == "c" or want.dtype.kind == "c" else np.float64
    mine, theirs = np.asarray(got, wide), np.asarray(want, wide)
    for name, test in (("NaN", np.isnan), ("infinite", np.isinf)):
        extra, lost = test(mine) & ~test(theirs), test(theirs) & ~test(mine)
        if extra.any():
            return f"{int(extra.sum())} of {mine.size} values are {name}, first at {_place(extra)}; the reference has none there"
        if lost.any():
            return f"{int(lost.sum())} values of the reference are {name} and ours are not, first at {_place(lost)}"
    finite = np.isfinite(theirs)
    if not finite.all() and not np.array_equal(mine[np.isinf(theirs)], theirs[np.isinf(theirs)]):
        return "infinite values have the wrong sign"
    error = np.where(finite, np.abs(np.where(finite, mine, 0) - np.where(finite, theirs, 0)), 0.0)
    size = np.where(finite, np.abs(np.where(finite, theirs, 0)), 0.0)
    if got.dtype.kind in "iub" and want.dtype.kind in "iub":
        error = np.maximum(error, got != want)
    rms = _scale(size)
    if norm is not None:
        return _as_a_whole(np.where(finite, mine, 0), np.where(finite, theirs, 0), norm)
    bad = ~(error <= atol * rms + rtol * size)
    max_abs, max_rel = float(error.max()), float((error / np.maximum(size, rms or 1.0)).max())
    if not bad.any():
        return "", max_abs, max_rel
    place = np.unravel_index(int(np.argmax(np.where(bad, error, 0.0))), error.shape)
    where = tuple(int(k) for k in place)
    message = (
        f"{int(bad.sum())} of {mine.size} values differ beyond rtol {rtol:g}, atol {atol:g} x rms; "
        f"largest error {error[place]:.3g} at {where}: {_shown(got[place])} instead of {_shown(want[place])}"
    )
    return message, max_abs, max_rel


def _as_a_whole(got: Array, want: Array, norm: float) -> tuple[str, float, float]:
    """By norm: the error as a share of the reference, and how long the part along the reference is."""
    error, unit = np.abs(got - want), float(max(np.abs(want).max(), np.abs(got).max())) or 1.0
    got, want = got / unit, want / unit
    length = float(np.linalg.norm(want))
    off = float(np.linalg.norm(got - want)) / (length or 1.0)
    along = float(np.vdot(want, got).real) / length**2 if length else 1.0
    message = ""
    if not off <= norm:
        message = f"off by {off:.2g} of its norm, {norm:g} allowed"
    elif not abs(along - 1) <= SKEW * norm:
        message = f"{along:.2g} times what it should be, {SKEW * norm:g} off allowed"
    return message, float(error.max()), off


def _scale(size: Array) -> float:
    """Root mean square, but not far above the usual size: one huge value, such as a mask, must not wave the rest through."""
    largest = float(size.max())
    if not largest:
        return 0.0
    rms = largest * float(np.sqrt(np.mean((size / largest) ** 2)))
    usual = float(np.quantile(size.reshape(-1)[:: max(1, size.size // 1_000_000)], 0.9))
    return min(rms, 10 * usual) if usual else rms


def _shown(value: Any) -> str:
    return f"{value:.6g}" if value.dtype.kind in "fc" else str(value)


def _place(mask: Array) -> tuple[int, ...]:
    return tuple(int(k) for k in np.unravel_index(int(np.argmax(mask)), mask.shape))
