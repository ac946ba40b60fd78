from __future__ import annotations

from typing import Any

from steelyard.report.charts.matrix import HEAT, matrix_heat_rows
from tests.report.charts.drawn import drawn


def document() -> dict[str, Any]:
    """Two models on three stacks; the third is wrong once and out of memory once, though its times look fast."""
    time = [2e-3, 1.98e-3, 2.02e-3, 50]
    good = {"status": "ok", "time": time}
    cells: list[list[dict[str, Any] | None]] = [
        [{"case": "a@eager", **good}, {"case": "a@jit", **good}, {"case": "a@q", "status": "wrong", "time": time}],
        [{"case": "b@eager", **good}, None, {"case": "b@q", "status": "oom", "time": None}],
    ]
    speedups = [[[1, 1, 1, 1], [1.5, 1.45, 1.55, 1], [4.0, 3.9, 4.1, 1]], [[1, 1, 1, 1], None, None]]
    rows = [{"name": name, "workload": name, "params": "", "mode": "eval"} for name in ("model/a", "model/b")]
    matrix = {"baseline": "eager", "columns": ["eager", "jit", "q"], "rows": rows, "cells": cells}
    return {"matrix": {**matrix, "by_baseline": {"eager": {"speedups": speedups, "means": []}}, "pass_rates": []}}


def test_a_cell_without_a_right_answer_has_no_speedup_and_says_why() -> None:
    rows = {(row["row"], row["column"]): row for row in matrix_heat_rows(document())}
    assert len(rows) == 5
    assert (rows["model/a", "jit"]["text"], rows["model/a", "jit"]["measured"]) == ("1.50x faster [1.45, 1.55]", "side by side")
    assert (rows["model/a", "eager"]["text"], rows["model/a", "eager"]["measured"]) == ("baseline", "")
    assert (rows["model/a", "q"]["speedup"], rows["model/a", "q"]["text"]) == (None, "✗ wrong")
    assert (rows["model/b", "q"]["speedup"], rows["model/b", "q"]["text"]) == (None, "! oom")
    assert all(tuple(row) == HEAT.columns for row in rows.values())


def test_the_heat_map_shows_every_cell_in_words() -> None:
    picture = drawn(HEAT, matrix_heat_rows(document()))
    for text in ("model/a", "model/b", "jit", "1.50x faster [1.45, 1.55]", "✗ wrong", "! oom", "faster than the baseline"):
        assert text in picture, text


def test_a_long_matrix_is_cut_and_none_is_empty() -> None:
    assert {row["row"] for row in matrix_heat_rows(document(), most=1)} == {"model/a"}
    assert matrix_heat_rows({"matrix": None}) == []
