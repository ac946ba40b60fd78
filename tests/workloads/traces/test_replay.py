"""The replay: all of a recorded training step, forms and memory as recorded, indices in range, and nothing that a trace may not do."""

from __future__ import annotations

import json
import random
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from steelyard import registry  # noqa: E402
from steelyard.backends.torch import Torch  # noqa: E402
from steelyard.errors import NotApplied, Unsupported, UsageError  # noqa: E402
from steelyard.model.case import Case  # noqa: E402
from steelyard.model.experiment import Settings  # noqa: E402
from steelyard.workloads.traces import _task  # noqa: E402
from tests.workloads.traces import recorded as made  # noqa: E402

DEFAULTS: dict[str, Any] = {
    "what": "full", "subgraph": "", "step": None, "skip": None, "imports": None, "allocation": "auto", "coverage": 0,
}  # fmt: skip


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made.record(tmp_path_factory.mktemp("trace") / "step.json", made.training_step())


def build(path: Path, allow: tuple[str, ...] = (), **params: Any) -> Any:
    body = registry.built_ins().workloads["trace"].bodies["torch"]
    return body(file=str(path), be=Torch(seed=1), settings=Settings(allow=allow), **{**DEFAULTS, **params})


def skipped(task: Any) -> dict[str, str]:
    return {row["operator"]: row["why"] for row in task.effective["replay"]["skipped"]}


def test_a_training_step_is_replayed_whole_with_its_optimizer(training: Path) -> None:
    task = build(training)
    facts = task.effective["replay"]
    assert facts["skipped"] == [] and facts["unlike_recorded"] == [] and facts["replayed"] == facts["operators"] > 40
    assert facts["shares"] == {"operators": 1.0, "time": None, "flops": 1.0, "bytes": 1.0}
    assert facts["opened"] > 0
    for _ in range(3):
        answer = task()
    assert answer["coverage"] == 1.0 and answer["unlike"] == 0
    reading = task.reading(answer)
    assert reading.seconds > 0 and sum(reading.parts.values()) == pytest.approx(reading.seconds * 1e9)
    assert {"op:aten::_foreach_addcmul_", "op:aten::native_layer_norm_backward"} <= set(reading.parts)


def test_what_operators_allocate_is_told_where_it_is_asked_for(training: Path) -> None:
    body = registry.built_ins().workloads["trace"].bodies["torch"]
    task = body(file=str(training), be=Torch(seed=1), settings=Settings(peak_memory=True), **DEFAULTS)
    task.reading(task())
    rows = task.findings().facts["replay_memory"]
    assert sum(row["calls"] for row in rows) == task.effective["replay"]["replayed"]
    assert rows == sorted(rows, key=lambda row: -row["allocated"]) and {row["reserved"] for row in rows} == {None}
    by_name = {row["operator"]: row["allocated"] for row in rows}
    assert by_name["aten::mm"] > 0 and by_name["aten::_foreach_addcmul_.Scalar"] == by_name["aten::t"] == 0
    plain = build(training)
    plain.reading(plain())
    assert "replay_memory" not in plain.findings().facts


def test_what_a_task_found_out_has_each_call_and_a_timeline(training: Path) -> None:
    task = build(training)
    task.reading(task())
    found = task.findings()
    rows = found.facts["replay_operators"]
    assert rows == sorted(rows, key=lambda row: -row["time"]) and sum(row["calls"] for row in rows) == task.effective["replay"]["replayed"]
    count = len(found.arrays["replay_time"][2]) // 8
    assert count == task.effective["replay"]["replayed"] and "recorded_time" not in found.arrays


def test_a_replay_has_no_graph_to_compile(training: Path) -> None:
    with pytest.raises(NotApplied, match="no graph to compile"):
        registry.built_ins().variants["compile"].apply(build(training), Torch(seed=1))


