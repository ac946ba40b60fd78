"""What is told of a program from its file alone: kind, signature, host calls, missing weights; and files that are damaged on purpose."""

from __future__ import annotations

import contextlib
import struct
from pathlib import Path

import pytest

from steelyard.artifacts import programs, tflite
from steelyard.artifacts.signature import TensorType, hlo_signature, signature_in
from steelyard.errors import SteelyardError, Unsupported, UsageError

MLIR = """module @jit_f attributes {mhlo.num_partitions = 1 : i32} {
  func.func public @main(%arg0: tensor<4x8xf32> {jax.name = "tensor<9xf64>"}, %arg1: tensor<?xi1>) -> (tensor<bf16> {jax.result_info = ""}, tensor<3xcomplex<f32>>) {
    %0 = stablehlo.constant dense<1.0> : tensor<bf16>
  }
  func.func private @other(%a: tensor<1xui8>) -> tensor<2xi64> {
  }
}
"""  # noqa: E501
HLO = "HloModule jit_f, entry_computation_layout={(f32[4,8]{1,0}, /*index=1*/s32[]{:T(128)})->(pred[2]{0}, bf16[])}\n\nENTRY main {\n}\n"
HOSTILE = """
 %1 = stablehlo.custom_call @xla_ffi_python_cpu_callback(%0) {api_version = 4 : i32} : (tensor<f32>) -> tensor<f32>
 %2 = stablehlo.custom_call @Sharding(%1)
 %3 = "stablehlo.custom_call"(%2) <{call_target_name = "rm -rf"}> : (tensor<f32>) -> tensor<f32>
 %4 = stablehlo.custom_call @lapack_sgeqrf_ffi(%3)
 %5:2 = "stablehlo.infeed"(%4)
 %6 = f32[2]{0} custom-call(%5), custom_call_target="evil"
 %7 = (f32[2]{0}, token[]) outfeed(%6, %t)
"""


def flatbuffer(operators: list[tuple[int, str]], tensors: list[tuple[int, list[int]]]) -> bytes:
    """A TFLite program of these operators (number, name), whose tensors (type, shape) are its inputs and its outputs."""
    out = bytearray(b"\0\0\0\0TFL3")

    def vector(items: list[int]) -> int:
        place = len(out)
        out.extend(struct.pack(f"<I{len(items)}i", len(items), *items))
        return place

    def offsets(count: int) -> int:
        place = len(out)
        out.extend(struct.pack("<I", count) + b"\0" * 4 * count)
        return place

    def point(at: int, to: int) -> None:
        struct.pack_into("<I", out, at, to - at)

    def table(fields: dict[int, bytes]) -> tuple[int, dict[int, int]]:
        size = 4 + 4 * len(fields)
        places, at = [0] * (max(fields) + 1), 4
        for number in fields:
            places[number], at = at, at + 4
        start = len(out)
        out.extend(struct.pack(f"<HH{len(places)}H", 4 + 2 * len(places), size, *places))
        out.extend(b"\0" * (-len(out) % 4))
        own = len(out)
        out.extend(struct.pack("<i", own - start))
        for value in fields.values():
            out.extend(value.ljust(4, b"\0"))
        return own, {number: own + places[number] for number in fields}

    model, held = table({1: b"", 2: b""})
    struct.pack_into("<I", out, 0, model)
    codes = offsets(len(operators))
    point(held[1], codes)
    for number, (code, name) in enumerate(operators):
        own, fields = table({0: struct.pack("<b", min(code, 127)), 1: b"", 3: struct.pack("<i", code)})
        point(codes + 4 + 4 * number, own)
        point(fields[1], len(out))
        out.extend(struct.pack("<I", len(name)) + name.encode() + b"\0\0\0\0")
        out.extend(b"\0" * (-len(out) % 4))
    graphs = offsets(1)
    point(held[2], graphs)
    graph, fields = table({0: b"", 1: b"", 2: b""})
    point(graphs + 4, graph)
    listed = offsets(len(tensors))
    point(fields[0], listed)
    for number, (kind, shape) in enumerate(tensors):
        own, parts = table({0: b"", 1: struct.pack("<b", kind)})
        point(listed + 4 + 4 * number, own)
        point(parts[0], vector(shape))
    for field in (1, 2):
        point(fields[field], vector(list(range(len(tensors)))))
    return bytes(out)


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("a.mlir", MLIR.encode(), ("stablehlo_mlir", "text")), ("a.txt", HLO.encode(), ("xla_hlo_dump", "text")),
        ("a.mlir", b"module {\n tosa.add\n}", ("tosa_mlir", "text")), ("a.mlir", b"module {\n linalg.matmul\n}", ("linalg_mlir", "text")),
        ("a.bc", b"ML\xefR\rStableHLO_v1\0builtin\0vhlo\0func_v1\0", ("stablehlo_mlir", "vhlo")),
        ("a.bc", b"ML\xefR\rMLIR\0builtin\0stablehlo\0", ("stablehlo_mlir", "bytecode")),
        ("a.bc", b"ML\xefR\rMLIR\0builtin\0func\0chlo\0", ("stablehlo_mlir", "bytecode")),
        ("a.tflite", flatbuffer([(0, "")], [(0, [2])]), ("tflite_fp32", "flatbuffer")), ("a.onnx", b"\x08\x08", ("onnx", "protobuf")),
        ("a.txt", b"just words\n", None), ("a.bin", b"\0\1\2", None), ("a.mlir", b"", None),
        ("a.bc", b"ML\xefR nothing known", ("stablehlo_mlir", "bytecode")), ("a.tflite", bytes(100), ("tflite_fp32", "flatbuffer")),
    ],
)  # fmt: skip
def test_the_kind_of_a_file_is_told_by_its_content(tmp_path: Path, name: str, content: bytes, kind: tuple[str, str] | None) -> None:
    (tmp_path / name).write_bytes(content)
    assert programs.kind_of(tmp_path / name) == kind


