"""Traces of every schema mean the same, and broken ones are refused with the node's name."""

from __future__ import annotations

import copy
import gzip
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from steelyard.errors import SteelyardError
from steelyard.files import TooLarge
from steelyard.traces import stream
from steelyard.traces.nodes import BadTrace, TraceNode, parse_type
from steelyard.traces.reading import SCHEMAS, open_trace
from steelyard.traces.steps import Trace, read_trace, steps
from tests.traces import made


def saved(folder: Path, data: Any, name: str = "t.json") -> Path:
    path = folder / name
    path.write_text(data if isinstance(data, str) else json.dumps(data), encoding="utf-8")
    return path


def read_all(path: Path) -> list[TraceNode]:
    with open_trace(path) as reader:
        return list(reader)


def parts(path: Path) -> list[Trace]:
    with open_trace(path) as reader:
        return list(steps(reader))


@pytest.mark.parametrize("version", SCHEMAS)
def test_every_schema_means_the_same(tmp_path: Path, version: str) -> None:
    trace = read_trace(saved(tmp_path, made.in_schema(version)))
    assert [node.overload for node in trace.outermost] == ["aten::add.Tensor", "aten::cat"]
    add, cat = trace.outermost
    left, right, alpha = add.inputs
    assert (left.value.tensor, left.value.storage, left.value.shape, left.value.dtype) == (7, 8, (2, 3), "float32")
    assert left.value.strides == ((3, 1) if version == "1.1.1" else None)
    assert left.value.device == ("" if version in ("1.0.1", "1.0.2") else "cpu")
    assert (right.kind, alpha.kind, alpha.value) == ("tensor", "int", 1)
    assert [ref.storage for ref in cat.inputs[0].tensors()] == [12, 12]
    assert [node.name for node in trace.above(trace.by_id[5])] == ["aten::add", "ProfilerStep#0"]
    assert trace.header.schema.startswith(version)


def test_chakras_own_messages_mean_the_same(tmp_path: Path) -> None:
    path = saved(tmp_path, made.chakra())
    assert [(node.id, node.overload, node.inputs) for node in read_all(path)] == [
        (node.id, node.overload, node.inputs) for node in read_all(saved(tmp_path, made.in_schema("1.0.4"), "b.json"))
    ]
    assert [node.name for node in read_trace(path).outermost] == ["aten::add", "aten::cat"]


