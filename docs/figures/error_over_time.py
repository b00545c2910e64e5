"""The figures of the table "Error over time" in ``docs/benchmarks/regression.md``, as a picture."""

import re
from pathlib import Path

import matplotlib.pyplot as plt

PAGES = [Path(place, "benchmarks", "regression.md") for place in (".", "docs", "..")]
PAGE = next(page for page in PAGES if page.exists())
SECTION = PAGE.read_text(encoding="utf-8").partition("## Error over time")[2].partition("\n## ")[0]
LINES = [
    [cell.strip(" *") for cell in line.strip("|").split("|")]
    for line in SECTION.splitlines()
    if line.startswith("|")
]
METHODS, ROWS = LINES[0][2:], LINES[2:]
COLORS = ["#0072b2", "#0072b2", "#d55e00", "#d55e00", "#009e73", "#cc3344", "#7f5fb0", "#444444"]
MARKS = ["o", "o", "s", "s", "^", "D", "v", "P"]

figure, panels = plt.subplots(1, len(ROWS), figsize=(11.0, 3.4), layout="constrained")
for axes, (data, rows, *cells) in zip(panels, ROWS, strict=True):
    points = [
        [float(number.strip(" *")) for number in re.split(" / ", cell.replace("**", ""))]
        for cell in cells
    ]
    for pair in (points[0:2], points[2:4]):  # two sizes of one method
        axes.plot(*zip(*pair, strict=True), color=COLORS[points.index(pair[0])], lw=1)
    for (seconds, error), name, color, mark in zip(points, METHODS, COLORS, MARKS, strict=True):
        axes.plot(seconds, error, mark, color=color, ms=6, label=name.partition(",")[0])
    axes.set(title=f"{data}\n{rows} rows", xscale="log", xlabel="seconds of the fit")
    axes.set_xticks([1, 3, 10, 30, 100], ["1", "3", "10", "30", "100"])
    axes.minorticks_off()
    axes.set(xlim=(1, 130), ylim=(0, None))
    axes.title.set_fontsize(9)
    axes.tick_params(labelsize=7)
panels[0].set_ylabel("RMSE on held-out rows ÷ sd", fontsize=8)
names = dict(zip(*reversed(panels[0].get_legend_handles_labels()), strict=True))
figure.legend(names.values(), names.keys(), loc="outside lower center", ncols=7, fontsize=8)
