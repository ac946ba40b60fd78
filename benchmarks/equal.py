"""Equal code told apart, and slower code caught: variants of five operators through the command line, in workers that many cases share.

Every point has variants that do what eager does, and two that do a part of it again: a twentieth and a half. A difference
between equals is false; one that a state of another case made would be too. What does more must be called slower.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sheet import Goal, Sheet, Table, count, options, quantity
from steelyard.model.pair import judge

OPERATORS = ("op/gelu", "op/layer_norm", "op/rms_norm", "op/sum", "op/softmax")
VARIANTS = '''
from dataclasses import replace

from steelyard import variant


@variant("twin")
def twin(task, be, number: int = 1):
    """What eager does, called by another function; so is the one it is compared to."""
    fn = task.fn
    return replace(task, fn=lambda *args, **kwargs: fn(*args, **kwargs))


@variant("more")
def more(task, be, share: int = 20):
    """What eager does, and the first rows of it once more."""
    fn, part = task.fn, task.args[0][: max(1, len(task.args[0]) // share)]

    def twice(first, *args, **kwargs):
        fn(part, *args, **kwargs)
        return fn(first, *args, **kwargs)

    return replace(task, fn=twice)
'''
BASE = "twin[number=0]"
SLOWED = {"more[share=20]": "5 % more work", "more[share=2]": "50 % more work"}
MOST_FALSE = 1 / 200
MOST_MISSED = 0.02


def _odd(kind: str, verdict: str) -> bool:
    return verdict in ("faster", "slower") if kind == "equal code" else verdict != "slower"


def main() -> None:
    """Weigh them and count what was called a difference."""
    parser = options(__doc__)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--pairs", type=count, default=200, help="comparisons of equal code, about (default 200)")
    parser.add_argument("--twins", type=count, default=2, help="variants of equal code at each point, beside the one they are compared to")
    parser.add_argument("--no-slowed", action="store_true", help="leave out the variants that do more")
    parser.add_argument("--budget", default="200ms")
    chosen = parser.parse_args()
    load, points = os.getloadavg(), -(-chosen.pairs // (chosen.twins * len(OPERATORS)))
    start, scale = 1 << (20 if chosen.device == "cuda" else 12), 64 if chosen.device == "cuda" else 8
    sizes = ",".join(str(start // scale + scale * 8 * number) for number in range(points))
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "twins.py").write_text(VARIANTS, encoding="utf-8")
        command = [sys.executable, "-m", "steelyard", "run", "twins.py", *OPERATORS, "-B", "torch", "-d", chosen.device]
        twins = [f"twin[number={number + 1}]" for number in range(chosen.twins)]
        command += ["-V", ",".join([BASE, *twins, *([] if chosen.no_slowed else SLOWED)]), "--vs", BASE]
        command += ["-a", f"n=[{sizes}]", "--budget", chosen.budget]
        begun = time.perf_counter()
        done = subprocess.run([*command, "--json"], cwd=folder, capture_output=True, text=True, check=False)
        wall = time.perf_counter() - begun
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}\n{done.stderr[-2000:]}")
    groups: dict[str, list[tuple[str, Mapping[str, Any]]]] = {"equal code": []} | {name: [] for name in SLOWED.values()}
    for pair in json.loads(done.stdout)["pairs"]:
        kind = next((name for word, name in SLOWED.items() if word in pair["head"]["id"]), "equal code")
        groups[kind].append((judge(pair["low"], pair["high"], pair["margin"]), pair))
    words = list(dict.fromkeys(verdict for pairs in groups.values() for verdict, _ in pairs))
    rows = tuple((kind, *(str(sum(verdict == word for verdict, _ in pairs)) for word in words)) for kind, pairs in groups.items())
    table = Table(f"comparisons on {chosen.device}, {quantity(wall, 's')} in all", ("what", *words), rows)
    told = [verdict in ("faster", "slower") for verdict, _ in groups["equal code"]]
    goals = [Goal("equal code told apart", sum(told) / max(1, len(told)), MOST_FALSE, "1")]
    for kind in () if chosen.no_slowed else SLOWED.values():
        missed = [verdict != "slower" for verdict, _ in groups[kind]]
        goals.append(Goal(f"{kind} not called slower", sum(missed) / max(1, len(missed)), MOST_MISSED, "1"))
    odd = [pair for kind, pairs in groups.items() for verdict, pair in pairs if _odd(kind, verdict)]
    Sheet("equal", (table,), tuple(goals), {"odd": odd, "wall": wall}, load).hand_in(chosen.json)


if __name__ == "__main__":
    main()
