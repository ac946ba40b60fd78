"""The load and memory that were recorded during a run, in words: several lines for one record, one line for a whole run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from steelyard.machine.monitor import COST, CPU, MEMORY, READINGS, over_all
from steelyard.model.record import MONITOR, Record
from steelyard.model.units import is_amount, percent
from steelyard.model.units import plain as quantity
from steelyard.report.cells import clean

UTILISATION, OF_GPU = "_utilisation", "_memory"


def monitor_rows(seen: Any) -> list[tuple[str, str]]:
    """A line for each quantity: its mean, and the lowest and highest reading; anything else that a file may have here is skipped."""
    if not isinstance(seen, Mapping):
        return []
    rows = [(_label(str(name)), _spread(str(name), value)) for name, value in seen.items() if _is_spread(value)]
    return [*rows, ("cost", _cost(seen))] if rows else []


def run_line(records: Iterable[Record]) -> str:
    """The load and memory of a whole run: `CPUs 71 % busy · processes up to 1.2 GB · 240 readings at 0.12 % of a core`."""
    parts = [seen for record in records if isinstance(seen := record.effective.get(MONITOR), Mapping)]
    sound = [{name: value for name, value in part.items() if not isinstance(value, list) or _is_spread(value)} for part in parts]
    seen = over_all(sound)
    words = [_short(str(name), value) for name, value in seen.items() if _is_spread(value)]
    return " · ".join([*words, _cost(seen)]) if words else ""


def _short(name: str, value: list[float]) -> str:
    if name == CPU:
        return f"CPUs {percent(value[1])} busy"
    if name == MEMORY:
        return f"processes up to {quantity(value[2], 'B')}"
    gpu = clean(name.removesuffix(UTILISATION).removesuffix(OF_GPU)).replace("gpu", "GPU ")
    return f"{gpu} {percent(value[1])} busy" if name.endswith(UTILISATION) else f"up to {quantity(value[2], 'B')} of {gpu}"


def _label(name: str) -> str:
    known = {CPU: "CPUs busy", MEMORY: "memory of processes"}
    gpu = clean(name).replace("gpu", "GPU ")
    return known.get(name) or gpu.replace(UTILISATION, " busy").replace(OF_GPU, " memory taken")


def _spread(name: str, value: list[float]) -> str:
    low, mean, high = (percent(end) if name == CPU or name.endswith(UTILISATION) else quantity(end, "B") for end in value)
    return f"{mean} on average, {low} to {high}"


def _cost(seen: Mapping[str, Any]) -> str:
    count, cost = seen.get(READINGS), seen.get(COST)
    words = [f"{count} reading{'' if count == 1 else 's'}"] if isinstance(count, int) else []
    words += [f"{100 * cost:.2g} % of a core"] if isinstance(cost, (int, float)) and is_amount(cost) else []
    return " at ".join(words)


def _is_spread(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 3 and all(isinstance(end, (int, float)) and is_amount(end) for end in value)
