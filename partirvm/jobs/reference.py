"""After a fit with a learned kernel: compare the model with boosting and with the nearest rows, on rows left out.

All errors are of rows that the methods have not seen. Errors of the model are those of its training rows times the
ratio of its left-out error to its training error (``core.left_out``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from partirvm.core.sampling import Purpose, stream
from partirvm.jobs.driver import Driver
from partirvm.learning.sample import Entry, Spent, gathered
from partirvm.resolve.spec import FitSpec
from partirvm.types import PANEL_ROWS

Float = NDArray[np.float64]
Int = NDArray[np.int64]

LEAST_ROWS, MOST_ROWS = 1000, 20_000
"""Least number of rows of a fit that is compared, and maximum number of rows from which the other methods learn."""

MOST_BYTES = 1 << 23
"""Maximum number of bytes of the inputs of these rows."""

LEAST_MEMORY = 1 << 30
"""Least memory limit: scikit-learn's trees take 130 MiB before they see a row."""

LEFT_OUT = 5
"""Every fifth row is left out of the other methods."""

BOOSTING, NEAR = "boosting (scikit-learn's HistGradientBoostingRegressor)", "the mean of the ten nearest rows"


BETTER = 1.1
"""Ratio of root mean square errors from which on another method is named."""

STANDARD_ERRORS = 2.0
"""Number of standard errors by which the mean squared errors must differ, too: few rows vary."""

USUAL = 0.99
"""Share of the rows, those of smallest errors by both methods, on which the other method must be better, too.

A few targets far away decide the mean squared error, by chance.
"""

FAR = 20.0
"""Number of robust standard deviations (median absolute error ÷ .6745) beyond which a row is an outlier."""

CARRIED = 0.5
"""Share of the squared error that outliers must carry to be named."""

DETAIL = 1.5
"""Ratio of the stated noise to the noise between nearest rows from which on detail is missing."""

NEIGHBOURS = 10
"""Number of nearest rows whose mean target, weighted by 1/distance, predicts a row."""

TINY = np.finfo(float).tiny

QUANTILE = 0.6744897501960817
"""Median of the absolute value of a standard normal."""


