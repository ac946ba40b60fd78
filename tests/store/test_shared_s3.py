"""A shared store by S3 while clients are killed and the network is lost: moto's server behind a door that can be shut at any moment."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from steelyard.errors import StoreError
from steelyard.store import shared
from steelyard.store.runs import Header, Run
from steelyard.store.shared import SharedStore
from tests.artifacts.test_remote import bucket
from tests.store.made import arrays, filled, python, record

pytestmark = pytest.mark.filterwarnings("ignore")
LARGE = 200_000
SEND = "import sys, pathlib; from steelyard.store.shared import *; print(SharedStore(sys.argv[1], pathlib.Path(sys.argv[2])).send())"
REQUEST = re.compile(rb"(PUT|POST) (/\S*) HTTP/1\.1\r\n")


class Door:
    """A way to a server that counts what is sent through it, and does something once it was so much."""

    def __init__(self, target: tuple[str, int]) -> None:
        self.target, self.listener = target, socket.create_server(("127.0.0.1", 0))
        self.passed, self.limit, self.act = 0, -1, lambda: None
        self.shut = False
        self.mute = b""
        """Answers to requests with this in their path are thrown away."""
        self.written: list[str] = []
        self.open: list[socket.socket] = []
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.listener.getsockname()[1]}"

    def after(self, limit: int, act: Callable[[], None]) -> None:
        """Do something once so many bytes more have gone in."""
        self.limit, self.act = self.passed + limit, act

    def close(self) -> None:
        """The network is lost: what is open is cut, and what comes is refused."""
        self.shut = True
        for each in self.open:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _serve(self) -> None:
        while True:
            client, _ = self.listener.accept()
            if self.shut:
                client.close()
                continue
            server = socket.create_connection(self.target)
            self.open += [client, server]
            muted = threading.Event()
            threading.Thread(target=self._inward, args=(client, server, muted), daemon=True).start()
            threading.Thread(target=self._outward, args=(server, client, muted), daemon=True).start()

    def _inward(self, client: socket.socket, server: socket.socket, muted: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(16384):
                for _, path in REQUEST.findall(data):
                    self.written.append(path.decode())
                    if self.mute and self.mute in path:
                        muted.set()
                self.passed += len(data)
                if self.limit >= 0 and self.passed >= self.limit:
                    self.limit = -1
                    self.act()
                if self.shut:
                    return
                server.sendall(data)
        with contextlib.suppress(OSError):
            server.shutdown(socket.SHUT_WR)

    def _outward(self, server: socket.socket, client: socket.socket, muted: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(16384):
                if muted.is_set():
                    self.mute = b""
                    break
                client.sendall(data)
        for each in (client, server):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def door(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[tuple[Door, str]]:
    """The door, and the store's address behind it."""
    import s3fs

    s3fs.S3FileSystem.clear_instance_cache()
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "2")
    with bucket(monkeypatch) as place:
        server = urlsplit(os.environ["AWS_ENDPOINT_URL"])
        found = Door((server.hostname or "", server.port or 0))
        monkeypatch.setenv("AWS_ENDPOINT_URL", found.url)
        yield found, f"{place}/{tmp_path.name}"
        found.close()
        found.listener.close()
    s3fs.S3FileSystem.clear_instance_cache()


def large(store: SharedStore, count: int = 2) -> Run:
    """A run with samples of a few MB."""
    with store.create(Header(fingerprint="f", experiment="made")) as writer:
        for number in range(1, count + 1):
            writer.append(record(number), arrays(number, 0.5))
        writer.append(record(count + 1), arrays(*range(LARGE)))
        writer.seal()
    return store.open(writer.path)


def seen(tmp_path: Path, name: str, url: str) -> list[str]:
    """What somebody else sees: ids of runs, each read whole."""
    store = SharedStore(url, tmp_path / name)
    found = [info.id for info in store.runs()]
    for id in found:
        run = store.open(store.at_hand(store.open(id).path))
        assert len(run.records) == 3 and not run.warnings
    return found


