"""Figures 3 and 4 of the paper: sketches of split-and-merge and of the incremental strategy, 4,000 rows, P = 1,000."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.sheets import INK, save, sheet

FILL, LAST = "#dbe7f3", "#f3dfd8"
"""Colours of a fit that stops early, and of the last fit."""

PARTS = 4
WIDE, HIGH = 1.6, 0.7


def _box(axis: Any, x: float, y: float, text: str, colour: str = FILL) -> None:
    """Draw a box with its centre at x, y."""
    from matplotlib.patches import FancyBboxPatch

    style = {"boxstyle": "round,pad=0.02,rounding_size=0.08", "facecolor": colour, "edgecolor": INK, "linewidth": 0.8}
    axis.add_patch(FancyBboxPatch((x - WIDE / 2, y - HIGH / 2), WIDE, HIGH, **style))
    axis.text(x, y, text, ha="center", va="center", fontsize=8, color=INK)


def _arrow(axis: Any, start: tuple[float, float], end: tuple[float, float]) -> None:
    axis.annotate("", end, start, arrowprops={"arrowstyle": "->", "color": INK, "lw": 0.9, "shrinkA": 0, "shrinkB": 0})


def _drawn(title: str, size: tuple[float, float]) -> tuple[Any, Any]:
    figure, (axis,) = sheet(1, title, 1, size)
    axis.set_axis_off()
    return figure, axis


def split_merge(path: Path) -> None:
    """Draw Figure 3: four fits, whose vectors are merged in pairs until one fit is left."""
    figure, axis = _drawn("Figure 3. Split and merge: 4,000 rows, P = 1,000", (8, 4.2))
    level = [(2.0 * k, 4.0) for k in range(PARTS)]
    for k, (x, y) in enumerate(level):
        _box(axis, x, y, f"rows {1000 * k + 1:,}–{1000 * (k + 1):,}\n1,000 candidates")
    while len(level) > 1:
        merged = [((a[0] + b[0]) / 2, a[1] - 1.6) for a, b in zip(level[::2], level[1::2], strict=True)]
        for k, (x, y) in enumerate(merged):
            for other in level[2 * k : 2 * k + 2]:
                _arrow(axis, (other[0], other[1] - HIGH / 2), (x, y + HIGH / 2))
            last = len(merged) == 1
            _box(
                axis,
                x,
                y,
                "vectors of both\n" + ("fit converges" if last else "until P/2 are left"),
                LAST if last else FILL,
            )
        level = merged
    axis.set(xlim=(-1.1, 7.1), ylim=(0.2, 4.6))
    save(figure, path)


def incremental(path: Path) -> None:
    """Draw Figure 4: each fit has the vectors so far and the next partition as candidates."""
    figure, axis = _drawn("Figure 4. Incremental: 4,000 rows, P = 1,000", (8, 3.4))
    for k in range(PARTS):
        x, last = 2.2 * k, k == PARTS - 1
        _box(axis, x, 3.0, f"rows {1000 * k + 1:,}–{1000 * (k + 1):,}")
        _arrow(axis, (x, 3.0 - HIGH / 2), (x, 1.6 + HIGH / 2))
        words = "P candidates" if k == 0 else "vectors so far\n+ P candidates"
        _box(axis, x, 1.6, words + ("\nfit converges" if last else ""), LAST if last else FILL)
        if k:
            _arrow(axis, (x - 2.2 + WIDE / 2, 1.6), (x - WIDE / 2, 1.6))
    axis.set(xlim=(-1.1, 7.7), ylim=(0.9, 3.6))
    save(figure, path)
