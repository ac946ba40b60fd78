"""Every YAML text of TorchAO's guide, as it stands, with both commands: a part of its rows at each commit, more of them in the deep tests.

`guide/` has the texts unchanged, and in my_recipe.py and my_model.py what the guide has its readers add.
"""

from __future__ import annotations

import csv
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

from steelyard.cli.main import main
from steelyard.engine import conduct
from steelyard.engine.selection import Request
from steelyard.errors import NOTHING, USAGE, UsageError
from steelyard.store.runs import Store
from tests.engine.drive import steelyard

ROOT = Path(__file__).parents[3]
GUIDE = Path(__file__).parent / "guide"
PLACE = Path("benchmarks/dashboard/microbenchmark_quantization_config.yml")
RECIPES = ["int8wo", "int8dq", "float8dq-tensor", "float8dq-row", "float8wo", "my_new_quantization"]
ON_CPU = dict.fromkeys(RECIPES, "ok") | {"float8dq-tensor": "unsupported", "float8dq-row": "unsupported"}
FIRST = {"as": "small_sweep_0 ", "run": "k=1024,m=1024,n=1024"}
"""The first of the 56 shapes, as each command tells it."""
OURS = ("--file", "my_recipe.py", "--device", "cpu", "--budget", "20ms")


needs_torchao = pytest.mark.skipif(find_spec("torchao") is None, reason="the recipes are torchao's")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as the guide's readers have it."""
    (tmp_path / PLACE.parent).mkdir(parents=True)
    shutil.copy(GUIDE / PLACE.name, tmp_path / PLACE)
    for name in ("steps.yml", "my_recipe.py", "my_model.py"):
        shutil.copy(GUIDE / name, tmp_path / name)
    for name in ("LOCKS", "CACHE"):
        monkeypatch.setenv(f"STEELYARD_{name}", str(tmp_path / name.lower()))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def step(folder: Path) -> list[str]:
    """The command of the workflow's step, with our program in the place of the original's script."""
    [first, _] = yaml.safe_load((folder / "steps.yml").read_text())
    python, script, *words = shlex.split(first["run"].replace("\\\n", " "))
    assert (python, Path(script).name) == ("python", "ci_microbenchmark_runner.py")
    return ["as", "torchao", *words]


def rows(folder: Path) -> list[dict[str, str]]:
    [file] = (folder / "benchmarks" / "microbenchmarks" / "results" / "inference").iterdir()
    with file.open(newline="") as lines:
        return list(csv.DictReader(lines))


def both(folder: Path, expected: dict[str, str]) -> None:
    """The step of the workflow, then `run`, for some recipes at the first shape, and what both make of each."""
    chosen = [word for recipe in expected for word in ("-k", f"{recipe} {FIRST['as']}")]
    steelyard(*step(folder), *OURS, *chosen, cwd=folder)
    found = rows(folder)
    assert {row["quantization"]: row["status"] for row in found} == expected
    for row in found:
        assert (row["name"], row["m"], row["k"], row["n"]) == ("small_bf16_linear", "1024", "1024", "1024")
        assert (row["use_torch_compile"], row["torch_compile_mode"], row["device"]) == ("True", "max-autotune", "cpu")
        assert bool(row["speedup"]) == (row["status"] == "ok") and float(row["baseline_inference_time_in_ms"]) > 0
    records = json.loads((folder / "benchmark_results.json").read_text())
    assert [record["benchmark"]["dtype"] for record in records] == list(expected)
    assert {record["metric"]["name"] for record in records} == {"speedup(wrt bf16)"}

    words = "|".join(["compile", *expected])
    chosen = ["-d", "cpu", "-k", rf"{FIRST['run']}\].*@torch/({words})\b.*mode=max-autotune"]
    told = json.loads(steelyard("run", str(PLACE), "my_recipe.py", *chosen, "--budget", "20ms", "--json", cwd=folder).stdout)
    statuses = {record["case"]["variant"].rpartition("+")[0]: record["status"] for record in told["records"]}
    assert statuses == {"": "ok"} | expected
    assert len(told["pairs"]) == list(expected.values()).count("ok")


@needs_torchao
def test_the_readers_own_recipe_runs_by_the_guides_config_and_step(here: Path) -> None:
    both(here, {"my_new_quantization": "ok"})


@pytest.mark.deep
@needs_torchao
def test_all_recipes_run_by_the_guides_config_and_step(here: Path) -> None:
    both(here, ON_CPU)


