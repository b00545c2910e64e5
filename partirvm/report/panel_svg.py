"""Panels as SVG for a page, whose style sheet sets the colours."""

from __future__ import annotations

import math
from collections.abc import Callable
from html import escape

import numpy as np

from partirvm.report.curves import nice_step, text_width, tick_labels
from partirvm.report.panels import Band, Bars, Cells, Dots, Errors, Line, Mark, Panel

WIDTH, HEIGHT = 400, 300
TOP, RIGHT, BOTTOM = 10, 14, 42
"""Size and margins of a panel, in units of the view box."""

NAME = 12
"""Maximum number of characters of a class name beside a matrix."""

FAINT, DEEP = 0.06, 0.48
"""Opacity of a cell of share 0 and of share 1. Text on a deeper cell would have too little contrast."""

Place = Callable[[float, float], tuple[float, float]]


def draw_panel(panel: Panel) -> str:
    """Return a panel as SVG."""
    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(panel.description)}">']
    drawn = _matrix(panel, panel.cells) if panel.cells else _axes(panel)
    return "".join([*parts, *drawn, "</svg>"])


def axis_ticks(ends: tuple[float, float], most: int, *, percent: bool) -> tuple[list[float], list[str]]:
    """Return the ticks inside an axis and their labels.

    >>> axis_ticks((0.0, 1.0), 5, percent=True)
    ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], ['0', '20 %', '40 %', '60 %', '80 %', '100 %'])
    """
    step = nice_step(ends[1] - ends[0], most)
    first, last = math.ceil(ends[0] / step - 1e-9), math.floor(ends[1] / step + 1e-9)
    ticks = [float(f"{k * step:.12g}") for k in range(first, last + 1)]
    if percent:
        return ticks, [f"{100 * tick:.4g} %" if tick else "0" for tick in ticks]
    return ticks, tick_labels(ticks)


def _axes(panel: Panel) -> list[str]:
    """Return numeric axes and the marks."""
    across = axis_ticks(panel.x, 5, percent=panel.percent[0])
    up = axis_ticks(panel.y, 5, percent=panel.percent[1])
    left, base = 30 + max(map(text_width, up[1])), HEIGHT - BOTTOM
    width, height = WIDTH - RIGHT - left, base - TOP

    def place(x: float, y: float) -> tuple[float, float]:
        share = (x - panel.x[0]) / (panel.x[1] - panel.x[0]), (y - panel.y[0]) / (panel.y[1] - panel.y[0])
        return left + width * share[0], base - height * share[1]

    parts = []
    for tick, label in zip(*up, strict=True):
        y = place(panel.x[0], tick)[1]
        parts.append(f'<path class="grid" d="M{left:.1f} {y:.1f}h{width:.1f}"/>')
        parts.append(f'<text class="tick" x="{left - 6:.1f}" y="{y + 3.8:.1f}" text-anchor="end">{label}</text>')
    parts.append(f'<path class="axis" d="M{left:.1f} {base}h{width:.1f}"/>')
    for tick, label in zip(*across, strict=True):
        x = place(tick, panel.y[0])[0]
        end = min(x, WIDTH - text_width(label) / 2)
        parts.append(f'<path class="axis" d="M{x:.1f} {base}v4"/>')
        parts.append(f'<text class="tick" x="{end:.1f}" y="{base + 16}" text-anchor="middle">{label}</text>')
    parts += _labels(panel, left + width / 2, base - height / 2)
    for mark in panel.marks:
        parts += _mark(mark, place)
    return parts


def _labels(panel: Panel, x: float, y: float) -> list[str]:
    across, up = escape(_short(panel.x_label, 48)), escape(_short(panel.y_label, 38))
    turned = f'transform="translate(12 {y:.1f}) rotate(-90)"'
    return [
        f'<text class="label" x="{x:.1f}" y="{HEIGHT - 6}" text-anchor="middle">{across}</text>',
        f'<text class="label" {turned} text-anchor="middle">{up}</text>',
    ]


