"""An archive in the hands of time: clocks set back, lines of another version, several nights a day, files that are not its own."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from steelyard.engine.nightly.archive import FILE, Archive
from steelyard.errors import PASS, REGRESSION, StoreError
from tests.engine.test_nightly import KEY, spend, told


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive(tmp_path / "archive")


def reported(archive: Archive, day: int, code: int = PASS, date: str = "2026-02-01") -> str:
    """A whole night with its reports; gives the run."""
    run = spend(archive, day)

    def write(folder: Path) -> None:
        (folder / "figures").mkdir()
        for name in ("report.md", "figures/a.svg"):
            (folder / name).write_text(run.id, encoding="utf-8")

    folder = archive.file(date, write).name
    told(archive, run, code, reports=[f"reports/{folder}/report.md", f"reports/{folder}/figures/a.svg"])
    return run.id


def reports(archive: Archive) -> dict[str, str]:
    return {path.parent.name: path.read_text(encoding="utf-8") for path in (archive.root / "reports").rglob("report.md")}


def test_a_clock_set_back_is_told_and_the_night_still_has_a_base(archive: Archive) -> None:
    told(archive, spend(archive, 20))
    tonight = spend(archive, 5)
    assert [night.date for night in archive.before("bench", KEY, tonight.header.created)] == ["2026-01-20"]
    assert any("is the clock right?" in warning for warning in archive.warnings)
    told(archive, spend(archive, 3))
    assert [night.date for night in archive.before("bench", KEY, tonight.header.created)] == ["2026-01-03"]
    assert archive.warnings == []


def test_a_night_before_its_time_is_not_removed_as_soon_as_it_is_over(archive: Archive) -> None:
    future = [reported(archive, day, REGRESSION) for day in (20, 21, 22)]
    tonight = reported(archive, 1, REGRESSION)
    assert archive.prune("bench", 2, (tonight,)) == [future[0]]
    assert {info.id for info in archive.store.runs()} == {tonight, *future[1:]} and tonight in reports(archive).values()


def test_a_report_folder_that_a_later_night_of_the_same_day_reused_is_kept(archive: Archive) -> None:
    first = [reported(archive, day, REGRESSION) for day in (1, 2, 3)]
    archive.prune("bench", 2)
    assert sorted(reports(archive).values()) == sorted(first[1:])
    later = [reported(archive, day, REGRESSION) for day in (4, 5)]
    archive.prune("bench", 2)
    assert sorted(reports(archive).values()) == sorted(later)


def test_only_what_nights_wrote_is_removed(archive: Archive, tmp_path: Path) -> None:
    old = reported(archive, 1, REGRESSION)
    runs = {info.id: info.path for info in archive.store.runs()}
    shutil.copytree(runs[old], archive.store.folder / f"golden-{old}")
    (archive.root / "reports" / "2026-02-01" / "notes.txt").write_text("mine", encoding="utf-8")
    (archive.root / "reports" / "2020-01-01").mkdir()
    linked = tmp_path / "linked"
    linked.mkdir()
    (linked / "report.md").write_text("mine", encoding="utf-8")
    (archive.root / "reports" / "2020-01-02").symlink_to(linked)
    told(archive, spend(archive, 2), REGRESSION, reports=["reports/2020-01-02/report.md", "reports/2026-02-01/../../x/report.md"])
    for day in (3, 4):
        reported(archive, day)
    assert old in archive.prune("bench", 2)
    assert not runs[old].exists() and (archive.store.folder / f"golden-{old}" / "run.jsonl").is_file()
    assert [path.name for path in (archive.root / "reports" / "2026-02-01").iterdir()] == ["notes.txt"]
    assert (archive.root / "reports" / "2020-01-01").is_dir() and (linked / "report.md").is_file()


def test_a_night_that_a_newer_steelyard_wrote_about_is_not_called_unfinished(archive: Archive) -> None:
    night = told(archive, spend(archive, 1))
    line = json.loads((archive.root / FILE).read_text(encoding="utf-8"))
    (archive.root / FILE).write_text(json.dumps({**line, "schema": 99}) + "\n", encoding="utf-8")
    assert archive.orphans() == [] and "newer Steelyard" in archive.warnings[0]
    (archive.root / FILE).write_text(json.dumps(line)[:-20], encoding="utf-8")
    assert [info.id for info in archive.orphans()] == [night.run], "a torn line was never finished, so its night is judged again"


@pytest.mark.parametrize("command", [["steelyard", "run", "nightly"], ["steelyard", "--debug", "run", "nightly"], ["steelyard"], []])
def test_an_ordinary_run_of_something_called_nightly_is_no_night(archive: Archive, command: list[str]) -> None:
    spend(archive, 1, seal=False, command=command)
    night = spend(archive, 2, seal=False, command=["steelyard", "--debug", "nightly", "x.toml"])
    assert [info.id for info in archive.orphans()] == [night.id]


def test_a_list_of_nights_that_cannot_be_written_stops_a_night_before_it_begins(archive: Archive, tmp_path: Path) -> None:
    archive.root.mkdir()
    (archive.root / FILE).symlink_to(tmp_path / "elsewhere.jsonl")
    with pytest.raises(StoreError, match="cannot keep nights"), archive.held():
        raise AssertionError("begun")
    (archive.root / FILE).unlink()
    (archive.root / FILE).mkdir()
    with pytest.raises(StoreError, match="cannot keep nights"), archive.held():
        raise AssertionError("begun")
