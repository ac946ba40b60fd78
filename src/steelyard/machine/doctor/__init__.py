"""Checks whether this machine is fit to measure: one function per check, which returns the command to run and what that gains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from steelyard.machine.cpu import ROOT
from steelyard.machine.doctor import gpu, processor, settings, system
from steelyard.machine.doctor.findings import Check, Observation, Scene, Status

__all__ = ["CHECKS", "Check", "Observation", "Scene", "Status", "examine"]

CHECKS: tuple[Check, ...] = (
    processor.load, processor.governor, processor.energy, processor.turbo, processor.smt, processor.idle, processor.isolated,
    processor.balancing, processor.steal, processor.quota,
    system.memory, system.aslr, system.clock, system.timer, system.compiler, system.torch, system.disk, system.counters, system.hugepages,
    gpu.gpu_driver, gpu.gpu_persistence, gpu.gpu_clocks, gpu.gpu_applied, gpu.gpu_boost, gpu.gpu_power, gpu.gpu_load,
    system.others,
)  # fmt: skip


def examine(
    facts: dict[str, Any], *, root: Path = ROOT, store: Path | None = None, gpus: Sequence[Mapping[str, Any]] | None = None
) -> list[Observation]:
    """Run every check; one that fails on an unusual machine reports that, and others still run. `gpus` has the settings of each GPU, by
    default those of this machine.
    """
    if gpus is None:
        gpus = settings.ask() if root == ROOT and facts.get("gpus") else ()
    scene = Scene(facts, root, store or Path.cwd(), gpus)
    return [finding for check in CHECKS if (finding := _run(check, scene)) is not None]


def _run(check: Check, scene: Scene) -> Observation | None:
    try:
        finding = check(scene)
        return replace(finding, do="") if finding and finding.status == "ok" else finding
    except Exception as error:
        return Observation(check.__name__, "note", f"could not be checked: {type(error).__name__}: {error}")
