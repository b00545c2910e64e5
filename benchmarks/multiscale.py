"""Several widths in one model, and categorical features: RMSE, NLPD, vectors and seconds for equal numbers of
candidates.

    python -m benchmarks.multiscale --data DIR [--case NAME ...] [--rows N] [--output FOLDER]

The cases are ``etopo20``, the demo's terrain (``terrain``: needs matplotlib but no data) and ``nyc_green_taxi``, whose
two zone ids are categorical. All variants of a case have the same training and test rows and the same number of
candidates. ``learn`` learns the widths before the fit; its seconds are included. HistGradientBoosting uses the 254 most
frequent zones of each kind as categories, and treats all other zones as missing. RMSE and NLPD are for held-out rows,
in units of the sd of the training target. ``cpu`` are seconds of all threads, which depend less on other load than wall
seconds.

Measured on parts of the data, on a busy machine of two cores (``--case etopo20 --rows 15000 --partition-size 120``):

    ==========  ===================  ======  ==========  =======  ===  ======  =====
    data        way                  rows    candidates  vectors  cpu  rmse    nlpd
    ==========  ===================  ======  ==========  =======  ===  ======  =====
    etopo20     gamma 50             15,000         480      335    1  0.3720  0.431
    etopo20     gamma 50 × 1, 8      15,000         480      342    1  0.4598  0.645
    etopo20     gamma 5 × 1, 8, 64   15,000         480      313    1  0.3435  0.349
    etopo20     learn                15,000         480      281   20  0.3471  0.360
    etopo20     learn × 1, 8         15,000         480      305   29  0.3367  0.328
    ==========  ===================  ======  ==========  =======  ===  ======  =====

and ``--rows 100000`` of etopo20 (1,000 candidates; the last two variants were not run):

    etopo20     gamma 50            100,000       1,000      728   14  0.2632  0.083
    etopo20     gamma 50 × 1, 8     100,000       1,000      832   14  0.2930  0.191
    etopo20     gamma 5 × 1, 8, 64  100,000       1,000      727   14  0.2643  0.087
    etopo20     learn               100,000       1,000      605   29  0.2792  0.143

and the demo's terrain (``--case terrain --rows 20000 --partition-size 150``, 900 candidates):

    terrain     gamma 80             20,000         900      624    7  0.2385  -0.015
    terrain     gamma 80 × 1, 8      20,000         900      595    5  0.2870  0.173
    terrain     gamma 10 × 1, 8, 64  20,000         900      545    5  0.2651  0.093
    terrain     learn                20,000         900      466   23  0.2687  0.103
    terrain     learn × 1, 8         20,000         900      453   27  0.2681  0.101

On these data, at equal numbers of candidates, several fixed widths protect against a wrong width. They do not improve
on a good width, because at least half of the candidates are too narrow to be useful. Therefore the default is one
width, and the demo keeps one width. Several learned widths reduced RMSE by 3 % compared with one learned width on
15,000 rows of etopo20, but not on terrain. On terrain the learned width, 28, is optimal for the 500 centres used in
learning; for 900 candidates a width of 80 is better by a ninth.

One run on nyc_green_taxi with 100,000 rows and 900 candidates gave these RMSE. Learned widths with numeric zones:
0.4370 (200 vectors, 14 CPU s), with categories: 0.4022 (502, 39). Boosting with numeric zones: 0.4001 (10 CPU s), with
categories: 0.3802 (30). Given kernels: one width for all inputs 0.4369 (373), without zones 0.4396 (173), categories at
scale 0.4063 (591).
"""

from __future__ import annotations

import argparse
import json
import math
import time
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchmarks.datasets import Split, load_random
from benchmarks.estimator_parameters import grouped
from benchmarks.measure import apart, say, write
from partirvm import RVMRegressor
from partirvm.data import Columns, as_source
from partirvm.errors import PartirvmWarning

