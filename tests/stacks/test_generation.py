"""Generation with transformers for real: every way beside eager with its tokens checked, local folders, and planted faults."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from steelyard.cli.main import main
from steelyard.errors import USAGE
from tests.stacks.test_torch_xla import measure

pytestmark = [pytest.mark.stacks, pytest.mark.timeout(3600)]
HERE = ("--env", "transformers", "--budget", "500ms")

FAULTS = '''
import copy
from dataclasses import replace
from steelyard import variant

def other(task, **how):
    module = copy.copy(task.fn)
    module.how = replace(module.how, **how)
    return replace(task, fn=module)

@variant("falls-back")
def falls_back(task):
    """Says that it uses another attention, and does not."""
    return other(task, attention="eager")

@variant("cut-short")
def cut_short(task):
    """Reads half of the prompt."""
    made, whole = other(task), task.fn.model.generate
    def half(prompt, attention_mask=None, **more):
        keep = prompt.shape[1] // 2
        found = whole(prompt[:, keep:], attention_mask=attention_mask[:, keep:], **more)
        import torch
        return torch.cat([prompt[:, :keep], found], dim=1)
    made.fn.model.generate = half
    return made

@variant("ends-early")
def ends_early(task):
    """Gives fewer tokens than asked for."""
    return other(task, more={"max_new_tokens": 3, "min_new_tokens": 3})

@variant("stuck")
def stuck(task):
    """Says one token again and again."""
    made = other(task)
    import torch
    with torch.no_grad():
        made.fn.model.get_output_embeddings().weight.fill_(0)
        made.fn.model.get_output_embeddings().weight[7] = 1e3
    return made

@variant("does-nothing")
def does_nothing(task):
    """The task as it is."""
    return task
'''


@pytest.fixture(autouse=True)
def with_transformers(apart: Path, built: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEELYARD_ENVS", built("transformers"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def test_every_way_is_verified_by_its_tokens_and_has_all_times(tmp_path: Path) -> None:
    ways = "eager,compile,kernelize,attention-eager,continuous,assisted,int8wo"
    table, records = measure(tmp_path, "generate/llama", "-V", ways, "--vs", "eager", *HERE)
    found = {record["case"]["variant"]: record for record in records}
    assert list(found) == ways.split(",") and "vs eager, 99 %" in table and "TTFT" in table
    for name, record in found.items():
        assert (record["status"], record["verification"]["status"]) == ("ok", "passed"), (name, record["reason"])
        assert {"time", "ttft", "itl", "tpot", "item_rate", "equal_tokens"} <= set(record["metrics"]), name
        assert record["effective"]["weights"] == "seeded" and record["effective"]["prompt"] == 64
        if name != "int8wo":
            assert record["metrics"]["equal_tokens"]["value"] > 0.9, name
    assert found["compile"]["effective"]["graphs"] >= 1 and found["compile"]["effective"]["cache"] == "static"
    assert found["kernelize"]["effective"]["kernelized"] == 5
    assert found["attention-eager"]["effective"]["attention"] == "eager"
    assert found["continuous"]["effective"]["rows"] == "apart"
    assert found["int8wo"]["metrics"]["model_bytes"]["value"] < found["int8wo"]["effective"]["bytes_before"]


@pytest.mark.parametrize(
    ("variant", "status", "words"),
    [
        ("falls-back", "not_applied", "attention eager was asked for, and sdpa was used"),
        ("cut-short", "not_applied", "a prompt of 64 tokens was asked for, and 32 were read"),
        ("ends-early", "failed", "3 tokens came instead of 32; generation ended early"),
        ("stuck", "wrong", "of the tokens are those of the plain task"),
        ("does-nothing", "not_applied", "changed nothing"),
    ],
)
def test_planted_faults_have_their_own_statuses_and_the_rest_goes_on(tmp_path: Path, variant: str, status: str, words: str) -> None:
    (tmp_path / "faults.py").write_text(FAULTS)
    _, records = measure(
        tmp_path, "faults.py", "generate/llama", "-V", f"{variant},eager", *HERE, check=3 if status != "not_applied" else 0
    )
    bad, good = records
    assert (bad["status"], good["status"]) == (status, "ok") and words in bad["reason"]


def test_too_large_a_batch_is_out_of_memory_and_the_rest_goes_on(tmp_path: Path) -> None:
    _, records = measure(tmp_path, "generate/llama", "-a", "batch=60000,1", "--memory", "3GiB", *HERE, check=3)
    assert [record["status"] for record in records] == ["oom", "ok"]


def test_a_local_folder_is_read_and_pickles_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "save.py"
    script.write_text(
        "import sys, torch\nfrom transformers import AutoModelForCausalLM, LlamaConfig\n"
        "config = LlamaConfig(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=128,"
        " vocab_size=100)\ntorch.manual_seed(0)\nmodel = AutoModelForCausalLM.from_config(config)\n"
        "model.save_pretrained(sys.argv[1])\nconfig.save_pretrained(sys.argv[2])\n"
        "torch.save(model.state_dict(), sys.argv[2] + '/pytorch_model.bin')\n"
    )
    python = Path(os.environ["STEELYARD_ENVS"]) / "transformers" / "bin" / "python"
    subprocess.run([python, script, tmp_path / "good", tmp_path / "bad"], check=True, capture_output=True, timeout=300)
    _, (record,) = measure(tmp_path, "generate/local", "-a", f"folder={tmp_path / 'good'}", *HERE)
    assert record["status"] == "ok" and record["effective"]["weights"] == "of the folder"
    assert main(["run", "generate/local", "-a", f"folder={tmp_path / 'bad'}", *HERE]) == USAGE
    assert "pickled weights, which can run code" in capsys.readouterr().err


def test_ids_have_the_sizes_of_their_models_or_a_small_one_of_their_kind(tmp_path: Path) -> None:
    ids = ("generate/meta-llama/Llama-3.1-8B", "generate/mistralai/Mistral-7B-v0.1", "generate/gpt2")
    _, records = measure(tmp_path, *ids, "-a", "scale=tiny", *HERE)
    assert [record["status"] for record in records] == ["ok"] * 3
    assert [record["effective"]["config"].split()[:2] for record in records] == [
        ["small", "llama"],
        ["small", "mistral"],
        ["small", "gpt2"],
    ]
    _, (record,) = measure(tmp_path, "generate/someone/unheard-of", *HERE, check=5)
    assert record["status"] == "unsupported" and "no config of that id is on this machine" in record["reason"]


def test_the_built_in_llama_bench_of_benchmark_v2_and_a_level_of_its_later_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """README commands about models, small: `--model-id gpt2`, `--include llama_benchmark`, and the llama bench by itself."""
    import json

    monkeypatch.chdir(tmp_path)
    small = ("--preset", "tiny", "--env", "transformers")
    llama = ("--include", "llama_benchmark", "--num-tokens-to-generate", "4", "--measurement-iterations", "2", *small)
    assert main(["as", "hf", "run_benchmarks", "--model-id", "gpt2", "--variants", "eager", *llama]) == 0
    assert main(["as", "hf", "run_benchmarks", "--variants", "eager", "kernelized", "--strict-exit", *llama]) == 0
    for model, count in (("gpt2", 1), ("Llama-2-7b-hf", 3)):
        [path] = (tmp_path / "benchmark_results" / model).glob("*.json")
        found = json.loads(path.read_text())["benchmark_scenarios"]
        assert len(found) == count and all(each["status"] == "ok" for each in found), found
        assert all(each["metadata"]["effective"]["weights"] == "seeded" for each in found)
        assert all(len(each["measurements"]["time_to_first_token"]["measurements"]) == 2 for each in found)
    assert {each["metadata"]["effective"].get("kernelized") for each in found} == {None, 5}
    sizes = ("-b", "2", "-s", "8", "-n", "4", "-w", "1", "-i", "2")
    Path("x.json").write_text('[{"attn_implementation": "sdpa"}, {"continuous_batching": true, "attn_implementation": "sdpa"}]')
    assert main(["as", "hf", "v2", "--model-id", "llama", *sizes, "--config-file", "x.json", "-p", "2", *small, "--strict-exit"]) == 0
    [path] = (tmp_path / "benchmark_results" / "llama").glob("*.json")
    rows = json.loads(path.read_text()).values()
    assert [len(row["measurements"]["inter_token_latency"]) for row in rows] == [2, 2] and all(row["metadata"]["success"] for row in rows)
    assert len(list((tmp_path / "benchmark_results_profiles").glob("*.json.gz"))) == 2
    python = Path(os.environ["STEELYARD_ENVS"]) / "transformers" / "bin" / "python"
    source = str(Path(__file__).parents[2] / "src")
    for words, folder in ((("-m", "steelyard.hf_bench", "init", "it"), "."), (("llama_benchmark.py",), "it/benches")):
        subprocess.run([python, *words], cwd=tmp_path / folder, check=True, timeout=600, env=os.environ | {"PYTHONPATH": source})
    assert len(list((tmp_path / "it" / "benches" / "benchmark_results" / "gpt2").glob("*.json"))) == 1
