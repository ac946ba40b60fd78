"""`as hf v2`: levels, validity rules, sizes, config files, and rows of the later version, on the mock."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from steelyard.cli.main import main
from steelyard.dialects.hf import leveled, levels
from steelyard.dialects.hf.levels import LevelConfig
from steelyard.errors import NOTHING, PASS, USAGE, UsageError
from steelyard.workloads.generation.mock import closed_form


@pytest.fixture(autouse=True)
def _there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(*words: str) -> int:
    return main(["as", "hf", "v2", "--model-id", "mock", *words])


def rows(folder: str = "benchmark_results/mock") -> dict[str, Any]:
    newest = max(Path(folder).glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
    found: dict[str, Any] = json.loads(newest.read_text())
    return found


@pytest.mark.parametrize(("level", "count", "distinct"), [(0, 1, 1), (1, 4, 4), (2, 8, 7), (3, 32, 20), (4, 80, 42)])
def test_levels_have_as_many_configs_as_the_original_and_duplicates_go(level: int, count: int, distinct: int) -> None:
    found = levels.by_level(level)
    assert len(found) == count and len({levels.valid(each, flash=False)[0].hash for each in found}) == distinct


def test_names_and_hashes_say_all_of_a_config() -> None:
    config = LevelConfig(3, 10, attn_implementation="sdpa")
    assert config.name() == "w3_i10-monitored-b1_s128_n128-sdpa-uncompiled-unkernelized-generate-no_tp"
    assert "3 warmup, 10 iterations, with GPU monitoring, batch size 1" in config.name(compact=False)
    assert replace(config, compile_kwargs={}).compiling == {"mode": "reduce-overhead", "fullgraph": True}
    assert len(config.hash) == 64 and config.hash != replace(config, batch_size=2).hash == replace(config, batch_size=2).hash


@pytest.mark.parametrize(
    ("asked", "flash", "left", "note"),
    [
        ({"attn_implementation": "flash_attention_2"}, False, {"attn_implementation": "sdpa"}, "not installed"),
        ({"attn_implementation": "flash_attention_2", "compile_kwargs": {}}, True, {"compile_kwargs": None}, "cannot be compiled"),
        ({"attn_implementation": "flex_attention", "continuous_batching": True}, True, {"continuous_batching": False}, "plain generate"),
        ({"continuous_batching": True, "compile_kwargs": {}}, True, {"compile_kwargs": {"mode": "default"}}, "the mode is default"),
        ({"continuous_batching": True, "compile_kwargs": {"mode": "default"}}, True, {}, ""),
    ],
)
def test_what_cannot_be_run_as_asked_is_changed_and_told(asked: dict[str, Any], flash: bool, left: dict[str, Any], note: str) -> None:
    config = LevelConfig(**asked)
    found, notes = levels.valid(config, flash=flash)
    assert found == replace(config, **left) and len(notes) == bool(note) and note in "".join(notes)


def test_a_config_means_a_case_of_ours() -> None:
    config = LevelConfig(attn_implementation="sdpa", compile_kwargs={"mode": "default"}, kernelize=True, continuous_batching=True)
    case = config.case("meta-llama/Llama-3.1-8B", preset="tiny")
    assert (
        case.variant == "kernelize+compile[fullgraph=true,mode=default]+continuous" and case.workload == "generate/meta-llama/Llama-3.1-8B"
    )
    assert dict(case.params) == {"attention": "sdpa", "batch": 1, "dtype": "bf16", "new": 128, "prompt": 128, "scale": "tiny"}


def test_rows_have_the_schema_of_the_original_and_the_values_of_the_closed_form(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("-b", "1", "4", "-s", "64", "-n", "2", "8", "--level", "1", "-i", "3", "-w", "0", "--push-result-to-dataset", "a/b")
    assert run(*words, "--commit-message", "why") == PASS
    out = capsys.readouterr()
    assert "12 ok" in out.err and "nothing is sent" in out.err and "p95 - (3 values)" in out.out
    found = rows()
    assert len(found) == 16
    for hash, row in found.items():
        config, measured, metadata = row["config"], row["measurements"], row["metadata"]
        assert hash == LevelConfig(**{key: value for key, value in config.items() if key != "name"}).hash
        assert {*metadata} >= {"model_id", "timestamp", "branch_name", "commit_id", "commit_message", "hardware_info", "success"}
        assert [*measured] == [
            "e2e_latency", "time_to_first_token", "inter_token_latency", "shape_and_decoded_outputs", "gpu_metrics", "timestamps",
        ]  # fmt: skip
        if config["continuous_batching"]:
            assert metadata["status"] == "unsupported" and not metadata["success"] and measured["e2e_latency"] == []
            assert metadata["requested"]["attn_implementation"] == "flash_attention_2" and config["attn_implementation"] == "sdpa"
            continue
        new = config["num_tokens_to_generate"]
        first, whole = closed_form(config["batch_size"], new, 0.8 if config["compile_kwargs"] else 1.0)
        assert measured["time_to_first_token"] == pytest.approx([first] * 3) and measured["e2e_latency"] == pytest.approx([whole] * 3)
        assert measured["inter_token_latency"] == pytest.approx([(whole - first) / new] * 3) and metadata["commit_message"] == "why"
        assert measured["shape_and_decoded_outputs"] == [f"({config['batch_size']}, {new})"] * 3
    [lines] = Path("benchmark_results/full_results").glob("*.jsonl")
    kept = [json.loads(line) for line in lines.read_text().splitlines()]
    assert {line["benchmark_config_hash"] for line in kept} < {*found} and [*kept[0]][1:] == ["config", "measurements", "metadata"]


def test_an_interrupted_run_goes_on_and_its_file_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("-b", "1", "-s", "8", "-n", "4", "--level", "1")
    keep = leveled.LevelSink.keep

    def stopped(sink: Any, key: str, *words: Any) -> Any:
        if len(sink.file) == 2:
            raise KeyboardInterrupt
        return keep(sink, key, *words)

    with monkeypatch.context() as patched:
        patched.setattr(leveled.LevelSink, "keep", stopped)
        assert run(*words) == 130
    assert len(rows()) == 2
    assert run(*words, "--resume") == PASS and len(rows()) == 4
    from steelyard.store.runs import Store

    assert len(Store.find().runs()) == 1


def test_configs_of_a_file_are_laid_under_the_sizes_of_the_command_line() -> None:
    Path("x.jsonl").write_text(
        '{"attn_implementation": "paged|sdpa", "name": "x"}\n\n# no config\n{"compile_kwargs": {}, "batch_size": 9}\n'
    )
    assert run("-b", "2", "-s", "8", "-n", "4", "--config-file", "x.jsonl", "-i", "2", "--no-gpu-monitoring") == PASS
    found = [row["config"] for row in rows().values()]
    assert {each["attn_implementation"] for each in found} == {"sdpa", "eager"} and {each["batch_size"] for each in found} == {2}
    assert all(each["name"].startswith("w3_i2-unmonitored-b2_s8_n4-") for each in found)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"batch_size": "1"}', 'batch_size: expected a whole number of at least 1, not "1"'),
        ('{"compile_kwargs": {"mod": "x"}}', "compile_kwargs: expected"),
        ('{"compile_kwargs": {"mode": "fast"}}', "expected one of default, reduce-overhead"),
        ('{"attn_implementation": "flash"}', "attn_implementation: expected one of flash_attention_2"),
        ('{"kernelize": 1, "warmup_iterations": -1}', "2 mistakes"),
        ("[]", "the file has no config"),
        ("[1]", "the config is not a JSON object"),
        ("{", "x.json"),
    ],
)
def test_a_wrong_value_in_a_file_is_told_with_file_and_key(text: str, said: str) -> None:
    Path("x.json").write_text(text)
    with pytest.raises(UsageError) as error:
        levels.read_configs(Path("x.json"))
    assert said in str(error.value) and "x.json" in str(error.value)


def test_an_unknown_key_is_told_and_left_alone_as_the_original_does() -> None:
    Path("x.json").write_text('{"kernelise": true}')
    assert levels.read_configs(Path("x.json")) == ([LevelConfig()], ["x.json  kernelise: unknown key, ignored; did you mean kernelize?"])


def test_wrong_command_lines_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("-s", "8", "-n", "4") == USAGE and "--batch-size is missing" in capsys.readouterr().err
    assert run("-b", "1", "-s", "8", "-n", "1") == USAGE and "no time between tokens" in capsys.readouterr().err
    assert run("-b", "1", "-s", "8", "-n", "4", "--level", "5") == USAGE
    assert run("-b", "1", "-s", "8", "-n", "4", "--config-file", "x.toml") == USAGE
    assert run("-b", "1", "-s", "8", "-n", "4", "--enable-tp", "--level", "0") == 1 and "tp_plan" in capsys.readouterr().out
    assert run("-b", "1", "-s", "8", "-n", "4", "--enable-tp", "--level", "0", "--strict-exit") == NOTHING
