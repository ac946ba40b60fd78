"""Noise kept and read back, and what it tells later comparisons."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from steelyard.machine import noise, peaks
from steelyard.machine.noise import CaseNoise, DeviceNoise

KEY = "0123456789ab"
MADE = DeviceNoise(
    {"a": CaseNoise(0.01, 2e-3, 0.012, 100), "b": CaseNoise(0.06, 1e-2, None, 20), "c": CaseNoise(0.02, 5e-3, 0.0, 40)}, "now"
)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STEELYARD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "noise"


def spoiled(**changes: Any) -> str:
    """The text of a good file with something wrong in its first case."""
    data = {"schema": noise.SCHEMA, "key": KEY, **asdict(MADE)}
    data["cases"]["a"].update(changes)
    return json.dumps(data)


def test_what_is_saved_is_read_back_beside_the_peaks(cache: Path) -> None:
    assert noise.save(MADE, KEY, "cpu", 4) == cache / f"{KEY}-cpu-4.json"
    assert noise.load(KEY, "cpu", 4) == (MADE, "")
    assert noise.saved(KEY) == {"cpu-4": MADE}
    assert peaks.saved(KEY) == {} and peaks.SHELF.folder().parent == cache.parent
    assert json.loads((cache / f"{KEY}-cpu-4.json").read_text())["cases"]["b"] == {"sd": 0.06, "cost": 0.01, "floor": None, "rebuilds": 20}


def test_the_usual_spread_is_that_of_the_middle_case() -> None:
    assert noise.spread(KEY, "cpu", 1) is None
    noise.save(MADE, KEY, "cpu", 1)
    assert noise.spread(KEY, "cpu", 1) == (0.02, 8.0)
    assert noise.spread(KEY, "cpu", 2) is noise.spread("f" * 12, "cpu", 1) is None


@pytest.mark.parametrize(
    "text",
    [
        "{", "[]", json.dumps({"schema": noise.SCHEMA, "key": KEY, "cases": {}, "measured": "now"}), spoiled(sd=-0.1), spoiled(sd="0.1"),
        spoiled(cost=0), spoiled(cost=1e999), spoiled(floor=float("nan")), spoiled(rebuilds=1), spoiled(rebuilds=2.5),
        spoiled(rebuilds=True), spoiled(rebuilds=10**400), spoiled(sd=10**400),
    ],
)  # fmt: skip
def test_a_file_that_holds_no_noise_is_ignored_with_a_warning(cache: Path, text: str) -> None:
    cache.mkdir(parents=True)
    (cache / f"{KEY}-cpu-1.json").write_text(text)
    found, warning = noise.load(KEY, "cpu", 1)
    assert found is None and "has no valid noise" in warning and "steelyard doctor --noise" in warning
    assert noise.spread(KEY, "cpu", 1) is None and noise.saved(KEY) == {}
