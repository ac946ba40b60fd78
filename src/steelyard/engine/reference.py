"""Whether an answer is still right: the best reference there is for a case, and the comparison with it."""

from __future__ import annotations

from typing import Any

from steelyard.engine.bench import Bench
from steelyard.errors import Unsupported, out_of_memory
from steelyard.measuring import verify
from steelyard.model.case import IDENTITY
from steelyard.model.record import Verification
from steelyard.model.task import Task, clean_up, observed
from steelyard.variants.precision import TF32_TOLERANCE, rounds_to_tf32

REFERENCE_FLOPS, REFERENCE_BYTES, UPCAST_FLOPS = 5e9, 5e8, 5e12


def check(bench: Bench, be: Any, task: Task, output: Any) -> Verification:
    """Compare the first output with the best reference there is, and say which that was.

    A reference in double precision may not exist, as where an operator holds weights of its own; the plain task that a
    variant is held against must.
    """
    if task.unverified:
        return Verification("none", "", task.unverified)
    try:
        want, against, same = reference(bench, be, task)
    except Exception as error:
        unable = (Unsupported, NotImplementedError) if bench.chain else (Unsupported, RuntimeError, TypeError)
        if not (isinstance(error, unable) or out_of_memory(error)):
            raise
        return Verification("none", "", f"no reference could be computed: {type(error).__name__}: {str(error).splitlines()[0]}")
    if want is None:
        return Verification("none", "", against)
    asked, got = (bench.settings.rtol, bench.settings.atol), be.outputs(output)
    found = verify.compare(got, want, against, asked=asked, own=task.tolerance, same_dtype=same, norm=task.norm_tolerance)
    if found.status == "failed" and not task.tolerance and asked == (None, None) and _rounded(bench, be):
        against += ", as close as TF32 allows"
        return verify.compare(got, want, against, own=TF32_TOLERANCE, same_dtype=same, norm=task.norm_tolerance)
    return found


def _rounded(bench: Bench, be: Any) -> bool:
    """Whether the framework's own settings let the plain task round its fp32 products to TF32."""
    if be.device != "cuda":
        return False
    plain, task = bench.base()
    try:
        return rounds_to_tf32(task, plain)
    finally:
        clean_up([task])


def reference(bench: Bench, be: Any, task: Task) -> tuple[Any, str, bool]:
    """The answer to compare with, where it comes from, and whether formats must agree.

    A variant is held against the plain task; the plain task against its own reference, an independent numpy form in
    double precision, or, where data is too large or was drawn on the device, itself in double precision. A backend that has
    a witness is held against that, variants and all, so that all its ways of running have one reference; so is every variant
    where that was asked for.
    """
    witness = be.witness()
    if bench.chain and witness is None and bench.settings.reference == "eager":
        return _answer(bench, *bench.base(), mode=True), f"{bench.case.backend} {IDENTITY}", not task.any_dtype
    if task.reference:
        return be.outputs(task.reference()), "the workload's reference", False
    small = (task.flops or 0) <= REFERENCE_FLOPS and (task.bytes or 0) <= REFERENCE_BYTES
    if "numpy" in bench.workload.bodies and bench.case.mode in ("eval", "fwd") and be.neutral and small:
        from steelyard.backends.numpy import Precise

        exact = Precise(seed=bench.settings.seed)
        return _answer(bench, exact, bench.body("numpy", exact), mode=False), "numpy fp64", False
    other, plain = bench.base(witness)
    wide = other.upcast(plain) if (task.flops or 0) <= UPCAST_FLOPS else None
    if wide is None:
        return None, "no reference: the workload has none, and no double-precision form small enough to compute", False
    return _answer(bench, other, wide, mode=True), f"{other.name} fp64", False


def _answer(bench: Bench, be: Any, task: Task, *, mode: bool) -> Any:
    """The outputs of a task that is built for its answer alone; numpy knows no modes and needs none for a forward pass."""
    try:
        return be.outputs(observed(bench.ready(be, task)) if mode else task())
    finally:
        clean_up([task])
