"""Panels of a regression: predictions, coverage of intervals, residuals and their quantiles, stated deviations."""

from __future__ import annotations

from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partirvm.core.diagnostics import PIT_BINS, STATED_LEVELS, NumberDiagnostics
from partirvm.core.sampling import LargestErrors
from partirvm.planning.units import counted
from partirvm.report.panels import (
    OBSERVED,
    Chart,
    Row,
    Table,
    Z,
    binomial_interval,
    dots,
    dress,
    estimates,
    span,
    stated,
)
from partirvm.report.quantities import minus

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


def number_panels(found: NumberDiagnostics, target: str = "target") -> list[Chart]:
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


def _groups(order: Float) -> list[NDArray[np.int64]]:
    """Return the rows in groups of equal size by a value."""
    return np.array_split(np.argsort(order, kind="stable"), GROUPS)


def _means(values: Float, groups: list[NDArray[np.int64]]) -> Float:
    return np.array([values[group].mean() for group in groups])


def _predictions(found: NumberDiagnostics, target: str) -> Chart:
    actual, predicted, _ = found.points.T
    ends = span(actual, predicted)

    def draw(axis: Any) -> None:
        dots(axis, predicted, actual)
        stated(axis, ends, ends, "equal")
        axis.set(xlim=ends, ylim=ends)
        dress(axis, f"predicted {target}", f"actual {target}")
        axis.legend()

    return Chart("Predictions", _sampled(found), draw)


def _coverage(found: NumberDiagnostics) -> list[Chart]:
    if not len(found.covered):
        return []
    levels, covered = np.array(STATED_LEVELS), found.covered.astype(np.float64)
    low, high = binomial_interval(covered, np.full(len(levels), float(found.n)))
    share = covered / found.n

    def draw(axis: Any) -> None:
        stated(axis, (0, 1), (0, 1), "as stated")
        estimates(axis, levels, share, low, high)
        axis.set(xlim=(0, 1), ylim=(0, 1))
        dress(axis, "stated level of the interval", "rows inside the interval", percent="xy")
        axis.legend()

    tips = [f"{level:.0%} interval: {part:.1%} of rows inside" for level, part in zip(levels, share, strict=True)]
    return [Chart("Coverage of intervals", f"{counted(found.n, 'row')}; below the line: too narrow", draw, tips)]


def _residuals(found: NumberDiagnostics, target: str) -> Chart:
    actual, predicted, std = found.points.T
    z = (actual - predicted) / std
    x, groups = span(predicted), _groups(predicted) if len(z) >= FEWEST else []
    middle, mean = _means(predicted, groups), _means(z, groups)
    half = Z * np.array([z[group].std(ddof=1) / np.sqrt(len(group)) for group in groups])

    def draw(axis: Any) -> None:
        dots(axis, predicted, z)
        for level in (0.0, -Z, Z):
            stated(axis, x, (level, level))
        if groups:
            estimates(axis, middle, mean, mean - half, mean + half)
        axis.set(xlim=x, ylim=span(z, np.array([-2.5, 2.5])))
        dress(axis, f"predicted {target}", "residual / stated deviation")

    tips = [
        minus(f"predicted about {at:.3g}: mean {value:.2f} ± {wide:.2f}")
        for at, value, wide in zip(middle, mean, half, strict=True)
    ]
    remark = "95 % between the outer lines if right; bars: means of tenths"
    return Chart("Standardised residuals", remark, draw, tips)


def _quantiles(found: NumberDiagnostics) -> Chart:
    """Return the ordered standardised residuals beside the quantiles of a standard normal."""
    actual, predicted, std = found.points.T
    z = np.sort((actual - predicted) / std)
    normal = np.array([NormalDist().inv_cdf((k + 0.5) / len(z)) for k in range(len(z))])
    x, y = span(normal, np.array([-2.5, 2.5])), span(z, np.array([-2.5, 2.5]))

    def draw(axis: Any) -> None:
        dots(axis, normal, z)
        stated(axis, x, x, "as stated")
        axis.set(xlim=x, ylim=y)
        dress(axis, "quantile of a standard normal", "residual / stated deviation")
        axis.legend()

    remark = f"{_sampled(found)}; steeper than the line: stated deviations are too small"
    return Chart("Quantiles of residuals", remark, draw)


