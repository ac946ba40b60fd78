"""`as hf run_benchmarks` from end to end: the README's command lines, the mock's closed form, and users' benches, good and bad."""

from __future__ import annotations

import json
import os
import random
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from steelyard.cli.main import main
from steelyard.dialects.commands import spread
from steelyard.dialects.hf import session
from steelyard.errors import FAILED, INTERRUPTED, NOTHING, PASS, USAGE
from steelyard.store.runs import Run, Store, read_run
from steelyard.workloads.generation.mock import FIRST_SCATTER, SCATTER, closed_form

NOTED = """
import json
def run_{name}(logger, output_dir, model_id="meta-llama/Llama-2-7b-hf", **kwargs):
    logger.debug("in detail")
    kwargs |= {{"output_dir": output_dir, "model_id": model_id}}
    open("{name}.noted", "w").write(json.dumps(kwargs))
"""
"""A bench that only writes down what it was given, so that commands about other benches need no model."""
MEASURED = """
import logging, os
from framework import BenchmarkConfig, BenchmarkRunner, ModelBenchmark, TimingResult, create_config_variants

class OwnBenchmark(ModelBenchmark):
    def setup_model(self, config):
        self.calls = 0
        if config.variant == "kernelized":
            config.variant = "eager"                       # falls back, as the original's own bench does
        if config.custom_params.get("fault") == "setup":
            raise RuntimeError("no such model")
        if config.custom_params.get("fault") == "crash":
            os._exit(11)

    def cleanup_model(self):
        self.logger.info("cleaned up")

    def measure_time_to_first_token(self, config):
        return 0.125

    def measure_latency(self, config):
        self.calls += 1
        if self.calls == 1:
            raise RuntimeError("cold")                     # the first warm-up fails
        return TimingResult(latency=0.5 * config.batch_size + 0.001 * self.calls, tokens_per_second=8.0 * config.batch_size)

def run_own_benchmark(logger, output_dir="benchmark_results", warmup_iterations=1, measurement_iterations=2):
    base = BenchmarkConfig("own", "my-model", warmup_iterations=warmup_iterations, measurement_iterations=measurement_iterations)
    configs = create_config_variants(base, {"variant": ["eager", "kernelized"], "batch_size": [1, 2]})
    configs += create_config_variants(base, {"custom_params": [{"fault": "setup"}, {"fault": "crash"}]})
    runner = BenchmarkRunner(logger, output_dir)
    results = runner.run_benchmark(OwnBenchmark(logger), configs)
    again = runner.run_benchmark(OwnBenchmark(logger), configs[:1])
    assert again["own_variant=eager_batch_size=1"]["case"] != results["own_variant=eager_batch_size=1"]["case"]
    return runner.save_results("org/my-model", results)
"""
README = (
    "",
    "--output-dir my_results",
    "--warmup-iterations 5 --measurement-iterations 10 --num-tokens-to-generate 200",
    "--include llama_benchmark",
    "--exclude old_benchmark",
    "--model-id gpt2",
    "--log-level DEBUG",
)
ORDINARY = ("", "--warmup-iterations 5 --measurement-iterations 10 --num-tokens-to-generate 200", "--exclude old_benchmark")
"""Those of them that every commit is tried with; each starts a process."""


@pytest.fixture(autouse=True)
def _there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "benches").mkdir()
    monkeypatch.chdir(tmp_path)


def bench(name: str, text: str = NOTED) -> None:
    Path("benches", f"{name}.py").write_text(text.replace("{name}", name).replace("{{", "{").replace("}}", "}") if text == NOTED else text)


def run(*words: str) -> int:
    return main(["as", "hf", "run_benchmarks", *words])


def summary(folder: str = "benchmark_results") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(folder, session.SUMMARY).read_text())
    return found


def stored() -> list[Run]:
    return [read_run(info.path) for info in Store.find().runs()]


def scenarios(path: str) -> dict[str, Any]:
    return {each["scenario_name"]: each for each in json.loads(Path(path).read_text())["benchmark_scenarios"]}


