"""Compilers against each other: two versions of IREE, two sets of XLA's flags, a miscompiled program made small, OpenXLA's tools."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.engine.drive import PROGRAM, run_json, steelyard

pytestmark = [pytest.mark.stacks, pytest.mark.timeout(3600)]

PRODUCT = """\
func.func @main(%x: tensor<16x32xf32>, %w: tensor<32x16xf32>) -> (tensor<16x16xf32>, tensor<16x16xf32>) {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<16x32xf32>, tensor<32x16xf32>) -> tensor<16x16xf32>
  %1 = stablehlo.tanh %0 : tensor<16x16xf32>
  %2 = stablehlo.log %1 : tensor<16x16xf32>
  %3 = stablehlo.compare NE, %2, %2, FLOAT : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xi1>
  %4 = stablehlo.select %3, %1, %0 : tensor<16x16xi1>, tensor<16x16xf32>
  %5 = stablehlo.add %4, %1 : tensor<16x16xf32>
  return %5, %0 : tensor<16x16xf32>, tensor<16x16xf32>
}
"""
LOOSE = "--xla_cpu_enable_fast_math=true --xla_cpu_fast_math_honor_nans=false --xla_cpu_fast_math_honor_infs=false"
QUICK = ("--budget", "20ms", "--settle", "0")
WITHIN = 1800.0
"""Seconds for a command: a run with compile times starts a dozen compilers, each with its imports, and the machine may be busy."""


@pytest.fixture(autouse=True)
def compilers(apart: Path, built: Callable[[str], str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Environments of both compilers in one folder, and a program to compile."""
    homes = {built(stack) for stack in ("jax", "iree", "iree-3.12")}
    assert len(homes) == 1, "give all environments in STEELYARD_ENVS, or none"
    monkeypatch.setenv("STEELYARD_ENVS", homes.pop())
    (tmp_path / "program.mlir").write_text(PRODUCT)


def weighed(folder: Path, *words: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The record of the head and its only pair."""
    found = run_json("artifact:program.mlir", *words, *QUICK, "--compile-time=6", "--dump-ir", "optimized", cwd=folder, within=WITHIN)
    [pair] = found["pairs"]
    [head] = [record for record in found["records"] if record["id"] == pair["head"]["id"]]
    return head, pair


def test_two_versions_of_a_compiler_are_weighed_by_run_time_compile_time_and_size(tmp_path: Path) -> None:
    head, pair = weighed(tmp_path, "-B", "iree", "--vs", "env:iree-3.12")
    assert pair["base"]["environment"] == "env:iree-3.12" and head["environment"]["iree-base-compiler"].startswith("3.13")
    assert {"compile_time", "compile_cpu_time", "code_size", "compile_memory", "peak_memory"} <= pair["parts"].keys()
    assert all(part["base"]["n"] == part["head"]["n"] == 6 for part in pair["parts"].values())
    assert head["metrics"]["compile_time_cold"]["n"] == 6
    kinds = [item["kind"] for item in head["attachments"]]
    assert kinds.count("graph") == kinds.count("base graph") == 4
    assert head["effective"]["program_counts"]["graph-flow.txt"]["fusions"]["flow.dispatch"] >= 1


def test_two_sets_of_flags_are_two_cases_and_one_comparison(tmp_path: Path) -> None:
    head, pair = weighed(tmp_path, "-B", "xla", "--vs", "flags:--xla_backend_optimization_level=0")
    assert pair["base"]["id"].endswith(':flag.XLA_FLAGS="--xla_backend_optimization_level=0"') and not head["case"]["flags"]
    assert pair["parts"]["code_size"]["low"] == pair["parts"]["code_size"]["high"], "the size of code is exact"
    told = steelyard("show", "latest/2", cwd=tmp_path).stdout
    assert "programs, base → head" in told and "compile CPU" in told


def test_a_flag_that_the_compiler_does_not_know_costs_the_base_alone(tmp_path: Path) -> None:
    found = run_json(
        "artifact:program.mlir", "-B", "xla", "--vs", "flags:--xla_no_such_flag=1", *QUICK, cwd=tmp_path, check=3, within=WITHIN
    )
    assert [record["status"] for record in found["records"]] == ["unsupported", "ok"] and not found["pairs"]


def test_a_miscompiled_program_is_cut_to_what_is_miscompiled(tmp_path: Path) -> None:
    words = ("artifacts", "reduce", "artifact:program.mlir", "-B", "xla", "--flag", f"XLA_FLAGS={LOOSE}", "-o", "bug", "--json")
    done = json.loads(steelyard(*words, cwd=tmp_path, within=WITHIN).stdout)
    assert done["symptom"] == "wrong" and done["operations"] <= 2 and done["before"] == 6
    assert "stablehlo.compare NE" in (tmp_path / "bug" / "reduced.mlir").read_text()
    again = (tmp_path / "bug" / "reproduce.txt").read_text().strip().removeprefix("steelyard ")
    shown = subprocess.run(f"{' '.join(PROGRAM)} {again}", shell=True, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert shown.returncode == 3 and "wrong" in shown.stdout


def test_the_compiler_level_has_the_keys_of_the_original(tmp_path: Path) -> None:
    model = "BERT_BASE_FP32_JAX_I32_SEQLEN8"
    steelyard(
        "as",
        "openxla",
        "make-artifacts",
        "jax",
        "-f",
        model,
        "-o",
        "made",
        "--preset",
        "tiny",
        "--only",
        "stablehlo_mlir",
        cwd=tmp_path,
        within=WITHIN,
    )
    for tool in ("hlo", "iree", "tflite"):
        steelyard("as", "openxla", tool, "--artifact_dir", "made", "-o", "r.json", "-iter", "3", cwd=tmp_path, within=WITHIN)
    hlo, iree, tflite = [item["metrics"]["compiler_level"] for item in json.loads((tmp_path / "r.json").read_text())["benchmarks"]]
    assert {"compile_time_s", "median_latency_ms", "stddev_latency_ms", "benchmark_iterations"} <= hlo.keys()
    assert iree["accuracy"] is True and {"median_latency_ms", "system_memory_vmhwm_mb", "command"} <= iree.keys()
    assert "unsupported" in tflite["error"]
