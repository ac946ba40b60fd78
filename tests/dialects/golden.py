"""What `as param` and `as ptxla runner` write, without what differs from run to run: held by the files in `goldens/`.

python -m tests.dialects.golden        # writes them again, after a change that is meant
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from steelyard.param import config, spec, tensor, together, value
from tests.dialects.ptxla.checkout import make
from tests.engine.drive import PROGRAM

FOLDER = Path(__file__).parent / "goldens"
EXAMPLES = Path(__file__).parents[2] / "examples" / "param"
LOOSE = re.compile(r"(/[\w.\-]+)+|0x[0-9a-f]+|\d+(\.\d+)?(e-?\d+)?")
KEYS_ALONE = ("sys_info", "statistics", "drawn", "cmd_args", "versions")
DIFFERING = (
    "start_time", "finish_time", "timestamp", "out_file_prefix", "trace_file", "et_file", "accelerator_model", "trace",
    "fingerprint", "version", "threads", "noise", "case", "run",
)  # fmt: skip
PASSING = ("other_load",)
"""What is there only where a run took long enough."""
OPERATORS = """
import os, time
from pathlib import Path
from steelyard import operator

@operator("my.crash")
def crash(x):
    os.abort()

@operator("my.leave")
def leave(x):
    raise SystemExit("gone")

@operator("my.wait")
def wait(x):
    if Path("wait").exists():
        Path("waiting").write_text("yes")
        time.sleep(1e6)
