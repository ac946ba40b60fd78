"""An encoder, a ResNet and a perceptron of JAX, PyTorch and TensorFlow as every kind of program that there is a way to."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from steelyard.artifacts import manifest
from steelyard.cli.main import main
from steelyard.errors import FAILED, PASS
from steelyard.exporters.ways import WAYS

pytestmark = [pytest.mark.stacks, pytest.mark.timeout(3600)]

MODELS = ("model/mlp", "model/bert", "model/resnet50")
STACKS = ("jax", "tensorflow", "tflite", "torch-mlir", "iree", "litert")


@pytest.fixture(autouse=True)
def with_exporters(apart: Path, tmp_path: Path, built: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> None:
    """All environments in one folder, wherever each of them was built."""
    (tmp_path / "envs").mkdir()
    for stack in STACKS:
        (tmp_path / "envs" / stack).symlink_to(Path(built(stack)) / stack)
    monkeypatch.setenv("STEELYARD_ENVS", str(tmp_path / "envs"))


def test_every_way_makes_its_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["artifacts", "make", *MODELS, "-a", "size=small", "-B", "jax,torch,tensorflow", "-o", str(tmp_path / "out"), "--json"]
    assert main(words) == PASS
    found = json.loads(capsys.readouterr().out)
    assert len(found) == len(MODELS) * 3 and all(item["status"] == "made" for item in found)
    for item in found:
        held = manifest.read(Path(item["folder"]))
        assert manifest.check(Path(item["folder"]), held) == []
        ways = {way.key for way in WAYS if way.framework == held.producer.framework}
        assert {f"{program.kind}:{program.form}" for program in held.programs} == ways, item["name"]
        assert {lacking.kind for lacking in held.missing} == set(manifest.KINDS) - {way.partition(":")[0] for way in ways}
        assert all(lacking.status == "unsupported" and lacking.reason for lacking in held.missing)
    for kind in ("stablehlo.mlir", "xla_hlo_before_optimizations.txt"):
        for path in (tmp_path / "out").glob(f"*/{kind}"):
            assert "{...}" not in path.read_text() and "__elided__" not in path.read_text()
    assert main(words) == PASS
    assert {item["status"] for item in json.loads(capsys.readouterr().out)} == {"kept"}


def test_programs_are_added_to_a_folder_with_what_is_there_kept(tmp_path: Path) -> None:
    words = ["artifacts", "make", "model/mlp", "-a", "size=small", "-B", "jax", "-o", str(tmp_path / "out"), "--only"]
    assert main([*words, "stablehlo_mlir:text"]) == PASS
    (folder,) = (tmp_path / "out").iterdir()
    first = manifest.read(folder)
    assert main([*words, "tflite_int8"]) == PASS
    held = manifest.read(folder)
    assert [item.kind for item in held.programs] == ["stablehlo_mlir", "tflite_int8"] and manifest.check(folder, held) == []
    assert held.programs[0] == first.programs[0] and held.inputs == first.inputs and held.outputs == first.outputs
    assert held.tolerance_of(held.programs[1]).atol > 100 * held.tolerance.atol


@pytest.mark.parametrize("framework", ["jax", "torch", "tensorflow"])
def test_what_every_framework_exports_is_right_under_iree(framework: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What exporters write beside operations, such as attributes of TFLite's, is no reason to refuse a program."""
    words = ["model/mlp", "-a", "size=small", "-B", framework, "-o", str(tmp_path / "out"), "--only", "stablehlo_mlir,tosa_mlir"]
    assert main(["artifacts", "make", *words]) == PASS
    capsys.readouterr()
    assert main(["run", f"artifact:{tmp_path / 'out'}", "-B", "iree", "--budget", "20ms", "--settle", "0", "--json"]) == PASS
    records = json.loads(capsys.readouterr().out)["records"]
    assert len(records) == 4 and {item["status"] for item in records} == {"ok"}
    assert {item["verification"]["against"] for item in records} == {"the recorded answers"}


