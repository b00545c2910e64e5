"""The four strategies: which rows become candidates of which fit."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
from matplotlib.patches import FancyArrowPatch, Rectangle

BLUE, ORANGE, GREY, EDGE = "#4c78a8", "#f2a65a", "#d9d9d9", "#555555"
WIDTH, HEIGHT = 1.1, 0.55


def fit(axes: Any, x: float, y: float, kept: float, new: float) -> None:
    """Draw a fit: the share of kept vectors and of new candidates among its columns."""
    axes.add_patch(
        Rectangle((x, y - HEIGHT / 2), WIDTH * kept, HEIGHT, facecolor=BLUE, edgecolor="none")
    )
    axes.add_patch(
        Rectangle((x + WIDTH * kept, y - HEIGHT / 2), WIDTH * new, HEIGHT, facecolor=ORANGE)
    )
    axes.add_patch(
        Rectangle((x, y - HEIGHT / 2), WIDTH * (kept + new), HEIGHT, fill=False, edgecolor=EDGE)
    )


def arrow(axes: Any, start: tuple[float, float], end: tuple[float, float]) -> None:
    """Draw an arrow."""
    axes.add_patch(
        FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=9, color=EDGE, linewidth=0.8)
    )


def rows(axes: Any, parts: int) -> list[float]:
    """Draw all rows as a column of parts; return the height of the middle of each part."""
    each = 4.0 / parts
    for part in range(parts):
        axes.add_patch(
            Rectangle((0, part * each), 0.5, each, facecolor=GREY, edgecolor="white", linewidth=2)
        )
    return [each * (part + 0.5) for part in reversed(range(parts))]


def basic(axes: Any) -> None:
    """All rows in one fit."""
    rows(axes, 1)
    fit(axes, 2.2, 2.0, 0.0, 1.6)
    arrow(axes, (0.55, 2.0), (2.15, 2.0))


def incremental(axes: Any) -> None:
    """One partition after the other."""
    for number, height in enumerate(rows(axes, 4)):
        x = 1.3 + 1.75 * number
        fit(axes, x, height, 0.25 * min(number, 2), 0.5)
        arrow(axes, (0.55, height), (x - 0.05, height))
        if number:
            arrow(axes, (x - 1.75 + 0.3, height + 1 - HEIGHT / 2), (x + 0.1, height + HEIGHT / 2))


def split_merge(axes: Any) -> None:
    """Partitions side by side, merged in pairs."""
    heights = rows(axes, 4)
    middle = [(heights[0] + heights[1]) / 2, (heights[2] + heights[3]) / 2]
    for height in heights:
        fit(axes, 1.5, height, 0.0, 0.5)
        arrow(axes, (0.55, height), (1.45, height))
    for number, height in enumerate(middle):
        fit(axes, 3.6, height, 0.6, 0.0)
        for below in heights[2 * number : 2 * number + 2]:
            arrow(axes, (2.1, below), (3.55, height))
        arrow(axes, (4.3, height), (5.75, 2.0))
    fit(axes, 5.8, 2.0, 0.8, 0.0)


def working_set(axes: Any) -> None:
    """The most promising rows of all, in rounds."""
    rows(axes, 1)
    for number in range(4):
        x = 1.3 + 1.75 * number
        fit(axes, x, 1.0, 0.25 * min(number, 2), 0.5)
        axes.plot([0.55, x + 0.4], [3.2, 3.2], color=EDGE, linewidth=0.8)
        arrow(axes, (x + 0.4, 3.2), (x + 0.4, 1.0 + HEIGHT / 2))
        if number < 3:
            arrow(axes, (x + WIDTH * (0.25 * min(number, 2) + 0.5) + 0.02, 1.0), (x + 1.72, 1.0))
    axes.text(0.75, 3.35, "P most promising rows", fontsize=8)


figure, panels = plt.subplots(2, 2, figsize=(9, 5))
drawn = {
    "basic": basic,
    "incremental": incremental,
    "split-merge": split_merge,
    "working-set": working_set,
}
for axes, (name, draw) in zip(panels.flat, drawn.items(), strict=True):
    draw(axes)
    axes.set(title=name, xlim=(-0.1, 8.4), ylim=(-0.1, 4.1))
    axes.axis("off")
handles = [Rectangle((0, 0), 1, 1, facecolor=colour) for colour in (GREY, ORANGE, BLUE)]
figure.legend(
    handles, ["rows", "new candidates", "kept vectors"], loc="lower center", ncols=3, frameon=False
)
figure.subplots_adjust(left=0.02, right=0.99, top=0.93, bottom=0.09, wspace=0.05, hspace=0.2)
