"""The families of shapes: names, order and counts as the original's expander gives them."""

from __future__ import annotations

from typing import Any

import pytest

from steelyard.dialects.torchao.shapes import FAMILIES, LayerShape, expand
from steelyard.errors import UsageError


def points(**given: Any) -> list[tuple[str, int, int, int]]:
    return [(shape.name, shape.m, shape.k, shape.n) for shape in expand(given)]


def test_custom_shapes_are_as_listed_and_share_a_name() -> None:
    assert points(name="custom", shapes=[[1, 2, 3], [4, 5, 6]]) == [("custom", 1, 2, 3), ("custom", 4, 5, 6)]


def test_llama_has_its_four_layers() -> None:
    assert points(name="llama") == [
        ("llama_attn.wqkv", 16384, 8192, 1280), ("llama_attn.w0", 16384, 1024, 8192), ("llama_ffn.w13", 16384, 8192, 7168),
        ("llama_ffn.w2", 16384, 3584, 8192),
    ]  # fmt: skip


def test_powers_of_two() -> None:
    assert points(name="pow2") == [(f"pow2_{place}", size, size, size) for place, size in enumerate((1024, 2048, 4096, 8192, 16384))]
    assert points(name="pow2", min_power=3, max_power=3) == [("pow2_0", 8, 8, 8)]
    sizes = (1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576)
    assert points(name="pow2_extended") == [(f"pow2_extended_{place}", size, size, size) for place, size in enumerate(sizes)]


def test_sweeps_have_m_outermost_and_n_innermost() -> None:
    whole = points(name="sweep")
    assert len(whole) == 512 and whole[0] == ("sweep_0", 256, 256, 256) and whole[-1] == ("sweep_511", 32768, 32768, 32768)
    assert points(name="sweep", min_power=8, max_power=9) == [
        ("sweep_0", 256, 256, 256), ("sweep_1", 256, 256, 512), ("sweep_2", 256, 512, 256), ("sweep_3", 256, 512, 512),
        ("sweep_4", 512, 256, 256), ("sweep_5", 512, 256, 512), ("sweep_6", 512, 512, 256), ("sweep_7", 512, 512, 512),
    ]  # fmt: skip
    small = points(name="small_sweep")
    assert len(small) == 35 and small[:2] == [("small_sweep_0", 1024, 1024, 1024), ("small_sweep_1", 1024, 1024, 2048)]
    assert small[5] == ("small_sweep_5", 1024, 2048, 2048) and small[-1] == ("small_sweep_34", 16384, 16384, 16384)
    assert len(points(name="small_sweep", min_power=10, max_power=15)) == 56
    assert all(m <= k <= n for _, m, k, n in small)


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("llama4", [("FFN", 8192, 5120), ("QO_proj", 8192, 8192), ("KV_proj", 8192, 1024)]),
        ("deepseek_v3_236b", [("FFN", 1536, 5120), ("QKVO_proj", 7168, 7168)]),
        ("deepseek_v3_671b", [("FFN", 2048, 7168), ("QKVO_proj", 7168, 7168)]),
        ("qwen3_32b", [("QO_proj", 5120, 5120), ("KV_proj", 5120, 640)]),
        ("gemma3_27b", [("QO_proj", 4096, 4096), ("KV_proj", 4096, 1024)]),
    ],
)
def test_layers_of_models_come_with_both_batches_and_the_same_names(name: str, parts: list[tuple[str, int, int]]) -> None:
    assert points(name=name) == [(f"{name}_{part}", m, k, n) for m in (16384, 128000) for part, k, n in parts]


def test_there_are_eleven_families_and_each_expands() -> None:
    assert len(FAMILIES) == 11
    assert all(isinstance(expand({"name": name, "shapes": [[1, 1, 1]]})[0], LayerShape) for name in FAMILIES)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "name is missing"),
        ({"name": "small_swep"}, "small_swep"),
        ({"name": "custom"}, "shapes is missing or empty"),
        ({"name": "custom", "shapes": [[1, 2]]}, r"shapes\[0\] must be three whole numbers"),
        ({"name": "custom", "shapes": [[1, 2, 3], [1, True, 3]]}, r"shapes\[1\]"),
        ({"name": "custom", "shapes": [[1, 2, 0]]}, "above 0"),
        ({"name": "pow2", "min_power": 9, "max_power": 8}, "min_power 9 is above max_power 8"),
        ({"name": "pow2", "max_power": 99}, "max_power must be a whole number from 0 to 30, not 99"),
        ({"name": "pow2_extended", "min_power": 0}, "min_power must be a whole number from 1"),
        ({"name": "sweep", "min_power": "8"}, "not '8'"),
    ],
)
def test_what_is_wrong_is_told(given: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        expand(given)
