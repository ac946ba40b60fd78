"""A watched call tells what it ran and leaves everything as it was."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from steelyard.model.task import Task
from steelyard.variants.watch import Form, ObservedCall, differ, same, watch

torch = pytest.importorskip("torch")
from steelyard.backends.torch import Torch  # noqa: E402

pytestmark = pytest.mark.torch

PLAIN, LOW = Form("float32", False), Form("bfloat16", False)


@pytest.fixture
def be() -> Torch:
    return Torch(seed=1)


def in_bf16() -> Any:
    return torch.autocast("cpu", torch.bfloat16, cache_enabled=False)


def test_operators_are_seen_with_the_formats_that_they_take_and_give(be: Torch) -> None:
    task = Task(torch.matmul, (be.randn(4, 4), be.randn(4, 4)))
    (step,) = watch(task, be).steps
    assert (step.op, step.takes, step.gives) == ("mm", (PLAIN, PLAIN), (PLAIN,))
    under = watch(task, be, in_bf16)
    assert {(step.op, step.gives): count for step, count in under.steps.items()} == {("_to_copy", (LOW,)): 2, ("mm", (LOW,)): 1}
    assert under.beyond(watch(task, be)) == under.steps


def test_the_task_is_called_in_its_scope_and_the_further_one_is_inside(be: Torch) -> None:
    task = Task(torch.matmul, (be.randn(4, 4), be.randn(4, 4)), scope=in_bf16)
    assert any(LOW in step.gives for step in watch(task, be).steps)
    off = watch(task, be, lambda: torch.autocast("cpu", enabled=False))
    assert {form for step in off.steps for form in step.gives} == {PLAIN}


def test_a_tensor_with_channels_innermost_is_told_from_a_plain_one(be: Torch) -> None:
    image = be.randn(1, 4, 3, 3)
    steps = watch(Task(lambda x: (x + 1, x.contiguous(memory_format=torch.channels_last) + 1), (image,)), be).steps
    assert {step.takes[0].channels_last for step in steps if step.op == "add"} == {True, False}


@pytest.mark.parametrize("function", [torch.nn.functional.linear, torch.matmul])
def test_inference_mode_hides_nothing(be: Torch, function: Any) -> None:
    plain = Task(function, (be.randn(4, 4), be.randn(4, 4)))
    hidden = Task(torch.inference_mode()(function), plain.args)
    assert "mm" in watch(hidden, be).ops and not watch(hidden, be).ops & {"linear", "matmul"}


def test_what_the_call_overwrites_is_put_back(be: Torch) -> None:
    x, closed_over = be.randn(6), be.randn(6)
    buffers = [x.clone(), closed_over.clone()]

    def overwrite(x: Any) -> Any:
        x[:3].mul_(5)
        x.add_(1)
        torch.mul(x, 2, out=closed_over)
        return torch.zeros(3).add_(1)

    seen = watch(Task(overwrite, (x,)), be)
    assert {"add_", "mul_"} <= seen.ops
    assert torch.equal(x, buffers[0]) and torch.equal(closed_over, buffers[1])
    assert torch.equal(seen.output, torch.ones(3))


def test_what_prepares_a_call_comes_first(be: Torch) -> None:
    calls: list[str] = []
    watch(Task(lambda: calls.append("call"), prepare=lambda: calls.append("prepare")), be)
    assert calls == ["prepare", "call"]


def test_random_numbers_are_drawn_as_if_it_had_not_been(be: Torch) -> None:
    task = Task(lambda: torch.rand(4))
    torch.manual_seed(3)
    seen = watch(task, be)
    assert same(seen.output, task()) and not same(seen.output, task())


def test_a_compiled_function_is_watched_as_it_was_written_and_compiled_afterwards(be: Torch) -> None:
    Torch.reset()
    try:
        task = Task(torch.compile(lambda x: torch.relu(x @ x), backend="eager"), (be.randn(4, 4),))
        assert watch(task, be).ops == {"mm", "relu"}
        assert be.graphs() == 0
        task()
        assert be.graphs() == 1
        assert watch(task, be).ops == {"mm", "relu"}
        task()
        assert be.graphs() == 1
    finally:
        Torch.reset()


def test_a_compiler_that_the_call_itself_loads_does_not_remember_the_watch() -> None:
    script = (
        "import sys, torch\n"
        "from steelyard.backends.torch import Torch\n"
        "from steelyard.model.task import Task\n"
        "from steelyard.variants.watch import watch\n"
        "def work(x): return torch.relu(x @ x)\n"
        "be = Torch(seed=1)\n"
        "task = Task(lambda x: torch.compile(work, backend='eager')(x), (be.randn(4, 4),))\n"
        "watch(Task(torch.relu, task.args), be)\n"
        "print('torch._dynamo' in sys.modules, watch(task, be).ops == {'mm', 'relu'}, be.graphs())\n"
        "task()\n"
        "print(be.graphs())\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["False", "True", "0", "1"], done.stderr


def test_a_call_that_fails_is_not_judged(be: Torch) -> None:
    def fail() -> None:
        raise ValueError("told to")

    seen = watch(Task(fail), be)
    assert isinstance(seen.error, ValueError) and not seen.steps
    assert differ(Task(fail), be, ObservedCall(), seen) and differ(Task(fail), be, seen, ObservedCall())


class Hidden:
    """Work that the dispatcher does not see, with a setting of its own."""

    def __init__(self, next_one: Callable[[], float]) -> None:
        self.next_one, self.factor = next_one, 1.0

    def __call__(self, x: Any) -> Any:
        return torch.from_numpy(x.numpy() * self.factor * self.next_one())

    @contextmanager
    def doubled(self) -> Iterator[None]:
        self.factor = 2.0
        try:
            yield
        finally:
            self.factor = 1.0


def test_where_kernels_are_hidden_the_answer_tells_unless_it_differs_anyway(be: Torch) -> None:
    steady, restless = Hidden(lambda: 1.0), Hidden(iter(range(1, 99)).__next__)
    for hidden, told in ((steady, True), (restless, False)):
        task = Task(hidden, (be.randn(4),))
        assert differ(task, be, watch(task, be), watch(task, be, hidden.doubled)) is told
    task = Task(steady, (be.randn(4),))
    assert not differ(task, be, watch(task, be), watch(task, be, torch.no_grad))


def test_outputs_agree_to_the_bit_and_nan_with_nan() -> None:
    nan = torch.tensor([1.0, float("nan")])
    assert same({"a": nan}, {"a": nan.clone()})
    assert not same(nan, torch.tensor([1.0, 2.0]))
    assert not same([nan], [nan, nan]) and not same(nan, nan.double())