@pytest.mark.deep
@needs_torchao
def test_the_guides_model_runs_with_the_readers_recipe(here: Path) -> None:
    text = PLACE.read_text().replace('"linear"', '"my_custom_model"').replace("use_torch_compile: true", "use_torch_compile: false")
    PLACE.write_text(text.replace("min_power: 10", "min_power: 6").replace("max_power: 15", "max_power: 6"))
    steelyard(*step(here), *OURS, "--file", "my_model.py", cwd=here)
    assert {row["quantization"]: row["status"] for row in rows(here)} == ON_CPU


@pytest.mark.parametrize(("asked", "device"), [((), "cuda"), (("cpu",), "cpu")])
def test_the_whole_config_is_planned_on_the_device_that_is_asked_for(here: Path, asked: tuple[str, ...], device: str) -> None:
    plan = conduct.prepare(Request(selectors=(str(PLACE), "my_recipe.py"), device=asked), Store(here / "store"))
    assert len(plan.jobs) == 56 * (1 + len(RECIPES)) and len(plan.pairs) == 56 * len(RECIPES)
    assert {job.case.device for job in plan.jobs} == {device}
    assert {job.case.variant for job in plan.pairs} == {f"{recipe}+compile[fullgraph=true,mode=max-autotune]" for recipe in RECIPES}
    with pytest.raises(UsageError, match="no recipe named 'my_new_quantization'"):
        conduct.prepare(Request(selectors=(str(PLACE),)), Store(here / "store"))


@pytest.mark.deep
@pytest.mark.torch
def test_a_device_that_is_not_here_is_unsupported_with_what_to_do(here: Path) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is one")
    words = ["-k", r"n=1024\].*torch/compile", "--budget", "20ms", "--json"]
    done = steelyard("run", str(PLACE), "my_recipe.py", *words, cwd=here, check=NOTHING)
    [record] = json.loads(done.stdout)["records"]
    assert record["status"] == "unsupported" and "no cuda device here" in record["reason"] and "-d cpu" in record["reason"]


def test_the_workflows_steps_are_no_config_of_benchmarks(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["as", "torchao", "--config", "steps.yml"]) == USAGE
    assert "steps.yml  expected a table with model_params, not [" in capsys.readouterr().err
    assert main(["run", "steps.yml"]) == USAGE
    assert "steps.yml" in capsys.readouterr().err


def workflow() -> dict[str, str]:
    """The commands of the workflow in our own how-to, by the name of their step."""
    page = (ROOT / "docs" / "howto" / "torchao-in-ci.md").read_text(encoding="utf-8")
    [text] = [block for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if "jobs:" in block]
    return {item.get("name", item["run"]): item["run"] for item in yaml.safe_load(text)["jobs"]["torchao"]["steps"] if "run" in item}


def test_the_workflow_installs_what_there_is_and_sends_nothing_without_an_address() -> None:
    install, check, run, _, upload = workflow().values()
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert all(name in extras for name in re.findall(r"\[(.*)\]", install)[0].split(","))
    assert check.startswith("steelyard check") and run.startswith("steelyard as torchao") and "${UPLOADER_URL:+--no-dry-run}" in upload


@pytest.mark.deep
@pytest.mark.torch
@pytest.mark.skipif(shutil.which("jq") is None, reason="GitHub's machines have jq")
def test_the_workflow_of_the_how_to_runs_as_it_stands(here: Path) -> None:
    shapes = "[{name: custom, shapes: [[8, 8, 8]]}]"
    Path("x.yml").write_text(f"quantization_config_recipe_names: [baseline]\nmodel_params:\n  {{matrix_shapes: {shapes}, device: cpu}}\n")
    told = {"GITHUB_RUN_ID": "7", "GITHUB_RUN_ATTEMPT": "1", "GITHUB_JOB": "torchao", "GITHUB_REPOSITORY": "me/ao", "GITHUB_SHA": "abc",
            "GITHUB_REF": "refs/heads/main", "CONFIG": "x.yml", "UPLOADER_URL": ""}  # fmt: skip
    lines = [f'steelyard() {{ "{sys.executable}" -m steelyard "$@"; }}', *list(workflow().values())[1:]]
    done = subprocess.run(["bash", "-ec", "\n".join(lines)], capture_output=True, text=True, env={**os.environ, **told}, check=False)
    assert done.returncode == 0, done.stderr
    assert "would upload 1 record to v3/me/ao/7/7/benchmark_results.json" in done.stdout + done.stderr
    assert Path("results.csv").exists()
