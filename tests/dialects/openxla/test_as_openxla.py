"""`as openxla` from end to end with a package of the user's own: the document's steps, and a clear end for all that can go wrong."""

from __future__ import annotations

import json
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from steelyard.cli.main import main
from steelyard.dialects.openxla import suite
from steelyard.dialects.openxla.catalogue import DefinitionSet, tool_of
from steelyard.dialects.openxla.command import nightly
from steelyard.dialects.openxla.definitions import DEVICES, BenchmarkCase
from steelyard.dialects.openxla.lint import findings
from steelyard.dialects.openxla.session import SuiteRun, ToolOptions, case_of
from steelyard.engine import describe
from steelyard.errors import FAILED, NOTHING, PASS, USAGE, UsageError
from steelyard.store.runs import Store
from tests.dialects.openxla import package

SUMMARY = ("min", "max", "mean", "median", "stddev")
KEYS = {
    *(f"{way}_{name}" for way in SUMMARY for name in ("warmup_latency_ms", "latency_ms")), "warmup_iterations", "benchmark_iterations",
    "compile_time_ms", "autotuning_enabled",
}  # fmt: skip
DEFINITION = ["benchmark_name", "framework", "data_type", "batch_size", "compiler", "device", "tags"]
Entries = dict[str, dict[str, Any]]


def run(*words: str, pattern: str = "models/.+", file: str = "r.json", suite: str = "suite") -> int:
    base = ["as", "openxla", "pytorch", "-name", pattern, "-device", "host-cpu", "-o", file, "-c", "eager", "--definitions", suite]
    return main([*base, *words])


