"""Local residuals beside the relevance vectors alone, nearest neighbours and boosting, on all rows.

    python -m benchmarks.local --data DIR [--sets NAME …] [--methods NAME …] [--splits 3] [--output DIR]

Of each set 90 % of the rows are fitted and 10 % predicted (at most 20,000), each time in a new process. RMSE and NLPD
are those of targets in units of their standard deviation; a line is the median of the splits. ``alone`` and ``local``
have at most 400 vectors, ``local 100`` at most 100, ``default`` what ``RVMRegressor()`` chooses. DIR contains files
NAME.npz (``benchmarks/datasets.py``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import measure, metric

SETS = ("protein", "kin40k", "etopo20", "used_cars", "nyc_green_taxi", "census_house_8H", "census_house_16L", "abalone")
SETS += ("airfoil", "boston", "concrete", "pumadyn_8nh", "pumadyn_8nm", "pumadyn_32nh", "pumadyn_32nm")
MOST_NEW = 20_000

METHODS: dict[str, Any] = {
    "alone": metric.rvm({"max_vectors": 400, "residual": "none"}),
    "local": metric.rvm({"max_vectors": 400, "residual": "local"}),
    "local 100": metric.rvm({"max_vectors": 100, "residual": "local"}),
    "default": metric.rvm({"max_vectors": None}),
    "boosting": metric.boosting,
}

COLUMNS = {"set": "", "method": "", "rows": ",", "vectors": ".0f", "RMSE": ".4f", "NLPD": ".3f", "coverage %": ".1f"}
COLUMNS |= {"wall_seconds": ".1f", "CPU s": ".1f", "peak_mib": ",.0f"}


def fit(folder: str, name: str, method: str, seed: int) -> dict[str, Any]:
    """Return the figures of one fit."""
    with np.load(Path(folder, f"{name}.npz")) as file:
        X, y = file["X"].reshape(len(file["y"]), -1), file["y"]
    rows = int(0.9 * len(y))
    return {"rows": rows, **metric.fit(METHODS[method], X, y, rows, seed, MOST_NEW)}


def main(arguments: list[str] | None = None) -> None:
    """Run all fits; write the table after each line."""
    parser = measure.command_line(__doc__)
    parser.add_argument("--sets", nargs="+", default=SETS, metavar="NAME", help="data sets")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS, metavar="NAME", help="methods")
    parser.add_argument("--splits", type=int, default=3, help="number of splits (default: 3)")
    options, table = parser.parse_args(arguments), list[dict[str, Any]]()
    for name in options.sets:
        for method in options.methods:
            fits = [measure.apart(fit, options.data, name, method, seed) for seed in range(options.splits)]
            figures = {key: float(np.median([each[key] for each in fits])) for key in fits[0] if key != "kernel"}
            table.append({"set": name, "method": method, **figures, "rows": fits[0]["rows"]})
            measure.write(options.output, "local", table, COLUMNS)


if __name__ == "__main__":
    main()
