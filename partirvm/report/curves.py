"""Curves as SVG: small line charts with rounded tick values and labels at the line ends.

The strings are XML for embedding in HTML. Every line has a CSS class, and the page sets the colours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from html import escape
from itertools import pairwise

WIDTH, HEIGHT = 400, 224
TOP, BOTTOM = 12, 40
CHARACTER, WIDE, NARROW = 7.6, 10.2, 4.2
"""Approximate widths, in units of the view box, of most characters, of − and %, and of points and blanks."""

LINE = 13
"""Height of a line of text."""

DECADES = 20.0
"""Ratio of the largest to the smallest value above which an axis of positive values is logarithmic."""

MARKED, MOST = 60, 240
"""Maximum number of points with visible marks, and maximum number of points drawn."""


@dataclass(frozen=True)
class Point:
    """A point of a line: ``low`` and ``high`` are the ends of the range of its value, ``tip`` is the tooltip."""

    x: float
    y: float
    tip: str = ""
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Series:
    """A line with its label, CSS class and points in order of x. If ``ring`` is true, the last point is marked."""

    name: str
    style: str
    points: tuple[Point, ...]
    ring: bool = False


@dataclass(frozen=True)
class Axis:
    """A scale from ``low`` to ``high`` with ticks."""

    low: float
    high: float
    ticks: tuple[float, ...]
    logarithmic: bool = False

    def share(self, value: float) -> float:
        """Return the relative position of a value, 0 at the low end and 1 at the high end."""
        if self.logarithmic:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


def nice_step(span: float, most: int, *, whole: bool = False) -> float:
    """Return the smallest of 1, 2, 2.5 and 5 times a power of ten that divides a span into at most ``most`` steps.

    >>> nice_step(0.87, 5), nice_step(11, 5), nice_step(3, 5, whole=True)
    (0.2, 2.5, 1)
    """
    power = 10.0 ** math.floor(math.log10(span / most))
    for factor in (1, 2, 2.5, 5, 10, 20):
        step = factor * power
        if span / step <= most * (1 + 1e-9) and (not whole or step == round(step)):
            break
    return max(round(step), 1) if whole else step


def linear_axis(values: Sequence[float], *, most: int = 5, whole: bool = False, tight: bool = False) -> Axis:
    """Return a linear axis, which starts at 0 if the values are near 0. Its ends are ticks unless ``tight`` is true.

    >>> linear_axis([0.1, 0.87]).ticks
    (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
    """
    low, high = min(values), max(values)
    if 0 <= low < 0.4 * high and not whole:
        low = 0.0
    if high - low <= 1e-9 * max(abs(low), abs(high)):
        margin = 0.5 if whole else 0.1 * abs(low) or 1.0
        low, high = low - margin * (low != 0 or whole), high + margin
    step = nice_step(high - low, most, whole=whole)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    if tight:
        ticks = [k * step for k in range(first, last + 1) if low <= k * step <= high * (1 + 1e-9)]
        return Axis(low, high, tuple(float(f"{tick:.12g}") for tick in ticks))
    return Axis(first * step, last * step, tuple(float(f"{k * step:.12g}") for k in range(first, last + 1)))


def magnitude_axis(values: Sequence[float]) -> Axis:
    """Return a linear axis, or a logarithmic axis if positive values differ by a large factor.

    >>> magnitude_axis([0.1, 30.0]).ticks
    (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0)
    """
    low, high = min(values), max(values)
    if low <= 0 or high / low < DECADES:
        return linear_axis(values)
    first, last = math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9)
    factors = (1, 2, 5) if last - first <= 3 else (1,)
    every = max((last - first) // 6 + 1, 1)
    ticks = [float(f"{factor}e{power}") for power in range(first, last + 1, every) for factor in factors]
    inside = [tick for tick in ticks if low < tick < high]
    below = [tick for tick in ticks if tick <= low * (1 + 1e-9)]
    above = [tick for tick in ticks if tick >= high * (1 - 1e-9)]
    shown = (*below[-1:], *inside, *above[:1])
    return Axis(min(low, shown[0]), max(high, shown[-1]), shown, logarithmic=True)


def tick_labels(ticks: Sequence[float]) -> list[str]:
    """Return the tick labels: short numbers with a common unit, on a linear axis with the same number of decimals.

    >>> tick_labels([0.0, 0.25, 0.5]), tick_labels([-20000.0, 0.0]), tick_labels([0.5, 5.0, 50.0])
    (['0', '0.25', '0.50'], ['−20 k', '0'], ['0.5', '5', '50'])
    """
    most = max(map(abs, ticks))
    unit, size = next(((u, s) for u, s in ((" G", 1e9), (" M", 1e6), (" k", 1e3)) if most >= 10 * s), ("", 1.0))
    plain = [f"{tick / size:.6g}" for tick in ticks]
    digits = max(len(text.partition(".")[2]) for text in plain)
    steps = {round((b - a) / most, 9) for a, b in pairwise(ticks)}
    if len(steps) == 1 and not any("e" in text for text in plain):
        plain = [f"{float(text):,.{digits}f}" if float(text) else "0" for text in plain]
    return [(text + unit * (text != "0")).replace("-", "−") for text in plain]


@dataclass(frozen=True)
class Chart:
    """Settings shared by all lines of a chart.

    ``name`` is the accessible label. If ``whole`` is true, x values are integers; otherwise the x axis starts at 0. If
    ``magnitudes`` is true, the y axis may be logarithmic. If ``counts`` is true, the y axis starts at 0. ``figure``
    formats the value at the end of a line, and ``last`` is the label at the end of the x axis.
    """

    name: str
    x_label: str
    whole: bool = False
    magnitudes: bool = False
    counts: bool = False
    figure: Callable[[float], str] = str
    last: str = ""

    def vertical(self, values: Sequence[float]) -> Axis:
        """Return the y axis for these values."""
        return magnitude_axis(values) if self.magnitudes else linear_axis([0.0] * self.counts + list(values))

    def horizontal(self, values: Sequence[float]) -> Axis:
        """Return the x axis for these values, without a tick near the label at its end."""
        axis = linear_axis([0.0] * (not self.whole) + list(values), most=6, whole=self.whole, tight=True)
        if not self.last:
            return axis
        return replace(axis, ticks=tuple(tick for tick in axis.ticks if axis.share(tick) < 0.92))


def text_width(text: str) -> float:
    """Return the approximate width of a label, in units of the view box.

    >>> round(text_width("−1.5 k"), 1)
    41.4
    """
    return sum(WIDE if one in "−%" else NARROW if one in "., " else CHARACTER for one in text)


def draw(chart: Chart, series: Sequence[Series]) -> str:
    """Return a chart as SVG. Non-finite values are left out. A chart without values is an empty string."""
    lines = [_thinned(_finite(line)) for line in series]
    lines = [line for line in lines if line.points]
    points = [point for line in lines for point in line.points]
    if not points:
        return ""
    ends = [_end_lines(line, chart.figure, alone=len(lines) == 1) for line in lines]
    vertical = chart.vertical([y for p in points for y in (p.y, p.low, p.high) if y is not None])
    horizontal = chart.horizontal([point.x for point in points])
    labels = tick_labels(vertical.ticks)
    left = 10 + max(map(text_width, labels))
    right = WIDTH - 12 - max(text_width(text) for texts in ends for text in texts)

    def place(x: float, y: float) -> tuple[float, float]:
        across = left + 6 + (right - left - 6) * horizontal.share(x)
        return across, HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * vertical.share(y)

    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(chart.name)}">']
    for tick, label in zip(vertical.ticks, labels, strict=True):
        y = place(horizontal.low, tick)[1]
        parts.append(f'<path class="grid" d="M{left:.1f} {y:.1f}H{right:.1f}"/>')
        parts.append(f'<text class="tick" x="{left - 6:.1f}" y="{y + 3.8:.1f}" text-anchor="end">{label}</text>')
    base = HEIGHT - BOTTOM
    parts.append(f'<path class="axis" d="M{left:.1f} {base}H{right:.1f}"/>')
    below = list(zip(horizontal.ticks, tick_labels(horizontal.ticks or [0.0]), strict=False))
    for tick, label in [*below, *([(horizontal.high, escape(chart.last))] if chart.last else [])]:
        x = place(tick, vertical.low)[0]
        parts.append(f'<path class="axis" d="M{x:.1f} {base}v4"/>')
        parts.append(f'<text class="tick" x="{x:.1f}" y="{base + 16}" text-anchor="middle">{label}</text>')
    centre = f'x="{(left + right) / 2:.1f}" y="{HEIGHT - 6}" text-anchor="middle"'
    parts.append(f'<text class="label" {centre}>{escape(chart.x_label)}</text>')
    for number, line in enumerate(lines):
        parts += _ranges(line, place, 4.0 * (number - (len(lines) - 1) / 2))
    for line in lines:
        parts += _marks(line, [place(point.x, point.y) for point in line.points])
    tops = _apart([place(line.points[-1].x, line.points[-1].y)[1] for line in lines], [len(end) for end in ends])
    for line, texts, y in zip(lines, ends, tops, strict=True):
        for row, text in enumerate(texts):
            weight = "end" if row == len(texts) - 1 else "name"
            at = f'x="{right + 9:.1f}" y="{y + 10 + LINE * row:.1f}"'
            parts.append(f'<text class="{weight} {escape(line.style)}" {at}>{escape(text)}</text>')
    return "".join(parts) + "</svg>"


def _finite(line: Series) -> Series:
    points = (p for p in line.points if all(math.isfinite(v) for v in (p.x, p.y, p.low or 0.0, p.high or 0.0)))
    return Series(line.name, line.style, tuple(points), line.ring)


def _thinned(line: Series) -> Series:
    """Return the line with every k-th point and the last point, at most ``MOST`` points."""
    every = -(-len(line.points) // MOST)
    points = line.points[:-1:every] + line.points[-1:] if every > 1 else line.points
    return Series(line.name, line.style, points, line.ring)


def _end_lines(line: Series, figure: Callable[[float], str], *, alone: bool) -> tuple[str, ...]:
    """Return the label at the end of a line: the name of the line (unless it is ``alone``) and the last value."""
    value = figure(line.points[-1].y)
    return (value,) if alone else (line.name, value)


def _ranges(line: Series, place: Callable[[float, float], tuple[float, float]], beside: float) -> list[str]:
    """Return the ranges of the points as SVG, shifted in x by ``beside`` so that ranges of two lines do not overlap."""
    parts = []
    for point in line.points:
        if point.low is not None and point.high is not None and point.low < point.high:
            (x, low), (_, high) = place(point.x, point.low), place(point.x, point.high)
            parts.append(f'<path class="range {escape(line.style)}" d="M{x + beside:.1f} {low:.1f}V{high:.1f}"/>')
    return parts


def _marks(line: Series, places: list[tuple[float, float]]) -> list[str]:
    """Return the line and a mark at each point, as SVG."""
    style = escape(line.style)
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
    parts = [f'<path class="line {style}" d="M{path}"/>']
    for number, (point, (x, y)) in enumerate(zip(line.points, places, strict=True), start=1):
        last = number == len(places)
        kind, radius = ("dot", 2.2) if len(places) <= MARKED or last else ("hit", 5)
        if line.ring and last:
            kind, radius = "ring", 3.4
        tip = f"<title>{escape(point.tip)}</title>" if point.tip else ""
        parts.append(f'<circle class="{kind} {style}" cx="{x:.1f}" cy="{y:.1f}" r="{radius}">{tip}</circle>')
    return parts


def _apart(centres: list[float], rows: list[int]) -> list[float]:
    """Return vertical positions of labels near these heights, inside the chart and without overlaps."""
    order = sorted(range(len(centres)), key=lambda k: centres[k])
    tops = [0.0] * len(centres)
    free = 0.0
    for k in order:
        tops[k] = max(centres[k] - LINE * rows[k] / 2, free)
        free = tops[k] + LINE * rows[k] + 3
    floor = float(HEIGHT - BOTTOM + LINE / 2)
    for k in reversed(order):
        tops[k] = min(tops[k], floor - LINE * rows[k])
        floor = tops[k] - 3
    return tops
