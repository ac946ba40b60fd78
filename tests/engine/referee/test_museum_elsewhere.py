"""The main cheats of the museum through `compare` and `run`: neither calls one of them faster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import steelyard
from tests.engine.drive import run_json
from tests.engine.referee.exhibits import Exhibit, exhibits

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

FALSE = ("stale_half_rows", "replay_by_pointer", "lazy_subclass")
ALSO = ("replay_by_id", "replay_by_few_values", "later_thread", "lazy_array", "coarse_bf16", "not_a_number", "zeros_below_tolerance")
"""Further ones that `compare` fails; through `run` they take seconds each, which is for the deep tests."""
KNOWN = {each.name: each for each in exhibits("cheats")}

OWN = """
from dataclasses import replace

from steelyard import Task, workload
from steelyard.registry import load_file

PROBLEM, CANDIDATE = load_file({problem!r}), load_file({candidate!r})


@workload("museum/problem", axes={{"seed": [1]}})
def problem(seed, be):
    return Task(PROBLEM.reference, tuple(PROBLEM.inputs(seed)))


@problem.variant("candidate")
def candidate(task):
    return replace(task, fn=CANDIDATE.candidate)
"""


def loaded(file: Path) -> dict[str, Any]:
    """What a file defines; these ones change nothing in the process that loads them."""
    space: dict[str, Any] = {"__name__": file.stem, "__file__": str(file)}
    exec(compile(file.read_text(encoding="utf-8"), str(file), "exec"), space)
    return space


def run_both(exhibit: Exhibit, folder: Path, check: int | None) -> dict[str, Any]:
    """Reference and candidate as a user would run them, with what the run says."""
    own = folder / "own.py"
    own.write_text(OWN.format(problem=str(exhibit.problem), candidate=str(exhibit.file)), encoding="utf-8")
    return run_json(str(own), "-V", "eager,candidate", "--vs", "eager", "--budget", "50ms", cwd=folder, check=check)


@pytest.mark.parametrize("name", (*FALSE, *ALSO))
def test_compare_fails_what_is_no_answer(name: str) -> None:
    exhibit = KNOWN[name]
    problem, candidate = loaded(exhibit.problem), loaded(exhibit.file)["candidate"]
    found = steelyard.compare(problem["reference"], candidate, *problem["inputs"](1), budget=0.05)
    assert found.verdict == "failed", found
    assert found.reason


@pytest.mark.parametrize("name", [*FALSE, *(pytest.param(name, marks=pytest.mark.deep) for name in ALSO)])
def test_a_run_calls_it_wrong(name: str, tmp_path: Path) -> None:
    found = run_both(KNOWN[name], tmp_path, check=3)
    status = {record["case"]["variant"]: record["status"] for record in found["records"]}
    assert status == {"eager": "ok", "candidate": "wrong"}, [record["reason"] for record in found["records"]]


def test_a_run_says_that_an_answer_lies_in_the_same_memory_each_time(tmp_path: Path) -> None:
    found = run_both(KNOWN["static_buffer"], tmp_path, check=0)
    record = next(record for record in found["records"] if record["case"]["variant"] == "candidate")
    assert record["status"] == "ok" and record["effective"]["output_memory"], record["effective"]