def test_kinds_with_figures_of_their_own_are_the_same_in_every_build(training: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arms of a pair are compared by what all of their builds tell; a rest that is made of other kinds in each would be none."""
    monkeypatch.setattr(_task, "MOST_KINDS", 5)
    first, second = (build(training), build(training))
    parts = [tuple(task.reading(task()).parts) for task in (first, second)]
    assert parts[0] == parts[1] and len(parts[0]) == 5 and "op:others" not in parts[0]
    assert "op:aten::mm" in parts[0]
    reading = first.reading(first())
    assert sum(reading.parts.values()) < reading.seconds * 1e9


def test_lazy_tensors_give_the_same_calls_in_less_memory(training: Path) -> None:
    task = build(training, allocation="lazy")
    assert task.effective["replay"]["allocation"] == "lazy" and task.args == ()
    assert task()["coverage"] == 1.0


def test_an_operator_inside_is_called_where_a_later_one_reads_what_it_made(tmp_path: Path) -> None:
    weight, x, out, inner, grad = (made.tensor(number, [4, 4]) for number in (10, 11, 12, 13, 14))
    nodes = [
        made.call(4, "aten::t(Tensor(a) self) -> Tensor(a)", [weight], [made.tensor(13, [4, 4], storage=1010, strides=[1, 4])], 3),
        made.call(5, made.MM, [x, made.tensor(13, [4, 4], storage=1010, strides=[1, 4])], [out], 3),
        made.call(
            3, "aten::linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor", [x, weight, made.plain("<None>", "None")], [out]
        ),
    ]
    alone = build(made.write(tmp_path / "alone.json", *nodes))
    assert alone.effective["replay"]["operators"] == 1 and alone.effective["replay"]["opened"] == 0
    nodes.append(made.call(6, made.MM, [out, made.tensor(13, [4, 4], storage=1010, strides=[1, 4])], [grad]))
    task = build(made.write(tmp_path / "both.json", *nodes))
    assert task.effective["replay"]["operators"] == 3 and task.effective["replay"]["opened"] == 1
    assert len(task.args) == 2
    del inner


def test_tensors_of_one_storage_share_memory_and_strides(tmp_path: Path) -> None:
    whole, part = made.tensor(10, [4, 4], storage=50), made.tensor(11, [2, 4], storage=50, offset=8)
    nodes = [made.call(3, made.MM, [whole, whole], [made.tensor(12, [4, 4])]), made.call(4, made.RELU, [part], [made.tensor(13, [2, 4])])]
    task = build(made.write(tmp_path / "shared.json", *nodes))
    first, second = task.args
    assert first.untyped_storage().data_ptr() == second.untyped_storage().data_ptr() and second.storage_offset() == 8
    turned = made.tensor(10, [3, 5], strides=[1, 3])
    task = build(made.write(tmp_path / "turned.json", made.call(3, made.RELU, [turned], [made.tensor(12, [3, 5], strides=[1, 3])])))
    assert task.args[0].stride() == (1, 3)


def test_a_view_without_an_operator_is_made_again_in_each_iteration(tmp_path: Path) -> None:
    out, view = made.tensor(11, [4, 4], storage=60), made.tensor(99, [2, 4], storage=60, offset=4)
    nodes = [made.call(3, made.RELU, [made.tensor(10, [4, 4])], [out]), made.call(4, made.RELU, [view], [made.tensor(12, [2, 4])])]
    task = build(made.write(tmp_path / "alias.json", *nodes))
    assert len(task.args) == 1 and task()["coverage"] == 1.0


def test_indices_are_in_range_through_views_and_from_ranges_and_files(tmp_path: Path) -> None:
    table, rows = made.tensor(10, [7, 3]), made.tensor(11, [2, 4], made.LONG)
    flat = made.tensor(12, [8], made.LONG, storage=1011)
    looked = [made.plain(-1, "Int"), made.plain(False, "Bool"), made.plain(False, "Bool")]
    nodes = [
        made.call(3, "aten::view(Tensor(a) self, SymInt[] size) -> Tensor(a)", [rows, ([8], [[]], "GenericList[Int]", [[]])], [flat]),
        made.call(4, made.EMBEDDING, [table, flat, *looked], [made.tensor(13, [8, 3])]),
    ]
    task = build(made.write(tmp_path / "plain.json", *nodes))
    indices = next(item for item in task.args if item.dtype == torch.int64)
    assert int(indices.min()) >= 0 and int(indices.max()) < 7 and len(indices.unique()) > 1
    ranged = [
        dict(nodes[0], attrs=[*nodes[0]["attrs"][:-1], {"name": "tensor_range", "type": "string", "value": '{"0":[5,900]}'}]),
        nodes[1],
    ]
    task = build(made.write(tmp_path / "ranged.json", *ranged))
    indices = next(item for item in task.args if item.dtype == torch.int64)
    assert set(indices.flatten().tolist()) <= {5, 6}
    path = made.write(tmp_path / "filed.json", *nodes)
    folder = tmp_path / "filed_resources"
    folder.mkdir()
    (folder / "nid_3_tid_0.dat").write_bytes(torch.arange(8).remainder(7).numpy().tobytes())
    task = build(path)
    assert next(item for item in task.args if item.dtype == torch.int64).flatten().tolist() == [0, 1, 2, 3, 4, 5, 6, 0]
    (folder / "nid_3_tid_0.dat").write_bytes(torch.full((8,), 70).numpy().tobytes())
    more = made.call(9, made.RELU, [table], [made.tensor(20, [7, 3])])
    assert "out of range" in skipped(build(made.write(path, *nodes, more)))["aten::embedding"]


def test_an_index_that_calls_change_is_put_back_before_each_iteration(tmp_path: Path) -> None:
    table, place = made.tensor(10, [4, 3]), made.tensor(11, [1], made.LONG)
    looked = [made.plain(-1, "Int"), made.plain(False, "Bool"), made.plain(False, "Bool")]
    add = "aten::add_.Scalar(Tensor(a!) self, Scalar other, Scalar alpha=1) -> Tensor(a!)"
    nodes = [
        made.call(3, made.EMBEDDING, [table, place, *looked], [made.tensor(13, [1, 3])]),
        made.call(4, add, [place, made.plain(1, "Int"), made.plain(1, "Int")], [place]),
    ]
    task = build(made.write(tmp_path / "grows.json", *nodes))
    assert task.prepare is not None
    for _ in range(10):
        task()


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ("aten::from_file(str filename, bool? shared=None, int? size=0) -> Tensor", "not allowed"),
        ("aten::record_stream(Tensor(a!) self, Stream s) -> ()", "not allowed"),
        ("aten::no_such(Tensor self) -> Tensor", "not in this build"),
        ("prims::_make_token() -> Tensor", "imports"),
        ("os::system(str command) -> int", "imports"),
        ("aten::relu(Tensor self, int nothing) -> Tensor", "takes no nothing"),
        ("not a schema", "no operator"),
    ],
)  # fmt: skip
def test_what_a_trace_may_not_do_is_skipped_with_the_reason(tmp_path: Path, schema: str, why: str) -> None:
    inputs = [made.tensor(10, [2])] + ([made.plain(1, "Int")] if "nothing" in schema else [])
    bad = made.call(3, schema, inputs, [made.tensor(11, [2])])
    good = made.call(4, made.RELU, [made.tensor(11, [2])], [made.tensor(12, [2])])
    task = build(made.write(tmp_path / "bad.json", bad, good))
    assert why in next(iter(skipped(task).values())) and task.effective["replay"]["replayed"] == 1
    assert task()["coverage"] < 1


def test_a_module_is_imported_only_where_the_user_names_it(tmp_path: Path) -> None:
    planted = made.call(3, "planted::turns(Tensor x) -> Tensor", [made.tensor(10, [4, 4])], [made.tensor(11, [4, 4])])
    path = made.write(tmp_path / "planted.json", planted, made.call(4, made.RELU, [made.tensor(11, [4, 4])], [made.tensor(12, [4, 4])]))
    assert "imports" in skipped(build(path))["planted::turns"]
    module = "tests.workloads.traces.planted_operator"
    with pytest.raises(Unsupported, match="is not imported") as told:
        build(path, imports="turtledemo")
    assert told.value.do == "allow it with --allow import:turtledemo" and "turtledemo" not in sys.modules
    assert not skipped(build(path, (f"import:{module}", "import:json"), imports=f"json+{module}", skip="aten::t+aten::mm"))
    with pytest.raises(Unsupported, match="no_such_module cannot be imported"):
        build(path, ("import:no_such_module",), imports=["no_such_module"])
    with pytest.raises(UsageError, match="not the name of a module"):
        build(path, ("import:os; import sys",), imports=["os; import sys"])


def test_skips_of_the_user_and_failures_are_told_apart_and_their_results_are_given(tmp_path: Path) -> None:
    x, y = made.tensor(10, [2, 3]), made.tensor(11, [4, 5])
    failing = made.call(3, made.MM, [x, y], [made.tensor(12, [2, 5])])
    after = made.call(4, made.RELU, [made.tensor(12, [2, 5])], [made.tensor(13, [2, 5])])
    path = made.write(tmp_path / "failing.json", failing, after)
    task = build(path)
    assert "it failed" in skipped(task)["aten::mm"] and task.args[0].shape == (2, 5)
    assert skipped(build(path, skip="aten::mm"))["aten::mm"] == "asked for"


def test_a_result_of_another_form_is_named_and_makes_the_case_wrong(tmp_path: Path) -> None:
    from steelyard.engine.weigh import weigh_case

    lie = made.call(3, made.RELU, [made.tensor(10, [2, 3])], [made.tensor(11, [3, 3])])
    path = made.write(tmp_path / "lie.json", lie, made.call(4, made.RELU, [made.tensor(11, [3, 3])], [made.tensor(12, [3, 3])]))
    assert build(path).effective["replay"]["unlike_recorded"][0]["why"] == "shape [2, 3] instead of [3, 3]"
    record = weighed(path, weigh_case)
    assert record.status == "wrong" and "another shape or format" in record.reason


def weighed(path: Path, weigh_case: Any, **params: Any) -> Any:
    from steelyard.engine.messages import Sources
    from steelyard.engine.opening import settled
    from steelyard.engine.worker import load

    case = settled(Case("trace", tuple({**DEFAULTS, "file": str(path), **params}.items())), "file")
    return weigh_case(case, load(Sources(), {}), Settings(budget=0.01, telemetry=False))[0]


def test_a_replay_under_the_coverage_that_is_asked_for_is_wrong(tmp_path: Path) -> None:
    from steelyard.engine.weigh import weigh_case

    x = made.tensor(10, [4, 4])
    path = made.write(tmp_path / "half.json", made.call(3, made.RELU, [x], [x]), made.call(4, "far::away(Tensor x) -> Tensor", [x], [x]))
    fine, wrong = weighed(path, weigh_case), weighed(path, weigh_case, coverage=0.9)
    assert fine.status == "ok" and fine.metrics["coverage"].value == pytest.approx(0.5)
    assert wrong.status == "wrong" and "50.00% is replayed, 90.00% is required" in wrong.reason
    assert [row["operator"] for row in fine.effective["replay_operators"]] == ["aten::relu"]
    assert "op:aten::relu" in fine.metrics


def test_collectives_are_skipped_in_one_process_and_left_out_of_compute(tmp_path: Path) -> None:
    x = made.tensor(10, [4])
    comm = made.call(3, "", [x], [x])
    comm = replace_name(comm, "record_param_comms")
    path = made.write(tmp_path / "comm.json", comm, made.call(4, made.RELU, [x], [made.tensor(11, [4])]))
    assert "collective" in next(iter(skipped(build(path)).values()))
    assert build(path, what="compute").effective["replay"]["operators"] == 1
    with pytest.raises(UsageError, match="the trace has no communication"):
        build(path, what="communication")


def replace_name(node: dict[str, Any], name: str) -> dict[str, Any]:
    return {**node, "name": name}


def test_parameters_that_mean_nothing_are_refused_before_anything_is_read() -> None:
    refuse = registry.built_ins().workloads["trace"].refuse
    assert refuse is not None
    for bad in ({"what": "half"}, {"allocation": "never"}, {"coverage": 2}, {"step": -1}, {"skip": [3]}):
        with pytest.raises(UsageError):
            refuse({**DEFAULTS, **bad}, "")
    refuse(DEFAULTS, "")
    usual = registry.built_ins().workloads["trace"].axes["coverage"][0]
    assert isinstance(usual, float), "an axis that is usually a whole number takes no share such as 0.95"


def test_each_schema_and_a_subgraph_and_a_step_are_replayed(tmp_path: Path) -> None:
    from tests.traces.made import in_schema

    for version in ("1.0.1", "1.0.2", "1.0.3", "1.0.4", "1.1.0", "1.1.1"):
        path = tmp_path / f"{version}.json"
        path.write_text(json.dumps(in_schema(version)))
        task = build(path, step=1)
        assert task.effective["replay"]["replayed"] == task.effective["replay"]["operators"] > 0, version
        assert task()["coverage"] == 1.0


def test_the_peak_of_memory_is_known_beforehand(tmp_path: Path) -> None:
    from steelyard.traces.steps import read_trace
    from steelyard.workloads.traces._program import program_of

    x, y, z = (made.tensor(number, [100]) for number in (10, 11, 12))
    nodes = [made.call(3, made.RELU, [x], [y]), made.call(4, made.RELU, [y], [z]), made.call(5, made.RELU, [z], [made.tensor(13, [100])])]
    program = program_of(read_trace(made.write(tmp_path / "chain.json", *nodes)).outermost, {})
    assert program.given_bytes == 400 and [call.over for call in program.calls] == [(), (1,), (2,)]
    assert program.peak_bytes(lazy=False) == 1200 and program.peak_bytes(lazy=True) == 800
    assert replace(program, calls=program.calls[:1]).peak_bytes(lazy=True) == 800


def test_a_script_of_the_replay_needs_torch_alone(training: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import runpy
    import sys

    from steelyard.workloads.traces import script

    said: dict[str, Any] = {}
    script.perform({"file": str(training), "device": "cpu"}, None, said.update, lambda: None)
    path = tmp_path / "replay.py"
    path.write_text(said["script"])
    before, sys.argv = sys.argv, ["replay.py", "--warmup", "0", "--iterations", "2"]
    try:
        runpy.run_path(str(path), run_name="__main__")
    finally:
        sys.argv = before
    assert "ms per iteration, median of 2" in capsys.readouterr().out
    assert "import steelyard" not in said["script"] and said["facts"]["skipped"] == []


def test_text_of_a_trace_is_only_data_in_a_script(tmp_path: Path) -> None:
    from steelyard.workloads.traces import script

    bad = '"); import os; os.abort(); ("'
    gelu = "aten::gelu(Tensor self, *, str approximate='none') -> Tensor"
    hostile = made.call(3, gelu, [made.tensor(10, [2]), made.plain(bad, "String")], [made.tensor(11, [2])])
    named = {**made.call(4, made.RELU, [made.tensor(10, [2])], [made.tensor(12, [2])]), "name": bad}
    said: dict[str, Any] = {}
    script.perform({"file": str(made.write(tmp_path / "x.json", hostile, named)), "device": "cpu"}, None, said.update, lambda: None)
    assert "os.abort" not in said["script"] and "OPS.aten.relu.default(t" in said["script"]
    script.perform({"file": str(tmp_path / "x.json"), "device": "cpu", "failing": True}, None, said.update, lambda: None)
    assert "aten::gelu" in said["failing"]


@pytest.mark.deep
def test_an_operator_that_is_3_percent_slower_is_called_by_a_paired_run_and_named(tmp_path: Path) -> None:
    """Its 100 turns are 103, beside 40 other calls as long as a turn: the whole is 2.1 % slower."""
    from tests.engine.drive import run_json

    x, nodes = made.tensor(5, [64, 64]), []
    for number in range(40):
        nodes.append(made.call(10 + number, made.MM, [x, x], [made.tensor(100 + number, [64, 64])]))
    nodes.append(made.call(90, "planted::turns(Tensor x) -> Tensor", [x], [made.tensor(300, [64, 64])]))
    path, here = made.write(tmp_path / "planted.json", *nodes), Path(__file__).parent
    words = ["-a", "imports=tests.workloads.traces.planted_operator", "-V", "eager,slower[more=3]", "--vs", "eager", "--budget", "5s"]
    found = run_json(f"trace:{path}", str(here / "planted.py"), *words, cwd=Path(__file__).parents[3])
    pair = found["pairs"][0]
    part = pair["parts"]["op:planted::turns"]
    assert pair["low"] > 1 and 1 < part["low"] < part["high"] < 1.06
    assert pair["parts"]["op:aten::mm"]["low"] < 1.01


@pytest.mark.parametrize("seed", [7, random.SystemRandom().randrange(2**32)], ids=["the same", "another"])
def test_bent_traces_are_refused_or_replayed_and_never_break_the_replay(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from steelyard.errors import SteelyardError

    def no_import(name: str, *_: Any) -> Any:
        raise AssertionError(f"a trace had {name} imported (seed {seed})")

    rng, path = random.Random(seed), tmp_path / "bent.json"
    table, rows = made.tensor(10, [7, 3]), made.tensor(11, [4], made.LONG)
    looked = [made.plain(-1, "Int"), made.plain(False, "Bool"), made.plain(False, "Bool")]
    found = made.tensor(12, [4, 3])
    nodes = [made.call(3, made.EMBEDDING, [table, rows, *looked], [found]), made.call(4, made.RELU, [found], [made.tensor(13, [4, 3])])]
    whole = made.write(path, *nodes).read_text()
    assert build(path).effective["replay"]["replayed"] == 2
    monkeypatch.setattr("importlib.import_module", no_import)
    bent = [0, 1, -1, 5, 10**13, 2**63, "x", None, [], True, 0.5, "os::system(str command) -> int", "triton"]
    for number in range(60):
        data = json.loads(whole)
        for _ in range(rng.choice((1, 1, 2))):
            _bend(data["nodes"][:2], rng, bent)
        path.write_text(json.dumps(data))
        try:
            facts = build(path).effective["replay"]
        except SteelyardError:
            continue
        assert facts["replayed"] + sum(row["count"] for row in facts["skipped"]) == facts["operators"], (seed, number)


def _bend(value: Any, rng: Any, numbers: list[Any]) -> None:
    """Put something else somewhere into nested lists and objects."""
    while isinstance(value, (list, dict)) and value:
        key = rng.choice(list(value)) if isinstance(value, dict) else rng.randrange(len(value))
        if not isinstance(value[key], (list, dict)) or not value[key] or rng.random() < 0.1:
            value[key] = rng.choice(numbers)
            return
        value = value[key]
