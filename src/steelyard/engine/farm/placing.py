"""Which group goes where: what a group needs, what a host has, and the first group that fits. Pure, so that a fleet can be simulated."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from steelyard import registry
from steelyard.engine.farm.groups import JobGroup
from steelyard.model.units import plain

HOST_DEVICE = "cpu"


@dataclass(frozen=True)
class GroupNeeds:
    """What a host must have for a group: devices by kind, bytes of memory, and environments by name."""

    devices: tuple[tuple[str, int], ...] = ()
    memory: int = 0
    envs: tuple[str, ...] = ()

    @classmethod
    def of(cls, group: JobGroup, memory: int | None, envs: Mapping[str, str]) -> GroupNeeds:
        """Return what a group's cases need; `envs` has the environment of each interpreter."""
        devices: dict[str, int] = {}
        homes = set()
        for job in (*group.jobs, *group.pairs):
            if job.case.device != HOST_DEVICE and not registry.about_backend(job.case.backend).virtual:
                devices[job.case.device] = max(devices.get(job.case.device, 0), job.case.ranks)
            homes |= {envs.get(place.python, "") for place in (job.place, job.side.place if job.side else job.place)}
        return cls(tuple(sorted(devices.items())), memory or 0, tuple(sorted(homes - {""})))


@dataclass(frozen=True)
class HostOffer:
    """What a host has; `machine` is its machine key with its kind."""

    machine: str
    devices: Mapping[str, int] = field(default_factory=dict)
    memory: int = 0
    envs: tuple[str, ...] = ()


def misfit(needs: GroupNeeds, host: HostOffer) -> str:
    """Return why a host cannot measure a group; empty if it can."""
    for kind, count in needs.devices:
        if (held := host.devices.get(kind, 0)) < count:
            return f"it has no {kind}" if not held else f"it has {held} {kind} and the case needs {count}"
    if needs.memory > host.memory > 0:
        return f"it has {plain(host.memory, 'B')} of memory and the limit is {plain(needs.memory, 'B')}"
    lacking = [env for env in needs.envs if env not in host.envs]
    return f"it has no environment {lacking[0]}" if lacking else ""


class WaitingGroups:
    """Groups that wait for a host, in order, by what they need."""

    def __init__(self) -> None:
        self._kinds: dict[GroupNeeds, dict[int, None]] = {}
        self._needs: dict[int, GroupNeeds] = {}
        self._waiting = 0

    def __len__(self) -> int:
        return self._waiting

    def add(self, number: int, needs: GroupNeeds, *, first: bool = False) -> None:
        """Add a group; with `first`, as after a lost station, before the groups with the same needs."""
        line = self._kinds.setdefault(needs, {})
        self._needs[number] = needs
        self._waiting += number not in line
        if first:
            self._kinds[needs] = {number: None, **line}
        else:
            line[number] = None

    def remove(self, number: int) -> None:
        """Remove a group."""
        self._waiting -= number in self._kinds[self._needs[number]]
        self._kinds[self._needs[number]].pop(number, None)

    def needs(self) -> Iterator[tuple[GroupNeeds, list[int]]]:
        """Yield what is needed, with the groups that need it."""
        for needs, line in self._kinds.items():
            if line:
                yield needs, list(line)

    def next_for(self, host: HostOffer, suits: Callable[[int], bool]) -> int | None:
        """Return the group that a host should get: the earliest that fits the host and for which `suits` is true."""
        found = [number for needs, line in self._kinds.items() if line and not misfit(needs, host) for number in _first(line, suits)]
        return min(found, default=None)


def _first(line: Mapping[int, None], suits: Callable[[int], bool]) -> Iterator[int]:
    for number in line:
        if suits(number):
            yield number
            return
