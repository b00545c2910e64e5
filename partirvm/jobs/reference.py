"""After a fit with a learned kernel: compare the model with boosting and with the nearest rows (``core.reference``)."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from partirvm.core.reference import ReferenceErrors, by_near_rows, noise_of_near_rows
from partirvm.core.sampling import Purpose, stream
from partirvm.jobs.driver import Driver
from partirvm.learning.sample import Entry, Spent, gathered
from partirvm.setup.spec import FitSpec
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
