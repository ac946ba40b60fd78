"""`make-artifacts` takes the original's flags and makes its folders; names are fitted whole, and what was meant wrong is said."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from steelyard.artifacts import manifest
from steelyard.cli.main import main
from steelyard.dialects.openxla import catalogue, exported
from steelyard.dialects.openxla.exported import ModelExport
from steelyard.errors import PASS, USAGE, UsageError
from steelyard.model.case import Case


def chosen(asked: ModelExport) -> dict[str, tuple[Case, tuple[str, ...]]]:
    return exported._chosen(asked, catalogue.gathered((), asked.preset))


@pytest.mark.parametrize(("framework", "count"), [("jax", 106), ("pytorch", 33), ("tensorflow", 26), ("tflite", 28)])
def test_every_model_of_the_suite_can_be_named(framework: str, count: int) -> None:
    assert len(chosen(ModelExport(framework, preset="tiny"))) == count


def test_a_filter_fits_whole_names_and_several_add_up() -> None:
    found = chosen(ModelExport("jax", ("BERT_LARGE_FP32_JAX_384XI32_BATCH(1|16)", "T5_SMALL_.+")))
    assert [*found] == ["T5_SMALL_FP32_JAX_1X128XI32", "BERT_LARGE_FP32_JAX_384XI32_BATCH1", "BERT_LARGE_FP32_JAX_384XI32_BATCH16"]


def test_a_filter_that_fits_nothing_names_all_there_are() -> None:
    with pytest.raises(UsageError, match=r"no model of pytorch is named 'BERT'[\s\S]*EXAMPLE_FP32_PT_BATCH1\n[\s\S]*RESNET50_FP16_PT"):
        chosen(ModelExport("pytorch", ("BERT",)))


def test_a_model_of_tflite_is_a_program_of_the_model_it_names() -> None:
    name = "BERT_BASE_INT8_TFLITE_I32_SEQLEN8"
    case, only = chosen(ModelExport("tflite", (name,)))[name]
    assert case.workload == "openxla/BERT_BASE_FP32_JAX_I32_SEQLEN8" and case.backend == "jax"
    assert dict(case.params)["atol"] == 2.0 and only == ("tflite_int8:flatbuffer", "tosa_mlir:bytecode<tflite_int8:flatbuffer")


def test_with_the_original_s_converter_named_there_is_bytecode_and_no_text() -> None:
    name = "RESNET50_FP32_JAX_3X224X224XF32_BATCH1"
    plain = chosen(ModelExport("jax", (name,)))[name][1]
    asked = chosen(ModelExport("jax", (name,), bytecode=True))[name][1]
    assert set(plain) - set(asked) == {"stablehlo_mlir:text"} and "stablehlo_mlir:bytecode" in asked


def test_a_folder_that_nobody_named_says_what_and_when(tmp_path: Path) -> None:
    assert exported.folder_of(ModelExport("jax", output=tmp_path)) == tmp_path
    assert re.fullmatch(r"tflite_models_\d{10}", exported.folder_of(ModelExport("tflite")).name)
    assert re.fullmatch(r"pt_models_([\w.+]+_)?\d{10}", exported.folder_of(ModelExport("pytorch")).name)


def test_uploading_needs_a_place(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("GCS_UPLOAD_DIR", raising=False)
    assert main(["as", "openxla", "make-artifacts", "jax", "--auto-upload"]) == USAGE
    assert "--auto-upload needs GCS_UPLOAD_DIR" in capsys.readouterr().err


def test_filters_may_follow_one_flag_or_none(capsys: pytest.CaptureFixture[str]) -> None:
    """As the original's Python tool and its shell script have them."""
    for words in (["-f", "EXAMPLE.+", "BERT", "--preset", "tiny"], ["EXAMPLE.+", "BERT"], ["-f", "EXAMPLE.+", "-f", "BERT"]):
        assert main(["as", "openxla", "make-artifacts", "pytorch", *words]) == USAGE
        assert "no model of pytorch is named 'BERT'" in capsys.readouterr().err


@pytest.mark.deep
@pytest.mark.torch
def test_the_seed_s_example_is_exported_and_uploaded(apart: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GCS_UPLOAD_DIR", str(tmp_path / "bucket"))
    words = ["EXAMPLE_FP32_PT_BATCH1", "--output_dir", str(tmp_path / "out"), "--preset", "tiny", "--only", "torch_export"]
    assert main(["as", "openxla", "make-artifacts", "pytorch", *words, "--strict-exit"]) == PASS
    held = manifest.read(tmp_path / "out" / "EXAMPLE_FP32_PT_BATCH1")
    assert (held.name, held.tolerance.atol) == ("EXAMPLE_FP32_PT_BATCH1", 0.1)
    assert (tmp_path / "out" / "models_version_info.txt").read_text().startswith("Package")
    assert main(["as", "openxla", "make-artifacts", "pytorch", *words, "--auto-upload", "--strict-exit"]) == PASS
    assert not (tmp_path / "out" / "EXAMPLE_FP32_PT_BATCH1").exists()
    sent = tmp_path / "bucket" / "out" / "EXAMPLE_FP32_PT_BATCH1"
    assert manifest.check(sent, manifest.read(sent)) == []
