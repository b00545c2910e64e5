"""Choice of one Gaussian width per data set by 5-fold cross-validation on the training rows of split 0.

A working set with P = 100 is fitted to four fifths of the rows and scored on the remaining rows. The first search uses
at most ``ROWS`` rows, and gamma·d takes powers of 2. The second search uses all training rows, in steps of √2 around
the best value. It tries more narrow kernels than wide kernels, since more rows allow narrower kernels, and continues
while the error decreases.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from benchmarks.ben_shimon.data import Dataset
from benchmarks.ben_shimon.fits import Competitor, fit_once, say
from benchmarks.datasets import Split

ROWS = 1500
"""Maximum number of training rows of the first search."""

FOLDS = 5

POWERS = (-5.0, -4.0, -3.0, -2.0, -1.0, 0.0, 1.0, 2.0)
"""Binary logarithms of gamma·d in the first search."""

NEARER = (-1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0)
"""Binary logarithms of gamma·d in the second search, relative to the best value of the first search."""

MODEL = Competitor("width", {"strategy": "working-set", "partition_size": 100})


def cross_validate(split: Split, gamma: float) -> float:
    """Return the root mean squared error over the held-out rows of all folds. The rows are already in random order."""
    fold = np.arange(len(split.y)) % FOLDS
    squares = 0.0
    for number in range(FOLDS):
        out = fold == number
        part = Split(split.name, split.X[~out], split.y[~out], split.X[out], split.y[out])
        squares += fit_once(part, MODEL, gamma, number)["rmse"] ** 2 * out.sum()
    return float(np.sqrt(squares / len(split.y)))


def errors_of(split: Split, powers: Iterable[float]) -> dict[float, float]:
    """Return the cross-validated error by the binary logarithm of gamma·d."""
    errors = {}
    for power in powers:
        errors[power] = cross_validate(split, 2**power / split.X.shape[1])
        say(f"width: {split.name}, {len(split.y)} rows, gamma = 2^{power:g}/d: RMSE {errors[power]:.4g}")
    return errors


def find_width(dataset: Dataset, folder: str, rows: int | None = None) -> dict[str, Any]:
    """Return the width of minimum error, this error, and the errors of the neighbouring widths."""
    whole = dataset.split(folder, 0, rows)
    few = dataset.split(folder, 0, min(ROWS, len(whole.y)))
    first = errors_of(few, POWERS)
    centre = min(first, key=first.__getitem__)
    second = errors_of(whole, [centre + step for step in NEARER])
    while (power := min(second, key=second.__getitem__)) == max(second):
        second |= errors_of(whole, [power + 0.5])
    features = whole.X.shape[1]
    near = [second[other] for other in second if abs(other - power) == 0.5]
    return {
        "data": dataset.name,
        "rows": len(whole.y),
        "gamma": float(f"{2**power / features:.3g}"),
        "power": power,
        "rmse": second[power],
        "next_best": min(near),
        "first_look": first,
        "second_look": second,
    }


COLUMNS = {"data": "", "rows": ",", "gamma": "", "power": "g", "rmse": ".4g", "next_best": ".4g"}
"""The columns of the table.

``power`` is log₂(gamma·d); ``next_best`` is the lower error of the two neighbouring widths.
"""


def widths(datasets: Iterable[Dataset], folder: str, rows: int | None = None) -> dict[str, float]:
    """Return the width of each set: the recorded width, or a newly chosen width if there is none."""
    return {
        dataset.name: find_width(dataset, folder, rows)["gamma"] if dataset.gamma is None else dataset.gamma
        for dataset in datasets
    }
