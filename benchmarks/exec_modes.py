"""PARAM's three exec modes in `steelyard as param`: the times that this source tree gives beside those of an older one, in turn.

Each round runs every mode with both versions, in an order that is reversed from round to round. What one version gives in different
rounds is the noise that a difference between the two is held against. Rounds are begun as long as the time for them is left.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from per_config import OURS, source_folder

MODES = ("discrete", "continuous", "continuous_events")
SIDES = {"cpu": 256, "cuda": 4096}
FEWEST = 2
FLOOR = 0.03
"""Rounds are few, so that their spread may be small by chance: a smaller difference is none."""

Key = tuple[str, str, str]
"""Mode, version, and the operator with its pass."""


def write_config(folder: Path, device: str) -> Path:
    """A product and two operators that are bound by memory, large enough for the device to be at work."""
    side = SIDES[device]
    matrix = {"type": "tensor", "dtype": "float", "shape": [side, side]}
    args = {"torch.mm": [matrix, matrix], "torch.add": [matrix, matrix], "torch.nn.functional.gelu": [matrix]}
    usual = {"input_data_generator": "PyTorch:DefaultDataGenerator"}
    file = folder / "modes.json"
    file.write_text(json.dumps({name: {**usual, "config": [{"input": [{"args": given}]}]} for name, given in args.items()}))
    return file


def medians(source: Path, mode: str, config: Path, folder: Path, device: str, iterations: int) -> dict[str, float]:
    """Milliseconds of each operator and pass in one run."""
    command = [sys.executable, "-m", "steelyard", "as", "param", "-c", str(config), "-w", "10", "-i", str(iterations), "-b"]
    command += ["-d", device, "--exec-mode", mode, "-l", "ERROR", "-o", str(folder / "out.json")]
    known = {**os.environ, "PYTHONPATH": str(source), "STEELYARD_STORE": str(folder / "store"), "STEELYARD_LOCKS": str(folder / "locks")}
    done = subprocess.run(command, env=known, cwd=folder, capture_output=True, text=True, check=False)
    rows = [json.loads(line) for line in (folder / "out.json").read_text().splitlines()] if not done.returncode else []
    found = {
        f"{row['op_name'].rpartition('.')[2]} {name}": _median(passed) for row in rows for name, passed in row.get("metric", {}).items()
    }
    if not found:
        raise SystemExit(f"{source}: exit {done.returncode}\n{done.stderr[-2000:]}")
    return found


def _median(passed: dict[str, Any]) -> float:
    return statistics.median(passed["measure.time"])


def measure(sources: dict[str, Path], device: str, iterations: int, seconds: float, fewest: int) -> dict[Key, list[float]]:
    """The median of every round."""
    found: dict[Key, list[float]] = {}
    order = [(mode, name) for mode in MODES for name in sources]
    began, longest, rounds = time.monotonic(), 0.0, 0
    with tempfile.TemporaryDirectory() as made:
        config = write_config(Path(made), device)
        while rounds < fewest or time.monotonic() - began + longest < seconds:
            start = time.monotonic()
            for mode, name in order[:: -1 if rounds % 2 else 1]:
                folder = Path(made) / f"{mode}-{name}-{rounds}"
                folder.mkdir()
                for what, value in medians(sources[name], mode, config, folder, device, iterations).items():
                    found.setdefault((mode, name, what), []).append(value)
            longest, rounds = max(longest, time.monotonic() - start), rounds + 1
    return found


def judge(old: list[float], new: list[float]) -> tuple[float, float]:
    """The difference of the new one's times, as a share, and what the rounds of each differ by."""
    noise = max(max(times) / min(times) - 1 for times in (old, new))
    return statistics.median(new) / statistics.median(old) - 1, max(noise, FLOOR)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--old", type=source_folder, required=True, metavar="DIR", help="the src folder of another version")
    parser.add_argument("--new", type=source_folder, default=OURS, metavar="DIR", help="the src folder to judge; by default this one")
    parser.add_argument("--device", choices=sorted(SIDES), default="cuda")
    parser.add_argument("--iterations", type=int, default=200, metavar="N")
    parser.add_argument(
        "--seconds", type=float, default=75.0, metavar="S", help="no round is begun that would end later, but the fewest are"
    )
    parser.add_argument("--fewest", type=int, default=FEWEST, metavar="N", help="rounds in any case; one has no spread but the floor")
    asked = parser.parse_args()
    found = measure({"old": asked.old, "new": asked.new}, asked.device, asked.iterations, asked.seconds, asked.fewest)
    apart = []
    for mode in MODES:
        whats = [what for found_mode, name, what in found if found_mode == mode and name == "new"]
        logs = []
        for what in whats:
            old, new = found[mode, "old", what], found[mode, "new", what]
            change, noise = judge(old, new)
            logs.append(math.log1p(change))
            apart += [f"{mode} {what}"] if abs(change) > noise else []
            times = f"{1000 * statistics.median(old):9.2f} -> {1000 * statistics.median(new):9.2f} us"
            print(f"{mode:18} {what:15} {times}  {100 * change:+6.1f} %  rounds differ by {100 * noise:5.1f} %  ({len(new)} rounds)")
        print(f"{mode:18} {'together':15} {'':25}  {100 * math.expm1(statistics.fmean(logs)):+6.1f} %")
    print(f"goal: every difference within that of the rounds  {'reached' if not apart else 'missed: ' + ', '.join(apart)}")


if __name__ == "__main__":
    main()
