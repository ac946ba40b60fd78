"""Artifacts go to another place and come back the same, by way of a folder, a server with and without ranges, and S3."""

from __future__ import annotations

import contextlib
import hashlib
import json
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from steelyard.artifacts import arrays, manifest, remote
from steelyard.artifacts.manifest import ArtifactFile, ArtifactSet, Producer
from steelyard.cli.main import main
from steelyard.errors import StoreError, UsageError
from steelyard.workloads.artifacts._files import identify
from tests.artifacts.made import PROGRAM, small
from tests.artifacts.serving import serving

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(remote.CACHE, str(tmp_path / "cache"))
    return tmp_path / "cache"


def heavy(folder: Path, size: int = 40_000) -> ArtifactSet:
    """A folder with a file of random bytes that takes several pieces."""
    folder.mkdir(parents=True)
    (folder / "model.bin").write_bytes(np.random.default_rng(1).bytes(size))
    held = ArtifactSet("heavy", Producer("jax", "x"), files=(manifest.entry(folder, "model.bin"),))
    manifest.write(folder, held)
    return held


def same(one: Path, other: Path) -> bool:
    names = sorted(path.name for path in one.iterdir())
    return names == sorted(path.name for path in other.iterdir()) and all(
        (one / name).read_bytes() == (other / name).read_bytes() for name in names
    )


def quiet(line: str) -> None:
    pass


def test_a_folder_and_back(tmp_path: Path) -> None:
    small(tmp_path / "made" / "a", "a"), small(tmp_path / "made" / "b", "b")
    store = tmp_path / "store"
    sent: list[str] = []
    assert remote.publish([tmp_path / "made" / "a"], str(store), sent.append) == [f"{store}/a"]
    assert remote.publish([tmp_path / "made" / "b"], f"file://{store}", quiet) == [f"file://{store}/b"]
    assert len(sent) == 3
    assert remote.publish([tmp_path / "made" / "a"], str(store), sent.append) and len(sent) == 3
    found = remote.fetch(str(store), tmp_path / "got", quiet)
    assert [path.name for path in found] == ["a", "b"]
    assert all(same(path, tmp_path / "made" / path.name) for path in found)


def test_a_server_and_what_is_here_already_is_not_fetched_again(tmp_path: Path) -> None:
    small(tmp_path / "site" / "a", "a")
    with serving(tmp_path / "site") as site:
        (got,) = remote.fetch(f"{site.url}/a", tmp_path / "got", quiet)
        assert same(got, tmp_path / "site" / "a") and manifest.check(got, manifest.read(got)) == []
        before = len(site.asked)
        remote.fetch(f"{site.url}/a", tmp_path / "again", quiet)
        assert {path for path, _ in site.asked[before:]} == {"/a/manifest.json"}


@pytest.mark.parametrize("ranges", [True, False])
def test_a_cut_download_goes_on_or_begins_anew(tmp_path: Path, ranges: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "PIECE", 10_000)
    heavy(tmp_path / "site" / "heavy")
    with serving(tmp_path / "site", ranges=ranges, cut={"model.bin": 4_000}) as site:
        (got,) = remote.fetch(f"{site.url}/heavy", tmp_path / "got", quiet)
        asked = [span for path, span in site.asked if path.endswith("model.bin")]
    assert same(got, tmp_path / "site" / "heavy")
    assert ("bytes=30000-39999" in asked) is ranges


def test_a_second_command_goes_on_where_the_first_was_cut(tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "PIECE", 10_000)
    monkeypatch.setattr(remote, "TRIES", 1)
    held = heavy(tmp_path / "site" / "heavy")
    part = own_cache / "blobs" / f"{held.files[0].sha256}.part"
    part.parent.mkdir(parents=True)
    part.write_bytes((tmp_path / "site" / "heavy" / "model.bin").read_bytes()[:20_000])
    with serving(tmp_path / "site", cut={"model.bin": 4_000}) as site:
        with pytest.raises(StoreError, match=r"was cut[\s\S]*20000 of 40000 bytes arrived[\s\S]*run the same command again"):
            remote.fetch(f"{site.url}/heavy", tmp_path / "got", quiet)
        assert not (tmp_path / "got").exists() or not list((tmp_path / "got").iterdir())
        site.asked.clear()
        (got,) = remote.fetch(f"{site.url}/heavy", tmp_path / "got", quiet)
        assert [span for path, span in site.asked if path.endswith("model.bin")] == ["bytes=20000-29999", "bytes=30000-39999"]
    assert same(got, tmp_path / "site" / "heavy")


