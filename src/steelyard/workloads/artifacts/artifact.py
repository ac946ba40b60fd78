"""An exported program, run without its model's code, with every answer checked."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from steelyard.artifacts import arrays, programs
from steelyard.artifacts.manifest import KINDS
from steelyard.artifacts.signature import ProgramSignature, TensorType
from steelyard.errors import SteelyardError, Unsupported, WrongAnswer
from steelyard.measuring.verify import usual_size
from steelyard.model.case import Case
from steelyard.model.define import workload
from steelyard.model.dtypes import is_float
from steelyard.model.experiment import Settings
from steelyard.model.task import Task
from steelyard.workloads.artifacts import _answers, _explain
from steelyard.workloads.artifacts._files import DescribedProgram, contents, described, identify, runners, suits

BACKENDS = ("xla", "iree", "litert", "onnxruntime", "interpreter")
INTERPRETER = "interpreter"
INDEX = 2
"""Integers of 32 and 64 bits are drawn below this: they are often indices, and what they index is rarely shorter."""
NARROW = {"int8": (-128, 128), "uint8": (0, 256), "int16": (-256, 256), "uint16": (0, 256), "bool": (0, 2)}
NOTHING = "no answers were recorded with the program, and no other backend has run it: use -B interpreter, or several backends"


def _examine(params: Mapping[str, Any], loaded: Any) -> tuple[str, str]:
    """Return mistakes that a program's file shows, and why the program could not be checked."""
    try:
        found = described(Path(params["path"]))
        if found.form == "text":
            programs.refuse_elided(programs.read(found.path).decode("utf-8", "replace"))
        signature = programs.signature_of(found.path, found.kind, found.form, found.entry)
    except SteelyardError as error:
        return "; ".join(part for part in (error.what, error.why) if part), ""
    if signature is None:
        return "", "only a compiler knows its inputs"
    if found.held is not None and found.program is not None:
        return _misfit(found, signature), ""
    return "", ""


def witness(case: Case, settings: Settings) -> Case | None:
    """Return the case on the reference interpreter that must run first; None if no answer is compared with it or its answer is saved."""
    if settings.reference != INTERPRETER or not settings.scrutinised or case.backend == INTERPRETER:
        return None
    path = Path(dict(case.params)["path"]["file"])
    kind = described(path).kind
    if INTERPRETER not in runners(kind):
        do = "leave --reference interpreter out: answers are then compared with recorded ones, or with other backends"
        raise Unsupported(f"the reference interpreter does not run {KINDS[kind]}", do=do)
    kept = _answers.others(_key(path, settings), case.backend).get(INTERPRETER)
    if kept is not None and _answers.is_whole(kept):
        return None
    return Case(case.workload, case.params, INTERPRETER)


def _key(path: Path, settings: Settings) -> str:
    """Return the key under which answers to a program with its inputs are saved."""
    return f"{identify(path)[:32]}-{settings.seed}"


@workload(
    "artifact",
    backend=BACKENDS,
    opens="path",
    contents=contents,
    identify=identify,
    suits=suits,
    examine=_examine,
    tags=["artifact"],
    witness=witness,
)
def artifact(path: str, be: Any, settings: Settings) -> Task:
    """An exported program: artifact:FILE or artifact:FOLDER, StableHLO, HLO, TOSA, linalg, TFLite or ONNX."""
    from steelyard.backends._programs import ProgramFile

    found = described(Path(path))
    program = be.load(ProgramFile(found.path, found.kind, found.form, found.entry, tuple(settings.allow)))
    if found.held is not None and (trouble := _misfit(found, program.signature)):
        raise WrongAnswer(trouble, do="make the manifest again, or fetch it")
    data = _recorded_inputs(found) if found.held else drawn(program.signature, settings.seed)
    args = tuple(be.place(value) for value in data)
    task = Task(program.call, args, heavy=True, own_threads=True, same_dtype=True, effective=_told(found))
    if program.consumes:
        task = _given_anew(task, be, data)
    if found.held is not None and settings.reference != INTERPRETER:
        want = _recorded_outputs(found)
        task = replace(task, reference=lambda: want, against="the recorded answers", tolerance=_tolerance(found, want))
    else:
        task = _held_against_others(task, be, found, settings)
    return replace(task, explain=functools.partial(_explain.reason, program.call, be, data))


def drawn(signature: ProgramSignature, seed: int) -> list[np.ndarray[Any, Any]]:
    """Return random inputs for a signature, the same for every backend with one seed; integers are small, as they may be indices."""
    return [_draw(kind, np.random.default_rng((seed, number))) for number, kind in enumerate(signature.inputs)]


