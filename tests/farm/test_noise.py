"""A host that is made noisy by a busy loop is set aside, with the reason, and its cases go to the quiet one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.engine.drive import steelyard
from tests.engine.farm.test_runs import events_of, records_of
from tests.farm.places import SYSTEM_PYTHON, SshPlace, nothing_left

NOISE = "while True: pass"
PINNED = """#!/bin/sh
case "$STEELYARD_FARM_HOST" in
box1) exec taskset -c {noisy} {python} "$@" ;;
*) exec taskset -c {quiet} {first} {python} "$@" ;;
esac
"""
LOOPS, ATTEMPTS = 4, 4


@contextmanager
def busy(cpu: int) -> Iterator[None]:
    """Loops that share a CPU with whatever else is there."""
    loops = [subprocess.Popen(["taskset", "-c", str(cpu), sys.executable, "-c", NOISE]) for _ in range(LOOPS)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


@pytest.fixture
def pinned(ssh: SshPlace, tmp_path: Path) -> tuple[str, int]:
    """A profile whose hosts have a CPU each, and the CPU of the one that gets noisy; where we may, the other comes before all programs."""
    noisy, quiet = sorted(os.sched_getaffinity(0))[:2]
    program = tmp_path / "python"
    python = SYSTEM_PYTHON if os.access(SYSTEM_PYTHON, os.X_OK) else sys.executable
    first = "chrt --rr 1" if os.getuid() == 0 else ""
    program.write_text(PINNED.format(noisy=noisy, quiet=quiet, first=first, python=python))
    program.chmod(0o755)
    names = ", ".join(f'"{name}"' for name in ssh.hosts.names)
    (tmp_path / "pinned.toml").write_text(f'hosts = [{names}]\npython = "{program}"\n')
    return f"ssh:{tmp_path}/pinned.toml", noisy


def test_a_noisy_host_is_set_aside_and_its_cases_go_elsewhere(ssh: SshPlace, pinned: tuple[str, int], tmp_path: Path) -> None:
    """Other programs of this machine may disturb the quiet host as well, which is no proof of anything: then it is tried again."""
    on, cpu = pinned
    words = ["op/copy", "-B", "numpy", "-a", "n=[1000,2000]", "--budget", "15s", "--precision", "0.0001%", "--on", on]
    for number in range(ATTEMPTS):
        folder = tmp_path / str(number)
        folder.mkdir()
        with busy(cpu):
            done = steelyard("run", *words, cwd=folder, env=ssh.environment, within=300)
        aside = {event.text("station"): event.text("reason") for event in events_of(folder) if event.kind == "aside"}
        assert "other programs had its CPU" in aside["ssh-1"]
        assert "set aside" in done.stderr and "its cases go elsewhere" in done.stderr
        assert nothing_left(ssh.mark) == []
        if "ssh-2" not in aside:
            assert {record["effective"]["host"]["station"] for record in records_of(folder)} == {"ssh-2"}
            return
    pytest.fail(f"the quiet host was disturbed {ATTEMPTS} times: {aside['ssh-2']}")
