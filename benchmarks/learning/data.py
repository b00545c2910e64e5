"""The data sets of the learning benchmark, and their splits.

Split k of a set is a random permutation of its rows by seed 100 + k: the first ``train`` rows are training rows, the
next ``test`` rows are test rows. Small sets are split 70/30. Of larger sets only some rows are used, so that
cross-validation takes acceptable time. sinc and friedman_1 are generated (``benchmarks/ben_shimon/data.py``); cancer
and digits are from scikit-learn. All other sets are files NAME.npz in a folder, see ``benchmarks/datasets.py``,
``benchmarks/classification/data.py`` and this list:

auto        ISLR: 392 cars × 7, miles per gallon              concrete    UCI: 1030 × 8, compressive strength
airfoil     UCI: 1503 × 5, sound pressure                     mcycle      MASS: 133 × 1, acceleration of a head
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.ben_shimon.data import FRIEDMAN_NOISE, SINC_NOISE, friedman, sinc
from benchmarks.datasets import Split

FIRST_SEED = 100


@dataclass(frozen=True)
class Dataset:
    """A data set: numbers of training and test rows, default number of splits, and source of its rows.

    ``rows`` returns X and y for the seed of a split of a generated or bundled set; all other sets are read from
    ``file``. If ``smooth`` is true, the test rows of a generated set come from another draw without noise.
    """

    name: str
    train: int
    test: int
    repeats: int
    classes: bool = False
    file: str | None = None
    rows: Callable[[int, Any], tuple[NDArray[Any], NDArray[Any]]] | None = None
    noise: float = 0.0

    def split(self, folder: str | Path, number: int) -> Split:
        """Return split ``number``, in raw units; class labels are 0 … K − 1."""
        rng = np.random.default_rng(FIRST_SEED + number)
        if self.noise:
            assert self.rows is not None
            X, y = self.rows(self.train, rng)
            return Split(self.name, X, y + self.noise * rng.standard_normal(self.train), *self.rows(self.test, rng))
        X, y = self._all(folder)
        order = rng.permutation(len(y))
        training, testing = order[: self.train], order[self.train : self.train + self.test]
        return Split(self.name, X[training], y[training], X[testing], y[testing])

    def _all(self, folder: str | Path) -> tuple[NDArray[Any], NDArray[Any]]:
        if self.rows is not None:
            X, y = self.rows(0, None)
        else:
            with np.load(Path(folder, f"{self.file or self.name}.npz")) as file:
                X, y = file["X"], file["y"]
        return (X, np.unique(y, return_inverse=True)[1].astype(np.float64)) if self.classes else (X, y)

    def present(self, folder: str | Path) -> bool:
        """Return True if the set is available in this folder."""
        return self.rows is not None or Path(folder, f"{self.file or self.name}.npz").exists()


def bundled(name: str) -> Callable[[int, Any], tuple[NDArray[Any], NDArray[Any]]]:
    """Return a function that reads a data set of scikit-learn."""

    def rows(count: int, rng: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        from sklearn import datasets

        X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
        return X, y

    return rows


DATASETS = {
    dataset.name: dataset
    for dataset in (
        Dataset("auto", 274, 118, 20),
        Dataset("boston", 354, 152, 20),
        Dataset("concrete", 721, 309, 20),
        Dataset("mcycle", 93, 40, 20),
        Dataset("sinc", 100, 1000, 10, rows=sinc, noise=SINC_NOISE),
        Dataset("friedman_1", 300, 1000, 10, rows=friedman, noise=FRIEDMAN_NOISE),
        Dataset("airfoil", 1052, 451, 5),
        Dataset("abalone", 2924, 1253, 3),
        Dataset("pumadyn_8fh", 3000, 2048, 2),
        Dataset("pumadyn_8nm", 3000, 2048, 2),
        Dataset("pumadyn_32fh", 3000, 2048, 2),
        Dataset("pumadyn_32nm", 3000, 2048, 2),
        Dataset("protein", 3000, 5000, 2),
        Dataset("kin40k", 3000, 5000, 2),
        Dataset("ripley", 250, 1000, 10, classes=True, file="ripley_synth"),
        Dataset("pima", 200, 332, 10, classes=True, file="pima_ripley"),
        Dataset("banana", 400, 4900, 10, classes=True),
        Dataset("titanic", 150, 2051, 10, classes=True),
        Dataset("german", 700, 300, 5, classes=True),
        Dataset("cancer", 398, 171, 10, classes=True, rows=bundled("breast_cancer")),
        Dataset("digits", 500, 1297, 2, classes=True, rows=bundled("digits")),
    )
}
