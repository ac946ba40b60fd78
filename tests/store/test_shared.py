"""A store that a team shares: what one sends another reads, whole or not at all, once, and nothing is lost where the place is away."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from steelyard.cli.main import main
from steelyard.errors import StoreError, UsageError
from steelyard.store import refs, shared
from steelyard.store.index import Index
from steelyard.store.runs import Run, Store
from steelyard.store.shared import SENT, SharedStore
from steelyard.store.sql import query
from tests.artifacts.test_remote import bucket
from tests.store.made import case, filled, python


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"file://{tmp_path}/team/runs"


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    """A folder of its own in a bucket, which moto keeps from test to test; what fsspec remembers of another server is forgotten."""
    import s3fs

    s3fs.S3FileSystem.clear_instance_cache()
    with bucket(monkeypatch) as place:
        yield f"{place}/{tmp_path.name}"


def member(tmp_path: Path, name: str, url: str) -> SharedStore:
    """The store as one machine of the team sees it."""
    return SharedStore(url, tmp_path / name)


def files(url: str) -> list[str]:
    root = Path(urlsplit(url).path)
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def exchange(tmp_path: Path, url: str) -> None:
    """One member measures and sends; another lists, reads by reference, samples included, and asks for the history."""
    ann = member(tmp_path, "ann", url)
    runs: list[Run] = [filled(ann), filled(ann, count=2)]
    filled(ann, seal=False)
    assert sorted(ann.send()) == sorted(run.id for run in runs) and ann.send() == []
    bob = member(tmp_path, "bob", url)
    assert [(info.id, info.sealed, info.counts) for info in bob.runs()] == [(runs[1].id, True, {"ok": 2}), (runs[0].id, True, {"ok": 3})]
    assert not bob.held()
    found = refs.resolve(bob, "latest~1").run
    assert found.records == runs[0].records and not found.warnings and [path.name for path in bob.held()] == [runs[0].path.name]
    assert found.array(found.records[1].samples[0]).tolist() == [2.0, 0.5]
    assert refs.resolve(bob, f"{runs[1].id[:5]}/2").record == runs[1].records[1]
    with Index(bob) as index:
        index.refresh()
        assert len(index.series(case(1))) == 2
    assert query(bob, "SELECT count(*), count(DISTINCT run) FROM records").rows == [(5, 2)]


def test_what_one_sends_another_reads(tmp_path: Path, url: str) -> None:
    exchange(tmp_path, url)


@pytest.mark.filterwarnings("ignore")
def test_the_same_by_s3(tmp_path: Path, s3: str) -> None:
    exchange(tmp_path, s3)


@pytest.mark.filterwarnings("ignore")
def test_a_bucket_that_is_not_there_is_no_empty_store(tmp_path: Path, s3: str) -> None:
    ann = member(tmp_path, "ann", "s3://steelyard-has-no-such-bucket/runs")
    with pytest.raises(StoreError) as caught:
        ann.runs()
    assert caught.value.why == "there is no such bucket"
    assert member(tmp_path, "bob", f"{s3}/nothing-yet").runs() == []
    with pytest.raises(UsageError) as unknown:
        refs.locate(member(tmp_path, "bob", f"{s3}/nothing-yet"), "latest")
    assert unknown.value.why == f"no runs in {s3}/nothing-yet"


def test_a_seal_object_of_s3_is_created_once(tmp_path: Path, s3: str) -> None:
    """Two processes send the same run at once, from copies of one folder: both succeed, and there is one run."""
    ann = member(tmp_path, "ann", s3)
    run = filled(ann)
    shutil.copytree(ann.root, tmp_path / "copy")
    code = "import sys, pathlib; from steelyard.store.shared import *; print(SharedStore(sys.argv[1], pathlib.Path(sys.argv[2])).send())"
    both = [python(code, s3, tmp_path / name, wait=False) for name in ("ann", "copy")]
    assert [process.communicate(timeout=60)[0].strip() for process in both] == [f"['{run.id}']"] * 2
    assert [info.id for info in member(tmp_path, "bob", s3).runs()] == [run.id]


KILLED = """
import os, sys
from pathlib import Path
from fsspec.implementations.local import LocalFileSystem as L
from steelyard.store.shared import SharedStore
left = int(sys.argv[3])
def counted(real):
    def call(self, *words, **options):
        global left
        left -= 1
        if left < 0:
            os._exit(0)
        return real(self, *words, **options)
    return call
