"""Nothing in an archive reaches out of its folder, and nothing of a bad one stays."""

from __future__ import annotations

import io
import stat
import tarfile
import zipfile
from pathlib import Path

import pytest

from steelyard import files
from steelyard.artifacts.unpacking import unpack
from steelyard.errors import StoreError


def packed(path: Path, *members: tuple[str, bytes], kind: bytes = tarfile.REGTYPE, target: str = "") -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members:
            item = tarfile.TarInfo(name)
            item.type, item.linkname = kind, target
            item.size = len(content) if kind == tarfile.REGTYPE else 0
            archive.addfile(item, io.BytesIO(content))
    return path


def test_files_come_out_as_they_went_in(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    assert unpack(packed(tmp_path / "a.tgz", ("a/b.txt", b"one"), ("./c", b"two")), folder) == ["a/b.txt", "c"]
    assert (folder / "a" / "b.txt").read_bytes() == b"one" and (folder / "c").read_bytes() == b"two"
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("z/y", "three")
    assert unpack(tmp_path / "a.zip", folder) == ["z/y"]


@pytest.mark.parametrize("name", ["../out.txt", "a/../../out.txt", "/etc/out.txt", "a\\..\\b", "C:/x", ".."])
def test_a_name_that_leads_out_is_refused(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "in" / "out"
    folder.mkdir(parents=True)
    with pytest.raises(StoreError, match="leads out of its folder"):
        unpack(packed(tmp_path / "a.tgz", ("fine", b"x"), (name, b"y")), folder)
    assert list((tmp_path / "in").rglob("*")) == [folder]
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr(zipfile.ZipInfo(name), "y")
    with pytest.raises(StoreError, match="leads out of its folder"):
        unpack(tmp_path / "a.zip", folder)


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_are_refused(tmp_path: Path, kind: bytes) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    with pytest.raises(StoreError, match="is a link or a device"):
        unpack(packed(tmp_path / "a.tgz", ("x", b""), kind=kind, target="/etc/passwd"), folder)
    assert list(folder.iterdir()) == []


def test_a_link_in_a_zip_is_refused(tmp_path: Path) -> None:
    info = zipfile.ZipInfo("x")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr(info, "/etc/passwd")
    with pytest.raises(StoreError, match="is a link"):
        unpack(tmp_path / "a.zip", tmp_path)


def test_a_bomb_is_refused_before_it_fills_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(files.VARIABLE, "1MiB")
    folder = tmp_path / "out"
    folder.mkdir()
    with pytest.raises(StoreError, match="unpacks to more than"):
        unpack(packed(tmp_path / "a.tgz", ("x", bytes(2**21))), folder)
    assert list(folder.iterdir()) == []


def test_a_name_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    with pytest.raises(StoreError, match="twice"):
        unpack(packed(tmp_path / "a.tgz", ("x", b"1"), ("x", b"2")), folder)


def test_a_file_below_another_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(StoreError, match="cannot unpack"):
        unpack(packed(tmp_path / "a.tgz", ("a", b"one"), ("a/b", b"two")), tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_a_cut_archive_leaves_nothing(tmp_path: Path) -> None:
    import random

    folder = tmp_path / "out"
    folder.mkdir()
    path = packed(tmp_path / "a.tgz", ("x", random.Random(1).randbytes(50_000)), ("y", b"2"))
    path.write_bytes(path.read_bytes()[:30_000])
    with pytest.raises(StoreError, match="cut off"):
        unpack(path, folder)
    assert list(folder.iterdir()) == []
