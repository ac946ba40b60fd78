"""Colours and fonts of charts, separate from their specs, so that a picture made without a browser looks like the page."""

from __future__ import annotations

from typing import Any

CATEGORIES = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#767676")
ON_DARK = {"#0072B2": "#4AA8E0", "#009E73": "#2EBF96", "#D55E00": "#F07F32", "#CC79A7": "#DE9ABF", "#767676": "#9AA1AB"}
"""Lighter versions of the same hues, for dark pages: the palette of the specs is for white ones."""
LIGHT = {"ground": "#ffffff", "ink": "#1b2026", "muted": "#566069", "line": "#cfd5db", "hair": "#e9ecef"}
DARK = {"ground": "#191d22", "ink": "#e4e7ea", "muted": "#a4adb7", "line": "#3c444d", "hair": "#272d34"}
SIZE = 11.5


def theme(dark: bool = False) -> dict[str, Any]:
    """Vega's configuration for a light or dark background; the page makes its own in 03-chart.js from its CSS variables."""
    ink = DARK if dark else LIGHT
    words = {"labelColor": ink["muted"], "titleColor": ink["muted"], "labelFontSize": SIZE, "titleFontSize": SIZE, "titleFontWeight": 500}
    lines = {"gridColor": ink["hair"], "domainColor": ink["line"], "tickColor": ink["line"], "tickSize": 4, "labelPadding": 5}
    return {
        "background": ink["ground"],
        "font": "sans-serif",
        "view": {"stroke": None},
        "axis": {**words, **lines, "titlePadding": 8, "labelOverlap": "greedy"},
        "legend": {**words, "symbolSize": 60},
        "header": {**words, "labelColor": ink["ink"], "labelFontSize": 12.5},
        "title": {"color": ink["ink"], "anchor": "start", "fontSize": 12.5},
        "text": {"color": ink["ink"], "fontSize": SIZE},
        "rule": {"color": ink["muted"]},
        "range": {"category": [ON_DARK.get(colour, colour) if dark else colour for colour in CATEGORIES]},
    }
