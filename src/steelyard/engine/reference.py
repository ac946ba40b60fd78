"""Checks whether an answer is right: finds the best reference for a case and compares the answer with it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from steelyard.backends.base import Leaf
from steelyard.engine.bench import Bench
from steelyard.errors import Unsupported, out_of_memory
from steelyard.measuring import verify
from steelyard.model.case import IDENTITY
from steelyard.model.record import Verification
from steelyard.model.task import Task, clean_up, observed
from steelyard.variants.precision import TF32_TOLERANCE, rounds_to_tf32

FIRST = "first answer"
REFERENCE_FLOPS, REFERENCE_BYTES, UPCAST_FLOPS = 5e9, 5e8, 5e12
BRIEF_FLOPS, BRIEF_BYTES = 1e8, 4e6
"""Up to these amounts numpy computes a device's answer, in the time of a few launches; with `--verify full` up to those above."""
SMALL = "small"

Alike = Callable[[Any, Task], AbstractContextManager[Any]]
"""A context manager that gives a fresh task the current values of the timed one."""


class Unlike(Exception):
    """A task that was just built cannot get the values of the timed one."""


def as_built(be: Any, task: Task) -> AbstractContextManager[Any]:
    """Leave a fresh task with the values that the seed gives."""
    return contextlib.nullcontext()


def judge(bench: Bench, be: Any, task: Task, got: Sequence[Leaf], found: tuple[Any, str, bool]) -> Verification:
    """Compare an answer with what `reference` found, with the tolerances that the user, the task and the device's rounding allow."""
    want, against, same = found
    same = same or (task.same_dtype and task.reference is not None)
    asked = (bench.settings.rtol, bench.settings.atol)
    norm, whole = task.norm_tolerance, task.whole_tolerance
    seen = verify.compare(got, want, against, asked=asked, own=task.tolerance, same_dtype=same, norm=norm, whole=whole)
    if seen.status == "failed" and not task.tolerance and asked == (None, None) and _rounded(bench, be):
        against += ", as close as TF32 allows"
        return verify.compare(got, want, against, own=TF32_TOLERANCE, same_dtype=same, norm=norm, whole=whole)
    if seen.status == "failed" and task.explain is not None:
        return replace(seen, message=f"{seen.message}; {task.explain(got, want)}")
    return seen


def reason(found: Verification) -> str:
    """Why a failed verification makes a case wrong."""
    if not found.against:
        return found.message
    return (
        f"not the answer of {found.against}: {found.message}"
        if found.checks[:1] != [FIRST] or len(found.checks) == 1
        else f"{found.message} ({found.against})"
    )


def kept(be: Any, leaves: Sequence[Leaf]) -> list[Leaf]:
    """A copy of an answer for later checks, because its memory may be overwritten by the next call."""
    return [be.kept(leaf) for leaf in leaves]


def _rounded(bench: Bench, be: Any) -> bool:
    """Whether the framework's own settings let the plain task round its fp32 products to TF32."""
    if be.device != "cuda":
        return False
    plain, task = bench.base()
    try:
        return rounds_to_tf32(task, plain) or plain.rounds_to_tf32(task)
    finally:
        clean_up([task])


def reference(bench: Bench, be: Any, task: Task, alike: Alike = as_built) -> tuple[Any, str, bool]:
    """The answer to compare with, where it comes from, and whether formats must agree; if there is none, the reason why.

    A variant is compared with the plain task, which must work; all else with the exact answer. A backend with a witness is
    compared with that, including its variants, so that all its ways of running have one reference. The exact answer is also used
    for backends that request it, and for every variant with `--reference fp64`. A variant without an exact reference still has
    the plain task. What a variant has set for the whole process has no effect here.
    """
    with be.in_state(be.before_variants) if be.left_set else contextlib.nullcontext():
        return _reference(bench, be, task, alike)


