"""Every operator and layer computes what its independent numpy reference computes, however often and wherever it is called."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from steelyard.backends.numpy import Numpy, Precise  # noqa: E402
from steelyard.backends.torch import Torch  # noqa: E402
from steelyard.errors import NotApplicable, UsageError  # noqa: E402
from steelyard.measuring.verify import compare  # noqa: E402
from tests.workloads.tiny import OURS, POINT_IDS, POINTS, TINY, arrays, build, defaults, results  # noqa: E402

pytestmark = pytest.mark.torch

TOLERANCE = {"fp64": 1e-12, "fp32": 2e-6, "fp16": 4e-3, "bf16": 3e-2}
OUTPUT_ARGUMENT = ("op/copy", "op/triad")
every_point = pytest.mark.parametrize(("name", "params"), POINTS, ids=POINT_IDS)


def close(found: np.ndarray[Any, Any], expected: np.ndarray[Any, Any], dtype: str) -> None:
    assert found.shape == expected.shape
    if expected.dtype.kind == "f":
        assert np.abs(found - expected).max() <= TOLERANCE[dtype] * max(1.0, np.abs(expected).max())
    else:
        np.testing.assert_array_equal(found, expected)


def test_every_workload_is_tested() -> None:
    assert set(TINY) == set(OURS)


@pytest.mark.parametrize("dtype", ["fp64", "fp32", "fp16", "bf16"])
@every_point
def test_torch_agrees_with_the_precise_reference(name: str, params: dict[str, Any], dtype: str) -> None:
    be, exact = Torch(seed=0), Precise(seed=0)
    found, expected = results(build(name, params, be, dtype), be), results(build(name, params, exact, dtype), exact)
    assert len(found) == len(expected) > 0
    for one, other in zip(found, expected, strict=True):
        close(one, other, dtype)


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("name", [name for name in OURS if name.startswith("layer/")])
def test_layers_pass_verification_in_every_format(name: str, dtype: str) -> None:
    be, exact = Torch(seed=0), Precise(seed=0)
    params = {**defaults(OURS[name]), **OURS[name].sizes["small"]}
    params.pop("dtype")
    task = build(name, params, be, dtype)
    want = exact.outputs(build(name, params, exact, dtype)())
    verdict = compare(be.outputs(task()), want, "numpy fp64", own=task.tolerance, same_dtype=False)
    assert verdict.status == "passed", verdict.message


@every_point
def test_plain_numpy_agrees_too_and_keeps_its_format(name: str, params: dict[str, Any]) -> None:
    be, exact = Numpy(seed=3), Precise(seed=3)
    for one, other in zip(results(build(name, params, be), be), results(build(name, params, exact), exact), strict=True):
        assert one.dtype == (np.float32 if other.dtype == np.float64 else other.dtype)
        close(one, other, "fp32")


@every_point
def test_equal_seeds_give_equal_inputs_on_both_backends(name: str, params: dict[str, Any]) -> None:
    be, other = Torch(seed=5), Numpy(seed=5)
    for one, two in zip(arrays(build(name, params, be), be), arrays(build(name, params, other), other), strict=True):
        np.testing.assert_array_equal(one, two)


@every_point
def test_a_second_call_answers_the_same_and_leaves_the_inputs_alone(name: str, params: dict[str, Any]) -> None:
    be = Torch(seed=0)
    task = build(name, params, be)
    kept = slice(1, None) if name in OUTPUT_ARGUMENT else slice(None)
    before, first, second, after = arrays(task, be)[kept], results(task, be), results(task, be), arrays(task, be)[kept]
    for one, two in zip([*before, *first], [*after, *second], strict=True):
        np.testing.assert_array_equal(one, two)


@every_point
def test_all_data_of_a_task_can_be_moved(name: str, params: dict[str, Any]) -> None:
    be = Torch(seed=0)
    task = build(name, params, be)
    expected = results(task, be)
    moved = be.relocate(task, random.Random(0))
    for item in (*task.args, *task.kwargs.values()):
        if isinstance(item, torch.Tensor):
            item.zero_()
    for one, two in zip(results(moved, be), expected, strict=True):
        np.testing.assert_array_equal(one, two)


@every_point
def test_compiles_as_one_graph(name: str, params: dict[str, Any]) -> None:
    be = Torch(seed=0)
    task = build(name, params, be)
    torch._dynamo.reset()
    compiled = torch.compile(task.fn, fullgraph=True, backend="eager")
    expected = results(task, be)
    for one, two in zip(be.outputs(compiled(*task.args, **task.kwargs)), expected, strict=True):
        np.testing.assert_array_equal(one.data, two)


@pytest.mark.parametrize(
    ("name", "change", "reason"),
    [
        ("op/sdpa", {"heads": 4, "kv_heads": 3}, "kv_heads=3"),
        ("layer/attention", {"hidden": 10}, "hidden=10"),
        ("op/conv2d", {"groups": 4}, "groups=4"),
        ("op/topk", {"k": 100}, "k=100"),
        ("layer/moe", {"top_k": 6}, "top_k=6"),
    ],
)
def test_a_shape_without_meaning_says_why(name: str, change: dict[str, Any], reason: str) -> None:
    for be in (Torch(seed=0), Numpy(seed=0)):
        with pytest.raises(NotApplicable, match=reason):
            build(name, {**TINY[name][""], **change}, be)


def test_an_unknown_approximation_is_named() -> None:
    with pytest.raises(UsageError, match="did you mean tanh"):
        build("op/gelu", {"n": 4, "approximate": "tan"}, Torch(seed=0))
