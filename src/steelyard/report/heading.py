"""The first line of a table: the machine, the frameworks and the threads of its run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from steelyard.analyze.conditions import threads_text
from steelyard.machine import facts
from steelyard.model.record import HOST, Record
from steelyard.model.units import number_of
from steelyard.report.cells import clean
from steelyard.store.runs import Header


def heading(header: Header, records: Sequence[Record]) -> str:
    """`H200 · torch 2.13.0 · driver 580.159 · clocks not locked · 1 thread`."""
    machine = dict(header.machine)
    on_gpu = bool(records) and all(record.case.get("device", "cpu") != "cpu" for record in records) and bool(machine.get("gpus"))
    if header.farm:
        hosts = {str(told.get("name")) for record in records if isinstance(told := record.effective.get(HOST), Mapping)}
        words = [f"on {header.farm}", number_of(len(hosts), "host"), *framework_words(records), threads_text(records)]
        return " · ".join(clean(word) for word in words if word)
    place = gpu_words(machine) if on_gpu else [facts.summary(machine)] if machine else []
    first, *rest = place or [""]
    return " · ".join(clean(word) for word in (first, *framework_words(records), *rest, threads_text(records)) if word)


def gpu_words(machine: Mapping[str, Any]) -> list[str]:
    """The GPUs, their driver, and whether their clocks were locked."""
    gpus = machine.get("gpus") or []
    names = [str(gpu.get("name")).removeprefix("NVIDIA ") for gpu in gpus]
    counted = [name if names.count(name) == 1 else f"{names.count(name)} × {name}" for name in dict.fromkeys(names)]
    drivers = [f"driver {driver}" for driver in dict.fromkeys(gpu.get("driver") for gpu in gpus) if driver]
    held = {gpu.get("clocks_set") for gpu in gpus}
    clocks = {frozenset({True}): "clocks locked", frozenset({None}): ""}.get(frozenset(held), "clocks not locked")
    return [" + ".join(counted), *drivers, clocks]


def framework_words(records: Sequence[Record]) -> list[str]:
    """Each backend that ran and whose version is known, with all its versions."""
    told = ((str(record.case.get("backend", "")), record.environment) for record in records)
    return list(dict.fromkeys(f"{name} {versions[name]}" for name, versions in told if versions.get(name)))