def _draw(kind: TensorType, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    if kind.dtype.startswith("complex"):
        pair = rng.standard_normal((*kind.fixed, 2))
        return (pair[..., 0] + 1j * pair[..., 1]).astype(arrays.NUMPY[kind.dtype])
    if is_float(kind.dtype):
        values = rng.standard_normal(kind.fixed).astype(np.float32)
        if kind.dtype in arrays.NUMPY:
            return np.asarray(values, arrays.NUMPY[kind.dtype])
        return np.asarray(values).astype(arrays.viewed(np.zeros(1, arrays.BITS[kind.dtype][0]), kind.dtype).dtype)
    low, high = NARROW.get(kind.dtype, (0, INDEX))
    return np.asarray(rng.integers(low, high, kind.fixed)).astype(arrays.NUMPY[kind.dtype])


def _recorded_inputs(found: DescribedProgram) -> list[np.ndarray[Any, Any]]:
    assert found.held is not None and found.program is not None
    return arrays.load(found.folder, found.held.arguments_of(found.program))


def _recorded_outputs(found: DescribedProgram) -> list[np.ndarray[Any, Any]]:
    assert found.held is not None and found.program is not None
    return arrays.load(found.folder, found.held.results_of(found.program))


def _tolerance(found: DescribedProgram, want: Sequence[np.ndarray[Any, Any]]) -> tuple[float, float] | None:
    """Return the recorded relative and absolute tolerance; None if none was recorded.

    A manifest's absolute tolerance is a number, a task's is a share of an output's usual size. It is taken as a share of the
    largest such size, so that outputs of small numbers are checked as strictly as the others.
    """
    assert found.held is not None and found.program is not None
    said = found.held.tolerance_of(found.program)
    if not said.rtol and not said.atol:
        return None
    numbers = [value for value in want if value.size and value.dtype.kind not in "biu"]
    sizes = [np.abs(value if value.dtype.kind == "c" else value.astype(np.float64)) for value in numbers]
    largest = max((usual_size(size[np.isfinite(size)], np) for size in sizes if np.isfinite(size).any()), default=0.0)
    return said.rtol, said.atol / largest if largest else said.atol


def _misfit(found: DescribedProgram, signature: ProgramSignature) -> str:
    """Return how the recorded inputs or outputs differ from the program's signature; empty if they match."""
    assert found.held is not None and found.program is not None
    for what, items, kinds in (
        ("input", found.held.arguments_of(found.program), signature.inputs),
        ("output", found.held.results_of(found.program), signature.outputs),
    ):  # fmt: skip
        recorded = [TensorType(item.dtype, item.shape) for item in items]
        if trouble := _explain.mismatch(what, recorded, kinds):
            return trouble
    return ""


def _given_anew(task: Task, be: Any, data: Sequence[np.ndarray[Any, Any]]) -> Task:
    """Return a task for a program that consumes its inputs: each call gets new ones, made outside the timed part."""
    call, held = task.fn, [[be.place(value.copy()) for value in data]]
    assert call is not None

    def prepare() -> None:
        held[0] = [be.place(value.copy()) for value in data]

    return replace(task, fn=lambda: call(*held[0]), args=(), prepare=prepare)


def _held_against_others(task: Task, be: Any, found: DescribedProgram, settings: Settings) -> Task:
    """Return the task with its answers saved, and compared with those of other backends."""
    key = _key(found.path, settings)
    call = task
    known = _answers.others(key, be.name)
    chosen = next(iter(known), "") if settings.reference != INTERPRETER else INTERPRETER if INTERPRETER in known else ""
    want = _answers.read(known[chosen]) if chosen else None

    def observe() -> Any:
        answer = call()
        _answers.keep(key, be.name, [(arrays.dtype_of(value), value) for value in map(be.read, answer)])
        return answer

    task = replace(task, observe=observe)
    if want is not None:
        return replace(task, reference=lambda: want, against=f"backend {chosen}")
    if settings.reference == INTERPRETER and be.name == INTERPRETER:
        return replace(task, unverified="it is the reference itself")
    if settings.reference == INTERPRETER and settings.scrutinised:
        raise Unsupported("the reference interpreter's answer is missing", do="leave --reference out, or run it with -B interpreter")
    return replace(task, unverified=NOTHING)


def _told(found: DescribedProgram) -> dict[str, Any]:
    said: dict[str, Any] = {"kind": found.kind, "form": found.form, "file": found.path.name}
    if found.held is not None:
        said |= {"producer": f"{found.held.producer.framework} {found.held.producer.source}", "weights": found.held.producer.weights}
    return {"artifact": said}
