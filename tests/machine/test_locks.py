"""Locks between real processes: they wait, say for whom, let go on death, and give up on Ctrl-C."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from steelyard.errors import SteelyardError
from steelyard.machine import locks

HOLDER = """
import sys
from steelyard.machine import locks
with locks.hold(sys.argv[2:], sys.argv[1], lambda text: print("waits for", text, flush=True)):
    print("holds", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(locks.VARIABLE, str(tmp_path / "locks"))
    return tmp_path / "locks"


class Holders:
    """Processes that hold locks until told to end."""

    def __init__(self) -> None:
        self.all: list[subprocess.Popen[str]] = []

    def start(self, owner: str, *names: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, owner, *names], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.all.append(process)
        return process


@pytest.fixture
def holders() -> Iterator[Holders]:
    started = Holders()
    yield started
    for process in started.all:
        process.kill()
        process.communicate()


def says(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    return process.stdout.readline().strip()


def test_a_lock_is_signed_while_held_and_blank_afterwards(folder: Path) -> None:
    with locks.hold(["cpu1", "cpu0"], "run k3f9, pid 123", pytest.fail):
        assert (folder / "cpu0").read_text() == (folder / "cpu1").read_text() == "run k3f9, pid 123"
        assert locks.held() == {"cpu0": "run k3f9, pid 123", "cpu1": "run k3f9, pid 123"}
    assert (folder / "cpu0").read_text() == ""
    assert locks.held() == {}


def test_every_user_can_use_the_folder_whatever_the_umask(folder: Path) -> None:
    before = os.umask(0o077)
    try:
        with locks.hold(["gpu0"], "me", pytest.fail):
            pass
    finally:
        os.umask(before)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o1777
    assert stat.S_IMODE((folder / "gpu0").stat().st_mode) == 0o666


def test_the_second_run_waits_and_says_for_whom(holders: Holders) -> None:
    first = holders.start("run a", "cpu0", "cpu1")
    assert says(first) == "holds"
    second = holders.start("run b", "cpu1", "cpu0")
    assert says(second) == "waits for run a"
    first.communicate("")
    assert says(second) == "holds"
    assert locks.held() == {"cpu0": "run b", "cpu1": "run b"}


def test_runs_on_other_cpus_do_not_wait(holders: Holders) -> None:
    assert says(holders.start("run a", "cpu0")) == "holds"
    assert says(holders.start("run b", "cpu1")) == "holds"


def test_a_killed_holder_lets_go(holders: Holders) -> None:
    first = holders.start("run a", "cpu0")
    assert says(first) == "holds"
    second = holders.start("run b", "cpu0")
    assert says(second) == "waits for run a"
    first.send_signal(signal.SIGKILL)
    assert says(second) == "holds"


def test_ctrl_c_ends_the_wait_and_leaves_no_lock(holders: Holders) -> None:
    first = holders.start("run a", "cpu1")
    assert says(first) == "holds"
    second = holders.start("run b", "cpu0", "cpu1")
    assert says(second) == "waits for run a"
    assert locks.held() == {"cpu0": "run b", "cpu1": "run a"}
    second.send_signal(signal.SIGINT)
    assert "KeyboardInterrupt" in second.communicate()[1]
    assert locks.held() == {"cpu1": "run a"}


def test_a_lock_whose_file_was_cleaned_away_is_taken_anew(folder: Path, holders: Holders) -> None:
    first = holders.start("run a", "cpu0")
    assert says(first) == "holds"
    second = holders.start("run b", "cpu0")
    assert says(second) == "waits for run a"
    (folder / "cpu0").unlink()
    first.communicate("")
    assert says(second) == "holds"
    assert (folder / "cpu0").read_text() == "run b"


def test_the_owner_of_a_lock_cannot_write_to_our_terminal(folder: Path) -> None:
    with locks.hold(["cpu0"], "evil\x1b[2J\nrun", pytest.fail):
        assert locks.held() == {"cpu0": "evil?[2J?run"}


def test_a_planted_link_is_refused_with_a_remedy(folder: Path, tmp_path: Path) -> None:
    folder.mkdir()
    (tmp_path / "victim").write_text("precious")
    (folder / "cpu0").symlink_to(tmp_path / "victim")
    with pytest.raises(SteelyardError, match="rm"), locks.hold(["cpu0"], "me", pytest.fail):
        pass
    assert (tmp_path / "victim").read_text() == "precious"


@pytest.mark.parametrize("name", ["../cpu0", "", "a/b", ".cpu"])
def test_odd_names_never_become_paths(name: str) -> None:
    with pytest.raises(SteelyardError, match="not a lock name"), locks.hold([name], "me", pytest.fail):
        pass


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize(("path", "mode", "remedy"), [("cpu0", 0o600, "sudo chmod 666"), (".", 0o755, "sudo chmod 1777")])
def test_a_lock_of_another_user_is_a_clear_error(monkeypatch: pytest.MonkeyPatch, path: str, mode: int, remedy: str) -> None:
    with tempfile.TemporaryDirectory() as open_to_all:
        folder = Path(open_to_all)
        monkeypatch.setenv(locks.VARIABLE, open_to_all)
        folder.chmod(0o1777)
        if path != ".":
            (folder / path).touch()
        (folder / path).chmod(mode)
        os.seteuid(65534)
        try:
            with pytest.raises(SteelyardError) as caught, locks.hold(["cpu0"], "me", pytest.fail):
                pass
        finally:
            os.seteuid(0)
    assert remedy in caught.value.do and locks.VARIABLE in caught.value.do


def test_a_folder_that_cannot_be_made_is_a_clear_error(folder: Path) -> None:
    folder.write_text("in the way")
    with pytest.raises(SteelyardError, match="not a folder"), locks.hold(["cpu0"], "me", pytest.fail):
        pass


def test_one_name_per_cpu_of_this_process() -> None:
    assert locks.cpu_names() == [f"cpu{cpu}" for cpu in sorted(os.sched_getaffinity(0))]
