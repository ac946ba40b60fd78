"""Pictures are drawn by the real library, from the page's own charts, without a way out."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steelyard.analyze.compare import RunsSide
from steelyard.errors import UsageError
from steelyard.model.record import STATUSES
from steelyard.report import plots
from steelyard.report.cells import VERDICT_GLYPHS, glyph
from steelyard.report.charts import Chart
from steelyard.report.charts.sweep import MOST_LINES, together
from steelyard.report.web.document import document
from tests.analyze.made import case, record, run
from tests.report import hostile

PNG = b"\x89PNG\r\n\x1a\n"


def simple(spec: dict[str, Any]) -> Chart:
    return Chart("simple", "What", "How to read it.", {"mark": "bar", **spec}, ("name", "value"), lambda document: [])


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


def pictures(document: dict[str, Any]) -> dict[str, bytes]:
    """Every chart that has something to show, by name."""
    drawn = {name: chart for name, chart in plots.charts().items() if chart.rows(document)}
    return {name: plots.picture(document, "svg", name)[1] for name in drawn}


def test_every_chart_can_be_drawn_by_name() -> None:
    from steelyard.report.web.document import chart_specs

    assert set(plots.charts()) == set(chart_specs())


def test_charts_with_figures_are_drawn(nights: dict[str, Any]) -> None:
    found = pictures(nights)
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


def test_a_picture_that_leaves_its_page_says_what_was_measured_where_and_against_what() -> None:
    base, head = (run(name, [record(case(1), time)], hour) for name, time, hour in (("first", 1e-3, 3), ("second", 2e-3, 5)))
    made = document([head], base=RunsSide("first", (base,)))
    made["machines"][0]["name"] = "A machine of 8 cores"
    drawn = re.sub(r"<[^>]+>", "", plots.picture(made, "svg", "compare-forest")[1].decode())
    assert "base first, head second · A machine of 8 cores" in drawn and made["title"] in drawn
    assert plots.source(document([base])).split(" · ")[-2] == "run first"


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


def test_one_font_has_every_sign_of_a_picture(nights: dict[str, Any]) -> None:
    """Where a font lacks a sign, the whole line that it stands in is drawn in another."""
    from fontTools.ttLib import TTFont

    known = set(TTFont(Path(plots.font_folder()) / "DejaVuSans.ttf").getBestCmap())
    words = [f"{chart.title}{chart.reading}{chart.spec!r}" for chart in plots.charts().values()]
    words += [*VERDICT_GLYPHS.values(), *map(glyph, STATUSES), "\u202f±×µΩ…→"]
    assert {sign for text in words for sign in text if ord(sign) not in known} == set()
    for name, picture in pictures(nights).items():
        assert set(re.findall(r'font-family="([^"]*)"', picture.decode())) == {"DejaVu Sans, sans-serif"}, name


def swept(*fixed: str) -> dict[str, Any]:
    """One workload over n, with other parameters held at each of some values."""
    records = [
        record(f"op/a[{held}n={n}]@torch/{variant}:eval", 1e-3 * n**2 * share)
        for held in fixed for n in (1, 4, 16) for variant, share in SHARES
    ]  # fmt: skip
    return document([run("a", records)])


def test_every_dtype_of_a_sweep_is_in_its_picture() -> None:
    picture = plots.picture(swept("dtype=bf16,", "dtype=fp32,"), "svg", "sweep-log-log")[1]
    text = picture.decode()
    for line in ("torch/eager bf16", "torch/compile bf16", "torch/eager fp32", "torch/compile fp32"):
        assert f">{line}<" in text, line
    assert "not in this picture" not in text
    heat = plots.picture(swept("dtype=bf16,", "dtype=fp32,"), "svg", "sweep-heat")[1].decode()
    assert ">torch/compile fp32<" in heat and ">torch/compile bf16<" in heat


def test_what_a_picture_of_a_sweep_has_no_room_for_is_said() -> None:
    text = plots.picture(swept(*(f"dtype={name}," for name in ("bf16", "fp16", "fp32", "fp64", "int8"))), "svg", "sweep-log-log")[
        1
    ].decode()
    assert "of 30 measured points belong to other sweeps and are not in this picture" in text


@given(st.lists(st.tuples(st.sampled_from(["m=1 fp32", "m=2 fp32", "m=1 bf16", ""]), st.integers(1, 4)), min_size=1, max_size=5))
def test_sweeps_drawn_together_have_lines_of_different_names(kin: list[tuple[str, int]]) -> None:
    distinct = list(dict(kin).items())
    same = {"workload": "op", "axis": "n", "kind": "number", "mode": "eval", "baseline": "s0"}
    found = together([{**same, "fixed": held, "lines": [{"name": f"s{at}", "points": []} for at in range(n)]} for held, n in distinct])
    names = [line["name"] for sweep in found for line in sweep["lines"]]
    assert len(set(names)) == len(names) and (len(found) == 1 or len(names) <= MOST_LINES)
    assert all(sweep["baseline"] == sweep["lines"][0]["name"] for sweep in found)
    assert found[0]["lines"][0]["name"].startswith("s0")