def entries(file: str = "r.json") -> Entries:
    """By the first part of the model's name."""
    listed = json.loads(Path(file).read_text())["benchmarks"]
    return {item["definition"]["benchmark_name"].split("/")[1]: item for item in listed}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run over everything that can go wrong, once for all tests."""
    folder = tmp_path_factory.mktemp("openxla")
    package.write(folder / "suite", tuple(name for name in package.MODELS if name != "hangs"), broken=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name in ("LOCKS", "ENVS", "CACHE"):
            patch.setenv(f"STEELYARD_{name}", str(folder / name))
        code = run("-w", "1", "-iter", "2", "--run-in-process", "--generate_artifacts", "--root-dir", "root", "--strict-exit")
        assert code == FAILED
    return folder


def level(item: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = item["metrics"]["framework_level"]
    return found


def test_the_file_has_the_originals_keys(made: Path) -> None:
    data = json.loads((made / "r.json").read_text())
    assert data["trigger"]["timestamp"].isdigit()
    assert "torch" in {item["name"] for item in data["execution_environment"]["python_environment"]}
    good = entries(str(made / "r.json"))["GOOD_FP32_PT_BATCH16"]
    assert list(good["definition"]) == DEFINITION
    assert good["definition"] == {
        "benchmark_name": "models/GOOD_FP32_PT_BATCH16/inputs/INPUT_DATA_MODEL_DEFAULT", "framework": "ModelFrameworkType.PYTORCH",
        "data_type": "fp32", "batch_size": 16, "compiler": "eager", "device": "host-cpu", "tags": ["mine", "batch-16"],
    }  # fmt: skip
    assert set(level(good)) == KEYS
    assert level(good)["warmup_iterations"] == 1
    assert level(good)["stddev_warmup_latency_ms"] is None
    assert level(good)["compile_time_ms"] == level(good)["max_warmup_latency_ms"]
    assert level(good)["benchmark_iterations"] == len(good["steelyard"]["latencies_ms"]) == 2
    assert good["steelyard"]["effective"]["memory"]["VmHWM"] > 0


ENDS = [
    ("GOOD_FP32_PT_BATCH1", "ok", ""),
    ("HALF_FP16_PT_BATCH2", "ok", ""),
    ("TWELVE_FP32_PT_BATCH1", "ok", ""),
    ("GOOD_FP16_PT_BATCH3", "not_applied", "data_type is fp16"),
    ("LOOSE_FP32_PT_BATCH1", "wrong", "output 1: 1 of 1 values are off"),
    ("NAUGHT_FP32_PT_BATCH1", "wrong", "output 0: NaN"),
    ("NEEDS_FP32_PT_BATCH1", "unsupported", "needs a_package_that_is_nowhere"),
    ("BREAKS_FP32_PT_BATCH1", "failed", "no_such_name"),
    ("MUTE_FP32_PT_BATCH1", "failed", "no generate_default_inputs"),
    ("NOWHERE_FP32_PT_BATCH1", "failed", "there is no module my_suite.models.nowhere"),
    ("TYPO_FP32_PT", "failed", "Invalid enum value 'torch' - at `$.model.model_impl.framework_type`"),
]


@pytest.mark.parametrize(("name", "status", "told"), ENDS, ids=[name for name, *_ in ENDS])
def test_each_case_has_a_clear_end(made: Path, name: str, status: str, told: str) -> None:
    item = entries(str(made / "r.json"))[name]
    assert item["steelyard"]["status"] == status
    assert told in item["steelyard"]["reason"]
    assert ("error" in level(item)) == (status != "ok")


def test_a_failed_check_keeps_the_times(made: Path) -> None:
    item = level(entries(str(made / "r.json"))["LOOSE_FP32_PT_BATCH1"])
    assert item["median_latency_ms"] > 0
    assert "absolute tolerance 0" in item["error"]


def test_twelve_inputs_keep_their_order_in_files_too(made: Path) -> None:
    with tarfile.open(made / "root" / "TWELVE_FP32_PT_BATCH1" / "inputs_npy.tgz") as archive:
        assert archive.getnames() == [f"input_{number}.npy" for number in range(12)]
    [first, truth, small] = entries(str(made / "r.json"))["TWELVE_FP32_PT_BATCH1"]["steelyard"]["effective"]["outputs"]
    assert (first, truth, small) == (["fp32", [12]], ["bool", [2]], ["uint8", [2]])


@pytest.mark.parametrize(("name", "told"), [("page.html", "GOOD_FP32_PT_BATCH16"), ("page.md", "@pytorch/eager:eval` | ✗ wrong")])
def test_report_makes_a_page_of_the_file(made: Path, monkeypatch: pytest.MonkeyPatch, name: str, told: str) -> None:
    monkeypatch.chdir(made)
    main(["report", "r.json", "-o", name])
    page = (made / name).read_text(encoding="utf-8")
    assert told in page
    assert "NaN" in page


@pytest.mark.deep
def test_a_model_that_hangs_costs_the_others_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    package.write(tmp_path / "suite", ("hangs",))
    assert run("-w", "1", "-iter", "1", "--timeout", "2", "--strict-exit", pattern="models/HANGS.+|models/NOWHERE.+") == FAILED
    assert {name: item["steelyard"]["status"] for name, item in entries().items()} == {
        "HANGS_FP32_PT_BATCH1": "timeout",
        "NOWHERE_FP32_PT_BATCH1": "failed",
    }
    assert "HANGS_FP32_PT_BATCH1" in capsys.readouterr().err


def test_a_file_that_loops_when_it_is_imported_costs_its_own_definitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """And the name of another's definition does not steer the terminal."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(describe, "LOADING", 0.5)
    Path("c_definitions.py").write_text(package.ESCAPES)
    Path("b_definitions.py").write_text("while True:\n  pass\n")
    assert main(["as", "openxla", "list", "--definitions", "."]) == FAILED
    said = capsys.readouterr()
    assert f"error: {tmp_path / 'b_definitions.py'}  importing it takes more than 500 ms; check it for an endless loop" in said.err
    assert "models/RED" in said.out
    assert not [sign for sign in said.out if not sign.isprintable() and sign != "\n"]


def test_a_file_that_cannot_be_imported_costs_its_own_definitions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    package.write(tmp_path / "suite")
    for name, code in package.HOSTILE.items():
        (tmp_path / "suite" / f"{name}_definitions.py").write_text(code)
    assert main(["as", "openxla", "list", "--definitions", "suite"]) == FAILED
    said = capsys.readouterr()
    assert "models/GOOD_FP32_PT_BATCH16/inputs" in said.out
    for name, told in package.HOSTILE_TOLD.items():
        assert any(f"{name}_definitions.py" in line and told in line for line in said.err.splitlines()), (name, said.err)


