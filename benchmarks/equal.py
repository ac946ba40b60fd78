"""Equal code told apart: variants that do what eager does, through the command line, in workers that many cases share.

Every point of five operators has two such variants, weighed against eager. A verdict of faster or slower is false, and so is a
state of one case that reaches the next.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from sheet import Goal, Sheet, Table, count, options, quantity
from steelyard.model.pair import judge

OPERATORS = ("op/gelu", "op/layer_norm", "op/rms_norm", "op/sum", "op/softmax")
VARIANTS = '''
from dataclasses import replace

from steelyard import variant


@variant("twin")
def twin(task, be, number: int = 1):
    """What eager does, called by another function."""
    fn = task.fn
    return replace(task, fn=lambda *args, **kwargs: fn(*args, **kwargs))
'''
MOST_FALSE = 1 / 200


def main() -> None:
    """Weigh them and count what was called a difference."""
    parser = options(__doc__)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--pairs", type=count, default=200, help="comparisons, about (default 200)")
    parser.add_argument("--budget", default="200ms")
    chosen = parser.parse_args()
    load, points = os.getloadavg(), -(-chosen.pairs // (2 * len(OPERATORS)))
    start, scale = 1 << (20 if chosen.device == "cuda" else 12), 64 if chosen.device == "cuda" else 8
    sizes = ",".join(str(start // scale + scale * 8 * number) for number in range(points))
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "twins.py").write_text(VARIANTS, encoding="utf-8")
        command = [sys.executable, "-m", "steelyard", "run", "twins.py", *OPERATORS, "-B", "torch", "-d", chosen.device]
        command += ["-V", "eager,twin[number=1],twin[number=2]", "--vs", "eager", "-a", f"n=[{sizes}]", "--budget", chosen.budget]
        begun = time.perf_counter()
        done = subprocess.run([*command, "--json"], cwd=folder, capture_output=True, text=True, check=False)
        wall = time.perf_counter() - begun
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}\n{done.stderr[-2000:]}")
    pairs = json.loads(done.stdout)["pairs"]
    verdicts = [judge(pair["low"], pair["high"], pair["margin"]) for pair in pairs]
    false = [pair for pair, verdict in zip(pairs, verdicts, strict=True) if verdict in ("faster", "slower")]
    rows = tuple((word, str(verdicts.count(word))) for word in dict.fromkeys(verdicts))
    table = Table(f"{len(verdicts)} comparisons of equal code on {chosen.device} in {quantity(wall, 's')}", ("verdict", "times"), rows)
    goal = Goal("equal code told apart", len(false) / max(1, len(verdicts)), MOST_FALSE, "1")
    Sheet("equal", (table,), (goal,), {"verdicts": verdicts, "false": false, "wall": wall}, load).hand_in(chosen.json)


if __name__ == "__main__":
    main()
