"""Pictures are drawn by the real library, from the page's own charts, without a way out."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from steelyard.errors import UsageError
from steelyard.report import plots
from steelyard.report.charts import Chart
from steelyard.report.web.document import document
from tests.analyze.made import case, record, run
from tests.report import hostile

PNG = b"\x89PNG\r\n\x1a\n"


def simple(spec: dict[str, Any]) -> Chart:
    return Chart("simple", "What", "How to read it.", {"mark": "bar", **spec}, ("name", "value"))


ENCODING = {"x": {"field": "value", "type": "quantitative"}, "y": {"field": "name", "type": "nominal"}}
BARS = simple({"data": {"name": "rows"}, "encoding": ENCODING})


@pytest.fixture(scope="module")
def nights() -> dict[str, Any]:
    """Twelve runs of four cases in two variants."""
    runs = [
        run(f"n{hour}", [record(case(n, variant), 1e-3 * n * share) for n in (1, 2, 4, 8) for variant, share in SHARES], hour)
        for hour in range(12)
    ]
    return document(runs)


SHARES = (("eager", 1.0), ("compile", 0.5))


def test_every_chart_can_be_drawn_by_name() -> None:
    """A chart without a function for its rows could be asked for by nobody."""
    from steelyard.report.web.document import chart_specs

    assert set(plots.charts()) == set(chart_specs())


def test_charts_with_figures_are_drawn(nights: dict[str, Any]) -> None:
    found = plots.pictures(nights, "svg")
    assert {"matrix-heat", "history-series"} <= set(found)
    for name, picture in found.items():
        assert picture.startswith(b"<svg") and b"NaN" not in picture, name


def test_a_picture_is_png_or_svg_light_or_dark(nights: dict[str, Any]) -> None:
    name, light = plots.picture(nights, "svg")
    same, dark = plots.picture(nights, "svg", name, dark=True)
    assert name == same and light != dark
    assert plots.picture(nights, "png", name)[1].startswith(PNG)


def test_the_picture_says_what_it_shows_and_how_to_read_it() -> None:
    drawn = plots.draw(BARS, [{"name": "a", "value": 1}], "svg").decode()
    assert "What" in drawn and "How to read it." in drawn
    one = plots.draw(BARS, [{"name": name, "value": 1, "case": "op/x@torch"} for name in "ab"], "svg").decode()
    assert (
        "op/x@torch" in one
        and "op/x@torch" not in plots.draw(BARS, [{"name": "a", "value": 1, "case": "op/x@torch"}, {"case": "y"}], "svg").decode()
    )


def test_names_stay_text() -> None:
    drawn = plots.draw(BARS, [{"name": word, "value": 1} for word in hostile.WORDS], "svg").decode()
    assert "&lt;/script&gt;" in drawn and "<script" not in drawn and "<img" not in drawn


@pytest.mark.parametrize("address", ["http://127.0.0.1:9/x.csv", "https://example.com/x.json"])
def test_nothing_is_fetched(address: str) -> None:
    with pytest.raises(UsageError, match="cannot draw simple"):
        plots.draw(simple({"data": {"url": address}, "encoding": ENCODING}), [], "svg")


def test_a_wrong_name_is_told_with_the_nearest(nights: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="did you mean matrix-heat"):
        plots.picture(nights, "svg", "matrix-heta")


def test_no_figures_is_no_picture() -> None:
    with pytest.raises(UsageError, match="nothing to plot"):
        plots.picture(document([]), "svg")
    with pytest.raises(UsageError, match="compare-forest has nothing to show"):
        plots.picture(document([run("one", [record(case(1))])]), "svg", "compare-forest")


def test_without_the_library_only_pictures_are_refused(tmp_path: Path) -> None:
    code = "import sys; sys.modules['vl_convert'] = None\nfrom steelyard.report import plots\nplots.charts(); plots.require()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode and "vl-convert is not installed" in done.stderr and "steelyard[plots]" in done.stderr
