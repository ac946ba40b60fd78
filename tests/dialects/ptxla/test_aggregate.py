"""The four reports on rows whose answers are worked out by hand, and on rows that break the original."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from steelyard.dialects.ptxla import points, tables
from steelyard.dialects.ptxla.aggregate import Report, ReportQuestion, report
from steelyard.dialects.ptxla.points import TimePoint, geomean, percentile, speedup
from steelyard.dialects.ptxla.rows import BACKENDS, RowTally, take
from steelyard.errors import NothingMeasured, SteelyardError, UsageError
from tests.dialects.ptxla.stored import A100, DAYS, EAGER, FIRST, INDUCTOR, LAZY, OPENXLA, SECOND, steady, stored

FIRST_NIGHT = [
    stored("alpha", INDUCTOR, steady(2.0, 4.0)),
    stored("alpha", OPENXLA, steady(1.5)),
    stored("Beta", INDUCTOR, steady(1.0)),
    stored("Beta", OPENXLA, steady(2.0)),
]
"""alpha: inductor 3 ± √2, openxla 1.5, so 2 ± 2·√2/3; Beta: inductor 1, openxla 2, so one half."""
SECOND_NIGHT = [stored("alpha", INDUCTOR, steady(6.0), when=SECOND), stored("alpha", OPENXLA, steady(0.75), when=SECOND)]
"""Over the oldest inductor, 3 ± √2: 0.5 ± 0.5·√2/3 and 4 ± 4·√2/3."""


def ask(data: list[Any], tally: RowTally | None = None, said: list[str] | None = None, **words: Any) -> Report:
    counted = RowTally() if tally is None else tally
    rows = [row for item in data if (row := take(item, counted))]
    found = report(rows, ReportQuestion(**words), counted, (said if said is not None else []).append)
    assert found is not None
    return found


def csv(data: list[Any], **words: Any) -> list[str]:
    return tables.csv(ask(data, **words)).splitlines()


def test_speedup_is_a_row_per_timestamp() -> None:
    assert csv([*SECOND_NIGHT, *FIRST_NIGHT]) == [
        "# Datetime(UTC),Speedup(Inductor/Oldest Inductor),StdDev,Speedup(XLA+Dynamo/Oldest Inductor),StdDev",
        f"{DAYS[0]},1.0,0.33333333,1.0,0.23570226",
        f"{DAYS[1]},0.5,0.23570226,4.0,1.88561808",
    ]


def test_histogram_has_percentiles_where_the_first_backend_has_data() -> None:
    lone = stored("alpha", OPENXLA, steady(1.0), when=SECOND + 9)
    assert csv([*FIRST_NIGHT, *SECOND_NIGHT, lone], report="histogram") == [
        "# Datetime(UTC),Inductor p95,Inductor p50,Inductor p5,XLA+Dynamo p95,XLA+Dynamo p50,XLA+Dynamo p5",
        f"{DAYS[0]},1.0,1.0,1.0,1.925,1.25,0.575",
        f"{DAYS[1]},0.5,0.5,0.5,4.0,4.0,4.0",
    ]


def test_latest_sorts_each_backend_by_itself_and_pads_and_says_where_times_differ() -> None:
    said: list[str] = []
    found = ask([*FIRST_NIGHT, SECOND_NIGHT[1]], said=said, report="latest")
    assert tables.csv(found).splitlines() == [
        "# Workload,Speedup(Inductor/Oldest Inductor),StdDev,ModelName(Inductor),"
        "Speedup(XLA+Dynamo/Oldest Inductor),StdDev,ModelName(XLA+Dynamo)",
        "0,1.0,0.0,Beta,4.0,1.88561808,alpha",
        "1,1.0,0.66666667,alpha,,,",
    ]
    assert said == [f"the newest results are not all from one time: inductor {DAYS[0]}, openxla+dynamo {DAYS[1]}"]


def test_latest_grouped_is_of_the_newest_timestamp_with_a_mean_even_where_a_backend_is_missing() -> None:
    assert csv(FIRST_NIGHT, report="latest_grouped", backends=("inductor", "openxla+dynamo", "openxla+lazytensor")) == [
        "# ModelName,Speedup(Inductor/Oldest Inductor),StdDev,Speedup(XLA+Dynamo/Oldest Inductor),StdDev,"
        "Speedup(XLA+LazyTensor/Oldest Inductor),StdDev",
        "alpha,1.0,0.66666667,2.0,0.94280904,,",
        "Beta,1.0,0.0,0.5,0.0,,",
        "GEOMEAN,1.0,0.33333333,1.0,0.23570226,,",
    ]


def test_tab_is_a_grid_with_headings_on_several_lines() -> None:
    assert tables.tab(ask(FIRST_NIGHT)) == (
        "╒════════════════════════════╤════════════╤══════════╤══════════════╤══════════╕\n"
        "│ Datetime(UTC)              │    Speedup │   StdDev │      Speedup │   StdDev │\n"
        "│                            │   Inductor │          │   XLA+Dynamo │          │\n"
        "│                            │       over │          │         over │          │\n"
        "│                            │     Oldest │          │       Oldest │          │\n"
        "│                            │   Inductor │          │     Inductor │          │\n"
        "╞════════════════════════════╪════════════╪══════════╪══════════════╪══════════╡\n"
        "│ 2023-11-11 05:32:18.723407 │       1.00 │     0.33 │         1.00 │     0.24 │\n"
        "╘════════════════════════════╧════════════╧══════════╧══════════════╧══════════╛\n"
    )
    names = tables.tab(ask(FIRST_NIGHT, report="latest")).splitlines()
    assert [cell.strip() for cell in names[1].split("│")[1:5]] == ["Workload", "Speedup", "StdDev", "ModelName"]
    assert [cell.strip() for cell in names[2].split("│")[1:5]] == ["", "Inductor", "", "Inductor"]


def test_several_batch_sizes_of_a_model_are_one_figure_and_others_are_told() -> None:
    data = [
        stored("m", INDUCTOR, steady(4.0), batch=1), stored("m", INDUCTOR, steady(3.0), batch=2), stored("m", OPENXLA, steady(1.0)),
        stored("m", OPENXLA, steady(3.0), batch=2), stored("m", OPENXLA, steady(1.0), batch=8), stored("n", OPENXLA, steady(1.0), batch=1),
        stored("o", INDUCTOR, steady(1.0), batch=1), stored("o", OPENXLA, steady(1.0), batch=None),
    ]  # fmt: skip
    said: list[str] = []
    assert tables.csv(ask(data, said=said, report="latest_grouped")).splitlines()[1] == "m,1.0,0.0,2.0,0.0"
    assert said == [
        "2 of openxla+dynamo not shown, because the baseline (inductor) has no such time: n, o (its batch sizes)",
        f"at {DAYS[0]} the backends have different models (inductor 2, openxla+dynamo 1); --paired takes only those that all have",
    ]


def test_the_baseline_is_the_oldest_of_each_model_or_the_newest_timestamp_alone() -> None:
    late = stored("Gamma", INDUCTOR, steady(5.0), when=SECOND)
    oldest = csv([*FIRST_NIGHT, *SECOND_NIGHT, late], report="latest_grouped")
    assert oldest[1:3] == ["alpha,0.5,0.23570226,4.0,1.88561808", "Gamma,1.0,0.0,,"]
    newest = csv([*FIRST_NIGHT, *SECOND_NIGHT], baseline="latest")
    assert newest[0].startswith("# Datetime(UTC),Speedup(Inductor/Latest Inductor)")
    assert newest[1] == f"{DAYS[0]},2.0,0.94280904,4.0,0.0"
    other = csv([*FIRST_NIGHT, *SECOND_NIGHT], backends=("openxla+dynamo", "inductor"), baseline="latest")
    assert other[2] == f"{DAYS[1]},1.0,0.0,0.125,0.0"
    with pytest.raises(SteelyardError, match="no eager results in the latest timestamp"):
        csv(FIRST_NIGHT, baseline="latest", backends=("eager",))


def test_compile_time_is_what_the_first_repeat_took_beyond_the_others() -> None:
    data = [stored("m", INDUCTOR, [10.0, 1.0, 3.0]), stored("m", OPENXLA, [6.0, 2.0]), stored("n", INDUCTOR, [1.0, 2.0])]
    tally = RowTally()
    assert tables.csv(ask(data, tally, metric="compile", report="latest_grouped")).splitlines()[1] == "m,1.0,0.0,2.0,0.0"
    assert list(tally.counts) == ["left out: the first repeat was not slower than the others, so no compile time is known"]


def test_the_median_is_not_moved_by_one_slow_repeat() -> None:
    data = [stored("m", INDUCTOR, steady(2.0, 2.0, 1.0, 3.0, 90.0)), stored("m", OPENXLA, steady(1.0))]
    median, mean = csv(data, metric="median", report="latest")[1], csv(data, metric="mean", report="latest")[1]
    assert median.split(",")[4:6] == ["2.0", str(round(2 * 1.4826 / 2, 8))]
    assert mean == csv(data, report="latest")[1] != median


def test_paired_means_are_over_what_all_backends_have_with_n_and_pass_rate() -> None:
    data = [
        *FIRST_NIGHT, stored("Gamma", INDUCTOR, steady(8.0)), stored("Gamma", OPENXLA, {"error": "boom"}),
        stored("Delta", OPENXLA, {"error": "SKIP"}), stored("alpha", LAZY, steady(3.0)), stored("alpha", INDUCTOR, steady(3.0), batch=64),
    ]  # fmt: skip
    words: dict[str, Any] = {"backends": ("inductor", "openxla+dynamo", "openxla+lazytensor", "eager"), "paired": True}
    head, row = csv(data, **words)
    assert head.count(",StdDev,N,Passed") == 4
    assert row == f"{DAYS[0]},1.0,0.66666667,1,3/3,2.0,0.94280904,1,2/3,1.0,0.47140452,1,1/1,,,,"
    head, *rest = csv(data, report="latest_grouped", **words)
    assert [line.split(",")[0] for line in rest] == ["alpha", "GEOMEAN"]
    assert csv(data, report="histogram", **words)[0].startswith("# Datetime(UTC),Inductor p95,Inductor p50,Inductor p5,N,Passed,")
    assert len(csv(data, report="latest", **words)) == 2


def test_rows_that_break_the_original_are_left_out_and_counted() -> None:
    h200 = stored("m", INDUCTOR, steady(1.0), device="NVIDIA H200")
    missing = stored("m", INDUCTOR, steady(1.0))
    del missing["experiment"]["xla"]
    bad = [
        h200, stored("m", INDUCTOR, steady(1.0), device=None), stored("m", INDUCTOR, steady(1.0), device=A100), missing,
        stored("m", INDUCTOR, None), stored("m", INDUCTOR, {}), stored("m", INDUCTOR, {"total_time": 3}), stored("m", INDUCTOR, [1.0]),
        stored("m", INDUCTOR, steady(0.0, 1.0)), stored("m", INDUCTOR, [*steady(1.0), None]), stored("m", ("openxla", None), steady(1.0)),
        stored("m", INDUCTOR, steady(1.0), when=None), stored("m", INDUCTOR, steady(1.0), batch=[1]), stored("m", EAGER, {"error": "died"}),
        stored("m", EAGER, {"error": "SKIP"}), stored("alpha", INDUCTOR, steady(2.0, 4.0)), "text",
    ]  # fmt: skip
    tally = RowTally()
    expected = csv(FIRST_NIGHT)
    assert tables.csv(ask([*FIRST_NIGHT, *bad], tally)).splitlines() == expected
    assert tally.counts == {
        "left out: not an object": 1,
        "left out: its accelerator, 'NVIDIA H200', is not v100": 1,
        "left out: its accelerator has no name, so it is not v100": 1,
        "left out: experiment.xla is missing": 1,
        "left out: metrics.total_time is null": 1,
        "left out: metrics.total_time is missing": 1,
        "left out: metrics.total_time is not a list": 1,
        "left out: fewer than 4 repeats": 1,
        "left out: a time is null, zero or impossible": 2,
        "left out: no backend has dynamo 'openxla', xla None": 1,
        "left out: its timestamp is missing or invalid": 1,
        "left out: its batch size is not a number": 1,
        "left out: no time, because it failed": 1,
        "left out: no time, because it was skipped": 1,
        "repeated: the same timestamp, backend, model and batch size; the last row counts": 1,
    }
    assert csv([*FIRST_NIGHT, h200], accelerator="h200")[1] == f"{DAYS[0]},1.0,0.0,,"


def test_a_wrong_answer_is_told_and_does_not_pass() -> None:
    data = [*FIRST_NIGHT[:3], {**FIRST_NIGHT[3], "verification_code": "FAIL"}]
    kept, left = RowTally(), RowTally()
    assert tables.csv(ask(data, kept)).splitlines() == csv(FIRST_NIGHT)
    assert list(kept.counts) == ["counted: its answer failed verification"]
    assert tables.csv(ask(data, left, paired=True)).splitlines()[1].endswith(",2.0,0.94280904,1,1/2")
    assert list(left.counts) == ["left out: its answer failed verification"]


def test_of_two_rows_for_one_point_the_last_counts() -> None:
    again = stored("alpha", OPENXLA, steady(3.0))
    assert csv([*FIRST_NIGHT, again], report="latest_grouped")[1] == "alpha,1.0,0.66666667,1.0,0.47140452"


def test_nothing_found_says_which_accelerators_there_are() -> None:
    with pytest.raises(SteelyardError, match="no results found") as caught:
        ask(FIRST_NIGHT, accelerator="h200")
    assert "One of Tesla V100" in caught.value.why and caught.value.exit_code == 1
    with pytest.raises(NothingMeasured):
        ask([], strict_exit=True)
    assert (
        report([row for item in FIRST_NIGHT if (row := take(item, RowTally()))], ReportQuestion("latest", backends=("eager",)), RowTally())
        is None
    )


def test_several_devices_under_one_name_are_said() -> None:
    said: list[str] = []
    ask([*FIRST_NIGHT, stored("alpha", INDUCTOR, steady(1.0), device=A100)], said=said, accelerator="cuda")
    assert said[0].startswith("cuda matches 2 names of accelerators, treated as one: NVIDIA A100-SXM4-40GB, One of Tesla V100")


@pytest.mark.parametrize("words", [{"backends": ("inductr",)}, {"report": "late"}, {"metric": "x"}, {"accelerator": " "}, {"backends": ()}])
def test_a_question_that_makes_no_sense_is_refused(words: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        ReportQuestion(**words)


def test_names_cannot_break_the_table_or_steer_the_terminal() -> None:
    data = [stored('a,"b"', INDUCTOR, steady(1.0)), stored("x\x1b[31m\ny", INDUCTOR, steady(1.0))]
    lines = csv(data, report="latest_grouped", backends=("inductor",))
    assert lines[1:3] == ['"a,""b""",1.0,0.0', "x_[31m_y,1.0,0.0"]


