"""Captured, converted, run: the step time that its calls predict beside the measured one, for three models."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from sheet import Goal, Sheet, Table, options, quantity
from steelyard.model.units import percent

CASES = {
    "mlp, training": ("model/mlp", "-a", "batch=64", "--mode", "train"),
    "transformer block": ("layer/transformer_block",),
    "convolution block, training": ("layer/conv_block", "--mode", "train"),
}
GOAL = 0.25


def steelyard(folder: Path, *words: str) -> Any:
    """What a command says with --json; one that fails ends the benchmark."""
    program = [sys.executable, "-m", "steelyard", *words]
    done = subprocess.run(program, capture_output=True, text=True, cwd=folder, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}: exit code {done.returncode}\n{done.stderr}")
    return json.loads(done.stdout) if "--json" in words else None


def measured(folder: Path, words: tuple[str, ...], budget: str) -> float:
    """The time of the case itself."""
    steelyard(folder, "run", *words, "-B", "torch", "--budget", budget, "--store", "store")
    (record,) = steelyard(folder, "show", "latest", "--json", "--store", "store")["records"]
    time = record["metrics"].get("time", {}).get("value")
    if record["status"] != "ok" or not time:
        raise SystemExit(f"{' '.join(words)}: {record['status']}, {record.get('reason') or f'measured {time} s'}")
    return float(time)


def predicted(folder: Path, words: tuple[str, ...], budget: str) -> dict[str, Any]:
    """What the calls of a recorded step add up to."""
    steelyard(folder, "capture", "--case", *words, "-o", "step.json")
    steelyard(folder, "convert", "step.json", "--to", "config", "-o", "step.toml", "--force")
    steelyard(folder, "run", "step.toml", "--budget", budget, "--store", "store")
    found: dict[str, Any] = steelyard(folder, "show", "latest", "--json", "--store", "store")["prediction"]
    return found


def main() -> None:
    """The case is measured before and after its prediction, so that a drift of the machine can be seen."""
    parser = options(__doc__)
    parser.add_argument("--budget", default="quick", help="of each case and each call (default quick)")
    chosen = parser.parse_args()
    load, figures, rows, worst = os.getloadavg(), dict[str, Any](), [], 0.0
    with tempfile.TemporaryDirectory() as name:
        for case, words in CASES.items():
            folder = Path(name)
            before, found, after = measured(folder, words, chosen.budget), predicted(folder, words, chosen.budget), 0.0
            after = measured(folder, words, chosen.budget)
            error = found["seconds"] / ((before + after) / 2) - 1
            figures[case] = {"before": before, "after": after, "error": error, **found}
            worst = max(worst, abs(error))
            sign = "+" if error > 0 else "-"
            rows.append(
                (case, quantity(before, "s"), quantity(after, "s"), quantity(found["seconds"], "s"), f"{sign}{percent(abs(error))}")
            )
    table = Table("A step measured, and predicted from its calls", ("step", "before", "after", "predicted", "error"), tuple(rows))
    Sheet("traces/prediction", (table,), (Goal("largest error of a prediction", worst, GOAL, ""),), figures, load).hand_in(chosen.json)


if __name__ == "__main__":
    main()
