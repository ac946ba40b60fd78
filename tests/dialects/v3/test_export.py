"""A run as records of the database, and back: figures, intervals, counts, directions and statuses stay what they were."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.analyze.foreign import read_file
from steelyard.dialects.v3 import export, schema
from steelyard.dialects.v3.results import read
from steelyard.model.case import Case
from steelyard.model.pair import Arm, Pair
from steelyard.model.record import STATUSES, Figure, Record
from steelyard.store.runs import Run
from tests.dialects.v3.made import run

EAGER = "op/softmax[dtype=bf16,m=64,n=64]@torch/eager:eval"
COMPILED = 'op/softmax[dtype=bf16,m=64,n=64]@torch/compile:eval:device=cuda:threads=4:flag.X="1"'
TIME = Figure(11.42e-6, "s", "lower", 11.36e-6, 11.48e-6, 420)
PAIR = Pair(Arm(EAGER), Arm(COMPILED), 0.8, 0.75, 0.85, 0.99, 8, 64, 1, (16, 16))


def back(made: Run, folder: Path) -> dict[str, Record]:
    path = folder / "r.json"
    path.write_text(export.text(made), encoding="utf-8")
    return {record.id: record for one in read_file(path) for record in one.records}


def by_name(made: Run) -> dict[str, dict[str, Any]]:
    return {f"{row['benchmark']['extra_info']['variant']} {row['metric']['name']}": row for row in export.records(made)}


def test_a_figure_is_a_record_with_all_that_is_known_of_it() -> None:
    memory = Figure(3e6, "B", "lower", n=1)
    made = run({EAGER: {"time": TIME, "peak_memory": memory, "overhead": TIME}}, packages={"torch": "2.13.0", "jax": None})
    (time, peak) = export.records(made)
    for row in (time, peak):
        schema.check(row, "here")
    assert time["metric"]["name"] == "time (ms)" and time["metric"]["benchmark_values"] == [pytest.approx(11.42e-3)]
    told = time["metric"]["extra_info"]
    assert (told["unit"], told["direction"], told["n"], told["status"]) == ("ms", "lower", "420", "ok")
    assert float(told["ci_low"]) == pytest.approx(11.36e-3) and float(told["ci_high"]) == pytest.approx(11.48e-3)
    assert peak["metric"]["name"] == "peak_memory (MB)" and peak["metric"]["benchmark_values"] == [3.0]
    assert time["timestamp"] == 1767323045 and "head_sha" not in time
    assert time["dependencies"] == {"torch": {"repo": "pytorch/pytorch", "version": "2.13.0"}}
    assert time["runners"][0]["name"] == "cpu" and time["runners"][0]["type"] == "EPYC" and time["runners"][0]["cpu_count"] == 2
    assert time["benchmark"]["dtype"] == "bfloat16" and time["benchmark"]["mode"] == "inference"
    assert time["benchmark"]["extra_info"]["repro"].startswith("steelyard run 'op/softmax")


@pytest.mark.parametrize(
    ("name", "figure", "title", "unit", "value"),
    [
        ("time", Figure(2e-3, "s", "lower"), "time (ms)", "ms", 2.0),
        ("peak_memory", Figure(5e6, "B", "lower"), "peak_memory (MB)", "MB", 5.0),
        ("bandwidth", Figure(3e9, "B/s", "higher"), "bandwidth (GB/s)", "GB/s", 3.0),
        ("compute", Figure(4e12, "FLOP/s", "higher"), "compute (TFLOP/s)", "TFLOP/s", 4.0),
        ("item_rate", Figure(7.0, "item/s", "higher"), "item_rate (item/s)", "item/s", 7.0),
        ("energy", Figure(0.25, "J", "lower"), "energy (mJ)", "mJ", 250.0),
        ("power", Figure(300.0, "W", "none"), "power (W)", "W", 300.0),
        ("efficiency", Figure(2e9, "FLOP/J", "higher"), "efficiency (GFLOP/J)", "GFLOP/J", 2.0),
        ("sqnr", Figure(41.0, "dB", "higher"), "sqnr (dB)", "dB", 41.0),
        ("cosine", Figure(0.99, "1", "higher"), "cosine", "1", 0.99),
        ("perplexity", Figure(12.0, "1", "lower"), "perplexity", "1", 12.0),
        ("of_roof", Figure(0.5, "1", "higher"), "of_roof", "1", 0.5),
        ("speedup", Figure(1.5, "1", "higher"), "speedup (x)", "x", 1.5),
    ],
)
def test_every_figure_has_the_name_unit_and_direction_that_dashboards_show(
    name: str, figure: Figure, title: str, unit: str, value: float, tmp_path: Path
) -> None:
    made = run({EAGER: {"time": TIME, name: figure}})
    (row,) = [row for row in export.records(made) if row["metric"]["extra_info"]["figure"] == name]
    told = row["metric"]
    assert (told["name"], told["extra_info"]["unit"], told["extra_info"]["direction"]) == (title, unit, figure.better)
    assert told["benchmark_values"] == [pytest.approx(value)]
    found = back(made, tmp_path)[EAGER].metrics[name]
    assert (found.value, found.unit, found.better) == (pytest.approx(figure.value), figure.unit, figure.better)


def test_a_gpu_is_the_runner_of_its_cases() -> None:
    gpus = [{"name": "NVIDIA H200", "memory": 150_000_000_000, "driver": "580.1"}] * 2
    made = run({EAGER: {"time": TIME}, f"{EAGER}:device=cuda": {"time": TIME}}, gpus=gpus)
    on_cpu, on_gpu = (row["runners"][0] for row in export.records(made))
    assert (on_cpu["name"], on_cpu["type"], on_gpu["name"], on_gpu["type"]) == ("cpu", "EPYC", "cuda", "NVIDIA H200")
    assert (on_gpu["gpu_count"], on_gpu["gpu_mem_info"], on_gpu["extra_info"]["driver"]) == (2, "150 GB", "580.1")


def test_what_tells_cases_apart_is_in_what_dashboards_group_by() -> None:
    ids = [
        EAGER, COMPILED, EAGER.replace("m=64", "m=65"), f"{EAGER}:threads=2", f"{EAGER}:ranks=2", f"{EAGER}:flag.A=1",
        EAGER.replace("eval", "train"), EAGER.replace("torch/", "numpy/"), EAGER.replace("eager", "semi_sparse+compile"), f"{EAGER}:env=x",
        f"{EAGER}:device=cuda", EAGER.replace("bf16", "fp32"),
    ]  # fmt: skip
    rows = export.records(run({id: {"time": TIME} for id in ids}))
    keys = {
        (row["benchmark"]["dtype"], row["runners"][0]["name"], row["model"]["backend"], row["benchmark"]["mode"], row["model"]["name"])
        for row in rows
    }
    assert len(keys) == len(ids)
    extra = rows[1]["benchmark"]["extra_info"]
    assert (extra["use_compile"], extra["threads"], extra["flag.X"], extra["sparsity"]) == ("true", "4", "1", "none")
    assert rows[8]["benchmark"]["extra_info"]["sparsity"] == "semi_sparse"
    assert len({row["benchmark"]["extra_info"]["config_hash"] for row in rows}) == len(ids)


@pytest.mark.parametrize("status", [status for status in STATUSES if status != "ok"])
def test_what_failed_has_a_record_without_a_value(status: str, tmp_path: Path) -> None:
    made = run({EAGER: {"time": TIME}, COMPILED: status})
    (row,) = [row for row in export.records(made) if row["benchmark"]["extra_info"]["case"] == COMPILED]
    assert row["metric"]["benchmark_values"] == [] and row["metric"]["extra_info"]["is_failure"] == "true"
    assert row["metric"]["extra_info"]["status"] == status and row["metric"]["extra_info"]["reason"] == "told to"
    found = back(made, tmp_path)[COMPILED]
    assert (found.status, found.reason, found.metrics) == (status, "told to", {})


def test_a_wrong_answer_keeps_its_time_where_no_dashboard_shows_it(tmp_path: Path) -> None:
    made = run({EAGER: {"time": TIME}})
    made = replace(made, records=(replace(made.records[0], status="wrong", reason="differs"),))
    assert export.records(made)[0]["metric"]["benchmark_values"] == []
    found = back(made, tmp_path)[EAGER]
    assert found.status == "wrong" and found.metrics["time"].value == pytest.approx(TIME.value)


def test_pairs_are_speedups_with_an_interval(tmp_path: Path) -> None:
    made = run({EAGER: {"time": TIME}, COMPILED: {"time": TIME}}, PAIR)
    row = by_name(made)["compile speedup over torch/eager (x)"]
    told = row["metric"]["extra_info"]
    assert row["metric"]["benchmark_values"] == [1.25] and told["base"] == EAGER and told["direction"] == "higher"
    assert (float(told["ci_low"]), float(told["ci_high"])) == (pytest.approx(1 / 0.85), pytest.approx(1 / 0.75))
    figure = back(made, tmp_path)[COMPILED].metrics["speedup over torch/eager"]
    assert (figure.value, figure.better, figure.low) == (1.25, "higher", pytest.approx(1 / 0.85))


@pytest.mark.parametrize("pair", [replace(PAIR, low=0.0), replace(PAIR, high=math.inf), replace(PAIR, ratio=math.nan)])
def test_a_pair_that_says_nothing_is_no_speedup(pair: Pair) -> None:
    assert not [name for name in by_name(run({EAGER: {"time": TIME}, COMPILED: {"time": TIME}}, pair)) if "speedup" in name]


def test_no_speedup_over_what_failed() -> None:
    assert list(by_name(run({EAGER: "wrong", COMPILED: {"time": TIME}}, PAIR))) == ["eager time (ms)", "compile time (ms)"]


def test_a_long_parameter_comes_back_in_full(tmp_path: Path) -> None:
    case = Case("op/a", (("shape", [[1, 2], [3, 4]]), ("text", "x" * 100)))
    header = run({}).header
    made = Run(Path("r"), header, (Record(case.id, case.plain(), "ok", metrics={"time": TIME}),))
    assert back(made, tmp_path)[case.id].case == case.plain()


def test_machine_key_and_commit_come_back(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text(export.text(run({EAGER: {"time": TIME}}, git={"commit": "abc1234", "branch": "main", "dirty": True})))
    (found,) = read_file(path)
    assert found.header.machine_key == "m" * 12 and found.header.created == "2026-01-02T03:04:05Z"
    assert found.header.machine["git"] == {"commit": "abc1234", "branch": "main", "dirty": True}


UNITS = st.sampled_from(["s", "B", "B/s", "FLOP/s", "1", "item/s", "J"])
SIZES = st.floats(1e-9, 1e12)


@st.composite
def figures(draw: st.DrawFn) -> Figure:
    unit, value, better = draw(UNITS), draw(SIZES), draw(st.sampled_from(["lower", "higher", "none"]))
    if draw(st.booleans()):
        return Figure(value, unit, better, n=draw(st.none() | st.integers(1, 10**6)))  # type: ignore[arg-type]
    low, high = value * draw(st.floats(0.5, 1.0)), value * draw(st.floats(1.0, 2.0))
    return Figure(value, unit, better, low, high, draw(st.integers(6, 10**6)))  # type: ignore[arg-type]


@given(st.dictionaries(st.sampled_from(["time", "peak_memory", "compute", "my metric", "tokens/s"]), figures(), min_size=1))
def test_figures_come_back_as_they_were(given_figures: dict[str, Figure]) -> None:
    made = run({EAGER: given_figures, COMPILED: given_figures})
    rows = json.loads(export.text(made))
    for row in rows:
        schema.check(row, "here")
    (source,) = read(rows, Path("r.json"))
    for result in source.results:
        (found,) = result.processes
        assert set(found) == set(given_figures)
        for name, was in given_figures.items():
            now = found[name]
            assert (now.unit, now.better, now.n) == (was.unit, was.better, was.n)
            for end in ("value", "low", "high"):
                one, other = getattr(now, end), getattr(was, end)
                assert one is other is None or one == pytest.approx(other, rel=1e-12)


@given(st.lists(st.sampled_from(STATUSES), min_size=1, max_size=4), st.text(max_size=20))
def test_no_run_can_be_exported_wrong(statuses: list[Any], reason: str) -> None:
    made = run({})
    records = [
        Record(
            f"op/a[n={number}]@torch/eager:eval", Case("op/a", (("n", number),)).plain(), status, reason, {"time": Figure(math.nan, "s")}
        )
        for number, status in enumerate(statuses)
    ]
    for row in json.loads(export.text(replace(made, records=tuple(records)))):
        schema.check(row, "here")
        assert row["metric"]["benchmark_values"] == []
