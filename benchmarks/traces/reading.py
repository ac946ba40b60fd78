"""Time and memory to read a large execution trace: as a stream of nodes, by steps, and counted; beside Python's json on a part of it."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from sheet import Goal, Sheet, Table, alone, count, options, quantity

MEMORY, TIME = 250e6, 180.0
"""Goals for a trace of a million nodes and 2 GB."""
PART = 20
"""Python's json reads one part in so many: it holds all that it reads."""
SCHEMA = "aten::addmm(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1) -> Tensor"
PROGRAMS = {
    "nodes": "from steelyard.traces.reading import open_trace\nwith open_trace(path) as reader:\n    found = sum(1 for node in reader)",
    "steps": "from steelyard.traces.reading import open_trace\nfrom steelyard.traces.steps import steps\n"
    "with open_trace(path) as reader:\n    found = sum(len(part.nodes) for part in steps(reader))",
    "counted": "from steelyard.traces.summary import summarise\nfound = summarise(path).nodes",
    "json": "import json\nwith open(path) as file:\n    found = len(json.load(file)['nodes'])",
}


def ports(values: list[Any], shapes: list[Any], types: list[str]) -> dict[str, Any]:
    """Inputs or outputs as PyTorch writes them."""
    return {"values": values, "shapes": shapes, "types": types, "strides": [[shape[1], 1] if shape else [] for shape in shapes]}


def node(number: int, name: str, parent: int, schema: str, size: int) -> str:
    """One node of about `size` bytes, like those of a matrix product."""
    tensors = [[7 + number % 50 * 4 + place, 8 + number % 50 * 4 + place, 0, 65536, 4, "cpu"] for place in range(4)]
    shapes: list[Any] = [[256, 256]] * 3
    inputs = ports([*tensors[:3], 1, 1], [*shapes, [], []], ["Tensor(float)"] * 3 + ["Int", "Int"]) if schema else ports([], [], [])
    outputs = ports(tensors[3:], shapes[:1], ["Tensor(float)"]) if schema else ports([], [], [])
    words = {"rf_id": number, "fw_parent": 0, "seq_id": -1, "scope": 0, "tid": 1, "fw_tid": 0, "op_schema": schema, "kernel_backend": "",
             "kernel_file": "", "tensor_range": ""}  # fmt: skip
    attrs: list[Any] = [{"name": key, "type": "string", "value": value} for key, value in words.items()]
    text = json.dumps({"id": number, "name": name, "ctrl_deps": parent, "inputs": inputs, "outputs": outputs, "attrs": attrs})
    padding = size - len(text) - 50
    if padding > 0:
        attrs.append({"name": "stack", "type": "string", "value": "x" * padding})
        text = json.dumps({"id": number, "name": name, "ctrl_deps": parent, "inputs": inputs, "outputs": outputs, "attrs": attrs})
    return text


def write(path: Path, nodes: int, size: int, per_step: int) -> int:
    """A trace of that many nodes and about that many bytes, in steps; gives its size."""
    each = size // nodes
    with path.open("w") as file:
        file.write('{"schema": "1.1.1-chakra.0.0.4", "pid": 1, "time": "2026-01-02 03:04:05", "start_ts": 1,\n"nodes": [\n')
        number = 2
        while number < nodes:
            label = number
            for place in range(label + 1, min(label + per_step, nodes)):
                file.write(node(place, "aten::addmm", label, SCHEMA, each) + ",\n")
            file.write(node(label, f"ProfilerStep#{label // per_step}", 1, "", each) + ",\n")
            number = label + per_step
        file.write(node(1, "[pytorch|profiler|execution_trace|process]", 1, "", each) + '\n], "finish_ts": 2}\n')
    return path.stat().st_size


def measure(program: str, path: Path) -> tuple[float, float, int]:
    """CPU seconds, peak bytes of a process of its own, and how many nodes it found."""
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    begin, end = f"import os\nfrom pathlib import Path\npath = Path({str(path)!r})", f"os.write({writer}, str(found).encode())"
    text = f"{begin}\n{PROGRAMS[program]}\n{end}"
    environment = {**os.environ, "STEELYARD_MAX_FILE": "64GiB"}
    pid = os.posix_spawn(sys.executable, [sys.executable, "-c", text], environment)
    os.close(writer)
    _, status, usage = os.wait4(pid, 0)
    with os.fdopen(reader, "rb") as pipe:
        found = pipe.read()
    if status:
        raise SystemExit(f"{program}: the process ended with {os.waitstatus_to_exitcode(status)}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, int(found)


def main() -> None:
    """Make a trace, read it in each way in a process of its own, and print time and memory."""
    parser = options(__doc__)
    parser.add_argument("--nodes", type=count, default=1_000_000, help="nodes of the trace (default 1 M)")
    parser.add_argument("--bytes", type=count, default=2_000_000_000, help="its size (default 2 GB)")
    parser.add_argument("--per-step", type=count, default=10_000, help="nodes of a step (default 10 k)")
    chosen = parser.parse_args()
    load, figures, rows = os.getloadavg(), dict[str, Any](), []
    with tempfile.TemporaryDirectory() as folder, alone("benchmark traces"):
        whole, part = Path(folder) / "trace.json", Path(folder) / "part.json"
        sizes = {whole: write(whole, chosen.nodes, chosen.bytes, chosen.per_step)}
        sizes[part] = write(part, max(2, chosen.nodes // PART), chosen.bytes // PART, chosen.per_step)
        for program in PROGRAMS:
            path = part if program == "json" else whole
            seconds, peak, nodes = measure(program, path)
            figures[program] = {"seconds": seconds, "peak": peak, "nodes": nodes, "bytes": sizes[path]}
            rows.append((program, str(nodes), quantity(sizes[path], "B"), quantity(seconds, "s"), quantity(peak, "B"),
                         quantity(seconds / nodes, "s")))  # fmt: skip
    table = Table(f"Reading a trace of {chosen.nodes} nodes in steps of {chosen.per_step}; json reads 1/{PART} of it",
                  ("how", "nodes", "size", "CPU time", "peak memory", "per node"), tuple(rows))  # fmt: skip
    goals = (Goal("peak memory of reading by steps", figures["steps"]["peak"], MEMORY, "B"),
             Goal("CPU time of reading by steps", figures["steps"]["seconds"], TIME, "s"))  # fmt: skip
    Sheet("traces/reading", (table,), goals, figures, load).hand_in(chosen.json)


if __name__ == "__main__":
    main()
