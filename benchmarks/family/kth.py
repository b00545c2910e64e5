"""Tables 1 and 2 of the KTH report: printed values, the same methods in this library, and its
default.

The report's protocol: five folds, mean squared error or 1 − accuracy, the Gaussian kernel with γ =
2 for all sets and methods, unscaled inputs. ``rvm`` updates all precisions together, ``rvm*`` is
the same fit with a basis function at each test row, ``fast`` visits columns in random order (for
classes it is ``rvm``), ``svm`` is scikit-learn's with default C and ε. ``default`` is an estimator
of this library without any options, on the same folds. Methods ``as written`` are those of
``partirvm.literature``: all α at once, pruned by a threshold only; eq. 16; and a random order of
columns (regression only). They end after ``STEPS`` updates of all α at the latest.

The report's code makes folds in row order. Here, folds are random, since the available files have a
different row order. Sizes and noise of the generated sets are in ``benchmarks.family.data``.
Seconds are CPU seconds of one fit.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.family.data import Float, ReportSet
from partirvm import RVMClassifier, RVMRegressor
from partirvm.errors import PartirvmWarning
from partirvm.kernels import Gaussian
from partirvm.literature.kth import FastRegressor, rvm_star
from partirvm.literature.softmax import TippingClassifier
from partirvm.literature.tipping import TippingRegressor

FOLDS = 5
GAMMA = 2.0

METHODS = ("rvm", "rvm*", "fast", "svm")
"""The methods of the report."""

AS_WRITTEN = ("rvm as written", "rvm* as written", "fast as written")
"""The same methods of ``partirvm.literature``, in the order of ``METHODS``."""

STEPS = 50
"""Maximum number of updates of all α: on raw features at γ = 2 hardly a column is pruned."""

CHOICES = 20_000
"""Maximum number of columns that the fast method chooses."""


@dataclass(frozen=True)
class Printed:
    """A row of Table 1 (errors and mean numbers of vectors by method) and of Table 2 (seconds);
    None if not run."""

    error: tuple[float | None, ...]
    vectors: tuple[float | None, ...]
    seconds: tuple[float | None, ...]


PRINTED = {
    "cos": Printed((1.41, 1.42, 1.42, 0.084), (4.4, 4.4, 1.6, 13.0), (0.042, None, 0.027, 0.00036)),
    "sinc": Printed((0.33, 0.33, 0.33, 0.15), (12.4, 12.4, 3.8, 30.0), (0.32, None, 0.29, 0.00068)),
    "friedman_2": Printed(
        (5.2e8, 1.8e10, 1.2e10, 1.6e5), (117.0, 117.0, 41.6, 240.0), (2.51, None, 2.90, 0.0024)
    ),
    "friedman_3": Printed(
        (5.2e8, 1.8e10, 1.2e10, 1.6e5), (117.0, 117.0, 41.6, 240.0), (2.33, None, 2.41, 0.0019)
    ),
    "boston": Printed(
        (548.10, 2267.51, 3089.71, 94.11), (205.8, 205.8, 26.8, 400.2), (6.59, None, 6.93, 0.0067)
    ),
    "airfoil": Printed(
        (9347.51, 8534.35, 7437.61, 48.31), (253.2, 253.2, 70.4, 119.2), (67.86, None, 64.20, 0.047)
    ),
    "linear": Printed(
        (0.38, None, 0.26, 0.09), (80.0, None, 1.8, 71.0), (2.51, None, 1.73, 0.0013)
    ),
    "titanic": Printed(
        (0.29, None, 0.29, 0.25), (120.0, None, 2.6, 55.4), (5.59, None, 3.44, 0.00066)
    ),
    "banana": Printed(
        (0.46, None, 0.43, 0.09), (318.6, None, 0.8, 117.4), (39.04, None, 7.057, 0.0019)
    ),
    "waveform": Printed(
        (0.08, None, 0.19, 0.33), (316.4, None, 4.4, 320.0), (300.40, None, 30.26, 0.0094)
    ),
    "cancer": Printed(
        (0.37, None, 0.37, 0.37), (452.0, None, 11.4, 455.2), (80.54, None, 123.26, 0.010)
    ),
    "german": Printed(
        (0.31, None, 0.30, 0.31), (553.6, None, 4.4, 560.0), (130.01, None, 47.55, 0.031)
    ),
}
"""Table 1 and Table 2; the row of thyroid is left out, because its data are not available."""

COLUMNS = {
    "data": "", "rows": "d", "features": "d", "spread": ".3g", "method": "", "error_printed": ".3g", "error": ".3g",
    "vectors_printed": ".1f", "vectors": ".1f", "seconds_printed": ".2g", "seconds": ".2g", "verdict": "",
}  # fmt: skip


def folds(rows: int) -> NDArray[np.int64]:
    """Assign each row to a random fold (rows,). The sizes of folds differ by at most one, with
    larger folds first."""
    return np.random.default_rng(0).permutation(np.sort(np.arange(rows) % FOLDS))


def literal(classes: bool, **options: Any) -> Any:
    """Return an estimator with the settings of the report."""
    asked = {
        "kernel": "gaussian",
        "gamma": GAMMA,
        "standardize": False,
        "strategy": "basic",
        "random_state": 0,
    }
    return (
        RVMClassifier(**asked, **options)
        if classes
        else RVMRegressor(**asked, noise="constant", residual="none", **options)
    )


def estimator(method: str, classes: bool) -> Any:
    """Return the estimator of a method."""
    if method == "svm":
        from sklearn.svm import SVC, SVR

        return SVC(gamma=GAMMA) if classes else SVR(gamma=GAMMA)
    kernel = Gaussian(GAMMA)
    makers: dict[str, Callable[[], Any]] = {
        "rvm as written": lambda: (TippingClassifier if classes else TippingRegressor)(
            kernel, max_iter=STEPS
        ),
        "rvm* as written": lambda: TippingRegressor(kernel, max_iter=STEPS),
        "fast as written": lambda: FastRegressor(kernel, max_iter=CHOICES),
        "rvm": lambda: literal(classes, solver="fixed-point"),
        "rvm*": lambda: literal(classes, solver="fixed-point"),
        "fast": lambda: literal(classes, solver="fixed-point" if classes else "fast"),
        "default": lambda: (RVMClassifier if classes else RVMRegressor)(random_state=0),
    }
    return makers[method]()


def fit(
    method: str, X: Float, y: Float, X_test: Float, y_test: Float, classes: bool
) -> dict[str, Any]:
    """Fit one fold, and return the error, the number of vectors, and CPU seconds."""
    model = estimator(method, classes)
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", PartirvmWarning
        )  # with γ = 2, many test rows are far from every vector
        model.fit(X, y)
        seconds = time.process_time() - began
        if method == "rvm* as written":
            guess, _ = rvm_star(model, X, y, X_test)
        elif method == "rvm*":
            guess = model.predict(X_test, augment=(X, y))
        else:
            guess = model.predict(X_test)
    vectors = len(model.support_) if method == "svm" else model.n_relevance_vectors_
    error = float(np.mean(guess != y_test) if classes else np.mean((guess - y_test) ** 2))
    return {"error": error, "vectors": vectors, "seconds": seconds}


def rows(one: ReportSet, folder: str) -> list[dict[str, Any]]:
    """Return the rows of one set: means over the folds of each method, beside the printed
    values."""
    X, y = one.rows(folder)
    fold = folds(len(y))
    printed = PRINTED[one.name]
    found = []
    for method in (*METHODS, *AS_WRITTEN, "default"):
        places = {
            name: number for names in (METHODS, AS_WRITTEN) for number, name in enumerate(names)
        }
        at = places.get(method)
        if at is not None and printed.error[at] is None:
            continue
        if one.classes and method == "fast as written":
            continue
        parts = [(fold != number, fold == number) for number in range(FOLDS)]
        fits = [
            fit(method, X[train], y[train], X[test], y[test], one.classes) for train, test in parts
        ]
        line: dict[str, Any] = {
            "data": one.name,
            "rows": len(y),
            "features": X.shape[1],
            "method": method,
        }
        line["spread"] = float(
            min(np.mean(y == label) for label in np.unique(y)) if one.classes else y.var()
        )
        line |= {key: float(np.mean([each[key] for each in fits])) for key in fits[0]}
        if at is not None:
            line |= {
                "error_printed": printed.error[at],
                "vectors_printed": printed.vectors[at],
                "seconds_printed": printed.seconds[at],
                "verdict": verdict(line["error"], float(printed.error[at] or 0.0)),
            }
        found.append(line)
    return found


def verdict(error: float, printed: float) -> str:
    """Return how our error compares with the printed one, which has two or three digits."""
    if error > 1.05 * printed:
        return "worse"
    return "same" if error > 0.95 * printed else "better"
