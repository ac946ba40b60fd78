"""What programs are made of, by their text, and how two of them differ."""

from __future__ import annotations

from typing import Any

import pytest

from steelyard.analyze.programs import (
    ProgramChange,
    ProgramCounts,
    count_program,
    differences,
    opcode_of,
    program_changes,
    summary_words,
)

HLO = """HloModule jit_f, is_scheduled=true, entry_computation_layout={(f32[8]{0})->f32[8]{0}}

FileNames
1 "/somewhere = fusion(x)"

%region_0.1 (a.3: f32[], b.4: f32[]) -> f32[] {
  %a.3 = f32[] parameter(0), metadata={op_name="reduce_max"}
  ROOT %reduce_max.5 = f32[] maximum(%a.3, %b.4)
}

%fused_computation (param_0: f32[8]) -> f32[8] {
  %param_0 = f32[8]{0} parameter(0)
  ROOT %tanh.1 = f32[8]{0:T(256)} tanh(%param_0)
}

ENTRY %main.9 (p: f32[8]) -> (f32[8], s32[8]) {
  %p = f32[8]{0} parameter(0)
  %f.1 = f32[8]{0} fusion(%p), kind=kLoop, calls=%fused_computation
  %c.2 = (f32[8]{0}, (s32[8]{0}, u8[4]{0})) custom-call(%f.1), custom_call_target="TopK"
  %g = f32[8]{0} get-tuple-element(%c.2), index=0
  ROOT %t = (f32[8]{0}, f32[8]{0}) tuple(%f.1, %g)
}
"""
MLIR = """module @jit_f {
  util.func public @main(%arg0: tensor<8xf32>) -> tensor<8xf32> {
    %0:2 = stablehlo.reduce(%arg0 init: %c) applies stablehlo.maximum across dimensions = [0]
    %1 = flow.dispatch @main_dispatch_0::@main_dispatch_0(%arg0) : (tensor<8xf32>) -> tensor<8xf32>
    %2 = flow.dispatch @main_dispatch_0::@main_dispatch_0(%1) : (tensor<8xf32>) -> tensor<8xf32>
    %3 = "stablehlo.custom_call"(%2) {call_target_name = "x"} : (tensor<8xf32>) -> tensor<8xf32>
    util.return %3 : tensor<8xf32>
  }
}
"""


def test_hlo_is_counted_by_opcode_fusion_and_call() -> None:
    found = count_program(HLO)
    assert found.form == "hlo" and found.operations == 9 and found.launched == 2
    assert found.names == {"parameter": 3, "maximum": 1, "tanh": 1, "fusion": 1, "custom-call": 1, "get-tuple-element": 1, "tuple": 1}
    assert found.fusions == {"loop": 1} and found.calls == {"TopK": 1} and found.characters == len(HLO)


def test_mlir_is_counted_by_operation_and_what_it_dispatches() -> None:
    found = count_program(MLIR)
    assert found.form == "mlir" and found.names["flow.dispatch"] == 2 and found.names["stablehlo.custom_call"] == 1
    assert found.names["stablehlo.reduce"] == 1 and "stablehlo.maximum" not in found.names
    assert found.fusions == {"flow.dispatch": 2} and found.calls["main_dispatch_0"] == 2 and found.launched == 3


@pytest.mark.parametrize("text", ["", "hello", "\x00\xff = (((", "HloModule", "HloModule x\n  %a = (((\n  %b = \n", "%x = %y"])
def test_what_is_no_program_has_no_operations(text: str) -> None:
    assert count_program(text).operations == 0


@pytest.mark.parametrize(
    ("line", "opcode"),
    [
        ("  %a.1 = f32[8]{0} add(%x, %y)", "add"),
        ("  ROOT a = (f32[2]{0:T(8,128)}, (s32[])) while(%t), condition=%c", "while"),
        ("  a = f32[]", ""),
        ("ENTRY %main (p: f32[]) -> f32[] {", ""),
        ("  %a = (f32[", ""),
    ],
)
def test_the_opcode_stands_behind_the_shape(line: str, opcode: str) -> None:
    assert opcode_of(line) == opcode


def test_a_difference_has_the_sums_first_and_then_what_differs_most() -> None:
    base, head = count_program(HLO), count_program(HLO.replace("tanh(%param_0)", "exp(%param_0)").replace("kLoop", "kInput"))
    rows = differences(base, head)
    assert [(row.group, row.name, row.base, row.head) for row in rows] == [
        ("all", "operations", 9, 9), ("all", "launched", 2, 2), ("fusion", "input", 0, 1), ("fusion", "loop", 1, 0),
        ("operation", "exp", 0, 1), ("operation", "tanh", 1, 0),
    ]  # fmt: skip
    assert summary_words(rows) == "as many operations, but of other kinds"
    assert summary_words(differences(base, base)) == "the same operations"
    fewer = [ProgramChange("all", "operations", 9, 5), ProgramChange("fusion", "loop", 3, 1)]
    assert summary_words(fewer) == "5 operations instead of 9, 2 fusions fewer"


def test_counts_go_through_a_record_and_back_whatever_a_file_holds() -> None:
    found = count_program(HLO)
    assert ProgramCounts.from_plain(found.plain()) == found
    for bad in (None, [], "x", {"names": [1], "operations": "many", "fusions": {"a": "b", "c": 2}}):
        assert ProgramCounts.from_plain(bad).operations == 0
    many: dict[str, Any] = {f"op{number}": 1 for number in range(1000)}
    assert len(ProgramCounts(names=many).plain()["names"]) == 500


def test_programs_of_a_record_and_its_base_are_held_against_each_other_by_name() -> None:
    plain = count_program(HLO).plain()
    told = program_changes({"program_counts": {"a": plain, "b": plain}, "base_program_counts": {"a": plain}})
    assert list(told) == ["a"] and not any(row.change for row in told["a"])
    assert program_changes({"program_counts": {"a": plain}}) == {} == program_changes({"program_counts": 3, "base_program_counts": "x"})
