"""The data sets of the KTH report with its protocol: five folds, mean squared error or accuracy, vectors, seconds of a
fit.

The code of the report makes folds in row order. Here folds are random, since the available files have a different row
order. The printed results of the report's Tables 1 and 2 are not available. Therefore the table has only our results,
with one fixed width ("scale") and with the default, a learned width.
"""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.family.data import Float, ReportSet
from partirvm import RVMClassifier, RVMRegressor
from partirvm.errors import PartirvmWarning

FOLDS = 5

GAMMAS = ("scale", "auto")

COLUMNS = {
    "data": "",
    "rows": "d",
    "features": "d",
    "gamma": "",
    "mse": ".4g",
    "accuracy": ".3f",
    "variance": ".4g",
    "vectors": ".1f",
    "sigma": ".3g",
    "seconds": ".2f",
}


def folds(rows: int) -> NDArray[np.int64]:
    """Assign each row to a random fold (rows,). The sizes of folds differ by at most one, with larger folds first."""
    return np.random.default_rng(0).permutation(np.sort(np.arange(rows) % FOLDS))


def fit(X: Float, y: Float, X_test: Float, y_test: Float, gamma: str, classes: bool) -> dict[str, Any]:
    """Fit one fold, and return squared error or accuracy, vectors, sd of the noise, and CPU seconds."""
    model = (RVMClassifier if classes else RVMRegressor)(gamma=gamma, random_state=0)
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PartirvmWarning)  # some test rows are far from every vector
        model.fit(X, y)
        seconds = time.process_time() - began
        guess = model.predict(X_test)
    found = {"vectors": model.n_relevance_vectors_, "seconds": seconds}
    if classes:
        return found | {"accuracy": float(np.mean(guess == y_test))}
    return found | {"mse": float(np.mean((guess - y_test) ** 2)), "sigma": model.noise_variance_**0.5}


def row(one: ReportSet, folder: str, gamma: str) -> dict[str, Any]:
    """Return the row of the table: means over the folds, and the variance of the target."""
    X, y = one.rows(folder)
    fold = folds(len(y))
    parts = [(fold != number, fold == number) for number in range(FOLDS)]
    fits = [fit(X[train], y[train], X[test], y[test], gamma, one.classes) for train, test in parts]
    line: dict[str, Any] = {"data": one.name, "rows": len(y), "features": X.shape[1], "gamma": gamma}
    if not one.classes:
        line["variance"] = float(y.var())
    return line | {key: float(np.mean([found[key] for found in fits])) for key in fits[0]}
