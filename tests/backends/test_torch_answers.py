"""What torch gives for repeats and for verification by another rule: inputs of their own, whole steps, weights as they were, files."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from steelyard import registry  # noqa: E402
from steelyard.backends import _torch_fixed, _torch_passes  # noqa: E402
from steelyard.backends._torch_fixed import TorchStopwatch  # noqa: E402
from steelyard.backends._torch_modes import TrainingStep, recording  # noqa: E402
from steelyard.backends.numpy import Numpy  # noqa: E402
from steelyard.backends.torch import Torch  # noqa: E402
from steelyard.engine.bench import Bench, prepare_bench  # noqa: E402
from steelyard.errors import NotApplicable, UsageError  # noqa: E402
from steelyard.model.case import Case  # noqa: E402
from steelyard.model.experiment import Settings  # noqa: E402
from steelyard.model.task import Task  # noqa: E402

pytestmark = pytest.mark.torch


def bench(mode: str = "train", variant: str = "optimizer[kind=adam,rate=0.01]") -> Bench:
    case = Case("dummy/linear", (("batch", 16), ("dtype", "fp32")), "torch", variant if mode == "train" else "eager", mode)
    return prepare_bench(case, registry.built_ins(), Settings(seed=1337))


def numbers(found: Any) -> dict[str, Any]:
    return {leaf.path: leaf.data for leaf in Torch().outputs(found)}


class TestInputs:
    def test_copies_are_changed_without_changing_the_tasks(self) -> None:
        tensor = torch.ones(4, 3)
        whole = {"a": [tensor, (torch.arange(4), "word")], "b": np.ones(2)}
        made = Torch().renewed(whole)
        assert torch.equal(made["a"][0], tensor) and torch.equal(made["a"][1][0], torch.arange(4)) and made["a"][1][1] == "word"
        made["a"][0].zero_()
        made["b"][:] = 0
        assert tensor.sum() == 12 and whole["b"].sum() == 2

    def test_random_inputs_keep_their_shape_and_whole_numbers_stay(self) -> None:
        be = Torch()
        floats, whole, short, array = be.renewed((torch.ones(4, 3), torch.arange(4), torch.ones(2).bfloat16(), np.ones(50)), random=True)
        assert floats.shape == (4, 3) and not torch.equal(floats, torch.ones(4, 3))
        assert torch.equal(whole, torch.arange(4)) and short.dtype == torch.bfloat16
        assert array.std() > 0 and not np.array_equal(be.drawn_again(np.ones(50)), array)

    def test_numpys_arrays_are_drawn_again_too(self) -> None:
        floats, whole, text = Numpy().renewed((np.ones((4, 3), np.float32), np.arange(4), "word"), random=True)
        assert (floats.dtype, floats.shape) == (np.float32, (4, 3)) and floats.std() > 0
        assert whole.tolist() == [0, 1, 2, 3] and text == "word"


class TestAnswers:
    def test_inference_answers_with_the_last_of_some_calls_each_on_a_copy(self) -> None:
        calls: list[Any] = []

        def change(x: Any, more: Any = None) -> Any:
            assert not torch.is_grad_enabled()
            calls.append(float(x.sum()))
            return x.add_(more)

        weight = torch.nn.Parameter(torch.ones(1))
        task = Task(change, (torch.ones(2),), {"more": torch.ones(2)}, parameters=(weight,))
        assert Torch().answer(task, "eval", 3).tolist() == [2.0, 2.0]
        assert calls == [2.0] * 3 and task.args[0].tolist() == [1.0, 1.0]

    def test_training_answers_with_prediction_loss_gradients_and_weights(self) -> None:
        be, task = bench().build()
        before = [item.detach().clone() for item in task.parameters]
        found = be.answer(task, "train", 1)
        assert list(found) == ["prediction", "loss", "gradients", "parameters"]
        assert found["prediction"].shape == (16, 32) and found["loss"].ndim == 0
        assert len(found["gradients"]) == len(found["parameters"]) == len(before) == 6
        assert all(
            float((after.detach() - old).abs().max()) == pytest.approx(0.01, rel=1e-3)
            for after, old in zip(task.parameters, before, strict=True)
        )
        assert {path.split(".")[1] for path in numbers(found)} == {"prediction", "loss", "gradients", "parameters"}

    def test_a_weight_and_its_gradient_have_one_name(self) -> None:
        be, task = bench().build()
        task = replace(task, parameters=(torch.nn.Parameter(torch.ones(1)), *task.parameters))
        places = numbers(be.answer(task, "train", 1))
        gradients = {path.rpartition(".")[2] for path in places if path.startswith("out.gradients.")}
        assert gradients == {str(number) for number in range(1, 7)}
        for number in gradients:
            assert places[f"out.gradients.{number}"].shape == places[f"out.parameters.{number}"].shape

    def test_training_changes_weights_and_rewinding_restores_them(self) -> None:
        be, task = bench().build()
        state = be.state(task)
        first = numbers(be.answer(task, "train", 1))
        be.rewind(task, state)
        assert numbers(be.answer(task, "train", 3))["out.loss"] < first["out.loss"]
        be.rewind(task, state)
        again = numbers(be.answer(task, "train", 1))
        assert all(np.array_equal(first[path], again[path]) for path in first) and first.keys() == again.keys()

    @pytest.mark.parametrize("compiled", [False, True])
    def test_rewinding_restores_what_calls_count_besides_weights(self, compiled: bool) -> None:
        module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
        fn = torch.compile(module, backend="eager") if compiled else module
        task, be = Task(fn, (torch.randn(8, 4),), parameters=tuple(module.parameters())), Torch()
        state = be.state(task)
        be.answer(task, "train", 2)
        assert module[1].num_batches_tracked == 2 and module[1].running_mean.any()
        be.rewind(task, state)
        assert module[1].num_batches_tracked == 0 and not module[1].running_mean.any()

    def test_numbers_that_calls_draw_are_the_same_again(self) -> None:
        be, drawn = Torch(seed=5), []
        for _ in range(2):
            be.sow()
            drawn.append((torch.rand(3).tolist(), np.random.rand()))
        Torch(seed=6).sow()
        assert drawn[0] == drawn[1] != (torch.rand(3).tolist(), np.random.rand())

    def test_a_backend_without_gradients_answers_in_inference_alone(self) -> None:
        task = Task(lambda x: x * 2, (np.ones(2),))
        assert Numpy().answer(task, "eval", 2).tolist() == [2.0, 2.0]
        with pytest.raises(NotApplicable, match="backend numpy has no mode train"):
            Numpy().answer(task, "train", 1)


class TestSteps:
    def test_a_step_is_made_by_the_optimizer_that_was_asked_for(self) -> None:
        for kind, name in (("sgd", "SGD"), ("adam", "Adam"), ("adamw", "AdamW")):
            made = TrainingStep(recording(bench(variant=f"optimizer[kind={kind},rate=0.5]").build()[1], inputs=False))
            assert type(made.optimizer).__name__ == name and made.optimizer.param_groups[0]["lr"] == 0.5
        assert type(TrainingStep(recording(bench(variant="eager").build()[1])).optimizer).__name__ == "SGD"

    def test_the_plain_step_that_answers_are_held_against_uses_it_too(self) -> None:
        made = bench(variant="optimizer[kind=adamw]+compile[backend=eager]")
        for task in (made.base()[1], made.plain(made.open())):
            assert task.optimizer is not None and task.effective["optimizer"] == "adamw"
            assert isinstance(task.fn, torch.nn.Sequential)

    @pytest.mark.parametrize("rate", ["-1", "fast", "1e9"])
    def test_a_rate_that_is_none_is_refused(self, rate: str) -> None:
        with pytest.raises(UsageError, match="rate of an optimizer"):
            bench(variant=f"optimizer[rate={rate}]").build()

    def test_without_weights_there_is_nothing_to_train(self) -> None:
        with pytest.raises(NotApplicable, match="training needs parameters"):
            TrainingStep(Task(lambda: None))


class TestCounters:
    def test_each_reading_counts_what_was_compiled_since(self) -> None:
        import torch._dynamo

        torch._dynamo.reset()
        watch = TorchStopwatch()
        watch.count_anew()
        fn = torch.compile(lambda x: x + 1, backend="eager")
        fn(torch.ones(2))
        first = watch.counts()["dynamo"]
        assert first["stats"]["unique_graphs"] == 1 and first["frames"] == {"total": 1, "ok": 1}
        watch.count_anew()
        fn(torch.ones(2))
        assert watch.counts() == {"dynamo": {}}

    def test_where_nothing_compiles_nothing_is_counted(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(_torch_fixed, "sys", type("Nothing", (), {"modules": {}}))
        assert _torch_fixed.dynamo_counters() == {}


class TestFiles:
    def test_the_tensors_of_an_answer_are_saved_by_their_places(self, tmp_path: Path) -> None:
        @dataclass
        class Boxes:
            where: Any
            sure: list[Any]

        answer = (Boxes(torch.ones(1, requires_grad=True), [torch.zeros(2)]), 3, {"a": torch.arange(2)})
        Torch().save(answer, tmp_path / "a.pt")
        found = torch.load(tmp_path / "a.pt", weights_only=True)
        assert sorted(found) == ["out[0].sure[0]", "out[0].where", "out[2].a"]
        assert not found["out[0].where"].requires_grad and found["out[2].a"].tolist() == [0, 1]

    def test_arrays_of_numpy_are_saved_as_it_saves_them(self, tmp_path: Path) -> None:
        Numpy().save({"a": np.arange(3)}, tmp_path / "a.npz")
        assert np.load(tmp_path / "a.npz")["out.a"].tolist() == [0, 1, 2]

    def test_a_kernels_time_counts_once(self) -> None:
        from types import SimpleNamespace

        from torch.autograd import DeviceType

        def seen(kind: Any, cpu: float, gpu: float, **more: Any) -> Any:
            return SimpleNamespace(
                key="k", device_type=kind, self_cpu_time_total=cpu, self_device_time_total=gpu, count=2, cpu_time_total=2 * cpu,
                device_time_total=2 * gpu, **more,
            )  # fmt: skip

        host, device = _torch_passes._row(seen(DeviceType.CPU, 3e6, 2e6)), _torch_passes._row(seen(DeviceType.CUDA, 0.0, 2e6))
        assert (host["where"], host["total"], host["device"], host["with_callees"]) == ("cpu", 3.0, 2.0, 6.0)
        assert (device["where"], device["total"], device["mean"]) == ("cuda", 2.0, 1.0) and "device" not in device