def test_signatures() -> None:
    assert str(signature_in(MLIR)) == "(fp32[4,8], bool[?]) -> (bf16[], complex64[3])"
    assert str(signature_in(MLIR, "other")) == "(uint8[1]) -> (int64[2])"
    assert signature_in(MLIR, "absent") is None
    assert str(hlo_signature(HLO)) == "(fp32[4,8], int32[]) -> (bool[2], bf16[])"
    declared = "sync func @main(%input0: tensor<2x?xf16>) -> (%output0: tensor<i8>)"
    assert str(signature_in(declared)) == "(fp16[2,?]) -> (int8[])"
    with pytest.raises(Unsupported, match="not fixed"):
        _ = TensorType("fp32", (2, None)).fixed


def test_a_format_that_is_not_known_is_named() -> None:
    with pytest.raises(Unsupported, match="'i4'"):
        signature_in("func.func @main(%a: tensor<2xi4>) -> tensor<2xi4> {")
    with pytest.raises(UsageError, match="never closed"):
        signature_in("func.func @main(%a: tensor<2xf32>")


def test_what_would_call_the_host_is_refused_by_name() -> None:
    found = programs.host_calls(HOSTILE)
    assert found == ["xla_ffi_python_cpu_callback", "rm -rf", "evil", "infeed", "outfeed"]
    with pytest.raises(Unsupported, match="--allow evil") as caught:
        programs.refuse(found, ["rm -rf"], "calls")
    assert "--allow rm" not in caught.value.do
    programs.refuse(found, found, "calls")
    assert programs.host_calls('"mhlo.send"(%0, %1) "vhlo.infeed_v1"(%2)') == ["send", "infeed"]


@pytest.mark.parametrize(
    "name", ["lapack_sgees_ffi", "cu_lu_pivots_to_permutation", "cusparse_gtsv2_ffi", "hipsolver_getrf_ffi", "LuDecomposition"]
)
def test_solvers_that_frameworks_call_are_known_to_compute(name: str) -> None:
    """By them `jax.numpy.linalg` runs on each device."""
    assert not programs.host_calls(f"%0 = stablehlo.custom_call @{name}(%arg0) : (tensor<4x4xf32>) -> tensor<4x4xf32>")