@pytest.mark.parametrize("name", ["../../evil", "A|B", "", "a b", "N" * 5000, "nul\0"])
def test_a_name_that_no_case_can_have_costs_its_own_case(name: str, tmp_path: Path) -> None:
    known = next(case for case in suite.ALL_BENCHMARKS if tool_of(case) == "pytorch")
    bad = BenchmarkCase.build(replace(known.model, name=name), known.input_data, {"absolute_tolerance": -1 if len(name) > 100 else 0})
    run = SuiteRun(ToolOptions("pytorch", (), "host-cpu", tmp_path / "r.json"), lambda text: None, Store(tmp_path))
    run._measure(DefinitionSet(cases=(bad,)))
    assert run.statuses == {bad.name: "failed"}
    assert findings(DefinitionSet((bad.model,), (bad,)))[0].name == bad.name


def test_results_are_added_and_no_warm_up_still_compiles_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    package.write(tmp_path / "suite")
    Path("r.json").write_text(json.dumps({"trigger": {"timestamp": "1"}, "benchmarks": [{"definition": {"benchmark_name": "a/b"}}]}))
    assert run("-w", "0", "-iter", "1", "--run-in-process", pattern="models/GOOD_FP32_PT_BATCH1/.+") == PASS
    data = json.loads(Path("r.json").read_text())
    assert (data["trigger"], len(data["benchmarks"])) == ({"timestamp": "1"}, 2)
    found = level(data["benchmarks"][1])
    assert (found["warmup_iterations"], found["max_warmup_latency_ms"], found["stddev_latency_ms"]) == (0, None, None)
    assert found["benchmark_iterations"] == 1
    assert found["compile_time_ms"] > 0


def test_a_wrong_command_line_is_told_before_anything_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    Path("list.json").write_text("[1]")
    wrong = {
        ("-device", "my-phone"): "my-phone",
        ("-iter", "0"): "iter",
        ("--compilr", "x"): "--compilr",
        ("--definitions", "nowhere"): "there is no nowhere",
        ("--definitions", "empty"): "no definitions in empty",
    }
    for words, told in wrong.items():
        assert main(["as", "openxla", "jax", "-name", "models/.+", "-device", "host-cpu", "-o", "r.json", *words]) == USAGE
        assert told in capsys.readouterr().err
    assert main(["as", "openxla", "jax", "-name", "models/NO.+", "-device", "host-cpu", "-o", "r.json"]) == USAGE
    assert "no benchmark of jax is named 'models/NO.+'" in capsys.readouterr().err
    assert main(["as", "openxla", "jax", "-name", "models/BERT_LARGE_FP32_JAX.+", "-device", "host-cpu", "-o", "list.json"]) == USAGE
    assert "cannot add to list.json" in capsys.readouterr().err
    Path("other.json").write_text('{"records": [1]}')
    assert main(["as", "openxla", "jax", "-name", "models/BERT_LARGE_FP32_JAX.+", "-device", "host-cpu", "-o", "other.json"]) == USAGE
    assert "cannot add to other.json" in capsys.readouterr().err
    assert Path("other.json").read_text() == '{"records": [1]}'
    assert not Path("r.json").exists()
    assert main(["as", "openxla", "jax", "-name", "models/BERT_LARGE_FP32_JAX.+", "-device", "host-cpu", "-o", "nowhere/r.json"]) == USAGE
    assert "there is no folder" in capsys.readouterr().err


GONE = [(("-c", "iree"), "IREE"), (("-c", "xla_cpu_next"), "CPU compiler"), (("-device", "pixel-6-pro"), "phone")]


@pytest.mark.parametrize(("words", "told"), GONE, ids=[words[1] for words, _ in GONE])
def test_what_no_runtime_of_today_has_is_unsupported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, str], told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    one = "models/T5_SMALL_FP32_JAX_1X128XI32/.+"
    base = ["as", "openxla", "jax", "--benchmark_name", one, "--target-device", "host-cpu", "-o", "r.json", *words]
    assert main(base) == PASS
    assert main([*base, "--strict-exit"]) == NOTHING
    [item] = entries().values()
    assert item["steelyard"]["status"] == "unsupported"
    assert told in level(item)["error"]