@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=30), st.floats(0, 100))
def test_statistics_are_those_of_numpy(values: list[float], share: float) -> None:
    assert percentile(values, share) == pytest.approx(float(np.percentile(values, share)))
    assert geomean([TimePoint(value) for value in values]).value == pytest.approx(float(np.exp(np.mean(np.log(values)))))
    found = points.POINTS["exec"](steady(*values))
    assert isinstance(found, TimePoint)
    assert found.value == pytest.approx(float(np.mean(values)))
    assert found.std == pytest.approx(float(np.std(values, ddof=1)) if len(values) > 1 else 0.0, abs=1e-9 * max(values))


def test_errors_are_carried_through_ratios_and_means() -> None:
    assert speedup(TimePoint(2.0, 0.2), TimePoint(4.0, 0.3)) == TimePoint(2.0, pytest.approx(2 * math.sqrt(0.01 + 0.005625)))
    assert geomean([TimePoint(4.0, 0.4), TimePoint(1.0, 0.2)]).std == pytest.approx(2 / 2 * math.sqrt(0.01 + 0.04))


anything: Any = st.one_of(
    st.none(), st.booleans(), st.floats(), st.integers(-3, 10**20), st.text(max_size=4), st.lists(st.floats() | st.none(), max_size=6),
    st.dictionaries(st.text(max_size=3), st.floats(), max_size=2),
)  # fmt: skip
times: Any = st.one_of(st.lists(st.floats(1e-12, 1e8), min_size=4, max_size=6), st.lists(anything, max_size=6), anything)
models: Any = st.sampled_from(["a", "b", "c\x1b[0m", "d,e"])
odd_rows: Any = st.one_of(
    anything,
    st.builds(
        lambda model, stack, found, batch, when, device: stored(model, stack, found, batch=batch, when=when, device=device),
        models, st.sampled_from([EAGER, INDUCTOR, LAZY, OPENXLA]), times, st.sampled_from([1, 2, None]) | anything,
        st.sampled_from([FIRST, SECOND]) | anything, st.sampled_from(["Tesla V100", A100]) | anything,
    ),
)  # fmt: skip


