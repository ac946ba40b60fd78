"""A process is kept on the CPUs that its user chose, or is told that they are none."""

from __future__ import annotations

import os
import threading

import pytest

from steelyard.errors import Unsupported
from steelyard.machine import binding

HERE = sorted(os.sched_getaffinity(0))


@pytest.fixture
def bound(monkeypatch: pytest.MonkeyPatch) -> dict[int, set[int]]:
    """What would be bound to which CPUs, by thread."""
    found: dict[int, set[int]] = {}
    monkeypatch.setattr(os, "sched_setaffinity", lambda thread, cpus: found.update({thread: cpus}))
    return found


def test_every_thread_is_bound_and_the_record_says_so(bound: dict[int, set[int]], monkeypatch: pytest.MonkeyPatch) -> None:
    ready, over = threading.Event(), threading.Event()
    other = threading.Thread(target=lambda: (ready.set(), over.wait()))
    other.start()
    ready.wait()
    monkeypatch.setenv(binding.CPUS, f"{HERE[0]}")
    binding.bind()
    over.set()
    other.join()
    assert {os.getpid(), other.native_id} <= bound.keys() and {frozenset(cpus) for cpus in bound.values()} == {frozenset({HERE[0]})}
    assert binding.told() == {"cpus": ", ".join(map(str, HERE))}


def test_nothing_is_bound_where_nothing_was_chosen(bound: dict[int, set[int]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(binding.CPUS, raising=False)
    binding.bind()
    assert not bound and binding.told() == {}


@pytest.mark.parametrize("cpus", ["x", "0;1", "99999999999999999999", str(max(HERE) + 1000), ","])
def test_what_names_no_cpus_is_unsupported(cpus: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(binding.CPUS, cpus)
    with pytest.raises(Unsupported, match="names no usable CPUs"):
        binding.bind()
