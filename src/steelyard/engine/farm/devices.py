"""What devices a station can use, counted without any framework: what the host has, or what it was given of that."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from steelyard.errors import UsageError
from steelyard.model.experiment import DEVICES
from steelyard.model.units import parse_count

DECLARED = "STEELYARD_DEVICES"
"""Devices that cannot be counted here, such as tpu=4, set for a station by the program that starts it."""
VISIBLE = "CUDA_VISIBLE_DEVICES"


def count(machine: Mapping[str, Any], variables: Mapping[str, str] = os.environ) -> dict[str, int]:
    """Devices by kind; of NVIDIA's those that are left to this process."""
    found, gpus = {"cpu": 1}, machine.get("gpus") or []
    visible = variables.get(VISIBLE)
    own = len(gpus) if visible is None else len([word for word in visible.split(",") if word.strip() not in ("", "-1")])
    if min(own, len(gpus)):
        found["cuda"] = min(own, len(gpus))
    return found | _declared(variables.get(DECLARED, ""))


def _declared(text: str) -> dict[str, int]:
    found = {}
    for word in filter(None, text.split(",")):
        kind, sign, number = word.strip().partition("=")
        many = parse_count(number) if sign else 1
        if kind not in DEVICES or many is None:
            raise UsageError(f"{DECLARED} says {word[:40]!r}", do=f"write it like tpu=4,xpu=1; kinds: {', '.join(DEVICES)}")
        found[kind] = many
    return found
