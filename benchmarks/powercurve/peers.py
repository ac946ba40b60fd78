"""Peers as they are shipped: their own tool, schedule and rule, the base first and then the head, each arm built for itself.

A tool that is not installed is said to be so, and its cells stay empty.
"""

from __future__ import annotations

import json
import math
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.powercurve import ops
from benchmarks.powercurve.cells import ASV, PYPERF, PYPERF_PROCESSES, PYTEST, TIMER, Cell
from benchmarks.powercurve.results import NotMeasured, Outcome

import steelyard

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
ARM = """import os, random
from benchmarks.powercurve import ops

ops.settle()
CALL = ops.arm_with(os.environ["POWERCURVE_OP"], int(os.environ["POWERCURVE_EXTRA"]), random.Random())().fn
"""
PYTEST_FILE = ARM + "\n\ndef test_arm(benchmark):\n    benchmark(CALL)\n"
ASV_FILE = ARM + "\n\ndef time_arm():\n    CALL()\n"
ASV_SETTINGS = {"version": 1, "project": "arm", "repo": ".", "branches": ["HEAD"], "benchmark_dir": "suite", "environment_type": "existing"}


@dataclass(frozen=True)
class Said:
    """What a tool said: its rule's answer if it has one, and its estimate of the log-ratio."""

    flag: int | None
    estimate: float


Compare = Callable[[str, int, Path], Said]


def run(cell: Cell) -> Outcome:
    """One comparison by a peer's own means, and what it cost with everything that it started."""
    extra = ops.extra_of(cell.op, cell.percent)
    wall, busy = time.perf_counter(), _all_cpu()
    with tempfile.TemporaryDirectory(prefix="steelyard-peer-") as folder:
        said = PEERS[cell.kind](cell.op, extra, Path(folder))
    spent, took = _all_cpu() - busy, time.perf_counter() - wall
    return Outcome(
        cell.kind, cell.op, cell.env, cell.budget, cell.percent, extra=extra, flag=said.flag, estimate=said.estimate, cpu=spent, wall=took
    )


def by_pyperf(op: str, extra: int, folder: Path) -> Said:
    """Two runs and `compare_to`; fewer processes than its 20, since each imports torch first."""
    import pyperf  # type: ignore[import-untyped]

    files = [folder / "base.json", folder / "head.json"]
    for file, size in zip(files, (0, extra), strict=True):
        _call([str(HERE / "pyperf_arm.py"), "--quiet", "-p", str(PYPERF_PROCESSES), "-o", str(file), "--op", op, "--extra", str(size)])
    told = _call(["-m", "pyperf", "compare_to", *map(str, files)])
    means = [float(pyperf.Benchmark.load(str(file)).mean()) for file in files]
    return Said(read_pyperf(told), math.log(means[1] / means[0]))


def read_pyperf(told: str) -> int:
    """The answer of `compare_to`: `1.05x slower`, or that the benchmark is hidden because not significant."""
    found = re.search(r"[\d.]+x (slower|faster)", told)
    if not found and "ot significant" not in told:
        raise NotMeasured(f"pyperf compare_to said: {told[-300:]}")
    return 0 if not found else 1 if found[1] == "slower" else -1


def by_timer(op: str, extra: int, folder: Path) -> Said:
    """`blocked_autorange` of either arm, and its median."""
    from torch.utils.benchmark import Timer

    calls = [ops.arm_with(op, size, random.Random())().fn for size in (0, extra)]
    medians = [float(Timer("call()", globals={"call": call}).blocked_autorange().median) for call in calls]
    return Said(None, math.log(medians[1] / medians[0]))


def by_pytest(op: str, extra: int, folder: Path) -> Said:
    """A saved run, and one that fails when the median is 5 % above it."""
    (folder / "test_arm.py").write_text(PYTEST_FILE)
    store = ["-m", "pytest", "-q", "-p", "no:cacheprovider", f"--benchmark-storage=file://{folder}/kept", "test_arm.py"]
    _call([*store, "--benchmark-save=base"], folder, op, 0)
    fail = ["--benchmark-compare=0001", "--benchmark-compare-fail=median:5%"]
    told = _call([*store, "--benchmark-save=head", *fail], folder, op, extra, any_code=True)
    kept = [next((folder / "kept").rglob(f"*_{name}.json"), None) for name in ("base", "head")]
    if None in kept:
        raise NotMeasured(f"pytest-benchmark said: {told[-300:]}")
    medians = [json.loads(file.read_text())["benchmarks"][0]["stats"]["median"] for file in kept if file]
    return Said(int("Performance has regressed" in told), math.log(medians[1] / medians[0]))


def by_asv(op: str, extra: int, folder: Path) -> Said:
    """Two commits of an empty repository, each measured with its arm, and `asv compare`."""
    (folder / "suite").mkdir()
    (folder / "suite" / "__init__.py").write_text("")
    (folder / "suite" / "arm.py").write_text(ASV_FILE)
    (folder / "asv.conf.json").write_text(json.dumps(ASV_SETTINGS))
    _git(folder, "init", "-q")
    _call(["-m", "asv", "machine", "--yes"], folder)
    commits = []
    for size in (0, extra):
        _git(folder, "commit", "-q", "--allow-empty", "-m", "arm")
        commits.append(_git(folder, "rev-parse", "HEAD").strip())
        _call(["-m", "asv", "run", "-E", "existing:same", "--set-commit-hash", commits[-1]], folder, op, size)
    return read_asv(_call(["-m", "asv", "compare", *commits], folder))


def read_asv(told: str) -> Said:
    """The mark and the ratio of our row: `| + | 120±1us | 140±2us | 1.17 | arm.time_arm |`; older ones have no bars."""
    row = next((line for line in told.splitlines() if "time_arm" in line), "")
    found = re.match(r"[|\s]*([+-])?[|\s].*?[|\s]~?([\d.]+)[|\s]+\S*time_arm", row)
    if not found:
        raise NotMeasured(f"asv compare said: {told[-300:]}")
    return Said({"+": 1, "-": -1}.get(found[1] or "", 0), math.log(float(found[2])))


PEERS: dict[str, Compare] = {PYPERF: by_pyperf, TIMER: by_timer, PYTEST: by_pytest, ASV: by_asv}


def _call(words: list[str], folder: Path | None = None, op: str = "", extra: int = 0, *, any_code: bool = False) -> str:
    """Run Python on something and give what it said; the arm is told through the environment, where a tool has no other way."""
    own = [Path(steelyard.__file__).parents[1], *map(Path, filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)))]
    path = os.pathsep.join(str(part.absolute()) for part in (ROOT, *own))
    environment = {**os.environ, "PYTHONPATH": path, "POWERCURVE_OP": op, "POWERCURVE_EXTRA": str(extra)}
    done = subprocess.run([sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode and not any_code:
        raise NotMeasured(f"{' '.join(words[:4])} ended with code {done.returncode}: {(done.stderr or done.stdout)[-300:]}")
    return done.stdout + done.stderr


def _git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=powercurve", "-c", "user.email=powercurve@localhost"]
    return subprocess.run(["git", *who, *words], cwd=folder, capture_output=True, text=True, check=True).stdout


def _all_cpu() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime
