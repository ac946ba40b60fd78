"""The compiler level of OpenXLA's benchmarks: thread configurations, what can be bound, and metrics in the units of their keys."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any

import pytest

from steelyard.artifacts import manifest
from steelyard.dialects.openxla.compiled import binding, metrics, parse_threads
from steelyard.engine.sinks import MeasuredCase
from steelyard.errors import UsageError
from steelyard.model.record import Figure, Record, Verification
from tests.artifacts.made import small
from tests.engine.drive import steelyard

HERE = sorted(os.sched_getaffinity(0))
TIMES = (0.001, 0.002, 0.006)


def measured(**verified: Any) -> MeasuredCase:
    figures = {"compile_time": Figure(2.5, "s"), "runtime_peak_memory": Figure(3e6, "B"), "time": Figure(0.002, "s")}
    told = {"host_memory": {"VmHWM": 5e6, "VmRSS": 4e6, "RssFile": 1e6}}
    record = Record("artifact@iree/eager:eval", {}, "ok", metrics=figures, effective=told, verification=Verification(**verified))
    return MeasuredCase(record, {"block_time": ("s", "<f8", struct.pack("<3d", *TIMES))})


def test_each_key_has_the_unit_that_it_names_and_a_median_is_one() -> None:
    found = metrics("hlo", measured(status="passed"), "host-cpu")
    assert found["compile_time_s"] == 2.5 and found["median_latency_ms"] == 2.0 and found["mean_latency_ms"] == 3.0
    assert found["benchmark_iterations"] == 3 and "compile_time_ms" not in found
    gpu = metrics("hlo", measured(status="passed"), "host-gpu")
    assert gpu["compile_time_ms"] == 2500.0 and gpu["device_memory_peak_mb"] == 3.0
    iree = metrics("iree", measured(status="passed"), "host-cpu")
    assert (iree["median_latency_ms"], iree["device_memory_peak_mb"], iree["system_memory_vmhwm_mb"]) == (2.0, 3.0, 5.0)
    assert metrics("tflite", measured(status="passed"), "host-cpu")["mean_latency_ms"] == 3.0


@pytest.mark.parametrize(("status", "told"), [("passed", True), ("failed", False), ("none", None)])
def test_accuracy_is_what_verification_found_of_every_output(status: str, told: bool | None) -> None:
    assert metrics("iree", measured(status=status), "host-cpu")["accuracy"] is told


def test_thread_configurations_are_literals() -> None:
    assert parse_threads("{1:'0',4:'0,1,2,3'}") == ((1, "0"), (4, "0,1,2,3"))


@pytest.mark.parametrize("text", ["", "{}", "[1]", "{0: '0'}", "{1: 0}", "{'1': '0'}", "__import__('os')", "{1: open('x')}", "{" * 9999])
def test_what_is_none_is_refused_and_never_executed(text: str) -> None:
    with pytest.raises(UsageError, match="not a thread configuration"):
        parse_threads(text)


def test_a_binding_is_applied_or_the_case_is_unsupported() -> None:
    assert binding("iree", str(HERE[0])) == ((("IREE_RUNTIME_FLAGS", f"--task_topology_cpu_ids={HERE[0]}"),), "")
    assert "none of the CPUs" in binding("iree", "4000")[1] and "none of the CPUs" in binding("iree", "x")[1]
    assert binding("tflite", f"{(1 << max(HERE) + 8) - 1:x}") == ((("STEELYARD_CPUS", ",".join(map(str, HERE))),), "")
    assert "0 names none of the CPUs" in binding("tflite", "0")[1] and "mask in hex" in binding("tflite", "0,1")[1]
    assert "mask" not in binding("iree", "4000")[1]
    assert binding("hlo", str(HERE[0])) == ((("STEELYARD_CPUS", str(HERE[0])),), "") and binding("hlo", "") == ((), "")


def test_a_folder_without_fitting_programs_is_told_before_anything_runs(tmp_path: Path) -> None:
    done = steelyard("as", "openxla", "iree", "--artifact_dir", ".", "-o", "r.json", cwd=tmp_path, check=2)
    assert "no benchmark in" in done.stderr and not (tmp_path / "r.json").exists()
    words = ("--artifact-dir", ".", "-o", "r.json", "--thread_config", "x")
    assert "not a thread configuration" in steelyard("as", "openxla", "tflite", *words, cwd=tmp_path, check=2).stderr
    assert "taskset's mask" in " ".join(steelyard("as", "openxla", "tflite", "--help", cwd=tmp_path).stdout.split())
    assert "mask" not in steelyard("as", "openxla", "iree", "--help", cwd=tmp_path).stdout


DEFINED = """\
from openxla.benchmark import def_types
impl = def_types.ModelImplementation(name="M", tags=[], framework_type=def_types.ModelFrameworkType.JAX, module_path="nowhere")
data = def_types.ModelTestData(name="INPUT_DATA_MODEL_DEFAULT", source_url="")
PLACES = {"HAD": "HAD", "GONE": "GONE", "FROM_ALL": "", "../UP": "HAD", "OTHER": "HAD", "A|B": "HAD"}
ALL_MODELS = [
    def_types.Model(name=name, tags=[], model_impl=impl, model_parameters={}, artifacts_dir_url=f"PLACE/{below}")
    for name, below in PLACES.items()
]
ALL_BENCHMARKS = [def_types.BenchmarkCase.build(model=model, input_data=data) for model in ALL_MODELS]
"""
BROKEN = "ALL_MODELS = 1 / 0\n"
SUITE = "VIT_CLASSIFICATION_INT8_TFLITE_3X224X224XINT8"


def errors(file: Path) -> dict[str, str]:
    """By the names of models."""
    entries = json.loads(file.read_text())["benchmarks"]
    return {item["definition"]["model_name"]: item["metrics"]["compiler_level"]["error"] for item in entries}


def test_artifacts_are_fetched_from_where_definitions_keep_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that is there is fetched and has its entry; one that is not costs itself alone; nothing is fetched with --no-download."""
    monkeypatch.setenv("STEELYARD_ARTIFACTS", str(tmp_path / "cache"))
    place, mine = tmp_path / "place", tmp_path / "mine"
    for name in ("HAD", "FROM_ALL", "UNASKED"):
        (place / name).mkdir(parents=True)
        manifest.write(place / name, manifest.ArtifactSet(name, manifest.Producer(name, "torch")))
    listed = {name: manifest.hashed(place / name / manifest.NAME)[1] for name in ("HAD", "FROM_ALL", "UNASKED")}
    (place / "index.json").write_text(json.dumps({"schema": 1, "artifacts": listed}))
    mine.mkdir()
    (mine / "definitions.py").write_text(DEFINED.replace("PLACE/", f"{place}/"))
    (mine / "broken_definitions.py").write_text(BROKEN)
    words = ("as", "openxla", "iree", "--artifact-dir", "there", "--definitions", str(mine), "-o", "r.json")
    assert "no benchmark in" in steelyard(*words, "--no-download", cwd=tmp_path, check=2).stderr and not (tmp_path / "there").exists()
    said = steelyard(*words, "--strict-exit", cwd=tmp_path, check=3).stderr
    assert "broken_definitions.py:1  ZeroDivisionError" in said
    assert sorted(path.name for path in (tmp_path / "there").iterdir()) == ["FROM_ALL", "HAD"]
    told = errors(tmp_path / "r.json")
    assert told["GONE"].startswith("failed: no artifacts at") and told["HAD"] == "unsupported: the folder has no program that iree runs"
    assert told["OTHER"].startswith(f"failed: {place}/HAD has no artifacts of OTHER")
    assert (told["../UP"], told["A|B"]) == ("failed: '../UP' is not a valid folder name", "failed: 'A|B' is not a valid folder name")
    assert told["FROM_ALL"] == told["HAD"]


