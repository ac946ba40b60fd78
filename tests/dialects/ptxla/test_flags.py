"""Every flag of the original's runner, with its default and its choices."""

from __future__ import annotations

from dataclasses import fields, replace

import click
import pytest

from steelyard.dialects.ptxla.flags import FLAGS, SUITES, RunnerOptions, settle
from steelyard.dialects.ptxla.runner_command import command
from steelyard.errors import UsageError

DEFAULTS = {
    "--filter": (), "--exclude": (), "--filter-by-tier": (), "--exclude-by-tier": (), "--total-partitions": 1, "--partition-id": 0,
    "--no-skip": False, "--dry-run": False, "--accelerator": (), "--xla": (), "--dynamo": (), "--test": (), "--xla-flags": (),
    "--torch-xla2": (), "--enable-functionalization": False, "--keep-model-data-on-cuda": False, "--repeat": 10,
    "--iterations-per-run": 1, "--batch-size": None, "--randomize-input": False, "--collect-full-output": False,
    "--pure-wall-time": False, "--filter-by-single-graph": False, "--output-dirname": "./output/",
    "--output-basename": "results.jsonl", "--no-resume": False, "--timestamp": None, "--save-output": False, "--progress-bar": False,
    "--print-subprocess": False, "--log-level": "info", "--subprocess-timeout": 1800, "--experiment-config": None,
    "--model-config": None, "--verify": False, "--verify-iterations": 1, "--disable-tf32": False, "--matmul-precision": None,
    "--dump-hlo": False, "--save-ir-format": None, "--dump-dynamo-counters": False, "--collect-dynamo-counters": False,
    "--dump-pytorch-profiles": False, "--dump-pytorch-xla-metrics": False, "--profile-cuda-cpu": False,
    "--profile-cuda-cpu-individual-ops": False, "--profile-xla": False, "--profile-xla-duration-ms": 5000,
}  # fmt: skip
CHOICES = {
    "--accelerator": ["cpu", "cuda", "tpu"], "--xla": ["None", "PJRT", "XRT"], "--dynamo": ["None", "inductor", "openxla"],
    "--test": ["eval", "train"], "--torch-xla2": ["None", "extract_jax", "torch_export"],
    "--matmul-precision": ["default", "high", "highest"], "--save-ir-format": ["text", "hlo", "stablehlo"],
    "--log-level": ["critical", "error", "warning", "info", "debug"],
}  # fmt: skip
OURS = {"--suite-name", "--torchbench", "--policy", "--size", "--retry", "--threads", "--strict-exit", "--env"}


def given(*words: str) -> RunnerOptions:
    """The options that a command line makes."""
    made = command()
    with made.make_context("runner", ["--suite-name=dummy", *words]) as context:
        return RunnerOptions.from_plain(context.params)


@pytest.mark.parametrize(("name", "default"), DEFAULTS.items())
def test_an_absent_flag_has_the_originals_default(name: str, default: object) -> None:
    flag = next(flag for flag in FLAGS if name in flag.names)
    assert getattr(given(), flag.key) == default


def test_no_flag_is_missing_and_none_is_unknown() -> None:
    names = {name for flag in FLAGS for name in flag.names if name.startswith("--")}
    assert names == {*DEFAULTS, *OURS}
    assert {flag.key for flag in FLAGS} == {item.name for item in fields(RunnerOptions)}


@pytest.mark.parametrize(("name", "choices"), CHOICES.items())
def test_choices_are_the_originals(name: str, choices: list[str]) -> None:
    option = next(item for item in command().params if name in item.opts)
    assert isinstance(option.type, click.Choice)
    assert list(option.type.choices) == choices


def test_axes_and_filters_repeat_and_short_names_work() -> None:
    made = given("-k", "a", "--filter=b", "-x", "c", "--xla=None", "--xla=PJRT", "--filter-by-tier=1", "--filter-by-tier=2")
    assert (made.filter, made.exclude, made.xla, made.filter_by_tier) == (("a", "b"), ("c",), ("None", "PJRT"), (1, 2))


def test_options_survive_the_pipe() -> None:
    made = settle(given("--xla=None", "--batch-size=4", "--timestamp=12.5"))
    assert made.batch_size == 4
    assert RunnerOptions.from_plain(made.plain()) == made
    with pytest.raises(UsageError, match="no option named 'reapeat'"):
        RunnerOptions.from_plain({"reapeat": 1})


@pytest.mark.parametrize(
    ("disable", "asked", "effective"),
    [(False, None, "high"), (False, "highest", "high"), (True, None, "highest"), (True, "default", "default")],
)
def test_matmul_precision_counts_only_without_tf32(disable: bool, asked: str | None, effective: str) -> None:
    assert RunnerOptions(disable_tf32=disable, matmul_precision=asked).precision == effective


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"suite_name": ""}, "--suite-name is missing"),
        ({"suite_name": "torchbnch"}, "did you mean torchbench"),
        ({"repeat": 0}, "--repeat"),
        ({"total_partitions": 10}, "--total-partitions"),
        ({"total_partitions": 3, "partition_id": 3}, "--partition-id"),
        ({"model_config": "{}"}, "belong together"),
        ({"profile_xla": True, "profile_cuda_cpu": True}, "at once"),
        ({"suite_name": "torchbench"}, "--torchbench DIR"),
        ({"output_basename": "../x.jsonl"}, "--output-basename"),
        ({"filter": ("(",)}, "regular expression"),
        ({"subprocess_timeout": 0.0}, "more than 0"),
        ({"subprocess_timeout": float("inf")}, "--subprocess-timeout"),
        ({"timestamp": float("nan")}, "--timestamp"),
        ({"timestamp": -1.0}, "--timestamp"),
        ({"no_resume": True, "retry": "failed"}, "--no-resume deletes"),
        ({"size": "small"}, "--size is for"),
        ({"profile_xla_duration_ms": 0}, "--profile-xla-duration-ms"),
        ({"xla": ("PJR",)}, "did you mean PJRT"),
        ({"batch_size": "many"}, "--batch-size"),
        ({"batch_size": "0"}, "--batch-size"),
    ],
)
def test_nonsense_is_refused_before_anything_runs(words: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        settle(replace(RunnerOptions(suite_name="dummy"), **words))  # type: ignore[arg-type]
    assert message in str(caught.value)


def test_a_batch_size_is_a_number_or_that_of_the_first_stack() -> None:
    assert [settle(given(*words)).batch_size for words in ((), ("--batch-size=4",), ("--batch-size=same",))] == [None, 4, "same"]


def test_every_suite_settles() -> None:
    for suite in SUITES:
        assert settle(RunnerOptions(suite_name=suite, torchbench=".")).suite_name == suite
