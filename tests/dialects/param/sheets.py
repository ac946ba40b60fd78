"""Configs and sheets in few words, for tests of the grammar and of expansion."""

from __future__ import annotations

from typing import Any

from steelyard.dialects.param.expand import Sheet
from steelyard.dialects.param.expand import sheet as expand

DEFAULT = "PyTorch:DefaultDataGenerator"
RANGED = "RangeConfigIterator"
EMBEDDING = "SplitTableBatchedEmbeddingBagsCodegenInputIterator"
TENSOR: dict[str, Any] = {"type": "tensor", "dtype": "float", "shape": [2, 3]}
ONE: dict[str, Any] = {"type": "int", "value": 1}


def info(*entries: Any, **more: Any) -> dict[str, Any]:
    return {"input_data_generator": DEFAULT, **more, "config": list(entries)}


def inputs(*specs: Any) -> dict[str, Any]:
    return {"input": list(specs)}


def ranged(*specs: Any, **more: Any) -> Sheet:
    return expand({"op": info(inputs(*specs), input_iterator=RANGED)}, "x.json", **more)


def called(*args: Any, **kwargs: Any) -> dict[str, Any]:
    return {"args": list(args), "kwargs": kwargs} if kwargs else {"args": list(args)}


def tensor(*shape: Any, **more: Any) -> dict[str, Any]:
    return {"type": "tensor", "dtype": "float", "shape": list(shape), **more}


def shapes(sheet: Sheet) -> list[list[list[int]]]:
    assert sheet.mistakes == ()
    return [[arg["shape"] for arg in config.input["args"]] for config in sheet.configs]


def values(sheet: Sheet, key: Any = 0) -> list[Any]:
    assert sheet.mistakes == ()
    part = "args" if isinstance(key, int) else "kwargs"
    return [config.input[part][key]["value"] for config in sheet.configs]


def ids(sheet: Sheet) -> list[str]:
    return [config.id for config in sheet.configs]