L.put_file, L.pipe_file = counted(L.put_file), counted(L.pipe_file)
SharedStore(sys.argv[1], Path(sys.argv[2])).send()
"""


def test_a_sender_killed_at_any_step_loses_and_doubles_nothing(tmp_path: Path, url: str) -> None:
    ann = member(tmp_path, "ann", url)
    made = [filled(ann), filled(ann)]
    for steps in range(7):
        python(KILLED, url, ann.root, steps)
        seen = member(tmp_path, f"bob{steps}", url).runs()
        for info in seen:
            assert member(tmp_path, f"bob{steps}", url).open(info.id).records == made[0].records
        assert len(seen) <= 2
    assert sorted(info.id for info in member(tmp_path, "last", url).runs()) == sorted(run.id for run in made)
    assert sum(path.startswith("seals/") for path in files(url)) == 2 and not list(ann.waiting())


def test_a_place_that_is_away_keeps_the_run_here_until_it_is_back(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(shared.VARIABLE, str(tmp_path / "spool"))
    team = tmp_path / "team"
    team.write_text("in the way")
    run = ["run", "fake/work", "-B", "fake", "--store", url, "--budget", "10ms"]
    assert main(run) == 0
    assert "1 run is kept here and not yet sent" in capsys.readouterr().err
    assert main(["sync", "--store", url]) == 2
    assert main(["show", "latest", "--store", url]) == 0
    assert "cannot be reached" in capsys.readouterr().err
    team.unlink()
    assert main(run) == 0
    assert len(member(tmp_path, "bob", url).runs()) == 2
    assert main(["sync", "--store", url]) == 0
    assert "nothing waits" in capsys.readouterr().out
    assert main(["compare", "latest~1", "latest", "--store", url]) in (0, 5)
    assert main(["show", "latest/1", "--history", "--store", url]) == 0
    (tmp_path / "spool").rename(tmp_path / "gone")
    assert main(["list", "runs", "--store", url, "--json"]) == 0
    assert main(["gate", "latest~1", "latest", "--store", url]) in (0, 5, 6)


def test_a_place_that_is_away_and_was_never_seen_is_an_error(tmp_path: Path, url: str) -> None:
    (tmp_path / "team").write_text("in the way")
    with pytest.raises(StoreError, match="cannot read"):
        member(tmp_path, "ann", url).runs()


def test_two_runs_of_the_same_second_and_id_stay_two(tmp_path: Path, url: str) -> None:
    ann, bob = member(tmp_path, "ann", url), member(tmp_path, "bob", url)
    same = {"id": "abc234", "created": "2026-01-02T03:04:05Z"}
    filled(ann, count=1, **same), filled(bob, count=2, **same)
    assert ann.send() == bob.send() == ["abc234"]
    for store in (member(tmp_path, "cat", url), member(tmp_path, "ann", url)):
        assert sorted(len(store.open(folder).records) for folder in store.folders()) == [1, 2]


def test_what_was_changed_at_the_place_is_refused(tmp_path: Path, url: str) -> None:
    ann = member(tmp_path, "ann", url)
    run = filled(ann)
    ann.send()
    file = next(Path(urlsplit(url).path).glob("runs/*/run.jsonl"))
    file.write_bytes(file.read_bytes().replace(b'"ok"', b'"no"'))
    with pytest.raises(StoreError, match="damaged or was changed"):
        member(tmp_path, "bob", url).open(run.id)
    assert not member(tmp_path, "bob", url).held()


@pytest.mark.parametrize("path", ["../../evil", "/etc/evil", "attachments/../../evil", "attachments/.sent", ".sent", "attachments/a/b"])
def test_a_name_that_leads_out_of_a_run_is_refused(tmp_path: Path, url: str, path: str) -> None:
    ann = member(tmp_path, "ann", url)
    filled(ann)
    ann.send()
    seal = next(Path(urlsplit(url).path).glob("seals/*.json"))
    data = json.loads(seal.read_text())
    data["files"][path] = data["files"]["run.jsonl"]
    found = shared.SealObject(**{**data, "files": {name: shared.SentFile(**file) for name, file in data["files"].items()}})
    seal.with_name(f"{(ann.held()[0] / SENT).read_text()[:-12]}{found.digest}.json").write_text(json.dumps(data))
    seal.unlink()
    assert member(tmp_path, "bob", url).runs() == []
    with pytest.raises(StoreError, match="not a seal of a run"):
        shared._parse(f"20260102T030405-abc234-{found.digest}", json.dumps(data).encode())


def test_a_seal_that_is_cut_off_is_not_there_yet(tmp_path: Path, url: str) -> None:
    ann = member(tmp_path, "ann", url)
    run = filled(ann)
    ann.send()
    seal = next(Path(urlsplit(url).path).glob("seals/*.json"))
    whole = seal.read_bytes()
    seal.write_bytes(whole[:50])
    bob = member(tmp_path, "bob", url)
    assert bob.runs() == []
    (ann.held()[0] / SENT).unlink()
    assert ann.send() == [run.id] and seal.read_bytes() == whole
    assert [info.id for info in member(tmp_path, "bob", url).runs()] == [run.id]


def test_an_address_in_the_environment_names_the_store(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(shared.VARIABLE, str(tmp_path / "spool"))
    monkeypatch.setenv("STEELYARD_STORE", url)
    found = Store.find()
    assert isinstance(found, SharedStore) and found.url == url and found.root.is_relative_to(tmp_path / "spool")
    assert os.fspath(Store.find(explicit=str(tmp_path)).root) == str(tmp_path)


@pytest.mark.parametrize(
    ("address", "says"), [("gs-x://b/x", "not an address"), ("http://127.0.0.1:9/x", "cannot send runs to"), ("s3://", "is incomplete")]
)
def test_a_place_where_no_run_can_be_sent_is_refused_before_anything_is_measured(
    address: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(shared.VARIABLE, str(tmp_path / "spool"))
    assert main(["run", "fake/work", "--store", address]) == 2
    assert says in capsys.readouterr().err and not list(tmp_path.rglob("run.jsonl"))


def test_a_run_that_is_too_large_to_be_read_hides_no_other(tmp_path: Path, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    ann, bob = member(tmp_path, "ann", url), member(tmp_path, "bob", url)
    small, large = filled(ann, count=1), filled(ann, count=9)
    ann.send()
    [sealed] = [seal for seal in bob.sealed().values() if seal.id == large.id]
    sealed.files["run.jsonl"] = shared.SentFile("0" * 64, 1 << 40)
    assert [folder.name for folder in bob.folders()] == [small.path.name]
    assert "too large to read and is skipped" in capsys.readouterr().err
