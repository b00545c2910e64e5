"""The public data sets of the benchmarks, stored as .npz files in a folder: sources and splits.

A NAME.npz file contains float64 ``X`` (N, d) and ``y`` (N,) in raw units. If the literature uses
fixed splits, it also contains ``test_mask`` (N, k). The sources are:

kin40k, protein     the UCI repackaging ``uci_datasets`` (PyPI, MIT), with its ten test masks
etopo20             NOAA ETOPO at 20 minutes: latitude, longitude → elevation in km, 583,740 cells in row order
nyc_green_taxi      NYC TLC green-taxi trip records of 2015: 9 inputs → log of the trip's minutes, 1,551,961 trips
boston              Delve archive (University of Toronto), 506 × 13: the median value of homes
abalone             UCI repository, 4177 × 10 with sex as three indicators: rings
pumadyn_8fh …       Delve archive, pumadyn family, eight sets of 8192 × 8 or × 32: the acceleration of a robot's joint
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Split:
    """The training and test rows of one data set. ``deviation`` is the sd of the training
    target."""

    name: str
    X: NDArray[np.float64]
    y: NDArray[np.float64]
    X_test: NDArray[np.float64]
    y_test: NDArray[np.float64]

    @property
    def deviation(self) -> float:
        """The standard deviation of the training target, which is the unit of reported errors."""
        return float(self.y.std())


def read(folder: str | Path, name: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the inputs (N, d) and targets (N,) of a set."""
    with np.load(_path(folder, name)) as file:
        return file["X"].reshape(len(file["y"]), -1), file["y"]


def with_gaps(X: NDArray[np.float64], y: NDArray[np.float64], kind: str) -> NDArray[np.float64]:
    """Return X with NaN in ``kind`` % of its cells at random; of "rule" in 40 % of those of rows
    above the median of y.

    The rule applies to every second feature.
    """
    chance = np.random.default_rng(7).random(X.shape)
    if kind != "rule":
        return np.where(chance < float(kind) / 100, np.nan, X)
    hidden = (chance < 0.4) & (y > np.median(y))[:, None]
    hidden[:, 1::2] = False
    return np.where(hidden, np.nan, X)


def load(folder: str | Path, name: str, column: int = 0) -> Split:
    """Read a set and split it by column ``column`` of its test mask, or without a mask at random
    (10 % test rows)."""
    with np.load(_path(folder, name)) as file:
        X = file["X"]
        y = file["y"]
        if "test_mask" in file:
            test = file["test_mask"][:, column].astype(bool)
        else:
            test = np.random.default_rng(1).random(len(y)) < 0.1
    return Split(name, X[~test], y[~test], X[test], y[test])


def load_random(folder: str | Path, name: str, train: int, test: int, seed: int) -> Split:
    """Read a set and split it at random by ``seed`` into ``train`` training rows and ``test`` test
    rows.

    The test rows do not depend on ``train``.
    """
    X, y = read(folder, name)
    order = np.random.default_rng(seed).permutation(len(y))
    training = order[test : test + train]
    testing = order[:test]
    return Split(name, X[training], y[training], X[testing], y[testing])


def _path(folder: str | Path, name: str) -> Path:
    path = Path(folder, f"{name}.npz")
    if not path.exists():
        raise SystemExit(f"{path} does not exist: see benchmarks/datasets.py for the sources")
    return path