def test_gzip_is_undone_and_a_cut_one_is_told(tmp_path: Path) -> None:
    path = tmp_path / "t.json.gz"
    path.write_bytes(gzip.compress(json.dumps(made.trace()).encode()))
    assert len(read_all(path)) == 6
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(BadTrace, match="cannot be unpacked"):
        read_all(path)


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "packed"])
@pytest.mark.parametrize("sort_keys", [False, True], ids=["as PyTorch ends it", "as others end it"])
def test_a_cut_trace_is_refused_though_the_step_that_is_asked_for_is_there(tmp_path: Path, packed: bool, sort_keys: bool) -> None:
    path = tmp_path / ("t.json.gz" if packed else "t.json")
    data = made.trace(3)
    data["nodes"] += [made.node(number, "aten::add", 2, made.ADD) for number in range(100, 2000)]
    text = json.dumps(data, sort_keys=sort_keys).encode()
    for end in (None, -1, -30, -len(text) // 3):
        path.write_bytes(gzip.compress(text[:end]) if packed else text[:end])
        if end is None:
            assert read_trace(path, step=0).label == "ProfilerStep#0"
            continue
        with pytest.raises(BadTrace, match=r"ends too early|ends before|not valid JSON") as told:
            read_trace(path, step=0)
        assert "cut off" in told.value.do, end


def test_a_step_of_a_large_trace_is_read_without_what_follows(tmp_path: Path) -> None:
    data = made.trace(2)
    data["nodes"][-1]["name"] = None
    path = saved(tmp_path, data)
    assert read_trace(path, step=0).label == "ProfilerStep#0", "the node that makes no sense is behind it"
    with pytest.raises(BadTrace, match="its name is not text"):
        read_trace(path, step=2)
    del data["schema"]
    with pytest.raises(BadTrace, match=r"the trace names no schema|its name is not text"):
        read_trace(saved(tmp_path, data), step=0)


def test_steps_come_one_by_one_in_either_order(tmp_path: Path) -> None:
    data = made.trace(3)
    ends = parts(saved(tmp_path, data))
    assert [part.label for part in ends] == ["", "ProfilerStep#0", "ProfilerStep#1", "ProfilerStep#2", ""]
    data["nodes"].sort(key=lambda node: node["id"])
    begins = parts(saved(tmp_path, data))
    assert [part.label for part in begins] == ["", "ProfilerStep#0", "ProfilerStep#1", "ProfilerStep#2"]
    for one, other in zip(ends[1:4], begins[1:], strict=True):
        assert [node.id for node in one.nodes] == [node.id for node in other.nodes]
    second = read_trace(saved(tmp_path, data), step=1)
    assert (second.label, [node.id for node in second.outermost]) == ("ProfilerStep#1", [8, 10])
    with pytest.raises(SteelyardError, match="no step 3"):
        read_trace(saved(tmp_path, data), step=3)


def test_a_trace_without_steps_is_one(tmp_path: Path) -> None:
    path = saved(tmp_path, made.trace(2, labels=False))
    assert len(read_trace(path).outermost) == 4
    assert [node.id for node in read_trace(path, subgraph="add").nodes] == [4, 5]
    with pytest.raises(SteelyardError, match="no node's name contains 'mul'"):
        read_trace(path, subgraph="mul")


def test_the_schema_may_come_after_the_nodes(tmp_path: Path) -> None:
    text = json.dumps(made.in_schema("1.0.1"), sort_keys=True)
    assert len(read_all(saved(tmp_path, text))) == 10


def bent(change: Any) -> dict[str, Any]:
    data = copy.deepcopy(made.trace())
    change(data["nodes"][2], data)
    return data


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda node, data: node.update(id=True), "node True (aten::add): its id is not a count"),
        (lambda node, data: node.update(id=2**70), "node number 3: its id is not a count"),
        (lambda node, data: node.update(id=5), "node 5 (aten::add): an earlier node has the same id"),
        (lambda node, data: node.update(ctrl_deps=[3]), "node 4 (aten::add): the id of its parent"),
        (lambda node, data: node.update(ctrl_deps=5), "it runs inside itself"),
        (lambda node, data: node.update(name=None), "node 4: its name is not text"),
        (lambda node, data: node["inputs"]["shapes"].pop(), "node 4 (aten::add): inputs have 3 values, 2 shapes and 3 types"),
        (lambda node, data: node["inputs"].update(types=[1, 2, 3]), "a type of its inputs is not text"),
        (lambda node, data: node["attrs"].append({"name": "rf_id", "value": 2**70}), "rf_id is not a 64-bit number"),
        (lambda node, data: node["attrs"].append({"name": "tensor_range", "value": '{"0":[2,1]}'}), "tensor_range"),
        (lambda node, data: node.update(attrs=[{}]), "one of its attrs has no name"),
        (lambda node, data: data.update(schema="9.9.9"), "schema '9.9.9' is unknown"),
        (lambda node, data: data.update(nodes=7), "expected '[', not '7'"),
        (lambda node, data: data["nodes"].insert(2, 5), "node number 3: it is not an object"),
        (lambda node, data: data.pop("nodes"), "it has no nodes; its keys: finish_ts"),
    ],
)
def test_mistakes_name_the_node(tmp_path: Path, change: Any, message: str) -> None:
    with pytest.raises(BadTrace) as caught:
        parts(saved(tmp_path, bent(change)))
    assert message in str(caught.value)
    assert "t.json" in str(caught.value)


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        ("values", [[7, 8, 0, 6], [7], 1], "inputs[0]: a tensor does not have 5 or 6 numbers"),
        ("values", [[7, 8, -1, 6, 4, "cpu"], made.Y, 1], "inputs[0]: a tensor's id is negative or too large"),
        ("values", [made.X, made.Y, "a"], "inputs[2]: an int is not a whole number"),
        ("values", [made.X, made.Y, 10**400], "inputs[2]: an int is not a whole number"),
        ("shapes", [["a"], [2, 3], []], "inputs[0]: a size in a tensor's shape is a, not a count"),
        ("shapes", [[2], [2, 3], []], "inputs[0]: a tensor has 1 dimensions and 2 strides"),
        ("types", ["GenericList[Int]", made.FLOAT, "Int"], "inputs[0]: the value of a GenericList of 1 has 6"),
        ("types", ["GenericList[Int", made.FLOAT, "Int"], "is cut off"),
        ("types", ["X[" * 50 + "]" * 50, made.FLOAT, "Int"], "nested more than 20 deep"),
        ("types", ["Tensor(float)]", made.FLOAT, "Int"], "cannot be read"),
    ],
)
def test_arguments_that_mean_nothing_name_the_node(tmp_path: Path, place: str, value: Any, message: str) -> None:
    nodes = read_all(saved(tmp_path, bent(lambda node, data: node["inputs"].update({place: value}))))
    with pytest.raises(BadTrace) as caught:
        _ = nodes[2].inputs
    assert message in str(caught.value)
    assert "node 4 (aten::add)" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "it does not begin"), ("[1]", "it does not begin"), ('{"schema"', "the file ends too early"), ("{}", "its keys: none"),
        (json.dumps(made.trace())[:900], "cut off"), (json.dumps(made.trace()) + "x", "something follows"),
        ('{"schema":"1.1.1","nodes":[' + "[" * 100_000, "nested too deep"),
        ('{"schema":"1.1.1","nodes":[{"id":' + "9" * 5000 + "}]}", "cannot be read"),
        ('{"schema":"1.1.1","nodes":[{"id":1 "name":2}]' + " " * 50 + "}", "node number 1 is not valid JSON"),
        ('{"version":"0.0.4"}\n{"id":"1","inputs":{"values":"__import__(1)"}}', "values is a text that is not a list"),
    ],
)  # fmt: skip
def test_texts_that_are_no_trace(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(BadTrace) as caught:
        read_all(saved(tmp_path, text))
    assert message in str(caught.value)


def test_a_node_or_a_step_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "WINDOW", 64)
    path = saved(tmp_path, made.trace(20))
    monkeypatch.setenv("STEELYARD_MAX_FILE", "1000")
    with pytest.raises(TooLarge):
        read_all(path)
    packed = tmp_path / "bomb.json.gz"
    packed.write_bytes(gzip.compress(b'{"a":"' + b"x" * 100_000 + b'"}'))
    with pytest.raises(TooLarge):
        read_all(packed)


