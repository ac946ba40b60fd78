"""Whether a compiler is told from itself: exported programs under IREE and XLA, each arm the same, as often as asked.

Two runs, as a user types them: IREE against `env:` the environment that it runs in, and XLA against `flags:` a variable that nobody
reads. Every program has a verdict on run time, compile time, CPU time of compiling, code size and memory; all of them should be `same`
or `unclear`. `--vs` names another base, such as env:iree-3.12, to see a real difference in the same form. All of it takes half an hour;
with `--first` and `--kept` it can be done in parts, each when the machine is idle, and the table is about all parts so far.

On a machine that others share, the time to compile the same program differs by 3 to 13 % from process to process, so 16 processes of
each arm tell differences of 5 to 10 % and 60 those of 3 %: `--margin compile_time=5%` asks for what can be had in the time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sheet import Goal, Sheet, Table, count, options

LAYER = """\
  %d{i} = stablehlo.dot_general %x{i}, %w{i}, contracting_dims = [1] x [0] : ({x}, {w}) -> {x}
  %t{i} = stablehlo.tanh %d{i} : {x}
  %e{i} = stablehlo.exponential %t{i} : {x}
  %x{j} = stablehlo.add %e{i}, %t{i} : {x}
"""
BASES = {"iree": "env:iree", "xla": "flags:NOBODY_READS_THIS=1"}
METRICS = ("time", "compile_time", "compile_cpu_time", "code_size", "compile_memory", "peak_memory")
TOLD_APART = ("slower", "faster")


@dataclass(frozen=True)
class Verdict:
    """What one comparison says of one metric."""

    backend: str
    base: str
    case: str
    metric: str
    verdict: str
    effect: str


def main() -> None:
    """Compare each program with itself under both compilers, and count the verdicts."""
    parser = options(__doc__)
    parser.add_argument("--times", type=count, default=20, help="programs, each of which is a comparison (default 20)")
    parser.add_argument("--processes", type=count, default=8, help="processes that compile, of each arm (default 8)")
    parser.add_argument("--budget", default="quick", help="the budget of each comparison (default quick)")
    parser.add_argument("--backend", choices=tuple(BASES), action="append", help="only this one; repeatable")
    parser.add_argument("--layers", type=count, default=4, help="layers of each program, a product and three operations each (default 4)")
    parser.add_argument("--width", type=count, default=256, help="rows and columns of their weights (default 256)")
    parser.add_argument("--margin", action="append", default=[], metavar="METRIC=SHARE", help="as of compare (default 2%% of all)")
    parser.add_argument("--vs", help="another base than the same again, for all")
    parser.add_argument("--first", type=int, default=0, metavar="NUMBER", help="the number of the first program (default 0)")
    parser.add_argument("--kept", type=Path, metavar="FILE", help="verdicts of earlier parts as JSON lines; those of this part are added")
    chosen = parser.parse_args()
    load, found = os.getloadavg(), list[Verdict]()
    with tempfile.TemporaryDirectory(prefix="steelyard-compilers-") as folder:
        for number in range(chosen.first, chosen.first + chosen.times):
            text = program(128 + 8 * (number % 10), chosen.width, chosen.layers + number // 10)
            (Path(folder) / f"program-{number:03}.mlir").write_text(text, encoding="utf-8")
        margins = [word for text in chosen.margin for word in ("--margin", text)]
        for backend in chosen.backend or BASES:
            found += compared(Path(folder), backend, chosen.vs or BASES[backend], chosen.budget, chosen.processes, margins)
    sheet(kept_with(found, chosen.kept) if chosen.kept else found, load).hand_in(chosen.json)


def program(rows: int, width: int, layers: int) -> str:
    """A chain of layers that takes some milliseconds, so that neither a call nor a compile is about starting alone."""
    x, w = f"tensor<{rows}x{width}xf32>", f"tensor<{width}x{width}xf32>"
    inputs = ", ".join([f"%x0: {x}", *(f"%w{i}: {w}" for i in range(layers))])
    body = "".join(LAYER.format(i=i, j=i + 1, x=x, w=w) for i in range(layers))
    return f"func.func @main({inputs}) -> {x} {{\n{body}  return %x{layers} : {x}\n}}\n"


def kept_with(found: Sequence[Verdict], file: Path) -> list[Verdict]:
    """All verdicts in a file, after these have been added to it."""
    with file.open("a", encoding="utf-8") as held:
        held.writelines(f"{json.dumps(asdict(item))}\n" for item in found)
    return [Verdict(**json.loads(line)) for line in file.read_text(encoding="utf-8").splitlines()]


def compared(folder: Path, backend: str, vs: str, budget: str, processes: int, margins: Sequence[str]) -> list[Verdict]:
    """Run all programs of a folder against a base, and read every verdict as `compare` tells it."""
    words = ["run", f"artifact:{folder}", "-B", backend, "--vs", vs, "--budget", budget, f"--compile-time={processes}"]
    done = _steelyard(folder, *words, "--settle", "0")
    print(done.stdout, done.stderr, file=sys.stderr)
    told = _steelyard(folder, "compare", "latest", "--json", *margins)
    if told.returncode not in (0, 4, 6):
        raise SystemExit(f"steelyard compare failed: {told.stderr}")
    deltas = json.loads(told.stdout)["deltas"]
    return [Verdict(backend, vs, item["head"], item["metric"], item["verdict"], item["effect"]) for item in deltas]


def _steelyard(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {"STEELYARD_STORE": str(folder / ".steelyard"), **os.environ}
    return subprocess.run(
        [sys.executable, "-m", "steelyard", *words], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def sheet(found: Sequence[Verdict], load: tuple[float, float, float]) -> Sheet:
    """How often each verdict was given, by compiler, base and metric; and what was told apart that is the same."""
    rows, goals = [], list[Goal]()
    for backend, base in dict.fromkeys((item.backend, item.base) for item in found):
        for metric in METRICS:
            mine = [item for item in found if (item.backend, item.base, item.metric) == (backend, base, metric)]
            counts = Counter(item.verdict for item in mine)
            apart = sum(counts[word] for word in TOLD_APART)
            examples = next((item.effect for item in mine if item.verdict in TOLD_APART), mine[0].effect if mine else "")
            rows.append((backend, base, metric, str(len(mine)), ", ".join(f"{n} {word}" for word, n in counts.items()), examples))
            same = base == BASES[backend] and mine
            goals += [Goal(f"{backend}: {metric} of the same told apart", apart, 0, "")] if same else []
    head = ("backend", "base", "metric", "comparisons", "verdicts", "for example")
    figures: dict[str, Any] = {"each": [asdict(item) for item in found]}
    return Sheet("compilers", (Table("head against base", head, tuple(rows)),), tuple(goals), figures, load)


if __name__ == "__main__":
    main()