@pytest.mark.parametrize(
    ("shown", "found"),
    [
        ('%2 = "llvm.inline_asm"(%1) <{asm_string = "addss $1, $0"}> : (f32) -> f32', ["llvm"]),
        ('"stablehlo.add"(%0) {a = #hal.executable.object<{path = "x.o"}>} : () -> ()', ["hal"]),
        ('"builtin.module"() ({}) {a = [#hal<executable.object<{path = "x.o"}>>]} : () -> ()', ["hal"]),
        ('"func.return"(%0) : (!vm.ref<!hal.buffer>) -> ()', ["vm", "hal"]),
        ('"builtin.module"() ({}) {hal.device.targets = []} : () -> ()', ["hal"]),
        ('"nobody_knows.it"() : () -> ()', ["nobody_knows"]),
        ('"util.func"() <{sym_name = "host.run", sym_visibility = "private"}> ({\n}) : () -> ()', ["util"]),
        ('%1 = "flow.tensor.reshape"(%0) : (tensor<4xf32>) -> tensor<4xf32>', ["flow"]),
        ('"util.global"() <{initial_value = #flow.parameter.named<"a"::"b"> : tensor<4xf32>}> : () -> ()', ["util", "flow"]),
        ('"stream.file.read"(%0) : (!stream.file) -> ()', ["stream"]),
        ('"vm.import"() <{sym_name = "host.x"}> ({\n}) : () -> ()', ["vm"]),
        ('"memref.global"() <{sym_name = "g", type = memref<4xf32>}> : () -> ()', ["memref"]),
        ('"transform.named_sequence"() <{sym_name = "__transform_main"}> ({\n}) : () -> ()', ["transform"]),
        ('%0 = "tosa.custom"(%arg0) <{operator_name = "x"}> : (tensor<4xf32>) -> tensor<4xf32>', ["tosa.custom"]),
        ('"ml_program.global"() <{sym_name = "w", value = #ml_program.extern<tensor<4xf32>>}> : () -> ()', ["ml_program.extern"]),
        ('%0 = "arith.constant"() <{value = dense_resource<"/etc/passwd"> : tensor<2xf32>}> : () -> tensor<2xf32>', []),
        ('"ml_program.global"() <{sym_name = "hal.w", value = dense<1.0> : tensor<4xf32>}> : () -> ()', []),
        ('"func.call_indirect"(%0) : () -> ()', ["func.call_indirect"]),
        ('"builtin.unrealized_conversion_cast"(%0) : () -> ()', ["builtin.unrealized_conversion_cast"]),
        ('"func.func"() {iree.abi.model = "coarse-fences"} : () -> ()', ["iree"]),
        ('"func.func"() <{function_type = () -> (), sym_name = "host.run", sym_visibility = "private"}> ({\n  }) : () -> ()', ["host.run"]),
        ('"vhlo.func_v1"() <{sym_name = #vhlo.string_v1<"host.run">}> ({\n}) : () -> ()', ["host.run"]),
        ('"stablehlo.add"(%0, %1) {jax.a = "#hal.x, \\22vm.y(", mhlo.b = 1.5e+00 : f32} : (tensor<2xf32>) -> tensor<2xf32>', []),
        ('"func.func"() <{sym_name = "main"}> ({\n^bb0(%arg0: tensor<2x!quant.uniform<i8:f32, 1.0>>):\n}) : () -> ()', []),
        ('"builtin.module"() ({}) {tfl.description = "made", tfl.metadata = {a = "hal.x"}, tfl.schema_version = 3 : i32} : () -> ()', []),
        ('dense_resource<torch_64_torch.float32> : tensor<2xf32>\n{-#\n  torch_64_torch.float32: "0x0400",\n  "hal.x": "0x"\n#-}', []),
        ('values = dense_resource<a.b>, c = #hal.x<a.b: "">, hal.y = dense_resource<"vm.z">', ["hal", "a"]),
        ('%1 = "tfl.gather"(%0) : (tensor<2xf32>) -> tensor<2xf32>', ["tfl"]),
        ('"linalg.generic"(%0) <{indexing_maps = [affine_map<(d0) -> (d0)>]}> {iree.abi.output = 0 : index} : () -> ()', []),
    ],
)  # fmt: skip
def test_only_what_is_known_to_compute_passes(shown: str, found: list[str]) -> None:
    """Programs as MLIR prints them in its generic form: operations, types, attributes and their names, each by its dialect."""
    assert programs.strange_names(shown) == found


