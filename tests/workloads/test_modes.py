"""Operators and layers run in every mode they declare, learn from what they declare to be weights, and share none of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from steelyard.backends._torch_modes import in_mode  # noqa: E402
from steelyard.backends.torch import Torch  # noqa: E402
from steelyard.errors import Unsupported  # noqa: E402
from steelyard.measuring.verify import compare  # noqa: E402
from tests.workloads.tiny import OURS, POINT_IDS, POINTS, TINY, build, results  # noqa: E402

pytestmark = pytest.mark.torch

EVAL_ONLY = {"op/copy", "op/triad", "op/sort"}
ALL_MODES = ("eval", "fwd", "bwd", "train")
every_point = pytest.mark.parametrize(("name", "params"), POINTS, ids=POINT_IDS)
with_weights = pytest.mark.parametrize("name", [name for name, item in OURS.items() if "train" in item.modes])


@every_point
def test_every_declared_mode_runs_and_answers_with_numbers(name: str, params: dict[str, Any]) -> None:
    for mode in OURS[name].modes:
        be = Torch(seed=0)
        found = results(in_mode(build(name, params, be), mode), be)
        assert found and all(np.isfinite(item).all() for item in found)


@every_point
def test_modes_follow_from_what_there_is_to_differentiate(name: str, params: dict[str, Any]) -> None:
    task, modes = build(name, params, Torch(seed=0)), OURS[name].modes
    assert modes == (("eval",) if name in EVAL_ONLY else ALL_MODES if task.parameters else ALL_MODES[:3])
    assert {id(item) for item in task.parameters} <= {id(item) for item in task.args}


@with_weights
def test_a_step_moves_every_weight_downhill(name: str) -> None:
    task = build(name, TINY[name][""], Torch(seed=0), "fp64")
    step = in_mode(task, "train")
    before = [item.detach().clone() for item in task.parameters]
    assert step.observe is not None
    seen = step.observe()
    assert all(torch.equal(old, new) for old, new in zip(before, task.parameters, strict=True)), "observing puts weights back"
    assert all(update.any() for update in seen["updates"])
    first, second = step(), step()
    assert second < first
    for old, new, slope in zip(before, task.parameters, seen["gradients"], strict=True):
        assert slope.isfinite().all() and not torch.equal(old, new)


@with_weights
def test_two_builds_share_no_weights(name: str) -> None:
    one, other = (build(name, TINY[name][""], Torch(seed=0)) for _ in range(2))
    in_mode(one, "train")()
    fresh = build(name, TINY[name][""], Torch(seed=0))
    for kept, drawn in zip(other.parameters, fresh.parameters, strict=True):
        assert torch.equal(kept, drawn)


@pytest.mark.parametrize("name", ["layer/ln_linear", "layer/conv_block", "layer/moe"])
def test_a_planted_error_is_found(name: str) -> None:
    be = Torch(seed=0)
    task = build(name, TINY[name][""], be)
    right = be.outputs(task())
    assert compare(be.outputs(task()), right, "itself").status == "passed"
    for index in range(len(task.parameters)):
        wrong = [item * 1.01 if item is task.parameters[index] else item for item in task.args]
        assert task.fn is not None
        assert compare(be.outputs(task.fn(*wrong, **task.kwargs)), right, "itself").status == "failed"


class TestGroupedExperts:
    """The variant that computes only the chosen experts."""

    @pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
    @pytest.mark.parametrize("params", TINY["layer/moe"].values(), ids=TINY["layer/moe"])
    def test_answers_as_the_masked_form_does(self, params: dict[str, Any], dtype: str) -> None:
        be = Torch(seed=0)
        task = build("layer/moe", params, be, dtype)
        grouped = OURS["layer/moe"].variants["grouped"](task, be, {})
        found = compare(be.outputs(grouped()), be.outputs(task()), "masked")
        assert found.status == "passed", found.message

    def test_is_one_graph(self) -> None:
        be = Torch(seed=0)
        grouped = OURS["layer/moe"].variants["grouped"](build("layer/moe", TINY["layer/moe"][""], be, "bf16"), be, {})
        torch._dynamo.reset()
        compiled = torch.compile(grouped.fn, fullgraph=True, backend="eager")
        assert torch.equal(compiled(*grouped.args), grouped())

    def test_learns_the_same(self) -> None:
        be = Torch(seed=0)
        one, other = (build("layer/moe", TINY["layer/moe"][""], Torch(seed=0)) for _ in range(2))
        grouped, masked = in_mode(OURS["layer/moe"].variants["grouped"](other, be, {}), "train"), in_mode(one, "train")
        assert grouped.observe is not None and masked.observe is not None
        mine, theirs = grouped.observe(), masked.observe()
        torch.testing.assert_close(mine["gradients"], theirs["gradients"])

    def test_says_what_it_cannot_do(self) -> None:
        be = Torch(seed=0)
        task = build("layer/moe", TINY["layer/moe"][""], be, "fp64")
        with pytest.raises(Unsupported, match="fp64"):
            OURS["layer/moe"].variants["grouped"](task, be, {})
