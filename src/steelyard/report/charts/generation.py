"""Charts of text generation: when tokens came, the spread of their times, tokens per second by batch, and both phases on the roofline."""

from __future__ import annotations

from typing import Any

from steelyard.measuring.roofline import Roof, share_of
from steelyard.model.parts import NAMES, TOLD
from steelyard.model.record import Figure
from steelyard.model.units import percent, plain, with_error
from steelyard.report.charts import Chart, Rows, roofline, sweep, vega
from steelyard.report.charts.case import SHARE, SHARES, scale_ends, times_axis
from steelyard.report.charts.vega import BLUE, GREY, ORANGE, Spec

TIMELINE = ("case", "line", "track", "kind", "token", "time", "text")
"""`track` is the variant, with the row of the batch if rows differ; `kind` is first, token or end; `time` is in seconds since the start."""
SPREAD = ("case", "line", "time", "drawn", "share", "text")
"""One raw time in seconds, its place (the edge of the scale if it is beyond it), and the share of all times up to it;
`line` is the variant and the number of times."""
PHASES = {"ttft": "prefill", "itl": "decode"}
ROOF_COLUMNS = (*roofline.COLUMNS, "part")
"""The columns of the roofline, and `part`, which is prefill or decode."""
BATCH, RATE = "batch", "item_rate"


def _timeline() -> Chart:
    across: Spec = times_axis("time", scale={"zero": True, "nice": True})
    down: Spec = {"field": "track", "type": "nominal", "sort": None, "axis": vega.names(labelLimit=180)}
    tooltip = vega.told(("track", "variant"), ("text", "token"))
    ahead: Spec = {"y": down, "x": across, "x2": {"datum": 0}}
    token: Spec = {"y": down, "x": across, "tooltip": tooltip}
    layers = [
        vega.layer("bar", ahead, "datum.kind === 'first'", color=ORANGE, opacity=0.35, height={"band": 0.62}),
        vega.layer("tick", token, "datum.kind !== 'end'", color=BLUE, thickness=1.5, height={"band": 0.62}),
        vega.layer("tick", token, "datum.kind === 'end'", color=GREY, thickness=1.5, height={"band": 0.9}),
        vega.captions("''", "'time since the request was made'")[1],
    ]
    reading = (
        "The request of median length of each variant: the orange bar is the time to its first token (TTFT), each blue tick one token, the "
        "grey one its end; even gaps are steady decoding, a wide gap is a stall."
    )
    return Chart("generation-timeline", "Token timeline", reading, vega.framed(layers, {"step": 34}), TIMELINE, timeline_rows)


def _spread(part: str, what: str) -> Chart:
    across, name = times_axis("drawn"), vega.by_name("line")
    tooltip = [*vega.told(("line", "variant"), ("text", NAMES[part])), {**SHARE, "title": "at most that", "format": ".1%"}]
    layers = [
        vega.layer("line", {"x": across, "y": SHARES, "stroke": name}, interpolate="step-after", strokeWidth=1.75),
        vega.layer("point", {"x": across, "y": SHARES, "detail": {"field": "line"}, "tooltip": tooltip}, opacity=0, size=60),
        *vega.captions(f"'share of {what} at most that long'", f"'{NAMES[part]}'"),
    ]
    reading = (
        f"The share of all {what} up to each time, with their number: further left is faster, steeper is steadier, and "
        "a long right end is a slow tail; times far beyond the others are drawn at the edge."
    )

    def rows(document: dict[str, Any], case: str | None = None) -> Rows:
        point = chosen(document, case)
        return spread_rows(point, part) if point else []

    return Chart(f"generation-{part}", f"Distribution of {NAMES[part]}", reading, vega.framed(layers, 240), SPREAD, rows)


def _throughput() -> Chart:
    usual = sweep.lines("log", "linear")
    reading = "Tokens per second of all rows by the number of rows in a batch, a line per variant; bands are 95 % intervals."
    return Chart("generation-throughput", "Throughput against batch", reading, usual.spec, usual.columns, throughput_rows)


def _roofs() -> Chart:
    reading = (
        "Reading the prompt (prefill, from TTFT) and making one token (decode, from ITL), below the most this machine can do: decode "
        "is usually under the slope, where memory is the limit, and prefill further right."
    )
    return Chart("generation-roofline", "Prefill and decode", reading, _by_part(roofline.CHARTS[0].spec), ROOF_COLUMNS, roofline_rows)


def _by_part(spec: Any) -> Any:
    """The roofline's spec with shapes for the phases of a request instead of for what bounds a case."""
    if isinstance(spec, list):
        return [_by_part(item) for item in spec]
    if not isinstance(spec, dict):
        return spec
    if spec.get("field") == "bound" and "scale" in spec:
        shapes = {"domain": list(PHASES.values()), "range": ["square", "circle"]}
        return {**spec, "field": "part", "scale": shapes, "legend": {**spec["legend"], "title": None}}
    return {key: _by_part(item) for key, item in spec.items()}


