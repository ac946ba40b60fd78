"""A recipe against itself: how often a difference is found where there is none, by Steelyard and by TorchAO's method, in one run.

TorchAO's micro-benchmarks time 100 calls after 100 others, take the mean, and divide one mean by another. Both sides are the same model
here, so every ratio that is not one is an error.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from sheet import Goal, Sheet, Table, count, options, quantity
from steelyard.model.pair import judge

RECIPES = ("int8wo", "int8dq", "int4wo-32", "float8wo")
TWIN = '''
from dataclasses import replace

from steelyard import variant


@variant("twin")
def twin(task, be, number: int = 1):
    """The same, called by another function."""
    fn = task.fn
    return replace(task, fn=lambda *args: fn(*args))
'''
THEIRS = """
import json, sys
import torch
from torch.utils.benchmark import Timer
from torchao.quantization import quantize_
from steelyard.torchao_bench import create_model_and_input_data, string_to_config
device, recipe, sizes = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
torch.set_num_threads(1)
ratios = []
for m, k, n in sizes:
    model, x = create_model_and_input_data("linear", m, k, n, device=device)
    quantize_(model, string_to_config(recipe, device=device))
    timer = Timer("model(x)", globals={"model": model, "x": x}, num_threads=1)
    def mean():
        timer.timeit(100)
        return timer.timeit(100).mean
    with torch.no_grad():
        ratios.append(mean() / mean())
print(json.dumps(ratios))
"""


def main() -> None:
    """Compare equal models both ways."""
    parser = options(__doc__)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--pairs", type=count, default=40)
    parser.add_argument("--budget", default="200ms")
    chosen = parser.parse_args()
    load, points = os.getloadavg(), -(-chosen.pairs // len(RECIPES))
    sizes = [(16 * (place + 1), 512, 512) for place in range(points)]
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        verdicts = [word for recipe in RECIPES for word in ours(Path(folder), chosen.device, recipe, sizes, chosen.budget)]
    wall = time.perf_counter() - start
    ratios = [ratio for recipe in RECIPES for ratio in theirs(chosen.device, recipe, sizes)]
    beyond = {margin: sum(not 1 / (1 + margin) <= ratio <= 1 + margin for ratio in ratios) for margin in (0.02, 0.05)}
    rows = [
        ("Steelyard", str(len(verdicts)), str(sum(word in ("faster", "slower") for word in verdicts)), str(verdicts.count("unclear")), "")
    ]
    spread = f"{min(ratios):.2f} to {max(ratios):.2f}, median {statistics.median(ratios):.3f}"
    rows.append(("100 + 100 calls, beyond 2 %", str(len(ratios)), str(beyond[0.02]), "", spread))
    rows.append(("100 + 100 calls, beyond 5 %", str(len(ratios)), str(beyond[0.05]), "", spread))
    table = Table(
        f"recipes against themselves on {chosen.device}, {quantity(wall, 's')}",
        ("who", "pairs", "told apart", "unclear", "ratios"),
        tuple(rows),
    )
    false = sum(word in ("faster", "slower") for word in verdicts)
    goal = Goal("differences found where there are none", false, 0, "1")
    Sheet("recipes", (table,), (goal,), {"verdicts": verdicts, "ratios": ratios}, load).hand_in(chosen.json)


def ours(folder: Path, device: str, recipe: str, sizes: list[tuple[int, int, int]], budget: str) -> list[str]:
    """A verdict for each size."""
    (folder / "twin.py").write_text(TWIN, encoding="utf-8")
    arms = [f"{recipe}+twin[number={number}]" for number in (0, 1)]
    command = [sys.executable, "-m", "steelyard", "run", "twin.py", "torchao/linear", "-d", device, "-V", ",".join(arms), "--vs", arms[0]]
    command += [
        "-a",
        f"m=[{','.join(str(m) for m, _, _ in sizes)}]",
        "-a",
        f"k={sizes[0][1]}",
        "-a",
        f"n={sizes[0][2]}",
        "--budget",
        budget,
    ]
    done = subprocess.run([*command, "--json"], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}\n{done.stderr[-2000:]}")
    return [judge(pair["low"], pair["high"], pair["margin"]) for pair in json.loads(done.stdout)["pairs"]]


def theirs(device: str, recipe: str, sizes: list[tuple[int, int, int]]) -> list[float]:
    """A ratio of two means for each size."""
    command = [sys.executable, "-c", THEIRS, device, recipe, json.dumps(sizes)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"TorchAO's method ended with {done.returncode}\n{done.stderr[-2000:]}")
    found: list[float] = json.loads(done.stdout.splitlines()[-1])
    return found


if __name__ == "__main__":
    main()
