"""Charts, drawn by matplotlib into axes of a figure, or as SVG for the page of a job.

What was observed is blue or orange, what the model states is a dashed line, and what chance alone explains is a grey
band.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from partirvm.core.diagnostics import (
    PIT_BINS,
    PROBABILITY_BINS,
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

INK, OBSERVED, CONTRAST, VECTORS, EVIDENCE = "#222222", "#2c66a8", "#bf4f2c", "#357a5b", "#7451a8"

STYLES = {
    "training": ("o-", OBSERVED),
    "held-out": ("s--", CONTRAST),
    "vectors": ("o-", VECTORS),
    "evidence": ("o-", EVIDENCE),
}
"""Form and colour of the lines of a history."""

Lines: TypeAlias = Mapping[str, Sequence[tuple[int, float]]]
"""Type of the lines of a chart: points by name."""

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


class Chart(NamedTuple):
    """A chart: its title, a remark on how to read it, the function that draws it into axes, and its size in inches."""

    title: str
    remark: str
    draw: Callable[[Any], None]
    size: tuple[float, float] = (4.2, 2.5)

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


def _dress(axis: Any, x_label: str, y_label: str, *, percent: str = "") -> None:
    """Label axes and draw a grid; ``percent`` names the axes ("x", "y", "xy") that are fractions."""
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    axis.set(xlabel=printable(x_label), ylabel=printable(y_label))
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(color="#e4e4e4", linewidth=0.6)
    axis.set_axisbelow(True)
    for name, side in (("x", axis.xaxis), ("y", axis.yaxis)):
        if side.get_scale() == "linear":
            side.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
        if name in percent:
            side.set_major_formatter(PercentFormatter(1.0, decimals=None, symbol=" %"))


def _dots(axis: Any, x: Float, y: Float) -> None:
    """Draw rows as points (n,), (n,)."""
    axis.plot(x, y, ".", color=OBSERVED, alpha=0.4, markersize=4, markeredgewidth=0)


def _stated(axis: Any, x: Any, y: Any, name: str = "") -> None:
    """Draw the line that the model states, or chance, through points (n,), (n,)."""
    axis.plot(x, y, marker=None, color=INK, linewidth=1.0, linestyle=(0, (5, 4)), label=name or None, zorder=3)


def _estimates(axis: Any, x: Float, y: Float, low: Float, high: Float, name: str = "") -> None:
    """Draw estimates (n,) with intervals from ``low`` to ``high`` (n,)."""
    ends = np.maximum([y - low, high - y], 0.0)
    style: dict[str, Any] = {"fmt": "o", "color": CONTRAST, "markersize": 4, "linewidth": 1.2}
    axis.errorbar(x, y, ends, label=name or None, zorder=4, clip_on=False, **style)


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

    def draw(axis: Any) -> None:
        _dots(axis, predicted, actual)
        _stated(axis, ends, ends, "equal")
        axis.set(xlim=ends, ylim=ends)
        _dress(axis, f"predicted {target}", f"actual {target}")
        axis.legend()

    remark = counted(rows, "row") if rows == found.n else f"{rows:,} random rows of {found.n:,}"
    return Chart("Predictions", remark, draw)


def _coverage(found: NumberDiagnostics) -> list[Chart]:
    if not len(found.covered):
        return []
    levels, covered = np.array(STATED_LEVELS), found.covered.astype(np.float64)
    low, high = binomial_interval(covered, np.full(len(levels), float(found.n)))
    share = covered / found.n

    def draw(axis: Any) -> None:
        _stated(axis, (0, 1), (0, 1), "as stated")
        _estimates(axis, levels, share, low, high)
        axis.set(xlim=(0, 1), ylim=(0, 1))
        _dress(axis, "stated level of the interval", "rows inside the interval", percent="xy")
        axis.legend()

    return [Chart("Coverage of intervals", f"{counted(found.n, 'row')}; below the line: too narrow", draw)]


def _residuals(found: NumberDiagnostics, target: str) -> Chart:
    actual, predicted, std = found.points.T
    z = (actual - predicted) / std
    x = span(predicted)

    def draw(axis: Any) -> None:
        _dots(axis, predicted, z)
        for level in (0.0, -Z, Z):
            _stated(axis, x, (level, level))
        if len(z) >= FEWEST:
            (middle, _), (mean, half) = _tenths(predicted, predicted, z)
            _estimates(axis, middle, mean, mean - half, mean + half)
        axis.set(xlim=x, ylim=span(z, np.array([-2.5, 2.5])))
        _dress(axis, f"predicted {target}", "residual / stated deviation")

    return Chart("Standardised residuals", "95 % between the outer lines if right; bars: means of tenths", draw)


def _transform(found: NumberDiagnostics) -> Chart:
    bins = PIT_BINS if found.n >= MANY else PIT_BINS // 2
    share = found.pit.reshape(bins, -1).sum(axis=1) / found.n
    half = Z * np.sqrt((bins - 1) / found.n)
    edges = np.linspace(0.0, 1.0, bins + 1)

    def draw(axis: Any) -> None:
        axis.axhspan(max(1 - half, 0.0), 1 + half, color="#777777", alpha=0.25, linewidth=0, zorder=0)
        axis.bar(edges[:-1], bins * share, 0.96 / bins, align="edge", color=OBSERVED, alpha=0.75)
        _stated(axis, (0, 1), (1, 1), "as stated")
        axis.set(xlim=(0, 1), ylim=(0, 1.2 * max(float(bins * share.max()), 1 + half)))
        _dress(axis, "stated probability of a smaller value", "rows / expected rows", percent="x")
        axis.legend(loc="upper right")

    remark = "a hill: stated deviations are too large; a valley: too small"
    return Chart("Position in the predicted distribution", remark, draw)


def _deviations(found: NumberDiagnostics, target: str) -> Chart:
    """Return root mean square errors of rows grouped by stated deviation, with 95 % intervals."""
    actual, predicted, std = found.points.T
    (mean, half), (variance, _) = _tenths(std, (actual - predicted) ** 2, std**2)
    x, y, low, high = (np.sqrt(np.maximum(each, 0.0)) for each in (variance, mean, mean - half, mean + half))
    ends = (0.0, 1.05 * float(max(x.max(), high.max())))

    def draw(axis: Any) -> None:
        _stated(axis, ends, ends, "as stated")
        _estimates(axis, x, y, low, high)
        axis.set(xlim=ends, ylim=ends)
        _dress(axis, f"stated deviation of {target}", "root mean square error")
        axis.legend()

    return Chart("Errors against stated deviations", "each point: a tenth of the rows", draw)


def class_charts(found: ClassDiagnostics, classes: Sequence[str] = ()) -> list[Chart]:
    """Return the charts of a classification; without names ``classes`` are numbered."""
    if not found.n:
        return []
    names = [str(name) for name in classes] or [f"class {code}" for code in range(len(found.rows))]
    others = len(names) - len(found.rows)
    if others:  # the last counted class is the union of several
        names = [*names[: len(found.rows) - 1], f"{others + 1:,} others"]
    curves = _curves(found.thresholds, names[1]) if found.thresholds else []
    return [_reliability(found, names), _confusion(found, names), *curves, _largest(found)]


def _reliability(found: ClassDiagnostics, names: Sequence[str]) -> Chart:
    """Return observed frequencies for bins of stated probabilities: of the second of two classes, or of all classes."""
    two = len(names) == 2
    sums, rows, hits = (
        each[1].astype(np.float64) if two else each.sum(axis=0, dtype=np.float64)
        for each in (found.stated, found.rows, found.hits)
    )
    shown = rows >= FEWEST_IN_BIN
    x, y = sums[shown] / rows[shown], hits[shown] / rows[shown]
    low, high = binomial_interval(hits[shown], rows[shown])

    def draw(axis: Any) -> None:
        _stated(axis, (0, 1), (0, 1), "as stated")
        _estimates(axis, x, y, low, high)
        axis.set(xlim=(0, 1), ylim=(0, 1))
        which = f"of {shortened(names[1])}" if two else "of a class"
        _dress(axis, f"stated probability {which}", "observed frequency", percent="xy")
        axis.legend(loc="upper left")

    return Chart("Reliability of probabilities", counted(found.n, "row"), draw)


def _confusion(found: ClassDiagnostics, names: Sequence[str]) -> Chart:
    """Return the matrix of fractions, first row at the top; up to ten classes have percentages in the cells."""
    shares = found.confusion / np.maximum(found.confusion.sum(axis=1, keepdims=True), 1)
    K = len(names)

    def draw(axis: Any) -> None:
        axis.imshow(shares, cmap="Blues", vmin=0.0, vmax=1.5, aspect="auto")
        for (row, column), share in np.ndenumerate(shares):
            if K <= 10 and f"{100 * share:.0f}" != "0":
                axis.text(column, row, f"{100 * share:.0f}", ha="center", va="center")
        short = [shortened(name) for name in names]
        axis.set_xticks(range(K), short, rotation=90 if K * max(map(len, short)) > 36 else 0)
        axis.set_yticks(range(K), short)
        axis.set(xlabel="predicted class", ylabel="true class")
        axis.tick_params(length=0)

    return Chart("Confusion", "% of the rows of each true class", draw, (4.2, max(2.5, 1.6 + 0.2 * K)))


def _curves(found: ThresholdCurve, name: str) -> list[Chart]:
    """Return the ROC curve and the precision-recall curve of the second of two classes."""
    false, recall = found.rates
    share = float(found.positive[-1] / (found.positive[-1] + found.negative[-1]))

    def curve(x: Any, y: Any, chance: tuple[float, float], x_label: str, y_label: str) -> Any:
        def draw(axis: Any) -> None:
            _stated(axis, (0, 1), chance, "by chance")
            axis.plot(x, y, color=OBSERVED, linewidth=1.6)
            axis.set(xlim=(0, 1), ylim=(0, 1.02))
            _dress(axis, x_label, y_label, percent="xy")
            axis.legend(loc="lower right")

        return draw

    of = shortened(name)
    roc = curve(false, recall, (0.0, 1.0), "false positive rate", f"true positive rate of {of}")
    precise = curve(recall[1:], found.precision, (share, share), f"recall of {of}", f"precision of {of}")
    average = f"average precision {found.average_precision:.4f}"
    return [Chart("ROC curve", f"area {found.auc:.4f}", roc), Chart("Precision and recall", average, precise)]


def _largest(found: ClassDiagnostics) -> Chart:
    """Return the distribution of the largest probability, of correct and of wrong rows."""
    rows, hits = found.top_rows / found.n, found.top_hits / found.n
    edges, first = np.linspace(0.0, 1.0, PROBABILITY_BINS + 1), int(np.flatnonzero(found.top_rows)[0])

    def draw(axis: Any) -> None:
        style: dict[str, Any] = {"width": 0.96 / PROBABILITY_BINS, "align": "edge", "alpha": 0.75}
        axis.bar(edges[:-1], hits, label="correct", color=OBSERVED, **style)
        axis.bar(edges[:-1], rows - hits, bottom=hits, label="wrong", color=CONTRAST, **style)
        axis.set(xlim=(edges[first], 1.0), ylim=(0, 1.08 * float(rows.max())))
        _dress(axis, "largest probability", "share of rows", percent="xy")
        axis.legend(loc="upper left")

    return Chart("Largest probability", "correct rows, and wrong rows on top", draw)


def history_charts(found: Sequence[Stage], kind: Kind) -> list[Chart]:
    """Return the charts of errors, vectors and evidence over rounds or levels; of a level its median."""
    if not found:
        return []
    rows = found[0].entries[0]["rows"]
    comparable = [stage for stage in found if stage.entries[0]["rows"] == rows]
    charts = [
        *(_errors(found, measure) for measure in kind.curves),
        ("Relevance vectors", "", {"vectors": [(stage.x, float(stage.total("vectors"))) for stage in found]}),
        ("Log evidence", f"nats, over {rows:,} rows", {"evidence": _points(comparable, "log_evidence")}),
    ]
    step = "level" if any(stage.level for stage in found) else "round"
    return [_over_stages(*chart, step) for chart in charts if any(len(line) > 1 for line in chart[2].values())]


def _points(found: Sequence[Stage], key: str, scale: float = 1.0) -> list[tuple[int, float]]:
    """Return place and median of the stages that have a finite value."""
    pairs = [(stage.x, stage.median(key)) for stage in found]
    return [(x, scale * value) for x, value in pairs if value is not None and math.isfinite(value)]


def _errors(found: Sequence[Stage], measure: Measure) -> tuple[str, str, Lines]:
    lines = {rows: _points(found, Quantity(rows, measure).key, measure.scale) for rows in SIDES}
    return measure.title, measure.unit, {name: line for name, line in lines.items() if line}


def _over_stages(title: str, unit: str, lines: Lines, step: str) -> Chart:
    def draw(axis: Any) -> None:
        for name, line in lines.items():
            form, colour = STYLES[name]
            axis.plot(*zip(*line, strict=True), form, color=colour, linewidth=1.4, markersize=4, label=name)
        values = [value for line in lines.values() for _, value in line]
        if "training" in lines and 0 < 20 * min(values) < max(values):
            axis.set_yscale("log")
        elif "training" in lines:
            axis.set_ylim(bottom=max(axis.get_ylim()[0], 0.0))
        _dress(axis, step, "")
        if len(lines) > 1:
            axis.legend()

    return Chart(f"{title} over {step}s", unit, draw)


def relevance_chart(relevance: Mapping[str, float]) -> Chart:
    """Return bars of the relevances of features, in their order."""

    def draw(axis: Any) -> None:
        bars = axis.barh(range(len(relevance)), list(relevance.values()), color=VECTORS, height=0.66)
        axis.bar_label(bars, fmt="%.2g", padding=4, fontsize=8)
        axis.set_yticks(range(len(relevance)), [shortened(name) for name in relevance])
        axis.set(xlim=(0, 1.15), ylim=(len(relevance) - 0.4, -0.6), xticks=[])
        axis.tick_params(length=0)
        axis.spines[:].set_visible(False)

    return Chart("Relevance", "gamma × variance, the largest = 1", draw, (4.2, 0.3 + 0.24 * max(len(relevance), 3)))