def test_models_of_the_suite_are_exported_by_the_original_s_command(tmp_path: Path) -> None:
    words = ["as", "openxla", "make-artifacts", "jax", "-f", "GPT2LMHEAD_FP32_JAX_512XI32_BATCH1", "-f", "BERT_BASE_BF16_JAX_I32_SEQLEN8"]
    words += ["-o", str(tmp_path / "out"), "--preset", "tiny", "--only", "stablehlo_mlir", "--only", "xla_hlo_dump", "--strict-exit"]
    assert main(words) == PASS
    held = manifest.read(tmp_path / "out" / "BERT_BASE_BF16_JAX_I32_SEQLEN8")
    assert [item.file for item in held.programs] == [
        "stablehlo.mlir", "stablehlo.mlirbc", "stablehlo_vhlo.mlirbc", "xla_hlo_before_optimizations.txt",
    ]  # fmt: skip
    assert "bf16" in {item.dtype for item in held.outputs} and held.tolerance.atol == 0.5
    assert (tmp_path / "out" / "models_version_info.txt").read_text().count("jax") >= 1


def test_tosa_of_a_quantised_model_is_made_of_its_own_file(tmp_path: Path) -> None:
    """The converter has no form for int8 throughout; that program fails with its words, and the others are made."""
    names = {kind: f"BERT_BASE_{kind}_TFLITE_I32_SEQLEN8" for kind in ("DYN_QUANT", "INT8")}
    words = ["-f", names["DYN_QUANT"], "-f", names["INT8"], "-o", str(tmp_path / "out"), "--preset", "tiny", "--strict-exit"]
    assert main(["as", "openxla", "make-artifacts", "tflite", *words]) == FAILED
    held = manifest.read(tmp_path / "out" / names["DYN_QUANT"])
    assert [item.file for item in held.programs] == ["model_dynamic_range_quant.tflite", "tosa.mlirbc"] and held.tolerance.atol == 2.0
    assert held.programs[0].arguments == held.programs[1].arguments and held.programs[0].results == held.programs[1].results
    held = manifest.read(tmp_path / "out" / names["INT8"])
    assert [item.file for item in held.programs] == ["model_int8.tflite"]
    assert [item.reason for item in held.missing if item.kind == "tosa_mlir"] == [
        "RuntimeError: Could not legalize the TFLite model to TOSA."
    ]


def test_files_of_tflite_are_run_by_the_original_s_command(tmp_path: Path) -> None:
    """Each is bound to the CPUs of its mask, and every answer of it is checked."""
    words = ["-f", "BERT_BASE_(FP32|DYN_QUANT)_TFLITE_I32_SEQLEN8", "-o", str(tmp_path / "out"), "--preset", "tiny", "--strict-exit"]
    assert main(["as", "openxla", "make-artifacts", "tflite", *words]) == PASS
    mask = f"{1 << min(os.sched_getaffinity(0)):x}"
    threads = f"{{1: '{mask}', 2: ''}}"
    words = ["--artifact_dir", str(tmp_path / "out"), "-o", str(tmp_path / "r.json"), "-iter", "3", "--thread_config", threads]
    assert main(["as", "openxla", "tflite", *words, "--strict-exit"]) == PASS
    found = json.loads((tmp_path / "r.json").read_text())["benchmarks"]
    told = {(item["definition"]["model_name"], item["definition"]["num_threads"], item["definition"]["taskset"]) for item in found}
    assert told == {(f"BERT_BASE_{kind}_TFLITE_I32_SEQLEN8", *held) for kind in ("FP32", "DYN_QUANT") for held in ((1, mask), (2, ""))}
    for item in found:
        figures = item["metrics"]["compiler_level"]
        assert {"mean_latency_ms", "system_memory_vmhwm_mb", "system_memory_vmrss_mb", "system_memory_rssfile_mb", "command"} == set(
            figures
        )
        assert figures["mean_latency_ms"] > 0 and item["steelyard"]["verification"]["status"] == "passed"
