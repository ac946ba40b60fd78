"""Every test measures in a store and under locks of its own, so that tests and real runs never wait for each other."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.backends.virtual import Device


@pytest.fixture(autouse=True)
def apart(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with its own locks, environments and store."""
    folder = tmp_path_factory.mktemp("apart")
    monkeypatch.setenv("STEELYARD_LOCKS", str(folder / "locks"))
    monkeypatch.setenv("STEELYARD_ENVS", str(folder / "envs"))
    monkeypatch.setenv("STEELYARD_CACHE", str(folder / "cache"))
    monkeypatch.delenv("STEELYARD_STORE", raising=False)
    for name in ("CI", "COLUMNS", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return folder


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    """A made-up accelerator that torch seems to use."""
    from tests.backends.virtual import Device, put_in_use

    made = Device()
    put_in_use(made, monkeypatch)
    return made
