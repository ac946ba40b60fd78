"""Whether a slowdown between two commits is found: run --vs-path, then gate, again and again, with real extra work and without.

A small repository has two commits. In one round the newer one makes a few more additions, in the other it says the same in other
words. Every round is what a user types: `steelyard run adds.py --vs-path ../base`, then `steelyard gate latest`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sheet import Goal, Sheet, Table, count, options
from steelyard.errors import PASS, REGRESSION

ADDS = 100
BENCH = '''
"""{words}"""

from steelyard import Task, workload


@workload("planted/adds", axes={{"n": [256]}})
def adds(n, be):
    """Additions in a row."""
    import torch

    x, y = be.randn(n), be.randn(n)
    z = torch.empty_like(x)

    def work():
        for _ in range({count}):
            torch.add(x, y, out=z)
        return z

    return Task(work)


@adds.on("numpy")
def _(n, be):
    import numpy as np

    x, y = be.randn(n), be.randn(n)
    z = np.empty_like(x)

    def work():
        for _ in range({count}):
            np.add(x, y, out=z)
        return z

    return Task(work)
'''


@dataclass(frozen=True)
class Round:
    """What one comparison of the two commits gave; times in seconds, the interval as ratios of head to base."""

    planted: bool
    code: int
    ratio: float
    low: float
    high: float
    was: float
    now: float
    commits: tuple[str, str]
    stopped_by: str
    looks: int
    wall: float

    @property
    def right(self) -> bool:
        """Found where it is, and nothing where it is not."""
        return self.code == (REGRESSION if self.planted else PASS)


def main() -> None:
    """Alternate rounds with and without the plant, and print what became of each."""
    parser = options(__doc__)
    parser.add_argument("--times", type=count, default=10, help="rounds of each kind (default 10)")
    parser.add_argument("--plant", type=count, default=4, help="additions more in 100 (default 4)")
    parser.add_argument("--backend", choices=("torch", "numpy"), default="torch" if find_spec("torch") else "numpy")
    parser.add_argument("--budget", default="normal", help="the budget of each comparison (default normal)")
    chosen = parser.parse_args()
    load, done = os.getloadavg(), []
    with tempfile.TemporaryDirectory(prefix="steelyard-planted-") as folder:
        for number in range(2 * chosen.times):
            planted = number % 2 == 0
            project = checkouts(Path(folder) / str(number), ADDS, ADDS + chosen.plant * planted)
            done.append(compared(project, chosen.backend, chosen.budget, planted=planted))
            print(f"round {number + 1} of {2 * chosen.times}: exit {done[-1].code}", file=sys.stderr)
    sheet(done, load).hand_in(chosen.json)


def checkouts(folder: Path, before: int, after: int) -> Path:
    """A repository with two commits, the older one checked out beside it; gives the newer one's folder."""
    head = folder / "head"
    head.mkdir(parents=True)
    _git(head, "init", "-q")
    for number, adds in enumerate((before, after), 1):
        (head / "adds.py").write_text(BENCH.format(words=f"Version {number}.", count=adds), encoding="utf-8")
        _git(head, "add", ".")
        _git(head, "-c", "user.name=planted", "-c", "user.email=planted@localhost", "commit", "-qm", f"version {number}")
    _git(head, "worktree", "add", "-q", "--detach", "../base", "HEAD~1")
    return head


def _git(folder: Path, *words: str) -> None:
    subprocess.run(["git", *words], cwd=folder, check=True)


def compared(project: Path, backend: str, budget: str, *, planted: bool) -> Round:
    """Measure and judge as a user does."""
    began = time.perf_counter()
    run = _steelyard(project, "run", "adds.py", "-B", backend, "--budget", budget, "--vs-path", "../base", "--json")
    pair = json.loads(run.stdout)["pairs"][0]
    gate = _steelyard(project, "gate", "latest", "--json")
    found = json.loads(gate.stdout)["findings"][0]
    was, now = (float(figure["value"]) for figure in (found["was"], found["now"]))
    commits = (pair["base"]["commit"], pair["head"]["commit"])
    spread = (found["time_ratio"], found["low"], found["high"])
    return Round(planted, gate.returncode, *spread, was, now, commits, pair["stopped_by"], pair["looks"], time.perf_counter() - began)


def _steelyard(project: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "STEELYARD_STORE": str(project / ".steelyard")}
    return subprocess.run(
        [sys.executable, "-m", "steelyard", *words], cwd=project, env=environment, capture_output=True, text=True, check=False
    )


def sheet(done: Sequence[Round], load: tuple[float, float, float]) -> Sheet:
    """Every round in a row, and how many came out right."""
    rows = []
    for item in done:
        change = f"{100 * (item.ratio - 1):+.1f} % [{100 * (item.low - 1):+.1f}, {100 * (item.high - 1):+.1f}]"
        times = f"{1e6 * item.was:.1f} → {1e6 * item.now:.1f} µs"
        commits = " → ".join(commit[:7] for commit in item.commits)
        ending = f"{item.stopped_by}, {item.looks} look{'' if item.looks == 1 else 's'}"
        rows.append(("planted" if item.planted else "equal", str(item.code), change, times, commits, ending, f"{item.wall:.1f} s"))
    head = ("head", "exit", "head / base at 99 %", "base → head", "commits", "stopped by", "wall")
    goals: list[Goal] = []
    figures: dict[str, Any] = {"each": [asdict(item) for item in done]}
    for name, planted in (("planted slowdowns with exit 4", True), ("equal commits with exit 0", False)):
        mine = [item for item in done if item.planted == planted]
        right = sum(item.right for item in mine)
        goals.append(Goal(name, right, len(mine), "", at_least=True))
        figures[name] = {"right": right, "rounds": len(mine)}
    return Sheet("planted", (Table("run --vs-path, then gate", head, tuple(rows)),), tuple(goals), figures, load)


if __name__ == "__main__":
    main()
