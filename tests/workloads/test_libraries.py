"""Models of timm, transformers and TorchBench as workloads: named without being listed, seeded, and verified."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from steelyard import registry  # noqa: E402
from steelyard.backends.torch import Torch  # noqa: E402
from steelyard.engine.bench import Bench, prepare_bench  # noqa: E402
from steelyard.engine.names import select  # noqa: E402
from steelyard.errors import NotApplicable, Unsupported, UsageError  # noqa: E402
from steelyard.model.case import Case  # noqa: E402
from steelyard.model.experiment import Settings  # noqa: E402
from steelyard.model.task import Task, observed  # noqa: E402
from steelyard.workloads.models.transformers import architecture_of  # noqa: E402
from tests.dialects.ptxla import checkout  # noqa: E402
from tests.workloads import libraries  # noqa: E402

pytestmark = pytest.mark.torch

NAMES = ("timm/resnet18", "transformers/llama", "torchbench/good")
PACKAGES = ("timm", "transformers", "torchbenchmark")
every_name = pytest.mark.parametrize("name", NAMES)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The stand-ins, in place of what may be installed here."""
    folder = checkout.make(libraries.make(tmp_path / "site"), "good", "fixed", "needs_more")
    monkeypatch.syspath_prepend(str(folder))
    for name in [name for name in sys.modules if name.partition(".")[0] in PACKAGES]:
        monkeypatch.delitem(sys.modules, name)
    yield folder
    for name in [name for name in sys.modules if name.partition(".")[0] in PACKAGES]:
        del sys.modules[name]


@pytest.fixture
def missing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PACKAGES:
        monkeypatch.setitem(sys.modules, name, None)


def bench(name: str, mode: str = "eval", seed: int = 0, **params: Any) -> Bench:
    loaded = registry.built_ins()
    usual = {axis: values[0] for axis, values in loaded.workloads[name].axes.items()}
    return prepare_bench(Case(name, tuple({**usual, **params}.items()), mode=mode), loaded, Settings(seed=seed))


def task(name: str, mode: str = "eval", seed: int = 0, **params: Any) -> Task:
    return bench(name, mode, seed, **params).build()[1]


def state(made: Task) -> list[Any]:
    assert isinstance(made.fn, torch.nn.Module)
    return [*made.fn.state_dict().values(), *made.args, *made.kwargs.values()]


@every_name
def test_a_library_that_is_missing_is_unsupported_with_the_command_that_installs_it(name: str, missing: None) -> None:
    with pytest.raises(Unsupported, match="not installed here") as caught:
        task(name)
    assert caught.value.do.startswith("pip install ")


def test_a_package_that_a_library_needs_is_named(installed: Path) -> None:
    (installed / "timm" / "__init__.py").write_text("import a_package_that_nobody_has")
    for name in ("timm/resnet18", "torchbench/needs_more"):
        with pytest.raises(Unsupported) as caught:
            task(name)
        assert caught.value.do == "pip install a_package_that_nobody_has"
    with pytest.raises(Unsupported, match="no model 'nothing'"):
        task("torchbench/nothing")


