"""Diagnostic charts for numeric targets and classes, drawn into axes by matplotlib, or as SVG for
the job page.

Observations are blue or orange, the model's values are dashed; a grey band shows what chance alone
explains.
"""

import io
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from partirvm.core import diagnostics
from partirvm.core.diagnostics import PIT_BINS, STATED_LEVELS, ClassDiagnostics, NumberDiagnostics
from partirvm.errors import UsageError
from partirvm.quoting import counted, printable
from partirvm.storage import reading
from partirvm.types import Float

Diagnostics: TypeAlias = NumberDiagnostics | ClassDiagnostics

INK = "#222222"
OBSERVED = "#2c66a8"
CONTRAST = "#bf4f2c"

Z = 1.959964  # half width of a 95 % interval, in standard errors

FEWEST = 40
"""Minimum number of rows for averages over tenths of the rows."""


@dataclass(frozen=True)
class Chart:
    """A chart: its title, a remark on how to read it, a function that draws it into axes, and its
    size in inches."""

    title: str
    remark: str
    paint: Callable[[Any], None]
    size: tuple[float, float] = (4.2, 2.5)

    def draw(self, axis: Any) -> None:
        """Draw the chart without its title into matplotlib axes."""
        from matplotlib.ticker import MaxNLocator

        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(color="#e4e4e4", linewidth=0.6)
        axis.set_axisbelow(True)
        for side in (axis.xaxis, axis.yaxis):
            side.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
        self.paint(axis)

    def svg(self) -> bytes:
        """Return the chart without its title as an SVG file. Raises ``ImportError`` without
        matplotlib."""
        from matplotlib.figure import Figure

        file = io.BytesIO()
        with styled():
            figure = Figure(figsize=self.size, layout="constrained")
            self.draw(figure.add_subplot())
            figure.savefig(
                file, format="svg", transparent=True, metadata={"Date": None, "Creator": None}
            )
        return file.getvalue()


def styled() -> AbstractContextManager[None]:
    """Return a context in which matplotlib uses the style of this package."""
    from matplotlib import style

    return style.context("partirvm.report.charts")


def span(*values: Float) -> tuple[float, float]:
    """Return the range of all values, extended by 4 % on both sides."""
    low, high = (float(end(np.concatenate(values))) for end in (np.min, np.max))
    margin = 0.04 * (high - low) or 0.1 * abs(high) or 1.0
    return low - margin, high + margin


def _label(axis: Any, x: str, y: str, **properties: Any) -> None:
    axis.set(xlabel=printable(x), ylabel=printable(y), **properties)


def _dots(axis: Any, x: Float, y: Float) -> None:
    axis.plot(x, y, ".", color=OBSERVED, alpha=0.4, markersize=4, markeredgewidth=0)


def _stated(axis: Any, x: Any, y: Any) -> None:
    """Draw the line, between two points, that the model predicts or that chance explains."""
    axis.plot(x, y, marker=None, color=INK, linewidth=1.0, linestyle=(0, (5, 4)), zorder=3)


def _estimates(axis: Any, x: Float, y: Float, low: Float, high: Float) -> None:
    """Draw values (n,) with their 95 % intervals.

    Args:
        axis: the axes.
        x: the positions of the estimates.
        y: the estimates.
        low: the lower ends of the intervals.
        high: the upper ends of the intervals.
    """
    bars = np.maximum([y - low, high - y], 0.0)
    axis.errorbar(
        x, y, bars, fmt="o", color=CONTRAST, markersize=4, linewidth=1.2, zorder=4, clip_on=False
    )


def _shares(x: Float, hits: Any, rows: Any, labels: tuple[str, str], axis: Any) -> None:
    """Draw observed against predicted fractions, with 95 % intervals (Wilson 1927), and the
    diagonal.

    Args:
        x: the predicted fractions.
        hits: the number of hits for each fraction.
        rows: the number of rows for each fraction.
        labels: the labels of the axes.
        axis: the axes.
    """
    share = hits / rows
    spread = Z**2 / rows
    centre = (share + spread / 2) / (1 + spread)
    half = np.sqrt(spread * share * (1 - share) + (spread / 2) ** 2) / (1 + spread)
    _stated(axis, (0, 1), (0, 1))
    _estimates(axis, x, share, centre - half, centre + half)
    _label(axis, *labels, xlim=(0, 1), ylim=(0, 1))


