"""What is said of a replay: coverage, slowest calls, kinds of operators, and those that differ in a pair."""

from __future__ import annotations

from typing import Any

from steelyard.model.pair import Arm, Pair, PairPart
from steelyard.model.record import Figure, Record
from steelyard.report.charts.replay import alone_rows, timeline_rows
from steelyard.report.replay import coverage_rows, differing, kind_rows, operator_lines, operator_rows

FACTS: dict[str, Any] = {
    "replay": {
        "operators": 4, "replayed": 3, "shares": {"operators": 0.75, "time": None, "flops": 0.5, "bytes": 1.0}, "opened": 2,
        "threads": "as recorded", "streams": "one", "allocation": "ahead", "skipped": [{"operator": "a::b", "count": 1, "why": "not here"}],
        "unlike_recorded": [{"node": 7, "operator": "c::d", "why": "shape [2] instead of [3]"}],
    },
    "replay_operators": [
        {"operator": "aten::mm", "shapes": "4x4 4x4", "calls": 2, "time": 0.002, "recorded": 0.001},
        {"operator": "aten::relu", "shapes": "4x4", "calls": 1, "time": 0.0005, "recorded": None},
    ],
    "recorded_time": 0.004,
}  # fmt: skip


def pair() -> Pair:
    parts = {
        "op:aten::mm": PairPart(1.1, 1.08, 1.12, 1e-9, Figure(1e-3, "s"), Figure(1.1e-3, "s")),
        "op:aten::relu": PairPart(1.0, 0.98, 1.02, 0.9),
    }
    head = "trace@torch/slower:eval"
    return Pair(Arm("trace@torch/eager:eval"), Arm(head), 1.03, 1.02, 1.04, 0.99, 4, 8, 1, (1, 1), p=1e-6, parts=parts)


def test_a_replay_says_what_it_covers_and_what_takes_longest() -> None:
    rows = dict(coverage_rows(FACTS))
    assert rows["operators"] == "3 of 4" and rows["shares"] == "75 % of operators, 50 % of flops, 100 % of bytes"
    assert rows["recorded"] == "4.00 ms" and rows["skipped"] == "1 × a::b: not here" and rows["unlike"].startswith("node 7, c::d: shape")
    (first, told), (second, other) = operator_rows(FACTS)
    assert (first, second) == ("aten::mm", "aten::relu") and "2.00x of 1.00 ms" in told and "x of" not in other
    assert [name for name, _ in operator_rows(FACTS, most=1)] == ["aten::mm", ""]
    assert coverage_rows({}) == [] and operator_rows({"replay_operators": [3, {"time": "x"}]}) == []
    record = Record("x", {}, "ok", metrics={"op:a": Figure(1.0, "s"), "op:b": Figure(2.0, "s"), "time": Figure(3.0, "s")})
    assert [name for name, _ in kind_rows(record)] == ["b", "a"]


def test_the_operators_that_differ_are_named_below_the_table() -> None:
    records = [Record("trace@torch/eager:eval", {}, "ok"), Record("trace@torch/slower:eval", {}, "ok")]
    (_, deltas), *none = differing([pair()])
    assert [delta.metric for delta in deltas] == ["op:aten::mm"] and none == []
    (line,) = operator_lines(records, [pair()], 100)
    assert "aten::mm" in line.plain and "10.0 % slower" in line.plain and "1.00 ms → 1.10 ms" in line.plain
    assert operator_lines(records[:1], [pair()], 100) == []


def test_the_timeline_has_both_tracks_and_few_kinds() -> None:
    names = [f"op{number}" for number in range(12)]
    drawn = {"name": names, "replayed": [[float(n) for n in range(12)], [1.0 + n for n in range(12)]], "recorded": None, "count": 12}
    document = {"cases": [{"id": "x"}, {"id": "y", "replay": {"timeline": drawn}}]}
    rows = timeline_rows(document, "y")
    assert len(rows) == 12 and {row["track"] for row in rows} == {"replayed"} and [row["kind"] for row in rows][-6:] == ["others"] * 6
    assert timeline_rows(document, "x") == []
    drawn["recorded"] = drawn["replayed"]
    assert [row["track"] for row in timeline_rows(document)].count("recorded") == 12
    assert alone_rows(document) == []
    drawn["recorded"] = [[10.0 * n for n in range(12)], [1.0] * 12]
    assert {row["track"] for row in alone_rows(document)} == {"replayed"} and alone_rows(document, "x") == []
