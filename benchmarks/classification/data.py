"""The data sets of the classification benchmark, and their splits.

ripley_100          100 random rows of Ripley's 250 training rows, ten draws; Ripley's 1,000 test rows
ripley_250, pima    the authors' splits: 250/1000 and 200/332
banana, titanic,
german              the first ten public splits of Rätsch's benchmark: 400/4900, 150/2051, 700/300
pendigits           UCI's split: the first 7,494 rows are training rows (30 writers), the last 3,498 rows are test rows
                    (14 other writers)
skin_nonskin        all rows of a tenth of the *colours* are test rows; rows repeat, so a random split of the rows would
                    test on colours of the training rows
digits, cancer      scikit-learn's digits and breast cancer: ten random stratified splits, 70 % train
moons               scikit-learn's moons with noise 0.3: 4,000 training rows and 4,000 test rows

Each file NAME.npz in a folder contains ``X`` (N, d), ``y`` (N,) and, for published splits, ``train_idx`` and
``test_idx`` (k, n). The sources are Rätsch's benchmark (``benchmarks.mat`` of mldata) for banana, titanic and german;
R's MASS for ripley_synth and pima_ripley (``synth.tr``, ``synth.te``, ``Pima.tr``, ``Pima.te``); and the UCI repository
for pendigits (``pendigits.tra`` followed by ``pendigits.tes``) and skin_nonskin. A set whose file is missing is skipped
with a message.
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
"""Number of rows of UCI's training file.

The class counts are 780 779 780 719 780 720 720 778 719 719; the loader checks these counts.
"""

PENDIGITS_COUNTS = (780, 779, 780, 719, 780, 720, 720, 778, 719, 719)

UNSEEN_COLOURS = 0.1
"""The fraction of skin_nonskin's colours whose rows are test rows."""


@dataclass(frozen=True)
class Split:
    """Training and test rows: X (n, d), y (n,) class codes 0 … K − 1."""

    X: Float
    y: Int
    X_test: Float
    y_test: Int
    n_classes: int

    def standardised(self) -> Split:
        """Return the split with features standardised by the training moments (sd with ddof 0; a constant feature keeps
        scale 1).
        """
        shift, scale = self.X.mean(axis=0), self.X.std(axis=0)
        scale[scale == 0] = 1.0
        return replace(self, X=(self.X - shift) / scale, X_test=(self.X_test - shift) / scale)

    def part(self, train: Int, test: Int) -> Split:
        """Return a split of the training rows into new training and test rows."""
        return replace(self, X=self.X[train], y=self.y[train], X_test=self.X[test], y_test=self.y[test])


def divided(X: Float, labels: NDArray[np.generic], train: Int, test: Int) -> Split:
    """Split one table by row numbers; labels become codes."""
    classes, y = np.unique(labels, return_inverse=True)
    return Split(X[train], y[train], X[test], y[test], len(classes))


def read(folder: str | Path, name: str) -> dict[str, NDArray[np.generic]]:
    """Read the arrays of NAME.npz."""
    with np.load(Path(folder, f"{name}.npz")) as file:
        return dict(file)


def public(name: str, folder: str | Path, number: int) -> Split:
    """Return one of the splits in the file."""
    file = read(folder, name)
    return divided(file["X"], file["y"], file["train_idx"][number], file["test_idx"][number])


def few_of_ripley(folder: str | Path, number: int, rows: int = 100) -> Split:
    """Return a split with 100 random rows of Ripley's 250 training rows."""
    whole = public("ripley_synth", folder, 0)
    chosen = np.random.default_rng(number).choice(len(whole.y), size=rows, replace=False)
    return replace(whole, X=whole.X[chosen], y=whole.y[chosen])


def pendigits(folder: str | Path, number: int) -> Split:
    """Return UCI's training and test rows, which follow each other in the file.

    Raises ``ValueError`` for another order.
    """
    file = read(folder, "pendigits")
    rows = np.arange(len(file["y"]))
    split = divided(file["X"], file["y"], rows[:PENDIGITS_TRAINING_ROWS], rows[PENDIGITS_TRAINING_ROWS:])
    if tuple(np.bincount(split.y).tolist()) != PENDIGITS_COUNTS:
        raise ValueError(
            "pendigits.npz: the first 7,494 rows are not UCI's training file: write the training rows first"
        )
    return split


def unseen_colours(folder: str | Path, number: int) -> Split:
    """Return a split by colours: all rows of a random tenth of the colours are test rows; training rows are in random
    order.
    """
    file = read(folder, "skin_nonskin")
    colours, colour = np.unique(file["X"], axis=0, return_inverse=True)
    rng = np.random.default_rng(number)
    test = np.isin(colour.ravel(), rng.permutation(len(colours))[: round(UNSEEN_COLOURS * len(colours))])
    order = rng.permutation(len(test))
    return divided(file["X"], file["y"], order[~test[order]], order[test[order]])


def bundled(name: str, folder: str | Path, number: int) -> Split:
    """Return a random stratified split of a data set of scikit-learn."""
    from sklearn import datasets
    from sklearn.model_selection import train_test_split

    X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    train, test = train_test_split(np.arange(len(y)), test_size=0.3, stratify=y, random_state=number)
    return divided(X, y, train, test)


def moons(folder: str | Path, number: int, rows: int = 4000) -> Split:
    """Generate two moons with noise 0.3; the test rows have another seed."""
    from sklearn.datasets import make_moons

    X, y = make_moons(rows, noise=0.3, random_state=2 * number)
    X_test, y_test = make_moons(rows, noise=0.3, random_state=2 * number + 1)
    return Split(X, y, X_test, y_test, 2)


@dataclass(frozen=True)
class Dataset:
    """A data set: its name, its number of splits, the function that makes a split, and its file (None: no file)."""

    name: str
    n_splits: int
    make: Callable[[str | Path, int], Split]
    file: str | None = None

    def split(self, folder: str | Path, number: int) -> Split:
        """Return split ``number``, in raw units."""
        return self.make(folder, number)

    def present(self, folder: str | Path) -> bool:
        """Return True if the set is available in this folder."""
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
