"""A run's monitor: shares and bytes from the kernel's own counts, one thread for all, its cost told, and nothing where nothing is."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from steelyard.machine import monitor as module
from steelyard.machine.monitor import EVERY, Monitor, over_all, visible_gpus
from steelyard.report.monitor import monitor_rows, run_line
from tests.engine.drive import run_json


class Gpu:
    """A GPU that gets busier with every look."""

    def __init__(self) -> None:
        self.looks = 0

    def utilisation(self) -> float:
        self.looks += 1
        return 0.25 * self.looks

    def memory_used(self) -> float:
        return 1e9 * self.looks


class Ticking:
    """A clock that moves by half a second a look, and a kernel whose CPUs are busy by turns."""

    def __init__(self, folder: Path, cpus: int, shares: list[float]) -> None:
        self.folder, self.cpus, self.shares = folder, cpus, shares
        self.time = self.busy = 0.0
        (folder / "proc").mkdir()
        self._write()

    def now(self) -> float:
        return self.time

    def tick(self) -> None:
        self.time += 0.5
        self.busy += 0.5 * self.cpus * self.shares.pop(0)
        self._write()

    def _write(self) -> None:
        (self.folder / "proc" / "stat").write_text(f"cpu {round(100 * self.busy)} 0 0 5 6 0 0 0 0 0\n")


@pytest.fixture
def ticking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ticking:
    monkeypatch.setattr(module.os, "cpu_count", lambda: 4)
    return Ticking(tmp_path, 4, [0.5, 1.0, 0.0])


def test_readings_are_shares_of_all_cpus_bytes_of_the_tree_and_each_gpu(ticking: Ticking) -> None:
    gpu: Any = Gpu()
    found = Monitor(0.5, {"gpu0": gpu}, proc=ticking.folder, now=ticking.now)
    found.look()
    for _ in range(2):
        ticking.tick()
        found.look()
    seen = found.taken()
    assert seen["cpu"] == [0.5, 0.75, 1.0] and seen["readings"] == 3
    assert seen["gpu0_utilisation"] == [0.25, 0.5, 0.75] and seen["gpu0_memory"] == [1e9, 2e9, 3e9]
    assert seen.get("rss", []) == sorted(seen.get("rss", [])) and seen["cost"] == 0.0
    assert found.taken() == {}, "what was told is not told again"
    ticking.tick()
    found.look()
    assert found.taken()["cpu"] == [0.0, 0.0, 0.0]


def test_one_thread_reads_from_start_to_stop_and_counts_its_cost() -> None:
    found = Monitor(every=0.001)
    found.start()
    assert [thread.name for thread in threading.enumerate()].count("steelyard-monitor") == 1
    seen = found.stop()
    assert not any(thread.name == "steelyard-monitor" for thread in threading.enumerate())
    assert seen["readings"] >= 1 and found.cost > 0 and not found.failing


def test_a_monitor_that_cannot_read_says_so_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Monitor(every=0.0)
    done = threading.Event()

    def fails() -> None:
        if found._sampler.failed_in_a_row >= module.MANY_FAILURES:
            done.set()
        raise OSError("gone")

    monkeypatch.setattr(found._sampler, "_read", fails)
    found.start()
    assert done.wait(20)
    assert found.stop() == {} and found.failing


def test_gpus_are_those_that_a_framework_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[tuple[str | None, int]] = []

    def open(uuid: str | None, index: int = 0) -> Any:
        opened.append((uuid, index))
        return Gpu() if index < 3 else None

    monkeypatch.setattr(module.Meter, "open", open)
    assert list(visible_gpus([0, 1], "2,GPU-abc")) == ["gpu0", "gpu1"] and opened == [(None, 2), ("GPU-abc", 0)]
    assert list(visible_gpus([], "0")) == [] and list(visible_gpus(None, "")) == []
    opened.clear()
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert list(visible_gpus()) == ["gpu0", "gpu1", "gpu2"]


def test_stretches_of_a_run_come_together_by_their_readings() -> None:
    one = {"cpu": [0.0, 0.5, 1.0], "rss": [1.0, 2.0, 3.0], "readings": 3, "cost": 0.001}
    two = {"cpu": [0.5, 0.9, 1.0], "rss": [2.0, 2.0, 9.0], "readings": 1, "cost": 0.005}
    found = over_all([one, two, {}])
    assert found["cpu"] == [0.0, pytest.approx(0.6), 1.0] and found["rss"] == [1.0, 2.0, 9.0]
    assert found["readings"] == 4 and found["cost"] == pytest.approx(0.002)
    assert over_all([]) == {}


@pytest.mark.parametrize("bad", [None, [], {"cpu": "much"}, {"cpu": [1, 2]}, {"cpu": [float("nan")] * 3}, {"cpu": [True, None, 2]}])
def test_what_a_file_may_hold_instead_is_left_out(bad: Any) -> None:
    assert monitor_rows(bad) == []


def test_records_of_a_run_say_what_the_machine_did_and_virtual_ones_do_not(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "from steelyard import Task, workload\n"
        "@workload('own/work', axes={'n': [1]}, backend='numpy')\ndef work(n, be):\n    return Task(sorted, ([3, 1, 2],))\n"
    )
    [record] = run_json("own.py", "--budget", f"{2 * EVERY}s", "--precision", "0.001%", cwd=tmp_path)["records"]
    seen = record["effective"]["monitor"]
    assert {"rss", "readings", "cost"} <= set(seen) and seen["rss"][2] > 0 and 0 <= seen["cost"] < 1
    rows = dict(monitor_rows(seen))
    assert "of a core" in rows["cost"] and "on average" in rows["memory of processes"]
    for words in (("fake/work",), ("own.py", "--budget", "10ms", "--no-telemetry")):
        assert "monitor" not in run_json(*words, cwd=tmp_path)["records"][0]["effective"]
    assert run_line([]) == ""
