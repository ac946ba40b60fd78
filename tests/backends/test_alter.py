"""Values written where arrays lie: what the check after timing needs of a backend."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.backends.command import Command
from steelyard.backends.fake import Fake
from steelyard.backends.numpy import Numpy
from steelyard.engine.changes import altered, halved, negated, spoiled
from tests.engine.drive import steelyard
from tests.gpu.test_scrutiny import OWN


def torch_backend() -> Any:
    from steelyard.backends.torch import Torch

    return Torch()


FLOATS = ["fp64", "fp32", "fp16", "bf16", "fp8e4m3", "fp8e5m2"]


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_tensor_of_any_format_is_halved_where_it_lies_and_put_back(dtype: str) -> None:
    be = torch_backend()
    x = be.randn(4, 4, dtype=dtype)
    place, before = x.data_ptr(), be.leaf(x)[1].copy()
    with altered(be, x, halved) as done:
        assert done
        assert x.data_ptr() == place
        assert np.allclose(be.leaf(x)[1], 0.5 * before, atol=2**-9)
        assert not np.array_equal(be.leaf(x)[1], before)
    assert np.array_equal(be.leaf(x)[1], before)


def test_what_cannot_be_written_to_is_left_alone() -> None:
    import torch

    be = torch_backend()
    expanded, sparse = torch.randn(4).expand(3, 4), torch.eye(3).to_sparse()
    with torch.inference_mode():
        inference = torch.ones(3)
    for value in (expanded, sparse, inference, "text", 3, None, [torch.ones(2)]):
        assert not be.alter(value, halved)
    for value in (np.broadcast_to(np.ones(2), (3, 2)), np.array(["a"]), "text", 3, [1.0]):
        assert not Numpy().alter(value, halved)
    assert not Command().alter(np.ones(3), halved)


def test_a_leaf_that_has_a_gradient_keeps_it() -> None:
    be = torch_backend()
    x = be.randn(4).requires_grad_(True)
    x.sum().backward()
    assert be.alter(x, negated)
    assert x.requires_grad and x.is_leaf and x.grad is not None


@given(st.lists(st.integers(-100, 100), min_size=1, max_size=9), st.sampled_from(["int64", "int32", "uint8", "bool", "fp32"]))
def test_numbers_that_may_be_indices_stay_among_their_own(values: list[int], dtype: str) -> None:
    for be in (Fake(), torch_backend()):
        x = be.array(np.abs(np.array(values)), dtype)
        before = be.leaf(x)[1].copy()
        assert be.alter(x, spoiled)
        after = be.leaf(x)[1]
        assert (after == before.min()).all() if dtype != "fp32" else (after == -1 - before).all()


def test_kept_answers_and_overwritten_inputs_of_torch_are_found(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    words = ["run", "own.py", "-a", "n=16", "-V", "eager,kept,sorts,same,buffer", "--vs", "eager", "--budget", "5ms", "--json"]
    told = json.loads(steelyard(*words, cwd=tmp_path, check=3).stdout)
    assert [item["status"] for item in told["records"]] == ["ok", "wrong", "wrong", "ok", "ok"]
    assert {item["head"]["id"].partition("/")[2].rpartition("/")[2] for item in told["pairs"]} == {"same:eval", "buffer:eval"}
