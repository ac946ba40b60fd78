"""The families of shapes that a config names: what each expands to, in the original's order and with its names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from steelyard.errors import UsageError, unknown

LARGEST, MOST_POWER = 2**40, 30
LARGE_BATCHES = (16384, 128000)
LLAMA = {"attn.wqkv": (8192, 1280), "attn.w0": (1024, 8192), "ffn.w13": (8192, 7168), "ffn.w2": (3584, 8192)}
MODELS: Mapping[str, Mapping[str, tuple[int, int]]] = {
    "llama4": {"FFN": (8192, 5120), "QO_proj": (8192, 8192), "KV_proj": (8192, 1024)},
    "deepseek_v3_236b": {"FFN": (1536, 5120), "QKVO_proj": (7168, 7168)},
    "deepseek_v3_671b": {"FFN": (2048, 7168), "QKVO_proj": (7168, 7168)},
    "qwen3_32b": {"QO_proj": (5120, 5120), "KV_proj": (5120, 640)},
    "gemma3_27b": {"QO_proj": (4096, 4096), "KV_proj": (4096, 1024)},
}
"""Inner and outer features of each part, which are run with both large batches."""
POWERS = {"pow2": (10, 14), "pow2_extended": (10, 14), "small_sweep": (10, 14), "sweep": (8, 15)}
"""The smallest and the largest power of two, unless the file has others."""
FAMILIES = ("custom", "llama", *POWERS, *MODELS)


@dataclass(frozen=True)
class LayerShape:
    """One layer: m rows, k inner features, n outer ones; `name` is the original's, which several may share."""

    name: str
    m: int
    k: int
    n: int


def keys_of(family: Any) -> tuple[str, ...]:
    """Return the keys that a family may have in a file."""
    return ("name", "shapes") if family == "custom" else ("name", "min_power", "max_power") if family in tuple(POWERS) else ("name",)


def expand(given: Mapping[str, Any]) -> list[LayerShape]:
    """Return all shapes of one entry of `matrix_shapes`."""
    family = given.get("name")
    if not isinstance(family, str):
        raise UsageError("name is missing", do=f"one of {', '.join(FAMILIES)}")
    if family not in FAMILIES:
        raise unknown("family of shapes", family, FAMILIES)
    if family == "custom":
        listed = given.get("shapes")
        if not isinstance(listed, list) or not listed:
            raise UsageError("shapes is missing or empty", do="list them as [m, k, n]: shapes: [[1024, 1024, 1024]]")
        return [LayerShape("custom", *_sizes(item, place)) for place, item in enumerate(listed)]
    if family == "llama":
        return [LayerShape(f"llama_{part}", LARGE_BATCHES[0], k, n) for part, (k, n) in LLAMA.items()]
    if family in MODELS:
        return [LayerShape(f"{family}_{part}", m, k, n) for m in LARGE_BATCHES for part, (k, n) in MODELS[family].items()]
    least, most = _powers(given, family)
    return [LayerShape(f"{family}_{number}", *sizes) for number, sizes in enumerate(_from_powers(family, least, most))]


def _from_powers(family: str, least: int, most: int) -> Iterator[tuple[int, int, int]]:
    sizes = [2**power for power in range(least, most + 1)]
    if family == "pow2":
        yield from ((size, size, size) for size in sizes)
    elif family == "pow2_extended":
        yield from ((size, size, size) for whole in sizes for size in (whole, whole + whole // 2))
    else:
        yield from ((m, k, n) for m, k, n in product(sizes, repeat=3) if family == "sweep" or m <= k <= n)


def _powers(given: Mapping[str, Any], family: str) -> tuple[int, int]:
    least, most = (given.get(key, usual) for key, usual in zip(("min_power", "max_power"), POWERS[family], strict=True))
    smallest = 1 if family == "pow2_extended" else 0
    for key, value in (("min_power", least), ("max_power", most)):
        if not _whole(value) or not smallest <= value <= MOST_POWER:
            raise UsageError(f"{key} must be a whole number from {smallest} to {MOST_POWER}, not {value!r:.60}")
    if least > most:
        raise UsageError(f"min_power {least} is above max_power {most}, so there are no shapes")
    return least, most


def _sizes(item: Any, place: int) -> Sequence[int]:
    if not isinstance(item, (list, tuple)) or len(item) != 3 or not all(_whole(size) and 1 <= size <= LARGEST for size in item):
        raise UsageError(f"shapes[{place}] must be three whole numbers above 0, [m, k, n], not {item!r:.60}")
    return item


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
