"""Write rulings in the formats of the systems whose layouts are read, for programs that read these systems' files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from steelyard import codec
from steelyard.engine.referee.layouts import backendbench, gpumode, kernelbench
from steelyard.engine.referee.layouts._traces import trace
from steelyard.model.judging import Problem, Ruling

Problems = Mapping[str, Problem]


def as_kernelbench(rulings: Sequence[Ruling], problems: Problems) -> Any:
    """KernelBench's eval_results.json: problem id -> samples; candidates from elsewhere are listed by problem and name."""
    if rulings and all(kernelbench.LABEL.fullmatch(ruling.candidate) for ruling in rulings):
        return kernelbench.results(rulings)
    found: dict[str, list[dict[str, Any]]] = {}
    for ruling in rulings:
        found.setdefault(ruling.problem, []).append({"candidate": ruling.candidate, **kernelbench.result(ruling)})
    return found


def as_gpumode(rulings: Sequence[Ruling], problems: Problems) -> str:
    """The lines of gpu-mode's runner, below the name of each candidate if there are several."""
    by_name: dict[str, list[Ruling]] = {}
    for ruling in rulings:
        by_name.setdefault(ruling.candidate, []).append(ruling)
    written: list[str] = []
    for name, found in by_name.items():
        written += [f"candidate: {' '.join(name.split())}"] if len(by_name) > 1 else []
        written += gpumode.lines(found)
    return "\n".join(written)


def as_flashinfer(rulings: Sequence[Ruling], problems: Problems) -> str:
    """FlashInfer-Bench's traces, one line each."""
    return "\n".join(codec.encode(trace(ruling, problems.get(ruling.problem))).decode() for ruling in rulings)


def as_backendbench(rulings: Sequence[Ruling], problems: Problems) -> Any:
    """BackendBench's full_results.json."""
    return backendbench.results(rulings)


FORMATS: Mapping[str, Callable[[Sequence[Ruling], Problems], Any]] = {
    "kernelbench": as_kernelbench, "gpumode": as_gpumode, "flashinfer": as_flashinfer, "backendbench": as_backendbench,
}  # fmt: skip
"""By name; each function returns text, or data that is written as JSON."""
