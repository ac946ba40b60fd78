"""The side files of a row, and the metrics that come from profiles."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from steelyard.dialects.ptxla.sink import Files, stack_name
from steelyard.engine.conversation import Lost
from steelyard.engine.messages import Answer, Done, Found, Pass
from tests.dialects.ptxla.stage import Stage, measured, perform, rows

HOST = {"where": "cpu", "calls": 4, "total": 3.0, "mean": 0.75, "with_callees": 4.0, "device": 2.0, "device_with_callees": 2.5}
KERNELS: list[dict[str, Any]] = [
    {"name": "aten::mm", **HOST}, {"name": "aten::nonzero", **HOST}, {"name": "other", **HOST},
    {"name": "a kernel", "where": "cuda", "calls": 4, "total": 2.0, "mean": 0.5},
]  # fmt: skip
OPERATOR = {"self_cpu_time_s": 3.0, "self_cuda_time_s": 2.0, "total_cpu_time_s": 4.0, "total_cuda_time_s": 2.5, "num_of_calls": 4}
COUNTS = {"compile_time": 0.5, "compiles": 1, "execute_time": 0.25, "executions": 2, "fallbacks": {"aten::nonzero": 3}}


def passing(order: Pass) -> list[Answer | Lost]:
    """What each pass leaves in the folder that it is given."""
    folder, files = Path(order.scratch), list[tuple[str, str]]()

    def keep(kind: str, name: str, data: bytes) -> None:
        (folder / name).write_bytes(data)
        files.append((kind, str(folder / name)))

    for number in (0, 1):
        if order.name == "profile":
            keep("trace", f"trace-{number}.json.gz", gzip.compress(f"trace {number}".encode()))
            keep("kernels", f"kernels-{number}.json", json.dumps(KERNELS).encode())
            keep("kernels", f"kernels-{number}.txt", f"table {number}".encode())
        elif order.name == "runtime":
            keep("runtime", f"runtime-{number}-0-a.xplane.pb", f"profile {number}".encode())
    if order.name == "outputs":
        keep("output", "output.pt", b"tensors")
    return [Found({}, {}, tuple(files)), Done()]


def side_files(folder: Path) -> dict[str, str]:
    """What lies beside the rows, without the config's name."""
    place = folder / "out" / "dummy"
    return {str(path.relative_to(place)).partition("-cpu-")[0]: path.read_text() for path in sorted(place.rglob("*")) if path.is_file()}


def test_profiles_are_metrics_and_files_of_each_repeat(stage: Stage, tmp_path: Path) -> None:
    stage.passing = passing
    words = {"profile_cuda_cpu": True, "profile_cuda_cpu_individual_ops": True, "dump_pytorch_profiles": True}
    perform(tmp_path, iterations_per_run=2, **words)
    (row,) = rows(tmp_path)
    metrics = {name: values for name, values in row["metrics"].items() if name not in ("total_time", "per_iter_time")}
    assert metrics == {
        "total_cpu_time_s": [9.0, 9.0], "total_cuda_time_s": [2.0, 2.0], "per_iter_cpu_time_s": [4.5, 4.5],
        "per_iter_cuda_time_s": [1.0, 1.0], "inductor_ops": [{"aten::mm": OPERATOR, "aten::nonzero": OPERATOR}] * 2,
    }  # fmt: skip
    assert side_files(tmp_path) == {
        f"{n}/{kind}": f"{word} {n}" for n in (0, 1) for kind, word in (("pytorch-profile", "table"), ("trace", "trace"))
    }
    assert {kind: len(paths) for kind, paths in row["steelyard"]["files"].items()} == {"pytorch-profile": 2, "trace": 2}


def test_on_xla_only_operators_that_fell_back_are_told(stage: Stage, tmp_path: Path) -> None:
    stage.passing = passing
    stage.reply = lambda case: measured(case, effective={"repeats": [{"xla": COUNTS, "report": "all of it"}] * 2})
    perform(tmp_path, xla=("PJRT",), profile_cuda_cpu_individual_ops=True, dump_pytorch_xla_metrics=True, dump_dynamo_counters=True)
    (row,) = rows(tmp_path)
    assert row["metrics"]["xla_unlowered_ops"] == [{"aten::nonzero": OPERATOR}] * 2 and "inductor_ops" not in row["metrics"]
    assert side_files(tmp_path) == {
        f"{n}/{kind}": text for n in (0, 1) for kind, text in (("pytorch-xla-metrics", "all of it"), ("dynamo-counters", "{}\n"))
    }  # fmt: skip
    assert stage.settings[0].fixed.counters == "reports"  # type: ignore[union-attr]


def test_what_a_runtime_and_the_model_gave_is_kept(stage: Stage, tmp_path: Path) -> None:
    stage.passing = passing
    perform(tmp_path, profile_xla=True, save_output=True)
    (row,) = rows(tmp_path)
    assert stage.passes == ["runtime", "outputs"]
    assert Path(row["outputs_file"]).read_bytes() == b"tensors"
    names = [Path(path).name for path in row["steelyard"]["files"]["xplane"]]
    assert names == ["1-runtime-0-0-a.xplane.pb", "1-runtime-1-0-a.xplane.pb"]
    assert set(side_files(tmp_path).values()) == {"tensors", "profile 0", "profile 1"}


def test_a_pass_that_is_lost_costs_its_metrics_alone(stage: Stage, tmp_path: Path) -> None:
    stage.passing = lambda order: [Lost("crashed", "gone")]
    perform(tmp_path, profile_cuda_cpu=True, save_output=True)
    (row,) = rows(tmp_path)
    assert set(row["metrics"]) == {"total_time", "per_iter_time"} and row["steelyard"]["status"] == "ok" and "outputs_file" not in row


def test_what_xla_wrote_by_itself_is_told(tmp_path: Path) -> None:
    (tmp_path / "hlo-base").mkdir()
    (tmp_path / "dump-base.0").write_text("graph")
    (tmp_path / "dump-other.0").write_text("graph")
    files = Files(tmp_path, "base")
    files.note_dumps()
    assert files.written == {"hlo": [str(tmp_path / "hlo-base")], "dump": [str(tmp_path / "dump-base.0")]}


def test_a_stack_without_a_name_in_reports_is_told_by_its_axes() -> None:
    assert [stack_name({"xla": xla, "dynamo": dynamo}) for xla, dynamo in ((None, None), (None, "inductor"), ("PJRT", "openxla"))] == [
        "eager", "inductor", "openxla+dynamo",
    ]  # fmt: skip
    assert stack_name({"torch_xla2": "extract_jax"}) == "torch_xla2=extract_jax"
    assert stack_name({"xla": None, "dynamo": "openxla"}) == "None+openxla"
