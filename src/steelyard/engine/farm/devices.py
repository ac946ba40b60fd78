"""Counts the devices that a station can use, without a framework: those of the host, or the part assigned to the station."""

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
    """Return the number of devices by kind; of NVIDIA's, those visible to this process."""
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
            raise UsageError(f"{DECLARED}: invalid entry {word[:40]!r}", do=f"write it like tpu=4,xpu=1; kinds: {', '.join(DEVICES)}")
        found[kind] = many
    return found
