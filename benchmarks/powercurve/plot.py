"""The power curve as one self-contained SVG: the share called slower against the real slowdown, false alarms at zero.

Colours can be told apart by the colour-blind, and every line also has its own marker, dash and label.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape

from benchmarks.powercurve.cells import FREE, GPU, GRAPH, HOGS, LABELS, MATCHED, ONE, PYPERF, PYTEST, QUIET
from benchmarks.powercurve.rules import RULES
from benchmarks.powercurve.score import AFTER, Rate, Shot

PALETTE = ("#0072B2", "#009E73", "#56B4E9", "#CC79A7", "#D55E00", "#E69F00", "#000000", "#7F7F7F", "#8C6D31", "#5E3C99")
MARKERS = ("circle", "square", "diamond", "triangle")
DASHES = ("", "6 3", "2 3", "8 3 2 3")
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 1080, 420, 60, 510, 50, 50
LABEL_GAP = 17
STEP = 0.12
SHORT = ("adds", "matmul")
CPU_SIZES, GPU_SIZES = (0.0, 1.0, 2.0, 5.0), (0.0, 0.5, 1.0)


@dataclass(frozen=True)
class Line:
    """One method: a rate at each size of slowdown that was tried."""

    label: str
    rates: dict[float, Rate]
    ours: bool

    @property
    def named(self) -> str:
        """With what it costs to trust it."""
        return f"{self.label}: false alarms {self.rates[0.0]}" if 0.0 in self.rates else self.label


def draw(found: Sequence[Shot]) -> str:
    """The whole picture: a panel for each environment that has data."""
    panels = [
        _panel(title, lines, sizes, number)
        for number, (title, lines, sizes) in enumerate(one for one in _content(found) if any(line.rates for line in one[1]))
    ]
    height = max(1, len(panels)) * HEIGHT
    text = f"font-family='system-ui, sans-serif' font-size='13' viewBox='0 0 {WIDTH} {height}' width='{WIDTH}' height='{height}'"
    title = "<title>Share of comparisons called slower against the real slowdown, by method</title>"
    inside = "".join(panels) or "<text x='20' y='40'>no comparisons yet</text>"
    paper = "<rect width='100%' height='100%' fill='#fff'/>"
    return f"<svg xmlns='http://www.w3.org/2000/svg' role='img' {text}>{title}{paper}{inside}</svg>\n"


def _content(found: Sequence[Shot]) -> Iterable[tuple[str, list[Line], Sequence[float]]]:
    kinds = ((ONE, 0.65), (ONE, 0.15), (MATCHED, 0.75), (FREE, 2.0))
    shipped = [LABELS[kind] for kind in (PYPERF, PYTEST)]
    for env, words in ((QUIET, "quiet"), (HOGS, "with as many busy loops as cores")):
        mine = [shot for shot in found if shot.env == env and shot.op in SHORT]
        ours = [_line(mine, LABELS[kind], budget, ours=True) for kind, budget in kinds]
        peers = [_line(mine, f"{rule}, {AFTER}", 0.65) for rule in RULES] + [_line(mine, label, 0.0) for label in shipped]
        yield f"100 small adds and a 20 µs matmul, {words}", [line for line in (*ours, *peers) if line.rates], CPU_SIZES
    device = [shot for shot in found if shot.env == GPU and shot.op == "add20m"]
    replayed = [_line(device, LABELS[GRAPH], budget, ours=True) for budget in (0.3, 0.1)]
    yield "GPU add of 20 million elements", [line for line in replayed if line.rates], GPU_SIZES


def _line(shots: Sequence[Shot], method: str, budget: float, *, ours: bool = False) -> Line:
    mine = [shot for shot in shots if shot.method == method and shot.budget == budget and shot.flag is not None]
    rates = {
        size: Rate.among(shot.flag == 1 if size else bool(shot.flag) for shot in mine if shot.percent == size)
        for size in sorted({shot.percent for shot in mine})
    }
    return Line(f"{method}, {budget:g} s" if budget else method, rates, ours)


def _panel(title: str, lines: Sequence[Line], sizes: Sequence[float], number: int) -> str:
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    places = {size: LEFT + 30 + index * (right - LEFT - 60) / (len(sizes) - 1) for index, size in enumerate(sizes)}

    def y(share: float) -> float:
        return bottom - share * (bottom - TOP)

    parts = [f"<text x='{LEFT}' y='24' font-size='16' font-weight='600'>{escape(title)}</text>"]
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        parts.append(f"<line x1='{LEFT}' x2='{right}' y1='{y(share):.1f}' y2='{y(share):.1f}' stroke='#ddd'/>")
        parts.append(f"<text x='{LEFT - 8}' y='{y(share) + 4:.1f}' text-anchor='end' fill='#555'>{100 * share:.0f} %</text>")
    for size, x in places.items():
        label = f"{size:g} % slower" if size else "equal: false alarms"
        parts.append(f"<text x='{x:.1f}' y='{bottom + 20}' text-anchor='middle' fill='#555'>{label}</text>")
    ends = _spaced([y(line.rates[max(line.rates)].share) for line in lines])
    for index, (line, end) in enumerate(zip(lines, ends, strict=True)):
        parts.append(_drawn(line, index, len(lines), places, y, end, right))
    return f"<g transform='translate(0 {number * HEIGHT})'>{''.join(parts)}</g>"


def _drawn(line: Line, index: int, count: int, places: dict[float, float], y: Callable[[float], float], end: float, right: float) -> str:
    colour, dash = PALETTE[index % len(PALETTE)], "" if line.ours else DASHES[1 + index % 3]
    aside = 40 * STEP * (index - (count - 1) / 2)
    points = [(places[size] + aside, rate) for size, rate in line.rates.items() if size in places]
    path = " ".join(f"{x:.1f},{y(rate.share):.1f}" for x, rate in points)
    look = f"stroke='{colour}' fill='none' stroke-width='{2.6 if line.ours else 1.4}'" + (f" stroke-dasharray='{dash}'" if dash else "")
    parts = [f"<polyline points='{path}' {look}/>"]
    for x, rate in points:
        low, high = rate.bounds
        parts.append(f"<line x1='{x:.1f}' x2='{x:.1f}' y1='{y(low):.1f}' y2='{y(high):.1f}' stroke='{colour}' opacity='.55'/>")
        parts.append(f"<g fill='{colour}'><title>{escape(line.label)}: {rate.in_full()}</title>{_marker(index, x, y(rate.share))}</g>")
    if points:
        x, rate = points[-1]
        parts.append(f"<path d='M{x + 6:.1f} {y(rate.share):.1f} L{right + 14} {end:.1f}' stroke='{colour}' opacity='.4' fill='none'/>")
    weight = " font-weight='600'" if line.ours else ""
    parts.append(f"<g fill='{colour}'>{_marker(index, right + 22, end)}</g>")
    parts.append(f"<text x='{right + 32}' y='{end + 4:.1f}' font-size='12'{weight}>{escape(line.named)}</text>")
    return "".join(parts)


def _marker(index: int, x: float, y: float) -> str:
    kind = MARKERS[index % len(MARKERS)]
    if kind == "circle":
        return f"<circle cx='{x:.1f}' cy='{y:.1f}' r='4'/>"
    if kind == "square":
        return f"<rect x='{x - 3.5:.1f}' y='{y - 3.5:.1f}' width='7' height='7'/>"
    corners = ((0, -5), (5, 0), (0, 5), (-5, 0)) if kind == "diamond" else ((0, -5), (5, 4), (-5, 4))
    return f"<polygon points='{' '.join(f'{x + dx:.1f},{y + dy:.1f}' for dx, dy in corners)}'/>"


def _spaced(wanted: Sequence[float]) -> list[float]:
    """Labels near where their lines end, none over another, all inside the panel."""
    order = sorted(range(len(wanted)), key=lambda index: wanted[index])
    placed, last = [0.0] * len(wanted), float(TOP - LABEL_GAP)
    for index in order:
        last = max(wanted[index], last + LABEL_GAP)
        placed[index] = last
    over = max(0.0, last - (HEIGHT - BOTTOM))
    below = float(HEIGHT - BOTTOM + LABEL_GAP)
    for index in reversed(order if over else []):
        below = min(placed[index], below - LABEL_GAP)
        placed[index] = below
    return placed