def _reference(bench: Bench, be: Any, task: Task, alike: Alike) -> tuple[Any, str, bool]:
    witness, varied = be.witness(), not all(variant.asked for variant, _ in bench.chain)
    if not varied or witness is not None or be.exactly or bench.settings.reference == "fp64":
        try:
            want, against = exact(bench, be, task, witness, alike)
        except Exception as error:
            if not (isinstance(error, (Unsupported, RuntimeError, TypeError)) or out_of_memory(error)):
                raise
            want, against = None, _unable(error)
        if want is not None or not varied:
            return want, against, False
    try:
        against = task.standard.words if task.standard and task.standard.make else f"{bench.case.backend} {IDENTITY}"
        return answer_of(bench, *bench.standard(task), mode=True, alike=alike), against, not task.any_dtype
    except Exception as error:
        if not (isinstance(error, (Unsupported, NotImplementedError)) or out_of_memory(error)):
            raise
        return None, _unable(error), False


def _unable(error: Exception) -> str:
    return f"no reference could be computed: {type(error).__name__}: {(str(error).splitlines() or [''])[0]}"


def exact(bench: Bench, be: Any, task: Task, witness: Any = None, alike: Alike = as_built) -> tuple[Any, str]:
    """The workload's own reference, an independent numpy form in double precision, or, where data is too large, the plain task in
    double precision; None if that is too large as well."""
    own = task.standard is not None and task.standard.make is not None
    if task.reference and not own:
        return kept(be, be.outputs(task.reference())), task.against or "the workload's reference"
    if _in_numpy(bench) and not own and _small(bench, be, task):
        from steelyard.backends.numpy import Precise

        precise = Precise(seed=bench.settings.seed)
        with contextlib.suppress(Unlike):
            return answer_of(bench, precise, bench.body("numpy", precise), mode=False, alike=alike), "numpy fp64"
    other, plain = bench.standard(task, witness)
    with alike(other, plain):
        wide = other.upcast(plain) if (task.flops or 0) <= UPCAST_FLOPS else None
        if wide is None:
            return None, "no reference: the workload has none, and no double-precision form small enough to compute"
        return answer_of(bench, other, wide, mode=True), f"{other.name} fp64"


def _in_numpy(bench: Bench) -> bool:
    """Whether numpy can compute the case: it has no gradients."""
    return "numpy" in bench.workload.bodies and bench.case.mode in ("eval", "fwd")


def _small(bench: Bench, be: Any, task: Task) -> bool:
    """Whether numpy computes a task in no more time than measuring it takes."""
    whole = be.device == "cpu" or bench.settings.verify == "full" or not _provable(bench)
    flops, data = (REFERENCE_FLOPS, REFERENCE_BYTES) if whole else (BRIEF_FLOPS, BRIEF_BYTES)
    return (task.flops or 0) <= flops and (task.bytes or 0) <= data


def _provable(bench: Bench) -> bool:
    return _in_numpy(bench) and SMALL in bench.workload.sizes


def proof(bench: Bench, be: Any, against: str) -> Verification | None:
    """Check the plain task's answer at the workload's small size with numpy's independent form; None if that is not needed.

    On a device a large answer is compared with the framework's own in double precision. This check on few numbers shows that both
    compute what the workload means.
    """
    if against != f"{be.name} fp64" or be.device == "cpu" or bench.case.ranks > 1 or not _provable(bench):
        return None
    case = replace(bench.case, params=tuple({**dict(bench.case.params), **_preset(bench)}.items()))
    chain = bench.chain if be.exactly else tuple(step for step in bench.chain if step[0].asked)
    return _proven(replace(bench, case=case, chain=chain))


def _preset(bench: Bench) -> dict[str, Any]:
    """The small size, in the format of the case."""
    return {name: value for name, value in bench.workload.sizes[SMALL].items() if name != "dtype"}


def _proven(bench: Bench) -> Verification:
    other, task = bench.build()
    got = answer_of(bench, other, task, mode=True)
    from steelyard.backends.numpy import Precise

    precise = Precise(seed=bench.settings.seed)
    want = answer_of(bench, precise, bench.body("numpy", precise), mode=False)
    size = ", ".join(f"{name}={value}" for name, value in _preset(bench).items())
    return replace(judge(bench, other, task, got, (want, f"numpy fp64 at size {SMALL}", False)), checks=[f"numpy fp64 at {size}"])


def answer_of(bench: Bench, be: Any, task: Task, *, mode: bool, alike: Alike = as_built) -> Any:
    """The outputs of a task that is built only for its answer; numpy has no modes and needs none for a forward pass."""
    try:
        with alike(be, task):
            return kept(be, be.outputs(observed(bench.ready(be, task)) if mode else task()))
    finally:
        clean_up([task])
