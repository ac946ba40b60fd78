"""A real Ray cluster of several nodes on this machine, in an environment that has Ray.

python -m scripts.farm ray --nodes 3
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from scripts.farm.daemons import Daemons, Missing

ROOT = Path(__file__).resolve().parents[2]
START = 120.0


def interpreter() -> str:
    """Of Ray's environment: the one that install.sh makes, or that STEELYARD_RAY_PYTHON names."""
    named = os.environ.get("STEELYARD_RAY_PYTHON") or str(ROOT / ".farm" / "ray" / "bin" / "python")
    if not os.access(named, os.X_OK):
        raise Missing(f"there is no {named}: scripts/farm/install.sh makes an environment with Ray")
    return named


@dataclass
class RayCluster:
    """A head without CPUs and its nodes; every second one has the resource kind0, the others kind1, and each the label box=b0, b1, …"""

    daemons: Daemons
    process: subprocess.Popen[bytes]
    address: str = ""
    raylets: tuple[int, ...] = ()

    @classmethod
    @contextlib.contextmanager
    def running(cls, folder: Path, nodes: int = 3, cpus: int = 2) -> Iterator[RayCluster]:
        """A cluster whose nodes are there; everything in it is gone afterwards."""
        daemons = Daemons(folder.resolve())
        with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as short:
            try:
                words = [interpreter(), "-P", str(Path(__file__).with_name("ray_nodes.py")), "--nodes", str(nodes), "--cpus", str(cpus)]
                more = {"STEELYARD_LOCKS": str(folder.resolve() / "locks")}
                process = daemons.start("ray", [*words, "--folder", short], more, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
                cluster = cls(daemons, process)
                cluster._hear()
                yield cluster
            finally:
                daemons_stop(daemons)

    @property
    def environment(self) -> dict[str, str]:
        """What a program must have that uses this cluster, so that what it starts is swept when it ends."""
        return self.daemons.environment | {"STEELYARD_RAY_PYTHON": interpreter(), "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}

    def ask(self, *words: object) -> None:
        """Have the cluster lose a node (`lose`, NUMBER) or get one more (`add`)."""
        assert self.process.stdin
        self.process.stdin.write(" ".join(map(str, words)).encode() + b"\n")
        self.process.stdin.flush()
        self._hear()

    def kill_raylet(self, number: int) -> None:
        """As if a node lost its power, as far as the rest of the cluster sees it."""
        os.kill(self.raylets[number], signal.SIGKILL)

    def _hear(self) -> None:
        assert self.process.stdout
        line = b""
        while not line.startswith(b"{"):
            if not select.select([self.process.stdout], [], [], START)[0] or not (line := self.process.stdout.readline()):
                raise RuntimeError(f"the Ray cluster does not answer\n{self.daemons.log('ray')}")
        said = json.loads(line)
        self.address, self.raylets = said.get("address", self.address), tuple(said["raylets"])


def daemons_stop(daemons: Daemons) -> None:
    """Let the cluster end itself, then sweep."""
    process = daemons.running.get("ray")
    if process and process.stdin:
        with contextlib.suppress(OSError):
            process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(20)
        if process.stdout:
            process.stdout.close()
    daemons.stop()
