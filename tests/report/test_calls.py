"""Described calls in few words, whatever stands in them."""

from __future__ import annotations

from typing import Any

import pytest

from steelyard.report.calls import facets

TENSOR = {"type": "tensor", "dtype": "float", "shape": [64, 32]}
LIST = {"type": "genericlist", "value": [TENSOR, {"type": "int", "value": 3}]}


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"op": "torch.add", "input": {"args": [TENSOR, TENSOR]}}, "torch.add | fp32[64,32] fp32[64,32]"),
        ({"op": "torch.cat", "input": {"args": [LIST]}}, "torch.cat | [fp32[64,32] 3]"),
        ({"op": "torch.nn.Linear", "build": {"args": [{"type": "int", "value": 8}], "kwargs": {"bias": {"type": "bool", "value": False}}},
          "input": {"args": [TENSOR]}}, "torch.nn.Linear | (8 bias=false) | fp32[64,32]"),
        ({"op": "x", "build": [], "input": {"args": [{"type": "none"}]}, "seed": 7}, "x | () | none | seed=7"),
        ({"op": "x", "input": {"args": [{"type": "tensor", "dtype": "odd", "shape": "?"}]}}, "x | odd[?]"),
        ({"op": "my.squares", "input": {"args": [{"shape": [128, 128]}], "generator": "Ones"}}, "my.squares | [128,128]"),
        ({"op": "x", "input": "#0123456789ab"}, 'x | "#0123456789ab"'),
        ({"op": "x", "input": {"args": [TENSOR] * 20}}, "x | " + "fp32[64,32] " * 4 + "fp32[64,32]…"),
    ],
)  # fmt: skip
def test_calls_are_told_apart_by_operator_and_arguments(params: dict[str, Any], words: str) -> None:
    assert " | ".join(facets(params).values()) == words
