"""The device is read while it is measured, in a thread that ends with it, unless that is switched off."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from steelyard.codec.experiments import parse_experiment
from steelyard.errors import UsageError
from steelyard.machine.telemetry import EVERY, Log, MeterReading, watch
from steelyard.model.experiment import Settings
from tests.engine.drive import run_json

MATRIX = {"matrix": [{"workload": "fake/work"}]}


class Meter:
    """Readings that climb, so that a range shows where it began and ended."""

    def __init__(self) -> None:
        self.read = 0

    def row(self) -> MeterReading:
        self.read += 1
        return MeterReading(self.read * EVERY, 1e9 * self.read, 2e9, 100.0 * self.read, 40.0, 1.0, 5.0, 0x4 if self.read == 1 else 0)


def test_a_device_is_read_at_least_once_and_not_after_the_measurement() -> None:
    meter: Any = Meter()
    with watch(meter) as log:
        assert any(thread.name == "steelyard-telemetry" for thread in threading.enumerate())
    assert not any(thread.name == "steelyard-telemetry" for thread in threading.enumerate())
    assert len(log.rows) == meter.read >= 1
    assert log.summary()["slowed_by"] == ["power cap"] and log.summary()["sm_clock"][0] == 1e9


def test_ranges_hold_the_lowest_and_the_highest() -> None:
    meter = Meter()
    summary = Log([meter.row(), meter.row(), meter.row()], cost=2e-4).summary()
    assert (summary["sm_clock"], summary["power"], summary["readings"]) == ([1e9, 3e9], [100.0, 300.0], 3)
    assert summary["cost"] == pytest.approx(2e-4 / (2 * EVERY))


def test_nothing_to_read_starts_no_thread() -> None:
    before = threading.active_count()
    with watch(None) as log:
        assert threading.active_count() == before
    assert (log.rows, log.summary(), log.arrays()) == ([], {}, {})


def test_the_switch_is_on_unless_a_file_says_otherwise() -> None:
    assert Settings().telemetry and parse_experiment(MATRIX, "x.toml").settings.telemetry
    assert not parse_experiment({**MATRIX, "settings": {"telemetry": False}}, "x.toml").settings.telemetry
    with pytest.raises(UsageError, match="expected true or false"):
        parse_experiment({**MATRIX, "settings": {"telemetry": "off"}}, "x.toml")


@pytest.mark.parametrize(("words", "asked"), [((), True), (("--telemetry",), True), (("--no-telemetry",), False)])
def test_the_switch_of_the_command_line_reaches_the_record(words: tuple[str, ...], asked: bool, tmp_path: Path) -> None:
    found = run_json("fake/work", "--budget", "10ms", *words, cwd=tmp_path)
    assert found["records"][0]["requested"]["telemetry"] is asked
