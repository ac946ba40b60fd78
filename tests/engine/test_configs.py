"""PARAM configs through `steelyard run`: good ones measured and verified, bad ones named, users' own code asked of a worker."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.engine.drive import run_json, steelyard
from tests.workloads.operators.specs import tensor

DEFAULT = "PyTorch:DefaultDataGenerator"


def op(*inputs: Any, **more: Any) -> dict[str, Any]:
    """An operator with the default generator and these inputs, each a list of arguments."""
    return {"input_data_generator": DEFAULT, "config": [{"input": [{"args": list(args)} for args in inputs]}], **more}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / ".steelyard").mkdir()
    return tmp_path


def write(folder: Path, config: dict[str, Any], name: str = "ops.json") -> str:
    (folder / name).write_text(json.dumps(config))
    return name


def test_each_config_is_a_case_with_its_id_and_its_cost(folder: Path) -> None:
    name = write(folder, {"torch.mm": op([tensor(16, 8), tensor(8, 4)], [tensor(4, 4), tensor(4, 4)])})
    found = run_json(name, "--budget", "20ms", cwd=folder)
    records = found["records"]
    assert [record["status"] for record in records] == ["ok", "ok"]
    assert [record["effective"]["label"] for record in records] == ["torch.mm|0|0|0", "torch.mm|0|0|1"]
    assert [record["verification"]["status"] for record in records] == ["passed", "passed"]
    time = records[0]["metrics"]["time"]["value"]
    assert records[0]["metrics"]["compute"]["value"] == pytest.approx(2 * 16 * 8 * 4 / time)


def test_five_kinds_of_mistakes_cost_themselves_alone(folder: Path) -> None:
    config = {
        "torch.add": op([tensor(8, 8), tensor(8, 8)], [tensor(8, 8, dtype="floot"), tensor(8, 8)]),
        "torch.mmm": op([tensor(8, 8), tensor(8, 8)]),
        "torch.mm": op([tensor(8, 8), tensor(7, 8)], [tensor(8, 8), tensor(8, 8)]),
        "torch.mul": op([tensor(8), {"type": "complexx", "value": 2}]),
        "torch.relu": {"input_data_generator": DEFAULT, "config": [{"input": []}]},
    }
    done = steelyard("run", "--json", write(folder, config), "--budget", "20ms", cwd=folder, check=3)
    found = json.loads(done.stdout)
    said = [line for line in done.stderr.splitlines() if "✗" in line or line.startswith("error:")]
    assert len(said) == 5
    for words in (
        ["ops.json", "torch.add 0|0|1", "floot"], ["ops.json", "torch.mmm 0|0|0", "did you mean torch.mm"],
        ["ops.json", "torch.mm 0|0|0", "[8, 8] X [7, 8]"], ["ops.json", "torch.mul 0|0|0", "complexx"],
        ["ops.json", "torch.relu", "input"],
    ):  # fmt: skip
        assert sum(all(word in line for word in words) for line in said) == 1, (words, said)
    assert [record["status"] for record in found["records"]] == ["failed", "failed", "ok", "ok"]
    assert len(found["mistakes"]) == 3
    told = [line for line in done.stderr.splitlines() if line in said or "✓" in line]
    assert told[:5] == said and len(told) == 7


def test_fail_fast_measures_nothing_where_there_is_a_mistake(folder: Path) -> None:
    bad = op([tensor(8, 8), tensor(8, 8)], [tensor(8, 8), tensor(7, 8)])
    name = write(folder, {"torch.mm": bad})
    done = steelyard("run", "--json", name, "--fail-fast", "--budget", "20ms", cwd=folder, check=3)
    assert [record["status"] for record in json.loads(done.stdout)["records"]] == ["failed"]
    write(folder, {"torch.mm": bad, "torch.add": op([tensor(1, dtype="floot")])})
    done = steelyard("run", name, "--fail-fast", cwd=folder, check=2)
    assert "floot" in done.stderr


def test_a_preview_gives_ids_and_count_and_measures_nothing(folder: Path) -> None:
    spread = tensor([64, 128, 64], 32, __range__=["shape"])
    name = write(folder, {"torch.relu": op([spread], input_iterator="RangeConfigIterator")})
    done = steelyard("run", name, "--dry-run", cwd=folder)
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["torch.relu|0|0|0_0", "torch.relu|0|0|0_1"]
    assert done.stderr.startswith("shapes of 2 cases fit\n2 cases ") and done.stderr.endswith("nothing measured\n")


def test_variants_and_modes_apply_to_every_config(folder: Path) -> None:
    name = write(folder, {"torch.mul": op([tensor(4, 4), tensor(4, 4)]), "torch.relu": op([tensor(4)])})
    found = json.loads(steelyard("run", name, "-V", "eager,inference_mode", "--mode", "eval,bwd", "--dry-run", "--json", cwd=folder).stdout)
    assert len(found["cases"]) == 8
    assert set(found["labels"].values()) == {"torch.mul|0|0|0", "torch.relu|0|0|0"}


OWN = '''
import torch
from steelyard import generator, iterator, operator

@operator("my.scale")
class Scale:
    """Multiply by a factor that was built in."""

    def build(self, factor):
        self.factor = factor

    def forward(self, x):
        return x * self.factor

@iterator("Doubling")
def doubling(entry, key, device):
    for number in range(2):
        yield str(number), {"args": [{"type": "tensor", "dtype": "float", "shape": [8 << number]}]}

@generator("Ones")
def ones(spec, device):
    return [torch.ones(spec["args"][0]["shape"], device=device)], {}
'''


def test_own_operators_iterators_and_generators(folder: Path) -> None:
    (folder / "mine.py").write_text(OWN)
    build = {"args": [{"type": "float", "value_range": [2, 3]}]}
    info = {
        "build_data_generator": DEFAULT, "input_data_generator": "Ones", "input_iterator": "Doubling",
        "config": [{"build": [build], "input": [{"args": []}]}],
    }  # fmt: skip
    name = write(folder, {"my.scale": info})
    assert "Doubling" in steelyard("run", name, cwd=folder, check=2).stderr
    records = run_json(name, "mine.py", "--budget", "20ms", cwd=folder)["records"]
    assert [record["effective"]["call"].rpartition("(")[2] for record in records] == ["fp32[8])", "fp32[16])"]
    assert all(2 <= record["effective"]["drawn"]["build.args[0]"] <= 3 for record in records)


@pytest.mark.deep
def test_converted_configs_are_the_same_cases(folder: Path) -> None:
    build = {"args": [{"type": "int", "value": 8}, {"type": "int", "value": 4}]}
    linear = {"build_data_generator": DEFAULT, "input_data_generator": DEFAULT, "seed": 5}
    config = {
        "torch.add": op([tensor(8, 8), tensor(8, 8)], [tensor(4), {"type": "float", "value": 1.5}]),
        "torch.nn.Linear": {**linear, "config": [{"build": [build], "input": [{"args": [tensor(2, 8)]}]}]},
    }
    name = write(folder, config)
    cases = json.loads(steelyard("run", name, "--dry-run", "--json", cwd=folder).stdout)["cases"]
    for kind in ("toml", "json"):
        steelyard("convert", name, "-o", f"native.{kind}", cwd=folder)
        assert json.loads(steelyard("run", f"native.{kind}", "--dry-run", "--json", cwd=folder).stdout)["cases"] == cases
    assert "exists" in steelyard("convert", name, "-o", "native.toml", cwd=folder, check=2).stderr
    assert "is unknown" in steelyard("convert", "native.json", cwd=folder, check=2).stderr


def test_what_is_no_config_is_told_by_its_first_trouble(folder: Path) -> None:
    os.mkfifo(folder / "pipe.json")
    (folder / "cut.json").write_text('{\n"torch.add":')
    for name, words in (
        ("pipe.json", "a pipe or a device, not a file"), ("cut.json", "cut.json:2  not valid JSON"), ("absent.json", "no such file"),
        (f"{'x' * 300}.json", "File name too long"),
    ):  # fmt: skip
        assert words in steelyard("convert", name, cwd=folder, check=2).stderr
    assert "a pipe or a device, not a file" in steelyard("run", "pipe.json", cwd=folder, check=2).stderr
    (folder / "long.json").write_text(f'{{"torch.add": {{"seed": 1{"0" * 5000}, "config": []}}}}')
    assert "long.json:1  " in steelyard("run", "long.json", cwd=folder, check=2).stderr
