"""Runners whose workers measure nothing."""

from __future__ import annotations

import pytest

from steelyard.dialects.ptxla import sink
from tests.dialects.ptxla.stage import Stage


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    """Workers that measure nothing, because what is tested here is the parent."""
    monkeypatch.setattr(sink, "device_name", lambda experiment, record: "Abacus")
    return Stage().install(monkeypatch)
