"""Small traces made by hand, one step of the same work in every schema."""

from __future__ import annotations

import copy
import json
from typing import Any

ADD = "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor"
VIEW = "aten::view(Tensor(a) self, SymInt[] size) -> Tensor(a)"
CAT = "aten::cat(Tensor[] tensors, int dim=0) -> Tensor"
FLOAT = "Tensor(float)"

X, Y, SUM, FLAT = [7, 8, 0, 6, 4, "cpu"], [9, 10, 0, 6, 4, "cpu"], [11, 12, 0, 6, 4, "cpu"], [13, 12, 0, 6, 4, "cpu"]
JOINED = [14, 15, 0, 12, 4, "cpu"]


def ports(*items: tuple[Any, Any, str, Any]) -> dict[str, list[Any]]:
    """Inputs or outputs from (value, shape, type, strides)."""
    return {key: [item[place] for item in items] for place, key in enumerate(("values", "shapes", "types", "strides"))}


def node(number: int, name: str, parent: int, schema: str = "", inputs: Any = None, outputs: Any = None, **more: Any) -> dict[str, Any]:
    """A node of schema 1.1.1."""
    words = {"rf_id": number, "fw_parent": 0, "seq_id": -1, "scope": 0 if schema else 7, "tid": 1, "fw_tid": 0, "op_schema": schema,
             "kernel_backend": "", "kernel_file": "", "tensor_range": "", **more}  # fmt: skip
    attrs = [{"name": key, "type": "string" if isinstance(value, str) else "uint64", "value": value} for key, value in words.items()]
    return {"id": number, "name": name, "ctrl_deps": parent, "inputs": inputs or ports(), "outputs": outputs or ports(), "attrs": attrs}


def step(first: int = 3, label: str = "ProfilerStep#0", count: int = 1) -> list[dict[str, Any]]:
    """`count` times an add with a view inside, and a cat after it, under a label, in the order in which they end."""
    found, at = [], first
    for _ in range(count):
        a, b = (X, [2, 3], FLOAT, [3, 1]), (Y, [2, 3], FLOAT, [3, 1])
        out = (SUM, [2, 3], FLOAT, [3, 1])
        found.append(
            node(at + 2, "aten::view", at + 1, VIEW, ports(out, ([6], [[]], "GenericList[Int]", [[]])), ports((FLAT, [6], FLOAT, [1])))
        )
        found.append(node(at + 1, "aten::add", first, ADD, ports(a, b, (1, [], "Int", [])), ports(out)))
        pair = ([FLAT, FLAT], [[6], [6]], f"GenericList[{FLOAT},{FLOAT}]", [[1], [1]])
        found.append(node(at + 3, "aten::cat", first, CAT, ports(pair, (0, [], "Int", [])), ports((JOINED, [12], FLOAT, [1]))))
        at += 3
    return [*found, node(first, label, 2)]


def trace(steps: int = 1, schema: str = "1.1.1-chakra.0.0.4", *, labels: bool = True) -> dict[str, Any]:
    """A whole trace as PyTorch writes it."""
    nodes = [node(2, "[pytorch|profiler|execution_trace|thread]", 1)]
    for number in range(steps):
        nodes += step(3 + 4 * number, f"ProfilerStep#{number}" if labels else "## work ##")
    nodes.append(node(1, "[pytorch|profiler|execution_trace|process]", 1))
    return {"schema": schema, "pid": 1, "time": "2026-01-02 03:04:05", "start_ts": 1, "nodes": nodes, "finish_ts": 2}


def in_schema(version: str) -> dict[str, Any]:
    """The same trace as an older PyTorch would have written it."""
    data = trace(2, version if version in ("1.0.1",) else f"{version}-chakra.0.0.4")
    if version == "1.1.1":
        return data
    for item in data["nodes"]:
        for side in ("inputs", "outputs"):
            del item[side]["strides"]
        item["attrs"] = [attr for attr in item["attrs"] if attr["name"] != "tensor_range"]
    if version in ("1.0.1", "1.0.2"):
        _old_ids(data)
    if version == "1.0.1":
        data["nodes"] = [flat(item) for item in data["nodes"]]
    return data


def chakra_messages() -> list[Any]:
    """The same trace as Chakra's own messages: the whole's first, then one for each node."""
    found: list[Any] = [{"version": "0.0.4"}]
    for item in in_schema("1.0.4")["nodes"]:
        kinds = {attr["name"]: "stringVal" if isinstance(attr["value"], str) else "int64Val" for attr in item["attrs"]}
        attrs = [{"name": attr["name"], kinds[attr["name"]]: str(attr["value"])} for attr in item["attrs"]]
        made = {"id": str(item["id"]), "name": item["name"], "type": "COMP_NODE", "ctrlDeps": [str(item["ctrl_deps"])], "attr": attrs}
        for side in ("inputs", "outputs"):
            made[side] = {key: str(value) for key, value in item[side].items()}
        found.append(made)
    return found


def chakra() -> str:
    """Those in JSON, one after another."""
    return "\n".join(json.dumps(message, indent=2) for message in chakra_messages())


def profile(ids: bool = True, kernels: int = 2) -> dict[str, Any]:
    """A profiler's trace of `trace()`: an add of 10 µs with a view of 4 µs inside, a cat of 20 µs, and kernels that they launched."""
    events = [("ProfilerStep#0", 3, 0.0, 100.0), ("aten::add", 4, 10.0, 10.0), ("aten::view", 5, 12.0, 4.0), ("aten::cat", 6, 30.0, 20.0)]
    found: list[Any] = []
    for name, number, start, lasted in events:
        args = {"External id": number, "Record function id": number} if ids else {}
        category = "user_annotation" if name.startswith("Prof") else "cpu_op"
        found.append({"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 1, "ts": start, "dur": lasted, "args": args})
    for place in range(kernels):
        launch = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 18.0 + 20 * place, "dur": 1.0}
        found.append({**launch, "args": {"correlation": place}})
        kernel = {"ph": "X", "cat": "kernel", "name": f"kernel<{place}>", "pid": 0, "tid": 7, "ts": 60.0 + place, "dur": 2.0 + place}
        found.append({**kernel, "args": {"correlation": place, "stream": 7}})
    return {"schemaVersion": 1, "traceEvents": [{"ph": "M", "name": "process_name"}, *found]}


def _old_ids(data: Any) -> None:
    """Tensors by five numbers, without their device."""
    for item in data["nodes"]:
        for side in ("inputs", "outputs"):
            item[side]["values"] = copy.deepcopy(item[side]["values"])
            for value in item[side]["values"]:
                for tensor in (
                    [value]
                    if isinstance(value, list) and value and not isinstance(value[0], list)
                    else value
                    if isinstance(value, list)
                    else ()
                ):
                    if len(tensor) == 6:
                        del tensor[5]


def flat(item: Any) -> dict[str, Any]:
    """A node as schema 1.0.1 has it."""
    made = {"id": item["id"], "name": item["name"], "parent": item["ctrl_deps"]}
    made |= {attr["name"]: attr["value"] for attr in item["attrs"] if not attr["name"].startswith("kernel")}
    for side in ("input", "output"):
        ports_of = item[f"{side}s"]
        made |= {f"{side}s": ports_of["values"], f"{side}_shapes": ports_of["shapes"], f"{side}_types": ports_of["types"]}
    return made
