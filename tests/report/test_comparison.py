"""A comparison as a reader sees it: within the width, every case named, colour for confirmed changes alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.cells import cell_len

from steelyard.analyze.compare import Comparison, RunsSide, compare, own_pairs
from steelyard.model.pair import Arm, Delta, Pair
from steelyard.model.record import Figure
from steelyard.report.comparison import comparison_table, counted
from tests.analyze.made import case, record, run, side
from tests.report.test_text import colours


def delta(**changes: object) -> Delta:
    return replace(Delta(case(1), case(1), "time", 1.042, 0.981, 1.104, 0.02, "unclear", paired=False), **changes)  # type: ignore[arg-type]


def sample() -> Comparison:
    base = [record(case(number)) for number in range(12)] + [record(case(20)), record(case(21))]
    head = [record(case(number), 2e-3 if number == 0 else 1e-3) for number in range(12)]
    head += [record(case(21), status="failed", reason="no \x1b[31mdevice\nhere"), record(case(30))]
    return compare(RunsSide("b", (run("b", base),)), RunsSide("h", (run("h", head, 1),)))


def test_the_table_shows_figures_ratio_and_verdict() -> None:
    shown = comparison_table(sample()).plain.splitlines()
    assert shown[0] == "base b · head h · 14 cases"
    assert shown.pop(1) == "both with 1 thread"
    assert " ".join(shown[1].split()) == "base ± 95 % head ± 95 % vs base, 99 %"
    assert " ".join(shown[3].split()) == "├─ n=0 1.0000 ± 0.0010 ms 2.0000 ± 0.0020 ms ▼ 2.00x slower [1.92, 2.08], not confirmed"
    assert sum("? unclear [" in line for line in shown) == 11


def test_what_could_not_be_compared_is_listed_without_control_characters() -> None:
    shown = comparison_table(sample()).plain
    assert f"– missing: 1, not in head\n    {case(20)}" in shown
    assert f"✗ failed: 1, head is failed (no device here)\n    {case(21)}" in shown
    assert f"+ new: 1, not in base\n    {case(30)}" in shown
    assert "1 slower, not confirmed · 11 unclear · 1 failed · 1 missing · 1 new" in shown and "geometric mean of 12" in shown
    assert "\x1b" not in shown and "--confirm" in shown


@pytest.mark.parametrize("width", [40, 60, 80, 100])
def test_every_line_fits(width: int) -> None:
    long = compare(
        RunsSide("b" * 30, (run("b", [record(f"foreign/pyperf:{'x' * 150}{n}") for n in range(3)]),)),
        RunsSide("h" * 30, (run("h", [record(f"foreign/pyperf:{'x' * 150}{n}") for n in range(2)], 1),)),
    )
    for found in (sample(), long):
        lines = comparison_table(found, width=width).plain.splitlines()
        assert all(cell_len(line) <= width for line in lines), max(lines, key=cell_len)
        assert any("unclear" in line for line in lines)


def test_colour_is_for_confirmed_changes_alone() -> None:
    drawn = comparison_table(sample())
    assert colours(drawn, "▼ 2.00x slower") == {"yellow"} and not any("red" in str(span.style) for span in drawn.spans)
    pair = Pair(Arm(case(1)), Arm(case(1, "compile")), 1.3, 1.29, 1.31, 0.99, 8, 64, 1, (4, 4))
    whole = replace(run("k", [record(case(1)), record(case(1, "compile"), 1.3e-3)]), pairs=(pair,))
    paired = comparison_table(own_pairs(RunsSide("k", (whole,))))
    assert colours(paired, "▼ 30.0 % slower [29.0, 31.0]") == {"red"}
    assert "vs eager, 99 %" in paired.plain and paired.plain.startswith("k · 1 case\n")


def test_verdicts_are_counted_with_what_is_not_sure_of_them() -> None:
    slow = delta(verdict="slower", paired=True, ratio=1.04, low=1.03, high=1.05)
    found = [slow, replace(slow, low=1.01), replace(slow, paired=False), delta(verdict="same"), delta(verdict="missing", ratio=None)]
    assert counted(found) == ["1 slower", "1 slower, size unclear", "1 slower, not confirmed", "1 within the margin", "1 missing"]


def test_several_metrics_stand_below_each_other() -> None:
    def rated(name: str, factor: float) -> RunsSide:
        made = side(name, [1e-3 * factor] * 9, first=int(factor * 10)).runs[0]
        extra = [replace(item, metrics={**item.metrics, "rate": Figure(1e9 / factor, "B/s", "higher")}) for item in made.records]
        return RunsSide(name, (replace(made, records=tuple(extra)),))

    shown = comparison_table(compare(rated("b", 1.0), rated("h", 1.1), metrics=["time", "rate"])).plain
    assert "\ntime\n" in shown and "\nrate\n" in shown
    assert "· unclear [" in shown and "rate: unclear [" in shown and shown.count("], geometric mean of 9") == 2
