"""One operator with described arguments: what is timed, restored, differentiated, compared and declared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from steelyard.backends.torch import Torch  # noqa: E402
from steelyard.errors import NotApplicable, Unsupported, UsageError  # noqa: E402
from steelyard.measuring.verify import compare  # noqa: E402
from steelyard.model.operators import generator, operator  # noqa: E402
from steelyard.model.task import Task, observed  # noqa: E402
from steelyard.registry import Loaded, built_ins  # noqa: E402
from steelyard.workloads.operators.call import Call, DescribedCall  # noqa: E402
from tests.engine.drive import run_json  # noqa: E402
from tests.workloads.operators.specs import Spec, call, indices, many, of, tensor  # noqa: E402

pytestmark = pytest.mark.torch

LINEAR = call(of("int", 8), of("int", 4))
CALLS: dict[str, tuple[str, Any, Spec]] = {
    "add": ("torch.add", None, call(tensor(4, 5), tensor(4, 5), alpha=of("int", 2))),
    "baddbmm": ("torch.baddbmm", None, call(tensor(2, 1, 5), tensor(2, 3, 4), tensor(2, 4, 5), beta=of("int", 1), alpha=of("int", 1))),
    "cat": ("torch.cat", None, call(many(tensor(2, 3), tensor(4, 3), kind="tuple"), of("int", 0))),
    "mul by a number": ("torch.mul", None, call(tensor(4, 4), of("int", 2.5))),
    "one constant": ("torch.matmul", None, call(tensor(4, 3), tensor(3, 4, requires_grad=False))),
    "relu": ("torch.nn.functional.relu", None, call(tensor(4, 4, distribution={"name": "normal"}))),
    "cross entropy": ("torch.nn.functional.cross_entropy", None, call(tensor(6, 9), indices(6, arg=0, dim=1))),
    "linear": ("torch.nn.Linear", LINEAR, call(tensor(3, 8))),
    "first layer": ("torch.nn.Linear", LINEAR, call(tensor(3, 8, requires_grad=False))),
    "convolution": ("torch.nn.Conv2d", call(*[of("int", 3)] * 3), call(tensor(2, 3, 6, 6, memory_format="channels_last"))),
    "lazy layer": ("torch.nn.LazyLinear", call(of("int", 4)), call(tensor(3, 8))),
    "embedding": ("torch.nn.functional.embedding", None, call(indices(7, arg=1, dim=0), tensor(50, 4))),
    "aten": ("aten::add", None, call(tensor(4), tensor(4), of("int", 3))),
}  # fmt: skip
SCALED = call(tensor(16, 16, dtype="fp8e4m3"), tensor(16, 16, dtype="fp8e4m3", strides=[1, 16]), tensor(1), tensor(1))
WEIGHTS = {"linear": 2, "first layer": 2, "convolution": 2}


def body(op: str, build: Any, input: Spec, mode: str = "eval", loaded: Loaded | None = None, seed: int = 0) -> tuple[Torch, Task]:
    be = Torch(seed=0)
    return be, built_ins().workloads["call/torch"].bodies["torch"](op, build, input, seed, be, mode, loaded or Loaded())


def prepared(op: str, build: Any, input: Spec, loaded: Loaded | None = None, **more: Any) -> Call:
    found = loaded or Loaded()
    return DescribedCall(op, build, input, found.operators, found.generators, **more).prepare("cpu")


def check(*described: Any) -> str:
    return DescribedCall(*described).examine()[0]


every_call = pytest.mark.parametrize("name", CALLS)


class TestModes:
    @every_call
    @pytest.mark.parametrize("mode", ["eval", "fwd", "bwd", "train"])
    def test_every_mode_gives_the_answer_of_double_precision(self, name: str, mode: str) -> None:
        be, task = body(*CALLS[name], mode=mode)
        run = be.in_mode(task, mode)
        got = be.outputs(observed(run))
        if mode in ("eval", "fwd"):
            assert task.reference is not None
            want = be.outputs(task.reference())
        else:
            other, plain = body(*CALLS[name], mode=mode)
            wide = other.upcast(plain)
            assert wide is not None
            want = other.outputs(observed(other.in_mode(wide, mode)))
        assert got and compare(got, want, "fp64", same_dtype=False, own=run.tolerance, norm=run.norm_tolerance).status == "passed"

    @pytest.mark.parametrize(
        ("name", "gradients"), [("add", 2), ("cat", 2), ("one constant", 1), ("linear", 3), ("first layer", 2), ("embedding", 1)]
    )
    def test_gradients_flow_to_what_requires_them_and_nothing_else(self, name: str, gradients: int) -> None:
        be, task = body(*CALLS[name], mode="bwd")
        assert len(be.outputs(observed(be.in_mode(task, "bwd")))) == gradients
        assert all(item.requires_grad for item in task.parameters)
        assert len(task.parameters) == WEIGHTS.get(name, gradients)

    def test_backward_gives_the_gradient_of_every_argument(self) -> None:
        be, task = body("torch.mul", None, call(tensor(3), tensor(3)), "bwd")
        one, other = task.args
        seed = torch.tensor([0.25, 0.5, 0.75])
        for got, want in zip(be.in_mode(task, "bwd")(), (seed * other, seed * one), strict=True):
            assert torch.equal(got, want)

    @pytest.mark.parametrize(
        ("op", "input", "mode", "why"),
        [
            ("torch.add_", call(tensor(3), tensor(3)), "bwd", "overwrites"),
            ("torch.argmax", call(tensor(3)), "bwd", "no output has a gradient"),
            ("torch.add", call(tensor(3, dtype="long"), tensor(3, dtype="long")), "bwd", "no output has a gradient"),
            ("torch.add", call(tensor(3, requires_grad=False), of("int", 1)), "train", "no output has a gradient"),
            ("aten::_scaled_mm", SCALED, "bwd", "no derivative"),
            ("torch.abs", call(tensor(3, dtype="complex64")), "train", "real numbers"),
            ("torch.fft.fft", call(tensor(4)), "train", "real numbers"),
        ],
    )
    def test_where_there_is_no_backward_pass_that_is_said(self, op: str, input: Spec, mode: str, why: str) -> None:
        with pytest.raises(NotApplicable, match=why):
            body(op, None, input, mode)

    def test_evaluation_records_no_graph(self) -> None:
        for name in ("add", "linear"):
            be, task = body(*CALLS[name])
            assert not any(item.requires_grad for item in task.args)
            assert not be.in_mode(task, "eval")().requires_grad


class TestInPlace:
    @pytest.mark.parametrize(
        ("op", "build", "input"),
        [
            ("torch.add_", None, call(tensor(4), tensor(4))),
            ("torch.clamp_", None, call(tensor(4), max=of("float", 0.2))),
            ("aten::mul_", None, call(tensor(4), of("float", 0.5))),
            ("torch.Tensor.__imul__", None, call(tensor(4), tensor(4))),
            ("torch.nn.functional.relu", None, call(tensor(4, distribution={"name": "constant", "value": -1.0}), of("bool", True))),
            ("torch.nn.functional.relu", None, call(tensor(4, distribution={"name": "constant", "value": -1.0}), inplace=of("bool", True))),
            ("torch.nn.ReLU", call(inplace=of("bool", True)), call(tensor(4, distribution={"name": "constant", "value": -1.0}))),
            ("torch.sqrt_", None, call(tensor(4, dtype="double"))),
            ("torch.t_", None, call(tensor(2, 4))),
            ("torch.unsqueeze_", None, call(tensor(4, 2, strides=[1, 4]), of("int", 0))),
        ],
    )
    def test_every_call_finds_its_inputs_as_they_were(self, op: str, build: Any, input: Spec) -> None:
        be, task = body(op, build, input)
        before = task.args[0].clone()
        first = task().clone()
        assert not torch.equal(task.args[0], before)
        second = task()
        assert torch.equal(first, second)
        assert task.reference is not None
        task.reference()
        assert torch.equal(first, second), "the answer is the argument itself, and a reference leaves it alone"
        assert torch.equal(first, task()), "nor does a reference change what the next call finds"
        assert compare(be.outputs(second), be.outputs(task.reference()), "fp64", same_dtype=False).status == "passed"

    def test_what_overwrites_nothing_needs_nothing_restored(self) -> None:
        for name in ("add", "linear"):
            assert body(*CALLS[name])[1].prepare is None
        out = body("torch.add", None, call(tensor(3), tensor(3), out=tensor(3)))[1]
        assert out.prepare is None and torch.equal(out(), out.args[0] + out.args[1])


class TestChance:
    DROPOUT = ("torch.nn.functional.dropout", None, call(tensor(40, 40)))

    @pytest.mark.parametrize("mode", ["eval", "fwd", "bwd", "train"])
    def test_a_random_operator_says_so_and_is_not_compared(self, mode: str) -> None:
        be, task = body(*self.DROPOUT, mode=mode)
        assert "random" in task.effective
        assert "are random" in be.in_mode(task, mode).unverified

    def test_each_block_begins_at_the_same_numbers(self) -> None:
        _, task = body(*self.DROPOUT)
        assert torch.equal(task(), task())
        assert not torch.equal(task(), body(*self.DROPOUT, seed=1)[1]())

    def test_its_numbers_are_not_those_of_its_inputs(self) -> None:
        _, task = body("torch.bernoulli", None, call(tensor(4000)))
        assert task().mean() == pytest.approx(0.5, abs=0.05)

    def test_any_seed_of_a_run_and_of_an_operator_fit_together(self) -> None:
        make = built_ins().workloads["call/torch"].bodies["torch"]
        assert make("torch.abs", None, call(tensor(3)), 2**63 - 1, Torch(seed=10**30), "eval", Loaded())().shape == (3,)

    def test_weights_are_drawn_from_the_seed(self) -> None:
        one, same, other = (body(*CALLS["linear"], seed=seed)[1] for seed in (3, 3, 4))
        assert torch.equal(one.parameters[0], same.parameters[0]) and not torch.equal(one.parameters[0], other.parameters[0])
        torch.rand(5)
        assert torch.equal(one.parameters[0], body(*CALLS["linear"], seed=3)[1].parameters[0])

    def test_an_answer_that_is_not_unique_is_not_held_against_another_precision(self) -> None:
        for op, input in (
            ("torch.topk", call(tensor(9), of("int", 2))),
            ("torch.linalg.inv", call(tensor(3, 3))),
            ("aten::sort", call(tensor(9))),
        ):
            reference = body(op, None, input)[1].reference
            assert reference is not None
            with pytest.raises(Unsupported):
                reference()


class TestCost:
    @pytest.mark.parametrize(
        ("op", "build", "input", "flops", "moved"),
        [
            ("torch.add", None, call(tensor(8, 8), tensor(8, 8)), None, 3 * 64 * 4),
            ("torch.add_", None, call(tensor(8, 8), tensor(8, 8)), None, 3 * 64 * 4),
            ("torch.add", None, call(tensor(8, 8, strides=[0, 1]), tensor(8, 8)), None, 8 * 4 + 2 * 64 * 4),
            ("torch.add", None, call(tensor(8), tensor(8), out=tensor(8)), None, 3 * 8 * 4),
            ("torch.mm", None, call(tensor(4, 5), tensor(5, 6)), 2 * 4 * 5 * 6, 4 * (20 + 30 + 24)),
            ("torch.nn.functional.linear", None, call(tensor(4, 5, dtype="bf16"), tensor(6, 5, dtype="bf16")), 240, 2 * (20 + 30 + 24)),
            ("torch.nn.Linear", LINEAR, call(tensor(3, 8)), 2 * 3 * 8 * 4, 4 * (24 + 32 + 4 + 12)),
            ("torch.reshape", None, call(tensor(4, 4), many(of("int", 16))), None, None),
            ("torch.transpose", None, call(tensor(4, 4), of("int", 0), of("int", 1)), None, None),
            ("torch.zeros_like", None, call(tensor(4, 4)), None, 64),
            ("torch.empty_like", None, call(tensor(4, 4)), None, None),
            ("torch.masked_fill", None, call(tensor(8), tensor(8, dtype="bool"), of("float", 0.0)), None, 8 * (4 + 1 + 4)),
            ("torch.nn.functional.embedding", None, call(indices(7, arg=1, dim=0), tensor(50, 4)), None, 7 * 8 + 2 * 7 * 4 * 4),
            ("torch.index_select", None, call(tensor(50, 4), of("int", 0), indices(7, arg=0, dim=0)), None, 7 * 8 + 2 * 7 * 4 * 4),
            ("torch.gather", None, call(tensor(5, 50), of("int", 1), indices(5, 7, arg=0, dim=1)), None, 35 * 8 + 2 * 35 * 4),
            ("torch.nn.functional.embedding_bag", None, call(indices(6, 3, arg=1, dim=0), tensor(50, 4)), None, 18 * 8 + 18 * 16 + 6 * 16),
            ("torch.index_add", None, call(tensor(9, 4), of("int", 0), indices(3, arg=0, dim=0), tensor(3, 4)), None, None),
            ("torch.masked_select", None, call(tensor(9), tensor(9, dtype="bool")), None, None),
        ],
    )
    def test_the_least_work_is_declared_where_it_is_known(
        self, op: str, build: Any, input: Spec, flops: float | None, moved: float | None
    ) -> None:
        _, task = body(op, build, input)
        assert (task.flops, task.bytes) == (flops, moved)

    def test_attention_counts_both_products(self) -> None:
        _, task = body("torch.nn.functional.scaled_dot_product_attention", None, call(*[tensor(1, 2, 16, 8)] * 3))
        assert task.flops == 2 * 2 * (2 * 16 * 16 * 8)

    def test_the_call_is_told_in_words(self) -> None:
        assert body(*CALLS["add"])[1].effective == {"call": "torch.add(fp32[4,5], fp32[4,5], alpha=2)", "drawn": {}}
        assert body(*CALLS["linear"])[1].effective["call"] == "torch.nn.Linear(8, 4)(fp32[3,8])"
        assert body(*CALLS["cat"])[1].effective["call"] == "torch.cat((fp32[2,3], fp32[4,3]), 0)"
        ranged = call(tensor(3), of("str", "x" * 500), {"type": "int", "value_range": [2, 2]})
        _, task = body("mine", None, ranged, loaded=Loaded(operators={"mine": operator("mine")(lambda x, text, k: x * k)}))
        assert task.effective["drawn"] == {"args[2]": 2} and len(task.effective["call"]) <= 160


class TestChecking:
    @pytest.mark.parametrize(
        ("op", "build", "input", "why"),
        [
            ("torch.mm", None, call(tensor(2, 3), tensor(4, 5)), "reduction dim"),
            ("torch.add", None, call(tensor(2, 3), tensor(4)), "broadcast"),
            ("torch.mmm", None, call(tensor(2, 3), tensor(4, 5)), "did you mean torch.mm"),
            ("torch.load", None, call(of("str", "x")), "no operator named"),
            ("torch.nn.Linear", call(of("int", 3)), call(tensor(2, 3)), "cannot be built with these arguments"),
            ("torch.nn.Linear", call(of("int", 3), of("int", 4)), call(tensor(2, 5)), "reduction dim"),
            ("torch.nn.Linear", None, call(tensor(2, 5)), "must be built before it is called"),
            ("torch.add", call(of("int", 3)), call(tensor(2), tensor(2)), "nothing to build"),
            ("torch.add", None, call(tensor(2), of("str", "x")), "argument"),
            ("torch.add", None, call(tensor(2), {"type": "tensor", "dtype": "flot", "shape": [2]}), "args[1]: no dtype named"),
            ("aten::add", None, call(of("str", "x")), "no overload"),
            ("torch.add", None, {**call(tensor(2), tensor(2)), "generator": "Mine"}, "no data generator named 'Mine'"),
            ("torch.add", None, call(tensor(2), tensor(2), gamma=of("int", 1)), "gamma"),
            ("torch.Tensor.to", None, call(tensor(2), of("device", "gpu")), "no device 'gpu'"),
        ],
    )
    def test_what_cannot_run_is_told_without_data(self, op: str, build: Any, input: Spec, why: str) -> None:
        found = check(op, build, input, {}, {})
        assert why in found and "\n" not in found

    @every_call
    def test_what_can_run_is_silent(self, name: str) -> None:
        assert check(*CALLS[name], {}, {}) == ""

    @pytest.mark.parametrize(
        ("op", "build", "input"),
        [
            ("torch.masked_select", None, call(tensor(4), tensor(4, dtype="bool"))),
            ("torch.nonzero", None, call(tensor(4))),
            ("torch.Tensor.item", None, call(tensor(1))),
            ("torch.Tensor.cpu", None, call(tensor(1))),
            ("torch.equal", None, call(tensor(2), tensor(2))),
            ("torch.unique", None, call(tensor(4))),
            ("torch.histc", None, call(tensor(4))),
            ("torch.repeat_interleave", None, call(tensor(3), tensor(3, dtype="long", values=[1, 2, 1]))),
        ],
    )
    def test_what_only_data_can_tell_is_no_mistake_and_runs(self, op: str, build: Any, input: Spec) -> None:
        assert check(op, build, input, {}, {}) == ""
        be, task = body(op, build, input)
        observed(be.in_mode(task, "eval"))

    def test_a_large_model_costs_nothing_to_check(self) -> None:
        assert check("pytorch.model.resnet", [], call(tensor(1024, 3, 224, 224)), {}, {}) == ""
        assert "channel" in check("pytorch.model.alex_net", [], call(tensor(1024, 4, 224, 224)), {}, {})

    def test_what_makes_tensors_out_of_nothing_makes_none_without_data(self) -> None:
        for op in ("aten::zeros", "aten::rand", "aten::empty"):
            assert check(op, None, call(many(of("int", 10**15))), {}, {}) == ""

    def test_users_operators_and_generators_are_not_called(self) -> None:
        @operator("mine")
        def fail(x: Any) -> Any:
            raise AssertionError("called")

        @generator("Mine")
        def drawn(spec: Spec, device: str) -> Any:
            raise AssertionError("called")

        assert check("mine", None, call(tensor(2)), {"mine": fail}, {}) == ""
        assert check("torch.add", None, call(tensor(2)), {}, {"Mine": drawn}, ("", "Mine")) == ""
        assert check("torch.add", None, {**call(tensor(2)), "generator": "Mine"}, {}, {"Mine": drawn}) == ""


class TestUsersOwn:
    """Operators and data generators that are registered."""

    def test_build_forward_backward_and_cleanup_belong_to_one_instance(self) -> None:
        made: list[Any] = []

        @operator("my.scale")
        class Scale:
            def build(self, factor: float) -> None:
                self.factor, self.cleaned = factor, False
                made.append(self)

            def forward(self, x: Any) -> Any:
                return x * self.factor

            def cleanup(self) -> None:
                self.cleaned = True

        loaded = Loaded(operators={"my.scale": Scale})
        be, task = body("my.scale", call(of("float", 3.0)), call(tensor(4)), "bwd", loaded)
        assert [item.tolist() for item in be.in_mode(task, "bwd")()] == [[0.75, 1.5, 2.25, 3.0]]
        assert made[0].device == "cpu" and task.cleanup is not None
        task.cleanup()
        assert made[0].cleaned
        assert prepared("my.scale", call(of("float", 2.0)), call(tensor(4)), loaded).operator is not made[0]

    def test_a_module_of_the_user_has_weights(self) -> None:
        @operator("my.layer")
        class Layer(torch.nn.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.weight = torch.nn.Parameter(torch.ones(4))

            def forward(self, x: Any) -> Any:
                return x * self.weight

        be, task = body("my.layer", None, call(tensor(4)), "train", Loaded(operators={"my.layer": Layer}))
        assert len(task.parameters) == 1 and isinstance(task.fn, torch.nn.Module)
        assert len(be.outputs(observed(be.in_mode(task, "train")))) == 3

    def test_build_may_be_absent_empty_or_given(self) -> None:
        calls: list[tuple[Any, ...]] = []

        @operator("my.op")
        class Op:
            def build(self, *args: Any) -> None:
                calls.append(args)

            def forward(self, x: Any) -> Any:
                return x

        for build in (None, [], call(), call(of("int", 3))):
            prepared("my.op", build, call(tensor(1)), Loaded(operators={"my.op": Op}))
        assert calls == [(), (), (3,)]

    def test_a_generator_makes_the_arguments(self) -> None:
        @generator("Rows")
        def rows(spec: Spec, device: str) -> tuple[list[Any], dict[str, Any]]:
            return [torch.rand(spec["rows"], device=device)], {"alpha": 2, "other": torch.ones(spec["rows"])}

        loaded = Loaded(generators={"Rows": rows})
        spec = {"args": [], "rows": 5}
        one, same = (prepared("torch.add", None, spec, loaded, names=("", "Rows")) for _ in range(2))
        assert torch.equal(one.args[0], same.args[0]) and one.kwargs["alpha"] == 2
        _, task = body("torch.add", None, {**spec, "generator": "Rows"}, loaded=loaded)
        assert torch.equal(task(), one.args[0] + 2)

    @pytest.mark.parametrize("name", ["PyTorch:DefaultDataGenerator", "PyTorch::DefaultDataGenerator", "DefaultDataGenerator", ""])
    def test_the_usual_generator_has_several_spellings(self, name: str) -> None:
        assert prepared("torch.add", None, call(tensor(2), tensor(2)), names=("", name)).args[0].shape == (2,)

    def test_a_generator_that_gives_something_else_is_told(self) -> None:
        broken = generator("Broken")(lambda spec, device: 3)  # type: ignore[arg-type,return-value]
        with pytest.raises(UsageError, match="returned int"):
            prepared("torch.add", None, call(), Loaded(generators={"Broken": broken}), names=("", "Broken"))


def test_the_workload_is_listed_with_its_small_default() -> None:
    found = built_ins().workloads["call/torch"]
    assert set(found.axes) == {"op", "build", "input", "seed"} and found.modes == ("eval", "fwd", "bwd", "train", "call")
    be = Torch(seed=0)
    task = found.bodies["torch"](**{name: values[0] for name, values in found.axes.items()}, be=be)
    assert task().shape == (256, 256)


def test_the_workload_runs_from_the_command_line(tmp_path: Path) -> None:
    (tmp_path / ".steelyard").mkdir()
    found = run_json("call/torch[op=torch.mm]", "--budget", "20ms", cwd=tmp_path)["records"]
    assert [record["status"] for record in found] == ["ok"]
    assert found[0]["effective"]["call"] == "torch.mm(fp32[256,256], fp32[256,256])"
    assert found[0]["verification"]["status"] == "passed" and found[0]["metrics"]["compute"]["value"] > 0
