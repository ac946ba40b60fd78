"""Check the free-form parts of a stored result that readers rely on, so that a file edited by hand cannot break a table."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from steelyard.errors import StoreError

DEEPEST = 50
LARGEST = 10**300
_LONG_NUMBER = re.compile(rb"[0-9]{300}")
Number = int | float


class CaseShape(msgspec.Struct):
    """The shape of a record's case."""

    workload: str = ""
    params: dict[str, Any] = {}
    backend: str = ""
    variant: str = ""
    mode: str = ""
    device: str = ""
    threads: int = 1
    ranks: int = 1
    env: str = ""
    flags: dict[str, str | Number] = {}


class Chip(msgspec.Struct):
    """What a heading shows of a processor."""

    model: str | None = None
    arch: str | None = None
    cores: int | None = None
    cpus: int | None = None
    virtual: str | None = None


class Quota(msgspec.Struct):
    """What a heading shows of a container."""

    cpu_quota: Number | None = None


class System(msgspec.Struct):
    """What a heading shows of an operating system."""

    system: str | None = None
    kernel: str | None = None


class Gpu(msgspec.Struct):
    """What a heading shows of an accelerator."""

    name: str | None = None
    driver: str | None = None
    clocks_set: bool | None = None


class MachineShape(msgspec.Struct):
    """The shape of a run's machine."""

    cpu: Chip | None = None
    cgroup: Quota | None = None
    os: System | None = None
    gpus: list[Gpu] | None = None


def check_shape(what: str, value: Any, shape: type[msgspec.Struct]) -> None:
    """Raise if a part does not have the form that readers expect."""
    try:
        msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        raise StoreError(f"not a readable {what}", why=str(error)) from None


def within_reach(line: bytes) -> bool:
    """Whether the text of some JSON is enough to show that `check_reach` passes, as for nearly every line of a run."""
    return line.count(b"{") + line.count(b"[") <= DEEPEST and not _LONG_NUMBER.search(line)


def check_reach(value: Any) -> None:
    """Raise if values are nested too deeply for readers, or if a whole number is larger than any count or size."""
    level = [value]
    for _ in range(DEEPEST):
        inside: list[Any] = []
        for part in level:
            for item in part.values() if type(part) is dict else part:
                kind = type(item)
                if kind is dict or kind is list:
                    inside.append(item)
                elif kind is int and not -LARGEST < item < LARGEST:
                    raise StoreError("not a line of a run", why="it has a whole number of more than 300 digits, too large for a float")
        if not inside:
            return
        level = inside
    raise StoreError("not a line of a run", why=f"it is nested more than {DEEPEST} deep")
