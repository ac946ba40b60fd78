"""Users' files on hosts that do not share ours."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from steelyard.engine import conduct
from steelyard.engine.farm import goods, running
from steelyard.engine.farm.launchers.local import LocalLauncher
from steelyard.engine.run import NoWatch
from steelyard.engine.selection import Request
from steelyard.errors import SteelyardError, UsageError
from steelyard.store.runs import Store

OWN = """
import beside
from steelyard import Task, workload

@workload("own/work", axes={"n": [1, 2]}, backend="fake")
def work(n, be):
    return Task(lambda: be.spend(n * beside.SECONDS))
"""


def project(folder: Path) -> None:
    (folder / "own.py").write_text(OWN)
    (folder / "beside.py").write_text("SECONDS = 1e-3\n")
    (folder / "notes.txt").write_text("not code")


class FarLauncher(LocalLauncher):
    """Stations here that may not look at our files."""

    shares_files = False


def test_a_users_file_and_the_modules_beside_it_travel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(running, "open_launcher", lambda text: FarLauncher(1))
    store = Store(tmp_path / ".steelyard")
    ready = conduct.prepare(Request(selectors=("own.py",), on="local:1"), store)
    seen: list[str] = []
    real = goods.packed

    def hidden(*words: object) -> bytes:
        """Once they are packed, the files are here no more."""
        data = real(*words)  # type: ignore[arg-type]
        seen.extend(zipfile.ZipFile(io.BytesIO(data)).namelist())
        (tmp_path / "own.py").unlink()
        (tmp_path / "beside.py").unlink()
        return data

    monkeypatch.setattr(running, "packed", hidden)
    done = conduct.execute(ready, store, ["steelyard"], lambda writer: NoWatch())
    assert [record.status for record in done.run.records] == ["ok", "ok"], [record.reason for record in done.run.records]
    assert sorted(Path(name).name for name in seen) == ["beside.py", "own.py"]
    assert {"own.py", "beside.py"} <= done.run.header.sources.keys() and done.run.warnings == ()
    assert {record.source["modules"] for record in done.run.records} != {""}


def archive(names: Sequence[str]) -> bytes:
    found = io.BytesIO()
    with zipfile.ZipFile(found, "w") as made:
        for name in names:
            made.writestr(name, "x")
    return found.getvalue()


@pytest.mark.parametrize("name", ["../out", "a/../../out", "/etc/out"])
def test_an_archive_that_leads_out_of_its_place_is_refused(name: str, tmp_path: Path) -> None:
    inside = tmp_path / "deep" / "files"
    inside.mkdir(parents=True)
    with pytest.raises(SteelyardError, match="leads out of its folder"):
        goods.unpack(archive([name]), inside)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == []


def test_more_than_can_be_sent_is_refused_before_anything_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(goods, "MOST", 10)
    ready = conduct.prepare(Request(selectors=("own.py",)), Store(tmp_path / ".steelyard"))
    with pytest.raises(UsageError, match="too large to be sent"):
        goods.packed(ready, tmp_path)
