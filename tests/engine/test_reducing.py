"""Programs made smaller while what is wrong with them stays, by a judge that looks for one operation."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from steelyard.artifacts.cutting import CutProgram, read_program
from steelyard.cli.reduce import repeat_line
from steelyard.engine.reducing import CutQuestion, CutStep, Symptom, reduce_program
from steelyard.errors import NothingMeasured
from steelyard.model.case import Case
from steelyard.model.experiment import Settings
from tests.engine.drive import steelyard

BODY = "\n".join(f"    %{place + 1} = stablehlo.{name} %{place} : tensor<8xf32>" for place, name in enumerate(["abs", "tanh", "log"] * 5))
CHAIN = f"func.func @main(%0: tensor<8xf32>) -> tensor<8xf32> {{\n{BODY}\n    return %15 : tensor<8xf32>\n}}\n"
MARKED = CHAIN.replace("stablehlo.log %8", "stablehlo.sine %8")


def wrong_where(word: str) -> object:
    return lambda text: Symptom("wrong", f"off by {len(text)}") if word in text else None


def reduced(text: str, judge: object, until: float = math.inf) -> tuple[CutProgram, list[CutStep]]:
    steps: list[CutStep] = []
    return reduce_program(read_program(text), judge, until, steps.append), steps


def test_what_is_left_is_the_operation_that_shows_it() -> None:
    found, steps = reduced(MARKED, wrong_where("sine"))
    assert [statement.text.split()[2] for statement in found.statements] == ["stablehlo.sine"]
    assert found.arguments == (("%8", "tensor<8xf32>"),) and len(steps) < 40
    assert len({step.program.text() for step in steps}) == len(steps), "nothing is judged twice"


def test_a_program_that_can_only_begin_later_is_halved_at_once() -> None:
    """Its last operation shows it, so that no earlier end does."""
    body = "\n".join(f"    %{place + 1} = stablehlo.abs %{place} : tensor<8xf32>" for place in range(63))
    text = f"func.func @main(%0: tensor<8xf32>) -> tensor<8xf32> {{\n{body}\n    return %63 : tensor<8xf32>\n}}\n"
    found, steps = reduced(text, wrong_where("%63 ="))
    assert len(found.statements) == 1 and len(steps) < 20


def test_two_operations_that_are_needed_together_stay() -> None:
    found, _ = reduced(MARKED, lambda text: Symptom("wrong") if "sine" in text and "%12 =" in text else None)
    assert [statement.made for statement in found.statements] == ["%9", "%10", "%11", "%12"]


def test_time_that_is_up_leaves_what_was_found_so_far() -> None:
    found, steps = reduced(MARKED, wrong_where("sine"), until=0.0)
    assert found == read_program(MARKED) and not steps


def test_a_program_that_shows_nothing_is_not_cut() -> None:
    with pytest.raises(NothingMeasured, match="nothing to reduce"):
        reduced(CHAIN, wrong_where("sine"))


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (Symptom("wrong", "a"), Symptom("wrong", "b"), True),
        (
            Symptom("unsupported", "IREE cannot compile the program; %3 of 4x8"),
            Symptom("unsupported", "IREE cannot compile the program; %7 of 2x2"),
            True,
        ),
        (Symptom("failed", "cannot be read"), Symptom("failed", "out of registers"), False),
        (Symptom("wrong"), Symptom("crashed"), False),
        (Symptom("slower"), None, False),
    ],
)
def test_the_same_is_the_same_status_for_the_same_reason(one: Symptom, other: Symptom | None, same: bool) -> None:
    assert one.same(other) is same


def test_the_line_that_shows_it_names_both_backends_and_all_flags() -> None:
    case = Case("artifact", (("path", "x"),), "xla", flags=(("XLA_FLAGS", "--a --b"),))
    line = repeat_line(CutQuestion(case, "interpreter", Settings()), Path("bug/reduced.mlir"))
    assert line == "steelyard run artifact:bug/reduced.mlir -B interpreter,xla --flag 'XLA_FLAGS=--a --b'"
    slow = CutQuestion(case, "interpreter", Settings(vs="flags:--c"))
    assert repeat_line(slow, Path("p.mlir")).endswith("-B xla --flag 'XLA_FLAGS=--a --b' --vs flags:--c")


def test_what_is_no_program_is_refused_before_anything_runs(tmp_path: Path) -> None:
    done = steelyard("artifacts", "reduce", "op/softmax@numpy/eager:eval", "-o", "out", cwd=tmp_path, check=2)
    assert "is not an exported program" in done.stderr and not (tmp_path / "out").exists()
