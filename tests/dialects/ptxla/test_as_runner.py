"""`steelyard as ptxla runner` from end to end: real workers, real torch, and models that take their process down."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.dialects.ptxla.checkout import make
from tests.engine.drive import processes_below, steelyard

pytestmark = pytest.mark.torch
RUN = ("as", "ptxla", "runner")


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "output" / "results.jsonl").read_text().splitlines()]


def test_the_readmes_dry_run(tmp_path: Path) -> None:
    words = "--dynamo=openxla --dynamo=inductor --xla=PJRT --xla=None --test=eval --test=train --suite-name=dummy --accelerator=cpu"
    done = steelyard(*RUN, *words.split(), "--filter=^dummy$", "--dry-run", cwd=tmp_path)
    assert "Number of selected experiment configs: 4\n" in done.stderr
    assert "Number of selected model configs: 1\n" in done.stderr
    for xla, dynamo in (('"PJRT"', "openxla"), ("null", "inductor")):
        for test in ("eval", "train"):
            assert (
                f'--model-config={{"model_name": "dummy"}} --experiment-config={{"accelerator": "cpu", "xla": {xla}, "xla_flags": null, '
                f'"dynamo": "{dynamo}", "torch_xla2": null, "test": "{test}", "keep_model_data_on_cuda": false, '
                '"enable_functionalization": false}\n'
            ) in done.stderr
    assert not list(tmp_path.iterdir())


def test_eager_and_inductor_are_measured_and_verified_and_xla_says_what_it_needs(tmp_path: Path) -> None:
    words = ("--suite-name=dummy", "--accelerator=cpu", "--xla=None", "--xla=PJRT", "--test=eval", "--repeat=5", "--verify")
    done = steelyard(*RUN, *words, cwd=tmp_path)
    found = {(row["experiment"]["xla"], row["experiment"]["dynamo"]): row for row in rows(tmp_path)}
    assert list(found) == [(None, None), (None, "inductor"), ("PJRT", None), ("PJRT", "openxla")]
    for key in ((None, None), (None, "inductor")):
        assert len(found[key]["metrics"]["total_time"]) == 5
        assert found[key]["verification_code"] == "PASS"
        assert found[key]["verification_mean_rel_error"] < 0.02
    for key in (("PJRT", None), ("PJRT", "openxla")):
        assert found[key]["metrics"]["error"].startswith("unsupported: backend torch_xla needs torch_xla")
        assert "steelyard env create torch-xla" in found[key]["metrics"]["error"]
    assert "2 ok · 2 unsupported · saved output/results.jsonl" in done.stderr


def test_models_that_take_their_process_down_cost_one_row_each(tmp_path: Path) -> None:
    place = make(tmp_path / "bench", "crashes", "dies_at_the_end", "good", "needs_more", "raises")
    words = (f"--torchbench={place}", "--suite-name=torchbench", "--accelerator=cpu", "--xla=None", "--dynamo=None", "--test=train")
    done = steelyard(*RUN, *words, "--repeat=1", "--no-skip", "--print-subprocess", cwd=tmp_path)
    found = {row["model"]["model_name"]: row for row in rows(tmp_path)}
    assert len(rows(tmp_path)) == 5
    assert "SIGSEGV" in found["crashes"]["metrics"]["error"]
    assert found["crashes"]["steelyard"]["status"] == "crashed"
    assert found["raises"]["metrics"]["error"].startswith("failed: ValueError")
    assert "pip install a_package_that_nobody_has" in found["needs_more"]["metrics"]["error"]
    assert found["good"]["experiment"]["batch_size"] == 4
    assert len(found["good"]["metrics"]["total_time"]) == len(found["dies_at_the_end"]["metrics"]["total_time"]) == 1
    assert "\x1b" not in done.stderr
    assert "tail" not in found["needs_more"]["steelyard"] and "no weights" in found["raises"]["steelyard"]["trace"]


def test_profiles_counters_and_outputs_go_beside_the_row(tmp_path: Path) -> None:
    words = (
        "--suite-name=dummy", "--accelerator=cpu", "--xla=None", "--dynamo=None", "--test=train", "--repeat=2", "--iterations-per-run=2",
        "--profile-cuda-cpu", "--profile-cuda-cpu-individual-ops", "--dump-pytorch-profiles", "--dump-dynamo-counters",
        "--collect-dynamo-counters", "--save-output", "--collect-full-output", "--randomize-input",
    )  # fmt: skip
    steelyard(*RUN, *words, cwd=tmp_path)
    (row,) = rows(tmp_path)
    metrics = row["metrics"]
    assert list(metrics) == [
        "total_time", "per_iter_time", "dynamo_counters", "total_cpu_time_s", "total_cuda_time_s", "per_iter_cpu_time_s",
        "per_iter_cuda_time_s", "inductor_ops",
    ]  # fmt: skip
    assert all(len(values) == 2 for values in metrics.values())
    assert metrics["total_cpu_time_s"][0] > 0 and metrics["total_cuda_time_s"] == [0.0, 0.0]
    assert metrics["per_iter_cpu_time_s"] == [total / 2 for total in metrics["total_cpu_time_s"]]
    assert metrics["inductor_ops"][0]["aten::linear"]["num_of_calls"] == 6
    folder = tmp_path / "output" / "dummy"
    names = {str(path.relative_to(folder)).partition("-cpu-")[0]: path for path in folder.rglob("*") if path.is_file()}
    kinds = ("trace", "pytorch-profile", "dynamo-counters")
    assert set(names) == {"output", *(f"{number}/{kind}" for number in (0, 1) for kind in kinds)}
    assert sorted(row["steelyard"]["files"]) == sorted(["output", *kinds])
    assert json.loads(names["1/trace"].read_text())["traceEvents"]
    torch = pytest.importorskip("torch")
    saved = torch.load(row["outputs_file"], weights_only=True)
    assert {name.split(".")[1] for name in saved} == {"prediction", "loss", "gradients", "parameters"}


def test_pure_wall_time_needs_no_cuda(tmp_path: Path) -> None:
    words = (
        "--suite-name=dummy",
        "--accelerator=cpu",
        "--xla=None",
        "--dynamo=None",
        "--test=eval",
        "--repeat=1",
        "--iterations-per-run=2",
    )
    steelyard(*RUN, *words, "--pure-wall-time", cwd=tmp_path)
    metrics = rows(tmp_path)[0]["metrics"]
    assert list(metrics) == ["total_time", "per_iter_time"] and metrics["per_iter_time"] == [metrics["total_time"][0] / 2]


@pytest.mark.deep
def test_a_model_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    place, child = make(tmp_path / "bench", "hangs"), tmp_path / "child"
    words = (f"--torchbench={place}", "--suite-name=torchbench", "--accelerator=cpu", "--xla=None", "--dynamo=None", "--test=eval")
    steelyard(*RUN, *words, "--subprocess-timeout=10", cwd=tmp_path, env={"CHILD": str(child)})
    (row,) = rows(tmp_path)
    assert row["steelyard"]["status"] == "timeout"
    assert row["metrics"]["error"].startswith("timeout: no answer within 10")
    assert child.read_text().isdigit()
    assert processes_below(tmp_path) == []


def test_a_single_config_measures_what_the_whole_does(tmp_path: Path) -> None:
    config = '{"accelerator":"cpu","xla":null,"xla_flags":null,"dynamo":null,"torch_xla2":null,"test":"train"}'
    words = ("--suite-name=dummy", "--progress-bar", '--model-config={"model_name":"dummy"}', f"--experiment-config={config}")
    steelyard(*RUN, *words, "--repeat", "1", cwd=tmp_path)
    steelyard(*RUN, "--suite-name=dummy", "--accelerator=cpu", "--xla=None", "--dynamo=None", "--test=train", "--repeat=1", cwd=tmp_path)
    (row,) = rows(tmp_path)
    assert (row["experiment"]["test"], row["experiment"]["batch_size"]) == ("train", 16)


def test_cuda_where_there_is_none_is_a_row_and_no_failure(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    words = ("--suite-name=dummy", "--accelerator=cuda", "--xla=None", "--dynamo=inductor", "--test=eval")
    steelyard(*RUN, *words, cwd=tmp_path)
    assert rows(tmp_path)[0]["metrics"]["error"].startswith("unsupported: no cuda device here")
    steelyard(*RUN, *words, "--strict-exit", cwd=tmp_path, check=5)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--suite-name=dummy", "--model-config={}"), "belong together"),
        (("--suite-name=torchbench",), "--torchbench DIR"),
        (("--suite-name=dummy", "--filter-by-tier=9"), "no tier named '9'"),
    ],
)
def test_mistakes_cost_nothing(tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    done = steelyard(*RUN, *words, cwd=tmp_path, check=2)
    assert message in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_suite_must_be_named_and_the_choices_are_told(tmp_path: Path) -> None:
    said = steelyard(*RUN, cwd=tmp_path, check=2).stderr
    assert said.startswith("error: missing option '--suite-name'. Choose from: dummy, torchbench, steelyard, timm, transformers\n")