ZONES = ("PULocationID", "DOLocationID")
TAXI = ("log_distance", "sin_hour", "cos_hour", "dayofweek", "sin_doy", "cos_doy", "year", *ZONES)
LEVELS = 254
"""Maximum number of categories of HistGradientBoosting, without the category of missing values."""


@dataclass(frozen=True)
class Case:
    """A data set: number of test rows, candidates of a round, rounds, and the options of each variant by name."""

    name: str
    test_rows: int
    partition_size: int
    rounds: int
    ways: dict[str, dict[str, Any]]


CASES = {
    case.name: case
    for case in (
        Case(
            "etopo20",
            58_374,
            250,
            4,
            {
                "gamma 50": {"gamma": 50.0},
                "gamma 50 × 1, 8": {"gamma": 50.0, "gamma_multiples": (1, 8)},
                "gamma 5 × 1, 8, 64": {"gamma": 5.0, "gamma_multiples": (1, 8, 64)},
                "learn": {"gamma": "learn"},
                "learn × 1, 8": {"gamma": "learn", "gamma_multiples": (1, 8)},
                "learn × 1, 8, 64": {"gamma": "learn", "gamma_multiples": (1, 8, 64)},
            },
        ),
        Case(
            "terrain",
            13_863,
            350,
            6,
            {
                "gamma 80": {"gamma": 80.0},
                "gamma 80 × 1, 8": {"gamma": 80.0, "gamma_multiples": (1, 8)},
                "gamma 10 × 1, 8, 64": {"gamma": 10.0, "gamma_multiples": (1, 8, 64)},
                "learn": {"gamma": "learn"},
                "learn × 1, 8": {"gamma": "learn", "gamma_multiples": (1, 8)},
            },
        ),
        Case(
            "nyc_green_taxi",
            150_000,
            300,
            3,
            {
                "numbers, scale": {"gamma": "scale", "categories": False},
                "numbers, learned": {"gamma": "learn-per-feature", "categories": False},
                "categories, scale": {"gamma": "scale"},
                "categories, learned": {"gamma": "learn-per-feature"},
                "categories, scale × 1, 8": {"gamma": "scale", "gamma_multiples": (1, 8)},
                "HGB, numbers": {"boosting": False},
                "HGB, categories": {"boosting": True},
            },
        ),
    )
}

COLUMNS = {
    "data": "", "way": "", "rows": ",", "candidates": ",", "vectors": ",", "seconds": ".0f", "cpu": ".0f",
    "rmse": ".4f", "nlpd": ".3f",
}  # fmt: skip


def split_of(folder: str, case: Case, rows: int | None) -> Split:
    """Return the rows of a case in random order (seed 0), split into test rows and at most ``rows`` training rows."""
    if case.name != "terrain":
        return load_random(folder, case.name, rows or 10**9, case.test_rows, 0)
    from partirvm.cli.terrain import load_terrain

    terrain = load_terrain()
    order = np.random.default_rng(0).permutation(terrain.elevation.size)
    test, train = order[: case.test_rows], order[case.test_rows :][:rows]
    X, y = terrain.points, terrain.elevation.ravel()
    return Split(case.name, X[train], y[train], X[test], y[test])


