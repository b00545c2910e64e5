"""Pictures of the results: Figures 1 and 2 (vectors and RMSE over time), growth, and the trade-off.

The functions draw lines of results to PNG files.
"""

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

RAMP = ("#b9d4ee", "#7fb0dc", "#3b6ea8", "#274a73", "#12233a")
"""The colours of widths, from wide kernels to narrow kernels."""

AREA = 1.3
"""The area of a dot in square points, divided by P to the power of 0.7."""

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


def growth(lines: Lines, path: Path) -> None:
    """Draw seconds over rows on logarithmic axes: a panel per strategy, a curve per likelihood, and lines of slopes 1
    and 2.
    """
    strategies = list(dict.fromkeys(line["competitor"].split(", ")[0] for line in lines))
    figure, axes = sheet(len(strategies), "Seconds of a fit over rows, P = 50 (Friedman#1)")
    colours = dict(zip(range(4), ("#3d8f5f", "#3b6ea8", "#b07aa1", "#c8553d"), strict=True))
    for panel, strategy in zip(axes, strategies, strict=True):
        own = [line for line in lines if line["competitor"].startswith(strategy)]
        for number, name in enumerate(dict.fromkeys(line["competitor"] for line in own)):
            points = [(line["rows"], line["seconds"]) for line in own if line["competitor"] == name]
            label = name.removeprefix(f"{strategy}, ")
            panel.plot(
                *zip(*points, strict=True), marker="os^D"[number], markersize=5, color=colours[number], label=label
            )
        _slopes(panel, own)
        panel.set_title(strategy, loc="left", fontsize=10, color=INK)
        panel.set_xscale("log")
        panel.set_yscale("log")
        _plain(panel.xaxis)
        _plain(panel.yaxis)
        panel.set_xlabel("rows", fontsize=9)
        panel.set_ylabel("CPU seconds", fontsize=9)
        panel.legend(fontsize=8, frameon=False)
    save(figure, path)


def _slopes(panel: Any, lines: Lines) -> None:
    """Draw dotted lines of slopes 1 and 2 through the middle of the first sizes."""
    first, last = min(line["rows"] for line in lines), max(line["rows"] for line in lines)
    start = sorted(line["seconds"] for line in lines if line["rows"] == first)[0]
    top = panel.get_ylim()[1]
    for power, text in ((1, "× 2"), (2, "× 4")):
        end = min(last, first * (top / start) ** (1 / power))
        panel.plot([first, end], [start, start * (end / first) ** power], color=INK, linewidth=0.8, linestyle=":")
        panel.annotate(text, (end, start * (end / first) ** power), fontsize=8, color=INK, ha="right", va="bottom")


def tradeoff(rows: Lines, path: Path) -> None:
    """Draw RMSE over vectors: a panel per set, a colour per width, a dot per P, and a star for the paper's result."""
    sets = list(dict.fromkeys(row["data"] for row in rows))
    sizes = ", ".join(str(size) for size in sorted({row["P"] for row in rows}))
    figure, axes = sheet(
        len(sets), f"Working set: test RMSE over vectors, a colour per width, a larger dot for a larger P ({sizes})"
    )
    for panel, name in zip(axes, sets, strict=True):
        own = [row for row in rows if row["data"] == name]
        for colour, gamma in zip(RAMP, sorted({row["gamma"] for row in own}), strict=False):
            points = [row for row in own if row["gamma"] == gamma]
            across, up = [[row["mean"][key] for row in points] for key in ("vectors", "rmse")]
            area = [AREA * float(row["P"]) ** 0.7 for row in points]
            panel.scatter(across, up, area, color=colour, alpha=0.85, linewidth=0, label=f"gamma {gamma:g}")
        theirs, most = paper.rmse(name, "working-set"), paper.vectors(name, "working-set")
        if theirs is not None and most is not None:
            panel.plot(most[0], theirs[0], marker="*", markersize=13, color=STAR, linestyle="", label="paper")
        panel.set_title(name, loc="left", fontsize=10, color=INK)
        panel.set_xlabel("relevance vectors", fontsize=9)
        panel.set_ylabel("test RMSE", fontsize=9)
        panel.legend(fontsize=7, frameon=False)
    save(figure, path)
