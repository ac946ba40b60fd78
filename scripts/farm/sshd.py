"""An sshd on loopback for this user, with keys of its own and several names for the one machine.

python -m scripts.farm ssh --hosts 3
"""

from __future__ import annotations

import contextlib
import getpass
import os
import signal
import socket
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from scripts.farm.daemons import Daemons, below, free_ports, program, until

SERVER = """ListenAddress 127.0.0.1
Port {port}
HostKey {folder}/host_key
PidFile {folder}/sshd.pid
AuthorizedKeysFile {folder}/authorized_keys
StrictModes no
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
AllowUsers {user}
AcceptEnv STEELYARD_*
"""
CLIENT = """Host {name}
  HostName 127.0.0.1
  Port {port}
  User {user}
  IdentityFile {folder}/key
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/known_hosts
  SetEnv STEELYARD_LOCKS={folder}/locks/{name} STEELYARD_CACHE={folder}/cache STEELYARD_FARM_CLUSTER={mark} STEELYARD_FARM_HOST={name}
"""


@dataclass
class SshHosts:
    """Names that `ssh -F config NAME` reaches; each has locks of its own, as machines have."""

    folder: Path
    names: Sequence[str]
    port: int
    daemons: Daemons

    @classmethod
    @contextlib.contextmanager
    def running(cls, folder: Path, hosts: int = 3) -> Iterator[SshHosts]:
        """An sshd that answers; it and its sessions are gone afterwards."""
        folder = folder.resolve()
        found = cls(folder, [f"box{number}" for number in range(1, hosts + 1)], free_ports(1)[0], Daemons(folder / "log"))
        try:
            found._start()
            yield found
        finally:
            found.stop()

    @property
    def config(self) -> Path:
        """The client's configuration."""
        return self.folder / "config"

    @property
    def environment(self) -> dict[str, str]:
        """What a program must have that uses these hosts."""
        return self.daemons.environment | {"STEELYARD_SSH": f"ssh -F {self.config}"}

    def call(self, name: str, command: str) -> str:
        """What a command on a host says."""
        words = [program("ssh"), "-F", str(self.config), "-o", "BatchMode=yes", name, command]
        return subprocess.run(words, capture_output=True, text=True, timeout=60, check=True).stdout

    def sessions(self) -> list[int]:
        """The processes that serve connections now."""
        return below(self.daemons.running["sshd"].pid, b"sshd")

    def cut(self) -> None:
        """As if the network went away: every connection is ended, and what ran there is not told."""
        for pid in self.sessions():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def stop(self) -> None:
        """End it and its sessions."""
        if "sshd" in self.daemons.running:
            self.cut()
        self.daemons.stop()

    def _start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        for name in ("host_key", "key"):
            (self.folder / name).unlink(missing_ok=True)
            subprocess.run([program("ssh-keygen"), "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / name)], check=True)
        (self.folder / "authorized_keys").write_text((self.folder / "key.pub").read_text())
        user = getpass.getuser()
        (self.folder / "sshd_config").write_text(SERVER.format(port=self.port, folder=self.folder, user=user))
        key = " ".join((self.folder / "host_key.pub").read_text().split()[:2])
        (self.folder / "known_hosts").write_text(f"[127.0.0.1]:{self.port} {key}\n")
        facts = {"port": self.port, "user": user, "folder": self.folder, "mark": self.daemons.mark}
        self.config.write_text("".join(CLIENT.format(name=name, **facts) for name in self.names))
        if os.getuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        self.daemons.start("sshd", [program("sshd"), "-D", "-e", "-f", str(self.folder / "sshd_config")])
        until(self._listens, "sshd does not listen", trouble=lambda: self.daemons.log("sshd"))

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0
