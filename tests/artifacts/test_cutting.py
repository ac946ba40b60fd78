"""Programs cut to smaller ones by their text: what is kept, what goes with it, and what cannot be cut."""

from __future__ import annotations

import pytest

from steelyard.artifacts.cutting import read_program, smaller, spread
from steelyard.errors import Unsupported

TEXT = """module @jit_f attributes {mhlo.num_partitions = 1 : i32} {
  func.func public @main(%arg0: tensor<8xf32> {jax.arg = "a, (b"}, %arg1: tensor<8x8xf32>) -> (tensor<8xf32> {jax.result_info = "r[0]"}, tensor<8xi1>) {
    %cst = stablehlo.constant dense<"0x00"> : tensor<f32> loc("x":1:2)
    %0 = stablehlo.dot_general %arg1, %arg0, contracting_dims = [1] x [0] : (tensor<8x8xf32>, tensor<8xf32>) -> tensor<8xf32>
    %1 = call @helper(%0) : (tensor<8xf32>) -> tensor<8xf32>
    %2 = "stablehlo.reduce"(%arg1, %cst) ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %9 = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %9 : tensor<f32>
    }) {dimensions = array<i64: 0>} : (tensor<8x8xf32>, tensor<f32>) -> tensor<8xf32>
    %3:2 = stablehlo.while(%iterArg = %1, %iterArg_0 = %2) : tensor<8xf32>, tensor<8xf32>
    cond {
      %9 = stablehlo.constant dense<true> : tensor<i1>
      stablehlo.return %9 : tensor<i1>
    } do {
      stablehlo.return %iterArg, %iterArg_0 : tensor<8xf32>, tensor<8xf32>
    }
    %4 = stablehlo.add %3#0, %2 : tensor<8xf32>
    %5 = stablehlo.compare NE, %4, %4, FLOAT : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xi1>
    return %4, %5 : tensor<8xf32>, tensor<8xi1> loc("y":3:4)
  }
  func.func private @helper(%arg0: tensor<8xf32>) -> tensor<8xf32> {
    %0 = stablehlo.tanh %arg0 : tensor<8xf32>
    return %0 : tensor<8xf32>
  }
  func.func private @unused(%arg0: tensor<8xf32>) -> tensor<8xf32> {
    return %arg0 : tensor<8xf32>
  }
}
"""  # noqa: E501


def test_a_program_is_its_statements_with_their_regions() -> None:
    found = read_program(TEXT)
    assert [statement.made for statement in found.statements] == ["%cst", "%0", "%1", "%2", "%3", "%4", "%5"]
    assert [statement.type for statement in found.statements] == [
        "tensor<f32>", "tensor<8xf32>", "tensor<8xf32>", "tensor<8xf32>", "", "tensor<8xf32>", "tensor<8xi1>",
    ]  # fmt: skip
    assert found.arguments == (("%arg0", "tensor<8xf32>"), ("%arg1", "tensor<8x8xf32>"))
    assert found.outputs == (("%4", "tensor<8xf32>"), ("%5", "tensor<8xi1>"))


def test_what_it_writes_can_be_read_again_and_holds_only_what_is_called() -> None:
    text = read_program(TEXT).text()
    assert "\n    %4 = " in text and "\n    return" in read_program(TEXT.replace("\n    ", "\n")).text()
    assert "@helper" in text and "@unused" not in text and text.count("{") == text.count("}")
    assert read_program(text).size == read_program(TEXT).size


def test_smaller_ones_have_only_what_their_outputs_need() -> None:
    program = read_program(TEXT)
    found = list(smaller(program))
    ends = {item.outputs[0][0]: item for item in found if len(item.outputs) == 1 and item.arguments == program.pruned().arguments[:2]}
    assert [statement.made for statement in ends["%1"].statements] == ["%0", "%1"]
    begun = next(item for item in found if ("%4", "tensor<8xf32>") in item.arguments and len(item.outputs) == 2)
    assert [statement.made for statement in begun.statements] == ["%5"] and begun.arguments == (("%4", "tensor<8xf32>"),)
    assert "@helper" not in begun.text()


@pytest.mark.parametrize("text", ["", "module {}", "func.func @main() {\n  return\n}", "HloModule x"])
def test_what_cannot_be_cut_is_said(text: str) -> None:
    with pytest.raises(Unsupported, match="cannot be cut"):
        read_program(text)


def test_places_are_tried_from_the_middle_and_none_twice() -> None:
    assert sorted(spread(10)) == list(range(10)) and spread(8)[0] == 4
    assert len(spread(10_000)) == 48 == len(set(spread(10_000))) and spread(0) == [] and spread(1) == [0]
