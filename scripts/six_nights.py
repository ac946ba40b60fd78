"""Run six real nights to see that a slower night is reported every night until somebody accepts it.

A small git repository gets a commit a day; from the third on its one library function takes more time. `steelyard nightly` is
run after every commit, the last night is accepted by name, and one more night follows.

    .venv/bin/python scripts/six_nights.py [--slower 4%] [--real] [FOLDER]

By default time is planted on the fake backend; `--real` runs loops of numpy on this machine.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

BENCH = {
    "fake": '''
from steelyard import Task, workload

@workload("mine/work", axes={"name": ["grown", "calm"]}, backend="fake")
def work(name, be):
    import cost
    x = be.randn(16)

    def fn():
        be.spend(1e-6 * cost.ROUNDS[name], 0.01)
        return x

    return Task(fn)
''',
    "real": '''
import numpy as np
from steelyard import Task, workload

@workload("mine/work", axes={"name": ["grown", "calm"]}, backend="numpy")
def work(name, be):
    import cost
    x, y = be.randn(4096), be.randn(4096)
    z, rounds = np.empty_like(x), cost.ROUNDS[name]

    def fn():
        for _ in range(rounds):
            np.add(x, y, out=z)
        return z

    return Task(fn)
''',
}  # fmt: skip
NIGHT = 'name = "mine"\nfiles = ["bench.py"]\n[settings]\nbudget = "{}"\n[[matrix]]\nworkload = ["mine/work"]\n'
ROUNDS, STEP_AT = 500, 3


def git(folder: Path, *words: str) -> None:
    known = ["-c", "user.name=Someone", "-c", "user.email=someone@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *known, *words], cwd=folder, check=True, capture_output=True)


def steelyard(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "steelyard", *words], cwd=folder, capture_output=True, text=True, check=False)


def spend(folder: Path, day: int, slower: float) -> int:
    """Commit the day's library, and run the night."""
    grown = round(ROUNDS * (1 + slower if day >= STEP_AT else 1))
    (folder / "cost.py").write_text(f"# day {day}\nROUNDS = {{'grown': {grown}, 'calm': {ROUNDS}}}\n", encoding="utf-8")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", f"day {day}")
    done = steelyard(folder, "nightly", "night.toml", "--keep", "archive")
    print(f"night {day}: exit {done.returncode}: {done.stdout.splitlines()[0] if done.stdout else done.stderr.strip()}", flush=True)
    return done.returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--slower", default="4%")
    parser.add_argument("--real", action="store_true")
    asked = parser.parse_args()
    folder = asked.folder or Path(tempfile.mkdtemp(prefix="six-nights-"))
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "-q")
    kind = "real" if asked.real else "fake"
    for name, text in {
        "bench.py": BENCH[kind],
        "night.toml": NIGHT.format("1s" if asked.real else "20ms"),
        ".gitignore": "archive\n__pycache__\n",
    }.items():
        (folder / name).write_text(text, encoding="utf-8")
    slower = float(asked.slower.rstrip("%")) / 100
    codes = [spend(folder, day, slower) for day in range(1, 7)]
    last = json.loads((folder / "archive" / "nights.jsonl").read_text(encoding="utf-8").splitlines()[-1])
    print(steelyard(folder, "nightly", "--keep", "archive", "--accept", last["run"], "--reason", "worth it").stdout.strip())
    codes.append(spend(folder, 7, slower))
    print(f"exit codes {codes} in {folder}")
    return 0 if codes == [0, 0, 4, 4, 4, 4, 0] else 1


if __name__ == "__main__":
    sys.exit(main())