def test_a_small_window_reads_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(tmp_path, made.trace(3))
    whole = [(node.id, node.name, node.inputs) for node in read_all(path)]
    for size in (1, 7, 61):
        monkeypatch.setattr(stream, "WINDOW", size)
        assert [(node.id, node.name, node.inputs) for node in read_all(path)] == whole


def test_memory_is_that_of_a_step_not_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "WINDOW", 2**14)
    path = saved(tmp_path, made.trace(400))
    size = path.stat().st_size
    tracemalloc.start()
    with open_trace(path) as reader:
        count = sum(len(part.nodes) for part in steps(reader))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 400 * 4 + 2
    assert size > 1.4e6 and peak < 4e5


def test_types() -> None:
    assert parse_type("Tensor(nullptr (uninitialized))").dtype == "nullptr (uninitialized)"
    listed = parse_type("GenericList[Tensor(c10::BFloat16),GenericList[Int,None],Tuple[]]")
    assert listed.items is not None
    assert [item.word for item in listed.items] == ["Tensor", "GenericList", "Tuple"]
    assert listed.items[2].items == ()


leaves = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.just([]), st.just({}), st.just(10**50))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_mutations_never_crash(tmp_path: Path, data: st.DataObject) -> None:
    """Any value in a trace replaced by any other: it is read, or refused with an error of ours."""
    whole = copy.deepcopy(made.in_schema(data.draw(st.sampled_from(SCHEMAS))))
    at: Any = whole
    while isinstance(at, (dict, list)) and at:
        keys = list(at) if isinstance(at, dict) else list(range(len(at)))
        key = data.draw(st.sampled_from(keys))
        if not isinstance(at[key], (dict, list)) or not at[key] or data.draw(st.integers(0, 6)) == 0:
            at[key] = data.draw(leaves)
            break
        at = at[key]
    path = saved(tmp_path, whole)
    try:
        for part in parts(path):
            for node in part.nodes:
                assert all(argument.kind for argument in (*node.inputs, *node.outputs))
    except SteelyardError as error:
        assert "t.json" in str(error) or "node " in str(error)