def test_a_folder_with_a_broken_manifest_and_a_binding_of_nothing_cost_themselves_alone(tmp_path: Path) -> None:
    small(tmp_path / "there" / "SOUND", "SOUND")
    small(tmp_path / "there" / "CUT", "CUT")
    (tmp_path / "there" / "CUT" / manifest.NAME).write_text("{")
    words = ("as", "openxla", "hlo", "--artifact-dir", "there", "-o", "r.json", "--strict-exit")
    steelyard(*words, "--thread_config", "{2: '0|1'}", cwd=tmp_path, check=3)
    told, [first, _] = errors(tmp_path / "r.json"), json.loads((tmp_path / "r.json").read_text())["benchmarks"]
    assert (first["definition"]["num_threads"], first["definition"]["task_topology_cpu_ids"]) == (2, "0|1")
    assert set(first["definition"]) == {
        "benchmark_name", "framework", "data_type", "batch_size", "compiler", "device", "tags", "model_name", "num_threads",
        "task_topology_cpu_ids",
    }  # fmt: skip
    assert told["CUT"].startswith("failed: there/CUT/manifest.json") and told["SOUND"].startswith("unsupported: 0|1 names none of the CPUs")


def test_a_model_of_the_suite_is_told_as_its_definition_says(tmp_path: Path) -> None:
    """The original's flags name the folder by --root-dir, and leave it out for the one below TMPDIR."""
    small(tmp_path / "openxla-benchmark" / SUITE, SUITE)
    words = (
        "as",
        "openxla",
        "tflite",
        "-name",
        f"models/{SUITE}/.+",
        "-device",
        "host-cpu",
        "--tflite_benchmark_binary",
        "x",
        "--no_download",
    )
    for more, threads in (((), "{1: ''}"), (("--root_dir", "openxla-benchmark"), "{4: 'f0'}")):
        steelyard(*words, *more, "--thread_config", threads, "-o", "r.json", cwd=tmp_path, env={"TMPDIR": str(tmp_path)})
    told = [item["definition"] for item in json.loads((tmp_path / "r.json").read_text())["benchmarks"]]
    assert told == [
        {
            "benchmark_name": f"models/{SUITE}/inputs/INPUT_DATA_MODEL_DEFAULT", "framework": "ModelFrameworkType.TFLITE",
            "data_type": "int8", "batch_size": 1, "compiler": "tflite", "device": "host-cpu", "tags": ["tflite", "int8", "batch-1"],
            "model_name": SUITE, "num_threads": threads, "taskset": mask,
        }
        for threads, mask in ((1, ""), (4, "f0"))
    ]  # fmt: skip
