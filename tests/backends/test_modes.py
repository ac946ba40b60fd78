"""A mode runs what it says and no more: the first call is one call, checks cost nothing, norms see the batch where they train."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from steelyard.backends import _torch_modes  # noqa: E402
from steelyard.backends._torch_modes import in_mode  # noqa: E402
from steelyard.backends.numpy import Precise  # noqa: E402
from steelyard.backends.torch import Torch  # noqa: E402
from steelyard.engine.weigh import weigh_case  # noqa: E402
from steelyard.errors import NotApplicable  # noqa: E402
from steelyard.measuring.verify import TOLERANCES, compare  # noqa: E402
from steelyard.model.case import Case  # noqa: E402
from steelyard.model.define import Workload, workload  # noqa: E402
from steelyard.model.experiment import Settings  # noqa: E402
from steelyard.model.record import Verification  # noqa: E402
from steelyard.model.task import Task, observed  # noqa: E402
from steelyard.registry import Loaded, built_ins  # noqa: E402

pytestmark = pytest.mark.torch

NORMED: dict[str, dict[str, Any]] = {
    "model/resnet50": {"batch": 4, "image": 40, "width": 4, "classes": 10},
    "layer/conv_block": {"batch": 2, "channels": 5, "side": 7},
}
every_normed = pytest.mark.parametrize("name", NORMED)


class Counted:
    """A product with a weight that counts its calls; `last` may spoil what it returns."""

    def __init__(self, last: Callable[[Any], Any] = lambda output: output) -> None:
        self.calls, self.last = 0, last
        self.weight = torch.ones(3, 3)

    def __call__(self, x: Any) -> Any:
        self.calls += 1
        return self.last(x @ self.weight)

    def task(self, **more: Any) -> Task:
        return Task(self, (torch.ones(2, 3),), parameters=(self.weight,), flops=36.0, **more)


@pytest.mark.parametrize(("mode", "before", "after"), [("eval", 0, 1), ("fwd", 0, 1), ("bwd", 1, 1), ("train", 0, 1)])
def test_the_first_call_is_one_forward(mode: str, before: int, after: int) -> None:
    fn = Counted()
    task = in_mode(fn.task(), mode)
    assert fn.calls == before
    observed(task)
    assert fn.calls == after


def test_the_forward_that_a_backward_needs_is_said_to_be_in_the_first_call() -> None:
    def inspect() -> dict[str, Any]:
        return {"graphs": 1}

    task = in_mode(Counted().task(inspect=inspect), "bwd")
    assert task.inspect is not None
    assert task.inspect() == {"graphs": 1, "first_call": _torch_modes.RECORDED}


@pytest.mark.parametrize("mode", ["fwd", "bwd", "train"])
@pytest.mark.parametrize("last", [lambda y: y.detach(), lambda y: y.argmax(), lambda y: None], ids=["detached", "whole", "nothing"])
def test_no_gradient_is_seen_at_the_first_call(last: Callable[[Any], Any], mode: str) -> None:
    fn = Counted(last)
    with pytest.raises(NotApplicable, match="no output of this workload has a gradient"):
        observed(in_mode(fn.task(), mode))
    assert fn.calls == 1


def test_a_loss_without_a_gradient_is_not_applicable_either() -> None:
    with pytest.raises(NotApplicable):
        observed(in_mode(Counted().task(loss=lambda output: output.detach().sum()), "train"))


@pytest.mark.parametrize("mode", ["fwd", "bwd"])
def test_no_gradient_ends_the_case_before_it_is_sampled(mode: str) -> None:
    calls: list[str] = []

    @workload("t/cut", axes={"n": [4]}, modes=["eval", "fwd", "bwd"])
    def cut(n: int, be: Any) -> Task:
        """No gradient comes out."""
        return Task(lambda x: (calls.append("call"), x.detach())[1], (be.randn(n),))

    case = Case.parse(f"t/cut[n=4]@torch/eager:{mode}")
    record = weigh_case(case, Loaded({"t/cut": cut}, {}), Settings(budget=0.01), lambda phase, fraction: None)[0]
    assert (record.status, calls) == ("not_applicable", ["call"])


@pytest.mark.parametrize("mode", ["fwd", "train"])
def test_inputs_are_restored_before_the_first_call_too(mode: str) -> None:
    fn, restored = Counted(), []
    task = in_mode(fn.task(prepare=lambda: restored.append(fn.calls)), mode)
    observed(task)
    task()
    assert restored == [0, 1]


def test_the_observed_step_is_whole_and_leaves_the_weights() -> None:
    from torch.optim.optimizer import register_optimizer_step_post_hook

    fn, steps = Counted(), []
    task = in_mode(fn.task(), "train")
    before = fn.weight.detach().clone()
    hook = register_optimizer_step_post_hook(lambda *_: steps.append(1))
    try:
        seen = observed(task)
        assert len(steps) == 1 and torch.equal(fn.weight, before)
        moved = seen["updates"][0]
        assert len(steps) == 2 and torch.equal(fn.weight, before)
    finally:
        hook.remove()
    torch.testing.assert_close(moved, -seen["gradients"][0].double(), rtol=1e-3, atol=1e-6)
    task()
    assert not torch.equal(fn.weight, before)
    step = _torch_modes.RATE * seen["gradients"][0]
    torch.testing.assert_close(before - fn.weight.detach(), step, rtol=0.01, atol=1e-6)


def test_a_small_gradient_moves_a_large_weight_visibly() -> None:
    """In bf16 a gain of 1 swallows a step of a thousandth, and verification would take that for a missing update."""
    large, small = torch.ones(4, dtype=torch.bfloat16), torch.ones(4, dtype=torch.bfloat16)
    task = Task(lambda a, b: (1000 * a + b).float(), (large, small), parameters=(large, small), loss=lambda output: output.sum())
    moves = observed(in_mode(task, "train"))["updates"]
    for move, size in zip(moves, (1000, 1), strict=True):
        assert move.flatten().tolist() == pytest.approx([-size] * 4, rel=0.05)


@pytest.mark.parametrize("mode", ["bwd", "train"])
@pytest.mark.parametrize(("dtype", "share", "arrays", "norm"), [
    (torch.float32, None, 2, None), (torch.float32, 0.01, 1, 0.01), (torch.float16, None, 2, 0.0125), (torch.bfloat16, None, 2, 0.1),
    (torch.bfloat16, 0.01, 1, 0.01), (torch.bfloat16, 0.9, 1, 0.9),
])  # fmt: skip
def test_gradients_are_compared_as_the_format_and_the_workload_ask(
    mode: str, dtype: Any, share: float | None, arrays: int, norm: float | None
) -> None:
    weights = (torch.ones(3, 3, dtype=dtype), torch.ones(3, dtype=dtype))
    task = in_mode(Task(lambda a, b: a @ b, weights, parameters=weights, norm_tolerance=share), mode)
    assert task.norm_tolerance == norm
    assert sum(leaf.path.startswith("out.gradients") for leaf in Torch().outputs(observed(task))) == arrays


@pytest.mark.parametrize("mode", ["bwd", "train"])
@pytest.mark.parametrize(("rtol", "share", "norm"), [(1e-2, None, 0.0125), (5e-2, None, 0.1), (1e-2, 0.02, 0.2), (5e-2, 0.02, 0.4)])
def test_a_variant_that_computes_in_a_short_format_has_that_formats_bound(mode: str, rtol: float, share: float | None, norm: float) -> None:
    weights = (torch.ones(3, 3), torch.ones(3))
    task = Task(lambda a, b: a @ b, weights, parameters=weights, tolerance=(rtol, 1e-2), norm_tolerance=share)
    assert in_mode(task, mode).norm_tolerance == norm


def test_single_gradients_in_fp32_are_compared_closely() -> None:
    """Behind twenty layers one of ten thousand is off by ten times what an output may be; a thousandth is still far from a wrong one."""
    for dtype, wanted in ((torch.float32, (1e-3, 1e-3)), (torch.float64, None), (torch.bfloat16, None)):
        weight = torch.ones(3, 3, dtype=dtype)
        assert in_mode(Task(lambda a: a @ a, (weight,), parameters=(weight,)), "bwd").tolerance == wanted


def test_the_loss_of_a_short_format_has_that_formats_tolerance() -> None:
    for dtype, wanted in ((torch.bfloat16, "bf16"), (torch.float16, "fp16")):
        weight = torch.ones(3, 3, dtype=dtype)
        assert in_mode(Task(lambda a: a @ a, (weight,), parameters=(weight,)), "train").tolerance == TOLERANCES[wanted]


class TestSpoiltSteps:
    """What a wrong backward pass or optimizer does, each found in the formats in which gradients scatter."""

    LINEAR: ClassVar[dict[str, int]] = {"hidden": 32, "out": 16, "seq": 4, "batch": 2}
    RESNET: ClassVar[dict[str, int]] = {"batch": 8, "image": 32, "width": 4, "classes": 10}
    every_case = pytest.mark.parametrize(
        ("name", "params"),
        [("layer/linear", LINEAR), ("model/mlp", {"size": "small"}), ("model/resnet50", RESNET)],
        ids=lambda value: str(value)[:12],
    )

    def judge(self, name: str, params: dict[str, Any], mode: str, spoil: Callable[[Task], Task] = lambda task: task) -> Verification:
        found = built_ins().workloads[name]
        chosen = {**{axis: values[0] for axis, values in found.axes.items()}, **(found.sizes["small"] if "size" in params else params)}
        be, other = Torch(seed=0), Torch(seed=0)
        more = {"mode": mode} if "mode" in inspect.signature(found.bodies["torch"]).parameters else {}
        built, wide = (found.bodies["torch"](**{**chosen, "dtype": "bf16"}, be=side, **more) for side in (be, other))
        task, reference = in_mode(spoil(built), mode), other.upcast(wide)
        assert reference is not None
        want = other.outputs(observed(in_mode(reference, mode)))
        return compare(be.outputs(observed(task)), want, "fp64", own=task.tolerance, same_dtype=False, norm=task.norm_tolerance)

    @every_case
    @pytest.mark.parametrize("mode", ["bwd", "train"])
    @pytest.mark.parametrize("factor", [0.5, -1.0, 0.0, 1.5])
    def test_gradients_of_another_size_or_sign(self, name: str, params: dict[str, Any], mode: str, factor: float) -> None:
        def spoil(task: Task) -> Task:
            for item in task.parameters:
                item.requires_grad_(True).register_hook(lambda gradient: gradient * factor)
            return task

        assert self.judge(name, params, mode).status == "passed"
        found = self.judge(name, params, mode, spoil)
        assert found.status == "failed" and found.message.startswith("out.gradients")

    @every_case
    def test_a_loss_that_is_off_by_a_tenth(self, name: str, params: dict[str, Any]) -> None:
        def spoil(task: Task) -> Task:
            usual = task.loss or _torch_modes.mean_square
            return replace(task, loss=lambda output: usual(output) + 0.1 * usual(output).detach())

        assert self.judge(name, params, "train", spoil).message.startswith("out.loss")

    @every_case
    @pytest.mark.parametrize("factor", [0.0, -1.0, 0.5])
    def test_an_update_that_is_forgotten_backwards_or_too_small(
        self, name: str, params: dict[str, Any], factor: float, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        built: list[Any] = []

        class Lazy(torch.optim.SGD):  # type: ignore[misc, name-defined]
            def __init__(self, *args: Any, **kwargs: Any) -> None:
                super().__init__(*args, **kwargs)
                built.append(self)

            def step(self, *args: Any) -> Any:
                if self is built[0]:
                    self.param_groups[0]["lr"] *= factor
                return super().step(*args)

        monkeypatch.setattr(torch.optim, "SGD", Lazy)
        assert self.judge(name, params, "train").message.startswith("out.updates")


def build(name: str, mode: str, dtype: str = "fp32", be: Any = None) -> Task:
    found: Workload = built_ins().workloads[name]
    be = be or Torch(seed=0)
    return found.bodies["torch" if be.name == "torch" else "numpy"](**NORMED[name], dtype=dtype, be=be, mode=mode)


def disturb_statistics(task: Task) -> None:
    """Make the known statistics those of other data."""
    module = task.fn if isinstance(task.fn, torch.nn.Module) else None
    known = dict(module.named_buffers()) if module else dict(task.kwargs)
    for name, item in known.items():
        if "mean" in name:
            item.add_(3.0)
        elif "var" in name:
            item.mul_(4.0)


class TestBatchNorm:
    @every_normed
    def test_statistics_are_known_in_eval_and_those_of_the_batch_otherwise(self, name: str) -> None:
        for mode in ("eval", "fwd"):
            plain, other = build(name, mode), build(name, mode)
            disturb_statistics(other)
            with torch.no_grad():
                alike = torch.allclose(plain(), other(), rtol=1e-5, atol=1e-6)
            assert alike == (mode == "fwd")

    @every_normed
    def test_the_answer_is_right_in_double_precision_however_often_it_was_asked(self, name: str) -> None:
        for mode in ("eval", "fwd", "bwd", "train"):
            assert verdict(name, mode).status == "passed"

    @pytest.mark.parametrize("dtype", ["fp16", "bf16"])
    def test_short_formats_are_right_within_their_reach(self, dtype: str) -> None:
        for mode in ("fwd", "bwd", "train"):
            assert verdict("layer/conv_block", mode, dtype).status == "passed"

    @pytest.mark.parametrize("mode", ["bwd", "train"])
    @pytest.mark.parametrize("dtype", ["fp32", "bf16"])
    def test_known_statistics_where_those_of_the_batch_are_due_are_found(self, mode: str, dtype: str) -> None:
        def spoil(task: Task) -> None:
            assert isinstance(task.fn, torch.nn.Module)
            task.fn.eval()

        assert verdict("model/resnet50", mode, dtype, spoil).status == "failed"

    @every_normed
    def test_what_it_costs_is_declared_alike(self, name: str) -> None:
        one, other = build(name, "eval"), build(name, "train")
        assert (one.flops, one.bytes, one.items) == (other.flops, other.bytes, other.items)

    @pytest.mark.parametrize("mode", ["eval", "fwd"])
    def test_numpy_agrees_in_both(self, mode: str) -> None:
        mine = build("layer/conv_block", mode, "fp64")()
        theirs = build("layer/conv_block", mode, "fp64", Precise(seed=0))()
        np.testing.assert_allclose(mine.detach().numpy(), theirs, rtol=1e-9, atol=1e-12)

    def test_too_few_values_for_statistics_are_not_applicable(self) -> None:
        for name, few in (("model/resnet50", {"batch": 2, "image": 32}), ("layer/conv_block", {"batch": 1, "side": 1})):
            body = built_ins().workloads[name].bodies["torch"]
            body(**{**NORMED[name], **few}, dtype="fp32", be=Torch(seed=0), mode="eval")
            with pytest.raises(NotApplicable, match="value"):
                body(**{**NORMED[name], **few}, dtype="fp32", be=Torch(seed=0), mode="train")


def verdict(name: str, mode: str, dtype: str = "fp32", spoil: Callable[[Task], None] = lambda task: None) -> Verification:
    """Against itself in double precision, the second time it is asked."""
    be, other = Torch(seed=0), Torch(seed=0)
    built = build(name, mode, dtype, be)
    spoil(built)
    task, wide = in_mode(built, mode), other.upcast(build(name, mode, dtype, other))
    assert wide is not None
    observed(task)
    want = other.outputs(observed(in_mode(wide, mode)))
    return compare(be.outputs(observed(task)), want, "fp64", own=task.tolerance, same_dtype=False, norm=task.norm_tolerance)


def test_inputs_in_lists_are_widened_too_and_what_is_shared_stays_shared() -> None:
    shared = torch.ones(2)
    task = Task(lambda items, scale: items[0]["x"] * scale, ([{"x": shared}, shared, 3],), {"scale": shared})
    wide = Torch("cpu").upcast(task)
    assert wide is not None
    ((first, second, count),) = wide.args
    assert first["x"].dtype == torch.float64 and first["x"] is second is wide.kwargs["scale"] and count == 3
    assert wide().dtype == torch.float64
