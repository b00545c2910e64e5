"""Panels of a regression: predictions, coverage of intervals, residuals and their quantiles, stated deviations."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from partirvm.core.diagnostics import PIT_BINS, STATED_LEVELS, NumberDiagnostics
from partirvm.planning.units import counted
from partirvm.report.fit_history import minus
from partirvm.report.panels import Band, Bars, Dots, Errors, Line, Mark, Panel, Z, binomial_interval, span

Float = NDArray[np.float64]

GROUPS = 10
"""Number of groups of equal size in which sampled rows are summarised."""

MANY = 400
"""Minimum number of rows for all bins of the transform; fewer rows have half as many bins."""

FEWEST = 40
"""Minimum number of sampled rows for groups."""

LARGEST = 1e100
"""Values that are drawn are smaller, because their squares must not overflow."""

SHOWN_LEVELS = (0.5, 0.9)
"""Levels of the intervals whose coverage is shown by stated deviation."""

VARIES = 1.1
"""Minimum ratio of the 95 % to the 5 % quantile of stated deviations for a panel that compares them with errors."""


def number_panels(found: NumberDiagnostics, target: str = "target") -> list[Panel]:
    """Return the panels of one numeric target with this name."""
    if not found.n or not (np.abs(found.points) < LARGEST).all():
        return []
    panels = [_predictions(found, target), *_coverage(found), _residuals(found, target)]
    panels += [_quantiles(found), _transform(found)]
    low, high = np.quantile(found.points[:, 2], [0.05, 0.95])
    if high > VARIES * low and len(found.points) >= FEWEST:
        panels += [_deviations(found, target), *_coverage_by_deviation(found, target)]
    return panels


def _sampled(found: NumberDiagnostics) -> str:
    rows = len(found.points)
    return counted(rows, "row") if rows == found.n else f"{rows:,} random rows of {found.n:,}"


def _predictions(found: NumberDiagnostics, target: str) -> Panel:
    actual, predicted, _ = found.points.T
    ends = span(actual, predicted)
    equal = Line(np.array(ends), np.array(ends), "equal", stated=True)
    marks: list[Mark] = [Dots(predicted, actual), equal]
    return Panel("Predictions", _sampled(found), f"predicted {target}", f"actual {target}", marks, ends, ends)


def _coverage(found: NumberDiagnostics) -> list[Panel]:
    if not len(found.covered):
        return []
    levels, covered = np.array(STATED_LEVELS), found.covered.astype(np.float64)
    low, high = binomial_interval(covered, np.full(len(levels), float(found.n)))
    share = covered / found.n
    tips = [f"{level:.0%} interval: {part:.1%} of rows inside" for level, part in zip(levels, share, strict=True)]
    ends = np.array([0.0, 1.0])
    marks: list[Mark] = [Line(ends, ends, "as stated", stated=True), Errors(levels, share, low, high, tips)]
    labels = "stated level of the interval", "rows inside the interval"
    remark = f"{counted(found.n, 'row')}; below the line: too narrow"
    return [Panel("Coverage of intervals", remark, *labels, marks, (0.0, 1.0), (0.0, 1.0), (True, True))]


def _residuals(found: NumberDiagnostics, target: str) -> Panel:
    actual, predicted, std = found.points.T
    z = (actual - predicted) / std
    x, y = span(predicted), span(z, np.array([-2.5, 2.5]))
    ends = np.array(x)
    marks: list[Mark] = [Dots(predicted, z), Line(ends, np.zeros(2), stated=True)]
    marks += [Line(ends, np.full(2, sign * Z), stated=True) for sign in (-1.0, 1.0)]
    if len(z) >= FEWEST:
        marks.append(_group_means(predicted, z))
    remark = "95 % between the outer lines if right; bars: means of tenths"
    labels = f"predicted {target}", "residual / stated deviation"
    return Panel("Standardised residuals", remark, *labels, marks, x, y)


def _group_means(predicted: Float, z: Float) -> Errors:
    """Return the mean residual of rows grouped by prediction, with its 95 % interval."""
    groups = np.array_split(np.argsort(predicted, kind="stable"), GROUPS)
    x = np.array([predicted[group].mean() for group in groups])
    y = np.array([z[group].mean() for group in groups])
    half = Z * np.array([z[group].std(ddof=1) / np.sqrt(len(group)) for group in groups])
    tips = [
        minus(f"predicted about {at:.3g}: mean {mean:.2f} ± {wide:.2f}")
        for at, mean, wide in zip(x, y, half, strict=True)
    ]
    return Errors(x, y, y - half, y + half, tips)


def _quantiles(found: NumberDiagnostics) -> Panel:
    """Return the ordered standardised residuals beside the quantiles of a standard normal."""
    actual, predicted, std = found.points.T
    z = np.sort((actual - predicted) / std)
    normal = np.array([NormalDist().inv_cdf((k + 0.5) / len(z)) for k in range(len(z))])
    x, y = span(normal, np.array([-2.5, 2.5])), span(z, np.array([-2.5, 2.5]))
    marks: list[Mark] = [Dots(normal, z), Line(np.array(x), np.array(x), "as stated", stated=True)]
    remark = f"{_sampled(found)}; steeper than the line: stated deviations are too small"
    labels = "quantile of a standard normal", "residual / stated deviation"
    return Panel("Quantiles of residuals", remark, *labels, marks, x, y)


def _transform(found: NumberDiagnostics) -> Panel:
    bins = PIT_BINS if found.n >= MANY else PIT_BINS // 2
    share = found.pit.reshape(bins, -1).sum(axis=1) / found.n
    half = Z * np.sqrt((bins - 1) / found.n)
    edges = np.linspace(0.0, 1.0, bins + 1)
    texts = zip(edges, edges[1:], share, strict=False)
    tips = [f"{low:.0%} to {high:.0%}: {part:.1%} of rows, expected {1 / bins:.0%}" for low, high, part in texts]
    high = bins * share
    ends = np.array([0.0, 1.0])
    marks: list[Mark] = [
        Band(max(1 - half, 0.0), 1 + half),
        Bars(edges, np.zeros(bins), high, tips),
        Line(ends, np.ones(2), "as stated", stated=True),
    ]
    remark = "a hill: stated deviations are too large; a valley: too small"
    top = 1.08 * max(float(high.max()), 1 + half)
    labels = "stated probability of a smaller value", "rows / expected rows"
    return Panel(
        "Position in the predicted distribution", remark, *labels, marks, (0.0, 1.0), (0.0, top), (True, False)
    )


def _deviations(found: NumberDiagnostics, target: str) -> Panel:
    """Return root mean square errors of rows grouped by stated deviation, with 95 % intervals."""
    actual, predicted, std = found.points.T
    groups = np.array_split(np.argsort(std, kind="stable"), GROUPS)
    square = (actual - predicted) ** 2
    mean = np.array([square[group].mean() for group in groups])
    half = Z * np.array([square[group].std(ddof=1) / np.sqrt(len(group)) for group in groups])
    x = np.sqrt([np.mean(std[group] ** 2) for group in groups])
    y, low, high = (np.sqrt(np.maximum(each, 0.0)) for each in (mean, mean - half, mean + half))
    ends = (0.0, 1.05 * float(max(x.max(), high.max())))
    tips = [f"stated {stated:.3g}, observed {error:.3g}" for stated, error in zip(x, y, strict=True)]
    line = Line(np.array(ends), np.array(ends), "as stated", stated=True)
    marks: list[Mark] = [line, Errors(x, y, low, high, tips)]
    labels = f"stated deviation of {target}", "root mean square error"
    return Panel("Errors against stated deviations", "each point: a tenth of the rows", *labels, marks, ends, ends)


def _coverage_by_deviation(found: NumberDiagnostics, target: str) -> list[Panel]:
    """Return the coverage of two intervals, of rows grouped by stated deviation."""
    if not len(found.covered):
        return []
    actual, predicted, std = found.points.T
    z = np.abs(actual - predicted) / std
    groups = np.array_split(np.argsort(std, kind="stable"), GROUPS)
    rows, x = np.array([float(len(group)) for group in groups]), np.array([std[group].mean() for group in groups])
    ends, marks = span(x), list[Mark]()
    for level in SHOWN_LEVELS:
        multiple = found.multiples[STATED_LEVELS.index(level)]
        hits = np.array([float((z[group] <= multiple).sum()) for group in groups])
        low, high = binomial_interval(hits, rows)
        tips = [
            f"{level:.0%} interval, mean deviation {at:.3g}: {share:.1%} of rows inside"
            for at, share in zip(x, hits / rows, strict=True)
        ]
        marks += [
            Line(np.array(ends), np.full(2, level), f"{level:.0%} stated", stated=True),
            Errors(x, hits / rows, low, high, tips),
        ]
    remark = "50 % and 90 % intervals; each point: a tenth of the rows"
    labels = f"stated deviation of {target}", "rows inside the interval"
    return [Panel("Coverage by stated deviation", remark, *labels, marks, ends, (0.0, 1.0), (False, True))]