def test_another_file_than_the_one_meant_is_refused_and_not_kept(tmp_path: Path, own_cache: Path) -> None:
    heavy(tmp_path / "site" / "heavy")
    path = tmp_path / "site" / "heavy" / "model.bin"
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    with serving(tmp_path / "site") as site:
        with pytest.raises(StoreError, match=r"model.bin is not the expected file[\s\S]*its sha256 is"):
            remote.fetch(f"{site.url}/heavy", tmp_path / "got", quiet)
        path.write_bytes(path.read_bytes() + b"!")
        with pytest.raises(StoreError, match="has 40001 bytes, not 40000"):
            remote.fetch(f"{site.url}/heavy", tmp_path / "got", quiet)
        with pytest.raises(StoreError, match=r"manifest\.json is not the expected file"):
            remote.fetch(f"{site.url}/heavy#sha256={'0' * 64}", tmp_path / "got", quiet)
    assert list((own_cache / "blobs").iterdir()) == []
    assert not list(tmp_path.glob("got/*"))


def test_a_damaged_cache_is_fetched_anew(tmp_path: Path, own_cache: Path) -> None:
    held = heavy(tmp_path / "site" / "heavy")
    remote.fetch(str(tmp_path / "site" / "heavy"), tmp_path / "one", quiet)
    kept = own_cache / "blobs" / held.files[0].sha256
    kept.chmod(0o644)
    kept.write_bytes(b"rotten")
    (got,) = remote.fetch(str(tmp_path / "site" / "heavy"), tmp_path / "two", quiet)
    assert same(got, tmp_path / "site" / "heavy")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"schema": 1, "artifacts": {"../x": "' + "0" * 64 + '"}}', "is not a plain name"),
        ('{"schema": 2, "artifacts": {}}', "newer Steelyard"),
        ('{"schema": 1, "artifacts": {"a": "beef"}}', "not a sha256"),
        ("[" * 100_000, "not an index of artifacts"),
        ("nonsense", "not an index of artifacts"),
    ],
)
def test_an_index_that_cannot_be_trusted_is_refused(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "index.json").write_text(text)
    with pytest.raises(StoreError, match=told):
        remote.fetch(str(tmp_path / "site"), tmp_path / "got", quiet)


def test_what_cannot_be_is_said(tmp_path: Path) -> None:
    small(tmp_path / "a", "a")
    with pytest.raises(UsageError, match=r"nothing can be written to http"):
        remote.publish([tmp_path / "a"], "http://x/y", quiet)
    with pytest.raises(UsageError, match="no artifacts at"):
        remote.fetch(str(tmp_path / "nothing"), tmp_path / "got", quiet)
    with pytest.raises(UsageError, match="nosuch"):
        remote.fetch("nosuch://x", tmp_path / "got", quiet)
    with pytest.raises(UsageError, match="is not a sha256"):
        remote.fetch(f"{tmp_path}/a#sha256=beef", tmp_path / "got", quiet)
    with serving(tmp_path) as site, pytest.raises(UsageError, match="no artifacts at"):
        remote.fetch(f"{site.url}/nowhere", tmp_path / "got", quiet)
    (tmp_path / "a" / "stablehlo.mlir").write_text("changed")
    with pytest.raises(StoreError, match="is not published"):
        remote.publish([tmp_path / "a"], str(tmp_path / "store"), quiet)
    assert not (tmp_path / "store").exists()


def test_an_archive_is_fetched_by_its_hash_and_checked_inside(tmp_path: Path) -> None:
    small(tmp_path / "a", "a")
    with tarfile.open(tmp_path / "a.tgz", "w:gz") as archive:
        archive.add(tmp_path / "a", "a")
    digest = hashlib.sha256((tmp_path / "a.tgz").read_bytes()).hexdigest()
    with serving(tmp_path) as site:
        with pytest.raises(UsageError, match="has no hash"):
            remote.fetch(f"{site.url}/a.tgz", tmp_path / "got", quiet)
        (got,) = remote.fetch(f"{site.url}/a.tgz#sha256={digest}", tmp_path / "got", quiet)
    assert same(got, tmp_path / "a")
    with tarfile.open(tmp_path / "bad.tgz", "w:gz") as archive:
        arrays.add(archive, "../../evil", b"x")
    digest = hashlib.sha256((tmp_path / "bad.tgz").read_bytes()).hexdigest()
    with pytest.raises(StoreError, match="leads out of its folder"):
        remote.fetch(f"{tmp_path}/bad.tgz#sha256={digest}", tmp_path / "in" / "got", quiet)
    assert not list(tmp_path.rglob("evil"))


HUGE = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))
from pathlib import Path
from steelyard.artifacts import manifest
from steelyard.artifacts.manifest import ArtifactFile
size, digest = manifest.hashed(Path(sys.argv[1]))
print(size, digest, manifest.trouble_of(Path(sys.argv[1]).parent, ArtifactFile("huge.bin", digest, size - 1)))
"""


@pytest.mark.deep
def test_a_file_of_two_gigabytes_is_checked_in_one_of_memory(tmp_path: Path) -> None:
    with (tmp_path / "huge.bin").open("wb") as file:
        file.truncate(2**31 + 5)
    done = subprocess.run([sys.executable, "-c", HUGE, str(tmp_path / "huge.bin")], capture_output=True, text=True, check=True)
    size, digest, *trouble = done.stdout.split()
    assert int(size) == 2**31 + 5 and len(digest) == 64 and " ".join(trouble) == f"has {2**31 + 5} bytes, not {2**31 + 4}"


def test_a_file_larger_than_the_memory_allowed_is_fetched_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is held at a time is a piece; nobody asks for more of a large file at once."""
    monkeypatch.setattr(remote, "PIECE", 2**16)
    held = heavy(tmp_path / "site" / "heavy", 2**20 + 7)
    with serving(tmp_path / "site") as site:
        remote.fetch(f"{site.url}/heavy", tmp_path / "got", quiet)
        spans = [span.removeprefix("bytes=").split("-") for path, span in site.asked if path.endswith("model.bin")]
    assert len(spans) == 17 and max(int(end) - int(begin) for begin, end in spans) < 2**16
    assert held.files == (ArtifactFile("model.bin", held.files[0].sha256, 2**20 + 7),)


