"""Charts as plain values, drawn by matplotlib into axes of a figure, or as SVG for the page of a job.

What was observed is blue or orange, what the model states is a dashed line, and what chance alone explains is a grey
band.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from partirvm.core.diagnostics import (
    PIT_BINS,
    STATED_LEVELS,
    ClassDiagnostics,
    NumberDiagnostics,
    ThresholdCurve,
)
from partirvm.planning.units import counted
from partirvm.quoting import printable
from partirvm.report.history import Stage
from partirvm.report.quantities import SIDES, Kind, Measure, Quantity

Float = NDArray[np.float64]
Points: TypeAlias = Sequence[tuple[float, float]]
Ends: TypeAlias = tuple[float, float]

INK, OBSERVED, CONTRAST, VECTORS, EVIDENCE = "#222222", "#2c66a8", "#bf4f2c", "#357a5b", "#7451a8"

STYLES = {
    "training": ("o-", OBSERVED),
    "held-out": ("s--", CONTRAST),
    "vectors": ("o-", VECTORS),
    "evidence": ("o-", EVIDENCE),
    "observed": ("-", OBSERVED),
}
"""Form and colour of lines by name."""

Z = 1.959964
"""Half width of a 95 % interval, in standard errors."""

TENTHS, FEWEST, FEWEST_IN_BIN = 10, 40, 5
"""Number of groups of equal size of sampled rows, minimum number of rows for groups, and of rows of a drawn bin."""

MANY = 400
"""Minimum number of rows for all bins of the probability integral transform; fewer rows have half as many bins."""

VARIES = 1.1
"""Minimum ratio of the 95 % to the 5 % quantile of stated deviations for a chart that compares them with errors."""

LARGEST = 1e100
"""Values that are drawn are smaller, because their squares must not overflow."""

UNIT = {"xlim": (0, 1), "ylim": (0, 1)}
"""Limits of axes that are fractions."""


@dataclass(frozen=True)
class Chart:
    """A chart: its title, a remark on how to read it, the labels of its axes, and what is drawn.

    ``dots`` are rows as points (n,), (n,). ``stated`` are lines, from one end to the other, of what the model states,
    or of chance. ``estimates`` are places, values, and ends of their 95 % intervals (n,). ``lines`` are points by a
    name of ``STYLES``, and ``bars`` heights (n,) of bars of equal width in 0 … 1. ``band`` is a grey range of y.
    ``percent`` names the axes that are fractions, such as "xy", ``limits`` are further properties of the axes, and
    ``draw_more`` draws what else there is. ``size`` is in inches.
    """

    title: str
    remark: str
    labels: tuple[str, str] = ("", "")
    dots: tuple[Float, Float] | None = None
    stated: Sequence[tuple[Ends, Ends]] = ()
    estimates: tuple[Float, Float, Float, Float] | None = None
    lines: Mapping[str, Points] = field(default_factory=dict)
    bars: Float | None = None
    band: Ends | None = None
    percent: str = ""
    limits: Mapping[str, Any] = field(default_factory=dict)
    draw_more: Callable[[Any], None] | None = None
    size: tuple[float, float] = (4.2, 2.5)

    def draw(self, axis: Any) -> None:
        """Draw the chart without its title into matplotlib axes."""
        if self.band is not None:
            axis.axhspan(*self.band, color="#777777", alpha=0.25, linewidth=0, zorder=0)
        if self.dots is not None:
            axis.plot(*self.dots, ".", color=OBSERVED, alpha=0.4, markersize=4, markeredgewidth=0)
        for ends in self.stated:
            axis.plot(*ends, marker=None, color=INK, linewidth=1.0, linestyle=(0, (5, 4)), zorder=3)
        if self.estimates is not None:
            x, y, low, high = self.estimates
            style: dict[str, Any] = {"fmt": "o", "color": CONTRAST, "markersize": 4, "linewidth": 1.2}
            axis.errorbar(x, y, np.maximum([y - low, high - y], 0.0), zorder=4, clip_on=False, **style)
        for name, points in self.lines.items():
            form, colour = STYLES[name]
            axis.plot(*zip(*points, strict=True), form, color=colour, linewidth=1.4, markersize=4, label=name)
        if self.bars is not None:
            width = 1 / len(self.bars)
            axis.bar(
                width * np.arange(len(self.bars)), self.bars, 0.96 * width, align="edge", color=OBSERVED, alpha=0.75
            )
        self._label(axis)
        if self.draw_more is not None:
            self.draw_more(axis)

    def _label(self, axis: Any) -> None:
        from matplotlib.ticker import MaxNLocator, PercentFormatter

        axis.set(xlabel=printable(self.labels[0]), ylabel=printable(self.labels[1]), **self.limits)
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(color="#e4e4e4", linewidth=0.6)
        axis.set_axisbelow(True)
        for name, side in (("x", axis.xaxis), ("y", axis.yaxis)):
            if side.get_scale() == "linear":
                side.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
            if name in self.percent:
                side.set_major_formatter(PercentFormatter(1.0, decimals=None, symbol=" %"))
        if len(self.lines) > 1:
            axis.legend()

    def svg(self) -> bytes:
        """Return the chart without its title as an SVG file. Raises ``ImportError`` without matplotlib."""
        from matplotlib.figure import Figure

        file = io.BytesIO()
        with styled():
            figure = Figure(figsize=self.size, layout="constrained")
            self.draw(figure.add_subplot())
            figure.savefig(file, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
        return file.getvalue()


def styled() -> AbstractContextManager[None]:
    """Return a context in which matplotlib draws in the style of this package."""
    from matplotlib import rc_context

    inked = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    style: Any = {**dict.fromkeys(inked, INK), "font.size": 9, "legend.frameon": False, "legend.fontsize": 8}
    style |= {"axes.titlesize": 10, "axes.titleweight": "bold", "axes.titlelocation": "left", "text.parse_math": False}
    style |= {"svg.fonttype": "none", "svg.hashsalt": "partirvm", "font.sans-serif": ["DejaVu Sans"]}
    return rc_context(style)


def shortened(name: str) -> str:
    """Return a name of at most 18 printable characters."""
    name = printable(str(name))
    return name if len(name) <= 18 else name[:17] + "…"


def binomial_interval(hits: Float, rows: Float) -> tuple[Float, Float]:
    """Return the ends of the 95 % interval of a probability (Wilson 1927), given counts (n,).

    >>> low, high = binomial_interval(np.array([50.0]), np.array([100.0]))
    >>> round(float(low[0]), 3), round(float(high[0]), 3)
    (0.404, 0.596)
    """
    share, spread = hits / rows, Z**2 / rows
    centre = (share + spread / 2) / (1 + spread)
    half = np.sqrt(spread * share * (1 - share) + (spread / 2) ** 2) / (1 + spread)
    return centre - half, centre + half


def span(*values: Float) -> tuple[float, float]:
    """Return the range of all values, with a margin on both sides of 4 % of the range.

    >>> span(np.array([0.0, 100.0]))
    (-4.0, 104.0)
    """
    low = min(float(each.min()) for each in values if each.size)
    high = max(float(each.max()) for each in values if each.size)
    margin = 0.04 * (high - low) or 0.1 * abs(high) or 1.0
    return low - margin, high + margin


def number_charts(found: NumberDiagnostics, target: str = "target") -> list[Chart]:
    """Return the charts of one numeric target with this name."""
    if not found.n or not (np.abs(found.points) < LARGEST).all():
        return []
    charts = [_predictions(found, target), *_coverage(found), _residuals(found, target), _transform(found)]
    low, high = np.quantile(found.points[:, 2], [0.05, 0.95])
    if high > VARIES * low and len(found.points) >= FEWEST:
        charts.append(_deviations(found, target))
    return charts


def _tenths(order: Float, *values: Float) -> list[tuple[Float, Float]]:
    """Return means and half widths of their 95 % intervals, (10,) each, of values (n,) in tenths of the rows."""
    groups = np.array_split(np.argsort(order, kind="stable"), TENTHS)
    return [
        (
            np.array([each[group].mean() for group in groups]),
            Z * np.array([each[group].std(ddof=1) / np.sqrt(len(group)) for group in groups]),
        )
        for each in values
    ]


def _predictions(found: NumberDiagnostics, target: str) -> Chart:
    actual, predicted, _ = found.points.T
    ends, rows = span(actual, predicted), len(found.points)
    remark = counted(rows, "row") if rows == found.n else f"{rows:,} random rows of {found.n:,}"
    labels, limits = (f"predicted {target}", f"actual {target}"), {"xlim": ends, "ylim": ends}
    return Chart("Predictions", remark, labels, dots=(predicted, actual), stated=[(ends, ends)], limits=limits)


def _coverage(found: NumberDiagnostics) -> list[Chart]:
    if not len(found.covered):
        return []
    covered, rows = found.covered.astype(np.float64), np.full(len(STATED_LEVELS), float(found.n))
    shares = (np.array(STATED_LEVELS), covered / rows, *binomial_interval(covered, rows))
    remark, labels = (
        f"{counted(found.n, 'row')}; below the line: too narrow",
        ("stated level", "rows inside the interval"),
    )
    stated = [((0.0, 1.0), (0.0, 1.0))]
    return [Chart("Coverage of intervals", remark, labels, stated=stated, estimates=shares, percent="xy", limits=UNIT)]


def _residuals(found: NumberDiagnostics, target: str) -> Chart:
    actual, predicted, std = found.points.T
    z = (actual - predicted) / std
    x, means = span(predicted), None
    if len(z) >= FEWEST:
        (middle, _), (mean, half) = _tenths(predicted, predicted, z)
        means = middle, mean, mean - half, mean + half
    return Chart(
        "Standardised residuals",
        "95 % between the outer lines if right; bars: means of tenths",
        (f"predicted {target}", "residual / stated deviation"),
        dots=(predicted, z),
        stated=[(x, (level, level)) for level in (0.0, -Z, Z)],
        estimates=means,
        limits={"xlim": x, "ylim": span(z, np.array([-2.5, 2.5]))},
    )


def _transform(found: NumberDiagnostics) -> Chart:
    bins = PIT_BINS if found.n >= MANY else PIT_BINS // 2
    heights = bins * found.pit.reshape(bins, -1).sum(axis=1) / found.n
    half = Z * np.sqrt((bins - 1) / found.n)
    return Chart(
        "Position in the predicted distribution",
        "a hill: stated deviations are too large; a valley: too small",
        ("stated probability of a smaller value", "rows / expected rows"),
        stated=[((0.0, 1.0), (1.0, 1.0))],
        bars=heights,
        band=(max(1 - half, 0.0), 1 + half),
        percent="x",
        limits={"xlim": (0, 1), "ylim": (0, 1.1 * max(float(heights.max()), 1 + half))},
    )


def _deviations(found: NumberDiagnostics, target: str) -> Chart:
    """Return root mean square errors of rows grouped by stated deviation, with 95 % intervals."""
    actual, predicted, std = found.points.T
    (mean, half), (variance, _) = _tenths(std, (actual - predicted) ** 2, std**2)
    x, y, low, high = (np.sqrt(np.maximum(each, 0.0)) for each in (variance, mean, mean - half, mean + half))
    ends = (0.0, 1.05 * float(max(x.max(), high.max())))
    return Chart(
        "Errors against stated deviations",
        "each point: a tenth of the rows",
        (f"stated deviation of {target}", "root mean square error"),
        stated=[(ends, ends)],
        estimates=(x, y, low, high),
        limits={"xlim": ends, "ylim": ends},
    )


def class_charts(found: ClassDiagnostics, classes: Sequence[str] = ()) -> list[Chart]:
    """Return the charts of a classification; without names ``classes`` are numbered."""
    if not found.n:
        return []
    names = [str(name) for name in classes] or [f"class {code}" for code in range(len(found.rows))]
    others = len(names) - len(found.rows)
    if others:  # the last counted class is the union of several
        names = [*names[: len(found.rows) - 1], f"{others + 1:,} others"]
    curves = _curves(found.thresholds, shortened(names[1])) if found.thresholds else []
    return [_reliability(found, names), _confusion(found, names), *curves]


def _reliability(found: ClassDiagnostics, names: Sequence[str]) -> Chart:
    """Return observed frequencies for bins of stated probabilities: of the second of two classes, or of all classes."""
    two = len(names) == 2
    sums, rows, hits = (
        each[1].astype(np.float64) if two else each.sum(axis=0, dtype=np.float64)
        for each in (found.stated, found.rows, found.hits)
    )
    shown = rows >= FEWEST_IN_BIN
    sums, rows, hits = sums[shown], rows[shown], hits[shown]
    return Chart(
        "Reliability of probabilities",
        counted(found.n, "row"),
        (f"stated probability of {shortened(names[1]) if two else 'a class'}", "observed frequency"),
        stated=[((0.0, 1.0), (0.0, 1.0))],
        estimates=(sums / rows, hits / rows, *binomial_interval(hits, rows)),
        percent="xy",
        limits=UNIT,
    )


def _confusion(found: ClassDiagnostics, names: Sequence[str]) -> Chart:
    """Return the matrix of fractions, first row at the top; up to ten classes have percentages in the cells."""
    shares = found.confusion / np.maximum(found.confusion.sum(axis=1, keepdims=True), 1)
    K, short = len(names), [shortened(name) for name in names]

    def draw(axis: Any) -> None:
        axis.grid(visible=False)
        axis.imshow(shares, cmap="Blues", vmin=0.0, vmax=1.5, aspect="auto")
        for (row, column), share in np.ndenumerate(shares):
            if K <= 10 and f"{100 * share:.0f}" != "0":
                axis.text(column, row, f"{100 * share:.0f}", ha="center", va="center")
        axis.set_xticks(range(K), short, rotation=90 if K * max(map(len, short)) > 36 else 0)
        axis.set_yticks(range(K), short)

    remark, labels = "% of the rows of each true class", ("predicted class", "true class")
    return Chart("Confusion", remark, labels, draw_more=draw, size=(4.2, max(2.5, 1.6 + 0.2 * K)))


def _curves(found: ThresholdCurve, name: str) -> list[Chart]:
    """Return the ROC curve and the precision-recall curve of the second of two classes."""
    false, recall = found.rates
    share = float(found.positive[-1] / (found.positive[-1] + found.negative[-1]))
    roc = list(zip(false.tolist(), recall.tolist(), strict=True))
    precise = list(zip(recall[1:].tolist(), found.precision.tolist(), strict=True))
    both: dict[str, Any] = {"percent": "xy", "limits": {"xlim": (0, 1), "ylim": (0, 1.02)}}
    area, labels = f"area {found.auc:.4f}", ("false positive rate", f"true positive rate of {name}")
    average, axes = f"average precision {found.average_precision:.4f}", (f"recall of {name}", f"precision of {name}")
    return [
        Chart("ROC curve", area, labels, stated=[((0.0, 1.0), (0.0, 1.0))], lines={"observed": roc}, **both),
        Chart(
            "Precision and recall",
            average,
            axes,
            stated=[((0.0, 1.0), (share, share))],
            lines={"observed": precise},
            **both,
        ),
    ]


def history_charts(found: Sequence[Stage], kind: Kind) -> list[Chart]:
    """Return the charts of errors, vectors and evidence over rounds or levels; of a level its median."""
    if not found:
        return []
    rows = found[0].entries[0]["rows"]
    comparable = [stage for stage in found if stage.entries[0]["rows"] == rows]
    step = "level" if any(stage.level for stage in found) else "round"
    vectors = [(stage.x, stage.total("vectors")) for stage in found]
    evidence = {"evidence": _points(comparable, "log_evidence")}
    charts = [
        *(_errors(found, measure, step) for measure in (kind.head, kind.beside)),
        Chart(f"Relevance vectors over {step}s", "", (step, ""), lines={"vectors": vectors}),
        Chart(f"Log evidence over {step}s", f"nats, over {rows:,} rows", (step, ""), lines=evidence),
    ]
    return [chart for chart in charts if any(len(line) > 1 for line in chart.lines.values())]


def _points(found: Sequence[Stage], key: str, scale: float = 1.0) -> Points:
    """Return place and median of the stages that have a finite value."""
    pairs = [(stage.x, stage.median(key)) for stage in found]
    return [(x, scale * value) for x, value in pairs if value is not None and math.isfinite(value)]


def _errors(found: Sequence[Stage], measure: Measure, step: str) -> Chart:
    lines = {str(rows): _points(found, Quantity(rows, measure).key, measure.scale) for rows in SIDES}
    values = [value for line in lines.values() for _, value in line]
    limits: dict[str, Any] = {"yscale": "log"} if values and 0 < 20 * min(values) < max(values) else {}
    if values and min(values) == 0.0:
        limits = {"ylim": (0.0, 1.05 * max(values) or 1.0)}
    shown = {name: line for name, line in lines.items() if line}
    return Chart(f"{measure.title} over {step}s", measure.unit, (step, ""), lines=shown, limits=limits)


def relevance_chart(relevance: Mapping[str, float]) -> Chart:
    """Return bars of the relevances of features, in their order."""

    def draw(axis: Any) -> None:
        bars = axis.barh(range(len(relevance)), list(relevance.values()), color=VECTORS, height=0.66)
        axis.bar_label(bars, fmt="%.2g", padding=4, fontsize=8)
        axis.grid(visible=False)
        axis.set(xlim=(0, 1.15), ylim=(len(relevance) - 0.4, -0.6), xticks=[])
        axis.set_yticks(range(len(relevance)), [shortened(name) for name in relevance])
        axis.spines[:].set_visible(False)

    size = (4.2, 0.3 + 0.24 * max(len(relevance), 3))
    return Chart("Relevance", "gamma × variance, the largest = 1", draw_more=draw, size=size)