@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=200, deadline=None)
@given(
    st.lists(odd_rows, max_size=8),
    st.sampled_from(["latest", "latest_grouped", "histogram", "speedup"]),
    st.sampled_from(list(points.POINTS)),
    st.booleans(),
    st.sampled_from(["oldest", "latest"]),
)
def test_no_row_whatever_makes_a_crash_or_a_nan(data: list[Any], kind: str, metric: str, paired: bool, baseline: str) -> None:
    tally = RowTally()
    rows = [row for item in data if (row := take(json.loads(json.dumps(item)), tally))]
    question = ReportQuestion(kind, "v100", metric=metric, paired=paired, baseline=baseline, backends=tuple(BACKENDS))  # type: ignore[arg-type]
    try:
        found = report(rows, question, tally)
    except SteelyardError:
        return
    if found is None:
        return
    for text in (tables.csv(found), tables.tab(found), tables.ascii_chart(found)):
        assert not re.search(r"\b(nan|inf)\b", text)
        assert all(char.isprintable() or char == "\n" for char in text)
    assert all(line.isprintable() for line in tally.lines())


@pytest.mark.parametrize("kind", ["latest", "latest_grouped", "histogram", "speedup"])
def test_a_chart_of_characters_fits_and_shows_every_backend(kind: str) -> None:
    text = tables.ascii_chart(ask([*FIRST_NIGHT, *SECOND_NIGHT], report=kind), "of two nights", width=60)
    lines = text.splitlines()
    assert all(len(line) <= 60 and line.isascii() for line in lines)
    assert "of two nights" in lines[1] and "Speedup over Oldest Benchmarked Inductor" in lines[0]
    assert "Inductor" in text and "XLA+Dynamo" in text