def _bytecode(*names: bytes, weights: bytes = b"") -> bytes:
    """A program with a section of weights and a table of strings, as MLIR writes them."""
    table = bytes([2 * len(names) + 1, *(2 * (len(name) + 1) + 1 for name in reversed(names))]) + b"".join(name + b"\0" for name in names)
    held = b"\x05" + (len(weights) << 3 | 4).to_bytes(3, "little") + weights
    return b"ML\xefR\rMLIR23\0" + held + bytes([0, 2 * len(table) + 1]) + table


def test_weights_are_not_taken_for_names(tmp_path: Path) -> None:
    harmless = _bytecode(b"builtin", b"stablehlo", b"add", weights=b"\0hal\0vm\0llvm\0tosa\0" * 20)
    (tmp_path / "a.bc").write_bytes(harmless)
    assert programs.kind_of(tmp_path / "a.bc") == ("stablehlo_mlir", "bytecode")
    (tmp_path / "cut.bc").write_bytes(harmless[:-1] + b"x")
    assert programs.kind_of(tmp_path / "cut.bc") == ("stablehlo_mlir", "bytecode")


def test_missing_weights_are_told() -> None:
    for text in ("%c = f32[8,8]{1,0} constant({...})", "dense_resource<__elided__> : tensor<8xf32>"):
        with pytest.raises(SteelyardError, match="weights are missing"):
            programs.refuse_elided(text)
    programs.refuse_elided("%c = f32[2]{0} constant({1, 2})")


def test_resources_are_put_where_they_are_used() -> None:
    text = (
        "module { %0 = stablehlo.constant dense_resource<w_1> : tensor<2xf32>\n"
        ' %1 = stablehlo.constant dense_resource<"b.2"> : tensor<1xf32> }\n'
        '{-#\n  dialect_resources: {\n builtin: {\n w_1: "0x040000000000803F00000040",\n "b.2": "0x0400000000004040"\n }\n }\n#-}\n'
    )
    made = programs.with_constants(text)
    assert 'dense<"0x0000803F00000040"> : tensor<2xf32>' in made
    assert 'dense<"0x00004040"> : tensor<1xf32>' in made
    assert "{-#" not in made and "dense_resource" not in made
    assert programs.with_constants(MLIR) == MLIR
    with pytest.raises(SteelyardError, match="w_1 is missing"):
        programs.with_constants(text.replace("w_1:", "w_2:"))


def test_operators_and_signature_of_tflite() -> None:
    made = flatbuffer([(0, ""), (32, "FlexReadFile"), (32, "TFLite_Detection_PostProcess"), (206, "")], [(0, [1, 8]), (9, [3])])
    assert tflite.custom_operators(made) == ["FlexReadFile"]
    assert str(tflite.signature(made)) == "(fp32[1,8], int8[3]) -> (fp32[1,8], int8[3])"
    with pytest.raises(UsageError, match="not a TFLite program"):
        tflite.custom_operators(b"\0" * 100)


def test_a_damaged_tflite_program_is_an_error_and_nothing_else() -> None:
    made = flatbuffer([(0, ""), (32, "x")], [(0, [1, 8])])
    for length in range(8, len(made), 3):
        for change in (made[:length], made[:length] + b"\xff\xff\xff\x7f" + made[length + 4 :]):
            for read in (tflite.custom_operators, tflite.signature):
                with contextlib.suppress(SteelyardError):
                    read(change)