def _transform(found: NumberDiagnostics) -> Chart:
    bins = PIT_BINS if found.n >= MANY else PIT_BINS // 2
    share = found.pit.reshape(bins, -1).sum(axis=1) / found.n
    half = Z * np.sqrt((bins - 1) / found.n)
    edges = np.linspace(0.0, 1.0, bins + 1)

    def draw(axis: Any) -> None:
        axis.axhspan(max(1 - half, 0.0), 1 + half, color="#777777", alpha=0.25, linewidth=0, zorder=0)
        axis.bar(edges[:-1], bins * share, 0.96 / bins, align="edge", color=OBSERVED, alpha=0.75)
        stated(axis, (0, 1), (1, 1), "as stated")
        axis.set(xlim=(0, 1), ylim=(0, 1.2 * max(float(bins * share.max()), 1 + half)))
        dress(axis, "stated probability of a smaller value", "rows / expected rows", percent="x")
        axis.legend(loc="upper right")

    texts = zip(edges, edges[1:], share, strict=False)
    tips = [f"{low:.0%} to {high:.0%}: {part:.1%} of rows, expected {1 / bins:.0%}" for low, high, part in texts]
    remark = "a hill: stated deviations are too large; a valley: too small"
    return Chart("Position in the predicted distribution", remark, draw, tips)


def _deviations(found: NumberDiagnostics, target: str) -> Chart:
    """Return root mean square errors of rows grouped by stated deviation, with 95 % intervals."""
    actual, predicted, std = found.points.T
    groups = _groups(std)
    square = (actual - predicted) ** 2
    mean = _means(square, groups)
    half = Z * np.array([square[group].std(ddof=1) / np.sqrt(len(group)) for group in groups])
    x = np.sqrt(_means(std**2, groups))
    y, low, high = (np.sqrt(np.maximum(each, 0.0)) for each in (mean, mean - half, mean + half))
    ends = (0.0, 1.05 * float(max(x.max(), high.max())))

    def draw(axis: Any) -> None:
        stated(axis, ends, ends, "as stated")
        estimates(axis, x, y, low, high)
        axis.set(xlim=ends, ylim=ends)
        dress(axis, f"stated deviation of {target}", "root mean square error")
        axis.legend()

    tips = [f"stated {at:.3g}, observed {error:.3g}" for at, error in zip(x, y, strict=True)]
    return Chart("Errors against stated deviations", "each point: a tenth of the rows", draw, tips)


def _coverage_by_deviation(found: NumberDiagnostics, target: str) -> list[Chart]:
    """Return the coverage of two intervals, of rows grouped by stated deviation."""
    if not len(found.covered):
        return []
    actual, predicted, std = found.points.T
    z, groups = np.abs(actual - predicted) / std, _groups(std)
    rows, x = np.array([float(len(group)) for group in groups]), _means(std, groups)
    multiples = [found.multiples[STATED_LEVELS.index(level)] for level in SHOWN_LEVELS]
    hits = [np.array([float((z[group] <= multiple).sum()) for group in groups]) for multiple in multiples]

    def draw(axis: Any) -> None:
        ends = span(x)
        for level, inside in zip(SHOWN_LEVELS, hits, strict=True):
            stated(axis, ends, (level, level), f"{level:.0%} stated")
            estimates(axis, x, inside / rows, *binomial_interval(inside, rows))
        axis.set(xlim=ends, ylim=(0, 1))
        dress(axis, f"stated deviation of {target}", "rows inside the interval", percent="y")
        axis.legend()

    tips = [
        f"{level:.0%} interval, mean deviation {at:.3g}: {share:.1%} of rows inside"
        for level, inside in zip(SHOWN_LEVELS, hits, strict=True)
        for at, share in zip(x, inside / rows, strict=True)
    ]
    remark = "50 % and 90 % intervals; each point: a tenth of the rows"
    return [Chart("Coverage by stated deviation", remark, draw, tips)]


def number_errors(found: LargestErrors) -> Table | None:
    """Return a table of the rows of largest error of a numeric target; None without rows.

    The last column is (actual − predicted)/standard deviation.
    """
    if not len(found.rows):
        return None
    rows = [
        Row([f"{row:,}", *(minus(f"{value:.5g}") for value in (t, mean, std)), minus(f"{(t - mean) / std:.2f}")])
        for row, (t, mean, std) in zip(found.rows.tolist(), found.values.tolist(), strict=True)
    ]
    return Table(("row", "actual", "predicted", "stated deviation", "error / deviation"), rows, "small")
