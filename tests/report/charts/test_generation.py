"""Charts of text generation: what they show is what requests took, and every name stays text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from steelyard.model.record import Figure
from steelyard.report.charts import generation as charts
from steelyard.report.plots import picture
from steelyard.report.web.document import document
from steelyard.report.web.requests import MOST_OF_CASE, ranks, requests_part
from steelyard.store.runs import Header, Store
from tests.report.charts.drawn import drawn
from tests.report.made import figures, record
from tests.report.web.shape import check

ID = "generate/llama[batch=2,new=3]@torch/eager:eval"
CHARTS = {chart.name: chart for chart in charts.CHARTS}
ROOF = {"machine": 0, "device": "cpu", "dtype": "fp32", "compute": 80e9, "bandwidth": 10e9, "source": "measured"}


@pytest.fixture
def mock(requests: Store) -> dict[str, Any]:
    """Two batches by three variants on the virtual clock."""
    return document([requests.open("latest")])


def saved(folder: Path, arrays: dict[str, list[int]], variant: str = "eager", **more: Figure) -> dict[str, Any]:
    """The document of one case with these raw series in nanoseconds."""
    store, metrics = Store(folder / "store"), figures(1.0, 0.1, ttft=Figure(0.1, "s", "lower"), **more)
    with store.create(Header()) as writer:
        raw = {f"request_{name}": ("ns", "<i8", np.asarray(values, "<i8").tobytes()) for name, values in arrays.items()}
        made = record(ID, metrics, device="cpu")
        writer.append(replace(made, case={**made.case, "variant": variant}), raw)
        writer.seal()
    return document([store.open(writer.id)])


def test_a_request_of_known_times_is_drawn_at_those_times(mock: dict[str, Any]) -> None:
    check(mock)
    assert [point["name"] for point in mock["generation"]["points"]] == ["generate/mock batch=1", "generate/mock batch=4"]
    rows = [row for row in charts.timeline_rows(mock) if row["track"] == "compile"]
    assert [row["kind"] for row in rows] == ["first", *["token"] * 7, "end"]
    assert [row["time"] for row in rows] == pytest.approx([0.12 + 0.101 * at for at in range(8)] + [0.928])
    assert rows[2]["text"] == "token 3 at 322 ms, 101 ms after the one before" and rows[-1]["text"] == "ended at 928 ms"


def test_the_point_of_a_case_is_the_one_that_is_drawn(mock: dict[str, Any]) -> None:
    last = mock["generation"]["points"][1]["cases"][2]["case"]
    rows = charts.timeline_rows(mock, last)
    assert rows[0]["time"] == pytest.approx(0.195) and rows[-1]["case"] == last
    name, made = picture(mock, "svg", "generation-timeline", case=last)
    assert name == "generation-timeline" and b"kernelize" in made


def test_every_raw_time_has_its_share_and_how_many_there_are_is_said(mock: dict[str, Any]) -> None:
    point = mock["generation"]["points"][0]
    for part, each in (("ttft", 1), ("itl", 7)):
        for item in point["cases"]:
            own = [row for row in charts.spread_rows(point, part) if row["case"] == item["case"]]
            requests = next(case["metrics"]["ttft"][3] for case in mock["cases"] if case["id"] == item["case"])
            assert {row["line"] for row in own} == {f"{item['line']}, n = {requests * each}"}
            assert [row["time"] for row in own] == sorted(row["time"] for row in own)
            assert own[-1]["share"] == 1 and own[0]["share"] == pytest.approx(1 / (requests * each))


def test_throughput_is_tokens_per_second_over_batches(mock: dict[str, Any]) -> None:
    rows = charts.throughput_rows(mock)
    assert {row["line"] for row in rows} == {"eager", "compile", "kernelize"} and {row["unit"] for row in rows} == {"tok/s"}
    assert [row["value"] for row in rows if row["line"] == "eager"] == pytest.approx([8 / 1.16, 32 / 1.508], rel=1e-4)
    assert rows[0]["metric"] == "tokens per second"


@pytest.mark.parametrize("name", [name for name in CHARTS if name != "generation-roofline"])
def test_every_chart_is_drawn(mock: dict[str, Any], name: str) -> None:
    made = drawn(CHARTS[name], CHARTS[name].rows(mock))
    assert "kernelize" in made and ("n = " in made) == (name in ("generation-ttft", "generation-itl"))


def test_rows_of_a_batch_that_came_apart_stay_apart(tmp_path: Path) -> None:
    arrays = {"time": [1000, 3000, 2000], "ttft": [1, 2, 100, 200, 11, 12], "itl": [1] * 4 + [900, 901, 902, 903] + [5, 6, 7, 8]}
    rows = charts.timeline_rows(saved(tmp_path, {name: [value * 1000 for value in values] for name, values in arrays.items()}))
    times = {track: [round(row["time"] * 1e6) for row in rows if row["track"] == track] for track in ("eager, row 1", "eager, row 2")}
    assert times == {"eager, row 1": [11, 16, 22, 2000], "eager, row 2": [12, 19, 27, 2000]}


@pytest.mark.parametrize(
    "arrays",
    [{}, {"ttft": [5]}, {"time": [9, 9], "ttft": [5, 5, 5]}, {"time": [9], "ttft": [5, 5], "itl": [1, 1, 1]}, {"time": [], "ttft": []}],
)
def test_series_that_do_not_belong_together_have_no_timeline(tmp_path: Path, arrays: dict[str, list[int]]) -> None:
    found = saved(tmp_path, arrays)
    check(found)
    assert charts.timeline_rows(found) == [] and len(found["generation"]["points"]) == 1


def test_a_single_token_has_a_timeline_and_no_time_between_tokens(tmp_path: Path) -> None:
    found = saved(tmp_path, {"time": [9000], "ttft": [5000], "tail": [4000]})
    assert [row["kind"] for row in charts.timeline_rows(found)] == ["first", "end"]
    assert charts.spread_rows(found["generation"]["points"][0], "itl") == []


def test_of_very_many_times_some_are_kept_evenly_with_their_true_shares(tmp_path: Path) -> None:
    count = 10_000
    found = saved(tmp_path, {"time": [10**9] * 10, "ttft": [10**6] * 10, "itl": list(range(1, count + 1))})
    rows = charts.spread_rows(found["generation"]["points"][0], "itl")
    assert len(rows) == MOST_OF_CASE and rows[0]["line"] == "eager, n = 10000" and rows[-1]["share"] == 1
    assert all(row["share"] == pytest.approx(row["time"] * 1e9 / count, rel=1e-3) for row in rows)
    assert ranks(5, 8) == [0, 1, 2, 3, 4] and ranks(100, 4) == [0, 33, 66, 99]


def test_a_stall_far_off_stands_at_the_edge_and_keeps_its_value(tmp_path: Path) -> None:
    found = saved(tmp_path, {"time": [10**9], "ttft": [10**6], "itl": [*[10**6 + at for at in range(99)], 10**9]})
    far = charts.spread_rows(found["generation"]["points"][0], "itl")[-1]
    assert far["time"] == 1.0 and far["drawn"] < 0.01 and far["text"] == "1.000 s"


def test_prefill_and_decode_stand_under_the_roof_of_their_case() -> None:
    metrics = {
        "ttft_compute": [40e9, 38e9, 42e9, 9], "ttft_bandwidth": [1e9, 0.95e9, 1.05e9, 9],
        "itl_compute": [2e9, None, None, 9], "itl_bandwidth": [4e9, None, None, 9],
    }  # fmt: skip
    case = {"id": "a", "label": "batch=1 eager", "metrics": metrics}
    case["roof"] = {"peak_compute": 80e9, "peak_bandwidth": 10e9, "dtype": "fp32"}
    found = {
        "cases": [case, {"id": "b", "label": "", "metrics": {}, "roof": None}], "roofline": {"roofs": [ROOF], "points": ["a"]},
        "generation": {"points": [{"cases": [{"case": "a", "line": "eager"}, {"case": "b", "line": "other"}]}], "roofline": []},
    }  # fmt: skip
    rows = charts.phases_on_roofs(found)
    points = {row["part"]: row for row in rows if row["kind"] == "point"}
    assert (points["prefill"]["intensity"], points["prefill"]["share"], points["prefill"]["low"]) == (40, "50 %", 38e9)
    assert (points["decode"]["intensity"], points["decode"]["share"]) == (0.5, "40 %")
    found["generation"]["roofline"] = rows
    made = drawn(CHARTS["generation-roofline"], charts.roofline_rows(found))
    assert all(text in made for text in ("prefill", "decode", "fp32 80.0 GFLOP/s measured", "eager"))
    assert charts.phases_on_roofs({**found, "cases": [{**case, "roof": None}, found["cases"][1]], "roofline": None}) == []


def test_names_of_variants_stay_text(tmp_path: Path) -> None:
    found = saved(tmp_path, {"time": [9000], "ttft": [5000], "itl": [1000, 1000]}, variant="<img src=x onerror=alert(1)>")
    made = drawn(CHARTS["generation-timeline"], charts.timeline_rows(found))
    assert "&lt;img" in made and "<img" not in made


def test_runs_without_requests_have_no_part_in_the_document(tmp_path: Path) -> None:
    with (store := Store(tmp_path)).create(Header()) as writer:
        writer.append(record("op/x[n=1]@torch/eager:eval", figures(1.0, 0.1)))
        writer.seal()
    run = store.open(writer.id)
    assert document([run])["generation"] is None and requests_part([], [run], lambda case: {}) is None
    assert all(chart.rows(document([run])) == [] for chart in charts.CHARTS)