@pytest.mark.deep
@pytest.mark.torch
def test_the_documents_example_by_inductor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["-name", "models/EXAMPLE_FP32_PT_BATCH.+", "-device", "host-cpu", "-o", "results.json", "--generate-artifacts", "--verbose"]
    assert main(["as", "openxla", "pytorch", *words, "--preset", "tiny", "-iter", "3", "--root-dir", "root", "--strict-exit"]) == PASS
    found = entries("results.json")
    assert list(found) == [f"EXAMPLE_FP32_PT_BATCH{size}" for size in (1, 16, 32)]
    for name, item in found.items():
        assert (item["definition"]["compiler"], level(item)["autotuning_enabled"]) == ("inductor", True)
        assert item["steelyard"]["verification"]["status"] == "passed"
        assert Path("root", name, "inputs_npy.tgz").is_file()


def test_a_failure_that_is_expected_costs_no_exit_code(tmp_path: Path) -> None:
    name = "models/BERT_LARGE_FP16_PT_384XI32_BATCH1280/inputs/INPUT_DATA_MODEL_DEFAULT"
    options = ToolOptions("pytorch", (name,), "host-cpu", tmp_path / "r.json", strict_exit=True)
    made = SuiteRun(options, lambda text: None, Store(tmp_path), statuses={name: "oom", "models/A/inputs/B": "ok"})
    assert made._judged(0) == PASS
    made.statuses["models/A/inputs/B"] = "oom"
    assert made._judged(0) == FAILED


@pytest.mark.parametrize("value", ["much", None, True, -1, float("nan")])
def test_a_tolerance_that_is_no_number_is_told_with_the_benchmark(value: Any, tmp_path: Path) -> None:
    known = next(case for case in suite.ALL_BENCHMARKS if tool_of(case) == "pytorch")
    options = ToolOptions("pytorch", (known.name,), "host-cpu", tmp_path / "r.json")
    with pytest.raises(UsageError, match=rf"{known.name}: absolute_tolerance is"):
        case_of(replace(known, verify_parameters={"absolute_tolerance": value}), options)


def test_an_expected_failure_is_told_with_its_reason(tmp_path: Path, capsys: Any) -> None:
    name = "models/BERT_LARGE_FP16_PT_384XI32_BATCH1280/inputs/INPUT_DATA_MODEL_DEFAULT"
    for preset, foreseen in (("", True), ("tiny", False)):
        said: list[str] = []
        options = ToolOptions("pytorch", (name,), "pixel-6-pro", tmp_path / f"{preset}.json", compiler="inductor", preset=preset)
        assert SuiteRun(options, said.append, Store(tmp_path)).run() == PASS
        [item] = entries(str(options.output)).values()
        assert ("(expected: the original left it out" in said[0]) == foreseen
        assert bool(item["steelyard"]["expected"]) == foreseen
    assert main(["as", "openxla", "list"]) == PASS
    told = capsys.readouterr().out.splitlines()
    assert [line.partition("  the original left it out")[1] != "" for line in told].count(True) == 4
    assert sum("a TFLite model is an exported file" in line for line in told) == 28


def test_benchmark_all_has_lists_and_iterations_by_device() -> None:
    names, iterations = nightly("pytorch", "c2-standard-60")
    assert (names[1], iterations) == ("models/BERT_LARGE_FP32_PT_.+_BATCH(1|32|64)/.+", 20)
    assert nightly("jax", "a2-highgpu-1g")[1] == 50
    assert nightly("jax", "host-cpu")[1] == 5
    for device in {*DEVICES} - {"a2-highgpu-1g", "host-gpu", "c2-standard-16", "c2-standard-60", "host-cpu"} | {"my-laptop"}:
        with pytest.raises(UsageError, match=device):
            nightly("jax", device)
    assert main(["as", "openxla", "benchmark-all", "my-laptop", "r.json"]) == USAGE
    assert main(["as", "openxla", "benchmark-all"]) == USAGE
