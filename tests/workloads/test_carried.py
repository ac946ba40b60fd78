"""Models in other frameworks: the weights of the torch module by name, shape and value, and its answer from an independent form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from steelyard import registry
from steelyard.backends.numpy import Precise
from steelyard.workloads.models.carried import STATISTICS

torch = pytest.importorskip("torch")


def built(name: str, be: Any, **more: Any) -> Any:
    found = registry.built_ins().workloads[name]
    params = {**{key: values[0] for key, values in found.axes.items()}, **found.sizes["small"]}
    return found.bodies[be.name](**params, be=be, **more)


@pytest.mark.parametrize("mode", ["eval", "fwd"])
@pytest.mark.parametrize("name", ["model/bert", "model/gpt", "model/vit", "model/resnet50"])
def test_a_model_has_the_weights_and_the_answer_of_its_torch_module(name: str, mode: str) -> None:
    from steelyard.backends.torch import Torch

    more = {"mode": mode} if name == "model/resnet50" else {}
    theirs, ours = built(name, Torch(seed=3), **more), built(name, Precise(seed=3), **more)
    wanted = {key: item.detach().numpy() for key, item in theirs.fn.named_parameters()}
    drawn = {key: item for key, item in ours.args[1].items() if not key.endswith(tuple(STATISTICS))}
    assert list(drawn) == list(wanted)
    for key, item in wanted.items():
        np.testing.assert_array_equal(drawn[key].astype(np.float32), item)
    assert (ours.flops, ours.bytes, ours.items) == (theirs.flops, theirs.bytes, theirs.items)
    np.testing.assert_allclose(theirs().detach().numpy(), ours(), rtol=1e-4, atol=1e-5)