def kill_during(tmp_path: Path, door: Door, url: str, share: float) -> None:
    """The sender is killed when a share of all that it sends has gone out; whoever looks sees the run whole or not at all."""
    ann = SharedStore(url, tmp_path / "ann")
    run = large(ann)
    size = sum(path.stat().st_size for path in run.path.rglob("*") if path.is_file())
    process = python(SEND, url, ann.root, wait=False)
    door.after(int(share * size), lambda: os.kill(process.pid, signal.SIGKILL))
    process.communicate(timeout=60)
    assert process.returncode in (-signal.SIGKILL, 0)
    assert seen(tmp_path, "bob", url) in ([], [run.id])
    python(SEND, url, ann.root)
    assert seen(tmp_path, "cat", url) == [run.id]
    assert not list(SharedStore(url, ann.root).waiting())


def test_a_sender_that_is_killed_in_the_middle_of_an_upload_loses_nothing(tmp_path: Path, door: tuple[Door, str]) -> None:
    kill_during(tmp_path, *door, 0.5)


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(10))
def test_senders_killed_at_random_moments_lose_nothing(seed: int, tmp_path: Path, door: tuple[Door, str]) -> None:
    kill_during(tmp_path, *door, 1.1 * random.Random(seed).random())


def test_a_network_that_is_lost_during_an_upload_costs_nothing_but_time(tmp_path: Path, door: tuple[Door, str]) -> None:
    way, url = door
    ann = SharedStore(url, tmp_path / "ann")
    assert ann.runs() == []
    run = large(ann)
    way.after(LARGE, way.close)
    with pytest.raises(StoreError, match="cannot send run"):
        ann.send()
    assert [path.name for path in ann.waiting()] == [run.path.name]
    way.shut = False
    assert seen(tmp_path, "bob", url) == []
    assert ann.send() == [run.id] and seen(tmp_path, "cat", url) == [run.id]


def test_a_server_that_takes_connections_and_says_nothing_is_not_waited_for_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S3's client asks for leave to send, and waits for the answer without an end."""
    import s3fs

    monkeypatch.setattr(shared, "PATIENCE", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        variables = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{mute.getsockname()[1]}",
            "AWS_ACCESS_KEY_ID": "a",
            "AWS_SECRET_ACCESS_KEY": "b",
        }
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        s3fs.S3FileSystem.clear_instance_cache()
        ann = SharedStore("s3://bucket/runs", tmp_path / "ann")
        run = filled(ann)
        with pytest.raises(StoreError, match="cannot send run"):
            ann.send()
        assert [path.name for path in ann.waiting()] == [run.path.name]
    s3fs.S3FileSystem.clear_instance_cache()


def test_a_seal_whose_answer_is_lost_is_there_once(tmp_path: Path, door: tuple[Door, str]) -> None:
    """The server made the object and the client never heard: asking again finds its own."""
    way, url = door
    ann = SharedStore(url, tmp_path / "ann")
    run = large(ann)
    way.mute = b"/seals/"
    with contextlib.suppress(StoreError):
        ann.send()
    assert not way.mute
    ann.send()
    assert seen(tmp_path, "bob", url) == [run.id] and not list(ann.waiting())


@pytest.mark.deep
def test_the_seal_is_the_last_that_is_written_and_two_writers_have_both_runs(tmp_path: Path, door: tuple[Door, str]) -> None:
    way, url = door
    stores = [SharedStore(url, tmp_path / name) for name in ("ann", "bob")]
    runs = [large(store) for store in stores]
    both = [python(SEND, url, store.root, wait=False) for store in stores]
    assert [process.communicate(timeout=60)[0].strip() for process in both] == [f"['{run.id}']" for run in runs]
    assert sorted(seen(tmp_path, "cat", url)) == sorted(run.id for run in runs)
    for run in runs:
        mine = [path for path in way.written if run.path.name in path]
        assert "/seals/" in mine[-1] and not any("/seals/" in path for path in mine[:-1])
        assert len(mine) >= 3
