"""Speedup against accuracy and size: the baseline is a mark, the front is what nothing beats, and what is not drawn is named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.model.pair import Pair
from steelyard.model.record import Figure, Record
from steelyard.report.charts.accuracy import CHARTS, COLUMNS, accuracy_rows, beats, left_out, places
from steelyard.report.plots import picture
from steelyard.report.web.document import document
from steelyard.store.runs import Header, Run, Seal
from tests.analyze.saved import case as case
from tests.analyze.saved import pair, record
from tests.report.charts.drawn import drawn

MIB = 2.0**20
FORMATS = {
    "int8wo": (0.5, 42.0, MIB), "int4wo-32": (0.4, 22.0, 0.6 * MIB), "nf4": (2.0, 20.0, MIB), "small": (2.0, 19.0, MIB / 2),
    "alike": (0.5, 41.0, 0.995 * MIB), "large": (1.1, 60.0, 3 * MIB), "wide": (0.95, 10.0, MIB),
}  # fmt: skip
STATES = {
    "int8wo": "front", "int4wo-32": "front", "nf4": "beaten", "small": "front", "alike": "beaten", "large": "beaten", "wide": "unclear",
    "eager": "baseline",
}  # fmt: skip


def weighed_recipes(points: tuple[str, ...] = ("a",)) -> tuple[list[Record], list[Pair]]:
    """Recipes of one or several points; one is not settled, one is wrong, one changed nothing."""
    records, pairs = [], []
    for point in points:
        records += [record(case(point), 1.0), record(case(point, "compile"), 0.9)]
        for name, (ratio, sqnr, size) in FORMATS.items():
            made = record(case(point, name), ratio)
            made.metrics.update(sqnr=Figure(sqnr, "dB", "higher", n=1), model_bytes=Figure(size, "B", "lower", n=1))
            made.effective["bytes_before"] = 2 * MIB
            records.append(made)
            pairs.append(pair(case(point), case(point, name), ratio, 0.2 if name == "wide" else 0.01))
        records += [replace(record(case(point, "broken"), 0.1), status="wrong", reason="keeps nothing")]
        records += [replace(record(case(point, "idle"), 0.1), status="not_applied", reason="nothing was changed", metrics={})]
        pairs.append(pair(case(point), case(point, "compile"), 0.9, 0.01))
    return records, pairs


def page(points: tuple[str, ...] = ("a",)) -> dict[str, Any]:
    records, pairs = weighed_recipes(points)
    known: dict[str, Any] = {"machine_key": "m" * 12, "created": "2026-01-02T03:00:00Z"}
    return document([Run(Path("k3f9"), Header(id="k3f9", **known), tuple(records), tuple(pairs), Seal("", len(records)))])


def test_rows_are_of_recipes_and_their_baseline_and_the_front_counts_bytes_too() -> None:
    rows = {row["recipe"]: row for row in accuracy_rows(page())}
    assert all(tuple(row) == COLUMNS for row in rows.values())
    assert {name: row["state"] for name, row in rows.items()} == STATES
    assert rows["int8wo"]["speedup"] == 2 and rows["int8wo"]["low"] < 2 < rows["int8wo"]["high"]
    assert (rows["nf4"]["sqnr_text"], rows["nf4"]["size_text"], rows["nf4"]["base"]) == ("20.0 dB", "1.00 MiB", "eager")


def test_the_baseline_stands_at_one_with_the_bytes_that_its_recipes_began_with() -> None:
    first = accuracy_rows(page())[0]
    assert (first["speedup"], first["sqnr"], first["size"], first["sqnr_text"]) == (
        1.0,
        None,
        pytest.approx(2 * MIB, rel=1e-5),
        "nothing is lost",
    )
    assert first["case"] == case("a")


def test_one_picture_is_of_one_base_and_says_what_it_leaves_out() -> None:
    several = page(("a", "b"))
    rows = accuracy_rows(several)
    assert {row["case"].partition("[")[0] for row in rows} == {rows[0]["case"].partition("[")[0]} and len(rows) == len(FORMATS) + 1
    note = left_out(several, rows)
    assert note == "Not drawn: broken (wrong), idle (not applied). Cases of 1 other baseline have a picture of their own: --case."
    other = accuracy_rows(several, case=case("b", "int8wo"))
    assert other[0]["case"] == case("b") and accuracy_rows(several, case="none") == []
    assert left_out(page(), accuracy_rows(page())) == "Not drawn: broken (wrong), idle (not applied)."


def test_it_can_be_drawn_with_its_legend_and_its_note() -> None:
    pytest.importorskip("vl_convert")
    shown = drawn(CHARTS[0], accuracy_rows(page()))
    for text in (
        "int8wo",
        "eager",
        "on the front",
        "beaten",
        "speed unclear",
        "baseline",
        "weights",
        "512 KiB",
        "3 MiB",
        "speedup over eager",
    ):
        assert text in shown, text
    name, image = picture(page(), "svg", "compare-accuracy")
    assert name == "compare-accuracy" and "Not drawn: broken (wrong), idle (not applied)." in image.decode()


def test_sizes_that_are_not_known_hide_no_mark() -> None:
    rows = [{**row, "size": None} for row in accuracy_rows(page())]
    assert drawn(CHARTS[0], rows).count("<path") >= len(rows)


MARKS = st.builds(
    lambda speedup, sqnr, size, state: {"speedup": speedup, "sqnr": sqnr, "size": size, "state": state, "recipe": "int4wo-32"},
    st.floats(0.1, 10), st.floats(5, 60), st.one_of(st.none(), st.floats(1e3, 1e9)), st.sampled_from(["faster", "slower", "unclear"]),
)  # fmt: skip


@given(one=MARKS, other=MARKS)
def test_no_two_beat_each_other_and_an_unclear_speed_beats_nobody(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert not (beats(one, other) and beats(other, one)) and not beats(one, one)
    assert one["state"] != "unclear" or not beats(one, other)


@given(rows=st.lists(MARKS, min_size=1, max_size=12), width=st.sampled_from([235, 640]))
def test_every_mark_has_a_place_for_its_name_or_none(rows: list[dict[str, Any]], width: float) -> None:
    found = places(rows, "eager", width)
    assert len(found) == len(rows) and set(found) <= {"above", "below", "right", "left", ""}


def test_names_of_marks_that_lie_together_do_not_cover_each_other() -> None:
    close = [{"speedup": speedup, "sqnr": sqnr, "recipe": "int4wo-32"} for speedup, sqnr in ((1.0, 20.0), (1.01, 20.1), (3.0, 40.0))]
    first, second, alone = places(close, "eager", 640)
    assert first != second and alone == "above"
