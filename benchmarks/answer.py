"""How long one waits for an answer: ten cases of five operators, eager and compiled, with all checks and comparisons.

Beside it the same ten functions are timed the bare way in one process: triton's do_bench on a GPU, torch's own Timer on the CPU.
All compile into empty caches, or with --warm find in them what an earlier run compiled, as on a user's machine. What compiling takes
is apart, since it is the same work on all sides.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sheet import Goal, Sheet, Spread, Table, count, options, quantity, spread

OPERATORS = ("op/gelu", "op/layer_norm", "op/rms_norm", "op/sum", "op/softmax")
LIMIT = 1.7
EAGER = 1.0
STARTED = 0.1
"""Seconds: a case whose start takes longer is the first of its worker."""
PEER = Path(__file__).with_name("answer_peer.py")


@dataclass(frozen=True)
class Wait:
    """One run from command to table: its wall time, and of which phases it is made."""

    wall: float
    phases: Mapping[str, float]
    eager: float = 0.0
    """The longest wait for an eager case whose worker runs already."""

    @property
    def compiling(self) -> float:
        """Seconds of compiling, with the compiler's imports."""
        return self.phases.get("compile", 0.0) + self.phases.get("imports", 0.0)


def main() -> None:
    """Take turns, and print the ratio of waits."""
    parser = options(__doc__)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--size", default="", help="a size preset of the operators, such as h200")
    parser.add_argument("--budget", default="200ms")
    parser.add_argument("--rounds", type=count, default=1)
    parser.add_argument("--warm", action="store_true", help="run each once before, and keep what it compiled")
    parser.add_argument("--old", type=Path, help="a checkout of another version, for the wait before")
    chosen = parser.parse_args()
    load = os.getloadavg()
    ways: dict[str, Callable[[Path], Wait]] = {
        "bare": lambda kept: bare(chosen.device, chosen.size, kept),
        "steelyard": lambda kept: ours(chosen.device, chosen.size, chosen.budget, kept),
    }
    if chosen.old:
        ways["steelyard before"] = lambda kept: ours(chosen.device, chosen.size, chosen.budget, kept, chosen.old)
    found: dict[str, list[Wait]] = {who: [] for who in ways}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(chosen.rounds + chosen.warm):
            for who, wait in ways.items():
                took = wait(Path(folder) / (who if chosen.warm else f"{who}{number}"))
                found[who] += [took] if number >= chosen.warm else []
    sheet(found, chosen.device, load).hand_in(chosen.json)


def caches(folder: Path) -> dict[str, str]:
    """An environment that keeps what is compiled in a folder."""
    named = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton", "STEELYARD_CACHE": "steelyard"}
    return os.environ | {name: str(folder / part) for name, part in named.items()}


def ours(device: str, size: str, budget: str, kept: Path, checkout: Path | None = None) -> Wait:
    """One run by the command line, of this version or of another."""
    words = ["run", *OPERATORS, "-B", "torch", "-V", "eager,compile", "--vs", "eager", "-d", device, "--budget", budget, "--settle", "0"]
    words += ["-a", f"size={size}"] if size else ["-x", "op/softmax.*n=256"]
    environment = caches(kept)
    if checkout:
        environment["PYTHONPATH"] = os.pathsep.join([str(checkout / "src"), *sys.path])
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "steelyard", *words, "--store", f"{folder}/store", "--json"]
        start = time.perf_counter()
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=folder)
        wall = time.perf_counter() - start
    if done.returncode not in (0, 3):
        sys.exit(f"{' '.join(command)} ended with {done.returncode}\n{done.stderr[-2000:]}")
    records = json.loads(done.stdout)["records"]
    eager = [record["effective"].get("wall") or {} for record in records if record["case"]["variant"] == "eager"]
    return Wait(wall, _phases(records), max((_own(phases) for phases in eager if phases.get("start", STARTED) < STARTED), default=0.0))


def _phases(records: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    total: dict[str, float] = {}
    for record in records:
        known = record["effective"].get("wall") or {"case": record.get("wall_s", 0.0)}
        for name, seconds in known.items():
            total[name] = total.get(name, 0.0) + seconds
    return total


def _own(phases: Mapping[str, float]) -> float:
    """What a case takes beside its comparison."""
    return sum(seconds for name, seconds in phases.items() if name != "pairs")


def bare(device: str, size: str, kept: Path) -> Wait:
    """The same functions in one process."""
    start = time.perf_counter()
    done = subprocess.run([sys.executable, str(PEER), device, size], env=caches(kept), capture_output=True, text=True, check=False)
    wall = time.perf_counter() - start
    if done.returncode:
        sys.exit(f"{PEER.name} ended with {done.returncode}\n{done.stderr[-2000:]}")
    return Wait(wall, json.loads(done.stdout))


def sheet(found: Mapping[str, Sequence[Wait]], device: str, load: tuple[float, float, float]) -> Sheet:
    """The wait of each, of what it is made, and the ratio."""
    names = list(dict.fromkeys(name for waits in found.values() for wait in waits for name in wait.phases))
    rows = []
    for who, waits in found.items():
        parts = [Spread.of([wait.phases.get(name, 0.0) for wait in waits]).median for name in names]
        whole = Spread.of([wait.wall for wait in waits])
        rows.append((who, spread(whole, "s"), *(quantity(part, "s") if part else "-" for part in parts)))
    table = Table(f"ten cases on {device}, from command to table", ("who", "wall", *names), tuple(rows))
    ratio = Spread.of([one.wall / other.wall for one, other in zip(found["steelyard"], found["bare"], strict=True)])
    goals = [Goal("wait for ten cases against the bare loop", ratio.median, LIMIT, "×")]
    goals.append(Goal("a warm eager case", max(wait.eager for wait in found["steelyard"]), EAGER, "s"))
    if before := found.get("steelyard before"):
        shares = Spread.of([one.wall / other.wall for one, other in zip(found["steelyard"], before, strict=True)])
        goals.append(Goal("wait against the version before", shares.median, 0.5, "×"))
    figures = {who: [{"wall": wait.wall, "compiling": wait.compiling, **wait.phases} for wait in waits] for who, waits in found.items()}
    return Sheet("answer", (table,), tuple(goals), figures, load)


if __name__ == "__main__":
    main()
