"""Local residuals compared with relevance vectors alone and other libraries' regressors, on all
rows.

    pip install gpytorch gpboost xrfm catboost    # what is not installed is left out python -m
    benchmarks.local --data DIR [--sets NAME …] [--methods NAME …] [--splits 3] [--limit 300]
    [--output DIR]

For each set, 90 % of the rows are fitted and 10 % predicted (at most 20,000), each time in a new
process. A fit that takes longer than ``--limit`` seconds, including its predictions, is
``stopped``. DIR contains NAME.npz files (``benchmarks/datasets.py``). Every fit is stored in
``local`` in the output folder: stored fits are not repeated, and stopped fits only with a larger
limit. A set NAME~10 has gaps in 10 % of its cells, NAME~rule gaps that depend on the target
(``benchmarks.datasets.with_gaps``).

alone, local        ``RVMRegressor`` with at most 400 vectors, without and with local residuals
local 100           with at most 100 vectors
default, no warp    ``RVMRegressor()``, and without warps of skewed features
1,600 vectors       at most 1,600 vectors without local residuals
exact GP            scikit-learn's Gaussian process, Matérn 3/2 with a width per feature, on at most 4,000 random rows
SVGP                GPyTorch's sparse variational Gaussian process with 1,000 inducing points
GPBoost VIF         GPBoost's Vecchia-inducing-points full-scale approximation of all rows, Matérn 3/2, with widths of
                    an exact process of 2,000 rows
xRFM                a recursive feature machine
neighbours          k nearest neighbours of standardised inputs; k and weights by cross-validation
boosting, CatBoost  scikit-learn's and CatBoost's gradient boosting with their defaults

All methods are in ``benchmarks/regressors.py``. xRFM, neighbours and boosting predict no density,
so theirs is a normal distribution with the variance of the errors on left-out rows. A line of the
first table is the median over the splits; RMSE and NLPD are for targets in units of their standard
deviation. ``least tenth %`` and ``largest tenth %`` are the extreme coverages of 95 % intervals
among ten groups of new rows by predicted deviation, ``wall s`` and ``CPU s`` the seconds of the
fit, ``rows/s`` predictions with deviation, and ``peak_mib`` the process's peak. The second table
counts on how many sets ``default`` beats the methods of other libraries, and names the sets where
another method wins.
"""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import measure, regressors
from benchmarks.datasets import read, with_gaps
from benchmarks.regressors import Method, rvm

SETS = (
    "protein",
    "kin40k",
    "etopo20",
    "used_cars",
    "nyc_green_taxi",
    "census_house_8H",
    "census_house_16L",
    "abalone",
)
SETS += (
    "airfoil",
    "boston",
    "concrete",
    "pumadyn_8nh",
    "pumadyn_8nm",
    "pumadyn_32nh",
    "pumadyn_32nm",
)
MOST_NEW = 20_000
MOST_EXACT = 4_000

OURS = {
    "alone": rvm(max_vectors=400, residual="none"),
    "local": rvm(max_vectors=400, residual="local"),
    "local 100": rvm(max_vectors=100, residual="local"),
    "default": rvm(),
    "no warp": rvm(warp="none"),
    "1,600 vectors": rvm(max_vectors=1600, residual="none"),
}
OTHERS = {
    "exact GP": Method(
        partial(regressors.gaussian_process, most=MOST_EXACT, shape=regressors.SHAPE), "sklearn"
    ),
    "SVGP": Method(partial(regressors.svgp, inducing=1000), "gpytorch"),
    "GPBoost VIF": Method(regressors.vecchia_inducing_points, "gpboost"),
    "xRFM": Method(regressors.recursive_features, "xrfm"),
    "neighbours": Method(regressors.nearest_neighbours, "sklearn"),
    "boosting": Method(regressors.boosting, "sklearn"),
    "CatBoost": Method(regressors.catboost, "catboost"),
}
METHODS = OURS | OTHERS

COLUMNS = {
    "set": "",
    "method": "",
    "rows": ",.0f",
    "vectors": ".0f",
    "RMSE": ".4f",
    "NLPD": ".3f",
    "coverage %": ".1f",
}
COLUMNS |= {
    "least tenth %": ".1f",
    "largest tenth %": ".1f",
    "wall s": ".1f",
    "CPU s": ".1f",
    "peak_mib": ",.0f",
}
COLUMNS |= {"rows/s": ",.0f", "splits": "d", "note": ""}
FIRST = {"figure": "", "first": "d", "sets": "d", "share": ".0%", "first elsewhere": ""}