def fit(folder: str, case: Case, way: str, rows: int | None, memory_limit: str) -> dict[str, Any]:
    """Run one fit in this process, and return its scores."""
    split, options = split_of(folder, case, rows), dict(case.ways[way])
    about = {"data": case.name, "way": way, "rows": len(split.y)}
    if "boosting" in options:
        return {**about, **_boosted(split, categories=options["boosting"])}
    warnings.simplefilter("ignore", PartirvmWarning)
    zones = case.name == "nyc_green_taxi" and options.pop("categories", True)
    X, X_test, columns = _coded(split) if zones else (split.X, split.X_test, None)
    model = RVMRegressor(
        partition_size=case.partition_size,
        max_rounds=case.rounds,
        memory_limit=memory_limit,
        random_state=0,
        **grouped(options),
    )
    began, cpu = time.perf_counter(), time.process_time()
    model.fit(as_source(X, split.y, seed=0, columns=columns))
    spent = {"seconds": time.perf_counter() - began, "cpu": time.process_time() - cpu}
    mean, std = model.predict(X_test, return_std=True)
    wrong = split.y_test - mean
    return {
        **about,
        **spent,
        "candidates": case.partition_size * case.rounds,
        "vectors": model.n_relevance_vectors_,
        "rmse": float(np.sqrt(np.mean(wrong**2))) / split.deviation,
        "nlpd": float(np.mean(0.5 * np.log(2 * np.pi * std**2) + 0.5 * (wrong / std) ** 2)) - math.log(split.deviation),
        "learned": next((entry["text"] for entry in reversed(model.history_) if entry["kind"] == "kernel"), None),
    }


def _coded(split: Split) -> tuple[Any, Any, Columns]:
    """Return rows with codes in place of the zones, as ``ingest --categorical`` makes them."""
    X, X_test, categories = split.X.copy(), split.X_test.copy(), {}
    for name in ZONES:
        j = TAXI.index(name)
        levels = np.unique(split.X[:, j])
        categories[name] = tuple(levels.astype(int).tolist())
        for values in (X, X_test):
            places = np.minimum(np.searchsorted(levels, values[:, j]), len(levels) - 1)
            values[:, j] = np.where(levels[places] == values[:, j], places, len(levels))
    return X, X_test, Columns(TAXI, categories=categories)


def _boosted(split: Split, *, categories: bool) -> dict[str, Any]:
    """Return the scores of scikit-learn's HistGradientBoosting with default options."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    X, X_test, zones = split.X.copy(), split.X_test.copy(), [TAXI.index(name) for name in ZONES] if categories else []
    for j in zones:
        levels, counts = np.unique(split.X[:, j], return_counts=True)
        kept = np.sort(levels[np.argsort(-counts, kind="stable")][:LEVELS])
        for values in (X, X_test):
            places = np.minimum(np.searchsorted(kept, values[:, j]), len(kept) - 1)
            values[:, j] = np.where(kept[places] == values[:, j], places, np.nan)
    model = HistGradientBoostingRegressor(random_state=0, categorical_features=zones or None)
    began, cpu = time.perf_counter(), time.process_time()
    model.fit(X, split.y)
    spent = {"seconds": time.perf_counter() - began, "cpu": time.process_time() - cpu}
    return {**spent, "rmse": float(np.sqrt(np.mean((model.predict(X_test) - split.y_test) ** 2))) / split.deviation}


def main() -> None:
    """Run the requested cases and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="folder of the .npz files, see benchmarks/datasets.py")
    parser.add_argument("--case", choices=CASES, nargs="+", default=list(CASES), help="data sets (default: all)")
    parser.add_argument("--way", nargs="+", help="names of variants (default: all)")
    parser.add_argument("--rows", type=int, help="maximum number of training rows (default: all)")
    parser.add_argument(
        "--partition-size", type=int, help="number of candidates per round (default: depends on the case)"
    )
    parser.add_argument("--memory-limit", default="3GiB", help="memory limit of each process (default: 3GiB)")
    parser.add_argument("--output", default="benchmarks/results", help="output folder (default: benchmarks/results)")
    options = parser.parse_args()
    rows = []
    for case in map(CASES.__getitem__, options.case):
        size = options.partition_size or case.partition_size
        for way in case.ways:
            if options.way is None or way in options.way:
                rows.append(
                    apart(
                        fit, options.data, replace(case, partition_size=size), way, options.rows, options.memory_limit
                    )
                )
                say(json.dumps(rows[-1]))
    write(options.output, "multiscale", rows, COLUMNS)


if __name__ == "__main__":
    main()