def number_charts(diagnostics: NumberDiagnostics, target: str = "target") -> list[Chart]:
    """Return the charts for a numeric target with this name, or none if squares of the values would
    overflow."""
    if not diagnostics.n or not (np.abs(diagnostics.sample.values) < 1e100).all():
        return []
    rows = len(diagnostics.sample.values)
    total = counted(diagnostics.n, "row")
    low, high = np.quantile(diagnostics.sample.values[:, 2], [0.05, 0.95])
    vary = high > 1.1 * low and rows >= FEWEST
    charts = [
        (
            True,
            "Predictions",
            total if rows == diagnostics.n else f"{rows:,} random rows of {diagnostics.n:,}",
            _predictions,
        ),
        (
            len(diagnostics.covered) > 0,
            "Coverage of intervals",
            f"{total}; below the line: too narrow",
            _coverage,
        ),
        (
            True,
            "Standardised residuals",
            "ideally 95 % between outer lines; bars: means of tenths",
            _residuals,
        ),
        (
            True,
            "Position in the predicted distribution",
            "hump: predicted std too large; dip: too small",
            _transform,
        ),
        (vary, "Errors against predicted std", "one point per tenth of the rows", _deviations),
    ]
    return [
        Chart(title, remark, partial(paint, diagnostics, target))
        for shown, title, remark, paint in charts
        if shown
    ]


def _tenths(order: Float, values: Float) -> tuple[Float, Float]:
    """Return the means of values (n,) in tenths of the rows and the half widths of their 95 %
    intervals, (10,) each."""
    groups = [values[group] for group in np.array_split(np.argsort(order, kind="stable"), 10)]
    means = [tenth.mean() for tenth in groups]
    errors = [tenth.std(ddof=1) / len(tenth) ** 0.5 for tenth in groups]
    return np.array(means), Z * np.array(errors)


def _predictions(diagnostics: NumberDiagnostics, target: str, axis: Any) -> None:
    actual, predicted, _ = diagnostics.sample.values.T
    ends = span(actual, predicted)
    _dots(axis, predicted, actual)
    _stated(axis, ends, ends)
    _label(axis, f"predicted {target}", f"actual {target}", xlim=ends, ylim=ends)


def _coverage(diagnostics: NumberDiagnostics, target: str, axis: Any) -> None:
    _shares(
        np.array(STATED_LEVELS),
        diagnostics.covered,
        diagnostics.n,
        ("nominal level", "rows inside the interval"),
        axis,
    )


def _residuals(diagnostics: NumberDiagnostics, target: str, axis: Any) -> None:
    actual, predicted, std = diagnostics.sample.values.T
    z = (actual - predicted) / std
    ends = span(predicted)
    _dots(axis, predicted, z)
    for level in (0.0, -Z, Z):
        _stated(axis, ends, (level, level))
    if len(z) >= FEWEST:
        mean, half = _tenths(predicted, z)
        _estimates(axis, _tenths(predicted, predicted)[0], mean, mean - half, mean + half)
    _label(
        axis,
        f"predicted {target}",
        "residual / std",
        xlim=ends,
        ylim=span(z, np.array([-2.5, 2.5])),
    )


def _transform(diagnostics: NumberDiagnostics, target: str, axis: Any) -> None:
    """Draw the histogram of the probability integral transform, with a band for the deviations
    explained by chance alone."""
    bins = PIT_BINS if diagnostics.n >= 400 else PIT_BINS // 2
    heights = bins * diagnostics.pit.reshape(bins, -1).sum(axis=1) / diagnostics.n
    half = Z * np.sqrt((bins - 1) / diagnostics.n)
    axis.axhspan(max(1 - half, 0.0), 1 + half, color="#777777", alpha=0.25, linewidth=0, zorder=0)
    _stated(axis, (0, 1), (1, 1))
    axis.bar(np.arange(bins) / bins, heights, 0.96 / bins, align="edge", color=OBSERVED, alpha=0.75)
    top = 1.1 * max(float(heights.max()), 1 + half)
    _label(
        axis,
        "predicted probability of a smaller value",
        "rows / expected rows",
        xlim=(0, 1),
        ylim=(0, top),
    )


