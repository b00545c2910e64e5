"""Prediction times compared with the times of the operations that they cannot avoid.

    python -m benchmarks.prediction [--rows N] [--vectors M ...] [--repeats K] [--output FOLDER]

A model with at most M vectors predicts N generated rows of 8 features on one thread. The lower
bound for the mean is the kernel evaluation and one product with the weights; for the standard
deviation, one product with a triangular root of Σ (``dtrmm``) is added. ``share`` is the seconds of
the bound ÷ those of the prediction. Runs alternate; seconds are medians.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
from scipy.linalg import blas

from benchmarks.measure import command_line, say, write
from partirvm import RVMRegressor
from partirvm.model import Model
from partirvm.process import one_blas_thread
from partirvm.types import PANEL_ROWS

COLUMNS = {
    "vectors": ",", "rows": ",", "predicted": "", "seconds": ".2f", "limit": ".2f", "share": ".0%",
    "rows_per_second": ",.0f",
}  # fmt: skip

Float = np.ndarray[Any, np.dtype[np.float64]]


def fitted(vectors: int) -> Model:
    """Return a model of about this many vectors."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(8 * vectors, 8))
    y = (
        np.sin(X[:, 0] * X[:, 1])
        + np.cos(2 * X[:, 2])
        + X[:, 3] ** 2
        + 0.05 * rng.normal(size=len(X))
    )
    asked = {
        "gamma": 0.1,
        "kernel": "gaussian",
        "noise": "constant",
        "max_vectors": vectors,
        "effort": "thorough",
    }
    options: dict[str, Any] = {
        "partition_size": vectors // 2,
        "max_rounds": 6,
        "residual": "none",
        **asked,
    }
    model: Model = RVMRegressor(random_state=0, **options).fit(X, y).model_
    return model


def limit(model: Model, X: Float, *, std: bool) -> None:
    """Evaluate the kernel, and multiply it by the weights and the root."""
    design = model.design
    place = np.empty((design.n_columns, PANEL_ROWS)).T
    root = np.asfortranarray(np.triu(model.root))
    for start in range(0, len(X), PANEL_ROWS):
        some = X[start : start + PANEL_ROWS]
        block = design.block(some, place if len(some) == PANEL_ROWS else None)
        block @ model.mean
        if std:
            blas.dtrmm(1.0, root, block, side=1)


def seconds_of(function: Callable[[], Any]) -> float:
    """Return the seconds of a call on one BLAS thread."""
    with one_blas_thread():
        began = time.perf_counter()
        function()
        return time.perf_counter() - began


def measure(vectors: int, n_rows: int, repeats: int) -> list[dict[str, Any]]:
    """Measure predictions of the mean, and of mean and standard deviation."""
    model = fitted(vectors)
    X = np.random.default_rng(1).normal(size=(n_rows, 8))
    model.predict(X[:10], return_std=True)
    rows = []
    for std in (False, True):
        timed = (
            lambda std=std: model.predict(X, return_std=std),
            lambda std=std: limit(model, X, std=std),
        )
        pairs = [tuple(map(seconds_of, timed)) for _ in range(repeats)]
        taken, least = (median(each) for each in zip(*pairs, strict=True))
        row = {
            "vectors": model.n_vectors,
            "rows": n_rows,
            "predicted": "mean and std" if std else "mean",
        }
        rows.append(
            row
            | {
                "seconds": taken,
                "limit": least,
                "share": least / taken,
                "rows_per_second": n_rows / taken,
            }
        )
        say(
            f"{model.n_vectors:,} vectors, {rows[-1]['predicted']}: {taken:.2f} s, "
            f"{least / taken:.0%} of the limit"
        )
    return rows


def main(arguments: list[str] | None = None) -> None:
    """Run the benchmark and write the table."""
    parser = command_line(__doc__, data=False)
    parser.add_argument("--rows", type=int, default=300_000, metavar="N")
    parser.add_argument("--vectors", type=int, nargs="+", default=[200, 1000], metavar="M")
    parser.add_argument("--repeats", type=int, default=3, metavar="K")
    options = parser.parse_args(arguments)
    rows = [
        row
        for vectors in options.vectors
        for row in measure(vectors, options.rows, options.repeats)
    ]
    write(options.output, "prediction", rows, COLUMNS)


if __name__ == "__main__":
    main()
