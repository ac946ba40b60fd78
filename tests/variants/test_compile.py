"""torch.compile as a variant: it must have compiled something, and must say what."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from steelyard.engine.names import settle
from steelyard.errors import NotApplied, SteelyardError, UsageError
from steelyard.model.case import Case
from steelyard.model.task import Reading, Task
from steelyard.registry import Catalogue, built_ins
from steelyard.variants.compile import compile as variant

torch = pytest.importorskip("torch")
from steelyard.backends.torch import Torch  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    Torch.reset()
    yield
    Torch.reset()


def compiled(fn: Any, *args: Any, inspect: Any = None, **options: Any) -> Task:
    """Compiled by the cheapest backend there is: dynamo alone decides what these tests look at."""
    be = Torch(seed=1)
    return variant(Task(fn, args or (be.randn(8),), inspect=inspect, flops=3.0), be, {"backend": "eager", **options})


def broken(x: Any) -> Any:
    y = x + 1
    torch._dynamo.graph_break()
    return y * 2


def test_one_graph_is_counted_and_the_answer_stays() -> None:
    task = compiled(lambda x: torch.relu(x) + 1)
    x = task.args[0]
    assert torch.equal(task(), torch.relu(x) + 1)
    assert task.inspect is not None
    assert task.inspect() == {"graphs": 1, "graph_breaks": 0}
    assert task.effective == {"mode": "default", "fullgraph": False, "dynamic": None, "backend": "eager"}
    assert task.flops == 3.0


def test_a_graph_break_makes_two_and_is_counted_for_its_own_task_alone() -> None:
    first = compiled(broken)
    assert torch.equal(first(), (first.args[0] + 1) * 2)
    assert first.inspect is not None
    assert first.inspect() == {"graphs": 2, "graph_breaks": 1}
    second = compiled(lambda x: x * 3)
    second()
    assert second.inspect is not None
    assert second.inspect() == {"graphs": 1, "graph_breaks": 0}


def test_a_graph_break_fails_where_one_graph_was_asked_for() -> None:
    with pytest.raises(torch._dynamo.exc.Unsupported, match="graph_break"):
        compiled(broken, fullgraph=True)()


def test_a_function_that_dynamo_leaves_alone_is_not_applied() -> None:
    left_alone = torch._dynamo.disable(lambda x: x + 1)
    task = compiled(lambda x: left_alone(x))
    task()
    assert task.inspect is not None
    with pytest.raises(NotApplied, match="compiled no graph"):
        task.inspect()


def test_a_function_without_tensors_is_not_applied() -> None:
    task = compiled(lambda n: n + 1, 3)
    assert task() == 4
    assert task.inspect is not None
    with pytest.raises(NotApplied):
        task.inspect()


def test_graphs_without_an_operation_are_not_applied() -> None:
    task = compiled(lambda x: x.shape[0], dynamic=True)
    assert task() == 8 and Torch(seed=1).graphs() == 1
    assert task.inspect is not None
    with pytest.raises(NotApplied, match="without an operation"):
        task.inspect()


def test_a_compiler_whose_errors_are_suppressed_is_not_applied(caplog: pytest.LogCaptureFixture) -> None:
    def failing(graph: Any, inputs: Any) -> Any:
        raise RuntimeError("told to")

    with torch._dynamo.config.patch(suppress_errors=True):
        task = compiled(lambda x: x + 1, backend=failing)
        assert torch.equal(task(), task.args[0] + 1)
    assert "told to" in caplog.text
    assert task.inspect is not None
    with pytest.raises(NotApplied, match="compiled no graph"):
        task.inspect()


def test_compiling_again_while_it_is_timed_voids_the_figures() -> None:
    task = compiled(lambda x: x + 1, dynamic=False)
    task()
    assert task.fn is not None
    assert task.inspect is not None
    task.inspect()
    task.fn(torch.ones(9))
    with pytest.raises(SteelyardError, match="compiled 1 more graphs"):
        task.inspect()


def test_what_an_earlier_variant_did_is_told_too() -> None:
    task = compiled(lambda x: x + 1, inspect=lambda: {"layers": 4})
    task()
    assert task.inspect is not None
    assert task.inspect() == {"layers": 4, "graphs": 1, "graph_breaks": 0}

    def unchanged() -> dict[str, Any]:
        raise NotApplied("nothing was quantized")

    task = compiled(lambda x: x + 2, inspect=unchanged)
    task()
    assert task.inspect is not None
    with pytest.raises(NotApplied, match="quantized"):
        task.inspect()


def test_a_task_that_times_itself_cannot_be_compiled() -> None:
    with pytest.raises(SteelyardError, match="times itself"):
        variant(Task(measure=lambda: Reading(1.0)), Torch(), {})


def test_a_wrong_mode_or_option_is_found_before_anything_is_timed() -> None:
    catalogue = Catalogue({}, {}, {}, {"torch": {}}).extend(built_ins().describe(), "built-in")
    settle(Case("op/softmax", variant="compile[mode=max-autotune]"), catalogue)
    with pytest.raises(UsageError, match=r"no mode of variant compile named 'max-autotone'\n.*did you mean max-autotune"):
        settle(Case("op/softmax", variant="compile[mode=max-autotone]"), catalogue)
    with pytest.raises(UsageError, match="did you mean fullgraph"):
        settle(Case("op/softmax", variant="compile[fulgraph=true]"), catalogue)
    with pytest.raises(UsageError, match="did you mean dynamic"):
        compiled(lambda x: x, dynamc=True)


def test_compilers_need_a_fresh_interpreter_and_are_not_built_twice() -> None:
    assert (variant.fresh, variant.sticky, variant.backends) == (True, True, ("torch",))
    assert variant.describe()["choices"]["mode"][0] == "default"
