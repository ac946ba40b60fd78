from __future__ import annotations

import re
from importlib import resources

import pytest

from steelyard.report.charts import case, compare
from steelyard.report.charts.compare import BEFORE_AFTER
from steelyard.report.charts.theme import CATEGORIES, DARK, LIGHT, ON_DARK, theme
from tests.report.charts.drawn import drawn

ASSETS = resources.files("steelyard.report.web") / "assets"
ROW = {
    "case": "a", "label": "a", "before": 1e-3, "after": 2e-3, "verdict": "slower", "ratio": 2.0, "text": "2×",
    "before_text": "1 ms", "after_text": "2 ms", "unit": "s",
}  # fmt: skip


def script(name: str) -> str:
    return (ASSETS / "js" / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("dark", [False, True])
def test_a_picture_has_the_ground_of_its_theme(dark: bool) -> None:
    picture = drawn(BEFORE_AFTER, [ROW, {**ROW, "case": "b", "before": 5e-3}], theme(dark))
    assert (DARK if dark else LIGHT)["ground"] in picture.lower()


def test_the_page_and_pictures_use_the_same_colours() -> None:
    page, style = script("03-chart.js"), (ASSETS / "style.css").read_text(encoding="utf-8")
    assert all(f'"{colour}"' in page for colour in CATEGORIES)
    assert all(f'"{light}": "{dark}"' in page for light, dark in ON_DARK.items())
    assert all(f"--{name}: {colour}" in style for ink in (LIGHT, DARK) for name, colour in ink.items() if name != "ground")


def test_the_page_and_pictures_choose_the_same_rows() -> None:
    page = {name: set(re.findall(r"const ([A-Z_]+) = ([0-9.]+);", script(name))) for name in ("30-compare.js", "40-case.js")}
    here = {("MOST_DRAWN", compare.MOST_DRAWN), ("MOST_DOTS", compare.MOST_DOTS)}
    assert {(name, f"{value:g}") for name, value in here} <= page["30-compare.js"]
    assert {("REACH", f"{case.REACH:g}"), ("MOST_BINS", f"{case.MOST_BINS}")} <= page["40-case.js"]
    assert all(f'["{name}", "{phase}"]' in script("40-case.js") for name, phase in case.PHASE_METRICS.items())
