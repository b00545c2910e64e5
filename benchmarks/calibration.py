"""Coverage of prediction intervals on held-out rows, on all available regression sets.

    python -m benchmarks.calibration --data DIR [--sets NAME ...] [--output FOLDER]

``RVMRegressor()`` with defaults is fitted to all folds but one, and predicts the remaining fold.
Small sets are split into ``folds`` disjoint folds, so that each row is held out once. The largest
set has one random split. Generated sets have ``draws``, each with new training and test rows. The
table reports, over all held-out rows of a set,

coverage       the fraction of targets inside ``predict_interval(X, 0.95)``, and its standard error: binomial, or of the
               mean over draws, since fits of different draws differ
within         whether the coverage is within max(1 point, 2 standard errors) of 95 %
plain          the fraction of targets inside mean ± 1.96 std (``hyperparameters=False``)
NLPD           mean negative log density of ``predict(X, return_std=True)`` in nats, for targets in units of their sd

``benchmarks/datasets.py`` describes the NAME.npz files in DIR. Diabetes is part of scikit-learn.
The Friedman sets and sinc are generated with the noise of Friedman (1991); in #2 and #3, its sd is
a third of the signal's sd.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import measure
from benchmarks.ben_shimon.data import friedman, sinc
from benchmarks.datasets import Split
from partirvm import RVMRegressor
from partirvm.errors import PartirvmWarning

Float = NDArray[np.float64]

LEVELS = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99])
NOMINAL = 0.95
GOAL = 0.8
"""Required fraction of sets with coverage within the tolerance."""


@dataclass(frozen=True)
class Dataset:
    """A data set of the benchmark: either one split into training and test rows, or a number of
    disjoint folds.

    ``rows`` returns X and y. Generated sets have ``draws`` of new rows.
    """

    train: int = 0
    test: int = 0
    folds: int = 0
    draws: int = 1
    rows: Any = None


def friedman_2(rows: int, rng: Any) -> tuple[Float, Float]:
    """Generate inputs (rows, 4) and the impedance of a circuit; noise with a third of the sd is
    added later."""
    X = rng.uniform(size=(rows, 4)) * [100, 520 * np.pi, 1, 10] + [0, 40 * np.pi, 0, 1]
    smooth = np.sqrt(X[:, 0] ** 2 + (X[:, 1] * X[:, 2] - 1 / (X[:, 1] * X[:, 3])) ** 2)
    return X, smooth + 125.0 * rng.standard_normal(rows)


def friedman_3(rows: int, rng: Any) -> tuple[Float, Float]:
    """Generate inputs (rows, 4) and the phase of a circuit; noise with a third of the sd is added
    later."""
    X = rng.uniform(size=(rows, 4)) * [100, 520 * np.pi, 1, 10] + [0, 40 * np.pi, 0, 1]
    smooth = np.arctan((X[:, 1] * X[:, 2] - 1 / (X[:, 1] * X[:, 3])) / X[:, 0])
    return X, smooth + 0.1 * rng.standard_normal(rows)


def diabetes(count: int, rng: Any) -> tuple[Float, Float]:
    """Return the set of scikit-learn."""
    from sklearn.datasets import load_diabetes

    X, y = load_diabetes(return_X_y=True)
    return X, y


def noisy(smooth: Any, sd: float) -> Any:
    """Return a generator of a set with noise of the given sd on training and test rows."""

    def rows(count: int, rng: Any) -> tuple[Float, Float]:
        X, y = smooth(count, rng)
        return X, y + sd * rng.standard_normal(count)

    return rows


DATASETS = {
    "sinc": Dataset(100, 500, draws=20, rows=noisy(sinc, 0.1)),
    "friedman_1": Dataset(300, 500, draws=20, rows=noisy(friedman, 1.0)),
    "friedman_2": Dataset(300, 500, draws=20, rows=friedman_2),
    "friedman_3": Dataset(300, 500, draws=20, rows=friedman_3),
    "mcycle": Dataset(folds=3),
    "auto": Dataset(folds=3),
    "boston": Dataset(folds=3),
    "diabetes": Dataset(folds=3, rows=diabetes),
    "concrete": Dataset(folds=2),
    "airfoil": Dataset(folds=2),
    "abalone": Dataset(folds=5),
    "pumadyn_8fh": Dataset(folds=4),
    "pumadyn_8nm": Dataset(folds=4),
    "pumadyn_32fh": Dataset(folds=4),
    "pumadyn_32nm": Dataset(folds=4),
    "protein": Dataset(5000, 10000),
    "kin40k": Dataset(5000, 10000),
}


def splits(name: str, folder: str | Path, seed: int = 1) -> Iterator[Split]:
    """Yield the splits of a set; no splits if its file is missing."""
    dataset = DATASETS[name]
    rng = np.random.default_rng(seed)
    if dataset.rows is not None and not dataset.folds:
        for _ in range(dataset.draws):
            yield Split(name, *dataset.rows(dataset.train, rng), *dataset.rows(dataset.test, rng))
        return
    path = Path(folder, f"{name}.npz")
    if dataset.rows is not None:
        X, y = dataset.rows(0, None)
    elif path.exists():
        with np.load(path) as file:
            X = file["X"]
            y = file["y"]
    else:
        measure.say(f"{path} does not exist: {name} is skipped")
        return
    order = rng.permutation(len(y))
    if dataset.folds:
        tests = [order[k :: dataset.folds] for k in range(dataset.folds)]
    else:
        tests = [order[dataset.train : dataset.train + dataset.test]]
        order = order[: dataset.train + dataset.test]
    for test in tests:
        train = np.setdiff1d(order, test)
        yield Split(name, X[train], y[train], X[test], y[test])


def run(name: str, folder: str | Path) -> dict[str, Any] | None:
    """Return the table row of a set, and in ``curve`` the coverage at ``LEVELS``; None if the data
    are missing."""
    inside: list[NDArray[np.bool_]] = []
    plain: list[NDArray[np.bool_]] = []
    surprise: list[Float] = []
    train = 0
    vectors = []
    began = time.perf_counter()
    for split in splits(name, folder):
        X = split.X_test
        y = split.y_test
        train = len(split.y)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PartirvmWarning)
            model = RVMRegressor(random_state=0).fit(split.X, split.y)
            ends = [model.predict_interval(X, level) for level in LEVELS]
            narrow = model.predict_interval(X, NOMINAL, hyperparameters=False)
            mean, std = model.predict(X, return_std=True)
        inside.append(np.array([(low <= y) & (y <= high) for low, high in ends]))
        plain.append((narrow[0] <= y) & (y <= narrow[1]))
        std = std / split.deviation
        error = (y - mean) / split.deviation
        surprise.append(0.5 * (np.log(2 * np.pi * std**2) + (error / std) ** 2))
        vectors.append(model.n_relevance_vectors_)
    if not inside:
        return None
    curve = np.hstack(inside).mean(axis=1)
    rows = sum(map(len, plain))
    coverage = float(curve[LEVELS == NOMINAL][0])
    error = float(np.sqrt(NOMINAL * (1 - NOMINAL) / rows))
    if DATASETS[name].draws > 1:
        each = [part[LEVELS == NOMINAL].mean() for part in inside]
        error = max(error, float(np.std(each, ddof=1) / np.sqrt(len(each))))
    return {
        "set": name,
        "train": train,
        "held out": rows,
        "vectors": float(np.mean(vectors)),
        "coverage %": 100 * coverage,
        "s.e.": 100 * error,
        "within": "yes" if abs(coverage - NOMINAL) <= max(0.01, 2 * error) else "no",
        "plain %": 100 * float(np.concatenate(plain).mean()),
        "NLPD": float(np.concatenate(surprise).mean()),
        "seconds": time.perf_counter() - began,
        "curve": curve.tolist(),
    }


COLUMNS = {
    "set": "",
    "train": "d",
    "held out": "d",
    "vectors": ".0f",
    "coverage %": ".1f",
    "s.e.": ".1f",
    "within": "",
}
COLUMNS |= {"plain %": ".1f", "NLPD": ".3f", "seconds": ".0f"}


def main(arguments: list[str] | None = None) -> None:
    """Run the requested sets; write the table."""
    parser = measure.command_line(__doc__)
    parser.add_argument(
        "--sets", nargs="+", choices=DATASETS, metavar="NAME", help="data sets (default: all)"
    )
    options = parser.parse_args(arguments)
    rows = []
    for name in options.sets or list(DATASETS):
        row = run(name, options.data)
        if row is not None:
            rows.append(row)
            measure.write(options.output, "calibration", rows, COLUMNS)
    within = sum(row["within"] == "yes" for row in rows)
    measure.say(
        f"{within} of {len(rows)} sets within max(1 point, 2 s.e.) of 95 %; the goal is {GOAL:.0%}"
    )


if __name__ == "__main__":
    main()
