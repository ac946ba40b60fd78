"""How much this machine's comparisons scatter: measured once by comparing code with itself, and saved per user."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from steelyard.machine.kept import Shelf, quantity

SCHEMA = 1
FREEDOM = 8.0
MOST_REBUILDS = 10**6


@dataclass(frozen=True)
class CaseNoise:
    """The result of comparing one case with itself.

    `sd` is the spread of the log-ratio between rebuilds and `cost` the seconds of one rebuild, both over the `rebuilds`
    that counted; `floor` is the spread between the base and the base built again.
    """

    sd: float
    cost: float
    floor: float | None
    rebuilds: int


@dataclass(frozen=True)
class DeviceNoise:
    """The noise of one device by case id, and when it was measured."""

    cases: Mapping[str, CaseNoise]
    measured: str

    @property
    def spread(self) -> tuple[float, float]:
        """The usual SD between rebuilds, and the degrees of freedom with which a comparison of another case should use it.

        These are few, because the noise of cases differs far more than the error of an SD from so many rebuilds.
        """
        return statistics.median(case.sd for case in self.cases.values()), FREEDOM


def _decode(data: Mapping[str, Any]) -> DeviceNoise:
    cases = {str(name): _case(found) for name, found in data["cases"].items()}
    if not cases:
        raise ValueError("no cases")
    return DeviceNoise(cases, str(data["measured"]))


def _case(data: Mapping[str, Any]) -> CaseNoise:
    floor, rebuilds = data["floor"], data["rebuilds"]
    if type(rebuilds) is not int or not 2 <= rebuilds <= MOST_REBUILDS:
        raise ValueError(f"not a number of rebuilds: {rebuilds!r}")
    return CaseNoise(
        quantity(data["sd"], zero=True), quantity(data["cost"]), None if floor is None else quantity(floor, zero=True), rebuilds
    )


SHELF = Shelf("noise", SCHEMA, _decode)
path, load, saved, save, check_writable = SHELF.path, SHELF.load, SHELF.saved, SHELF.save, SHELF.check_writable


def spread(key: str, device: str, threads: int) -> tuple[float, float] | None:
    """The usual SD of a comparison on this machine and its degrees of freedom; None if noise was not measured."""
    kept, _ = load(key, device, threads)
    return kept.spread if kept else None
