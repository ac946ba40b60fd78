"""A real Slurm with several virtual nodes on this machine, on loopback alone, in a folder of its own.

python -m scripts.farm slurm --nodes 3
"""

from __future__ import annotations

import contextlib
import getpass
import os
import signal
import stat
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from scripts.farm.daemons import Daemons, free_ports, line_of, marked, parent_of, program, until

CONFIG = """ClusterName=test
SlurmctldHost=localhost(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/run/munge.socket
CredType=cred/munge
SlurmctldPort={port}
SlurmctldPidFile={folder}/run/slurmctld.pid
SlurmdPidFile={folder}/run/slurmd-%n.pid
SlurmctldLogFile={folder}/log/slurmctld.log
SlurmdLogFile={folder}/log/slurmd-%n.log
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,sched_interval=1,bf_interval=1
SlurmdParameters=config_overrides
ReturnToService=2
SlurmdTimeout=10
SlurmctldTimeout=10
InactiveLimit=0
MinJobAge=300
KillWait=2
MaxArraySize=20001
MaxJobCount=50000
JobRequeue=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
"""
PARTITIONS = "PartitionName=main Nodes=ALL Default=YES State=UP PriorityTier=1\nPartitionName=urgent Nodes=ALL State=UP PriorityTier=10\n"


@dataclass
class SlurmCluster:
    """A controller and its nodes n1, n2, …; kind1, kind2, … are their features, and each has one GPU of no substance where we are root."""

    folder: Path
    ports: Sequence[int]
    daemons: Daemons

    @classmethod
    @contextlib.contextmanager
    def running(cls, folder: Path, nodes: int = 3, cpus: int = 2) -> Iterator[SlurmCluster]:
        """A cluster whose nodes are idle; everything in it is gone afterwards."""
        cluster = cls(folder.resolve(), free_ports(nodes + 1), Daemons(folder.resolve() / "log"))
        try:
            cluster._write(cpus)
            cluster._start()
            yield cluster
        finally:
            cluster.stop()

    @property
    def config(self) -> Path:
        """What SLURM_CONF must name for Slurm's commands to find this cluster."""
        return self.folder / "slurm.conf"

    @property
    def names(self) -> list[str]:
        """The nodes."""
        return [f"n{number}" for number in range(1, len(self.ports))]

    @property
    def environment(self) -> dict[str, str]:
        """What a program must have that submits jobs to this cluster, so that they are found and swept when it ends."""
        return self.daemons.environment | {"SLURM_CONF": str(self.config)}

    def call(self, *words: str, check: bool = True) -> str:
        """What one of Slurm's commands says."""
        done = subprocess.run([program(words[0]), *words[1:]], env=self.environment, capture_output=True, text=True, timeout=60)
        if check and done.returncode:
            raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")
        return done.stdout.strip()

    def start_node(self, name: str) -> None:
        """A node's daemon, new or again."""
        words = [program("slurmd"), "-D", "-N", name, "-f", str(self.config)]
        self.daemons.start(f"slurmd-{name}", words, {"SLURM_CONF": str(self.config)})

    def lose_node(self, name: str) -> None:
        """As if a machine lost its power: its daemon, the steps of its jobs and all that they started are killed."""
        self.daemons.kill(f"slurmd-{name}")
        for pid in self.processes(name):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def processes(self, name: str = "") -> list[int]:
        """What jobs run, on one node or on all: first the steps' keepers, whose titles hide their environment, then all below them."""
        known = {pid: (parent_of(pid), _node(pid)) for pid in marked(self.daemons.mark)}
        found = {pid for pid, (_, node) in known.items() if node and name in ("", node)}
        keepers = {parent for pid in found if line_of(parent := known[pid][0]).startswith(b"slurmstepd")}
        while below := {pid for pid, (parent, _) in known.items() if parent in found} - found:
            found |= below
        return [*sorted(keepers), *sorted(found - {process.pid for process in self.daemons.running.values()})]

    def idle(self) -> bool:
        """Whether every node waits for work."""
        states = self.call("sinfo", "-h", "-N", "-p", "main", "-o", "%t", check=False).split()
        return states == ["idle"] * len(self.names)

    def stop(self) -> None:
        """End jobs, nodes and controller; nothing is left."""
        with contextlib.suppress(Exception):
            self.call("scancel", "--signal=KILL", "--full", *(f"--user={getpass.getuser()}",), check=False)
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        self.daemons.stop()

    def _write(self, cpus: int) -> None:
        for name in ("run", "log", "state", *(f"spool/{node}" for node in self.names)):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        gpus = self._devices()
        lines = [CONFIG.format(user=getpass.getuser(), folder=self.folder, port=self.ports[0])]
        lines += ["GresTypes=gpu\n"] if gpus else []
        for number, node in enumerate(self.names, 1):
            gres = " Gres=gpu:1" if gpus else ""
            lines.append(
                f"NodeName={node} NodeHostname=localhost NodeAddr=127.0.0.1 Port={self.ports[number]} CPUs={cpus} RealMemory=4000{gres} "
                f"Feature=kind{number} State=UNKNOWN\n"
            )
        self.config.write_text("".join((*lines, PARTITIONS)))
        if gpus:
            (self.folder / "gres.conf").write_text(f"NodeName=n[1-{len(self.names)}] Name=gpu File={self.folder}/run/gpu0\n")
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)

    def _devices(self) -> bool:
        """A node of /dev that stands for a GPU, where it may be made: Slurm hands out files, and CUDA_VISIBLE_DEVICES with them."""
        try:
            os.mknod(self.folder / "run" / "gpu0", stat.S_IFCHR | 0o666, os.makedev(1, 3))
        except OSError:
            return False
        return True

    def _start(self) -> None:
        run, log = self.folder / "run", self.folder / "log"
        socket = run / "munge.socket"
        self.daemons.start(
            "munged",
            [program("munged"), "-F", f"--key-file={self.folder}/munge.key", f"--socket={socket}", f"--pid-file={run}/munged.pid",
             f"--log-file={log}/munged-own.log", f"--seed-file={run}/munge.seed", "--force"],
        )  # fmt: skip
        until(socket.exists, "munged has no socket", trouble=lambda: self.daemons.log("munged"))
        self.start_controller()
        for node in self.names:
            self.start_node(node)
        until(
            self.idle, "the nodes are not idle", trouble=lambda: self.call("sinfo", "-N", "-l", check=False) + self.daemons.log("slurmctld")
        )

    def start_controller(self, fresh: bool = True) -> None:
        """Slurm's controller, new or again."""
        words = [program("slurmctld"), "-D", *(["-c"] if fresh else []), "-f", str(self.config)]
        self.daemons.start("slurmctld", words, {"SLURM_CONF": str(self.config)})


def _node(pid: int) -> str:
    """The node of a job's process, as Slurm tells it."""
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return ""
    return next((item.partition(b"=")[2].decode() for item in variables if item.startswith(b"SLURMD_NODENAME=")), "")
