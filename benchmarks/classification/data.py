"""The data sets of the classification benchmark, and how each is split.

ripley_100          100 random rows of Ripley's 250, ten draws; his 1,000 test rows
ripley_250, pima    the authors' own split: 250/1000 and 200/332
banana, titanic,
german              the first ten public splits of Rätsch's benchmark: 400/4900, 150/2051, 700/300
pendigits           UCI's own split: the first 7,494 rows train (30 writers), the last 3,498 test (14 other writers)
skin_nonskin        a tenth of the *colours* tests, with all their rows: rows repeat, so that a random split of the
                    rows would test on colours seen in training
digits, cancer      scikit-learn's digits and breast cancer: ten random stratified splits, 70 % train
moons               scikit-learn's moons with noise 0.3, 4,000 rows train, 4,000 others test

Files are NAME.npz in a folder: ``X`` (N, d), ``y`` (N,) and, where the literature has splits, ``train_idx`` and
``test_idx`` (k, n). banana, titanic, german: Rätsch's benchmark (mldata's ``benchmarks.mat``); ripley_synth and
pima_ripley: ``synth.tr``, ``synth.te``, ``Pima.tr``, ``Pima.te`` of R's MASS; pendigits (``pendigits.tra`` above
``pendigits.tes``) and skin_nonskin: the UCI repository. A set whose file is missing is left out, and it is said.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]
Int = NDArray[np.int64]

PENDIGITS_TRAINING_ROWS = 7494
"""UCI's training file; its class counts are 780 779 780 719 780 720 720 778 719 719, which the loader checks."""

PENDIGITS_COUNTS = (780, 779, 780, 719, 780, 720, 720, 778, 719, 719)

UNSEEN_COLOURS = 0.1
"""The share of skin_nonskin's colours that tests."""


@dataclass(frozen=True)
class Split:
    """Training and test rows: X (n, d), y (n,) class codes 0 … K − 1."""

    X: Float
    y: Int
    X_test: Float
    y_test: Int
    n_classes: int

    def standardised(self) -> Split:
        """Shifted and scaled by the training moments (sd with ddof 0; a constant feature keeps scale 1)."""
        shift, scale = self.X.mean(axis=0), self.X.std(axis=0)
        scale[scale == 0] = 1.0
        return replace(self, X=(self.X - shift) / scale, X_test=(self.X_test - shift) / scale)

    def part(self, train: Int, test: Int) -> Split:
        """Some of the training rows train, others of them test."""
        return replace(self, X=self.X[train], y=self.y[train], X_test=self.X[test], y_test=self.y[test])


def divided(X: Float, labels: NDArray[np.generic], train: Int, test: Int) -> Split:
    """A split of one table by row numbers; labels become codes."""
    classes, y = np.unique(labels, return_inverse=True)
    return Split(X[train], y[train], X[test], y[test], len(classes))


def read(folder: str | Path, name: str) -> dict[str, NDArray[np.generic]]:
    """The arrays of NAME.npz."""
    with np.load(Path(folder, f"{name}.npz")) as file:
        return dict(file)


def public(name: str, folder: str | Path, number: int) -> Split:
    """One of the splits in the file."""
    file = read(folder, name)
    return divided(file["X"], file["y"], file["train_idx"][number], file["test_idx"][number])


def few_of_ripley(folder: str | Path, number: int, rows: int = 100) -> Split:
    """100 random ones of Ripley's 250 training rows."""
    whole = public("ripley_synth", folder, 0)
    chosen = np.random.default_rng(number).choice(len(whole.y), size=rows, replace=False)
    return replace(whole, X=whole.X[chosen], y=whole.y[chosen])


def pendigits(folder: str | Path, number: int) -> Split:
    """UCI's training and test files, one above the other; refused if the rows are in another order."""
    file = read(folder, "pendigits")
    rows = np.arange(len(file["y"]))
    split = divided(file["X"], file["y"], rows[:PENDIGITS_TRAINING_ROWS], rows[PENDIGITS_TRAINING_ROWS:])
    if tuple(np.bincount(split.y).tolist()) != PENDIGITS_COUNTS:
        raise ValueError("pendigits.npz: the first 7,494 rows are not UCI's training file: put it first")
    return split


def unseen_colours(folder: str | Path, number: int) -> Split:
    """All rows of a random tenth of the colours test, all rows of the others train, in random order."""
    file = read(folder, "skin_nonskin")
    colours, colour = np.unique(file["X"], axis=0, return_inverse=True)
    rng = np.random.default_rng(number)
    test = np.isin(colour.ravel(), rng.permutation(len(colours))[: round(UNSEEN_COLOURS * len(colours))])
    order = rng.permutation(len(test))
    return divided(file["X"], file["y"], order[~test[order]], order[test[order]])


def bundled(name: str, folder: str | Path, number: int) -> Split:
    """A random stratified split of a set that scikit-learn brings along."""
    from sklearn import datasets
    from sklearn.model_selection import train_test_split

    X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    train, test = train_test_split(np.arange(len(y)), test_size=0.3, stratify=y, random_state=number)
    return divided(X, y, train, test)


def moons(folder: str | Path, number: int, rows: int = 4000) -> Split:
    """Two moons with noise 0.3; test rows from another seed."""
    from sklearn.datasets import make_moons

    X, y = make_moons(rows, noise=0.3, random_state=2 * number)
    X_test, y_test = make_moons(rows, noise=0.3, random_state=2 * number + 1)
    return Split(X, y, X_test, y_test, 2)


@dataclass(frozen=True)
class Dataset:
    """A set: its name, how many splits it has, how one is made, and the file that it needs (None: no file)."""

    name: str
    n_splits: int
    make: Callable[[str | Path, int], Split]
    file: str | None = None

    def split(self, folder: str | Path, number: int) -> Split:
        """Split ``number``, in raw units."""
        return self.make(folder, number)

    def present(self, folder: str | Path) -> bool:
        """True if the set is available in this folder."""
        return self.file is None or Path(folder, f"{self.file}.npz").exists()


DATASETS = {
    dataset.name: dataset
    for dataset in (
        Dataset("ripley_100", 10, few_of_ripley, "ripley_synth"),
        Dataset("ripley_250", 1, partial(public, "ripley_synth"), "ripley_synth"),
        Dataset("pima", 1, partial(public, "pima_ripley"), "pima_ripley"),
        Dataset("banana", 10, partial(public, "banana"), "banana"),
        Dataset("titanic", 10, partial(public, "titanic"), "titanic"),
        Dataset("german", 10, partial(public, "german"), "german"),
        Dataset("cancer", 10, partial(bundled, "breast_cancer")),
        Dataset("digits", 10, partial(bundled, "digits")),
        Dataset("moons", 1, moons),
        Dataset("pendigits", 1, pendigits, "pendigits"),
        Dataset("skin_nonskin", 1, unseen_colours, "skin_nonskin"),
    )
}