def _deviations(diagnostics: NumberDiagnostics, target: str, axis: Any) -> None:
    """Draw the root mean square error of rows binned by predicted standard deviation, with 95 %
    intervals."""
    actual, predicted, std = diagnostics.sample.values.T
    (mean, half) = _tenths(std, (actual - predicted) ** 2)
    (variance, _) = _tenths(std, std**2)
    x, y, low, high = (
        np.sqrt(np.maximum(values, 0.0)) for values in (variance, mean, mean - half, mean + half)
    )
    ends = (0.0, 1.05 * float(max(x.max(), high.max())))
    _stated(axis, ends, ends)
    _estimates(axis, x, y, low, high)
    _label(axis, f"predicted std of {target}", "root mean square error", xlim=ends, ylim=ends)


def class_charts(diagnostics: ClassDiagnostics, classes: Sequence[str]) -> list[Chart]:
    """Return the charts for a classification; with two classes, frequencies are shown only for the
    second."""
    if not diagnostics.n:
        return []
    names = [name if len(name) <= 18 else name[:17] + "…" for name in map(printable, classes)]
    others = len(names) - len(diagnostics.rows)
    if others:  # the last class in the counts combines several
        names = [*names[: len(diagnostics.rows) - 1], f"{others + 1:,} others"]
    K = len(names)
    two = len(names) == 2
    sums, rows, hits = (
        counts[1] if two else counts.sum(axis=0)
        for counts in (diagnostics.stated, diagnostics.rows, diagnostics.hits)
    )
    shown = rows >= 5
    labels = f"predicted probability of {names[1] if two else 'a class'}", "observed frequency"
    reliability = partial(_shares, sums[shown] / rows[shown], hits[shown], rows[shown], labels)
    size = 4.2, max(2.5, 1.6 + 0.2 * K)
    return [
        Chart("Reliability of probabilities", counted(diagnostics.n, "row"), reliability),
        Chart(
            "Confusion",
            "% of the rows of each true class",
            partial(_confusion, diagnostics, names),
            size,
        ),
    ]


def _confusion(diagnostics: ClassDiagnostics, names: Sequence[str], axis: Any) -> None:
    """Draw the matrix of fractions, with the first row at the top; for up to ten classes, cells
    show percentages."""
    shares = diagnostics.confusion / np.maximum(diagnostics.confusion.sum(axis=1, keepdims=True), 1)
    K = len(names)
    axis.grid(visible=False)
    axis.imshow(shares, cmap="Blues", vmin=0.0, vmax=1.5, aspect="auto")
    for (row, column), share in np.ndenumerate(shares):
        if K <= 10 and f"{100 * share:.0f}" != "0":
            axis.text(column, row, f"{100 * share:.0f}", ha="center", va="center")
    axis.set_xticks(range(K), names, rotation=90 if K * max(map(len, names)) > 36 else 0)
    axis.set_yticks(range(K), names)
    _label(axis, "predicted class", "true class")


class TargetCharts(NamedTuple):
    """The charts for a target.

    Attributes:
        name: the name of the target; empty if there is only one.
        charts: the charts.
        diagnostics: the diagnostics that the charts show.
        number: the number of the target.
        classes: the names of the classes; empty for a numeric target.
    """

    name: str
    charts: Sequence[Chart]
    diagnostics: Diagnostics
    number: int = 0
    classes: Sequence[str] = ()


def _number_target(
    diagnostics: NumberDiagnostics, number: int, names: Sequence[str]
) -> TargetCharts:
    """Return the charts for a numeric target, given the names of all targets."""
    name = names[number] if names else f"target {number}"
    return TargetCharts(name, number_charts(diagnostics, name), diagnostics, number)


def _class_target(diagnostics: ClassDiagnostics, number: int, names: Sequence[str]) -> TargetCharts:
    """Return the charts for a target of classes, given the names of the classes."""
    names = names or [f"class {code}" for code in range(len(diagnostics.rows))]
    classes = list(map(str, names))
    return TargetCharts("", class_charts(diagnostics, classes), diagnostics, number, classes)


DRAWN: dict[type, Callable[[Any, int, Sequence[str]], TargetCharts]] = {
    NumberDiagnostics: _number_target,
    ClassDiagnostics: _class_target,
}
"""Functions that draw a target, by the kind of its diagnostics."""