@pytest.mark.parametrize("line", [line if line in ORDINARY else pytest.param(line, marks=pytest.mark.deep) for line in README])
def test_every_command_line_of_the_readme_reaches_the_benches_that_it_means(line: str) -> None:
    bench("llama_benchmark")
    old = "--exclude" in line
    if old:
        bench("old_benchmark")
    assert run(*shlex.split(line)) == PASS
    folder = "my_results" if "my_results" in line else "benchmark_results"
    found, given = summary(folder), json.loads(Path("llama_benchmark.noted").read_text())
    counts = [5, 10, 200] if "200" in line else [3, 5, 100]
    assert [given[f"{name}_iterations"] for name in ("warmup", "measurement")] + [given["num_tokens_to_generate"]] == counts
    assert given["output_dir"] == folder and given["model_id"] == ("gpt2" if "gpt2" in line else "meta-llama/Llama-2-7b-hf")
    assert not Path("old_benchmark.noted").exists() and not {"preset", "variants"} & given.keys()
    expected = {"llama_benchmark": "completed"} | ({} if "--include" in line else {"mock_benchmark": "skipped"})
    assert found["benchmark_results"] == expected and found["run_metadata"]["successful_benchmarks"] == 1
    [log] = Path(folder).glob("benchmark_run_*.log")
    assert ("in detail" in log.read_text()) == ("DEBUG" in line)


def test_the_mock_equals_its_closed_form_and_the_seed_decides(capsys: pytest.CaptureFixture[str]) -> None:
    words = "--include mock_benchmark --enable-mock --warmup-iterations 1 --measurement-iterations 2 --num-tokens-to-generate 10"
    assert run(*words.split()) == PASS and run(*words.split(), "--seed", "1", "--output-dir", "other", "--variants", "eager") == PASS
    found = scenarios(summary()["benchmark_results"]["mock_benchmark"])
    assert len(found) == 6
    for number, share in enumerate((1.0, 0.8, 0.6)):
        for batch in (1, 2):
            name = f"mock_benchmark_variant={('eager', 'compiled', 'kernelized')[number]}_batch_size={batch}"
            first, whole = closed_form(batch, 10)
            draw, expected = random.Random(0), []
            for _ in range(3):
                ahead, all_of_it = first * (1 + FIRST_SCATTER * draw.uniform(-1, 1)), whole * (1 + SCATTER * draw.uniform(-1, 1))
                expected.append((share * ahead, share * all_of_it))
            measured = found[name]["measurements"]
            assert measured["time_to_first_token"]["measurements"] == pytest.approx([first for first, _ in expected[1:]], abs=2e-8)
            assert measured["latency"]["measurements"] == pytest.approx([whole for _, whole in expected[1:]], abs=2e-8)
            assert measured["tokens_per_second"]["measurements"] == pytest.approx([10 * batch / whole for _, whole in expected[1:]])
            gaps = [(whole - first) / 10 for first, whole in expected[1:]]
            assert measured["time_per_output_token"]["measurements"] == pytest.approx(gaps, abs=2e-8)
            assert found[name]["metadata"]["mock_benchmark"] and measured["latency"]["too_few_values_for"] == ["p90", "p95", "p99"]
    other = scenarios(summary("other")["benchmark_results"]["mock_benchmark"])
    assert len(other) == 2 and other[name.replace("kernelized", "eager")] != found[name.replace("kernelized", "eager")]
    capsys.readouterr()
    assert main(["list", "runs", "--json"]) == PASS and capsys.readouterr().out.count("hf mock_benchmark") == 2


def test_a_users_bench_is_measured_by_the_engine_and_what_fails_in_it_costs_one_scenario() -> None:
    bench("own_benchmark", MEASURED)
    assert run("--include", "own", "--warmup-iterations", "1", "--measurement-iterations", "2") == PASS
    made = summary()["benchmark_results"]["own_benchmark"]
    assert made.startswith("benchmark_results/org_my-model/org_my-model_benchmark_")
    found = scenarios(made)
    statuses = {name.removeprefix("own_"): each["status"] for name, each in found.items()}
    assert statuses == {
        "variant=eager_batch_size=1": "ok", "variant=eager_batch_size=2": "ok", "variant=kernelized_batch_size=1": "not_applied",
        "variant=kernelized_batch_size=2": "not_applied", "custom_params={'fault': 'setup'}": "failed",
        "custom_params={'fault': 'crash'}": "crashed",
    }  # fmt: skip
    good = found["own_variant=eager_batch_size=2"]
    assert good["measurements"]["latency"]["measurements"] == [1.002, 1.003] and good["measurements"]["latency"]["unit"] == "seconds"
    assert good["measurements"]["time_to_first_token"]["mean"] == 0.125 and good["measurements"]["tokens_per_second"]["max"] == 16.0
    assert good["metadata"]["config"]["device"] == "cuda" and good["metadata"]["effective"]["warmup_failures"] == 1
    assert good["gpu_metrics"] == {"gpu_monitoring_status": "disabled", "gpu_monitoring_reason": "no_gpus_available"}
    assert "fell back from kernelized to eager" in found["own_variant=kernelized_batch_size=1"]["reason"]
    assert found["own_custom_params={'fault': 'setup'}"]["measurements"] == {}
    [kept] = stored()
    assert {record.case["workload"] for record in kept.records} == {"hf/own_benchmark/OwnBenchmark"} and len(kept.records) == 7
    log = next(Path("benchmark_results").glob("*.log")).read_text()
    assert "warm-up 1 of own_variant=eager_batch_size=1 failed: RuntimeError: cold" in log and "cleaned up" in log
    assert log.count("config: own_variant=eager_batch_size=2") == 1, "what is said again after a crash is told once"


