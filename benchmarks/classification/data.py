"""The data sets of the classification benchmark, and their splits.

ripley_100          100 random rows of Ripley's 250 training rows, ten draws; Ripley's 1,000 test rows
ripley_250, pima    the authors' splits: 250/1000 and 200/332; split 1 and later ones are random, of the same sizes
banana, titanic,
german              the first ten public splits of Rätsch's benchmark: 400/4900, 150/2051, 700/300
pendigits           UCI's split: the first 7,494 rows are training rows (30 writers), the last 3,498 rows are test rows
                    (14 other writers)
skin_nonskin        all rows of a tenth of the *colours* are test rows; rows repeat, so a random split of the rows would
                    test on colours of the training rows
digits, cancer      scikit-learn's digits and breast cancer: ten random stratified splits, 70 % train
moons               scikit-learn's moons with noise 0.3: 4,000 training rows and 4,000 test rows
pendigits_2500, pendigits_9000, magic, spambase, protein_4, abalone_3
                    random training rows, and all others as test rows, at most 8,000; protein in quarters of its target,
                    abalone as up to 8, 9 or 10, and more rings
letters             26 generated classes, each two rotated and skewed clusters in 16 features: 4,000 training rows

Each NAME.npz file in a folder contains ``X`` (N, d), ``y`` (N,) and, for published splits,
``train_idx`` and ``test_idx`` (k, n). The sources are Rätsch's benchmark (``benchmarks.mat`` of
mldata) for banana, titanic and german; R's MASS for ripley_synth and pima_ripley (``synth.tr``,
``synth.te``, ``Pima.tr``, ``Pima.te``); and the UCI repository for pendigits (``pendigits.tra``
followed by ``pendigits.tes``) and skin_nonskin. A set whose file is missing is skipped with a
message.
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
        """Return the split with features standardised by the training moments (sd with ddof 0; a
        constant feature keeps scale 1).
        """
        shift = self.X.mean(axis=0)
        scale = self.X.std(axis=0)
        scale[scale == 0] = 1.0
        return replace(self, X=(self.X - shift) / scale, X_test=(self.X_test - shift) / scale)

    def part(self, train: Int, test: Int) -> Split:
        """Return a split of the training rows into new training and test rows."""
        return replace(
            self, X=self.X[train], y=self.y[train], X_test=self.X[test], y_test=self.y[test]
        )


def divided(X: Float, labels: NDArray[np.generic], train: Int, test: Int) -> Split:
    """Split one table by row numbers; labels become codes."""
    classes, y = np.unique(labels, return_inverse=True)
    return Split(X[train], y[train], X[test], y[test], len(classes))


def read(folder: str | Path, name: str) -> dict[str, NDArray[np.generic]]:
    """Read the arrays of NAME.npz."""
    with np.load(Path(folder, f"{name}.npz")) as file:
        return dict(file)


def public(name: str, folder: str | Path, number: int) -> Split:
    """Return one of the splits in the file, or beyond these a random one of the same sizes."""
    file = read(folder, name)
    train = file["train_idx"]
    test = file["test_idx"]
    if number < len(train):
        return divided(file["X"], file["y"], train[number], test[number])
    order = np.random.default_rng(number).permutation(np.concatenate([train[0], test[0]]))
    return divided(file["X"], file["y"], order[: train.shape[1]], order[train.shape[1] :])


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
    split = divided(
        file["X"], file["y"], rows[:PENDIGITS_TRAINING_ROWS], rows[PENDIGITS_TRAINING_ROWS:]
    )
    if tuple(np.bincount(split.y).tolist()) != PENDIGITS_COUNTS:
        raise ValueError(
            "pendigits.npz: the first 7,494 rows are not UCI's training file: write the training "
            "rows first"
        )
    return split


def unseen_colours(folder: str | Path, number: int) -> Split:
    """Return a split by colours: all rows of a random tenth of the colours are test rows; training
    rows are in random order.
    """
    file = read(folder, "skin_nonskin")
    colours, colour = np.unique(file["X"], axis=0, return_inverse=True)
    rng = np.random.default_rng(number)
    test = np.isin(
        colour.ravel(), rng.permutation(len(colours))[: round(UNSEEN_COLOURS * len(colours))]
    )
    order = rng.permutation(len(test))
    return divided(file["X"], file["y"], order[~test[order]], order[test[order]])


def bundled(name: str, folder: str | Path, number: int) -> Split:
    """Return a random stratified split of a data set of scikit-learn."""
    from sklearn import datasets
    from sklearn.model_selection import train_test_split

    X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    train, test = train_test_split(
        np.arange(len(y)), test_size=0.3, stratify=y, random_state=number
    )
    return divided(X, y, train, test)


def moons(folder: str | Path, number: int, rows: int = 4000) -> Split:
    """Generate two moons with noise 0.3; the test rows have another seed."""
    from sklearn.datasets import make_moons

    X, y = make_moons(rows, noise=0.3, random_state=2 * number)
    X_test, y_test = make_moons(rows, noise=0.3, random_state=2 * number + 1)
    return Split(X, y, X_test, y_test, 2)


def at_random(
    name: str, rows: int, limits: tuple[float, ...], folder: str | Path, number: int
) -> Split:
    """Return a split with ``rows`` random training rows; a numeric target is cut at these quantiles
    (or values > 1)."""
    file = read(folder, name)
    y = file["y"]
    order = np.random.default_rng([37, number]).permutation(len(file["y"]))
    cuts = [limit if limit > 1 else np.quantile(y.astype(float), limit) for limit in limits]
    return divided(
        file["X"], np.digitize(y, cuts) if limits else y, order[:rows], order[rows : rows + 8000]
    )


def letters(
    folder: str | Path, number: int, rows: int = 4000, classes: int = 26, features: int = 16
) -> Split:
    """Generate classes of two clusters each: log-normal along random directions, around normal
    centres."""
    rng = np.random.default_rng(number)
    own = (classes, 2, features)
    centres = 0.7 * rng.normal(size=own)
    turns = rng.normal(size=(*own, features)) / features**0.5
    y = rng.integers(classes, size=2 * rows)
    part = rng.integers(2, size=2 * rows)
    X = centres[y, part] + np.einsum(
        "nd,nde->ne", np.exp(0.5 * rng.normal(size=(2 * rows, features))) - 1.133, turns[y, part]
    )
    return divided(X, y, np.arange(rows), np.arange(rows, 2 * rows))


@dataclass(frozen=True)
class Dataset:
    """A data set: its name, its number of splits, the function that makes a split, and its file
    (None: no file)."""

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
        Dataset("ripley_250", 10, partial(public, "ripley_synth"), "ripley_synth"),
        Dataset("pima", 10, partial(public, "pima_ripley"), "pima_ripley"),
        Dataset("banana", 10, partial(public, "banana"), "banana"),
        Dataset("titanic", 10, partial(public, "titanic"), "titanic"),
        Dataset("german", 10, partial(public, "german"), "german"),
        Dataset("cancer", 10, partial(bundled, "breast_cancer")),
        Dataset("digits", 10, partial(bundled, "digits")),
        Dataset("moons", 1, moons),
        Dataset("pendigits", 1, pendigits, "pendigits"),
        Dataset("pendigits_2500", 10, partial(at_random, "pendigits", 2500, ()), "pendigits"),
        Dataset("pendigits_9000", 10, partial(at_random, "pendigits", 9000, ()), "pendigits"),
        Dataset("magic", 10, partial(at_random, "magic", 15000, ()), "magic"),
        Dataset("spambase", 10, partial(at_random, "spambase", 3500, ()), "spambase"),
        Dataset(
            "protein_4", 10, partial(at_random, "protein", 10000, (0.25, 0.5, 0.75)), "protein"
        ),
        Dataset("abalone_3", 10, partial(at_random, "abalone", 3000, (9.0, 11.0)), "abalone"),
        Dataset("letters", 10, letters),
        Dataset("skin_nonskin", 10, unseen_colours, "skin_nonskin"),
    )
}
