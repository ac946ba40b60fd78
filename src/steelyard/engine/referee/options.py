"""How candidates are judged, apart from what the problem itself says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from steelyard.model.pair import MARGIN

BUDGETS = {"quick": 0.15, "normal": 0.3, "thorough": 2.0}
"""Seconds of timed calls for each candidate."""


@dataclass(frozen=True)
class JudgeOptions:
    """Where and how thoroughly candidates are judged; `contract` overrides fields of the problem's own.

    `budget` is seconds of timed calls for each candidate, `timeout` the seconds that any one step of it may take, `limit` those of all its
    steps together, `memory` the bytes that its processes may hold. `inputs` names the function of a plain reference's file that makes
    its inputs. `kernels` adds a list of the kernels that a candidate launches.
    """

    device: str = "cpu"
    budget: float = BUDGETS["normal"]
    margin: float = MARGIN
    timeout: float = 60.0
    limit: float | None = None
    memory: int | None = None
    threads: int = 1
    kernels: bool = False
    env: str = ""
    inputs: str = ""
    rtol: float | None = None
    atol: float | None = None
    contract: Mapping[str, Any] = field(default_factory=dict)
