"""Small headers, records and samples for the store's tests."""

from __future__ import annotations

import subprocess
import sys
from array import array
from pathlib import Path
from typing import Any

from steelyard.model.case import Case
from steelyard.model.pair import Arm, Pair
from steelyard.model.record import Figure, Record, Status
from steelyard.store.runs import Header, Run, Store

ROOT = Path(__file__).parents[2]


def case(number: int) -> str:
    return Case("op/a", (("n", number),)).id


def record(number: int, status: Status = "ok", **changes: Any) -> Record:
    time = Figure(number * 1e-3, "s", "lower", number * 0.9e-3, number * 1.1e-3, 5)
    return Record(case(number), Case.parse(case(number)).plain(), status, **{"metrics": {"time": time}, **changes})


def pair(number: int) -> Pair:
    return Pair(Arm(case(1)), Arm(case(number)), 1.0, 0.9, 1.1, 0.95, 3, 12, 0, (1, 1))


def arrays(*values: float) -> dict[str, tuple[str, str, bytes]]:
    return {"time": ("s", "<f8", array("d", values).tobytes())}


def filled(store: Store, count: int = 3, seal: bool = True, **header: Any) -> Run:
    """A run with `count` records, each with its number among its samples."""
    with store.create(Header(fingerprint="f", experiment="made", **header)) as writer:
        for number in range(1, count + 1):
            writer.append(record(number), arrays(number, 0.5))
        if seal:
            writer.seal()
    return store.open(writer.path)


def python(code: str, *words: object, wait: bool = True) -> subprocess.Popen[str]:
    """Run code in another process, with the tests importable."""
    process = subprocess.Popen([sys.executable, "-c", code, *map(str, words)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if wait:
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 0, output
    return process
