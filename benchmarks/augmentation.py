"""RVM* compared with the plain RVM: predicted standard deviation far from the data, and scores on held-out rows.

    python -m benchmarks.augmentation [--picture FILE.png] [--data DIR [--sets NAME ...]] [--output FOLDER]

The first table is for Sinc: 100 rows between −10 and 10 with noise of sd 0.1. The predictions are at several distances
from the last row. The picture shows these predictions, like Figure 1 of Rasmussen & Quiñonero-Candela (2005). The
option ``--data`` adds a table for data sets. Its test rows are random rows (``random``), or the rows farthest out along
the first principal component (``far``). RMSE and NLPD are in units of the sd of the training target. ``ratio`` is the
time of the augmented prediction divided by the time of the plain prediction.

Measured on two busy cores:

    distance  RVM    RVM*  standard deviations on Sinc; σ is 0.094, √(σ² + var y) is 0.356
           0  0.100  0.100
           2  0.104  0.153
           5  0.095  0.335
          20  0.094  0.356

    data      split   rows   vectors  rmse, RVM*    nlpd, RVM*    in 95 %, RVM*
    boston    random    456       38  0.556  0.554  1.550  1.529  82.0  82.0
    boston    far       456       54  0.663  0.546  3.239  0.878  48.0  94.0
    airfoil   random  1,353      134  0.247  0.246  0.018  0.009  94.7  94.7
    airfoil   far     1,353      143  0.760  0.764  6.103  1.615  42.0  70.7
    concrete  random    927       94  0.313  0.309  0.242  0.228  93.2  95.1
    concrete  far       927       81  0.745  0.739  2.667  2.191  68.0  69.9

If test rows lie among the training rows, RVM* improves the scores slightly. If test rows lie outside, the plain model
is overconfident, and RVM* is less overconfident. A pass costs N·n·M products for N training rows, n test rows and M
vectors. With 36,000 rows of kin40k, 395 vectors and 2,048 test rows a pass took 3.2 s on one core. RMSE changed from
0.305 to 0.290, and NLPD from 0.233 to 0.188.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.datasets import Split, load
from benchmarks.measure import say, write
from benchmarks.sheets import save, sheet
from partirvm import RVMRegressor
from partirvm.core.residuals import Scores
from partirvm.errors import PartirvmWarning

DISTANCES = (0.0, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0)
SETS = ("boston", "airfoil", "concrete", "pumadyn_8nm")
NOISE, WIDEST = 0.1, 10.0


def sinc(n: int = 100, seed: int = 0) -> tuple[Any, Any]:
    """Generate rows of sin(x)/x between −10 and 10, including both ends, with noise of sd 0.1."""
    rng = np.random.default_rng(seed)
    x = np.concatenate([[-WIDEST, WIDEST], rng.uniform(-WIDEST, WIDEST, n - 2)])
    return x[:, None], np.sinc(x / np.pi) + NOISE * rng.standard_normal(n)


def both(model: RVMRegressor, X: Any, training: tuple[Any, Any]) -> list[tuple[str, Any, Any, float]]:
    """Return name, mean, standard deviation and seconds of a plain and of an augmented prediction."""
    found = []
    for way, augment in (("RVM", None), ("RVM*", training)):
        began = time.perf_counter()
        mean, std = model.predict(X, return_std=True, augment=augment)
        found.append((way, mean, std, time.perf_counter() - began))
    return found


def of_distances(picture: str | None) -> list[dict[str, Any]]:
    """Compute the predicted standard deviations beyond the last row of Sinc."""
    X, y = sinc()
    model = RVMRegressor(gamma=3.0, fit_intercept=False, random_state=0).fit(X, y)
    (_, _, plain, _), (_, _, grown, _) = both(model, WIDEST + np.array(DISTANCES)[:, None], (X, y))
    say(f"σ = {model.noise_variance_**0.5:.4f}, √(σ² + var y) = {(model.noise_variance_ + y.var()) ** 0.5:.4f}")
    if picture is not None:
        draw(model, X, y, Path(picture))
    return [
        {"distance": distance, "std": float(one), "std*": float(other)}
        for distance, one, other in zip(DISTANCES, plain, grown, strict=True)
    ]


def draw(model: RVMRegressor, X: Any, y: Any, path: Path) -> None:
    """Plot the mean ± two standard deviations of both predictions."""
    figure, axes = sheet(2, "Two standard deviations about the mean: RVM, and with a basis function at each test input")
    x = np.linspace(-2 * WIDEST, 2 * WIDEST, 801)
    for one, (way, mean, std, _) in zip(axes, both(model, x[:, None], (X, y)), strict=True):
        one.fill_between(x, mean - 2 * std, mean + 2 * std, color="#9ecae1", alpha=0.6, linewidth=0)
        one.plot(x, mean, color="#08519c", linewidth=1.2)
        one.plot(X[:, 0], y, ".", color="#444444", markersize=3)
        one.plot(
            model.relevance_vectors_[:, 0], model.predict(model.relevance_vectors_), "o", mfc="none", mec="#cb181d"
        )
        one.set_title(way, fontsize=10)
        one.set_ylim(-1.2, 1.6)
    save(figure, path)


def split_far(split: Split) -> Split:
    """Split the rows again, so that the test rows are farthest out along the first principal component."""
    X, y = np.vstack([split.X, split.X_test]), np.concatenate([split.y, split.y_test])
    standard = (X - X.mean(axis=0)) / X.std(axis=0).clip(1e-12)
    axis = np.linalg.eigh(standard.T @ standard)[1][:, -1]
    order, kept = np.argsort(standard @ axis, kind="stable"), len(split.y)
    return Split(split.name, X[order[:kept]], y[order[:kept]], X[order[kept:]], y[order[kept:]])


def of_sets(folder: str, names: list[str]) -> list[dict[str, Any]]:
    """Compute the scores of plain and augmented predictions on held-out rows, random rows and far rows."""
    rows = []
    for name in names:
        drawn = load(folder, name)
        for kind, split in (("random", drawn), ("far", split_far(drawn))):
            model = RVMRegressor(random_state=0).fit(split.X, split.y)
            vectors = model.n_relevance_vectors_
            ways, unit = both(model, split.X_test, (split.X, split.y)), float(split.y.std())
            for way, mean, std, seconds in ways:
                scores = Scores.of(split.y_test / unit, mean / unit, (std / unit) ** 2)
                rows.append(
                    {
                        "data": name, "split": kind, "way": way, "rows": len(split.y), "vectors": vectors,
                        "rmse": scores.rmse, "nlpd": scores.nlpd, "in 95 %": 100 * scores.figures()["coverage_95"],
                        "ratio": seconds / ways[0][3],
                    }
                )  # fmt: skip
            say(f"{name}, {kind}: done")
    return rows


def main(arguments: list[str] | None = None) -> None:
    """Run the requested tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--picture", metavar="FILE.png", help="file for a picture of both predictions on Sinc")
    parser.add_argument("--data", metavar="DIR", help="folder of the data sets")
    parser.add_argument("--sets", nargs="*", default=list(SETS), metavar="NAME")
    parser.add_argument("--output", default="benchmarks/results", help="output folder (default: benchmarks/results)")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore", PartirvmWarning)
    write(
        options.output,
        "augmentation_distances",
        of_distances(options.picture),
        {"distance": ".0f", "std": ".4f", "std*": ".4f"},
    )
    if options.data is not None:
        columns = {"data": "", "split": "", "way": "", "rows": ",", "vectors": ",", "rmse": ".4f", "nlpd": ".3f"}
        write(
            options.output,
            "augmentation",
            of_sets(options.data, options.sets),
            {**columns, "in 95 %": ".1f", "ratio": ".1f"},
        )


if __name__ == "__main__":
    main()
