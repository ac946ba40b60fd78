"""What other processes did is told from the kernel's counts, less our own, and is nothing where these cannot be read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.machine import load
from steelyard.machine.load import busy_seconds, watch_others
from tests.machine.trees import plant

TICK = os.sysconf("SC_CLK_TCK")


def stat(busy: float, steal: float = 0.0) -> str:
    return f"cpu {round(busy * TICK)} 0 0 99999 5 0 0 {round(steal * TICK)} 7 7\ncpu0 1 1 1 1 1 1 1 1 1 1\n"


@pytest.mark.parametrize(("others", "steal", "mine"), [(0.0, 0.0, 1.0), (1.5, 0.0, 1.0), (0.5, 1.0, 0.0)])
def test_other_work_is_what_we_did_not_do(
    others: float, steal: float, mine: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, now = iter([10.0, 10.0 + 2 * mine]), iter([100.0, 102.0])
    monkeypatch.setattr(load, "own_seconds", lambda: next(own))
    plant(tmp_path, {"proc/stat": stat(50.0)})
    with watch_others(tmp_path, lambda: next(now)) as found:
        plant(tmp_path, {"proc/stat": stat(50.0 + 2 * (others + mine), 2 * steal)})
    assert found.cpus == pytest.approx(others + steal)


def test_too_short_a_time_says_nothing(tmp_path: Path) -> None:
    plant(tmp_path, {"proc/stat": stat(50.0)})
    now = iter([1.0, 1.01])
    with watch_others(tmp_path, lambda: next(now)) as found:
        pass
    assert found.cpus is None


@given(st.text(alphabet="cpu 0123-x.\n", max_size=40))
def test_an_odd_file_is_no_count(text: str) -> None:
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder:
        found = busy_seconds(plant(Path(folder), {"proc/stat": text}))
    assert found is None or found >= 0
    assert busy_seconds(Path("/nowhere")) is None
