"""Kernel learning on forty functions, compared with boosting, near rows and an exact Gaussian
process.

    python -m benchmarks.traps [--rows 200 2000] [--gp-rows 200] [--cases NAME …] [--max-vectors M]
    [--output FOLDER]

``functions.py`` describes the functions. Each line of the table is one case; its columns are the
RMSE against the noise-free signal on 4,000 new rows:

RVM        ``RVMRegressor()`` with defaults, with the number of relevance vectors, the reported noise and CPU seconds
GP         scikit-learn's ``GaussianProcessRegressor`` with a width per feature and ten starts, up to ``--gp-rows`` rows
boosting   ``HistGradientBoostingRegressor`` with defaults
near rows  the ten nearest rows of standardised inputs, weighted by distance
ratio      RMSE of the RVM ÷ the smallest RMSE of the others
warned     whether the fit ended with an ``AccuracyWarning``; it must if ``--max-vectors`` makes the ratio large
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks import measure
from benchmarks.traps.functions import TRAPS, Trap
from partirvm import RVMRegressor
from partirvm.errors import AccuracyWarning, PartirvmWarning

Float = NDArray[np.float64]

NEW_ROWS = 4000
SEED = 7

OTHERS = ("GP", "boosting", "near rows")

COLUMNS = {
    "function": "",
    "turned": "",
    "rows": "d",
    "RVM": ".3f",
    "vectors": "d",
    "noise": ".3f",
    "seconds": ".1f",
}
COLUMNS |= {**dict.fromkeys(OTHERS, ".3f"), "ratio": ".2f", "warned": ""}


def others(d: int) -> dict[str, Callable[[], Any]]:
    """Return the other methods for ``d`` features; the exact process comes first."""
    kernel = ConstantKernel(1.0) * RBF(np.full(d, np.sqrt(d)), (1e-2, 1e4)) + WhiteKernel(
        0.1, (1e-6, 2.0)
    )
    process = GaussianProcessRegressor(
        kernel, normalize_y=True, n_restarts_optimizer=9, random_state=0
    )
    methods = (
        process,
        HistGradientBoostingRegressor(random_state=0),
        KNeighborsRegressor(10, weights="distance"),
    )
    return {
        name: lambda method=method: make_pipeline(StandardScaler(), method)
        for name, method in zip(OTHERS, methods, strict=True)
    }


def run(trap: Trap, rows: int, gp_rows: int, max_vectors: int | None = None) -> dict[str, Any]:
    """Return the figures of one case."""
    rng = np.random.default_rng((rows, SEED))
    (X, _, y) = trap.draw(rows, rng)
    (X_new, signal, _) = trap.draw(NEW_ROWS, rng)

    def error(model: Any) -> float:
        return float(np.sqrt(np.mean((model.predict(X_new) - signal) ** 2)))

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", PartirvmWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        began = time.process_time()
        model = RVMRegressor(random_state=0, max_vectors=max_vectors).fit(X, y)
        seconds = time.process_time() - began
        beside = {
            name: error(make().fit(X, y))
            for name, make in others(trap.d).items()
            if name != "GP" or rows <= gp_rows
        }
    return {
        "function": trap.name,
        "turned": "yes" if trap.turned else "",
        "rows": rows,
        "RVM": error(model),
        "vectors": model.n_relevance_vectors_,
        "noise": model.noise_variance_**0.5,
        "seconds": seconds,
        **beside,
        "ratio": error(model) / min(beside.values()),
        "warned": "yes" if any(issubclass(each.category, AccuracyWarning) for each in said) else "",
    }


def main(arguments: list[str] | None = None) -> None:
    """Run all cases; write the table after each."""
    parser = measure.command_line(__doc__, data=False)
    parser.add_argument(
        "--rows", nargs="+", type=int, default=(200,), help="training rows (default: 200)"
    )
    parser.add_argument(
        "--gp-rows", type=int, default=200, help="most rows of the exact process (default: 200)"
    )
    parser.add_argument(
        "--cases", nargs="+", metavar="NAME", help="names of functions (default: all)"
    )
    parser.add_argument(
        "--max-vectors",
        type=int,
        metavar="M",
        help="as the option of the estimator (default: none)",
    )
    options = parser.parse_args(arguments)
    table: list[dict[str, Any]] = []
    for rows in options.rows:
        for trap in TRAPS:
            if options.cases is None or trap.name in options.cases:
                table.append(run(trap, rows, options.gp_rows, options.max_vectors))
                measure.write(options.output, "traps", table, COLUMNS)
    worse = sum(row["ratio"] > 1.15 for row in table)
    measure.say(f"worse than 1.15 × the best of the others in {worse} of {len(table)} cases")


if __name__ == "__main__":
    main()
