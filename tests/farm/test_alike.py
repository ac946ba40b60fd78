"""One experiment of 200 cases gives the same cases, statuses and comparable records here, on Slurm, on Ray and by ssh."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.engine.drive import steelyard
from tests.engine.farm.test_runs import events_of, folder_of, lines_of, records_of
from tests.farm.places import FarmPlace, nothing_left

SUITE = Path(__file__).with_name("two_hundred.toml")
SOME_FAILED = 3


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The experiment as this machine alone does it."""
    folder = tmp_path_factory.mktemp("here")
    locks = {"STEELYARD_LOCKS": str(folder / "locks"), "STEELYARD_CACHE": str(folder / "cache")}
    shutil.copy(SUITE, folder)
    steelyard("run", SUITE.name, cwd=folder, check=SOME_FAILED, env=locks, within=600)
    return folder


def times(records: list[dict[str, Any]]) -> dict[str, float]:
    """The medians of what is timed on a virtual clock, which tells the same everywhere."""
    return {record["id"]: record["metrics"]["time"]["value"] for record in records if record["status"] == "ok" and "@fake/" in record["id"]}


def ratios(folder: Path) -> dict[tuple[str, str], float]:
    pairs = [line["pair"] for line in lines_of(folder) if "pair" in line]
    return {(pair["head"]["id"], pair["base"]["id"]): pair["ratio"] for pair in pairs}


def test_200_cases_are_the_same_there_as_here(place: FarmPlace, here: Path, tmp_path: Path) -> None:
    shutil.copy(SUITE, tmp_path)
    steelyard("run", SUITE.name, "--on", place.on(tmp_path), cwd=tmp_path, check=SOME_FAILED, env=place.environment, within=600)
    mine, theirs = records_of(here), records_of(tmp_path)
    assert len(theirs) == len({record["id"] for record in theirs}) == 200
    assert "seal" in lines_of(tmp_path)[-1]
    assert {record["id"]: record["status"] for record in mine} == {record["id"]: record["status"] for record in theirs}
    assert {record["id"]: record["requested"] for record in mine} == {record["id"]: record["requested"] for record in theirs}
    assert times(theirs) == pytest.approx(times(mine), rel=0.05)
    assert ratios(tmp_path) == pytest.approx(ratios(here), rel=0.05) and len(ratios(here)) == 40
    stations = {record["id"]: record["effective"]["host"]["station"] for record in theirs if "host" in record["effective"]}
    joined = {event.text("station") for event in events_of(tmp_path) if event.kind == "joined"}
    aside = {event.text("station") for event in events_of(tmp_path) if event.kind == "aside"}
    assert len(joined) >= 2 and set(stations.values()) <= joined
    assert len(set(stations.values())) >= 2 or aside
    assert all(stations[head] == stations[base] for head, base in ratios(tmp_path))
    assert nothing_left(place.mark) == []
    said = steelyard("compare", str(folder_of(here)), str(folder_of(tmp_path)), cwd=tmp_path, check=None)
    assert said.returncode in (0, 4, 6), said.stderr
