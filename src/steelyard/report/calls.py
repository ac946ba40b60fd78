"""Words for described calls: `torch.add  fp32[64,32] fp32[1,32]`, from their configuration only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from steelyard.errors import UsageError
from steelyard.model.dtypes import canonical
from steelyard.model.values import value_text

CALL = "call/torch"
LONGEST = 60


def facets(params: Mapping[str, Any]) -> dict[str, str]:
    """A described call in words: operator, build and arguments, and the seed if one was chosen."""
    found = {"op": str(params.get("op", ""))}
    if params.get("build") is not None:
        found["build"] = f"({_arguments(params['build'])})"
    found["input"] = _arguments(params.get("input"))
    return found | ({"seed": f"seed={params['seed']}"} if params.get("seed") else {})


def _arguments(spec: Any) -> str:
    if not isinstance(spec, Mapping):
        return value_text(spec) if spec else ""
    args, kwargs = spec.get("args"), spec.get("kwargs")
    words = [_argument(item) for item in args] if isinstance(args, list) else []
    words += [f"{key}={_argument(item)}" for key, item in kwargs.items()] if isinstance(kwargs, Mapping) else []
    text = " ".join(words)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _argument(spec: Any) -> str:
    if not isinstance(spec, Mapping):
        return value_text(spec)
    if spec.get("type") == "tensor" or ("type" not in spec and "shape" in spec):
        shape, dtype = spec.get("shape", []), _dtype(spec.get("dtype", ""))
        constant = " (no grad)" if spec.get("requires_grad") is False and dtype[:2] in ("fp", "bf", "co") else ""
        return f"{dtype}[{','.join(map(str, shape)) if isinstance(shape, list) else shape}]{constant}"
    if isinstance(spec.get("value"), list):
        return f"[{' '.join(map(_argument, spec['value']))}]"
    return value_text(spec.get("value", spec.get("value_range", spec.get("type"))))


def _dtype(name: Any) -> str:
    try:
        return canonical(str(name))
    except UsageError:
        return str(name)