def test_points_of_a_chart_stand_at_their_height() -> None:
    lines = tables.ascii_chart(ask([*FIRST_NIGHT[:2], stored("Beta", INDUCTOR, steady(1.0))], report="latest"), width=60).splitlines()
    heights = {letter: next(number for number, line in enumerate(lines) if letter in line[11:60] and "|" in line) for letter in "AB"}
    one = next(number for number, line in enumerate(lines) if line.lstrip().startswith("1 |"))
    two = next(number for number, line in enumerate(lines) if line.lstrip().startswith("2 |"))
    assert heights == {"A": one, "B": two} and two < one


def test_bars_end_where_their_value_is() -> None:
    lines = tables.ascii_chart(ask(FIRST_NIGHT, report="latest_grouped"), width=80).splitlines()[1:]
    twice = next(line for line in lines if "2.00" in line)
    half = next(line for line in lines if "0.50" in line)
    assert twice.rstrip().endswith("=") and half.rstrip().endswith("|")
    assert twice.count("=") + 1 == pytest.approx(4 * half.count("="), abs=2)


@pytest.mark.parametrize("kind", ["latest", "latest_grouped", "histogram", "speedup"])
@pytest.mark.parametrize(("form", "start"), [("png", b"\x89PNG\r\n"), ("svg", b"<?xml")])
def test_pictures_are_drawn_and_always_the_same(kind: str, form: str, start: bytes) -> None:
    from steelyard.dialects.ptxla.charts import draw

    found = ask([*FIRST_NIGHT, *SECOND_NIGHT, stored("$x_1$^", LAZY, steady(1.0))], report=kind, backends=tuple(BACKENDS)[1:])
    made = draw(found, form, "two $nights", 4, 3)
    assert made.startswith(start)
    assert made == draw(found, form, "two $nights", 4, 3)
    if form == "svg":
        assert b"Speedup over Oldest Benchmarked Inductor" in made and b"two $nights" in made


def test_pictures_without_the_library_or_of_no_size_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from steelyard.dialects.ptxla import charts

    found = ask(FIRST_NIGHT)
    with pytest.raises(UsageError, match="cannot be drawn"):
        charts.draw(found, "png", width=math.nan)
    monkeypatch.setattr(charts.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError) as caught:
        charts.draw(found, "png")
    assert "steelyard[plots]" in caught.value.do


def test_rows_are_streamed() -> None:
    rows = (row for item in FIRST_NIGHT if (row := take(item, RowTally())))
    assert report(rows, ReportQuestion(), RowTally()) is not None
