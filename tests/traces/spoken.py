"""Traces of ranks that speak to each other, made by hand: operators of c10d, and what NCCL's backend writes of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.traces.made import flat, node, ports

FLOAT = "Tensor(float)"
GROUP, WORK = "__torch__.torch.classes.c10d.ProcessGroup process_group", "__torch__.torch.classes.c10d.Work"
OP = "__torch__.torch.classes.c10d.ReduceOp reduce_op"
REST = "bool async_op=True, int timeout=-1"
ALL_REDUCE = f"c10d::allreduce_(Tensor[] tensors, {GROUP}, {OP}, Tensor? sparse_indices, {REST}) -> (Tensor[], {WORK})"
BROADCAST = f"c10d::broadcast_(Tensor[] tensors, {GROUP}, int root_rank, int root_tensor, {REST}) -> (Tensor[], {WORK})"
ALL_GATHER = f"c10d::allgather_(Tensor[][] output_tensors, Tensor[] input_tensors, {GROUP}, {REST}) -> (Tensor[][], {WORK})"
SWAP = f"c10d::alltoall_base_(Tensor output, Tensor input, {GROUP}, int[] output_split_sizes, int[] input_split_sizes, {REST}) -> {WORK}"
SEND = f"c10d::send(Tensor[] tensors, {GROUP}, int dst, int tag) -> {WORK}"
RECV = f"c10d::recv_(Tensor[] tensors, {GROUP}, int src, int tag) -> {WORK}"
BARRIER = f"c10d::barrier(Tensor tensor, {GROUP}, int[] device_ids, {REST}) -> {WORK}"
OBJECT = ("<Object>", [], "Object", [])
NONE = ("<None>", [], "None", [])

Port = tuple[Any, Any, str, Any]


def tensor(number: int, count: int, kind: str = FLOAT) -> Port:
    """A flat tensor as a port has it."""
    return [number, number + 1000, 0, count, 4, "cpu"], [count], kind, [1]


def listed(*items: Port) -> Port:
    """A list of ports as one."""
    return (
        [item[0] for item in items],
        [item[1] for item in items],
        f"GenericList[{','.join(item[2] for item in items)}]",
        [item[3] for item in items],
    )


def number(value: int) -> Port:
    return value, [], "Int", []


def numbers(values: list[int]) -> Port:
    return values, [[]] * len(values), f"GenericList[{','.join('Int' for _ in values)}]", [[]] * len(values)


def yes(value: bool) -> Port:
    return value, [], "Bool", []


def operator(at: int, schema: str, *inputs: Port, outputs: tuple[Port, ...] = (OBJECT,), parent: int = 2) -> dict[str, Any]:
    """A node of c10d."""
    return node(at, schema.partition("(")[0], parent, schema, ports(*inputs), ports(*outputs))


def all_reduce(at: int, count: int = 8, *, waits: bool = True) -> dict[str, Any]:
    data = listed(tensor(at + 500, count))
    return operator(at, ALL_REDUCE, data, OBJECT, OBJECT, NONE, yes(not waits), number(-1), outputs=(data, OBJECT))


def broadcast(at: int, root: int, count: int = 8) -> dict[str, Any]:
    data = listed(tensor(at + 500, count))
    return operator(at, BROADCAST, data, OBJECT, number(root), number(0), yes(False), number(-1), outputs=(data, OBJECT))


def all_gather(at: int, size: int, count: int = 8) -> dict[str, Any]:
    out = listed(listed(*(tensor(at + 500 + place, count) for place in range(size))))
    return operator(at, ALL_GATHER, out, listed(tensor(at + 600, count)), OBJECT, yes(False), number(-1), outputs=(out, OBJECT))


def swap(at: int, outs: list[int], ins: list[int]) -> dict[str, Any]:
    out, data = tensor(at + 500, sum(outs)), tensor(at + 600, sum(ins))
    return operator(at, SWAP, out, data, OBJECT, numbers(outs), numbers(ins), yes(False), number(-1))


def send(at: int, to: int, count: int = 8) -> dict[str, Any]:
    return operator(at, SEND, listed(tensor(at + 500, count)), OBJECT, number(to), number(0))


def receive(at: int, source: int, count: int = 8, parent: int = 2) -> dict[str, Any]:
    return operator(at, RECV, listed(tensor(at + 500, count)), OBJECT, number(source), number(0), parent=parent)


def barrier(at: int) -> dict[str, Any]:
    return operator(at, BARRIER, tensor(at + 500, 1, "Tensor(unsigned char)"), OBJECT, numbers([]), yes(False), number(-1))


def backend(
    at: int, name: str, count: int = 8, *, request: int = 1, group: Any = ("7", "desc"), rank: int = 0,
    splits: tuple[list[int], list[int]] = ([], []),
    place: tuple[int, int, int] | None = None, parent: int = 2,
) -> dict[str, Any]:  # fmt: skip
    """What NCCL's backend writes; old ones have numbers for group and request, and say nothing of the group's place."""
    new = isinstance(group, tuple)
    told: list[Port] = [
        ([request, False], [[], []], "Tuple[Int,Bool]", [[], []]) if new else number(request),
        (list(group), [[], []], "Tuple[String,String]", [[], []]) if new else number(group),
        number(rank), (name, [], "String", []), numbers(splits[0]), numbers(splits[1]), *(number(value) for value in place or ()),
    ]  # fmt: skip
    data = [listed(tensor(at + 500, count))] if count else []
    return node(at, "record_param_comms", parent, "", ports(*data, *told), ports(*data))


def groups(at: int, *items: dict[str, Any]) -> dict[str, Any]:
    """The list of process groups that PyTorch writes first."""
    return node(at, "## process_group:init ##", 2, "", ports((json.dumps(items), [], "String", [])))


def whole(size: int) -> dict[str, Any]:
    """The group of all as that list has it."""
    return {"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cpu:gloo", "ranks": [], "group_size": size, "group_count": 1}


def write(path: Path, *nodes: dict[str, Any], schema: str = "1.1.1-chakra.0.0.4") -> Path:
    """A whole trace of these nodes."""
    every = [*nodes, node(2, "[pytorch|profiler|execution_trace|thread]", 1), node(1, "[pytorch|profiler|execution_trace|process]", 1)]
    data = {"schema": schema, "pid": 1, "time": "", "start_ts": 1, "nodes": every, "finish_ts": 2}
    if schema.startswith(("1.0", "1.1.0")):
        for item in every:
            for side in ("inputs", "outputs"):
                item[side].pop("strides", None)
            item["attrs"] = [attr for attr in item["attrs"] if attr["name"] != "tensor_range"]
    if schema == "1.0.1":
        data["nodes"] = [flat(item) for item in every]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data))
    return path


def pair(folder: Path) -> Path:
    """Two ranks with a bit of everything, an uneven exchange and messages both ways among it."""
    for rank in range(2):
        other = 1 - rank
        write(
            folder / f"rank-{rank}.json", groups(3, whole(2)), all_reduce(4, 64), broadcast(5, 1), all_gather(6, 2),
            swap(7, *([[6, 2]] * 2 if rank else [[2, 6]] * 2)),
            send(8, other), receive(9, other, parent=8), barrier(10), all_reduce(11, 16, waits=False),
        )  # fmt: skip
    return folder
