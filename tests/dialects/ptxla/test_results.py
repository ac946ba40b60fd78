"""Stored results of PyTorch/XLA's runner are runs that compare, gate and show take."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from steelyard.analyze.compare import RunsSide, compare
from steelyard.analyze.foreign import named, read_file
from steelyard.cli.main import main
from steelyard.errors import UsageError
from steelyard.model.case import Case
from steelyard.model.record import Record
from tests.analyze.foreign_samples import check_read_or_refused
from tests.dialects.ptxla.stored import A100, EAGER, INDUCTOR, LAZY, OPENXLA, SECOND, stored, write

TIMES = [20.0, 1.2, 1.1, 1.0, 1.01, 0.99, 1.0, 1.02, 0.98]


def records(path: Path) -> dict[str, Record]:
    (run,) = read_file(path)
    return {record.id.removeprefix("foreign/ptxla/torchbench/"): record for record in run.records}


def test_a_row_is_a_case_with_time_after_warm_up(tmp_path: Path) -> None:
    xla = {"total_time": [2 * time for time in TIMES], "per_iter_time": TIMES, "trace_per_iter_time": [5.0, 1.0, 1.0, 0.2, 0.2]}
    rows = [
        stored("m", OPENXLA, xla, batch=16), stored("m", LAZY, [9.0, 2.0]), stored("m", INDUCTOR, TIMES, test="train", batch=None),
        stored("m", EAGER, TIMES),
    ]  # fmt: skip
    found = records(write(tmp_path / "r.jsonl", rows))
    assert list(found) == [
        "m[batch_size=16]@torch_xla/openxla:eval:device=cuda", "m[batch_size=1]@torch_xla/eager:eval:device=cuda",
        "m@torch/compile:train:device=cuda", "m[batch_size=1]@torch/eager:eval:device=cuda",
    ]  # fmt: skip
    first = next(iter(found.values()))
    assert (first.metrics["time"].value, first.metrics["time"].n) == (1.0, 6)
    assert first.metrics["time"].low is not None and first.metrics["trace_time"].value == 0.2
    assert first.metrics["compile_time"].value == pytest.approx(2 * (20.0 - math.fsum(TIMES[1:]) / 8))
    assert found["m[batch_size=1]@torch_xla/eager:eval:device=cuda"].metrics["time"].value == 2.0
    assert "trace_time" not in found["m@torch/compile:train:device=cuda"].metrics
    for record in found.values():
        assert Case.parse(record.id).plain() == record.case


@pytest.mark.parametrize(
    ("metrics", "more", "status", "reason"),
    [
        ({"error": "SKIP"}, {}, "skipped", "a rule of the runner"),
        ({"error": "a\nTraceback\n  boom \x1b[31m\n\n"}, {}, "failed", "boom _[31m"),
        ({"error": "Command 'x' timed out after 1800 seconds"}, {}, "timeout", "Command 'x' timed out after 1800 seconds"),
        ({"error": "CUDA out of memory"}, {}, "oom", "CUDA out of memory"),
        ({"error": "gone"}, {"steelyard": {"status": "crashed"}}, "crashed", "gone"),
        ({"error": "gone"}, {"steelyard": {"status": "ok"}}, "failed", "gone"),
        ({"total_time": [9.0]}, {}, "failed", "it has no time after the first repeat, which compiles too"),
        ({"total_time": None}, {}, "failed", "it has no time after the first repeat, which compiles too"),
        ({"total_time": TIMES}, {"verification_code": "FAIL"}, "wrong", "its answer differs from that of eager PyTorch"),
    ],
)
def test_what_has_no_time_says_why(tmp_path: Path, metrics: Any, more: Any, status: str, reason: str) -> None:
    (found,) = records(write(tmp_path / "r.jsonl", [stored("m", OPENXLA, metrics, **more)])).values()
    assert (found.status, found.reason) == (status, reason)
    assert bool(found.metrics) is (status == "wrong")


def test_verification_is_kept(tmp_path: Path) -> None:
    rows = [stored("m", OPENXLA, TIMES, verification_code="PASS", verification_mean_rel_error=0.00713), stored("n", OPENXLA, TIMES)]
    first, second = records(write(tmp_path / "r.jsonl", rows)).values()
    assert first.verification and (first.verification.status, first.verification.message) == ("passed", "mean relative error 0.00713")
    assert second.verification is None


def test_timestamps_are_runs_that_can_be_named(tmp_path: Path) -> None:
    rows = [stored("m", OPENXLA, [9.0, 2.0], when=SECOND), "\n", stored("m", OPENXLA, [9.0, 1.0]), stored("m", OPENXLA, {"error": "late"})]
    path = write(tmp_path / "r.jsonl", [*rows, '{"mod'])
    first, second = read_file(path)
    assert [run.id for run in (first, second)] == ["r.jsonl#1", "r.jsonl#2"]
    assert [run.records[0].metrics["time"].value for run in (first, second)] == [1.0, 2.0]
    assert first.header.created.startswith("2023-11-11T05:32:18") and len(first.records) == 1
    assert len(second.warnings) == 2 and "cut short" in second.warnings[1] and not first.warnings
    assert named(f"{path}#2") == (second,) and named(str(path)) == (first, second)
    assert named(f"{path}#x") is None and named("nothing#1") is None and named("\0#1") is None
    with pytest.raises(UsageError, match="has no run 3"):
        named(f"{path}#3")


def test_lines_end_where_the_runner_ends_them(tmp_path: Path) -> None:
    path = write(tmp_path / "r.jsonl", [stored("m", OPENXLA, TIMES), stored("n", OPENXLA, TIMES)])
    path.write_bytes(b"\r\r\r\n" + path.read_bytes().replace(b"{", b"{\r") + b'{"a')
    (run,) = read_file(path)
    assert len(run.records) == 2 and [line.split(": ")[2] for line in run.warnings] == [
        "a blank line", "cut short, as a killed run leaves it",
    ]  # fmt: skip


def test_files_of_two_accelerators_are_not_compared(tmp_path: Path) -> None:
    base = write(tmp_path / "b.jsonl", [stored("m", OPENXLA, TIMES)])
    head = write(tmp_path / "h.jsonl", [stored("m", OPENXLA, TIMES, device=A100)])
    assert compare(RunsSide("b", read_file(base)), RunsSide("h", read_file(head))).deltas[0].verdict == "incomparable"
    both = records(write(tmp_path / "both.jsonl", [stored("m", OPENXLA, TIMES), stored("m", OPENXLA, TIMES, device=A100)]))
    assert len(both) == 2 and all(":flag.accelerator=" in id for id in both)


def test_sizes_of_a_model_are_cases_of_their_own(tmp_path: Path) -> None:
    rows = [stored("m", OPENXLA, TIMES, steelyard={"size": size}) for size in ("small", "large", "a\x1b b", 3)]
    found = records(write(tmp_path / "r.jsonl", rows))
    assert len(found) == 4 and "m[batch_size=1,size=small]@torch_xla/openxla:eval:device=cuda" in found


def test_names_that_no_case_can_hold_stay_apart(tmp_path: Path) -> None:
    rows = [stored(name, OPENXLA, TIMES) for name in ("a b", "a_b", "../x", "é" * 500, "é" * 501, "")]
    found = records(write(tmp_path / "r.jsonl", rows))
    assert len(found) == len(rows) and all(record.id.isprintable() for record in found.values())


def test_the_commands_take_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    names = [f"m{number}" for number in range(10)]
    slow = [3 * time for time in TIMES]
    write(tmp_path / "base.jsonl", [stored(name, OPENXLA, TIMES) for name in names])
    write(tmp_path / "head.jsonl", [stored(name, OPENXLA, slow if name == "m3" else TIMES, when=SECOND) for name in names])
    assert main(["compare", "base.jsonl", "head.jsonl", "--json"]) == 0
    verdicts = {delta["head"]: delta["verdict"] for delta in json.loads(capfd.readouterr().out)["deltas"]}
    assert [id for id, verdict in verdicts.items() if verdict == "slower"] == [
        "foreign/ptxla/torchbench/m3[batch_size=1]@torch_xla/openxla:eval:device=cuda"
    ]
    assert [main(["gate", "base.jsonl", "head.jsonl", *more]) for more in ([], ["--strict"])] == [0, 6]
    write(tmp_path / "both.jsonl", [line + "\n" for file in ("base", "head") for line in Path(f"{file}.jsonl").read_text().splitlines()])
    capfd.readouterr()
    assert main(["compare", "both.jsonl#1", "both.jsonl#2"]) == 0
    assert "slower" in capfd.readouterr().out
    assert main(["show", "both.jsonl"]) == 0
    out, err = capfd.readouterr()
    assert "foreign/ptxla/torchbench/m3" in out and "openxla" in out and "the last of 2 runs" in err
    assert main(["show", "both.jsonl#1/4"]) == 0
    assert "m3[batch_size=1]" in capfd.readouterr().out
    assert main(["show", "both.jsonl/99"]) == 2 and main(["show", "both.jsonl#5"]) == 2


junk: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
axes = {"accelerator": junk, "accelerator_model": junk, "xla": junk, "xla_flags": junk, "dynamo": junk, "test": junk, "batch_size": junk}
odd: Any = st.fixed_dictionaries(
    {
        "model": st.fixed_dictionaries({"model_name": st.text(max_size=8), "suite_name": junk}),
        "experiment": st.fixed_dictionaries({}, optional={**axes, "torch_xla2": junk}),
        "metrics": st.fixed_dictionaries({}, optional={"total_time": st.lists(st.floats()) | junk, "per_iter_time": junk, "error": junk}),
    },
    optional={"timestamp": junk, "verification_code": junk, "steelyard": junk, "iterations_per_run": junk},
)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)
@given(st.lists(odd | junk, max_size=4))
def test_rows_of_any_shape_are_read_or_refused(tmp_path: Path, data: list[Any]) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text("".join(f"{json.dumps(item)}\n" for item in data))
    check_read_or_refused(path)
