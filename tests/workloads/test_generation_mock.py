"""Requests of known times: the mock's closed form in records, fixed protocols and comparisons, and faults with their own statuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from steelyard.cli.main import main
from steelyard.errors import USAGE
from steelyard.workloads.generation.mock import closed_form
from tests.engine.drive import steelyard

WORDS = ("run", "generate/mock", "--json")


def run(tmp_path: Path, *words: str, check: int = 0) -> Any:
    return json.loads(steelyard(*WORDS, *words, cwd=tmp_path, check=check).stdout)


@pytest.mark.parametrize(("batch", "new", "variant", "share"), [(1, 32, "eager", 1.0), (4, 8, "eager", 1.0), (2, 100, "kernelize", 0.6)])
def test_figures_are_the_closed_form(tmp_path: Path, batch: int, new: int, variant: str, share: float) -> None:
    (record,) = run(tmp_path, "-a", f"batch={batch}", "-a", f"new={new}", "-V", variant)["records"]
    first, whole = closed_form(batch, new, share)
    figures = {name: item["value"] for name, item in record["metrics"].items()}
    assert figures["ttft"] == pytest.approx(first, abs=2e-9) and figures["time"] == pytest.approx(whole, abs=2e-7)
    assert figures["itl"] == pytest.approx((whole - first) / new, abs=2e-8)
    assert figures["item_rate"] == pytest.approx(batch * new / whole, rel=1e-6) and record["effective"]["mock_benchmark"] is True


def test_scatter_comes_from_the_seed(tmp_path: Path) -> None:
    words = ("-a", "scatter=1.0", "--fixed", "1+12")
    first, again = (run(tmp_path, *words)["records"][0] for _ in range(2))
    assert first["metrics"]["ttft"] == again["metrics"]["ttft"] and first["metrics"]["ttft"]["low"] < first["metrics"]["ttft"]["high"]
    assert first["metrics"]["ttft"]["low"] >= 0.135 and first["metrics"]["ttft"]["high"] <= 0.165


def test_a_fixed_number_of_requests_is_kept_request_by_request(tmp_path: Path) -> None:
    (record,) = run(tmp_path, "--fixed", "3+10", "-a", "new=5")["records"]
    counts = {series["name"]: series["count"] for series in record["samples"]}
    assert (counts["request_time"], counts["request_ttft"], counts["request_itl"], counts["request_tail"]) == (10, 10, 40, 10)
    assert record["metrics"]["ttft"]["n"] == 10 and record["metrics"]["time"]["n"] == 10


def test_each_part_has_a_verdict(tmp_path: Path) -> None:
    found = run(tmp_path, "-V", "eager,compile", "--vs", "eager", "--budget", "30s")
    (pair,) = found["pairs"]
    assert set(pair["parts"]) == {"ttft", "itl", "tpot"}
    for part in pair["parts"].values():
        assert part["ratio"] == pytest.approx(0.8, rel=1e-3) and part["high"] < 0.81
        assert part["head"]["value"] == pytest.approx(0.8 * part["base"]["value"], rel=1e-3)


@pytest.mark.parametrize(("fault", "words"), [("early", "16 tokens came instead of 32; generation ended early"), ("back", "do not add up")])
def test_a_request_that_cannot_be_is_failed_and_the_rest_goes_on(tmp_path: Path, fault: str, words: str) -> None:
    bad, good = run(tmp_path, "-a", f"fault={fault},none", check=3)["records"]
    assert (bad["status"], good["status"]) == ("failed", "ok") and words in bad["reason"]


def test_out_of_memory_at_one_batch_is_its_own_status_and_the_rest_goes_on(tmp_path: Path) -> None:
    bad, good = run(tmp_path, "-a", "fault=memory", "-a", "batch=8,1", check=3)["records"]
    assert (bad["status"], good["status"]) == ("oom", "ok") and "8 rows do not fit" in bad["reason"]


REFUSED = {
    "generate/mock -a batch=-1,1": "batch is -1\n  give at least 1",
    "generate/mock -a prompt=0": "prompt is 0\n  give at least 1",
    "generate/mock -a fault=none,erly": "no fault named 'erly'\n  did you mean early",
    "generate/llama -a new=0": "new is 0\n  give at least 1",
    "generate/llama -a cache=statik": "no cache named 'statik'",
    "generate/llama -a attention=sdqa": "did you mean sdpa",
    "generate/local": "no folder is named",
    "generate/local -a folder=nowhere": "there is no model in 'nowhere'",
    "generate/local -a folder=pickled": "it has pickled weights, which can run code",
    "generate/local -a folder=coded": "code from a folder is never run",
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_could_run_nowhere_is_refused_before_anything_is_timed(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, config, weights in (("pickled", "{}", "pytorch_model.bin"), ("coded", '{"auto_map": {}}', "model.safetensors")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(config.replace("{", '{"model_type": "llama", ', 1).replace(", }", "}"))
        (tmp_path / name / weights).touch()
    assert main(["run", *words.split()]) == USAGE and REFUSED[words] in capsys.readouterr().err


def test_a_file_with_such_a_size_is_told_with_its_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "sizes.toml"
    file.write_text('[[matrix]]\nworkload = ["generate/mock"]\n[matrix.axes]\nbatch = [1, 0]\nprompt = [8]\n')
    assert main(["check", str(file)]) == USAGE and "matrix[0] batch is 0" in capsys.readouterr().out


def test_a_model_that_repeats_a_token_is_wrong(tmp_path: Path) -> None:
    good, bad = run(tmp_path, "-V", "eager,stuck", check=3)["records"]
    assert (good["status"], bad["status"]) == ("ok", "wrong")
    assert "the first that differs is number 2" in bad["reason"] and bad["metrics"]["equal_tokens"]["value"] < 0.1
