"""Exported programs as workloads, as far as no runtime is needed: what a folder holds, identity, drawn inputs, causes of wrong answers."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from steelyard.artifacts import manifest
from steelyard.artifacts.signature import ProgramSignature, TensorType
from steelyard.backends._programs import LoadedProgram, ProgramBackend, ProgramFile, first_error, is_cut
from steelyard.cli.main import main
from steelyard.errors import Unsupported, UsageError, WrongAnswer
from steelyard.measuring import verify
from steelyard.model.case import Case
from steelyard.model.experiment import Settings
from steelyard.workloads.artifacts import _answers, _explain
from steelyard.workloads.artifacts._files import contents, described, identify, suits
from steelyard.workloads.artifacts.artifact import artifact, drawn
from tests.artifacts.made import small
from tests.artifacts.test_programs import flatbuffer

ONE, TWO = TensorType("fp32", (4,)), TensorType("int32", ())


class Plain(ProgramBackend):
    """A runtime that is a Python function: what the recorded answers of `small` were made by, unless `answer` says otherwise."""

    name = "xla"
    kinds = ("stablehlo_mlir",)
    answer: Any = staticmethod(lambda x: (np.int32(7).reshape(()), x))
    inputs: tuple[TensorType, ...] = (TensorType("fp32", (2,)),)

    def loaded(self, file: ProgramFile) -> LoadedProgram:
        return LoadedProgram(ProgramSignature(self.inputs, (TWO, TensorType("fp32", (2,)))), self.answer)

    def versions(self) -> dict[str, str]:
        return {}


@pytest.fixture
def made(tmp_path: Path) -> Path:
    small(tmp_path / "small")
    return tmp_path / "small"


def build(folder: Path, be: ProgramBackend | None = None, **settings: Any) -> Any:
    body = artifact.bodies["xla"]
    return body(path=str(folder / "stablehlo.mlir"), be=be or Plain(), settings=Settings(**settings))


def test_a_folder_holds_its_programs(made: Path, tmp_path: Path) -> None:
    (tmp_path / "loose").mkdir()
    (tmp_path / "loose" / "x.tflite").write_bytes(flatbuffer([(0, "")], [(0, [2])]))
    (tmp_path / "notes.txt").write_text("no program")
    found = contents(tmp_path)
    assert [(item.name, item.backend) for item in found] == [("loose/x.tflite", "litert"), ("small/stablehlo.mlir", "xla")]
    assert "(fp32[2]) -> (int32[], fp32[2]), recorded" in found[1].doc
    assert suits({"path": {"file": str(made / "stablehlo.mlir")}}) == ("xla", "iree", "interpreter")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="holds no programs"):
        contents(tmp_path / "empty")
    with pytest.raises(UsageError, match="not an exported program"):
        contents(tmp_path / "notes.txt")


def test_identity_is_that_of_program_and_recorded_values(made: Path, tmp_path: Path) -> None:
    before = identify(made / "stablehlo.mlir")
    shutil.copytree(made, tmp_path / "moved")
    assert identify(tmp_path / "moved" / "stablehlo.mlir") == before
    held = manifest.read(made)
    manifest.write(made, replace(held, missing=()))
    assert identify(made / "stablehlo.mlir") == before
    manifest.write(made, replace(held, programs=(replace(held.programs[0], results=("output_0", "output_1")),)))
    assert identify(made / "stablehlo.mlir") != before
    with (made / "stablehlo.mlir").open("a") as file:
        file.write(" ")
    with pytest.raises(UsageError, match="not the file that the manifest describes"):
        identify(made / "stablehlo.mlir")


def test_a_program_that_is_a_link_out_of_its_folder_is_refused(made: Path, tmp_path: Path) -> None:
    (made / "stablehlo.mlir").rename(tmp_path / "elsewhere.mlir")
    (made / "stablehlo.mlir").symlink_to(tmp_path / "elsewhere.mlir")
    with pytest.raises(UsageError, match="leads out of the folder"):
        identify(made / "stablehlo.mlir")


def test_inputs_are_drawn_from_the_signature_and_the_seed() -> None:
    kinds = [TensorType(name, (64,)) for name in ("fp32", "fp16", "complex64", "int64", "int8", "uint8", "bool")]
    first, again, other = (drawn(ProgramSignature(tuple(kinds), ()), seed) for seed in (1, 1, 2))
    assert [str(value.dtype) for value in first] == ["float32", "float16", "complex64", "int64", "int8", "uint8", "bool"]
    assert all(np.array_equal(one, two) for one, two in zip(first, again, strict=True))
    assert not np.array_equal(first[0], other[0])
    assert set(first[3]) == {0, 1} and first[4].min() < 0
    with pytest.raises(Unsupported, match="not fixed"):
        drawn(ProgramSignature((TensorType("fp32", (None,)),), ()), 0)


def test_a_task_has_the_recorded_inputs_answers_and_tolerance(made: Path) -> None:
    task = build(made)
    assert (task.tolerance, task.against, task.same_dtype) == ((0.0, pytest.approx(0.5 * 2**0.5)), "the recorded answers", True)
    assert [value.tolist() for value in task.reference()] == [7, [0.0, 1.0]]
    assert [value.tolist() for value in task()] == [7, [0.0, 1.0]]


@pytest.mark.parametrize("times", [1e-4, 1.0, 1e4])
def test_the_recorded_absolute_tolerance_means_the_same_whatever_the_answers_size(tmp_path: Path, times: float) -> None:
    """0.5 for answers of 0 and 1, and so many times as much for answers that are so many times as large."""
    small(tmp_path / "small", times=times)
    be = Plain()
    task = build(tmp_path / "small", be)
    want = task.reference()
    for off, status in ((0.4, "passed"), (0.6, "failed")):
        got = [want[0], want[1] + np.float32(off * times)]
        assert verify.compare(be.outputs(got), be.outputs(want), "x", own=task.tolerance, same_dtype=True).status == status


def test_recorded_values_that_do_not_fit_the_program_are_wrong(made: Path) -> None:
    class Wider(Plain):
        inputs = (TensorType("fp32", (3,)),)

    with pytest.raises(WrongAnswer, match="input 0 of the program is fp32\\[3\\], and fp32\\[2\\] is recorded"):
        build(made, Wider())
    held = manifest.read(made)
    manifest.write(made, replace(held, programs=(replace(held.programs[0], results=("output_0", "output_1")),)))
    with pytest.raises(WrongAnswer, match="the outputs are recorded in another order"):
        build(made)


def test_a_kind_that_a_backend_does_not_take_is_unsupported(made: Path) -> None:
    with pytest.raises(Unsupported, match="backend xla runs StableHLO, and this is TFLite"):
        Plain().load(ProgramFile(made, "tflite_fp32", "flatbuffer"))


def test_causes_of_a_wrong_answer_are_named() -> None:
    be, x, y = Plain(), np.arange(4, dtype=np.float32), np.ones(4, np.float32)

    def call(a: Any, b: Any) -> list[Any]:
        return [a - 2 * b, np.asarray([a.sum() > 0]), a * 3]

    def why(got: list[Any], inputs: list[Any] | None = None) -> str:
        return _explain.reason(call, be, inputs or [x, y], be.outputs(got), be.outputs(call(x, y)))

    right = call(x, y)
    assert why([right[2], right[1], right[0]]) == (
        "the outputs are in another order: output 0 is the recorded output 2, output 2 is the recorded output 0"
    )
    assert "inputs 0 and 1 swapped" in why(call(y, x), [y, x])
    assert "a weight or the program itself" in why([right[0] + 1, right[1], right[2]])


def test_what_differs_from_a_signature_is_named() -> None:
    assert _explain.mismatch("input", [ONE, TWO], [ONE, TWO]) == ""
    assert _explain.mismatch("output", [ONE], [ONE, TWO]) == "the program has 2 outputs, and 1 are recorded"
    assert _explain.mismatch("input", [TWO, ONE], [ONE, TWO]).endswith("recorded in another order")
    assert "int32[] is recorded" in _explain.mismatch("input", [TWO, TWO], [ONE, TWO])
    assert _explain.mismatch("input", [ONE], [TensorType("fp32", (None,))]) == ""
    assert _explain.mismatch("input", [TensorType("fp16", (4,))], [ONE])


def test_backends_are_held_against_each_other_where_nothing_is_recorded(made: Path) -> None:
    (made / manifest.NAME).unlink()
    first = build(made)
    assert "no other backend has run it" in first.unverified and first.reference is None
    first.observe()

    class Other(Plain):
        name = "iree"

    second = build(made, Other())
    assert second.against == "backend xla"
    assert [value.tolist() for value in second.reference()] == [value.tolist() for value in first()]
    with pytest.raises(Unsupported, match="the reference interpreter's answer is missing"):
        build(made, Other(), reference="interpreter")
    [kept] = _answers.folder().rglob("xla.npz")
    kept.write_bytes(b"damaged")
    assert build(made, Other()).reference is None


def test_inputs_that_a_call_takes_away_are_given_anew(made: Path) -> None:
    class Taking(Plain):
        def loaded(self, file: ProgramFile) -> LoadedProgram:
            def call(x: Any) -> Any:
                answer = (np.int32(7).reshape(()), x.copy())
                x[...] = np.nan
                return answer

            return replace(super().loaded(file), call=call, consumes=True)

    task = build(made, Taking())
    assert [value.tolist() for value in (task(), task())[1]] == [7, [0.0, 1.0]]


def test_list_and_check_read_a_program_without_a_framework(made: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["list", f"artifact:{made}", "--json"]) == 0
    [item] = json.loads(capsys.readouterr().out)
    assert item["sha256"] == identify(made / "stablehlo.mlir")
    assert main(["check", f"artifact:{made}"]) == 2
    assert "the program has 1 outputs, and 2 are recorded" in " ".join(capsys.readouterr().out.split())
    (tmp_path / "e.mlir").write_text("module {\n stablehlo.constant dense_resource<__elided__>\n}")
    assert main(["check", f"artifact:{tmp_path / 'e.mlir'}"]) == 2
    assert "weights are missing" in capsys.readouterr().out


def test_described_without_a_manifest(tmp_path: Path) -> None:
    (tmp_path / "a.mlir").write_text("module {\n stablehlo.add\n}")
    assert described(tmp_path / "a.mlir").held is None


def test_among_several_backends_a_program_goes_to_those_that_run_it(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (made / manifest.NAME).unlink()
    assert main(["run", f"artifact:{made}", "-B", "xla,litert", "--dry-run", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [case.split("@")[1] for case in told["cases"]] == ["xla/eager:eval"]
    assert main(["run", f"artifact:{made}", "-B", "litert", "--dry-run", "--json"]) == 0
    assert [case.split("@")[1] for case in json.loads(capsys.readouterr().out)["cases"]] == ["litert/eager:eval"]


def test_what_is_allowed_reaches_the_worker_and_stands_in_no_file(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = Settings(allow=("a", "b"))
    assert Settings.from_plain(json.loads(json.dumps(settings.plain()))) == settings
    assert "allow" not in Settings().plain()
    (made / "x.toml").write_text('[settings]\nallow = ["a"]\n[[matrix]]\nworkload = "op/softmax"\n')
    assert main(["check", str(made / "x.toml")]) == 2
    assert "settings.allow: unknown key" in capsys.readouterr().out


def test_the_interpreter_answers_first_unless_it_has(made: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("STEELYARD_CACHE", str(tmp_path / "cache"))
    case = Case("artifact", (("path", {"file": str(made / "stablehlo.mlir")}),), "xla", threads=2, flags=(("XLA_FLAGS", "-x"),))
    asked = Settings(reference="interpreter")
    assert artifact.witness is not None
    assert artifact.witness(case, asked) == Case("artifact", case.params, "interpreter")
    assert artifact.witness(case, Settings()) is None and artifact.witness(case, Settings(reference="interpreter", verify=False)) is None
    assert artifact.witness(replace(case, backend="interpreter"), asked) is None

    class Interpreter(Plain):
        name = "interpreter"

    task = build(made, Interpreter(), reference="interpreter")
    assert task.unverified == "it is the reference itself"
    task.observe()
    assert artifact.witness(case, asked) is None
    assert build(made, reference="interpreter").against == "backend interpreter"
    (kept,) = (tmp_path / "cache").rglob("interpreter.npz")
    kept.write_bytes(kept.read_bytes()[:-30])
    assert artifact.witness(case, asked) is not None


def test_a_program_that_the_interpreter_does_not_run_is_told_before_it_is_measured(tmp_path: Path) -> None:
    (tmp_path / "x.tflite").write_bytes(flatbuffer([(0, "")], [(0, [2])]))
    case = Case("artifact", (("path", {"file": str(tmp_path / "x.tflite")}),), "litert")
    assert artifact.witness is not None
    with pytest.raises(Unsupported, match="does not run TFLite"):
        artifact.witness(case, Settings(reference="interpreter"))


def test_only_exported_programs_have_a_reference_interpreter(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "op/softmax", "--reference", "interpreter", "--dry-run"]) == 2
    assert "op/softmax has no reference interpreter" in capsys.readouterr().err


def test_a_damaged_program_is_told_with_its_file_and_costs_its_own_case_in_a_folder(tmp_path: Path) -> None:
    (tmp_path / "zeros.tflite").write_bytes(bytes(1000))
    (tmp_path / "own.mlir").write_text(
        "module @m { func.func public @main(%a: tensor<2xf32>) -> tensor<2xf32> { return %a : tensor<2xf32> } }"
    )
    with pytest.raises(UsageError, match="not a TFLite program") as caught:
        contents(tmp_path / "zeros.tflite")
    assert caught.value.where == str(tmp_path / "zeros.tflite")
    assert {item.name: item.doc.rpartition(" · ")[2] for item in contents(tmp_path)} == {
        "own.mlir": "(fp32[2]) -> (fp32[2])", "zeros.tflite": "not a TFLite program",
    }  # fmt: skip


def test_what_a_compiler_says_begins_with_what_is_wrong() -> None:
    words = "\n/opt/model.py:48:0: error: 'tosa.cast' op is not legal\nnote: called from\n"
    assert first_error(words) == "error: 'tosa.cast' op is not legal"
    assert first_error('error: "-":1:39: expected') == 'error: "-":1:39: expected'
    assert is_cut('error: "-":0:0: attempting to parse 57672 bytes when only 2863 remain') and not is_cut(words)
