"""Panels drawn into matplotlib axes."""

from __future__ import annotations

from typing import Any

import numpy as np

from partirvm.report.panel_svg import NAME, axis_ticks
from partirvm.report.panels import Band, Bars, Cells, Dots, Errors, Line, Mark, Panel

CLASSES = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#8c6d00")
"""Colours of lines of classes, which colour-blind readers can tell apart (Okabe & Ito 2008)."""

INK, GRID, OBSERVED, CONTRAST = "#222222", "#e4e4e4", "#2c66a8", "#bf4f2c"

STYLE: dict[str, Any] = dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color"), INK)
STYLE |= {"font.size": 9, "axes.titlesize": 10, "axes.titleweight": "bold", "axes.titlelocation": "left"}


def plot_panel(axis: Any, panel: Panel) -> None:
    """Draw a panel into matplotlib axes."""
    axis.set(title=panel.title, xlabel=panel.x_label, ylabel=panel.y_label, xlim=panel.x, ylim=panel.y)
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(length=3)
    if panel.cells:
        _matrix(axis, panel.cells)
    else:
        axis.set_prop_cycle(color=CLASSES)
        for mark in panel.marks:
            _mark(axis, mark)
        for which, ends, percent in (("x", panel.x, panel.percent[0]), ("y", panel.y, panel.percent[1])):
            ticks, labels = axis_ticks(ends, 5, percent=percent)
            getattr(axis, f"set_{which}ticks")(ticks, labels)
        axis.grid(color=GRID, linewidth=0.6)
        axis.set_axisbelow(True)
    if panel.legend:
        many = len(axis.get_legend_handles_labels()[1]) > 3
        place = {"loc": "upper left", "fontsize": 6.5, "handlelength": 1.2, "labelspacing": 0.25} if many else {}
        axis.legend(**{"frameon": False, "fontsize": 8, "loc": "best", **place})


def _mark(axis: Any, mark: Mark) -> None:
    match mark:
        case Dots(x, y):
            axis.plot(x, y, ".", color=OBSERVED, alpha=0.4, markersize=4, markeredgewidth=0)
        case Line(x, y, name, stated=True):
            axis.plot(x, y, color=INK, linewidth=1.0, linestyle=(0, (5, 4)), label=name or None, zorder=3)
        case Line(x, y, main=True):
            axis.plot(x, y, color=OBSERVED, linewidth=1.6)
        case Line(x, y, name):
            axis.plot(x, y, linewidth=1.0, label=_short(name))
        case Errors(x, y, low, high):
            ends = np.maximum([y - low, high - y], 0.0)
            own = {"fmt": "o", "color": CONTRAST, "markersize": 4, "linewidth": 1.2, "zorder": 4, "clip_on": False}
            axis.errorbar(x, y, ends, label=mark.name or None, **own)
        case Bars(edges, low, high, name=name, contrast=contrast):
            colour = CONTRAST if contrast else OBSERVED
            width = np.diff(edges)
            axis.bar(
                edges[:-1], high - low, 0.96 * width, low, align="edge", color=colour, alpha=0.75, label=name or None
            )
        case Band(low, high):
            axis.axhspan(low, high, color="#777777", alpha=0.25, linewidth=0, zorder=0)


def _matrix(axis: Any, cells: Cells) -> None:
    """Draw a matrix of fractions, first row at the top; up to ten classes have percentages in the cells."""
    K = len(cells.names)
    for (row, column), share in np.ndenumerate(cells.shares):
        colour = OBSERVED if row == column else CONTRAST
        corner = column + 0.02, K - row - 0.98
        axis.bar(corner[0], 0.96, 0.96, corner[1], align="edge", color=colour, alpha=0.06 + 0.84 * share, linewidth=0)
        if K <= 10 and f"{100 * share:.0f}" != "0":
            ink = "white" if share > 0.55 else INK
            axis.text(column + 0.5, K - row - 0.5, f"{100 * share:.0f}", color=ink, ha="center", va="center")
    names = [_short(name) for name in cells.names]
    turned = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"} if K * max(map(len, names)) > 36 else {}
    axis.set_xticks(np.arange(K) + 0.5, names, **turned)
    axis.set_yticks(K - np.arange(K) - 0.5, names)
    axis.tick_params(length=0)
    axis.spines[["left", "bottom"]].set_visible(False)


def _short(name: str) -> str:
    return name if len(name) <= NAME else name[: NAME - 1] + "…"
