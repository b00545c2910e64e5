"""Multi-panel figures for the benchmarks. They use the Agg canvas, so no display is needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.measure import say

INK = "#222222"
GRID = "#dddddd"

PANEL = (4.6, 3.4)
"""Default width and height of a panel in inches."""

DPI = 150


def sheet(
    panels: int, title: str, columns: int = 2, panel: tuple[float, float] = PANEL
) -> tuple[Any, list[Any]]:
    """Make a figure with a title and the given numbers of panels and columns; return the figure and
    its axes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = min(columns, panels)
    rows = -(-panels // columns)
    figure = Figure(
        figsize=(panel[0] * columns, panel[1] * rows + 0.6), dpi=DPI, layout="constrained"
    )
    FigureCanvasAgg(figure)
    figure.suptitle(title, x=0.01, ha="left", fontsize=12, color=INK)
    axes = figure.subplots(rows, columns, squeeze=False).ravel().tolist()
    for spare in axes[panels:]:
        spare.set_axis_off()
    for one in axes:
        one.grid(color=GRID, linewidth=0.6)
        one.set_axisbelow(True)
        one.spines[["top", "right"]].set_visible(False)
        one.tick_params(labelsize=8, colors=INK)
    return figure, axes[:panels]


def save(figure: Any, path: Path) -> None:
    """Write the picture and print its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    say(f"wrote {path}")
