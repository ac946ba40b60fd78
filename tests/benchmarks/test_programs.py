"""Our own benchmarks run from start to end and say what they promise; how fast they found us is not a test's business."""

from __future__ import annotations

import importlib
import json
import math
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

HOME = Path(__file__).parents[2] / "benchmarks"


def hand_in(name: str, folder: Path, *words: str) -> tuple[str, dict[str, Any]]:
    """Run one program as a user does and give what it printed and wrote."""
    file = folder / f"{name}.json"
    done = subprocess.run(
        [sys.executable, str(HOME / f"{name}.py"), "--json", str(file), *words], capture_output=True, text=True, cwd=folder, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads(file.read_text())


def check_sheet(name: str, printed: str, found: dict[str, Any]) -> None:
    """What every sheet has, and that the printed verdicts are those of the JSON."""
    assert found["benchmark"] == name
    assert found["machine"]["summary"]
    assert len(found["load"]["before"]) == len(found["load"]["after"]) == 3
    verdicts = [line.rsplit(", ", 1)[1] for line in printed.splitlines() if line.startswith("goal: ")]
    assert verdicts == ["reached" if goal["reached"] else "missed" for goal in found["goals"]]
    assert verdicts
    assert all(math.isfinite(goal["value"]) for goal in found["goals"])


@pytest.mark.deep
@pytest.mark.torch
def test_isolation_compares_both_routes(tmp_path: Path) -> None:
    printed, found = hand_in("isolation", tmp_path, "--cases", "2", "--fresh-cases", "1", "--repeats", "1")
    check_sheet("isolation", printed, found)
    figures = found["figures"]
    for route in ("nursery", "fresh interpreter"):
        assert set(figures[route]) == {"case", "per_minute", "timed", "worker", "start"}
        assert 0 < figures[route]["timed"]["median"] < figures[route]["worker"]["median"] < figures[route]["case"]["median"]
    assert figures["ratio"]["rounds"] == 1
    assert found["goals"][0]["value"] == figures["ratio"]["median"]


@pytest.mark.deep
@pytest.mark.torch
def test_operators_weighs_configs_and_iterations(tmp_path: Path) -> None:
    printed, found = hand_in("operators", tmp_path, "--configs", "2", "--iterations", "50", "--rounds", "1")
    check_sheet("operators", printed, found)


@pytest.mark.deep
def test_reports_are_held_against_plain_json(tmp_path: Path) -> None:
    printed, found = hand_in("reports", tmp_path, "--part", "aggregate", "--rows", "500", "--repeats", "1")
    check_sheet("reports", printed, found)
    assert found["figures"]["aggregate"]["rows"] == 500 and "plain json" in found["figures"]["aggregate"]
    assert {goal["limit"] for goal in found["goals"]} == {2.0} and len(found["goals"]) == 5


@pytest.mark.deep
def test_pages_and_sites_are_weighed_in_a_browser(tmp_path: Path) -> None:
    parts = ("--part", "page", "--part", "site", "--records", "200", "--runs", "3", "--repeats", "1")
    printed, found = hand_in("reports", tmp_path, *parts)
    check_sheet("reports", printed, found)
    figures = found["figures"]
    assert figures["page"]["records"] == 200 and 10_000 < figures["page"]["bytes"] < 10e6
    assert figures["site"]["runs"] == 3 and {"first build", "one new run", "nothing new"} <= set(figures["site"])
    opened = "it was not opened" not in printed
    assert ("usable" in figures["page"], "key" in figures["page"]) == (opened, opened)


@pytest.mark.deep
@pytest.mark.torch
def test_overhead_puts_peers_beside_us(tmp_path: Path) -> None:
    printed, found = hand_in("overhead", tmp_path, "--rounds", "1", "--cases", "1")
    check_sheet("overhead", printed, found)
    figures = found["figures"]
    assert set(figures["calls"]) == {"bare loop", "steelyard, as timed", "steelyard, net", "torch Timer", "timeit", "pyperf"}
    assert all(tool["per_call"]["median"] > 0 for name, tool in figures["calls"].items() if not name.endswith("net"))
    assert {"f()", "f(a)", "f(a, flag=b)"} <= set(figures["shapes"])
    assert len(figures["cases"]) == 4
    for parts in figures["cases"].values():
        assert parts["outside"]["median"] == pytest.approx(parts["wall"]["median"] - parts["timed"]["median"])


@pytest.mark.deep
@pytest.mark.torch
def test_startup_weighs_commands(tmp_path: Path) -> None:
    printed, found = hand_in("startup", tmp_path, "--repeats", "1")
    check_sheet("startup", printed, found)
    assert set(found["figures"]) == {"python -c pass", "steelyard --help", "steelyard list", "pyperf --help", "import torch"}
    assert all(figure["low"] > 0 for figure in found["figures"].values())


def load(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A program as a module, forgotten after the test."""
    monkeypatch.syspath_prepend(str(HOME))
    for other in ("sheet", "drive", "isolation", "overhead", "planted", "startup"):
        monkeypatch.delitem(sys.modules, other, raising=False)
    return importlib.import_module(name)


@pytest.mark.parametrize(("value", "at_least", "verdict"), [(3.0, False, "reached"), (3.1, False, "missed"), (2.9, True, "missed")])
def test_a_goal_knows_its_direction(monkeypatch: pytest.MonkeyPatch, value: float, at_least: bool, verdict: str) -> None:
    goal = load("sheet", monkeypatch).Goal("cost", value, 3.0, "s", at_least)
    assert str(goal).startswith("goal: cost ")
    assert str(goal).endswith(verdict)


def test_the_nursery_pays_for_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    isolation = load("isolation", monkeypatch)
    lap = sys.modules["drive"].Lap
    route = isolation.Route.of([lap(6.5, 0.4, 0.2), lap(0.5, 0.4, 0.2), lap(0.5, 0.4, 0.2)])
    assert (route.case, route.start) == (0.5, 6.0)
    assert route.per_minute == pytest.approx(108)


def test_a_startup_that_fails_is_no_figure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    startup = load("startup", monkeypatch)
    with pytest.raises(SystemExit, match="exited with code 3"):
        startup.cpu_seconds([sys.executable, "-c", "raise SystemExit(3)"], str(tmp_path))


@pytest.mark.deep
def test_planted_measures_and_judges(tmp_path: Path) -> None:
    printed, found = hand_in("planted", tmp_path, "--times", "1", "--backend", "numpy", "--plant", "40", "--budget", "200ms")
    check_sheet("planted", printed, found)
    assert found["figures"]["planted slowdowns with exit 4"] == {"right": 1, "rounds": 1}


def test_planted_says_what_became_of_every_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planted = load("planted", monkeypatch)
    found = [
        planted.Round(*what, 1.04, 1.03, 1.05, 1e-4, 1.04e-4, ("a" * 40, "b" * 40), "settled", 2, 5.0) for what in ((True, 4), (False, 4))
    ]
    sheet = planted.sheet(found, (0.0, 0.0, 0.0))
    assert [(goal.value, goal.limit, goal.reached) for goal in sheet.goals] == [(1, 1, True), (0, 1, False)]
    row = str(sheet.tables[0]).splitlines()[2]
    assert all(part in row for part in ("+4.0 % [+3.0, +5.0]", "100.0 → 104.0 µs", "aaaaaaa → bbbbbbb", "settled, 2 looks"))
    head = planted.checkouts(tmp_path / "project", 100, 104)
    assert "range(104)" in (head / "adds.py").read_text()
    assert "range(100)" in (head.parent / "base" / "adds.py").read_text()


@pytest.mark.parametrize("program", ["per_config", "exec_modes"])
@pytest.mark.parametrize("made", [False, True], ids=["nowhere", "empty"])
def test_a_version_that_is_not_there_is_refused(program: str, made: bool, tmp_path: Path) -> None:
    old = tmp_path / "old"
    if made:
        old.mkdir()
    done = subprocess.run([sys.executable, str(HOME / f"{program}.py"), "--old", str(old)], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"{old} has no package steelyard" in done.stderr


@pytest.mark.deep
@pytest.mark.torch
def test_judging_tells_the_rate_and_where_the_seconds_go(tmp_path: Path) -> None:
    printed, found = hand_in("judging", tmp_path, "--candidates", "2")
    check_sheet("judging", printed, found)
    figures = found["figures"]
    assert not figures["not_right"] and sum(figures["phases_s"].values()) > 0
    assert figures["per_minute"] == pytest.approx(60 / figures["each_s"])