@dataclass(frozen=True)
class ReferenceErrors:
    """The result: root mean square errors on ``rows`` rows in units of the target, of the model and of other methods.

    ``better`` are the methods that are better by more than ``BETTER`` and ``STANDARD_ERRORS``, on usual rows, too.
    ``near_noise`` is the deviation of the noise by differences of nearest rows, and ``noise`` the stated one.
    ``outliers`` is the share of rows beyond ``FAR`` robust deviations; they carry the share ``carried`` of the squares.
    """

    rows: int
    rmse: float
    others: Mapping[str, float]
    better: tuple[str, ...]
    noise: float
    near_noise: float
    outliers: float
    carried: float

    @classmethod
    def of(cls, errors: Float, others: Mapping[str, Float], noise: float, near_noise: float) -> ReferenceErrors:
        """Compare errors (n,) of the model with those of other methods on the same rows."""
        square = errors**2
        better = []
        for name, other in others.items():
            gain = square - other**2
            sure = gain.mean() > STANDARD_ERRORS * gain.std() / np.sqrt(len(gain))
            largest = np.maximum(square, other**2)
            usual = largest <= np.quantile(largest, USUAL)
            ratios = [square[rows].sum() / max((other[rows] ** 2).sum(), TINY) for rows in (usual, slice(None))]
            if sure and min(ratios) > BETTER**2:
                better.append(name)
        robust = float(np.median(np.abs(errors))) / QUANTILE
        far = np.abs(errors) > FAR * robust
        return cls(
            len(errors),
            _root(square),
            {name: _root(other**2) for name, other in others.items()},
            tuple(better),
            noise,
            near_noise,
            float(far.mean()),
            float(square[far].sum() / max(square.sum(), TINY)),
        )

    def remarks(self) -> list[str]:
        """Return sentences about what should be checked; empty if nothing is remarkable."""
        found = [
            f"{name} has an RMSE of {self.others[name]:.3g} on {self.rows:,} rows left out, this model "
            f"{self.rmse:.3g} (+{self.rmse / self.others[name] - 1:.0%}): more vectors (effort='thorough', "
            "max_vectors), transformed features or target, or categories given as such may help"
            for name in self.better
        ]
        if self.noise > DETAIL * self.near_noise > 0:
            found.append(
                f"the stated noise is {self.noise:.3g}, but targets of nearest rows differ as if it were "
                f"{self.near_noise:.3g}: the model misses detail; more vectors may help"
            )
        if self.carried > CARRIED and self.outliers < 0.5:
            found.append(
                f"{self.outliers:.2%} of the rows lie beyond {FAR:.0f} typical deviations and carry "
                f"{self.carried:.0%} of the squared error: check these rows"
            )
        return found

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON, with the remarks."""
        return {**asdict(self), "others": dict(self.others), "better": list(self.better), "remarks": self.remarks()}


def by_near_rows(X: Float, y: Float, new: Float) -> Float:
    """Predict new rows (m, d) by the weighted mean target of their ``NEIGHBOURS`` nearest rows of X (n, d), (m,)."""
    distance, which = cKDTree(X).query(new, k=min(NEIGHBOURS, len(X)))
    distance, which = distance.reshape(len(new), -1), which.reshape(len(new), -1)
    weights = 1.0 / np.maximum(distance, TINY**0.5)
    return np.asarray((weights * y[which]).sum(axis=1) / weights.sum(axis=1))


def noise_of_near_rows(X: Float, y: Float) -> float:
    """Return the deviation of noise by differences of nearest rows: √(½ mean (y_n − y_nearest)²), an upper bound.

    The nearest of rows with equal inputs is another row with these inputs.
    """
    _, which = cKDTree(X).query(X, k=2)
    itself = which[:, 0] == np.arange(len(X))
    nearest = np.where(itself, which[:, 1], which[:, 0])
    return _root((y - y[nearest]) ** 2 / 2)


def _root(square: Float) -> float:
    return float(np.sqrt(np.mean(square)))


def wanted(spec: FitSpec, entry: Entry) -> bool:
    """Return whether the model of a history entry is compared: the last one of one target with a learned kernel."""
    request, problem = spec.request, spec.problem
    learned = any(each["kind"] == "kernel" for each in spec.measured)
    return (
        entry["kind"] == "final"
        and request.reference != "none"
        and learned
        and not problem.classifies
        and problem.n_targets == 1
        and problem.n_rows >= LEAST_ROWS
        and spec.plan.machine.limit >= LEAST_MEMORY
        and bool(entry["train_rmse"] and entry["noise_sd"])
    )


def compare(driver: Driver, spec: FitSpec, entry: Entry) -> dict[str, Any]:
    """Return the comparison of the model that ``driver`` saved last, as plain JSON."""
    assert driver.kept is not None
    design, fit = driver.kept
    source, scaling = driver.source, design.scaling
    most = min(MOST_ROWS, MOST_BYTES // (8 * source.n_features), source.n_rows)
    order = stream(spec.request.seed, Purpose.COMPARED_ROWS).permutation(source.n_rows)[:most]
    with gathered(source, np.sort(order), driver.executor, lambda *progress: None, Spent()) as sample:
        tiles = [sample.rows.tile(k) for k in range(sample.rows.n_tiles)]
    weights = [np.ones(len(tile.X)) if tile.weights is None else tile.weights for tile in tiles]
    w = np.concatenate(weights)
    raw, y = np.concatenate([tile.X for tile in tiles])[w > 0], np.concatenate([tile.t for tile in tiles])[w > 0, 0]
    left_out = np.arange(len(y)) % LEFT_OUT == 0
    X, w = scaling.inputs(raw), w[w > 0]
    deviation = X.std(axis=0)
    X = X / np.where(deviation > 0, deviation, 1.0)
    weights_of_mean = cast(Any, fit).posterior.means[:, 0]
    parts = np.array_split(raw[left_out], -(-most // PANEL_ROWS))
    mean = np.concatenate([design.block(part) @ weights_of_mean for part in parts])
    unit = float(scaling.t_scale[0])
    share = max(entry["noise_sd"] / entry["train_rmse"], 1.0)
    own = share * unit * (scaling.targets(y[left_out, None])[:, 0] - mean)
    known, new = X[~left_out], X[left_out]
    others = {
        BOOSTING: y[left_out] - _boosted(known, y[~left_out], w[~left_out], new),
        NEAR: y[left_out] - by_near_rows(known, y[~left_out], new),
    }
    return ReferenceErrors.of(own, others, entry["noise_sd"], noise_of_near_rows(X, y)).to_json()


def _boosted(X: Float, y: Float, w: Float, new: Float) -> Float:
    """Return the predictions of scikit-learn's boosted trees with default options, (m,)."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    model = HistGradientBoostingRegressor(random_state=0).fit(X, y, sample_weight=w)
    return np.asarray(model.predict(new))
