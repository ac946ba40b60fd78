"""Inputs of a model: files known by their hash, archives by number, random numbers like the default's, and nothing else by mistake."""

from __future__ import annotations

import functools
import hashlib
import http.server
import io
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from steelyard.errors import Unsupported, UsageError
from steelyard.model import addresses
from steelyard.workloads.models import _inputs, inference


class Echo:
    """A model that answers with what it got."""

    def generate_default_inputs(self) -> Any:
        return np.arange(12, dtype=np.int32).reshape(3, 4), np.full((2,), 5.0, np.float32), np.array([True, False])

    def preprocess(self, raw: Any) -> Any:
        return raw


def kept(folder: Path, name: str, content: bytes) -> str:
    (folder / name).write_bytes(content)
    return f"{folder / name}#sha256={hashlib.sha256(content).hexdigest()}"


def saved(array: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def test_files_are_read_by_their_endings(tmp_path: Path) -> None:
    zipped = io.BytesIO()
    np.savez(zipped, **{f"x{number}": np.array(number) for number in (10, 9, 1)})
    sources = {"a.txt": b"text", "a.json": b'{"a": [1]}', "a.npy": saved(np.eye(2)), "a.npz": zipped.getvalue(), "a.jpeg": b"\xff\xd8"}
    read = {name: _inputs.preprocessed(Echo(), kept(tmp_path, name, content)) for name, content in sources.items()}
    assert (read["a.txt"], read["a.json"], read["a.jpeg"]) == (("text",), ({"a": [1]},), (b"\xff\xd8",))
    assert read["a.npy"][0].tolist() == np.eye(2).tolist()
    assert [int(item) for item in read["a.npz"]] == [1, 9, 10]


def test_twelve_arguments_come_back_in_their_order_whatever_the_archives_is(tmp_path: Path) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for number in (2, 9, 0, 6, 3, 11, 10, 1, 8, 7, 5, 4):
            _inputs._add(archive, f"folder/input_{number}.npy", saved(np.array(number)))
    args = _inputs.preprocessed(Echo(), kept(tmp_path, "inputs_npy.tgz", packed.getvalue()))
    assert [int(item) for item in args] == list(range(12))


def test_what_was_kept_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(addresses.KEPT, str(tmp_path))
    _inputs.keep("MODEL", [("fp32", np.float32([1.5])), ("int64", np.arange(3))])
    content = (tmp_path / "MODEL" / "inputs_npy.tgz").read_bytes()
    first, second = _inputs.preprocessed(Echo(), kept(tmp_path, "again.tgz", content))
    assert (first.tolist(), first.dtype, second.tolist()) == ([1.5], np.float32, [0, 1, 2])


def test_random_numbers_are_like_the_default_and_the_same_each_time() -> None:
    (one, floats, truths), (again, *_), (other, *_) = (_inputs.preprocessed(Echo(), f"random:{seed}") for seed in (7, 7, 8))
    assert (one.shape, one.dtype, floats.dtype, truths.dtype) == ((3, 4), np.int32, np.float32, np.bool_)
    assert (one.min() >= 0, one.max() <= 11, (one == again).all(), (one == other).all()) == (True, True, True, False)


def test_wrong_sources_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(addresses.OFFLINE, "1")
    monkeypatch.setenv(addresses.CACHE, str(tmp_path / "cache"))
    good = kept(tmp_path, "a.txt", b"text")
    half = io.BytesIO()
    with tarfile.open(fileobj=half, mode="w:gz") as archive:
        _inputs._add(archive, "input_1.npy", saved(np.array(1)))
    wrong = {
        str(tmp_path / "a.txt"): "has no hash",
        good.replace("a.txt", "b.txt"): "no input file",
        f"{good.partition('#')[0]}#sha256={'0' * 64}": "is not the expected file",
        kept(tmp_path, "c.npy", b"no array"): "cannot be read",
        kept(tmp_path, "d.npy", saved(np.array([object()], object))): "cannot be read",
        kept(tmp_path, "e.tgz", half.getvalue()): "incomplete",
        kept(tmp_path, "f.tgz", b"no archive"): "cannot be read",
    }
    for source, told in wrong.items():
        with pytest.raises(UsageError, match=told):
            _inputs.preprocessed(Echo(), source)
    with pytest.raises(Unsupported, match="is not here"):
        _inputs.preprocessed(Echo(), f"https://example.com/a.txt#sha256={'0' * 64}")


def test_a_download_is_kept_by_its_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(addresses.CACHE, str(tmp_path))
    monkeypatch.setenv(addresses.OFFLINE, "1")
    digest = hashlib.sha256(b"kept").hexdigest()
    (tmp_path / digest).write_bytes(b"kept")
    assert _inputs.preprocessed(Echo(), f"https://example.com/a.txt#sha256={digest}") == ("kept",)


def test_parameters_from_a_command_line_are_refused_with_what_to_do() -> None:
    with pytest.raises(UsageError, match="experiment file") as error:
        inference.created("a.module", '{"batch_size": 1}', "MINE")
    assert "the parameters of MINE must be a table" in str(error.value)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A folder behind an http address of this machine, until the test ends."""
    folder = tmp_path / "served"
    folder.mkdir()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", folder
        server.shutdown()
        thread.join()


class Quiet(http.server.SimpleHTTPRequestHandler):
    """A folder's files, without a line for each."""

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


def test_an_input_is_downloaded_once_and_only_as_what_its_hash_says(
    served: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, folder = served
    cache = tmp_path / "cache"
    monkeypatch.setenv(addresses.CACHE, str(cache))
    (folder / "a.txt").write_bytes(b"said")
    digest = hashlib.sha256(b"said").hexdigest()
    assert _inputs.preprocessed(Echo(), addresses.of_file(f"{address}/a.txt", digest)) == ("said",)
    assert [path.name for path in cache.iterdir()] == [digest]
    (folder / "a.txt").write_bytes(b"something else")
    assert _inputs.preprocessed(Echo(), addresses.of_file(f"{address}/a.txt", digest)) == ("said",)
    (cache / digest).unlink()
    with pytest.raises(UsageError, match="is not the expected file"):
        _inputs.preprocessed(Echo(), addresses.of_file(f"{address}/a.txt", digest))
    assert not list(cache.iterdir()), "what has another hash is not kept"
    with pytest.raises(Unsupported, match="404"):
        _inputs.preprocessed(Echo(), addresses.of_file(f"{address}/nowhere.txt", digest))
