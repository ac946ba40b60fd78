"""What a config costs in `steelyard as param`: CPU of 2,000 configs against 10, of this source tree and of an older one in turn.

CPU of all processes counts, user and system; the machine may be shared, so the least of several rounds is taken. Fixed costs, such as
loading torch, are in both counts and cancel.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

MANY, FEW = 2000, 10
GOAL_MS = 1.0
OURS = Path(__file__).parents[1] / "src"


def source_folder(name: str) -> Path:
    """A folder with the package in it: Python passes over one that has none, and the installed version would stand for it."""
    folder = Path(name).resolve()
    if not (folder / "steelyard" / "__init__.py").is_file():
        raise argparse.ArgumentTypeError(f"{name} has no package steelyard: name the src folder of a version")
    return folder


def write_config(folder: Path, count: int) -> Path:
    """So many additions of a number to a small tensor, no two of one shape."""
    rows = count // 10
    tensor = {"type": "tensor", "dtype": "float", "shape": [[1, rows], [1, 10]], "__range__": ["shape"]}
    entry = {"input": [{"args": [tensor, {"type": "int", "value": 1}]}]}
    info = {"input_data_generator": "PyTorch:DefaultDataGenerator", "input_iterator": "RangeConfigIterator", "config": [entry]}
    file = folder / f"add_{count}.json"
    file.write_text(json.dumps({"torch.add": info}))
    return file


def cpu_of(source: Path, config: Path, folder: Path, count: int) -> float:
    """Seconds that one run and all its processes took."""
    output = folder / "out.json"
    output.unlink(missing_ok=True)
    command = [sys.executable, "-m", "steelyard", "as", "param", "-c", str(config), "-w", "1", "-i", "1", "-l", "ERROR", "-o", str(output)]
    known = {**os.environ, "PYTHONPATH": str(source), "STEELYARD_STORE": str(folder / "store"), "STEELYARD_LOCKS": str(folder / "locks")}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=known, cwd=folder, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    lines = output.read_text().count('"op_name"')
    assert lines == count, f"{lines} of {count} configs in the output"
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(sources: dict[str, Path], rounds: int) -> dict[str, tuple[float, list[float]]]:
    """Milliseconds per config of each source tree: from the least of all rounds, and of each round."""
    spent: dict[tuple[str, int], list[float]] = {(name, count): [] for name in sources for count in (MANY, FEW)}
    with tempfile.TemporaryDirectory() as made:
        configs = {count: write_config(Path(made), count) for count in (MANY, FEW)}
        for number in range(rounds):
            for (name, count), times in list(spent.items())[:: 1 if number % 2 else -1]:
                folder = Path(made) / f"{name}-{count}-{number}"
                folder.mkdir()
                times.append(cpu_of(sources[name], configs[count], folder, count))
    each = {name: [per_config(*both) for both in zip(spent[name, MANY], spent[name, FEW], strict=True)] for name in sources}
    return {name: (per_config(min(spent[name, MANY]), min(spent[name, FEW])), each[name]) for name in sources}


def per_config(many: float, few: float) -> float:
    """Milliseconds."""
    return 1000 * (many - few) / (MANY - FEW)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--old", type=source_folder, metavar="DIR", help="the src folder of another version, measured in turn")
    parser.add_argument("--new", type=source_folder, default=OURS, metavar="DIR", help="the src folder to judge; by default this one")
    parser.add_argument("--rounds", type=int, default=5, metavar="N")
    asked = parser.parse_args()
    sources = {"new": asked.new, **({"old": asked.old} if asked.old else {})}
    found = measure(sources, asked.rounds)
    for name, (least, each) in found.items():
        print(
            f"{name}  {least:.2f} ms of CPU per config  (rounds: median {statistics.median(each):.2f}, {min(each):.2f} … {max(each):.2f})"
        )
    print(f"goal: at most {GOAL_MS} ms  {'reached' if found['new'][0] <= GOAL_MS else 'missed'}")


if __name__ == "__main__":
    main()