def _mark(mark: Mark, place: Place) -> list[str]:
    match mark:
        case Dots(x, y):
            path = "".join("M{:.1f} {:.1f}h0".format(*place(*point)) for point in zip(x, y, strict=True))
            return [f'<path class="rows training" d="{path}"/>']
        case Line(x, y, name, stated, main):
            path = "L".join("{:.1f} {:.1f}".format(*place(*point)) for point in zip(x, y, strict=True))
            if main:
                return [f'<path class="line training" d="M{path}"/>']
            if stated:
                return [f'<path class="stated" d="M{path}"/>']
            return [f'<path class="thin" d="M{path}"><title>{escape(name)}</title></path>'] if path else []
        case Errors():
            return _errors(mark, place)
        case Bars():
            return _bars(mark, place)
        case Band(low, high):
            (left, top), (right, base) = place(0.0, high), place(1.0, low)
            box = f'x="{left:.1f}" y="{top:.1f}" width="{right - left:.1f}" height="{base - top:.1f}"'
            return [f'<rect class="chance" {box}><title>expected range by chance, 95 %</title></rect>']
    raise AssertionError(f"no way to draw {mark}")


def _errors(mark: Errors, place: Place) -> list[str]:
    parts = []
    for x, y, low, high, tip in zip(mark.x, mark.y, mark.low, mark.high, mark.tips, strict=True):
        (across, up), (_, bottom), (_, top) = place(x, y), place(x, low), place(x, high)
        parts.append(f'<path class="error held-out" d="M{across:.1f} {bottom:.1f}V{top:.1f}"/>')
        title = f"<title>{escape(tip)}</title>"
        parts.append(f'<circle class="dot held-out" cx="{across:.1f}" cy="{up:.1f}" r="3">{title}</circle>')
    return parts


def _bars(mark: Bars, place: Place) -> list[str]:
    parts, style = [], "held-out" if mark.contrast else "training"
    for start, end, low, high, tip in zip(mark.edges, mark.edges[1:], mark.low, mark.high, mark.tips, strict=False):
        (left, top), (right, base) = place(start, high), place(end, low)
        box = f'x="{left + 0.7:.1f}" y="{top:.1f}" width="{right - left - 1.4:.1f}" height="{base - top:.1f}"'
        parts.append(f'<rect class="share {style}" {box}><title>{escape(tip)}</title></rect>')
    return parts


def _matrix(panel: Panel, cells: Cells) -> list[str]:
    """Return a matrix of fractions, with the percentages as text if they fit."""
    names = [_short(str(name), NAME) for name in cells.names]
    K, base = len(names), HEIGHT - BOTTOM
    left = 30 + max(text_width(name) * 1.08 for name in names)
    wide, high = (WIDTH - RIGHT - left) / K, (base - TOP) / K
    parts = _labels(panel, left + K * wide / 2, TOP + K * high / 2)
    every = 1 if all(text_width(name) < wide - 4 for name in names) else max(math.ceil(54 / wide), 1)
    for k, name in enumerate(names):
        y = TOP + (k + 0.5) * high + 3.8
        parts.append(f'<text class="tick" x="{left - 6:.1f}" y="{y:.1f}" text-anchor="end">{escape(name)}</text>')
        if k % every == 0:
            below = escape(_short(name, max(int(every * wide / 8), 1)))
            x = left + (k + 0.5) * wide
            parts.append(f'<text class="tick" x="{x:.1f}" y="{base + 15}" text-anchor="middle">{below}</text>')
    for (row, column), share in np.ndenumerate(cells.shares):
        x, y = left + column * wide, TOP + row * high
        box = f'x="{x + 0.5:.1f}" y="{y + 0.5:.1f}" width="{wide - 1:.1f}" height="{high - 1:.1f}"'
        tip = f"<title>{escape(cells.tips[row][column])}</title>"
        style = "training" if row == column else "held-out"
        opacity = f'fill-opacity="{FAINT + (DEEP - FAINT) * share:.2f}"'
        parts.append(f'<rect class="cell {style}" {box} {opacity}>{tip}</rect>')
        text = f"{100 * share:.0f}"
        if text != "0" and text_width(text) < wide - 2 and high > 13:
            at = f'x="{x + wide / 2:.1f}" y="{y + high / 2 + 4:.1f}"'
            parts.append(f'<text class="under" {at} text-anchor="middle">{text}</text>')
    return parts


def _short(text: str, letters: int) -> str:
    return text if len(text) <= letters else text[: letters - 1] + "…"
