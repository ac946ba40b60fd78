"""What the replay's loop costs beside its calls: the same calls in a plain Python loop, in turns, in one run.

    python -m benchmarks.traces.harness [CALLS]

The trace is CALLS additions of 8 numbers, so that hardly anything but the calling is timed. Beside ours are a loop over the same
operators with their arguments in hand, torch's own Python functions, and a one-operator TorchScript graph for each call as PARAM builds.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from benchmarks.traces.record import replay

ADD = "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor"
GRAPH = """graph(%a : Tensor, %b : Tensor):
  %one : int = prim::Constant[value=1]()
  %sum : Tensor = aten::add(%a, %b, %one)
  return (%sum)"""
ROUNDS = 40


def chain(calls: int) -> dict[str, Any]:
    """A trace in which every sum is an input of the next."""

    def tensor(number: int) -> list[Any]:
        return [number, 10_000_000 + number, 0, 8, 4, "cpu"]

    def ports(*numbers: int, more: bool = False) -> dict[str, Any]:
        values, shapes, types, strides = (
            [tensor(each) for each in numbers],
            [[8]] * len(numbers),
            ["Tensor(float)"] * len(numbers),
            [[1]] * len(numbers),
        )
        last = ([1], [[]], ["Int"], [[]]) if more else ([], [], [], [])
        return {
            key: [*one, *two]
            for key, one, two in zip(("values", "shapes", "types", "strides"), (values, shapes, types, strides), last, strict=True)
        }

    def node(number: int, name: str, parent: int, schema: str = "", inputs: Any = None, outputs: Any = None) -> dict[str, Any]:
        attrs = [{"name": "op_schema", "type": "string", "value": schema}]
        return {"id": number, "name": name, "ctrl_deps": parent, "inputs": inputs or ports(), "outputs": outputs or ports(), "attrs": attrs}

    nodes = [node(10 + n, "aten::add", 1, ADD, ports(n, 5_000_000, more=True), ports(n + 1)) for n in range(calls)]
    return {"schema": "1.1.1-chakra.0.0.4", "pid": 1, "time": "", "start_ts": 1, "nodes": [*nodes, node(1, "root", 1)], "finish_ts": 2}


def main(calls: int) -> None:
    """Nanoseconds per call of each way, and what ours adds to a plain loop."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "chain.json"
        path.write_text(json.dumps(chain(calls)))
        begun = time.perf_counter()
        ours = replay(path)
        setting_up = time.perf_counter() - begun
    first, other = torch.randn(8), torch.randn(8)
    operator = torch.ops.aten.add.Tensor._op
    script = torch._C.CompilationUnit().create_function("add", torch._C.parse_ir(GRAPH))

    def looped(call: Callable[..., Any]) -> Callable[[], None]:
        def run() -> None:
            with torch.no_grad():
                value = first
                for _ in range(calls):
                    value = call(value, other)

        return run

    timed, tensors = ours.steps.timed(), ours.tensors

    def noted() -> None:
        with torch.no_grad():
            timed(*tensors)

    ways = {
        "replay": ours.run, "replay with the time of each call": noted, "loop over the same operator": looped(operator),
        "loop over torch.add": looped(torch.add), "loop over a TorchScript graph": looped(script),
    }  # fmt: skip
    took: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, run in ways.items():
            start = time.process_time()
            run()
            took[name].append((time.process_time() - start) / calls)
    base = took["loop over the same operator"]
    for name, values in took.items():
        extra = statistics.median(one - two for one, two in zip(values, base, strict=True))
        print(f"{name:<36} {statistics.median(values) * 1e9:>8.0f} ns per call   {extra * 1e9:>+7.0f} ns beside the plain loop")
    print(f"{'reading, fitting and trying':<36} {setting_up / calls * 1e6:>8.1f} us per call, once")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000)
