"""Traces counted, drawn, linked and taken apart into calls, through the command line where there is a command."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from steelyard.cli.main import main
from steelyard.traces.calls import NotACall, parameters, spec_of, unique_calls
from steelyard.traces.linking import link
from steelyard.traces.reading import open_trace
from steelyard.traces.steps import Trace, read_trace
from steelyard.traces.summary import summarise
from tests.traces import made


@pytest.fixture
def trace_file(tmp_path: Path) -> Path:
    path = tmp_path / "t.json"
    path.write_text(json.dumps(made.trace(2)))
    return path


def answer(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> Any:
    assert main(["trace", *words]) == code
    out = capsys.readouterr().out
    return json.loads(out) if "--json" in words else out


def one_node(tmp_path: Path, **more: Any) -> Trace:
    path = tmp_path / "one.json"
    path.write_text(json.dumps({"schema": "1.1.1", "nodes": [made.node(1, **more)]}))
    return read_trace(path)


def test_list_counts_outermost_operators_over_all_steps(trace_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "list", str(trace_file), "--json", "--detail")
    assert [(item["op"], item["count"], item["unique"]) for item in found] == [("aten::add.Tensor", 2, 1), ("aten::cat", 2, 1)]
    tensor = {"type": "tensor", "dtype": "float", "shape": [2, 3], "requires_grad": False}
    assert found[0]["calls"][0]["input"] == {"args": [tensor, tensor], "kwargs": {"alpha": {"type": "int", "value": 1}}}
    inner = answer(capsys, "list", str(trace_file), "--json", "--all")
    assert {item["op"]: item["count"] for item in inner}["aten::view"] == 2
    text = answer(capsys, "list", str(trace_file), "--detail")
    assert "aten::cat([float[6], float[6]], 0)" in text
    assert "2 operators, 4 calls, 2 unique calls" in text


def test_tree_node_and_stats(trace_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "  4 aten::add  (float32[2, 3], float32[2, 3], 1)" in answer(capsys, "tree", str(trace_file))
    shallow = answer(capsys, "tree", str(trace_file), "--depth", "1", "--step", "1", "--json")
    assert [(item["depth"], item["name"]) for item in shallow] == [(0, "ProfilerStep#1"), (1, "aten::add"), (1, "aten::cat")]
    shown = answer(capsys, "node", str(trace_file), "5")
    assert "aten::add (4) < ProfilerStep#0 (3)" in shown and "tensor 11, storage 12+0" in shown
    assert main(["trace", "node", str(trace_file), "99"]) == 2
    stats = answer(capsys, "stats", str(trace_file), "--json")
    assert (stats["nodes"], stats["operators"], stats["outermost"], stats["storages"]) == (10, 6, 4, 4)
    assert stats["bytes"] == (6 + 6 + 6 + 12) * 4
    assert [step["label"] for step in stats["steps"]] == ["ProfilerStep#0", "ProfilerStep#1"]


def test_validate_wants_a_process_group_of_every_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = made.trace()
    groups = json.dumps([{"pg_name": "0", "ranks": [0, 1]}])
    data["nodes"] += [
        made.node(50, "record_param_comms", 3, pg_name="0"),
        made.node(51, "## process_group:init ##", 2, inputs=made.ports((groups, [], "String", []))),
        made.node(52, "triton_add", 3, kernel_backend="triton", kernel_file="k.py"),
    ]
    path = tmp_path / "t.json"
    path.write_text(json.dumps(data))
    found = answer(capsys, "validate", str(path), "--json")
    assert (found["communications"], found["triton"], found["operators"], found["groups"]) == (1, 1, 5, [{"pg_name": "0", "ranks": [0, 1]}])
    data["nodes"].append(made.node(53, "record_param_comms", 3))
    path.write_text(json.dumps(data))
    assert "node 53 (record_param_comms): it names no process group" in answer(capsys, "validate", str(path), code=3)
    pair = ([["0", "default"]], [[[], []]], "Tuple[String,String]", [[[], []]])
    data["nodes"][-1] = made.node(53, "record_param_comms", 3, inputs=made.ports((pair[0][0], pair[1][0], pair[2], pair[3][0])))
    path.write_text(json.dumps(data))
    assert not summarise(path).problems


def test_a_trace_without_nodes_is_not_valid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"schema": "1.1.1", "nodes": []}))
    assert "the trace has no nodes" in answer(capsys, "validate", str(path), code=3)


def test_graphs_can_be_read_by_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = made.trace()
    data["nodes"][1]["name"] = '<b>"\x01&\\'
    path = tmp_path / "t.json"
    path.write_text(json.dumps(data))
    answer(capsys, "graph", str(path), "-o", str(tmp_path / "g.graphml"))
    root = ET.parse(tmp_path / "g.graphml").getroot()
    space = "{http://graphml.graphdrawing.org/xmlns}"
    relations = [edge.findtext(f"{space}data") for edge in root.iter(f"{space}edge")]
    assert len(list(root.iter(f"{space}node"))) == 4
    assert relations.count("parent") == 3
    assert relations.count("data") == 1
    data["nodes"][1]["name"] = '<b>"\n&\\'
    path.write_text(json.dumps(data))
    text = answer(capsys, "graph", str(path), "--form", "dot", "--subgraph", "<b>")
    assert '[label="<b>\\"\\n&\\\\ (5)", shape=box]' in text
    assert main(["trace", "graph", str(path), "-o", str(tmp_path / "g.svg")]) == 2


@pytest.mark.parametrize(("ids", "by"), [(True, "record function ids"), (False, "names and order")])
def test_a_profilers_times_are_put_in(tmp_path: Path, capsys: pytest.CaptureFixture[str], ids: bool, by: str) -> None:
    path, other, out = tmp_path / "t.json", tmp_path / "p.json", tmp_path / "l.json.gz"
    path.write_text(json.dumps(made.trace()))
    other.write_text(json.dumps(made.profile(ids)))
    found = answer(capsys, "link", str(path), str(other), "-o", str(out), "--json")
    assert found == {"matched": 4, "nodes": 6, "kernels": 2, "lost_kernels": 0, "by": by}
    trace = read_trace(out)
    add = trace.by_id[4]
    assert add.time is not None
    assert (add.time.duration, add.time.own, add.time.kernels) == pytest.approx((10e-6, 6e-6, 2e-6))
    assert [(node.name, node.parent) for node in trace.nodes if node.on_device] == [("kernel<0>", 4), ("kernel<1>", 6)]
    with open_trace(out) as reader:
        kernels = [(node.name, node.parent, node.time.stream) for node in reader if node.on_device and node.time]
    assert kernels == [("kernel<0>", 4, 7), ("kernel<1>", 6, 7)]
    listed = answer(capsys, "list", str(out), "--json")
    assert [(item["op"], round(item["recorded"] * 1e6), round(item["kernels"] * 1e6)) for item in listed] == [
        ("aten::cat", 20, 3), ("aten::add.Tensor", 10, 2)
    ]  # fmt: skip
    assert answer(capsys, "stats", str(out), "--json")["steps"][0]["seconds"] == pytest.approx(100e-6)


def test_a_kernel_belongs_to_the_innermost_operator_however_many_ended_before_it(tmp_path: Path) -> None:
    """Launched at the end of a step of 1,800 operators, and inside one that starts together with the operator around it."""
    path, other, out = tmp_path / "t.json", tmp_path / "p.json", tmp_path / "l.json"
    nodes = made.step(count=600)
    path.write_text(json.dumps({**made.trace(), "nodes": [made.node(2, "thread", 1), *nodes, made.node(1, "process", 1)]}))
    profile = made.profile(kernels=2)
    events = profile["traceEvents"]
    launches = [event for event in events if event.get("cat") == "cuda_runtime"]
    events[:] = [event for event in events if event.get("cat") not in ("cpu_op", "user_annotation")]
    for item in nodes:
        step = item["name"] == "ProfilerStep#0"
        lasted = {"ProfilerStep#0": 1e5, "aten::add": 20.0, "aten::view": 10.0, "aten::cat": 10.0}[item["name"]]
        start = 0.0 if step else 10.0 * (item["id"] - (item["name"] == "aten::view"))
        args = {"External id": item["id"], "Record function id": item["id"]}
        category = "user_annotation" if step else "cpu_op"
        events.append({"ph": "X", "cat": category, "name": item["name"], "pid": 1, "tid": 1, "ts": start, "dur": lasted, "args": args})
    launches[0]["ts"], launches[1]["ts"] = 9e4, 45.0
    other.write_text(json.dumps(profile))
    text, report = link(path, other)
    out.write_text("".join(text()))
    assert report.lost_kernels == 0
    with open_trace(out) as reader:
        assert {(node.name, node.parent) for node in reader if node.on_device} == {("kernel<1>", 5), ("kernel<0>", 3)}


def test_traces_that_do_not_belong_together_are_told(tmp_path: Path) -> None:
    path, other = tmp_path / "t.json", tmp_path / "p.json"
    path.write_text(json.dumps(made.trace()))
    profile = made.profile()
    for event in profile["traceEvents"]:
        event["name"] += "?"
    other.write_text(json.dumps(profile))
    with pytest.raises(Exception, match="nothing in common"):
        link(path, other)
    other.write_text(json.dumps({"traceEvents": []}))
    with pytest.raises(Exception, match="no operators in this profiler's trace"):
        link(path, other)


def test_parameters_of_a_schema() -> None:
    schema = "aten::x.out(Tensor(a!)[] self, int[2] size=[1, 2], *, ScalarType? dtype=None, Tensor(b!) out) -> (Tensor(b!), Tensor)"
    assert [(item.kind, item.name, item.default, item.named) for item in parameters(schema)] == [
        ("Tensor[]", "self", "", False), ("int[2]", "size", "[1, 2]", False),
        ("ScalarType?", "dtype", "None", True), ("Tensor", "out", "", True)
    ]  # fmt: skip


def test_numbers_of_torch_become_names_and_indexes_stay_in_range(tmp_path: Path) -> None:
    weight, index = [1, 2, 0, 80, 4, "cpu"], [3, 4, 0, 5, 8, "cpu"]
    inputs = made.ports((weight, [10, 8], "Tensor(float)", [1, 10]), (index, [5], "Tensor(long int)", [1]), (4, [], "Int", []),
                        ("<None>", [], "None", []), (["<None>", 3], [[], []], "GenericList[None,Int]", [[], []]))  # fmt: skip
    schema = "aten::embedding(Tensor weight, Tensor indices, *, ScalarType? dtype=None, Device? device=None, int?[] sizes) -> Tensor"
    node = one_node(tmp_path, name="aten::embedding", parent=1, schema=schema, inputs=inputs).nodes[0]
    spec = spec_of(node)
    assert spec["args"][0]["strides"] == [1, 10]
    assert spec["args"][1]["distribution"] == {"name": "integers", "low": 0, "high": 10}
    assert spec["kwargs"] == {
        "dtype": {"type": "dtype", "value": "int64"},
        "sizes": {"type": "genericlist", "value": [{"type": "none"}, {"type": "int", "value": 3}]},
    }
    ranged = one_node(tmp_path, name="x", parent=1, schema=schema, inputs=inputs, tensor_range='{"1":[2,6]}').nodes[0]
    assert spec_of(ranged)["args"][1]["distribution"] == {"name": "integers", "low": 2, "high": 7}


def test_what_cannot_be_called_says_why(tmp_path: Path) -> None:
    odd = made.ports(("<Capsule>", [], "Capsule", []))
    node = one_node(tmp_path, name="x", parent=1, schema="my::x(Any a) -> ()", inputs=odd).nodes[0]
    with pytest.raises(NotACall, match="an argument of type Capsule"):
        spec_of(node)
    (call,) = unique_calls([node])
    assert (call.spec, call.reason, call.count) == (None, "an argument of type Capsule is not recorded", 1)
    with pytest.raises(NotACall, match="2 parameters and 1 were recorded"):
        spec_of(one_node(tmp_path, name="x", parent=1, schema="my::x(int a, int b) -> ()", inputs=odd).nodes[0])