"""
TORCHBENCH = ("--suite-name=torchbench", "--accelerator=cpu", "--xla=None", "--dynamo=None", "--repeat=2", "--no-skip")


def run(folder: Path, *words: str) -> int:
    done = subprocess.run([*PROGRAM, "as", *words], cwd=folder, capture_output=True, text=True, check=False, timeout=240)
    return done.returncode


def lines(file: Path) -> list[Any]:
    """Every line of a file, without what differs from run to run; one that was cut off as it is."""
    return [plain(json.loads(line)) if line.endswith("}") else line for line in file.read_text(encoding="utf-8").splitlines()]


def plain(value: Any, key: str = "") -> Any:
    """Numbers that were measured become their count or their kind; paths, versions and moments go."""
    if key in KEYS_ALONE:
        return sorted(value)
    if key in DIFFERING:
        return key
    if key.endswith("memory"):
        return f"{len(value)} numbers"
    if isinstance(value, dict):
        return {name: plain(item, name) for name, item in value.items() if name not in PASSING}
    if isinstance(value, list) and value and all(isinstance(item, float) for item in value):
        return f"{len(value)} floats"
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return "a float"
    if key in ("error", "reason", "message"):
        return LOOSE.sub("#", str(value))[:160]
    return value


def param(folder: Path, sheet: Mapping[str, Any], *words: str) -> dict[str, Any]:
    (folder / "ops.py").write_text(OPERATORS)
    (folder / "config.json").write_text(json.dumps(sheet))
    code = run(folder, "param", "-c", "config.json", "-o", "out.json", "--strict-exit", *words)
    return {"exit code": code, "lines": lines(folder / "out.json") if (folder / "out.json").exists() else []}


def neg(*sizes: int) -> dict[str, Any]:
    return config("torch.neg", [spec(tensor(size)) for size in sizes])


def troubled() -> dict[str, Any]:
    """All that can become of a config: right, refused, in place, without gradient, gone with its worker, unknown."""
    return together(
        [
            config("torch.mm", [spec(tensor(2, 3), tensor(2, 3)), spec(tensor(2, 3), tensor(3, 2))]),
            config("torch.relu_", spec(tensor(4))), config("torch.argmax", spec(tensor(8))), config("my.crash", spec(tensor(1))),
            config("my.leave", spec(tensor(1))), config("torch.ngg", spec(tensor(4))),
            config("torch.mul", spec(tensor(4, 4), value("float", range=(2, 3)))),
            config("torch.nn.Linear", spec(tensor(2, 4)), builds=spec(4, 3)),
        ]
    )  # fmt: skip


def duplicates() -> dict[str, Any]:
    twice = config("torch.neg", [spec(tensor(4)), spec(tensor(4)), spec(tensor(5))])
    return together([twice, config("torch.exp", spec(tensor(4)))])


def example(folder: Path, name: str, *words: str) -> dict[str, Any]:
    return param(folder, json.loads((EXAMPLES / name).read_text(encoding="utf-8")), *words)


def continued(folder: Path) -> dict[str, Any]:
    """A file with a torn last line is continued, once with more configs and once with nothing left to do."""
    param(folder, neg(1, 2), "-w", "1", "-i", "3")
    file = folder / "out.json"
    whole = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(whole[:2]) + b'{"op_name": "torch.n')
    first = param(folder, neg(1, 2, 3), "-w", "1", "-i", "3", "-a")
    return {"more": first, "nothing left": param(folder, neg(1, 2, 3), "-w", "1", "-i", "3", "-a")}


def killed(folder: Path) -> dict[str, Any]:
    """The conductor is killed while a config runs; what it had is whole, and the rest follows with -a."""
    (folder / "wait").touch()
    (folder / "ops.py").write_text(OPERATORS)
    sheet = together([neg(1, 2), config("my.wait", spec(tensor(1))), config("torch.exp", spec(tensor(1)))])
    (folder / "config.json").write_text(json.dumps(sheet))
    words = ["param", "-c", "config.json", "-o", "out.json", "--file", "ops.py", "-w", "1", "-i", "3"]
    running = subprocess.Popen([*PROGRAM, "as", *words], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while running.poll() is None and not ((folder / "waiting").exists() and len(lines(folder / "out.json")) == 3):
        os.sched_yield()
    running.send_signal(signal.SIGKILL)
    running.wait()
    found = {"killed": lines(folder / "out.json")}
    (folder / "wait").unlink()
    return {**found, "continued": param(folder, sheet, "--file", "ops.py", "-w", "1", "-i", "3", "-a")}


def ptxla(folder: Path, *words: str) -> dict[str, Any]:
    code = run(folder, "ptxla", "runner", *words)
    file = folder / "output" / "results.jsonl"
    return {"exit code": code, "lines": lines(file) if file.exists() else []}


def again(folder: Path, *words: str) -> dict[str, Any]:
    """The same twice: nothing is measured again."""
    return {"first": ptxla(folder, *words), "second": ptxla(folder, *words)}


def torchbench(folder: Path, *models: str) -> dict[str, Any]:
    place = make(folder / "bench", *models)
    return ptxla(folder, f"--torchbench={place}", "--test=eval", *TORCHBENCH)


SCENARIOS: Mapping[str, Callable[[Path], Any]] = {
    "param-troubled": lambda folder: param(folder, troubled(), "--file", "ops.py", "-w", "1", "-i", "4", "-b"),
    "param-duplicates": lambda folder: param(folder, duplicates(), "-w", "2", "-i", "3", "-b"),
    "param-continuous": lambda folder: param(folder, neg(4, 8), "-w", "1", "-i", "5", "--exec-mode", "continuous", "-b"),
    "param-events": lambda folder: param(folder, neg(4), "-w", "1", "-i", "5", "--exec-mode", "continuous_events", "-b"),
    "param-dry": lambda folder: param(folder, troubled(), "-w", "0", "-i", "0"),
    "param-traces": lambda folder: param(folder, neg(4), "-w", "1", "-i", "2", "-p", "--et"),
    "param-reductions": lambda folder: example(folder, "reductions.json", "-w", "1", "-i", "2"),
    "param-backward": lambda folder: example(folder, "backward.json", "-w", "1", "-i", "2", "-b"),
    "param-continued": continued,
    "param-killed": killed,
    "ptxla-dummy": lambda folder: again(
        folder, "--suite-name=dummy", "--accelerator=cpu", "--xla=None", "--test=eval", "--test=train", "--repeat=3", "--verify"
    ),
    "ptxla-torchbench": lambda folder: torchbench(folder, "crashes", "good", "needs_more", "raises"),
}  # fmt: skip


def found(name: str) -> Any:
    """What a scenario gives here and now."""
    with tempfile.TemporaryDirectory(prefix="steelyard-golden-") as folder:
        return json.loads(json.dumps(SCENARIOS[name](Path(folder))))


def main() -> None:
    """Write the files of all scenarios, or of those that are named."""
    for name in sys.argv[1:] or SCENARIOS:
        (FOLDER / f"{name}.json").write_text(json.dumps(found(name), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(name)


if __name__ == "__main__":
    main()
