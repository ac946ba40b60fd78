"""The three kinds of clusters as a test of launchers sees them: what `--on` says, what to set, how a node is lost, and what is left."""

from __future__ import annotations

import os
import random
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from scripts.farm.daemons import line_of, marked
from scripts.farm.ray import RayCluster
from scripts.farm.slurm import SlurmCluster
from scripts.farm.sshd import SshHosts

SYSTEM_PYTHON = "/usr/bin/python3"
"""A Python that has none of our packages, where there is one: the usual case on a host that ssh reaches."""


class FarmPlace(Protocol):
    """A cluster."""

    name: str

    @property
    def environment(self) -> dict[str, str]:
        """What the program must have that runs `--on` it."""

    def on(self, folder: Path) -> str:
        """The word for `--on`; a profile goes to the folder."""

    def lose_node(self, rng: random.Random) -> str:
        """A node loses its power, and is there again soon; which one it was."""

    @property
    def mark(self) -> str:
        """What everything of it has in its environment."""


@dataclass
class SlurmPlace:
    """Three virtual nodes of a Slurm."""

    cluster: SlurmCluster
    name: str = "slurm"

    @property
    def environment(self) -> dict[str, str]:
        return self.cluster.environment

    @property
    def mark(self) -> str:
        return self.cluster.daemons.mark

    def on(self, folder: Path) -> str:
        return "slurm:main:2"

    def lose_node(self, rng: random.Random) -> str:
        busy = [node for node in self.cluster.names if self.cluster.processes(node)] or self.cluster.names
        node = rng.choice(busy)
        self.cluster.lose_node(node)
        self.cluster.start_node(node)
        return node


@dataclass
class RayPlace:
    """Nodes of a Ray cluster; one that was lost is followed by a new one."""

    cluster: RayCluster
    name: str = "ray"

    @property
    def environment(self) -> dict[str, str]:
        return self.cluster.environment

    @property
    def mark(self) -> str:
        return self.cluster.daemons.mark

    def on(self, folder: Path) -> str:
        return f"ray:{self.cluster.address}"

    def lose_node(self, rng: random.Random) -> str:
        number = rng.choice([number for number, pid in enumerate(self.cluster.raylets) if pid])
        if rng.random() < 0.5:
            self.cluster.kill_raylet(number)
        self.cluster.ask("lose", number)
        self.cluster.ask("add")
        return f"node {number}"


@dataclass
class SshPlace:
    """Names of this machine that ssh reaches."""

    hosts: SshHosts
    name: str = "ssh"

    @property
    def environment(self) -> dict[str, str]:
        return self.hosts.environment

    @property
    def mark(self) -> str:
        return self.hosts.daemons.mark

    def on(self, folder: Path) -> str:
        if not os.access(SYSTEM_PYTHON, os.X_OK):
            return f"ssh:{','.join(self.hosts.names)}"
        profile = folder / "hosts.toml"
        names = ", ".join(f'"{name}"' for name in self.hosts.names)
        profile.write_text(f'hosts = [{names}]\npython = "{SYSTEM_PYTHON}"\n')
        return f"ssh:{profile}"

    def lose_node(self, rng: random.Random) -> str:
        self.hosts.cut()
        return "every connection"


def of_steelyard(mark: str) -> list[int]:
    """What a run has running in a cluster: its stations with their keepers and workers, and what launchers start."""
    ours = {pid: line_of(pid) for pid in marked(mark)}
    return [pid for pid, line in ours.items() if b"steelyard" in line and b"scripts/farm" not in line]


def workers(mark: str) -> list[int]:
    """The workers and nurseries of all stations."""
    return [pid for pid in of_steelyard(mark) if b"engine.worker" in line_of(pid) or b"engine.nursery" in line_of(pid)]


def nothing_left(mark: str, within: float = 90.0) -> list[bytes]:
    """What is still there after some time: stations of a killed conductor go by themselves, after a minute if they never met it."""
    deadline = time.monotonic() + within
    while (left := of_steelyard(mark)) and time.monotonic() < deadline:
        time.sleep(0.2)
    return [line_of(pid) for pid in left]


def kill(pids: list[int], rng: random.Random) -> bool:
    """Kill one of some processes; whether there was one."""
    if not pids:
        return False
    try:
        os.kill(rng.choice(pids), signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True