def test_a_failing_bench_beside_a_good_one_has_exit_code_1_and_both_are_reported(capsys: pytest.CaptureFixture[str]) -> None:
    bench("bad_benchmark", "def run_benchmark(logger):\n    raise ValueError('no good')\n")
    bench("good_benchmark")
    assert run("--exclude", "llama", "mock") == 1 and "1 ok · 1 failed · 0 skipped" in capsys.readouterr().err
    assert summary()["benchmark_results"] == {"bad_benchmark": None, "good_benchmark": "completed"}
    assert "bad_benchmark.py:2" in summary()["details"]["bad_benchmark"]["reason"]


@pytest.mark.deep
def test_a_failing_bench_stops_no_other_and_each_is_told_with_its_place(capsys: pytest.CaptureFixture[str]) -> None:
    bench("bad_benchmark", "def run_benchmark(logger):\n    raise ValueError('no good')\n")
    bench("broken_benchmark", "import nosuchmodule\n")
    bench("done_benchmark", "import sys\ndef run_benchmark():\n    sys.exit()\n")
    bench("ended_benchmark", "import sys\ndef run_benchmark():\n    sys.exit(3)\n")
    bench("gone_benchmark", "import os\ndef run_benchmark():\n    os._exit(7)\n")
    bench("misspelt_benchmark", "def x(:\n")
    bench("parts", "X = 1\n")
    bench("good_benchmark")
    assert run("--exclude", "llama", "mock") == 1
    found = summary()
    assert found["benchmark_results"] == {
        "bad_benchmark": None, "broken_benchmark": None, "done_benchmark": "completed", "ended_benchmark": None, "gone_benchmark": None,
        "good_benchmark": "completed", "misspelt_benchmark": None, "parts": "skipped",
    }  # fmt: skip
    reasons = {name: each["reason"] for name, each in found["details"].items()}
    assert "ValueError: no good" in reasons["bad_benchmark"] and "bad_benchmark.py:2" in reasons["bad_benchmark"]
    assert "nosuchmodule" in reasons["broken_benchmark"] and "misspelt_benchmark.py:1" in reasons["misspelt_benchmark"]
    assert "exited with code 7" in reasons["gone_benchmark"]
    assert "neither run_parts nor run_benchmark" in reasons["parts"]
    assert "the script ended with 3" in reasons["ended_benchmark"]
    assert "2 ok · 5 failed · 1 skipped" in capsys.readouterr().err


