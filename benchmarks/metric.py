"""Learned kernel families and directions compared with a width per feature, an exact Gaussian
process and boosting.

    python -m benchmarks.metric --data DIR [--sets NAME …] [--methods NAME …] [--rows 8000]
    [--splits 3] [--output DIR]

Each method is fitted to the same random rows of each set and predicts up to 10,000 others. RMSE and
NLPD are for targets in units of their standard deviation; a line of the table is a mean over the
splits.

widths       a Gaussian kernel with a width per feature (the former default)
family       the family with the largest evidence, with a width per feature
directions   a Gaussian kernel with the default metric
default      ``RVMRegressor()``
gp           scikit-learn's exact Gaussian process with a width per feature, amplitude and noise by evidence; up to
             1,100 rows
boosting     scikit-learn's HistGradientBoostingRegressor
svgp         a sparse variational Gaussian process with 500 inducing points (``benchmarks.regressors``)
xrfm         a recursive feature machine (``benchmarks.regressors``)

The last two need further libraries and run only if named.

``DIR`` contains NAME.npz files (``benchmarks/datasets.py``); for small sets, 70 % of the rows are
fitted. Sets named NAME:ROWS are fitted with that many rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks import measure, regressors
from benchmarks.datasets import read
from benchmarks.regressors import Method, rvm
from partirvm import Gaussian, Radial

SETS = (
    "auto",
    "boston",
    "concrete",
    "airfoil",
    "abalone",
    "pumadyn_8nm:700",
    "protein:700",
    "kin40k:700",
)
SETS += (
    "mcycle",
    "pumadyn_8fh",
    "pumadyn_8fm",
    "pumadyn_8nh",
    "pumadyn_8nm",
    "pumadyn_32fh",
    "pumadyn_32fm",
)
SETS += ("pumadyn_32nh", "pumadyn_32nm", "kin40k", "protein", "etopo20", "nyc_green_taxi")
NEW_ROWS = 10_000
FITTED = 0.7
MOST_GP_ROWS = 1100
MOST_VECTORS = 1600

COLUMNS = {
    "set": "",
    "method": "",
    "rows": "d",
    "vectors": ".0f",
    "RMSE": ".4f",
    "NLPD": ".4f",
    "coverage %": ".1f",
}
COLUMNS |= {"CPU s": ".1f", "kernel": ""}

METHODS = {
    "widths": rvm(max_vectors=MOST_VECTORS, kernel=Gaussian(metric="widths")),
    "family": rvm(max_vectors=MOST_VECTORS, kernel=Radial(metric="widths")),
    "directions": rvm(max_vectors=MOST_VECTORS, kernel=Gaussian()),
    "default": rvm(max_vectors=MOST_VECTORS),
    "gp": Method(regressors.gaussian_process, "sklearn"),
    "boosting": Method(regressors.boosting, "sklearn"),
    "svgp": Method(regressors.svgp, "gpytorch"),
    "xrfm": Method(regressors.recursive_features, "xrfm"),
}
BY_DEFAULT = [name for name in METHODS if name not in ("svgp", "xrfm")]


def line(fits: list[dict[str, Any]], **names: Any) -> dict[str, Any]:
    """Return the row of the table that summarises these fits."""
    kernels = sorted({each["kernel"] for each in fits if "kernel" in each})
    numbers = [name for name in fits[0] if name != "kernel"]
    return {
        **{name: float(np.mean([each[name] for each in fits])) for name in numbers},
        **names,
        "kernel": "; ".join(kernels),
    }


def main(arguments: list[str] | None = None) -> None:
    """Run all fits; write the table after each line."""
    parser = measure.command_line(__doc__)
    parser.add_argument(
        "--sets", nargs="+", default=SETS, metavar="NAME", help=f"data sets (default: {len(SETS)})"
    )
    parser.add_argument(
        "--methods", nargs="+", default=BY_DEFAULT, choices=METHODS, metavar="NAME", help="methods"
    )
    parser.add_argument(
        "--rows", type=int, default=8000, help="maximum number of training rows (default: 8000)"
    )
    parser.add_argument("--splits", type=int, default=3, help="number of splits (default: 3)")
    options = parser.parse_args(arguments)
    table = []
    for named in options.sets:
        name, _, rows = named.partition(":")
        X, y = read(options.data, name)
        count = min(int(rows or options.rows), int(FITTED * len(y)))
        for method in options.methods:
            if method == "gp" and count > MOST_GP_ROWS:
                continue
            fits = [
                regressors.run(METHODS[method], X, y, count, seed, NEW_ROWS)
                for seed in range(options.splits)
            ]
            table.append(line(fits, set=named, method=method, rows=count))
            measure.write(options.output, "metric", table, COLUMNS)


if __name__ == "__main__":
    main()
