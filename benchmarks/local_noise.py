"""Input-dependent noise compared with constant noise: densities, coverage and errors on new rows.

    python -m benchmarks.local_noise --data DIR [--sets NAME …] [--rows 4000] [--splits 3] [--output
    FOLDER]

``RVMRegressor()`` is fitted to random rows of each set with ``noise="constant"`` and with the
default, and predicts up to 20,000 others. A line of the table is a mean over the splits:

tenths         least and largest coverage of the 95 % interval among ten groups of new rows by predicted deviation
deviations     smallest and largest predicted standard deviation, in units of the target's sd
centres        of the log variance; ``taken`` is the number of splits in which local noise was used
NLPD           mean negative log predictive density, in nats, for targets in units of their sd

``housing`` is generated here: prices from six features, with a spread that grows with two of them.
``demo`` is the demo's terrain, with the demo's kernel. ``mcycle`` has 133 rows, of which 100 are
fitted, on ten splits. All other sets are the NAME.npz files in DIR (``benchmarks/datasets.py``);
for small sets, 70 % of the rows are fitted.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import datasets, measure, regressors
from partirvm.cli.demo import load_terrain

Float = NDArray[np.float64]

SETS = (
    "mcycle",
    "demo",
    "etopo20",
    "housing",
    "nyc_green_taxi",
    "boston",
    "concrete",
    "airfoil",
    "auto",
)
SETS += ("abalone", "pumadyn_8nm", "protein", "kin40k")
NEW_ROWS = 20_000
FITTED = 0.7
OPTIONS: dict[str, dict[str, Any]] = {
    "demo": {"gamma": 80.0, "partition_size": 350, "max_rounds": 4}
}
SPLITS = {"mcycle": 10, "demo": 1}
ROWS = {"mcycle": 100, "demo": 30_000}

COLUMNS = {
    "set": "",
    "noise": "",
    "rows": "d",
    "vectors": ".0f",
    "taken": "d",
    "centres": ".0f",
    "RMSE": ".4f",
}
COLUMNS |= {
    "NLPD": ".4f",
    "CRPS": ".4f",
    "coverage %": ".1f",
    "least tenth %": ".1f",
    "largest tenth %": ".1f",
}
COLUMNS |= {"smallest std": ".3f", "largest std": ".3f", "CPU s": ".1f"}


def housing(rows: int) -> tuple[Float, Float]:
    """Return inputs (rows, 6) and prices: income and age decide, and the spread is large where both
    are."""
    rng = np.random.default_rng(1990)
    X = rng.uniform(-2, 2, size=(rows, 6))
    price = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] * X[:, 2] + 0.3 * X[:, 3]
    spread = 0.05 + 0.4 * np.exp(-2 * (X[:, 0] + 1) ** 2) + 0.2 * np.maximum(X[:, 4], 0)
    return X, price + spread * rng.normal(size=rows)


def load(folder: str, name: str) -> tuple[Float, Float]:
    """Return inputs (N, d) and targets (N,) of a set."""
    if name == "housing":
        return housing(24_000)
    if name == "demo":
        terrain = load_terrain()
        return terrain.points, terrain.elevation.ravel()
    return datasets.read(folder, name)


def line(fits: list[dict[str, Any]], **names: Any) -> dict[str, Any]:
    """Return the row of the table that summarises these fits."""
    found = {
        name: float(np.mean([each[name] for each in fits])) for name in fits[0] if name != "kernel"
    }
    return {**names, **found, "taken": sum(each["taken"] for each in fits)}


def main(arguments: list[str] | None = None) -> None:
    """Run all fits; write the table after each line."""
    parser = measure.command_line(__doc__)
    parser.add_argument(
        "--sets", nargs="+", default=SETS, metavar="NAME", help="data sets (default: 13)"
    )
    parser.add_argument(
        "--rows", type=int, default=4000, help="maximum number of training rows (default: 4000)"
    )
    parser.add_argument("--splits", type=int, default=3, help="number of splits (default: 3)")
    options = parser.parse_args(arguments)
    table = []
    for name in options.sets:
        X, y = load(options.data, name)
        rows = min(ROWS.get(name, options.rows), int(FITTED * len(y)))
        splits = range(min(SPLITS[name], 10 * options.splits) if name in SPLITS else options.splits)
        for noise in ("constant", "auto"):
            method = regressors.rvm(noise=noise, **OPTIONS.get(name, {}))
            fits = [regressors.run(method, X, y, rows, seed, NEW_ROWS) for seed in splits]
            table.append(line(fits, set=name, noise=noise, rows=rows))
            measure.write(options.output, "local_noise", table, COLUMNS)


if __name__ == "__main__":
    main()