@every_name
@pytest.mark.parametrize("mode", ["eval", "train"])
def test_the_seed_decides_and_the_record_says_so(name: str, mode: str, installed: Path) -> None:
    one, same, other = (task(name, mode, seed) for seed in (3, 3, 4))
    assert all(torch.equal(a, b) for a, b in zip(state(one), state(same), strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(state(one), state(other), strict=True))
    assert one.effective["weights"] == "seeded"


@every_name
def test_axes_decide_batch_and_format(name: str, installed: Path) -> None:
    made = task(name, batch=3, dtype="bf16")
    assert {item.dtype for item in made.parameters} == {torch.bfloat16}
    assert [len(item) for item in (*made.args, *made.kwargs.values())] == [3]
    assert made.items == 3 * (128 if name.startswith("transformers") else 1)


def test_a_model_of_torchbench_has_its_own_batch_size_where_it_allows_no_other(installed: Path) -> None:
    sizes = [task(f"torchbench/{name}", "train", batch=batch).effective["batch_size"] for name in ("good", "fixed") for batch in (5, None)]
    assert sizes == [5, 4, 4, 4]


@every_name
@pytest.mark.parametrize("mode", ["eval", "fwd", "bwd", "train"])
def test_compiled_answers_are_those_of_eager_in_every_mode(name: str, mode: str, installed: Path) -> None:
    setup, be = bench(name, mode), Torch(seed=0)
    answers = []
    for compiled in (False, True):
        made = setup.build()[1]
        fn = torch.compile(made.fn, backend="aot_eager", fullgraph=True) if compiled else made.fn
        torch._dynamo.reset()
        ready = setup.ready(be, Task(fn, made.args, made.kwargs, parameters=made.parameters, loss=made.loss))
        answers.append([leaf.data for leaf in be.outputs(observed(ready))])
    assert answers[0] and all((abs(a - b) <= 1e-5 * (1 + abs(a))).all() for a, b in zip(*answers, strict=True))


def test_gains_of_0_are_raised_and_nothing_is_dropped(installed: Path) -> None:
    made = task("timm/resnet18", "train")
    assert made.fn.norm.weight.min() > 0 and made.fn.drop.p < 1e-20  # type: ignore[union-attr]


def test_names_of_transformers_are_architectures_classes_and_ids(installed: Path) -> None:
    small, whole, here, guessed = (
        task(f"transformers/{name}", batch=1, seq=4) for name in ("llama", "BertForMaskedLM", "mine/model", "someone/Bert-base-2")
    )
    assert [type(item.fn).__name__ for item in (small, whole, here, guessed)] == [
        "LlamaForCausalLM", "BertForMaskedLM", "LlamaForCausalLM", "BertForMaskedLM",
    ]  # fmt: skip
    assert [item.fn.config.hidden_size for item in (small, whole, here, guessed)] == [256, 32, 16, 32]  # type: ignore[union-attr]
    assert (small.effective["config"], here.effective["config"]) == ("small", "on this machine")
    assert guessed.effective["config"] == "default of bert, because the config of someone/Bert-base-2 is not on this machine"


def test_what_transformers_cannot_build_is_told(installed: Path) -> None:
    with pytest.raises(Unsupported, match="no such architecture") as caught:
        task("transformers/someone/nothing")
    assert caught.value.do == "hf download someone/nothing config.json"
    with pytest.raises(Unsupported, match="input_features"):
        task("transformers/speech")
    with pytest.raises(NotApplicable, match="at most 64 tokens"):
        task("transformers/BertForMaskedLM", seq=65)
    assert task("transformers/llama", seq=65).kwargs["input_ids"].shape == (2, 65)


@pytest.mark.parametrize(
    ("id", "architecture"),
    [("meta-llama/Llama-3.2-1B", "llama"), ("gpt2-xl", "gpt2"), ("FacebookAI/xlm-roberta-base", "xlm-roberta"),
     ("Qwen/Qwen2.5-7B", "qwen2"), ("google/flan-t5-base", "t5"), ("optimus", "")],
)  # fmt: skip
def test_an_id_tells_its_architecture(id: str, architecture: str) -> None:
    assert architecture_of(id, ["llama", "gpt2", "xlm", "xlm-roberta", "roberta", "qwen2", "t5", "opt"]) == architecture


def test_families_answer_for_their_names_and_are_listed_once() -> None:
    known = registry.catalogue().workloads
    assert "timm/resnet18" in known and known["transformers/a/b"]["name"] == "transformers/a/b" and known.get("timms/x") is None
    assert [name for name in known if name.startswith("timm")] == ["timm/*"]
    assert select("timm/resnet18", registry.catalogue()) == ["timm/resnet18"]
    assert not [name for name in (*select("*", registry.catalogue()), *select("tag:model", registry.catalogue())) if name.endswith("*")]
    for pattern in ("timm/*", "timm/resnet*"):
        with pytest.raises(UsageError, match="only a library knows"):
            select(pattern, registry.catalogue())
    with pytest.raises(KeyError):
        known["timm/"]


ZOO = """
from steelyard import Task, workload

@workload("my/zoo/*", axes={"n": [8]}, backend="numpy")
def zoo(n, be, member):
    'Any animal, such as my/zoo/cat.'
    return Task(sorted, ([n] * n,), effective={"animal": member})
"""


def test_a_file_can_define_a_family(tmp_path: Path) -> None:
    (tmp_path / "zoo.py").write_text(ZOO)
    ran = [sys.executable, "-m", "steelyard", "run", "zoo.py", "--budget", "20ms", "--json"]
    done = subprocess.run([*ran, "my/zoo/cat"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (record,) = json.loads(done.stdout)["records"]
    assert (record["case"]["workload"], record["effective"]["animal"]) == ("my/zoo/cat", "cat")
    done = subprocess.run(ran, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "my/zoo/* cannot be expanded" in done.stderr and "such as my/zoo/cat" in done.stderr


def test_listing_imports_no_library() -> None:
    code = "import sys; from steelyard import registry; registry.catalogue(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", *PACKAGES} & set(done.stdout.split())


def test_a_run_measures_verifies_and_compares(installed: Path, tmp_path: Path) -> None:
    words = ["run", *NAMES, "-V", "eager,compile[backend=aot_eager]", "--vs", "eager", "--budget", "50ms", "--json"]
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(installed), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run([sys.executable, "-m", "steelyard", *words], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    records = json.loads(done.stdout)["records"]
    assert [(record["status"], record["effective"]["weights"]) for record in records] == [("ok", "seeded")] * 6
    assert {record["verification"]["status"] for record in records} == {"passed"}
