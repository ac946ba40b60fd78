"""The judging part of a search for kernels: sources come in, rewards go back.

python judge/loop.py
"""

import tempfile
from pathlib import Path

import steelyard

REFERENCE = Path(__file__).with_name("softmax_reference.py")
PROPOSED = {
    "fused": "import torch\ndef candidate(x):\n    return torch.softmax(x, -1)\n",
    "slow": "def candidate(x):\n    return x.double().softmax(-1).float()\n",
    "kept": "KEPT = {}\ndef candidate(x):\n    return KEPT.setdefault(x.shape, x.softmax(-1)).clone()\n",
    "broken": "def candidate(x):\n    return x.sofmax(-1)\n",
}
"""What a model would write."""


def reward(ruling):
    """What a candidate has earned: nothing if it does not run, a little for trying, and by its surest speedup if it is right."""
    if any(trick.voids for trick in ruling.tricks):
        return -1.0  # a cheat must never pay
    if ruling.status == "wrong":
        return 0.1
    if not ruling.correct:
        return 0.0
    return 0.3 + min(2.0, max(0.0, 1 / ruling.delta.high - 1))


def main():
    """Judge a batch and print what goes back to the model."""
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, f"{name}.py") for name in PROPOSED]
        for file, source in zip(files, PROPOSED.values(), strict=True):
            file.write_text(source)
        for ruling in steelyard.judge_all(str(REFERENCE), [str(file) for file in files], budget=0.1):
            print(f"{ruling.candidate:8} {ruling.status:8} {reward(ruling):5.2f}  {ruling.reason or ruling.delta.effect}")


if __name__ == "__main__":
    main()
