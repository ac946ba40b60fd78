"""A history is one screen: bars, one line for each change, and what is left out."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.cells import cell_len

from steelyard.analyze.history import Apart, Change, History, Point
from steelyard.report.history import commits_text, history_page, marks, sparkline

CHANGE = Change(12, "r12", "2026-01-13T03:00:00Z", 1e-5, 1.03e-5, 1.03, 1.026, 1.034, 0.002, "a" * 40, "b" * 40)
POINTS = [Point(f"r{n}", 1, f"2026-01-{n + 1:02}T03:00:00Z", 1e-5 if n < 12 else 1.03e-5) for n in range(24)]


def test_bars_go_from_least_to_largest_and_fit() -> None:
    assert sparkline([1, 2, 3, 4, 5, 6, 7, 8], 40) == "▁▂▃▄▅▆▇█"
    assert sparkline([3, 3, 3], 40) == "▄▄▄" and sparkline([], 40) == ""
    assert sparkline([1] * 50 + [9] * 50, 10) == "▁" * 5 + "█" * 5


@pytest.mark.parametrize("width", [8, 24, 100])
def test_the_mark_stands_below_the_first_bar_of_the_new_level(width: int) -> None:
    history = History("op/a@torch/eager:eval", "m", POINTS, [CHANGE])
    bars = sparkline([point.time for point in POINTS], width)
    assert bars[marks(history, width).index("^")] == "█" and bars[marks(history, width).index("^") - 1] == "▁"


def test_a_change_is_one_line_with_its_commits() -> None:
    shown = history_page(
        History("op/a@torch/eager:eval", "m" * 12, POINTS, [CHANGE], [Apart("other", 2, "2026-02-01T00:00:00Z")], 1, 20)
    ).plain
    assert "  ▼ 2026-01-13 03:00  10.00 µs → 10.30 µs  3.0 % slower [2.6, 3.4]  aaaaaaaaaa..bbbbbbbbbb" in shown.splitlines()
    assert "1 change of level" in shown and "newest 20 runs" in shown and "1 record left out" in shown and "2 on machine other" in shown


def test_commits_that_are_not_known_are_not_made_up() -> None:
    assert commits_text(replace(CHANGE, first="a" * 40, dirty=True)) == "same commit aaaaaaaaaa with uncommitted changes"
    assert commits_text(replace(CHANGE, last="")) == "commit bbbbbbbbbb on one side only"
    assert commits_text(replace(CHANGE, last="", first="")) == "commits unknown"


@pytest.mark.parametrize("width", [40, 100])
def test_every_line_fits_and_steers_nothing(width: int) -> None:
    change = replace(CHANGE, others=["torch \x1b[2J2.12 → " + "9" * 200])
    history = History("op/\x1b[31m" + "x" * 300, "m\u202e" * 60, POINTS * 20, [change], [Apart("k" * 200, 2, "\x07" * 20)])
    shown = history_page(history, width=width).plain
    assert max(cell_len(line) for line in shown.splitlines()) <= width
    assert not {"\x1b", "\x07", "\u202e"} & set(shown)


def test_few_runs_say_that_they_are_few() -> None:
    assert "fewer than 10 runs" in history_page(History("op/a@torch/eager:eval", "m", POINTS[:5])).plain