def fit(folder: str, name: str, method: str, seed: int) -> dict[str, Any]:
    """Return the figures of one fit."""
    name, _, gaps = name.partition("~")
    X, y = read(folder, name)
    X = with_gaps(X, y, gaps) if gaps else X
    rows = int(0.9 * len(y))
    return {"rows": rows, **regressors.run(METHODS[method], X, y, rows, seed, MOST_NEW)}


def kept(
    folder: str, name: str, method: str, seed: int, limit: float, output: Path
) -> dict[str, Any]:
    """Return a stored fit, or run and store it; one that did not end has a ``note``."""
    path = output / f"{name}--{method.replace(' ', '_')}--{seed}.json"
    found: dict[str, Any] = (
        json.loads(path.read_text()) if path.exists() else {"note": "", "limit": 0.0}
    )
    if "note" not in found or found["limit"] >= limit:
        return found
    try:
        found = measure.within(limit, fit, folder, name, method, seed)
    except TimeoutError:
        found = {"note": f"stopped after {limit:.0f} s", "limit": limit}
    except ChildProcessError:
        return {"note": "failed"}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found))
    return found


def line(fits: list[dict[str, Any]], **names: Any) -> dict[str, Any]:
    """Return the row of the table that summarises the splits: medians of those that ended."""
    ended = [each for each in fits if "note" not in each]
    keys = [key for key in ended[0] if key in COLUMNS] if ended else []
    found = {key: float(np.median([each[key] for each in ended])) for key in keys}
    notes = [each["note"] for each in fits if "note" in each]
    return {**names, **found, "splits": len(ended), "note": ", ".join(dict.fromkeys(notes))}


def first(table: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return for RMSE and NLPD the number of sets on which ``default`` is the best beside the other
    libraries."""
    rows = []
    for figure in ("RMSE", "NLPD"):
        best: dict[str, str] = {}
        for name in dict.fromkeys(row["set"] for row in table):
            own = {
                row["method"]: row[figure] for row in table if row["set"] == name and figure in row
            }
            compared = [method for method in ("default", *OTHERS) if method in own]
            if "default" in own and len(compared) > 1:
                best[name] = min(compared, key=own.__getitem__)
        count = sum(each == "default" for each in best.values())
        elsewhere = best.items()
        others = ", ".join(
            f"{name} ({method})" for name, method in elsewhere if method != "default"
        )
        row = {"figure": figure, "first": count, "sets": len(best), "first elsewhere": others}
        rows.append(row | {"share": count / len(best) if best else None})
    return rows


def main(arguments: list[str] | None = None) -> None:
    """Run all fits; write the tables after each line."""
    parser = measure.command_line(__doc__)
    parser.add_argument("--sets", nargs="+", default=SETS, metavar="NAME", help="data sets")
    parser.add_argument(
        "--methods",
        nargs="+",
        default=list(METHODS),
        choices=METHODS,
        metavar="NAME",
        help="methods",
    )
    parser.add_argument("--splits", type=int, default=3, help="number of splits (default: 3)")
    parser.add_argument(
        "--limit", type=float, default=300.0, help="most seconds of a fit (default: 300)"
    )
    options = parser.parse_args(arguments)
    os.environ.setdefault(
        "OMP_WAIT_POLICY", "PASSIVE"
    )  # threads that wait must not take the cores of others
    for method in options.methods:
        if METHODS[method].missing():
            measure.say(f"{method} is left out: {METHODS[method].needs} is not installed")
    table: list[dict[str, Any]] = []
    for name in options.sets:
        for method in (method for method in options.methods if not METHODS[method].missing()):
            fits: list[dict[str, Any]] = []
            for seed in range(options.splits):
                if not any("note" in each for each in fits):  # the other splits would take as long
                    fits.append(
                        kept(
                            options.data,
                            name,
                            method,
                            seed,
                            options.limit,
                            Path(options.output, "local"),
                        )
                    )
            table.append(line(fits, set=name, method=method))
            measure.write(options.output, "local", table, COLUMNS)
            measure.write(options.output, "local_first", first(table), FIRST)


if __name__ == "__main__":
    main()
