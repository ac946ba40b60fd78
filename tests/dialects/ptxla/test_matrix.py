"""The matrix: its order, the rules that drop combinations, the choice of models, and what makes a config itself."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.dialects.ptxla import matrix
from steelyard.dialects.ptxla.flags import RunnerOptions
from steelyard.dialects.ptxla.matrix import (
    AXES,
    LEAVING,
    MEANING,
    Facts,
    basename,
    choose,
    dropping,
    expand,
    fingerprint,
    folder,
    partition,
)
from steelyard.errors import UsageError

DUMMY = RunnerOptions(suite_name="dummy")


def point(**words: Any) -> matrix.Experiment:
    """One experiment: eager on a CPU unless said otherwise."""
    usual = dict.fromkeys(AXES) | {
        "accelerator": "cpu", "test": "eval", "keep_model_data_on_cuda": False, "enable_functionalization": False,
    }  # fmt: skip
    return usual | words


NO_DEVICE = Facts(lambda accelerator, xla: False)
HEAD = Facts(head=True)


@pytest.mark.parametrize(
    ("words", "facts", "rule"),
    [
        ({}, None, None),
        ({"dynamo": "inductor"}, None, None),
        ({"xla": "PJRT"}, None, None),
        ({"xla": "PJRT", "dynamo": "openxla"}, None, None),
        ({"accelerator": "tpu", "xla": "PJRT"}, None, None),
        ({"accelerator": "tpu", "xla": "XRT"}, None, None),
        ({"torch_xla2": "extract_jax"}, None, None),
        ({"dynamo": "tvm"}, None, 1),
        ({"torch_xla2": "extract_jax", "dynamo": "inductor"}, None, 2),
        ({"xla": "PJRT", "dynamo": "inductor"}, None, 3),
        ({"accelerator": "tpu", "dynamo": "inductor"}, None, 3),
        ({"dynamo": "openxla"}, None, 4),
        ({"xla": "PJRT"}, NO_DEVICE, 5),
        ({"xla": "PJRT", "torch_xla2": "torch_export"}, NO_DEVICE, None),
        ({}, NO_DEVICE, None),
        ({"accelerator": "tpu"}, None, 6),
        ({"xla": "XRT"}, None, 7),
        ({"accelerator": "cuda", "xla": "XRT", "dynamo": "openxla"}, None, 7),
        ({"accelerator": "cuda", "xla": "PJRT"}, None, None),
        ({"accelerator": "cuda", "xla": "PJRT"}, HEAD, 8),
        ({"accelerator": "cuda"}, HEAD, None),
        ({"keep_model_data_on_cuda": True}, None, 9),
        ({"keep_model_data_on_cuda": True, "xla": "PJRT", "dynamo": "openxla", "accelerator": "cuda"}, None, None),
    ],
)
def test_rejection_rules(words: dict[str, Any], facts: Facts | None, rule: int | None) -> None:
    found = dropping(point(**words), facts)
    assert (found.number if found else None) == rule


def test_the_readme_command_keeps_four_of_eight() -> None:
    asked = replace(DUMMY, dynamo=("openxla", "inductor"), xla=("PJRT", "None"), test=("eval", "train"), accelerator=("cuda",))
    found = expand(asked)
    kept = [(item["dynamo"], item["xla"], item["test"]) for item in found.kept]
    assert kept == [("openxla", "PJRT", "eval"), ("openxla", "PJRT", "train"), ("inductor", None, "eval"), ("inductor", None, "train")]
    assert len(found.dropped) == 4
    assert {item.rule.number for item in found.dropped} == {3, 4}


def test_axes_that_are_not_given_have_all_values() -> None:
    found = expand(replace(DUMMY, accelerator=("cpu",), xla=("PJRT", "None")))
    assert (len(found.kept), len(found.dropped)) == (8, 4)


def test_order_is_that_of_the_axes_and_repeated_values_count_once() -> None:
    asked = replace(DUMMY, accelerator=("cpu",), xla=("None", "None"), dynamo=("inductor", "None"), test=("train", "eval"))
    found = [(item["dynamo"], item["test"]) for item in expand(asked).kept]
    assert found == [("inductor", "train"), ("inductor", "eval"), (None, "train"), (None, "eval")]
    assert [expand(asked) for _ in range(5)] == [expand(asked)] * 5


def test_the_line_of_a_config_is_the_originals() -> None:
    experiment = expand(replace(DUMMY, accelerator=("cpu",), xla=("PJRT",), dynamo=("openxla",), test=("eval",))).kept[0]
    assert matrix.line({"model_name": "dummy"}, experiment) == (
        '--model-config={"model_name": "dummy"} --experiment-config={"accelerator": "cpu", "xla": "PJRT", "xla_flags": null, '
        '"dynamo": "openxla", "torch_xla2": null, "test": "eval", "keep_model_data_on_cuda": false, "enable_functionalization": false}'
    )


def test_partitions_are_equal_and_the_last_takes_the_rest() -> None:
    names = [str(number) for number in range(11)]
    assert [len(partition(names, 3, part)) for part in range(3)] == [3, 3, 5]


@given(st.integers(0, 40), st.integers(1, 9))
def test_partitions_lose_nothing(count: int, parts: int) -> None:
    names = [str(number) for number in range(count)]
    assert [name for part in range(parts) for name in partition(names, parts, part)] == names


def test_models_are_chosen_by_part_then_by_name_and_tier() -> None:
    names = ["alexnet", "BERT_pytorch", "dlrm", "hf_Bert", "drq"]
    assert choose(names, replace(DUMMY, filter=("bert",))) == ["BERT_pytorch", "hf_Bert"]
    assert choose(names, replace(DUMMY, filter=("^alex", "drq$"), exclude=("Q",))) == ["alexnet"]
    assert choose(names, replace(DUMMY, filter_by_tier=(1,))) == ["BERT_pytorch", "dlrm"]
    assert choose(names, replace(DUMMY, exclude_by_tier=(2, 3))) == ["BERT_pytorch", "dlrm"]
    assert choose(names, replace(DUMMY, filter=("bert",), total_partitions=2, partition_id=1)) == ["hf_Bert"]


def test_a_tier_that_is_none_is_an_error_and_not_everything() -> None:
    with pytest.raises(UsageError, match="tier"):
        choose(["dlrm"], replace(DUMMY, filter_by_tier=(4,)))


def test_configs_from_the_command_line_are_whole_and_checked() -> None:
    assert matrix.read_model('{"model_name": "dummy", "suite_name": "dummy"}', "dummy") == {"model_name": "dummy"}
    made = matrix.read_experiment('{"xla": "PJRT", "test": "train", "accelerator": "cuda", "batch_size": 3}')
    assert made == point(xla="PJRT", test="train", accelerator="cuda")
    assert list(made) == list(AXES)


@pytest.mark.parametrize(
    "text",
    [
        "{", "[]", '{"acelerator": "cpu"}', '{"test": "trian"}', '{"dynamo": "tvm"}', '{"xla_flags": 3}', '{"xla_flags": "a\\u0000b"}',
        '{"torch_xla2": "extract"}', '{"enable_functionalization": "false"}', '{"test": "eval", "test": "train"}', "[" * 100_000,
    ],
)  # fmt: skip
def test_an_experiment_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        matrix.read_experiment(text)


@pytest.mark.parametrize("text", ["{}", '{"model_name": ""}', '{"model_name": 3}', '{"model_name": "m", "suite_name": "timm"}'])
def test_a_model_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        matrix.read_model(text, "dummy")


@pytest.mark.parametrize("told", ['"3"', "true", "0", "2.5"])
def test_a_batch_size_that_is_none_is_refused(told: str) -> None:
    assert matrix.read_batch_size('{"batch_size": null}', 4) == matrix.read_batch_size('{"batch_size": 4}', 4) == 4
    with pytest.raises(UsageError, match="batch_size must be a whole number"):
        matrix.read_batch_size(f'{{"batch_size": {told}}}', None)


CHANGED: dict[str, Any] = {
    "repeat": 3, "iterations_per_run": 2, "batch_size": 5, "verify_iterations": 4, "matmul_precision": "default",
    "size": "small", "threads": 1, "save_ir_format": "hlo",
}  # fmt: skip


@pytest.mark.parametrize("name", (*MEANING, *LEAVING))
def test_a_changed_flag_is_a_new_config(name: str) -> None:
    changed = replace(DUMMY, **{name: CHANGED.get(name, True)})
    assert fingerprint("dummy", {"model_name": "m"}, point(), changed) != fingerprint("dummy", {"model_name": "m"}, point(), DUMMY)


def test_flags_that_say_only_where_and_when_are_no_part_of_a_config() -> None:
    other = replace(DUMMY, output_dirname="elsewhere", timestamp=3.0, print_subprocess=True, filter=("x",), retry="failed")
    assert fingerprint("dummy", {"model_name": "m"}, point(), other) == fingerprint("dummy", {"model_name": "m"}, point(), DUMMY)


def test_side_files_have_names_that_are_the_same_in_every_process_and_lead_nowhere() -> None:
    experiment = point(xla_flags="--xla_a=1 --xla_b=../../etc --xla_c=3")
    made = basename({"model_name": "../m"}, experiment)
    assert made == basename({"model_name": "../m"}, dict(experiment))
    assert "/" not in made and " " not in made


@pytest.mark.parametrize("name", ["..", "../../etc", "/etc", ".hidden", "a b", "a\x1b[2J", "\ud800", "x" * 300, "é" * 300, "\0"])
def test_a_model_has_a_folder_of_its_own_and_in_the_output(name: str) -> None:
    made = folder({"model_name": name})
    assert re.fullmatch(r"[A-Za-z0-9_=+-][A-Za-z0-9_.=+-]{0,99}", made)
    assert made != folder({"model_name": name.replace("/", "_") + "_"})
    assert basename({"model_name": name}, point()).isascii()


def test_names_that_differ_have_folders_and_files_that_differ() -> None:
    names = ["a/b", "a_b", "a b", "x" * 300, "x" * 301, "..", "."]
    assert len({folder({"model_name": name}) for name in names}) == len({basename({"model_name": name}, point()) for name in names}) == 7
    flags = ["--a=1 --b=2", "--a=1_--b=2", "--a=1\t--b=2"]
    assert len({basename({"model_name": "m"}, point(xla_flags=text)) for text in flags}) == 3
