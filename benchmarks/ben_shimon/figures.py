"""Pictures of the results: Figures 1 and 2 (vectors and RMSE over time), as PNG files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.ben_shimon import paper
from benchmarks.sheets import INK, save, sheet

Lines = list[dict[str, Any]]

STAR = "#d4a017"

COLOURS = {"basic": "#8a8a8a", "split-merge": "#c8553d", "incremental": "#3b6ea8", "working-set": "#3d8f5f"}
"""The colours of the strategies."""

MARKERS = {"split-merge": "s", "incremental": "o", "working-set": "^"}

CROWD = 45
"""Maximum number of points of a curve that is drawn with markers."""


def _plain(axis: Any) -> None:
    """Label a logarithmic axis with a few plain numbers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axis.set_minor_formatter(NullFormatter())


def basic(trace: dict[str, list[float]], path: Path) -> None:
    """Draw Figure 1: vectors and test RMSE of ``basic`` on Boston over seconds, a dot per iteration that deletes."""
    figure, axes = sheet(2, "Figure 1. The basic RVM on Boston")
    vectors = trace["vectors"]
    deletes = [k for k in range(1, len(vectors)) if vectors[k] < vectors[k - 1]]
    for panel, key, label in zip(axes, ("vectors", "rmse"), ("vectors", "test RMSE"), strict=True):
        panel.plot(trace["seconds"], trace[key], color=COLOURS["basic"], linewidth=1.6)
        panel.plot(
            [trace["seconds"][k] for k in deletes], [trace[key][k] for k in deletes], "o", color=INK, markersize=3
        )
        panel.set_xlabel("seconds", fontsize=9)
        panel.set_ylabel(label, fontsize=9)
        panel.set_ylim(bottom=0)
    save(figure, path)


def over_time(traces: Lines, key: str, path: Path) -> None:
    """Draw Figure 2 by ``key`` "vectors" or "rmse": a panel per set, a curve per strategy, seconds on the x axis."""
    sets = list(dict.fromkeys(trace["data"] for trace in traces))
    what = {"vectors": "Relevance vectors", "rmse": "Test RMSE"}[key]
    figure, axes = sheet(len(sets), f"Figure 2. {what} over the seconds of a fit")
    for panel, name in zip(axes, sets, strict=True):
        for trace in [trace for trace in traces if trace["data"] == name]:
            strategy = trace["strategy"]
            label = {"split-merge": "split-merge, all parts of a level"}.get(strategy, strategy)
            style = {"color": COLOURS[strategy], "linewidth": 1.6, "label": label}
            marker = MARKERS[strategy] if len(trace[key]) <= CROWD else ""
            panel.plot(trace["seconds"], trace[key], marker=marker, markersize=3.2, **style)
            panel.plot(
                trace["seconds"][-1], trace[key][-1], marker=MARKERS[strategy], markersize=8, color=style["color"]
            )
        _mark_paper(panel, name, key)
        panel.set_title(name, loc="left", fontsize=10, color=INK)
        panel.set_xscale("log")
        _plain(panel.xaxis)
        if key == "vectors":
            panel.set_yscale("log")
            _plain(panel.yaxis)
        panel.set_xlabel("seconds", fontsize=9)
        panel.set_ylabel("vectors" if key == "vectors" else "test RMSE", fontsize=9)
    axes[0].legend(fontsize=8, frameon=False)
    save(figure, path)


def _mark_paper(panel: Any, name: str, key: str) -> None:
    """Draw a line at the paper's number for the working set."""
    theirs: Any = paper.rmse(name, "working-set") if key == "rmse" else paper.vectors(name, "working-set")
    if theirs is None:
        return
    mean, deviation = theirs
    panel.axhspan(mean - deviation, mean + deviation, color=STAR, alpha=0.35, linewidth=1.2, label="paper, at the end")