def target_charts(
    diagnostics: Sequence[Diagnostics], names: Sequence[str] = ()
) -> list[TargetCharts]:
    """Return the charts for each target. ``names`` are the names of the targets or, for a
    classification, of the classes."""
    targets = [
        DRAWN[type(of_target)](of_target, number, names)
        for number, of_target in enumerate(diagnostics)
    ]
    if len(targets) == 1:
        targets = [targets[0]._replace(name="")]
    return [target for target in targets if target.charts]


def from_json(stored: Sequence[Mapping[str, Any]]) -> list[Diagnostics]:
    """Return the diagnostics in a history line. Raises ``FormatError`` for diagnostics that this
    package does not write."""
    with reading("the diagnostics in an event", "restore the event"):
        return [diagnostics.from_json(record) for record in stored]


class DiagnosticsDisplay:
    """Plot of predictions against observations, returned by an estimator's ``plot_diagnostics``.

    For numbers: actual against predicted values, the fraction of rows inside intervals,
    standardised residuals against predictions, the probability integral transform (uniform if the
    predicted normal distributions are right), and, if the predicted standard deviations vary,
    errors against them. For classes: observed frequencies against predicted probabilities, and the
    confusion matrix. Error bars are 95 % intervals.

    Parameters
    ----------
    found : sequence of ``core.diagnostics.NumberDiagnostics`` (one per target), or one
        ``ClassDiagnostics``
    names : sequence of str, optional
        Names of the targets, or of the classes.

    Attributes
    ----------
    figure_ : matplotlib Figure
    axes_ : list of matplotlib Axes
        One per panel; set by ``plot``.

    Examples
    --------
    >>> import numpy as np
    >>> from matplotlib.figure import Figure
    >>> from partirvm import DiagnosticsDisplay, RVMRegressor
    >>> X = np.linspace(-5, 5, 100)[:, None]
    >>> y = np.sinc(X[:, 0]) + 0.05 * np.random.default_rng(0).normal(size=100)
    >>> display = RVMRegressor(gamma=2.0).fit(X, y).plot_diagnostics(X, y, figure=Figure())
    >>> isinstance(display, DiagnosticsDisplay), len(display.axes_) > 3
    (True, True)
    """

    axes_: list[Any]

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any = None, y: Any = None, *, figure: Any = None
    ) -> "DiagnosticsDisplay":
        """Plot the predictions of a fitted estimator, as scikit-learn's displays do.

        Parameters
        ----------
        estimator : RVMRegressor or RVMClassifier
            A fitted estimator.
        X, y : as in ``fit``, optional
            Rows that the fit has not used; without them, as in ``plot_diagnostics``.
        figure : matplotlib Figure, optional
            An empty figure; by default, ``pyplot`` creates one.

        Returns
        -------
        DiagnosticsDisplay
            The display, which ``plot_diagnostics`` returns, too. Raises the errors of
            ``plot_diagnostics``.
        """
        display: DiagnosticsDisplay = estimator.plot_diagnostics(X, y, figure=figure)
        return display

    def __init__(self, found: Sequence[Diagnostics], names: Sequence[str] = ()) -> None:
        self.found = tuple(found)
        self.names = tuple(names)

    def plot(self, figure: Any = None) -> "DiagnosticsDisplay":
        """Draw the panels into a figure, with one row of panels per target if there are several;
        return the display."""
        try:
            from matplotlib import pyplot
        except ImportError as error:
            raise UsageError('diagnostics need matplotlib: pip install "partirvm[plot]"') from error
        groups = [group.charts for group in target_charts(self.found, self.names)]
        across = 3 if len(groups) == 1 else max(map(len, groups), default=1)
        rows = [
            charts[first : first + across]
            for charts in groups
            for first in range(0, len(charts), across)
        ]
        with styled():
            if figure is None:
                figure = pyplot.figure(
                    figsize=(3.6 * across, 3.1 * max(len(rows), 1)), layout="constrained"
                )
            self.figure_ = figure
            self.axes_ = []
            for row, charts in enumerate(rows):
                for column, chart in enumerate(charts):
                    axis = figure.add_subplot(len(rows), across, row * across + column + 1)
                    chart.draw(axis)
                    axis.set_title(chart.title)
                    self.axes_.append(axis)
        return self
