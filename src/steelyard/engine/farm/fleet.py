"""The stations of a run, as its conductor knows them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from steelyard.analyze.conditions import OTHER_LOAD
from steelyard.engine.farm.kinds import THROTTLES, HostSpeed, disturbed, throttled
from steelyard.engine.farm.placing import HostOffer
from steelyard.engine.farm.wire import AttemptMark, Joining
from steelyard.model.record import Record

if TYPE_CHECKING:
    from steelyard.engine.farm.channel import Channel

MOST_LOADS = 10


@dataclass
class StationView:
    """A station that has joined: its host, its connection while there is one, and what it is doing."""

    joining: Joining
    offer: HostOffer
    channel: Channel | None
    heard: float
    cut: float | None = None
    """When its connection was lost, if it was."""
    aside: str = ""
    """Why it gets no more groups, if so."""
    noisy: bool = False
    """Whether the reason is noise; a noisy host is better than none."""
    lenient: bool = False
    """Whether it measures although it is noisy."""
    speed: HostSpeed | None = None
    kind_speed: Mapping[str, float] = field(default_factory=dict)
    """How fast hosts of its kind are; noted in its records."""
    loads: list[float] = field(default_factory=list)
    """CPUs that other programs used during each of its records, where known."""
    slowed: list[tuple[str, ...]] = field(default_factory=list)
    """Why the GPU's clocks were forced down, for each of its records that has GPU telemetry."""
    case: str = ""
    done: int = 0
    ready: bool = True
    """Whether it has sent its calibration, if one was requested before its first group."""
    files: dict[tuple[AttemptMark, str], bytearray] = field(default_factory=dict)
    """Incomplete attachments, by the attempt and the path that their record will name."""

    @property
    def name(self) -> str:
        return self.joining.name

    @property
    def useful(self) -> bool:
        """Whether it can be given a group now."""
        return self.channel is not None and self.ready and not self.aside

    @property
    def host(self) -> str:
        """Its name in messages: the host and the station."""
        return f"{self.joining.host} ({self.joining.name})"

    def learn(self, record: Record) -> None:
        """Note what a record reports about the station's host."""
        load, telemetry = record.effective.get(OTHER_LOAD), record.effective.get("telemetry")
        if isinstance(load, (int, float)):
            self.loads.append(float(load))
        reasons = telemetry.get("slowed_by") if isinstance(telemetry, Mapping) else None
        if isinstance(reasons, list):
            self.slowed.append(tuple(str(reason) for reason in reasons if reason in THROTTLES))

    def disturbance(self, others: Iterable[StationView]) -> str:
        """Return why it should stop measuring for now, from its last records and those of other stations; empty if it may continue."""
        elsewhere = [load for other in others for load in other.loads[-MOST_LOADS:]]
        return disturbed(self.loads, elsewhere) or throttled(self.slowed)


class Fleet:
    """The stations that have joined and are not lost, by name."""

    def __init__(self) -> None:
        self._views: dict[str, StationView] = {}

    def __iter__(self) -> Iterator[StationView]:
        return iter(list(self._views.values()))

    def __len__(self) -> int:
        return len(self._views)

    def get(self, name: str) -> StationView | None:
        """Return a station by name; None if it is not here."""
        return self._views.get(name)

    def add(self, view: StationView) -> None:
        """Add a station, in place of an earlier one of the same name."""
        self._views[view.name] = view

    def remove(self, name: str) -> None:
        """Remove a station."""
        self._views.pop(name, None)

    @property
    def useful(self) -> list[StationView]:
        """The stations that can be given a group now."""
        return [view for view in self._views.values() if view.useful]