def chosen(document: dict[str, Any], case: str | None = None) -> dict[str, Any] | None:
    """The point of a case; without a case the first point, since a picture shows one."""
    points: list[dict[str, Any]] = (document.get("generation") or {"points": []})["points"]
    return next((point for point in points if case is None or any(item["case"] == case for item in point["cases"])), None)


def timeline_rows(document: dict[str, Any], case: str | None = None) -> Rows:
    """The tokens of one request for each variant of a point."""
    found: Rows = []
    for item in (chosen(document, case) or {"cases": []})["cases"]:
        tracks = item.get("tokens") or []
        for row, times in enumerate(tracks, 1):
            track = item["line"] if len(tracks) == 1 else f"{item['line']}, row {row}"
            common = {"case": item["case"], "line": item["line"], "track": track}
            for number, time in enumerate(times, 1):
                after = f", {plain(time - times[number - 2], 's')} after the one before" if number > 1 else ""
                text = f"token {number} at {plain(time, 's')}{after}"
                found.append({**common, "kind": "token" if number > 1 else "first", "token": number, "time": time, "text": text})
            found.append({**common, "kind": "end", "token": None, "time": item["end"], "text": f"ended at {plain(item['end'], 's')}"})
    return found


def spread_rows(point: dict[str, Any], part: str) -> Rows:
    """The raw times of one part for each variant of a point, with the share of all times up to each."""
    known = [item for item in point["cases"] if item[part]]
    if not known:
        return []
    ends = [scale_ends(item[part]) for item in known]
    low, high = min(end[0] for end in ends), max(end[1] for end in ends)
    found = []
    for item in known:
        values, n = item[part], item["n"][part]
        for place, time in enumerate(values):
            rank = place if n == len(values) else place * (n - 1) // (len(values) - 1)
            row = {"case": item["case"], "line": f"{item['line']}, n = {n}", "time": time, "drawn": min(max(time, low), high)}
            found.append({**row, "share": (rank + 1) / n, "text": plain(time, "s", 4)})
    return found


def throughput_rows(document: dict[str, Any]) -> Rows:
    """Tokens per second of the first workload that was measured with several batches."""
    cases = {item["case"] for point in (document.get("generation") or {"points": []})["points"] for item in point["cases"]}
    for found in document["sweep"] or []:
        if found["axis"] == BATCH and any(point["case"] in cases for line in found["lines"] for point in line["points"]):
            rows = sweep.sweep_rows(document, found, RATE)
            one_backend = len({row["line"].partition("/")[0] for row in rows}) == 1
            return [{**row, "line": row["line"].partition("/")[2]} for row in rows] if one_backend else rows
    return []


def roofline_rows(document: dict[str, Any]) -> Rows:
    """Both phases of every case that has a roof, and the roofs over them, as the document keeps them."""
    return list((document.get("generation") or {"roofline": []})["roofline"])


def phases_on_roofs(document: dict[str, Any]) -> Rows:
    """Both phases of every case that has a roof, and the roofs over them, made from the cases of a document."""
    cases = {case["id"]: case for case in document["cases"]}
    lines = {item["case"]: item["line"] for point in document["generation"]["points"] for item in point["cases"]}
    shown = [cases[id] for id in lines if cases[id]["roof"]]
    points = [row for case in shown for part in TOLD if (row := _phase(case, part, lines[case["id"]]))]
    if not points:
        return []
    types = {case["roof"].get("dtype") for case in shown}
    roofs = [roof for roof in document["roofline"]["roofs"] if not roof["dtype"] or roof["dtype"] in types]
    corners = roofline.roof_rows(roofs, [row["intensity"] for row in points])
    return [*({**row, "part": None} for row in corners), *points]


def _phase(case: dict[str, Any], part: str, line: str) -> dict[str, Any] | None:
    """One phase of a case as a point; None if its compute or bandwidth is unknown."""
    computed, moved = (_rate(case["metrics"].get(f"{part}_{kind}")) for kind in ("compute", "bandwidth"))
    if not computed or not moved:
        return None
    peaks = case["roof"]["peak_compute"], case["roof"]["peak_bandwidth"]
    stored = _rate(case["metrics"].get(f"{part}_roof"))
    share = stored or (share_of({"compute": computed, "bandwidth": moved}, Roof(*peaks, "")) if all(peaks) else None)
    return {
        **dict.fromkeys(ROOF_COLUMNS), "kind": "point", "case": case["id"], "line": line, "part": PHASES[part],
        "label": f"{case['label'] or case['id']}, {PHASES[part]}", "intensity": computed.value / moved.value,
        "achieved": computed.value, "low": computed.low, "high": computed.high,
        "text": with_error(computed.value, computed.low, computed.high, "FLOP/s"), "share": percent(share.value) if share else "",
    }  # fmt: skip


def _rate(figure: list[Any] | None) -> Figure | None:
    """A figure from a document's rate, which is a value, both ends of its interval, and its number of samples."""
    return Figure(figure[0], "1", "higher", *figure[1:4]) if figure and figure[0] else None


CHARTS = (_timeline(), _spread("ttft", "requests"), _spread("itl", "times between tokens"), _throughput(), _roofs())
