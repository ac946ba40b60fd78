"""Argument descriptions in few words."""

from __future__ import annotations

from typing import Any

Spec = dict[str, Any]


def tensor(*shape: Any, dtype: str = "float", **more: Any) -> Spec:
    return {"type": "tensor", "dtype": dtype, "shape": list(shape), **more}


def indices(*shape: int, arg: int, dim: int, dtype: str = "int64", **more: Any) -> Spec:
    return tensor(*shape, dtype=dtype, index={"arg": arg, "dim": dim}, **more)


def of(kind: str, value: Any) -> Spec:
    return {"type": kind, "value": value}


def many(*items: Spec, kind: str = "genericlist") -> Spec:
    return {"type": kind, "value": list(items)}


def call(*args: Spec, **kwargs: Spec) -> Spec:
    return {"args": list(args), "kwargs": kwargs}
