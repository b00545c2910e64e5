"""Pictures of the results: reliability curves of each set, and decision boundaries of sets with two inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.classification.data import DATASETS
from benchmarks.classification.methods import METHODS
from benchmarks.classification.runs import Run
from benchmarks.classification.scores import BINS
from benchmarks.classification.tables import find, ordered
from benchmarks.sheets import INK, save, sheet

COLOURS = dict(zip(METHODS, ("#c8553d", "#7a1f5c", "#3b6ea8", "#3d8f5f", "#b07aa1", "#d4a017", "#8a8a8a"), strict=True))

CLASSES = ("#3b6ea8", "#c8553d")

FEWEST = 20
"""Minimum number of test rows, over all splits, for a bin of a reliability curve."""

BOUNDARIES = ("ripley_250", "banana")
"""The data sets in the picture of decision boundaries."""


def pooled(run: Run) -> np.ndarray[Any, Any]:
    """Return the mean predicted probability and the observed frequency per bin, over all splits: (bins, 2)."""
    sums: dict[int, np.ndarray[Any, Any]] = {}
    for fit in run["fits"]:
        for rows, mean, share in fit["reliability"]:
            number = min(int(mean * BINS), BINS - 1)
            sums[number] = sums.get(number, np.zeros(3)) + rows * np.array([1.0, mean, share])
    shown = [total[1:] / total[0] for _, total in sorted(sums.items()) if total[0] >= FEWEST]
    return np.array(shown).reshape(-1, 2)


def reliability(runs: list[Run], path: Path) -> None:
    """Draw a panel per set and a curve per method: observed frequency over predicted probability."""
    sets = [(name, own) for name, own in ordered(runs, list(METHODS)) if any(one["fits"] for one in own)]
    title = (
        "Reliability: observed frequency over predicted probability (class 1; with several classes: predicted class)"
    )
    figure, axes = sheet(len(sets), title, columns=4, panel=(3.3, 3.1))
    for panel, (name, own) in zip(axes, sets, strict=True):
        panel.plot([0, 1], [0, 1], color=INK, linewidth=0.8, linestyle=":")
        for run in [one for one in own if one["fits"]]:
            across, up = pooled(run).T
            method = run["method"]
            width = 2.2 if method == "partirvm" else 1.1
            panel.plot(across, up, marker="o", markersize=2.6, linewidth=width, color=COLOURS[method], label=method)
        panel.set_title(name, loc="left", fontsize=10, color=INK)
        panel.set_xlabel("predicted", fontsize=8)
        panel.set_ylabel("happened", fontsize=8)
    if axes:
        axes[0].legend(fontsize=7, frameon=False)
    save(figure, path)


def boundaries(runs: list[Run], folder: str, path: Path) -> None:
    """Draw a row per set and a panel per method: probability of class 1, boundary, training rows and vectors of split
    0.
    """
    methods = [method for method in METHODS if any(find(runs, name, method) for name in BOUNDARIES)]
    sets = [name for name in BOUNDARIES if any(find(runs, name, method) for method in methods)]
    if not sets or not all(DATASETS[name].present(folder) for name in sets):
        return
    title = "Probability of class 1, with a line at ½; rings: vectors (split 0, standardised inputs)"
    figure, axes = sheet(len(methods) * len(sets), title, columns=len(methods), panel=(2.7, 2.6))
    places = [(name, method) for name in sets for method in methods]
    for panel, (name, method) in zip(axes, places, strict=True):
        panel.grid(visible=False)
        if (run := find(runs, name, method)) is None:
            panel.set_axis_off()
            continue
        split = DATASETS[name].split(folder, 0).standardised()
        paint(panel, run["fits"][0]["picture"], split)
        count = run["fits"][0]["vectors"]
        panel.set_title(f"{name}, {method}" + (f": {count}" if count else ""), loc="left", fontsize=8, color=INK)
    save(figure, path)


def paint(panel: Any, drawn: dict[str, Any], split: Any) -> None:
    """Draw one panel."""
    from matplotlib.colors import LinearSegmentedColormap

    shades = LinearSegmentedColormap.from_list("classes", (CLASSES[0], "#ffffff", CLASSES[1]))
    probabilities = np.array(drawn["probabilities"])
    (left, bottom), (right, top) = drawn["low"], drawn["high"]
    extent = (left, right, bottom, top)
    panel.imshow(probabilities, extent=extent, origin="lower", aspect="auto", cmap=shades, vmin=0, vmax=1, alpha=0.6)
    if probabilities.min() < 0.5 < probabilities.max():
        panel.contour(probabilities, levels=[0.5], extent=extent, colors=INK, linewidths=1.2)
    for code, colour in enumerate(CLASSES):
        panel.plot(*split.X[split.y == code].T, ".", markersize=2, color=colour)
    if drawn["vectors"]:
        panel.plot(*np.array(drawn["vectors"]).T, "o", markersize=5, fillstyle="none", color=INK, markeredgewidth=0.8)
