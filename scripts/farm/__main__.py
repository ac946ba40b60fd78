"""A test cluster until it is interrupted: Slurm, Ray or ssh hosts on this machine, with the words that use it."""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import tempfile
from pathlib import Path

from scripts.farm.daemons import Missing, stopping_on_term
from scripts.farm.ray import RayCluster, interpreter
from scripts.farm.slurm import SlurmCluster
from scripts.farm.sshd import SshHosts


def main() -> int:
    """Start one, print what uses it, and wait."""
    parser = argparse.ArgumentParser(prog="python -m scripts.farm", description=__doc__)
    parser.add_argument("kind", choices=("slurm", "ray", "ssh"))
    parser.add_argument("--nodes", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="farm") as scratch, stopping_on_term(), contextlib.suppress(KeyboardInterrupt):
        folder = Path(scratch)
        try:
            if options.kind == "slurm":
                with SlurmCluster.running(folder, options.nodes) as slurm:
                    wait(f"export SLURM_CONF={slurm.config}", "steelyard run … --on slurm:main")
            elif options.kind == "ray":
                with RayCluster.running(folder, options.nodes) as ray:
                    wait(f"export STEELYARD_RAY_PYTHON={interpreter()}", f"steelyard run … --on ray:{ray.address}")
            else:
                with SshHosts.running(folder, options.nodes) as ssh:
                    wait(f"export STEELYARD_SSH='{ssh.environment['STEELYARD_SSH']}'", f"steelyard run … --on ssh:{','.join(ssh.names)}")
        except Missing as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
    return 0


def wait(*lines: str) -> None:
    """Say how the cluster is used, until somebody interrupts."""
    print(*lines, "# Ctrl-C ends it", sep="\n", flush=True)
    while True:
        signal.pause()


if __name__ == "__main__":
    sys.exit(main())
