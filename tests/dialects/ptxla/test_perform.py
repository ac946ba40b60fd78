"""One config in a worker, here without its process: what is timed, what is told, and whether a wrong answer is seen."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from steelyard import registry
from steelyard.dialects.ptxla import matrix
from steelyard.dialects.ptxla.flags import RunnerOptions
from steelyard.dialects.ptxla.shim import perform, profiles, verify
from steelyard.dialects.ptxla.shim.perform import ModelCall, open_spot
from steelyard.dialects.ptxla.torchbench import ModelPolicy
from steelyard.errors import Unsupported
from steelyard.workloads.models import subject as models
from steelyard.workloads.models.build import build
from steelyard.workloads.models.subject import ModelDevice, ModelRequest
from tests.dialects.ptxla.checkout import make

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def said(tmp_path: Path, model: str = "dummy", policy: dict[str, Any] | None = None, point: str = "{}", **words: Any) -> dict[str, Any]:
    """All that a worker says about one config."""
    options, experiment = RunnerOptions(**{"suite_name": "dummy", "repeat": 3, **words}), matrix.read_experiment(point)
    told = ModelPolicy().for_worker(model, experiment["test"], options.batch_size)
    job = {
        "options": options.plain(), "model": {"model_name": model}, "experiment": experiment, "threads": 1, "policy": told | (policy or {}),
        "folder": str(tmp_path / model), "basename": "base",
    }  # fmt: skip
    found: dict[str, Any] = {}
    perform.perform(job, registry.built_ins(), lambda message: found.update(message), lambda: None)
    json.dumps(found)
    return found


@pytest.fixture
def path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a checkout puts on the path, or loads from there, is forgotten."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in [name for name in sys.modules if name.startswith("torchbenchmark")]:
        monkeypatch.delitem(sys.modules, name)


def spot() -> ModelDevice:
    return open_spot("cpu", False)


@pytest.mark.parametrize("test", ["eval", "train"])
def test_every_metric_has_one_value_per_repeat(tmp_path: Path, test: str) -> None:
    found = said(tmp_path, point=f'{{"test": "{test}"}}', iterations_per_run=4, verify=True)["measured"]
    assert found["batch_size"] == 16
    assert set(found["metrics"]) == {"total_time", "per_iter_time"}
    assert all(len(values) == 3 and min(values) > 0 for values in found["metrics"].values())
    assert found["metrics"]["per_iter_time"] == [total / 4 for total in found["metrics"]["total_time"]]
    assert found["verification"]["code"] == "PASS"
    assert found["verification"]["mean_rel_error"] == 0.0


def test_the_dummy_is_the_originals() -> None:
    made = build(ModelRequest("dummy", "dummy", "eval"), spot())
    widths = [(layer.in_features, layer.out_features) for layer in made.module if hasattr(layer, "in_features")]
    assert widths == [(32, 512), (512, 512), (512, 32)]
    assert made.args[0].shape == (16, 32)


def test_seeds_make_two_builds_equal_and_inputs_are_copies() -> None:
    one, two = (ModelCall.open(build(ModelRequest("dummy", "dummy", "train"), spot()), spot(), "train") for _ in range(2))
    assert torch.equal(one.subject.args[0], two.subject.args[0])
    assert all(torch.equal(a, b) for a, b in zip(one.subject.module.parameters(), two.subject.module.parameters(), strict=True))
    args, _ = one.inputs()
    args[0].zero_()
    assert one.subject.args[0].abs().sum() > 0


def test_random_inputs_keep_their_shape_and_whole_numbers_stay() -> None:
    act = ModelCall.open(models.Subject(torch.nn.Identity(), (torch.ones(4, 3), torch.arange(4))), spot(), "eval")
    (floats, whole), _ = act.inputs(randomise=True)
    assert floats.shape == (4, 3) and not torch.equal(floats, torch.ones(4, 3))
    assert torch.equal(whole, torch.arange(4))


def test_training_changes_weights_and_rewinding_restores_them() -> None:
    act = ModelCall.open(build(ModelRequest("dummy", "dummy", "train"), spot()), spot(), "train")
    first = act.answer()
    assert {name.split(".")[0] for name in first} == {"out", "gradients", "parameters"}
    assert act.answer(3)["out.loss"] < first["out.loss"]
    assert verify.differences(first, act.answer(), verify.Rules(0.0)) == ""


def test_a_wrong_gradient_is_seen_although_the_loss_is_right() -> None:
    class Half(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            return gradient * 0.5

    ask = ModelRequest("dummy", "dummy", "train", sgd=True)
    candidate = ModelCall.open(build(ask, spot()), spot(), "train")
    whole = candidate.forward
    candidate.forward = lambda x: Half.apply(whole(x))
    found = verify.verify(
        candidate.answer,
        lambda: ModelCall.open(build(ask, spot()), spot(), "train").answer(),
        lambda: ModelCall.open(models.doubled(build(ask, spot())), spot(), "train").answer(),
        verify.Rules.of("train", "cpu", {}),
        training=True,
    )
    assert (found.code, found.mean_rel_error) == ("FAIL", 0.0)
    assert found.why.startswith("gradients.")


def test_our_own_models_with_a_size_and_a_batch(tmp_path: Path) -> None:
    found = said(tmp_path, "mlp", suite_name="steelyard", size="small", batch_size=3, verify=True, point='{"test": "train"}')
    assert found["measured"]["batch_size"] == 3
    assert found["measured"]["verification"]["code"] == "PASS"
    assert "did you mean mlp" in said(tmp_path, "mlpp", suite_name="steelyard")["failed"]["error"]


def test_torchbench_models_have_their_contract_and_precision(tmp_path: Path, path: None) -> None:
    place = str(make(tmp_path / "bench", "good", "fixed"))
    found = said(tmp_path, "good", suite_name="torchbench", torchbench=place, batch_size=5, verify=True)["measured"]
    assert (found["batch_size"], found["dtype"], found["verification"]["code"]) == (5, "bfloat16", "PASS")
    found = said(tmp_path, "good", {"half": True}, suite_name="torchbench", torchbench=place)["measured"]
    assert (found["batch_size"], found["dtype"]) == (4, "float16")
    found = said(tmp_path, "fixed", suite_name="torchbench", torchbench=place, batch_size=5, point='{"test": "train"}')["measured"]
    assert (found["batch_size"], found["dtype"]) == (4, "")


def test_a_package_that_is_missing_is_named_with_its_remedy(tmp_path: Path, path: None) -> None:
    place = make(tmp_path / "bench", "good")
    (place / "torchbenchmark" / "models" / "good" / "__init__.py").write_text("import a_package_that_nobody_has")
    failed = said(tmp_path, "good", suite_name="torchbench", torchbench=str(place))["failed"]
    assert failed["status"] == "unsupported"
    assert "pip install a_package_that_nobody_has" in failed["error"]


@pytest.mark.parametrize(("suite", "model"), [("timm", "resnet18"), ("transformers", "BertForMaskedLM")])
def test_libraries_that_are_not_installed_are_unsupported(tmp_path: Path, suite: str, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, suite, None)
    failed = said(tmp_path, model, suite_name=suite)["failed"]
    assert failed["status"] == "unsupported" and f"pip install {suite}" in failed["error"]


@pytest.mark.parametrize(
    "point", ['{"accelerator": "tpu", "xla": "XRT"}', '{"torch_xla2": "extract_jax"}', '{"keep_model_data_on_cuda": true}']
)
def test_what_is_gone_for_good_is_unsupported(tmp_path: Path, point: str) -> None:
    assert said(tmp_path, point=point)["failed"]["status"] == "unsupported"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_device_that_is_not_there_is_unsupported() -> None:
    with pytest.raises(Unsupported, match="no CUDA device"):
        open_spot("cuda", False)


def test_profiles_counters_and_outputs_go_beside_the_row(tmp_path: Path) -> None:
    found = said(
        tmp_path, repeat=2, profile_cuda_cpu=True, profile_cuda_cpu_individual_ops=True, dump_pytorch_profiles=True,
        dump_dynamo_counters=True, collect_dynamo_counters=True, save_output=True,
    )["measured"]  # fmt: skip
    metrics = found["metrics"]
    assert all(len(values) == 2 for values in metrics.values())
    assert metrics["total_cpu_time_s"][0] > 0 and metrics["total_cuda_time_s"] == [0.0, 0.0]
    assert metrics["inductor_ops"][0]["aten::linear"]["num_of_calls"] == 3
    names = {str(path.relative_to(tmp_path)) for path in (tmp_path / "dummy").rglob("*") if path.is_file()}
    assert names == {
        "dummy/output-base.pt", *(f"dummy/{number}/{kind}-base.{end}" for number in (0, 1)
                                  for kind, end in (("trace", "json"), ("pytorch-profile", "txt"), ("dynamo-counters", "txt"))),
    }  # fmt: skip
    saved = torch.load(found["outputs_file"], weights_only=True)
    assert saved["out[0]"].shape == (16, 32)


def test_the_full_output_of_training_holds_gradients_and_weights(tmp_path: Path) -> None:
    found = said(tmp_path, repeat=1, save_output=True, collect_full_output=True, point='{"test": "train"}')["measured"]
    saved = torch.load(found["outputs_file"], weights_only=True)
    assert {name.split(".")[1] for name in saved} == {"prediction", "loss", "gradients", "parameters"}


def test_pure_wall_time_needs_no_cuda(tmp_path: Path) -> None:
    metrics = said(tmp_path, repeat=1, iterations_per_run=2, pure_wall_time=True)["measured"]["metrics"]
    assert metrics["per_iter_time"] == [metrics["total_time"][0] / 2]


def test_a_model_that_the_policy_calls_random_is_not_verified(tmp_path: Path) -> None:
    assert said(tmp_path, policy={"unverified": True}, verify=True)["measured"]["verification"]["code"] == "VERIFIER_SKIPPED"


def test_verification_that_breaks_keeps_the_times(tmp_path: Path) -> None:
    found = said(tmp_path, policy={"tolerance": "wide"}, verify=True)["measured"]
    assert found["verification"]["code"] == "EXCEPTION_RAISED"
    assert "could not convert" in found["verification"]["why"]
    assert len(found["metrics"]["total_time"]) == 3


def test_what_xla_wrote_by_itself_is_told(tmp_path: Path) -> None:
    (tmp_path / "hlo-base").mkdir()
    (tmp_path / "dump-base.0").write_text("graph")
    (tmp_path / "dump-other.0").write_text("graph")
    files = profiles.Files(tmp_path, "base")
    files.note_dumps()
    assert files.written == {"hlo": [str(tmp_path / "hlo-base")], "dump": [str(tmp_path / "dump-base.0")]}


def test_a_kernels_time_counts_once() -> None:
    def seen(device: str, cpu: float, gpu: float, note: bool = False) -> Any:
        return SimpleNamespace(device_type=device, self_cpu_time_total=cpu, self_device_time_total=gpu, is_user_annotation=note)

    items = [seen("DeviceType.CPU", 3e6, 2e6), seen("DeviceType.CUDA", 0.0, 2e6), seen("DeviceType.CUDA", 0.0, 9e6, True)]
    assert profiles.totals(items) == (3.0, 2.0)


def test_xlas_own_word_for_too_little_memory_is_understood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(job: Any, loaded: Any) -> Any:
        raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 9 bytes")

    monkeypatch.setattr(perform, "measure", full)
    assert said(tmp_path)["failed"]["status"] == "oom"


def test_models_that_cannot_be_converted_stay_as_they_are(tmp_path: Path, path: None) -> None:
    place = str(make(tmp_path / "bench", "good"))
    assert said(tmp_path, "good", {"cast": True, "half": True}, suite_name="torchbench", torchbench=place)["measured"]["dtype"] == ""
    half = models.precision(ModelRequest("torchbench", "good", "eval", cast=True), ModelDevice("cuda", False, "cuda"))
    assert half == (None, torch.float16)


def test_a_model_that_raises_is_told_with_its_words(tmp_path: Path, path: None) -> None:
    failed = said(tmp_path, "raises", suite_name="torchbench", torchbench=str(make(tmp_path / "b", "raises")))["failed"]
    assert failed["status"] == "failed"
    assert "no weights" in failed["error"] and "Traceback" in failed["trace"]


class Restless(torch.nn.Module):  # type: ignore[misc, name-defined]
    """Drops in three ways: by a layer, by a number of its own, and by one in a config."""

    def __init__(self) -> None:
        super().__init__()
        self.config = SimpleNamespace(attention_dropout=0.5, dropout_rule="often", layers=2)
        self.dropout_prob = 0.5
        self.layer = torch.nn.Dropout(0.5)

    def forward(self, x: Any) -> Any:
        for share in (self.dropout_prob, self.config.attention_dropout):
            x = torch.nn.functional.dropout(x, share, self.training)
        return self.layer(x)


def test_dropout_that_is_verified_draws_and_drops_nothing() -> None:
    module, ones = Restless(), torch.ones(1000)
    assert not torch.equal(module(ones), ones)
    models.keep_all(module)
    before = torch.get_rng_state()
    assert torch.equal(module(ones), ones)
    assert not torch.equal(torch.get_rng_state(), before)
    assert vars(module.config) == {"attention_dropout": models.ALMOST_NEVER, "dropout_rule": "often", "layers": 2}


def test_parameters_that_are_shared_stay_shared_where_moving_makes_new_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    module = torch.nn.ModuleDict({"first": torch.nn.Linear(4, 4), "second": torch.nn.Linear(4, 4, bias=False)})
    module["second"].weight = module["first"].weight
    monkeypatch.setattr(torch.__future__, "get_overwrite_module_params_on_conversion", lambda: True)
    moved = models.placed(module, torch.device("cpu"), torch.bfloat16)
    assert moved["second"].weight is moved["first"].weight and moved["first"].weight.dtype == torch.bfloat16
    assert moved["first"].bias is not None
