"""A TorchBench checkout: its models by folder, and what its policy file does to them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from steelyard.dialects.ptxla import torchbench
from steelyard.dialects.ptxla.torchbench import BY_SGD, DENIED, ModelPolicy, matches, read_policy
from steelyard.errors import UsageError
from tests.dialects.ptxla.checkout import POLICY, make

EVAL = {"accelerator": "cpu", "xla": None, "dynamo": None, "test": "eval"}


@pytest.fixture
def policy(tmp_path: Path) -> ModelPolicy:
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY)
    return read_policy(file)


def test_models_are_folders_with_code_in_order(tmp_path: Path) -> None:
    assert torchbench.models(make(tmp_path, "good", "crashes")) == ["crashes", "good"]


def test_a_folder_that_is_no_checkout_says_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a checkout of TorchBench"):
        torchbench.models(tmp_path)


def test_the_policy_file_of_a_checkout_is_found(tmp_path: Path) -> None:
    assert torchbench.policy_file(make(tmp_path / "a", "good")) is None
    found = torchbench.policy_file(make(tmp_path / "b", "good", policy=POLICY))
    assert found is not None and found.name == "torchbench.yaml"


@pytest.mark.parametrize(
    ("model", "words", "skipped"),
    [
        ("crashes", {}, "this model"),
        ("deeper", {}, "this model"),
        ("alone", {}, "this model"),
        ("only_inference", {"test": "train"}, "in training"),
        ("only_inference", {}, ""),
        ("only_cpu", {"accelerator": "cuda"}, "on cuda"),
        ("only_cpu", {}, ""),
        ("good", {"test": "train", "dynamo": "inductor"}, "denied: test=train, dynamo=inductor"),
        ("good", {"test": "train"}, ""),
        ("good", {"dynamo": "inductor"}, ""),
    ],
)
def test_skips(policy: ModelPolicy, model: str, words: dict[str, Any], skipped: str) -> None:
    found = policy.skip(model, EVAL | words)
    assert skipped in found and bool(skipped) == bool(found)


def test_an_entry_denies_where_all_its_keys_are_equal() -> None:
    entry = {"test": "eval", "xla": "PJRT", "dynamo": None}
    assert matches(entry, EVAL | {"xla": "PJRT"})
    assert not matches(entry, EVAL | {"xla": "PJRT", "dynamo": "openxla"})
    assert not matches(entry, EVAL)
    assert matches({}, EVAL)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("cm3leon_generate", {"xla": "PJRT"}),
        ("hf_T5_generate", {"xla": "PJRT"}),
        ("resnet50_quantized_qat", {"accelerator": "cuda"}),
        ("mobilenet_v2_quantized_qat", {"accelerator": "tpu", "xla": "PJRT"}),
    ],
)
def test_the_originals_own_deny_list(model: str, words: dict[str, Any]) -> None:
    made = read_policy(None, DENIED)
    assert made.skip(model, EVAL | words).startswith("denied")
    assert not made.skip(model, EVAL)


def test_batch_size_is_the_users_then_the_policys_then_the_models(policy: ModelPolicy) -> None:
    assert policy.batch_size("good", "eval", 3) == 3
    assert [policy.batch_size("good", test, None) for test in ("eval", "train")] == [6, 2]
    assert policy.batch_size("other", "eval", None) is None
    assert [policy.batch_size("fixed", test, 3) for test in ("eval", "train")] == [None, 7]


def test_what_it_says_about_a_model(policy: ModelPolicy) -> None:
    told = policy.for_model("good", "eval", None)
    assert (told["tolerance"], told["cosine"], told["sgd"], told["unverified"]) == (0.5, False, False, False)
    assert policy.for_model("turned", "eval", None)["cosine"]
    assert policy.for_model("uncast", "eval", None)["cast"] and not told["cast"]
    assert policy.for_model("random", "eval", None)["unverified"]
    assert policy.for_model("alexnet", "train", None)["sgd"]
    assert (told["iou"], told["multiplier"]) == (None, None) and told["batch_size"] == 6
    assert len(BY_SGD) == len(set(BY_SGD)) == 25


def test_masks_and_multipliers_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("iou: {masked: 0.9, whole: 1}\nmax_multiplier: [masked]\n")
    made = read_policy(file)
    assert [made.for_model(name, "eval", None)["iou"] for name in ("masked", "whole", "other")] == [0.9, 1.0, None]
    assert [made.for_model(name, "eval", None)["multiplier"] for name in ("masked", "other")] == [10.0, None]
    for text in ("iou: {masked: 2}", "iou: {masked: true}", "iou: {masked: much}", "iou: [masked]"):
        file.write_text(text)
        with pytest.raises(UsageError, match="iou"):
            read_policy(file)


def test_expected_failures(policy: ModelPolicy) -> None:
    assert policy.expects_failure("raises", EVAL)
    assert not policy.expects_failure("raises", EVAL | {"test": "train"})
    assert not policy.expects_failure("good", EVAL)


@pytest.mark.parametrize("text", ["[1]", "skip: [a]", "deny: [a]", "deny: {a: [b]}", "a: ["])
def test_a_policy_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(text)
    with pytest.raises(UsageError, match=r"policy\.yaml"):
        read_policy(file)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("deny: {good: {tset: train}}", "no axis in deny.good named 'tset'"),
        ("deny: {good: {dynmo: null}}", "did you mean dynamo"),
        ("expected_failures: {good: [{test: eval, acelerator: cpu}]}", "did you mean accelerator"),
        ("denny: {good: {test: train}}", "did you mean deny"),
        ("expected_failure: {good: {test: train}}", "did you mean expected_failures"),
        ("max_multipliers: [good]", "did you mean max_multiplier"),
    ],
)
def test_a_misspelt_policy_is_refused_and_does_not_hold_for_all_or_none(tmp_path: Path, text: str, expected: str) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(text)
    with pytest.raises(UsageError, match=expected):
        read_policy(file)


def test_keys_of_a_newer_original_are_let_be(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("detectron2_models: [a]\nonly_training: [b]\ndtype: {force_another: [c]}\n")
    assert read_policy(file) == ModelPolicy()


def test_lists_of_lists_of_lists_are_read_flat(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("a: &a [one, two]\nb: &b [*a, *a, three]\nskip: {all: [*b, [*a, [four]]]}\n")
    assert read_policy(file).skipped == frozenset({"one", "two", "three", "four"})


@pytest.mark.parametrize("last", ["skip: {all: [*a11]}", "loop: &loop [*loop]", "non_deterministic: &me [three, *me]"])
def test_aliases_without_end_are_refused(tmp_path: Path, last: str) -> None:
    levels = ["a0: &a0 [one, two]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12))]
    file = tmp_path / "policy.yaml"
    file.write_text("\n".join([*(levels if "a11" in last else []), last]))
    with pytest.raises(UsageError, match="aliases of aliases"):
        read_policy(file)


def test_an_empty_policy_says_nothing(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("")
    assert read_policy(file) == ModelPolicy()
