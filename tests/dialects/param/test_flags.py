"""The original's flags with their spellings and defaults, and what cannot be had together."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from steelyard.cli.main import main
from steelyard.dialects.param.command import command
from steelyard.dialects.param.flags import FLAGS, Options, settle
from steelyard.errors import UsageError

ORIGINAL = {
    "config": "", "warmup": 1, "iteration": 1, "backward": False, "device": "cpu", "output_prefix": "benchmark_result",
    "resume_id": None, "stop_id": None, "append": False, "cuda_l2_cache": "on", "exec_mode": "discrete", "profile": False, "et": False,
    "cupti_profiler": False, "cupti_profiler_metrics": "kineto__cuda_core_flops", "cupti_profiler_measure_per_kernel": False,
    "ncu": False, "ncu_warmup": 5, "ncu_iteration": 1, "nsys": False, "nsys_warmup": 5, "nsys_iteration": 10, "run_batch_size": 50,
    "pt2_model": False, "cuda_graph": False, "log_level": "INFO",
}  # fmt: skip


def parsed(*words: str) -> dict[str, Any]:
    """What the command line makes of some words."""
    return command.make_context("param", list(words)).params


def test_defaults_are_those_of_the_original() -> None:
    found = parsed()
    assert {name: found[name] for name in ORIGINAL} == ORIGINAL
    assert {name: getattr(Options(), name) for name in ORIGINAL} == ORIGINAL


def test_every_option_has_a_flag_and_every_flag_an_option() -> None:
    assert {flag.key for flag in FLAGS} == {field.name for field in fields(Options)} - {"threads"}
    assert Options.from_plain({name: value for name, value in parsed().items() if name not in ("version", "strict_exit")}) == Options()


@pytest.mark.parametrize(
    ("words", "key", "value"),
    [
        ("-c x.json", "config", "x.json"), ("--config x.json", "config", "x.json"), ("-w 3", "warmup", 3), ("--warmup=0", "warmup", 0),
        ("-i 7", "iteration", 7), ("--iteration 7", "iteration", 7), ("-b", "backward", True), ("--backward", "backward", True),
        ("-d cuda:1", "device", "cuda:1"), ("-o out", "output_prefix", "out"), ("--output-prefix out", "output_prefix", "out"),
        ("-r a|0|0|0", "resume_id", "a|0|0|0"), ("--resume-id a|0|0|0", "resume_id", "a|0|0|0"),
        ("-s a|0|0|0", "stop_id", "a|0|0|0"), ("--stop_id a|0|0|0", "stop_id", "a|0|0|0"), ("-a", "append", True),
        ("--cuda-l2-cache", "cuda_l2_cache", "off"), ("--cuda-l2-cache -b", "cuda_l2_cache", "off"),
        ("--cuda-l2-cache on", "cuda_l2_cache", "on"), ("--exec-mode continuous_events", "exec_mode", "continuous_events"),
        ("-p", "profile", True), ("--et", "et", True), ("--cupti-profiler", "cupti_profiler", True),
        ("--cupti-profiler-metrics a,b", "cupti_profiler_metrics", "a,b"),
        ("--cupti-profiler-measure-per-kernel", "cupti_profiler_measure_per_kernel", True),
        ("--ncu --ncu-bin n", "ncu_bin", "n"), ("--ncu-args-file f", "ncu_args_file", "f"), ("--ncu-warmup 2", "ncu_warmup", 2),
        ("--nsys-iteration 3", "nsys_iteration", 3), ("--run-batch-size 9", "run_batch_size", 9),
        ("--batch-cuda-device 0", "batch_cuda_device", 0), ("--batch-cmd run", "batch_cmd", "run"), ("--pt2-model", "pt2_model", True),
        ("--cuda-graph", "cuda_graph", True), ("-l DEBUG", "log_level", "DEBUG"), ("--version", "version", True),
        ("--fail-fast", "fail_fast", True), ("--fail-fast --keep-going", "fail_fast", False), ("--seed 4", "seed", 4),
        ("--file a.py --file b.py", "files", ("a.py", "b.py")),
    ],
)  # fmt: skip
def test_spellings(words: str, key: str, value: Any) -> None:
    assert parsed(*words.split())[key] == value


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--exec-mode", "--exec-mode needs one of discrete, continuous, continuous_events"),
        ("--exec-mode -b", "--exec-mode needs one of"),
        ("--exec-mode fast", "is not one of"),
        ("-w -1", "-1"),
        ("-d cuda --device /etc", "not a device"),
        ("-l LOUD", "no log level named 'LOUD'"),
        ("--cupti-profiler", "--cupti-profiler needs an NVIDIA GPU"),
        ("--ncu", "--ncu needs an NVIDIA GPU"),
        ("--nsys", "--nsys needs an NVIDIA GPU"),
        ("--run-batch-size 0", "--run-batch-size must be a whole number from 1"),
        ("--timeout 0s", "--timeout must be more than 0"),
        ("--wramup 2", "did you mean --warmup"),
    ],
)
def test_what_cannot_be_had_is_said_before_anything_runs(words: str, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["as", "param", "-c", "missing.json", *words.split()]) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "changed", "told"),
    [
        (Options(cuda_graph=True), {"cuda_graph": False}, "--cuda-graph is off"),
        (Options(cuda_l2_cache="off"), {}, "does nothing here"),
        (Options(append=True), {}, "-o FILE.json"),
        (Options(device="cuda", cupti_profiler=True), {"profile": True}, ""),
        (Options(log_level="debug"), {"log_level": "DEBUG"}, ""),
    ],
)
def test_options_are_made_to_fit(given: Options, changed: dict[str, Any], told: str) -> None:
    found, warnings = settle(given)
    assert found == replace(given, **changed)
    assert [told in text for text in warnings] == ([True] if told else [])


def test_a_name_that_is_no_option_gives_the_nearest() -> None:
    with pytest.raises(UsageError, match="no option named 'iterations'\n  did you mean iteration"):
        Options.from_plain({"iterations": 3})


def test_plain_comes_back_the_same() -> None:
    asked = Options(config="a.json", files=("x.py",), seed=3, timeout=1.5)
    assert Options.from_plain(asked.plain()) == asked


def test_without_a_config_there_is_usage_and_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["as", "param"]) == 0
    assert capsys.readouterr().out.startswith("Usage: steelyard as param")
    assert main(["as", "param", "--version"]) == 0
    assert capsys.readouterr().out.startswith("steelyard ")


def test_a_dialect_that_is_none_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["as", "parma"]) == 2
    assert "no dialect named 'parma'" in capsys.readouterr().err
    assert main(["as"]) == 2
