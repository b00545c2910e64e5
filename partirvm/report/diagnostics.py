"""Pictures of predictions beside what was observed: one kind for numbers, and one for classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import numpy as np

from partirvm.core.diagnostics import MOST_TARGETS, ClassDiagnostics, NumberDiagnostics
from partirvm.core.scores import ClassScores
from partirvm.errors import DataError, FormatError, UsageError
from partirvm.report.class_panels import class_errors, class_panels
from partirvm.report.number_panels import number_errors, number_panels
from partirvm.report.panels import Chart, Table, styled

Diagnostics: TypeAlias = NumberDiagnostics | ClassDiagnostics

WIDTH, HEIGHT = 3.6, 3.1
"""Size of a panel in inches."""


@dataclass(frozen=True)
class Group:
    """The panels of one target. ``name`` is the name of the target, or empty if there is only one target.

    ``left_out`` is true for training rows that were left out one by one, and false for new rows. ``largest`` are the
    rows of largest error.
    """

    name: str
    panels: Sequence[Chart]
    left_out: bool = False
    largest: Table | None = None


def groups(found: Sequence[Diagnostics], names: Sequence[str] = ()) -> list[Group]:
    """Return the panels of each target. ``names`` are those of the targets, or of the classes of a classification."""
    drawn = []
    for number, each in enumerate(found):
        if isinstance(each, ClassDiagnostics):
            drawn.append(Group("", class_panels(each, names), largest=class_errors(each.largest, names)))
            continue
        name = names[number] if number < len(names) else "target" if len(found) == 1 else f"target {number}"
        panels, left_out = number_panels(each, name), not len(each.covered)
        drawn.append(Group(name if len(found) > 1 else "", panels, left_out, number_errors(each.largest)))
    return [group for group in drawn if group.panels]


def from_json(stored: Sequence[Mapping[str, Any]]) -> list[Diagnostics]:
    """Return the diagnostics of a line of history. Raises ``FormatError`` for others than this package writes."""
    try:
        return [
            NumberDiagnostics.from_json(each) if "points" in each else ClassDiagnostics.from_json(each)
            for each in stored
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(f"the diagnostics in an event cannot be read ({error!r}): restore the event") from error


class DiagnosticsDisplay:
    """Picture of predictions beside what was observed, in the style of scikit-learn's displays.

    For numbers: actual against predicted values, the fraction of rows inside intervals of each stated level,
    standardised residuals against predictions, their quantiles against those of a normal, and the probability integral
    transform (uniform if the stated normal distributions are right). If the stated standard deviations vary: errors
    and the coverage of intervals against them. For classes: observed frequencies against stated probabilities, the
    confusion matrix, the ROC and the precision-recall curve of two classes, the distribution of the largest
    probability, and the log loss beside its expectation. Error bars are 95 % intervals.

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
    >>> from partirvm import DiagnosticsDisplay, RVMRegressor
    >>> X = np.linspace(-5, 5, 100)[:, None]
    >>> y = np.sinc(X[:, 0]) + 0.05 * np.random.default_rng(0).normal(size=100)
    >>> display = DiagnosticsDisplay.from_estimator(RVMRegressor(gamma=2.0).fit(X, y), X, y, figure=Figure())
    >>> display.axes_[0].get_xlabel() != ""
    True
    """

    figure_: Any
    axes_: list[Any]

    def __init__(self, found: Sequence[Diagnostics], names: Sequence[str] = ()) -> None:
        self.found, self.names = tuple(found), tuple(names)

    @classmethod
    def from_estimator(cls, estimator: Any, X: Any = None, y: Any = None, *, figure: Any = None) -> Self:
        """Draw the picture of a fitted estimator's predictions at X; parameters as for ``plot_diagnostics``."""
        display: Self = estimator.plot_diagnostics(X, y, figure=figure)
        return display

    @classmethod
    def from_predictions(cls, y: Any, mean: Any, std: Any, *, names: Sequence[str] = (), figure: Any = None) -> Self:
        """Draw the picture of normal predictions of numbers.

        Parameters
        ----------
        y, mean, std : array-like (n,) or (n, T)
            Targets, predicted means and predicted standard deviations of new targets. Of several targets the first
            four are drawn.
        names : sequence of str, optional
            Names of the targets.
        figure : matplotlib Figure, optional
            An empty figure; by default a new one of ``pyplot``.
        """
        y, mean, std = (np.atleast_2d(np.asarray(each, dtype=np.float64).T) for each in (y, mean, std))
        if not y.shape == mean.shape == std.shape:
            raise DataError(f"y, mean and std have the shapes {y.T.shape}, {mean.T.shape} and {std.T.shape}")
        rows = np.arange(y.shape[1])
        parts = zip(y[:MOST_TARGETS], mean, std, strict=False)
        return cls([NumberDiagnostics.of(*part, rows) for part in parts], names).plot(figure)

    @classmethod
    def from_probabilities(cls, y: Any, probabilities: Any, classes: Any, *, figure: Any = None) -> Self:
        """Draw the picture of class probabilities.

        Parameters
        ----------
        y : array-like (n,)
            True labels.
        probabilities : array-like (n, K)
        classes : array-like (K,)
            Labels in the order of the columns of ``probabilities``.
        figure : matplotlib Figure, optional
            An empty figure; by default a new one of ``pyplot``.
        """
        codes = {label: code for code, label in enumerate(np.asarray(classes).tolist())}
        unknown = set(np.asarray(y).tolist()) - codes.keys()
        if unknown:
            raise DataError(f"y has labels that are not in classes, such as {sorted(map(str, unknown))[0]!r}")
        p = np.asarray(probabilities, dtype=np.float64)
        own = np.array([codes[label] for label in np.asarray(y).tolist()], dtype=np.int64)
        found = ClassScores.of(own, p, p[:, 1].copy() if len(codes) == 2 else None).diagnostics
        return cls(found, [str(label) for label in codes]).plot(figure)

    def plot(self, figure: Any = None) -> Self:
        """Draw the panels into a figure, one row of panels for each of several targets; return the display."""
        try:
            from matplotlib import pyplot
        except ImportError as error:
            raise UsageError('diagnostics are drawn by matplotlib: pip install "partirvm[plot]"') from error
        rows = _rows(groups(self.found, self.names))
        across = max(map(len, rows), default=1)
        with styled():
            if figure is None:
                figure = pyplot.figure(figsize=(WIDTH * across, HEIGHT * max(len(rows), 1)), layout="constrained")
            self.figure_, self.axes_ = figure, []
            for row, panels in enumerate(rows):
                for column, panel in enumerate(panels):
                    axis = figure.add_subplot(len(rows), across, row * across + column + 1)
                    panel.plot(axis)
                    self.axes_.append(axis)
        return self


def _rows(drawn: Sequence[Group]) -> list[Sequence[Chart]]:
    """Return rows of panels: of one target at most three in each row, of several targets four, each in its own rows."""
    rows: list[Sequence[Chart]] = []
    for group in drawn:
        panels = group.panels
        across = 4 if len(drawn) > 1 else 2 if len(panels) <= 4 else 3
        rows += [panels[first : first + across] for first in range(0, len(panels), across)]
    return rows