def test_help_names_every_option_of_the_readme(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--help") == PASS
    told = capsys.readouterr().out
    for name in ("output-dir", "model-id", "warmup-iterations", "measurement-iterations", "num-tokens-to-generate", "include", "exclude",
                 "enable-mock", "log-level", "benches-dir"):  # fmt: skip
        assert f"--{name}" in told


def test_wrong_input_is_told_and_has_the_originals_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--include", "nothing") == 1 and "leave no benchmark" in capsys.readouterr().err
    assert run("--include", "nothing", "--strict-exit") == NOTHING
    assert run("--benches-dir", "nowhere") == 1 and "there is no folder 'nowhere'" in capsys.readouterr().err
    assert run("--benches-dir", "nowhere", "--strict-exit") == USAGE
    assert run("--measurment-iterations", "3") == USAGE and "--measurement-iterations" in capsys.readouterr().err
    assert run("--variants", "egaer") == USAGE and "did you mean eager" in capsys.readouterr().err
    assert main(["as", "hf", "run_benchmark"]) == USAGE and "run_benchmarks" in capsys.readouterr().err
    Path("file").write_text("")
    assert run("--output-dir", "file/below") == 1 and "cannot write to file/below" in capsys.readouterr().err


def test_include_and_exclude_take_parts_of_names_several_and_none() -> None:
    for name in ("llama_benchmark", "llama_old", "gpt_benchmark"):
        bench(name)
    options = session.BenchOptions(include=("llama", "gpt"), exclude=("old",))
    assert list(session.discover(options)) == ["gpt_benchmark", "llama_benchmark"]
    assert session.discover(options)["llama_benchmark"] == Path("benches/llama_benchmark.py").resolve()
    assert list(session.discover(session.BenchOptions())) == ["gpt_benchmark", "llama_benchmark", "llama_old", "mock_benchmark"]
    assert spread(["--include", "a", "b", "--exclude", "-x", "--include=c", "d"], {"--include", "--exclude"}) == [
        "--include", "a", "--include", "b", "-x", "--include", "c", "--include", "d",
    ]  # fmt: skip


@pytest.mark.deep
def test_the_built_in_llama_says_what_it_lacks_and_never_is_green(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    if _has("transformers"):
        pytest.skip("transformers is here, and tests/stacks measure with it")
    assert run("--include", "llama", "--model-id", "gpt2", "--preset", "tiny", "--variants", "eager", "--strict-exit") == NOTHING
    assert "transformers" in summary()["details"]["llama_benchmark"]["reason"] and "1 failed" in capsys.readouterr().err


def _has(name: str) -> bool:
    import importlib.util

    return importlib.util.find_spec(name) is not None


@pytest.mark.deep
def test_an_interrupted_run_goes_on_with_the_bench_that_it_was_at(monkeypatch: pytest.MonkeyPatch) -> None:
    bench("a_benchmark")
    words = ("--enable-mock", "--exclude", "llama", "--num-tokens-to-generate", "4")
    with monkeypatch.context() as patched:
        patched.setattr(session.BenchSink, "take", _stopped, raising=False)
        assert run(*words) == INTERRUPTED
    assert summary()["run_metadata"]["complete"] is False and summary()["benchmark_results"] == {"a_benchmark": "completed"}
    Path("a_benchmark.noted").unlink()
    assert run(*words, "--resume") == PASS and not Path("a_benchmark.noted").exists()
    assert list(summary()["benchmark_results"]) == ["a_benchmark", "mock_benchmark"] and summary()["run_metadata"]["complete"]
    assert sorted(len(each.records) for each in stored()) == [0, 6]


def _stopped(sink: Any, job: Any, record: Any, arrays: Any) -> None:
    if record.case["variant"] == "compile":
        raise KeyboardInterrupt


@pytest.mark.deep
def test_the_originals_own_commands_run_in_a_folder_that_init_makes() -> None:
    def python(*words: str, folder: str = "it", code: int = 0) -> subprocess.CompletedProcess[str]:
        Path(folder).mkdir(exist_ok=True)
        done = subprocess.run(
            [sys.executable, *words], cwd=folder, capture_output=True, text=True, timeout=120, env=dict(os.environ), check=False
        )
        assert done.returncode == code, done.stderr
        return done

    python("-m", "steelyard.hf_bench", "init")
    assert sorted(path.name for path in Path("it").rglob("*.py")) == [
        "framework.py", "llama_benchmark.py", "mock_benchmark.py", "run_benchmarks.py",
    ]  # fmt: skip
    python("run_benchmarks.py", "--include", "mock_benchmark", "--enable-mock", "--num-tokens-to-generate", "10")
    assert summary("it/benchmark_results")["run_metadata"]["successful_benchmarks"] == 1
    assert "6 configurations" in python("mock_benchmark.py", folder="it/benches").stderr
    assert len(list(Path("it/benches/benchmark_results/mock_model").glob("*.json"))) == 1 and not Path("it/benches/.steelyard").exists()
    assert "exists already" in python("-m", "steelyard.hf_bench", "init", code=2).stderr
    assert "no such file" in python("-m", "steelyard.hf_bench", "nowhere.py", code=2).stderr


@pytest.mark.deep
def test_failed_scenarios_count_with_the_strict_exit_code_only() -> None:
    bench("half_benchmark", MEASURED.replace("run_own_benchmark", "run_half_benchmark").replace("os._exit(11)", "raise MemoryError"))
    assert run("--include", "half", "--strict-exit") == FAILED
    assert summary()["details"]["half_benchmark"]["scenarios"] == {"ok": 3, "not_applied": 2, "failed": 1, "oom": 1}
