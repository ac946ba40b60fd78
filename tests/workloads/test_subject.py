"""A model of any source: the dummy, what it drops by chance, and how it is moved."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from steelyard import registry  # noqa: E402
from steelyard.backends.torch import Torch  # noqa: E402
from steelyard.engine.bench import Bench, prepare_bench  # noqa: E402
from steelyard.errors import Unsupported  # noqa: E402
from steelyard.model.case import Case  # noqa: E402
from steelyard.model.define import workload  # noqa: E402
from steelyard.model.experiment import Settings  # noqa: E402
from steelyard.model.protocol import Fixed  # noqa: E402
from steelyard.model.task import Task  # noqa: E402
from steelyard.workloads.models import subject as models  # noqa: E402
from steelyard.workloads.models.subject import ALMOST_NEVER, Dropout, ModelDevice, ModelRequest, Subject, as_task  # noqa: E402

pytestmark = pytest.mark.torch


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

    def shares(self) -> list[float]:
        assert vars(self.config).items() >= {"dropout_rule": "often", "layers": 2}.items()
        return [self.dropout_prob, self.config.attention_dropout, self.layer.p]


class TestDropout:
    def test_what_is_stopped_drops_nothing_and_may_draw_all_the_same(self) -> None:
        ones = torch.ones(1000)
        for drawing, share in ((True, ALMOST_NEVER), (False, 0.0)):
            module = Restless()
            assert not torch.equal(module(ones), ones)
            Dropout(module).stop(drawing=drawing)
            before = torch.get_rng_state()
            assert torch.equal(module(ones), ones)
            assert torch.equal(torch.get_rng_state(), before) != drawing
            assert module.shares() == [share] * 3

    def test_for_a_while_leaves_all_values_as_they_were(self) -> None:
        module, ones = Restless(), torch.ones(1000)
        module.layer.p = 0.25
        with pytest.raises(ValueError, match="no"), Dropout(module).stopped():
            assert module.shares() == [0.0] * 3 and torch.equal(module(ones), ones)
            raise ValueError("no")
        assert module.shares() == [0.5, 0.5, 0.25]

    def test_all_or_nothing_is_no_chance(self) -> None:
        module = torch.nn.Sequential(torch.nn.Dropout(0.0), torch.nn.Dropout(1.0))
        Dropout(module).stop(drawing=True)
        assert [layer.p for layer in module] == [0.0, 1.0]

    def test_a_value_that_cannot_be_set_is_left(self) -> None:
        class Fixed(SimpleNamespace):
            def __setattr__(self, name: str, value: Any) -> None:
                raise AttributeError(name)

        module = Restless()
        module.config = Fixed(attention_dropout=0.5, dropout_rule="often", layers=2)
        with Dropout(module).stopped():
            assert module.shares() == [0.0, 0.5, 0.0]


def restless(ask: ModelRequest, spot: ModelDevice) -> Subject:
    return Subject(Restless(), (torch.ones(4),), batch_size=4)


def bench(mode: str, settings: Settings) -> Bench:
    @workload("t/own", backend="torch", modes=models.MODES)
    def own(be: Any, mode: str = "eval") -> Task:
        """As the test has it."""
        return as_task(restless, ModelRequest("own"), be, mode)

    return prepare_bench(Case("t/own", (), "torch", "eager", mode), registry.Loaded({own.name: own}), settings)


@pytest.mark.parametrize(
    ("mode", "settings", "share"),
    [
        ("train", Settings(), ALMOST_NEVER), ("train", Settings(verify=False), 0.5), ("train", Settings(fixed=Fixed(cold=True)), 0.5),
        ("train", Settings(fixed=Fixed(), rule="ptxla"), 0.5), ("eval", Settings(), 0.5),
    ],
)  # fmt: skip
def test_a_timed_model_keeps_its_own_chance_under_a_fixed_protocol(mode: str, settings: Settings, share: float) -> None:
    made = bench(mode, settings).build()[1]
    assert made.fn.shares() == [share] * 3  # type: ignore[union-attr]
    assert made.fn.training == (mode == "train") == (made.chance is not None)  # type: ignore[union-attr]
    assert made.effective["batch_size"] == 4


class TestDummy:
    @staticmethod
    def made(mode: str = "eval", batch: int = 16, dtype: str = "fp32") -> Task:
        case = Case("dummy/linear", (("batch", batch), ("dtype", dtype)), "torch", "eager", mode)
        return prepare_bench(case, registry.built_ins(), Settings(seed=1337)).build()[1]

    def test_it_is_the_originals(self) -> None:
        task = self.made()
        widths = [(layer.in_features, layer.out_features) for layer in task.fn if hasattr(layer, "in_features")]  # type: ignore[union-attr]
        assert widths == [(32, 512), (512, 512), (512, 32)]
        assert [type(layer).__name__ for layer in task.fn] == ["Linear", "ReLU", "Linear", "ReLU", "Linear"]  # type: ignore[union-attr]
        assert task.args[0].shape == (16, 32) and task.effective["batch_size"] == 16

    def test_seeds_make_two_builds_equal(self) -> None:
        one, two = self.made("train"), self.made("train")
        assert torch.equal(one.args[0], two.args[0])
        assert all(torch.equal(a, b) for a, b in zip(one.parameters, two.parameters, strict=True))
        assert one.loss is not None and two.loss is not None
        answer = torch.zeros(16, 32)
        assert torch.equal(one.loss(answer), two.loss(answer)) and float(one.loss(answer)) > 0

    def test_batch_and_format_are_axes(self) -> None:
        task = self.made(batch=3, dtype="bf16")
        assert task.args[0].shape == (3, 32) and {item.dtype for item in (*task.parameters, *task.args)} == {torch.bfloat16}
        assert task.fn(*task.args).dtype == torch.bfloat16  # type: ignore[misc]


def test_parameters_that_are_shared_stay_shared_where_moving_makes_new_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    module = torch.nn.ModuleDict({"first": torch.nn.Linear(4, 4), "second": torch.nn.Linear(4, 4, bias=False)})
    module["second"].weight = module["first"].weight
    monkeypatch.setattr(torch.__future__, "get_overwrite_module_params_on_conversion", lambda: True)
    moved = models.placed(module, torch.device("cpu"), torch.bfloat16)
    assert moved["second"].weight is moved["first"].weight and moved["first"].weight.dtype == torch.bfloat16
    assert moved["first"].bias is not None


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_device_that_is_not_there_is_unsupported() -> None:
    with pytest.raises(Unsupported, match="no cuda device here"):
        Torch("cuda")
