"""Pictures of predictions beside what was observed: of numbers, and of classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self, TypeAlias

from partirvm.core import diagnostics
from partirvm.core.diagnostics import ClassDiagnostics, NumberDiagnostics
from partirvm.errors import FormatError, UsageError
from partirvm.report.plots import Chart, class_charts, number_charts, styled
from partirvm.report.quantities import Table, format_share

Diagnostics: TypeAlias = NumberDiagnostics | ClassDiagnostics


class TargetCharts(NamedTuple):
    """The charts of one target, and its rows of largest error. ``name`` is empty if there is only one target.

    ``left_out`` is true for training rows that were left out one by one, and false for new rows.
    """

    name: str
    charts: Sequence[Chart]
    largest: Table
    left_out: bool = False


def target_charts(found: Sequence[Diagnostics], names: Sequence[str] = ()) -> list[TargetCharts]:
    """Return the charts of each target. ``names`` are those of the targets, or of the classes of a classification."""
    drawn = []
    for number, each in enumerate(found):
        pairs = zip(each.largest.rows.tolist(), each.largest.values.tolist(), strict=True)
        if isinstance(each, ClassDiagnostics):
            labels = list(map(str, names)) or [f"class {code}" for code in range(len(each.rows))]
            rows = [
                [f"{row:,}", labels[int(own)], labels[int(likeliest)], format_share(p), format_share(largest)]
                for row, (own, likeliest, p, largest) in pairs
            ]
            header = ("row", "true class", "predicted class", "probability of the true class", "of the predicted class")
            drawn.append(TargetCharts("", class_charts(each, names), Table("Largest errors", header, rows)))
            continue
        name = names[number] if number < len(names) else "target" if len(found) == 1 else f"target {number}"
        own_name = name if len(found) > 1 else ""
        rows = [
            [f"{row:,}", f"{t:.5g}", f"{mean:.5g}", f"{std:.5g}", f"{(t - mean) / std:.2f}"]
            for row, (t, mean, std) in pairs
        ]
        header = ("row", "actual", "predicted", "stated deviation", "error / deviation")
        table = Table("Largest errors" + (f": {own_name}" if own_name else ""), header, rows)
        drawn.append(TargetCharts(own_name, number_charts(each, name), table, not len(each.covered)))
    return [group for group in drawn if group.charts]


def from_json(stored: Sequence[Mapping[str, Any]]) -> list[Diagnostics]:
    """Return the diagnostics of a line of history. Raises ``FormatError`` for others than this package writes."""
    try:
        return [diagnostics.from_json(each) for each in stored]
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(f"the diagnostics in an event cannot be read ({error!r}): restore the event") from error


class DiagnosticsDisplay:
    """Picture of predictions beside what was observed, which ``plot_diagnostics`` of an estimator returns.

    For numbers: actual against predicted values, the fraction of rows inside intervals of each stated level,
    standardised residuals against predictions, and the probability integral transform (uniform if the stated normal
    distributions are right). If the stated standard deviations vary: errors against them. For classes: observed
    frequencies against stated probabilities, and the confusion matrix. Error bars are 95 % intervals.

    Parameters
    ----------
    found : sequence of ``core.diagnostics.NumberDiagnostics`` (one for each target), or one ``ClassDiagnostics``
    names : sequence of str, optional
        Names of the targets, or of the classes.

    Attributes
    ----------
    figure_ : matplotlib Figure
    axes_ : list of matplotlib Axes
        One for each panel; set by ``plot``.

    Examples
    --------
    >>> import numpy as np
    >>> from matplotlib.figure import Figure
    >>> from partirvm import RVMRegressor
    >>> X = np.linspace(-5, 5, 100)[:, None]
    >>> y = np.sinc(X[:, 0]) + 0.05 * np.random.default_rng(0).normal(size=100)
    >>> display = RVMRegressor(gamma=2.0).fit(X, y).plot_diagnostics(X, y, figure=Figure())
    >>> display.axes_[0].get_xlabel() != ""
    True
    """

    figure_: Any
    axes_: list[Any]

    def __init__(self, found: Sequence[Diagnostics], names: Sequence[str] = ()) -> None:
        self.found, self.names = tuple(found), tuple(names)

    def plot(self, figure: Any = None) -> Self:
        """Draw the panels into a figure, one row of panels for each of several targets; return the display."""
        try:
            from matplotlib import pyplot
        except ImportError as error:
            raise UsageError('diagnostics are drawn by matplotlib: pip install "partirvm[plot]"') from error
        groups = [group.charts for group in target_charts(self.found, self.names)]
        across = 3 if len(groups) == 1 else max(map(len, groups), default=1)
        rows = [charts[first : first + across] for charts in groups for first in range(0, len(charts), across)]
        with styled():
            if figure is None:
                figure = pyplot.figure(figsize=(3.6 * across, 3.1 * max(len(rows), 1)), layout="constrained")
            self.figure_, self.axes_ = figure, []
            for row, charts in enumerate(rows):
                for column, chart in enumerate(charts):
                    axis = figure.add_subplot(len(rows), across, row * across + column + 1)
                    chart.draw(axis)
                    axis.set_title(chart.title)
                    self.axes_.append(axis)
        return self