@contextlib.contextmanager
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An S3 server of moto's on this machine, with a bucket."""
    import botocore.session
    from moto import server

    held = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    held.start()
    host, port = held.get_host_and_port()
    for name, value in {
        "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_DEFAULT_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    try:
        botocore.session.get_session().create_client("s3").create_bucket(Bucket="weights")
        yield "s3://weights/models"
    finally:
        held.stop()


@pytest.mark.deep
@pytest.mark.filterwarnings("ignore")
def test_s3_and_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "PIECE", 10_000)
    heavy(tmp_path / "made" / "heavy")
    small(tmp_path / "made" / "a", "a")
    with bucket(monkeypatch) as url:
        sent: list[str] = []
        assert remote.publish([tmp_path / "made" / "a", tmp_path / "made" / "heavy"], url, sent.append) == [f"{url}/a", f"{url}/heavy"]
        assert len(sent) == 4 and not remote.publish([tmp_path / "made" / "heavy"], url, sent.append)[1:] and len(sent) == 4
        found = remote.fetch(url, tmp_path / "got", quiet)
        assert [path.name for path in found] == ["a", "heavy"]
        assert all(same(path, tmp_path / "made" / path.name) for path in found)
        place = remote.RemotePlace.at(f"{url}/heavy")
        with place.system.open(place.below("model.bin"), "wb") as file:
            file.write(bytes(40_000))
        monkeypatch.setenv(remote.CACHE, str(tmp_path / "other"))
        with pytest.raises(StoreError, match="is not the expected file"):
            remote.fetch(f"{url}/heavy", tmp_path / "again", quiet)
        index = json.loads(remote.RemotePlace.at(url).whole("index.json") or b"")
    assert sorted(index["artifacts"]) == ["a", "heavy"]


def test_programs_at_an_address_are_run_and_what_is_wrong_there_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where a run is planned: a folder, one program of it, a program alone by its hash, and each failure with exit code 2."""
    small(tmp_path / "site" / "a", "a"), heavy(tmp_path / "site" / "cut"), heavy(tmp_path / "site" / "gone")
    (tmp_path / "site" / "cut" / "model.bin").write_bytes(b"nine byte")
    (tmp_path / "site" / "gone" / "model.bin").unlink()
    (tmp_path / "site" / "own.mlir").write_text(PROGRAM)
    digest = hashlib.sha256(PROGRAM.encode()).hexdigest()
    with serving(tmp_path / "site") as site:
        for address in (f"{site.url}/a", f"{site.url}/a/stablehlo.mlir"):
            assert main(["list", f"artifact:{address}", "--json"]) == 0
            assert identify(tmp_path / "site" / "a" / "stablehlo.mlir")[:12] in capsys.readouterr().out
        assert main(["run", f"artifact:{site.url}/own.mlir#sha256={digest}", "--dry-run", "--json"]) == 0
        assert digest[:12] in capsys.readouterr().out
        for address, told in {
            f"{site.url}/none": "no artifacts at", f"{site.url}/cut": "has 9 bytes, not", f"{site.url}/gone": "there is no",
            f"{site.url}/a#sha256={'0' * 64}": "is not the expected file",
            f"{site.url}/a/other.mlir": "does not list it", f"{site.url}/own.mlir": "has no hash",
            f"{site.url}/own.mlir#sha256={'0' * 64}": "is not the expected file",
            f"{site.url}/none.mlir#sha256={digest}": "none.mlir",
        }.items():  # fmt: skip
            assert main(["run", f"artifact:{address}", "--dry-run"]) == 2
            assert told in capsys.readouterr().err, address
    assert main(["run", f"artifact:{site.url}/later", "--dry-run"]) == 2
    assert "check the address and the network" in capsys.readouterr().err


@pytest.mark.parametrize("missing", ["aiohttp", "fsspec"])
def test_what_addresses_need_is_named(missing: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from fsspec.registry import _registry as held

    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.delitem(sys.modules, "fsspec.implementations.http", raising=False)
    monkeypatch.delitem(held, "http", raising=False)
    assert main(["run", "artifact:http://127.0.0.1:1/x", "--dry-run"]) == 2
    assert "pip install 'steelyard[remote]'" in capsys.readouterr().err
