"""Judge the targets before a fit and a model without vectors after it, for warnings.

Outliers are the m rows farthest from the median of the first tile, for the largest m with

    abs(t_m − median) > ``FAR_OUT`` · s_m,

where s_m is the root mean square of the other rows. They are reported if they are few and hold most
of the sum of squares: then the fit has little to do with the other rows.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from partirvm.data import Source
from partirvm.execution import Executor
from partirvm.fit.comparison import ComparedRows
from partirvm.resolve.resolve import FitSpec
from partirvm.scaling.maps import AS_IT_IS
from partirvm.types import JUDGED_ROWS, Bool, Float, Int

FAR_OUT = 10.0
"""Distance of outliers in root mean squares of the other rows."""

OF_SQUARES = 0.9
"""Minimum share of the sum of squares that outliers hold."""

FEW_ROWS = 0.02
"""Maximum share of the rows that are outliers."""

RARE = 0.05
"""Share of the rows up to which values other than the median are rare events."""

SUSPECT = 25.0
"""Largest squared distance from the mean ÷ variance below which no rows are read in search of
outliers."""

NAMED = 8
"""Maximum number of outliers that are named."""

BOOSTING = "boosting"
"""Name of the rival that consists of boosted trees."""

RIVAL = 0.9
"""Loss of a rival ÷ loss of the mean from which the mean is clearly worse."""

SURE = 2.0
"""Gain in standard errors from which the mean is clearly worse."""


@dataclass(frozen=True)
class Farthest:
    """Of n rows, of which some are ``elsewhere`` than at a centre: the sum of squared distances
    from it, and rows (k,) with the largest distances (k,)."""

    n: int
    elsewhere: int
    square: float
    distances: Float
    rows: Int


def _farthest(centre: float, target: int, source: Source, number: int) -> Farthest:
    """Return the rows of a tile that are farthest from a centre.

    Args:
        centre: the centre, in the units of the target
        target: the number of the target
        source: the source of the tile
        number: the number of the tile
    """
    tile = source.tile(number)
    places = np.arange(len(tile.t)) if tile.weights is None else np.flatnonzero(tile.weights > 0)
    distances = np.abs(tile.t[places, target] - centre)
    order = np.argsort(-distances, kind="stable")[: 1 + NAMED + int(FEW_ROWS * len(distances))]
    rows = np.asarray(source.original_rows(number))[places[order]]
    return Farthest(
        len(distances),
        int(np.count_nonzero(distances)),
        float((distances**2).sum()),
        distances[order],
        rows,
    )


def outliers(spec: FitSpec, source: Source, executor: Executor) -> str:
    """Return a sentence on the outliers of a numeric target, or "" if there are none."""
    problem = spec.problem
    moments = source.moments
    plain = problem.likelihood.has_noise and problem.empty.scaling.target == AS_IT_IS
    if not plain or not problem.target_variance:
        return ""
    for target in range(problem.n_targets):
        if moments is not None:
            target_moments = moments.targets
            distance = max(
                target_moments.maximum[target] - target_moments.mean[target],
                target_moments.mean[target] - target_moments.minimum[target],
            )
            if distance**2 < SUSPECT * target_moments.variance[target]:
                continue
        centre = float(np.median(source.tile(0).t[:, target]))
        parts = [
            each
            for _, each in executor.map(
                partial(_farthest, centre, target), source, range(source.n_tiles)
            )
        ]
        sentence = _described(parts)
        if sentence:
            return sentence
    return ""


def _described(parts: list[Farthest]) -> str:
    """Return a sentence on the rows that are outliers, or "".

    If nearly all rows are at the centre, as in an indicator of rare events, the few others are the
    signal.
    """
    n = sum(part.n for part in parts)
    if sum(part.elsewhere for part in parts) <= RARE * n:
        return ""
    square = sum(part.square for part in parts)
    distances = np.concatenate([part.distances for part in parts])
    order = np.argsort(-distances, kind="stable")[: int(FEW_ROWS * n)]
    held = np.cumsum(distances[order] ** 2)
    others = np.sqrt(np.maximum(square - held, 0.0) / (n - np.arange(1, len(order) + 1)))
    far = np.flatnonzero(distances[order] > FAR_OUT * others)
    if not len(far) or held[far[-1]] < OF_SQUARES * square:
        return ""
    count = int(far[-1]) + 1
    rows = np.sort(np.concatenate([part.rows for part in parts])[order[:count][:NAMED]])
    names = ", ".join(f"{row:,}" for row in rows) + (", …" if count > NAMED else "")
    share = min(np.floor(1000 * held[count - 1] / square) / 10, 99.9)
    subject = "1 row carries" if count == 1 else f"{count:,} rows carry"
    return f"{subject} {share:.1f} % of the target's sum of squares (counted from 0: {names})"


@dataclass(frozen=True)
class Verdict:
    """What ``rows`` left-out rows say of a model that predicts the mean or class frequencies.

    ``losses`` holds the loss of each rival, and ``own`` that of the mean; ``better`` names the
    rival that is clearly better, or is "".
    """

    rows: int
    own: float
    losses: dict[str, float]
    better: str


def judged(spec: FitSpec, source: Source, executor: Executor) -> Verdict | None:
    """Compare the mean, or class frequencies, with simple methods on left-out rows; None if there
    are too few rows."""
    rivals = RIVALS[spec.problem.likelihood.loss_name]
    rows = ComparedRows.of(source, executor, JUDGED_ROWS[1], spec.request.seed)
    if len(rows.t) < JUDGED_ROWS[0]:
        return None
    with threadpool_limits(1, "openmp"):
        losses = rivals.losses(spec.problem.empty.scaling.inputs(rows.X), rows.t, rows.new)
    by_mean = losses.pop("mean")
    means = {name: float(loss.mean()) for name, loss in losses.items()}
    best = min(means, key=means.__getitem__)
    gain = by_mean - losses[best]
    lower = means[best] < RIVAL ** (1 / rivals.power) * by_mean.mean()
    clear = lower and gain.mean() > SURE * gain.std() / np.sqrt(len(gain))
    shown = {name: loss**rivals.power for name, loss in means.items()}
    error_of_mean = float(by_mean.mean() ** rivals.power)
    return Verdict(len(by_mean), error_of_mean, shown, best if clear else "")


def _losses(X: Float, t: Float, new: Bool) -> dict[str, Float]:
    """Return the squared errors of the ``new`` of rows with inputs X (n, d) and targets (n, T), by
    the mean and by each rival that the others teach, means over the targets."""
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.linear_model import LinearRegression
    from sklearn.neighbors import KNeighborsRegressor

    known = X[~new], t[~new]
    trees = [
        HistGradientBoostingRegressor(random_state=0).fit(known[0], each) for each in known[1].T
    ]
    predicted = {
        "mean": np.broadcast_to(known[1].mean(axis=0), t[new].shape),
        "least squares": LinearRegression().fit(*known).predict(X[new]),
        "regression on 10 nearest neighbours": KNeighborsRegressor(10).fit(*known).predict(X[new]),
        BOOSTING: np.column_stack([each.predict(X[new]) for each in trees]),
    }
    return {name: ((each - t[new]) ** 2).mean(axis=1) for name, each in predicted.items()}


def _class_losses(X: Float, t: Float, new: Bool) -> dict[str, Float]:
    """Return the log losses of the ``new`` of rows with inputs X (n, d) and class codes (n, 1), by
    class frequencies ("mean") and by each rival that the others teach.

    Left-out rows of a class without rows that teach are omitted.
    """
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression

    codes = t[~new, 0].astype(np.int64)
    new_codes = t[new, 0].astype(np.int64)
    classes = np.unique(codes)
    known = np.isin(new_codes, classes)
    places = np.searchsorted(classes, new_codes[known])
    frequencies = np.bincount(codes)[classes] / len(codes)
    rivals: dict[str, Any] = {
        "logistic regression": LogisticRegression(max_iter=1000),
        BOOSTING: HistGradientBoostingClassifier(random_state=0),
    }
    losses = {"mean": -np.log(frequencies[places])}
    for name, rival in rivals.items():
        probabilities = rival.fit(X[~new], codes).predict_proba(X[new][known])
        losses[name] = -np.log(np.maximum(probabilities[np.arange(len(places)), places], 1e-12))
    return losses


@dataclass(frozen=True)
class RivalLosses:
    """Losses of simple methods.

    Attributes:
        losses: returns the losses of left-out rows by method
        power: exponent with which a mean loss is shown
    """

    losses: Callable[[Float, Float, Bool], dict[str, Float]]
    power: float


RIVALS = {"RMSE": RivalLosses(_losses, 0.5), "log loss": RivalLosses(_class_losses, 1.0)}
"""Losses of simple methods by the name of the likelihood's loss."""
