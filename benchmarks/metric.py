"""Families and directions of learned kernels beside a width per feature, an exact Gaussian process and boosting.

    python -m benchmarks.metric --data DIR [--sets NAME …] [--methods NAME …] [--rows 8000] [--splits 3] [--output DIR]

Each method is fitted to the same random rows of each set and predicts up to 10,000 others. RMSE and NLPD are those of
targets in units of their standard deviation; a line of the table is a mean over the splits.

widths       a Gaussian kernel with a width per feature (the former default)
family       the family of largest evidence, with a width per feature
directions   a Gaussian kernel with the metric by default
default      ``RVMRegressor()``
gp           scikit-learn's exact Gaussian process with a width per feature, amplitude and noise by evidence; up to
             1,100 rows
boosting     scikit-learn's HistGradientBoostingRegressor; without a density
svgp         a sparse variational Gaussian process with 500 inducing points (``benchmarks.torch_peers``)
xrfm         a recursive feature machine; without a density (``benchmarks.torch_peers``)

The latter two need further libraries and run only if they are named.

``DIR`` contains files NAME.npz (``benchmarks/datasets.py``); of small sets 70 % of the rows are fitted. Sets named
NAME:ROWS are fitted with so many rows.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import measure, torch_peers
from partirvm import Gaussian, Radial, RVMRegressor
from partirvm.core.scores import Scores
from partirvm.errors import PartirvmWarning

Float = NDArray[np.float64]

SETS = ("auto", "boston", "concrete", "airfoil", "abalone", "pumadyn_8nm:700", "protein:700", "kin40k:700")
SETS += ("mcycle", "pumadyn_8fh", "pumadyn_8fm", "pumadyn_8nh", "pumadyn_8nm", "pumadyn_32fh", "pumadyn_32fm")
SETS += ("pumadyn_32nh", "pumadyn_32nm", "kin40k", "protein", "etopo20", "nyc_green_taxi")
NEW_ROWS, FITTED, MOST_GP_ROWS, MOST_VECTORS = 10_000, 0.7, 1100, 1600

COLUMNS = {"set": "", "method": "", "rows": "d", "vectors": ".0f", "RMSE": ".4f", "NLPD": ".4f", "coverage %": ".1f"}
COLUMNS |= {"CPU s": ".1f", "kernel": ""}

Predicted = tuple[Float, Float | None, Float | None, dict[str, Any]]
"""Mean, standard deviation, whether the 95 % interval covers each row, and further figures."""


def rvm(options: dict[str, Any]) -> Callable[[Float, Float, Float, Float], Predicted]:
    """Return the method that fits ``RVMRegressor`` with these options."""

    def run(X: Float, y: Float, new: Float, truth: Float) -> Predicted:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PartirvmWarning)
            model = RVMRegressor(random_state=0, **{"max_vectors": MOST_VECTORS, **options}).fit(X, y)
            mean, std = model.predict(new, return_std=True)
            lower, upper = model.predict_interval(new, 0.95)
        kernel = model.kernel_.spec()
        family = kernel.get("kernel", kernel)["name"]
        form = "directions" if kernel["name"] == "directions" else "widths"
        facts = {"vectors": model.n_relevance_vectors_, "kernel": f"{family}, {form}"}
        return mean, std, (lower <= truth) & (truth <= upper), facts

    return run


def gaussian_process(X: Float, y: Float, new: Float, truth: Float) -> Predicted:
    """Fit an exact Gaussian process with a width per feature to standardised inputs."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    shift, scale = X.mean(axis=0), X.std(axis=0)
    scale[scale == 0] = 1.0
    prior = ConstantKernel(1.0, (1e-3, 1e3)) * RBF(np.ones(X.shape[1]), (1e-2, 1e3)) + WhiteKernel(0.1, (1e-5, 10.0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = GaussianProcessRegressor(prior, normalize_y=True, random_state=0).fit((X - shift) / scale, y)
    mean, std = model.predict((new - shift) / scale, return_std=True)
    return mean, std, np.abs(truth - mean) <= 1.959964 * std, {"vectors": len(y)}


def boosting(X: Float, y: Float, new: Float, truth: Float) -> Predicted:
    """Fit gradient boosting with its defaults."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    return HistGradientBoostingRegressor(random_state=0).fit(X, y).predict(new), None, None, {}


METHODS: dict[str, Callable[[Float, Float, Float, Float], Predicted]] = {
    "widths": rvm({"kernel": Gaussian(metric="widths")}),
    "family": rvm({"kernel": Radial(metric="widths")}),
    "directions": rvm({"kernel": Gaussian()}),
    "default": rvm({}),
    "gp": gaussian_process,
    "boosting": boosting,
    "svgp": torch_peers.svgp,
    "xrfm": torch_peers.recursive_features,
}
BY_DEFAULT = [name for name in METHODS if name not in ("svgp", "xrfm")]


def fit(method: Callable[..., Predicted], X: Float, y: Float, rows: int, seed: int, most: int) -> dict[str, Any]:
    """Return the figures of one fit to ``rows`` random rows, and of predictions of at most ``most`` others."""
    order = np.random.default_rng(seed).permutation(len(y))
    train, test = order[:rows], order[rows : rows + most]
    began, unit = time.process_time(), float(y.std())
    mean, std, inside, facts = method(X[train], y[train], X[test], y[test])
    found = {"RMSE": float(np.sqrt(np.mean((y[test] - mean) ** 2))) / unit, "CPU s": time.process_time() - began}
    if std is not None and inside is not None:
        found["NLPD"] = Scores.of(y[test] / unit, mean / unit, (std / unit) ** 2).figures()["nlpd"]
        found["coverage %"] = 100 * float(np.mean(inside))
    return found | facts


def line(fits: list[dict[str, Any]], **names: Any) -> dict[str, Any]:
    """Return the row of the table that summarises these fits."""
    kernels = sorted({each["kernel"] for each in fits if "kernel" in each})
    numbers = [name for name in fits[0] if name != "kernel"]
    return {
        **names,
        **{name: float(np.mean([each[name] for each in fits])) for name in numbers},
        "kernel": "; ".join(kernels),
    }


def main(arguments: list[str] | None = None) -> None:
    """Run all fits; write the table after each line."""
    parser = measure.command_line(__doc__)
    parser.add_argument("--sets", nargs="+", default=SETS, metavar="NAME", help=f"data sets (default: {len(SETS)})")
    parser.add_argument("--methods", nargs="+", default=BY_DEFAULT, choices=METHODS, metavar="NAME", help="methods")
    parser.add_argument("--rows", type=int, default=8000, help="maximum number of training rows (default: 8000)")
    parser.add_argument("--splits", type=int, default=3, help="number of splits (default: 3)")
    options = parser.parse_args(arguments)
    table = []
    for named in options.sets:
        name, _, rows = named.partition(":")
        with np.load(Path(options.data, f"{name}.npz")) as file:
            X, y = file["X"].reshape(len(file["y"]), -1), file["y"]
        count = min(int(rows or options.rows), int(FITTED * len(y)))
        for method in options.methods:
            if method == "gp" and count > MOST_GP_ROWS:
                continue
            fits = [fit(METHODS[method], X, y, count, seed, NEW_ROWS) for seed in range(options.splits)]
            table.append(line(fits, set=named, method=method, rows=count))
            measure.write(options.output, "metric", table, COLUMNS)


if __name__ == "__main__":
    main()
