"""The ten example configs are whole and run; the how-to page that explains them names all there is and works as printed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from steelyard.dialects.param import expand, grammar, reading
from steelyard.dialects.param.flags import FLAGS
from tests.docs.fences import ROOT, fences

EXAMPLES = ROOT / "examples" / "param"
HOWTO, REFERENCE = ROOT / "docs" / "howto", ROOT / "docs" / "reference"
PAGES = [
    HOWTO / "operators-from-configuration.md", HOWTO / "own-operators.md", HOWTO / "coming-from-param.md",
    REFERENCE / "operator-configs.md", REFERENCE / "as-param.md",
]  # fmt: skip
COUNTS = {
    "attention": {"torch.nn.functional.scaled_dot_product_attention": 8},
    "backward": {"torch.nn.Linear": 2, "torch.matmul": 2, "torch.nn.functional.cross_entropy": 1, "torch.nn.functional.layer_norm": 1},
    "dlrm_embeddings": {"torch.nn.functional.embedding_bag": 5, "torch.nn.EmbeddingBag": 1},
    "elementwise": {"torch.add": 16, "torch.mul": 3, "torch.clamp": 3, "torch.nn.functional.gelu": 2},
    "fp8_gemm": {"aten::_scaled_mm": 2},
    "indexing": {"torch.index_select": 5, "torch.gather": 1, "torch.index_add": 1, "torch.masked_select": 1, "torch.topk": 3},
    "llama3_gemms": {"torch.nn.functional.linear": 12},
    "normalisations": {
        "torch.nn.functional.layer_norm": 4, "torch.nn.functional.rms_norm": 2,
        "torch.nn.functional.group_norm": 1, "torch.nn.BatchNorm2d": 2,
    },
    "reductions": {"torch.sum": 8, "torch.amax": 1, "torch.argmax": 1, "torch.logsumexp": 1, "aten::sum.dim_IntList": 1},
    "resnet50_convolutions": {"torch.nn.Conv2d": 12},
}  # fmt: skip


def steelyard(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "steelyard", *words], cwd=folder, capture_output=True, text=True, check=False, timeout=120
    )  # fmt: skip


def as_param(folder: Path, config: Path, *words: str) -> list[dict[str, Any]]:
    """Run a config as PARAM would, and give the records."""
    done = steelyard(folder, "as", "param", "-c", str(config), "-o", "out.json", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [json.loads(line) for line in (folder / "out.json").read_text().splitlines()]
    assert "finish_time" in lines[-1]
    return [line for line in lines if "op_name" in line]


def block(language: str, words: str) -> str:
    """The code block of the pages that has these words in it."""
    return next(fence.text for page in PAGES for fence in fences(page) if fence.language == language and words in fence.text)


def test_the_folder_holds_these_ten() -> None:
    assert sorted(file.name for file in EXAMPLES.iterdir()) == [f"{name}.json" for name in COUNTS]


@pytest.mark.parametrize("name", COUNTS)
def test_an_example_expands_without_mistakes(name: str) -> None:
    sheet = expand.sheet(EXAMPLES / f"{name}.json")
    assert [str(mistake) for mistake in sheet.mistakes] == []
    assert Counter(config.op for config in sheet.configs) == COUNTS[name]
    assert len({config.full_id for config in sheet.configs}) == len(sheet.configs)


def test_the_layer_of_a_llama_has_its_shapes() -> None:
    sheet = expand.sheet(EXAMPLES / "llama3_gemms.json")
    shapes = [tuple(tuple(arg["shape"]) for arg in config.input["args"]) for config in sheet.configs]
    weights = [(6144, 4096), (4096, 4096), (14336, 4096)]
    expected = [((tokens, 4096), weight) for tokens in (1, 16, 128) for weight in weights]
    assert shapes == expected + [((tokens, 14336), (4096, 14336)) for tokens in (1, 16, 128)]


def test_the_sweep_zips_and_filters() -> None:
    sheet = expand.sheet(EXAMPLES / "elementwise.json")
    told = {op: [config.input for config in sheet.configs if config.op == op] for op in ("torch.mul", "torch.clamp")}
    assert [len(item["args"][0]["shape"]) for item in told["torch.mul"]] == [1, 2, 3]
    limits = [(item["kwargs"]["min"]["value"], item["kwargs"]["max"]["value"]) for item in told["torch.clamp"]]
    assert limits == [(-0.5, 0.0), (-0.5, 0.5), (0.0, 0.5)]
    assert sheet.dropped == 6


@pytest.mark.torch
@pytest.mark.parametrize("name", COUNTS)
def test_torch_has_the_operators_and_the_shapes_fit(name: str) -> None:
    from steelyard.workloads.operators.call import DescribedCall

    sheet = expand.sheet(EXAMPLES / f"{name}.json")
    wrong = {
        config.full_id: DescribedCall(config.op, config.build, config.input, names=config.generators).examine()[0]
        for config in sheet.configs
    }
    assert {id: reason for id, reason in wrong.items() if reason} == {}


@pytest.mark.torch
@pytest.mark.parametrize("name", ["elementwise", pytest.param("reductions", marks=pytest.mark.deep)])
def test_a_small_example_runs(name: str, tmp_path: Path) -> None:
    records = as_param(tmp_path, EXAMPLES / f"{name}.json", "-w", "1", "-i", "1")
    assert Counter(record["op_name"] for record in records) == COUNTS[name]
    for record in records:
        assert record["steelyard"]["status"] == "ok", record["steelyard"]
        assert len(record["metric"]["forward"]["measure.time"]) == 1


@pytest.mark.torch
def test_every_config_of_the_backward_example_has_a_backward(tmp_path: Path) -> None:
    records = as_param(tmp_path, EXAMPLES / "backward.json", "-w", "1", "-i", "2", "-b")
    assert [sorted(record["metric"]) for record in records] == [["backward", "forward"]] * 6
    assert all(len(record["metric"]["backward"]["measure.time"]) == 2 for record in records)


@pytest.mark.torch
def test_the_operators_of_the_page_run(tmp_path: Path) -> None:
    (tmp_path / "my_ops.py").write_text(block("python", "@operator"), encoding="utf-8")
    (tmp_path / "mine.json").write_text(block("json", "PowersOfTwo"), encoding="utf-8")
    records = as_param(tmp_path, Path("mine.json"), "--file", "my_ops.py", "-b", "-i", "20")
    ids = ["my.scaled_product|0|0|rows2", "my.scaled_product|0|0|rows4", "my.scaled_product|0|0|rows8", "my.squares|0|0|0"]
    assert [f"{record['op_name']}|{record['id']}" for record in records] == ids
    assert [sorted(record["metric"]) for record in records] == [["backward", "forward"]] * 3 + [["forward"]]
    assert 0.5 <= records[0]["steelyard"]["drawn"]["args[1]"] <= 1.5
    assert "backward" in records[3]["steelyard"]["not_applicable"]
    done = steelyard(tmp_path, "run", "mine.json", "my_ops.py", "--budget", "10ms", "--json")
    assert done.returncode == 0, done.stderr
    assert [record["status"] for record in json.loads(done.stdout)["records"]] == ["ok"] * 4


def test_the_grammar_of_the_page_expands() -> None:
    sheet = expand.sheet(reading.parse(block("json", "torch.nn.Linear"), "page"))
    assert (sheet.mistakes, [config.id for config in sheet.configs]) == ((), [f"0|0|0_{number}" for number in range(4)])


def test_the_pages_name_every_flag_and_every_word_of_the_grammar() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    flags = [name for flag in FLAGS for names in flag.names for name in names.split("/")]
    macros = (*grammar.MACROS, grammar.ZIP, grammar.WHERE)
    words = {*grammar.KEYS, *grammar.KEYS["tensor"], *grammar.DISTRIBUTIONS, *macros, *grammar.NOTES, *grammar.FORMATS}
    assert [word for word in (*flags, *sorted(words)) if not re.search(rf"(?<![\w-]){word}(?![\w-])", text)] == []
    assert [name for name in COUNTS if f"`{name}.json`" not in text] == []
