"""Rulings in FlashInfer-Bench's Trace format, which SOL-ExecBench also uses."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from steelyard.engine.referee.layouts._times import said, seated, speedup, times
from steelyard.model.judging import Problem, Ruling

ENDS = {"ok": "PASSED", "timeout": "TIMEOUT"}
INCORRECT = {"shape": "INCORRECT_SHAPE", "dtype": "INCORRECT_DTYPE"}


def trace(ruling: Ruling, problem: Problem | None = None) -> dict[str, Any]:
    """A ruling as a Trace; with its problem given the workload is written out, otherwise only its uuid."""
    definition, _, uuid = ruling.problem.partition(" ")
    workload = dict(problem.options["workload"]) if problem and "workload" in problem.options else {"uuid": uuid}
    mine, other = times(ruling)
    check, performance, correctness = ruling.verification, None, None
    if check and check.max_abs is not None:
        correctness = {"max_relative_error": check.max_rel or 0.0, "max_absolute_error": check.max_abs}
    if ruling.correct and mine and other:
        ratio = speedup(ruling)
        performance = {"latency_ms": mine.value * 1e3, "reference_latency_ms": other.value * 1e3, "speedup_factor": ratio}
    return {
        "definition": definition, "workload": workload, "solution": ruling.candidate,
        "evaluation": {
            "status": _status(ruling), "log": said(ruling), "correctness": correctness, "performance": performance,
            "environment": {"hardware": str(ruling.facts.get("hardware", "")), "libs": dict(ruling.facts.get("libs", {}))},
            "timestamp": str(ruling.facts.get("ended") or datetime.now(UTC).isoformat()),
        },
    }  # fmt: skip


def _status(ruling: Ruling) -> str:
    if ruling.status in ENDS:
        return ENDS[ruling.status]
    if ruling.status != "wrong":
        return "RUNTIME_ERROR" if seated(ruling) else "COMPILE_ERROR"
    check = ruling.verification
    if (check is None or check.status != "failed") and any(trick.voids for trick in ruling.tricks):
        return "REWARD_HACK"
    return INCORRECT.get(check.code if check else "", "INCORRECT_NUMERICAL")
