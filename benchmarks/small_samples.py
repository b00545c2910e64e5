"""Stated uncertainty of fits to few rows: intervals, noise and densities on new rows.

    python -m benchmarks.small_samples --data DIR [--rows 200 400 700] [--seeds 10] [--sets NAME …] [--output FOLDER]

``RVMRegressor()`` with defaults, with the Gaussian and with the Matérn 5/2 kernel, is fitted to random rows of
each set and predicts up to 4,000 others. A line of the table is a mean over the seeds:

coverage       fraction of targets inside ``predict_interval(X, 0.95)``: mean, least and largest of the seeds
sound          fraction of the fits whose coverage lies between 90 and 98 %
noise          stated noise (√``noise_variance_``) divided by the root mean square error on the new rows
within 1.5     fraction of the fits whose noise differs from this error by a factor of at most 1.5
off, std off   mean distance of the coverage from its level at 50, 80, 90, 95 and 99 %, in points: of intervals, and of
               the Gaussian with the stated standard deviation
NLPD, CRPS     mean scores of this Gaussian, for targets in units of their sd

The last line is over all fits. ``benchmarks/datasets.py`` describes the files NAME.npz of DIR.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import measure
from partirvm import RVMRegressor
from partirvm.core.residuals import LEVELS, Scores
from partirvm.errors import PartirvmWarning

Float = NDArray[np.float64]

SETS = ("kin40k", "protein", "airfoil", "pumadyn_8nm")
KERNELS = ("gaussian", "matern52")
NEW_ROWS, FIRST_SEED = 4000, 100

COLUMNS = {"set": "", "kernel": "", "rows": "d", "vectors": ".0f", "RMSE": ".3f", "coverage %": ".1f", "least %": ".1f"}
COLUMNS |= {"largest %": ".1f", "sound": ".2f", "noise": ".2f", "within 1.5": ".2f", "off": ".1f", "std off": ".1f"}
COLUMNS |= {"NLPD": ".3f", "CRPS": ".3f", "seconds": ".1f"}


def fit(X: Float, y: Float, rows: int, seed: int, kernel: str) -> dict[str, Any]:
    """Return the figures of one fit."""
    order = np.random.default_rng(seed).permutation(len(y))
    train, test = order[:rows], order[rows : rows + NEW_ROWS]
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PartirvmWarning)
        model = RVMRegressor(kernel=kernel, random_state=0).fit(X[train], y[train])
        seconds = time.process_time() - began
        mean, std = model.predict(X[test], return_std=True)
        multiples = model.model_.multiples(LEVELS)
    unit = float(y.std())
    t, mean, variance = y[test] / unit, mean / unit, (std / unit) ** 2
    intervals, gaussian = Scores.of(t, mean, variance, multiples=multiples), Scores.of(t, mean, variance)
    return {
        "vectors": model.n_relevance_vectors_,
        "RMSE": gaussian.rmse,
        "coverage %": 100 * intervals.coverage[LEVELS.index(0.95)],
        "noise": model.noise_variance_**0.5 / unit / gaussian.rmse,
        "curve": intervals.coverage,
        "off": 100 * float(np.abs(np.subtract(intervals.coverage, LEVELS)).mean()),
        "std off": 100 * float(np.abs(np.subtract(gaussian.coverage, LEVELS)).mean()),
        "NLPD": gaussian.nlpd,
        "CRPS": gaussian.figures()["crps"],
        "seconds": seconds,
    }


def line(fits: list[dict[str, Any]], **names: Any) -> dict[str, Any]:
    """Return the row of the table that summarises these fits."""
    coverage, noise = (np.array([each[name] for each in fits]) for name in ("coverage %", "noise"))
    means = ("vectors", "RMSE", "coverage %", "noise", "off", "std off", "NLPD", "CRPS", "seconds")
    return {
        **names,
        **{name: float(np.mean([each[name] for each in fits])) for name in means},
        "least %": float(coverage.min()),
        "largest %": float(coverage.max()),
        "sound": float(((coverage >= 90) & (coverage <= 98)).mean()),
        "within 1.5": float((np.abs(np.log(noise)) <= np.log(1.5)).mean()),
        "curve": np.mean([each["curve"] for each in fits], axis=0).tolist(),
    }


def main(arguments: list[str] | None = None) -> None:
    """Run all fits; write the table after each line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, metavar="DIR", help="folder of the .npz files")
    parser.add_argument("--sets", nargs="+", default=SETS, metavar="NAME", help="data sets (default: four)")
    parser.add_argument("--rows", nargs="+", type=int, default=(200, 400, 700), help="training rows")
    parser.add_argument("--seeds", type=int, default=10, help="number of samples of each size (default: 10)")
    parser.add_argument("--output", default="benchmarks/results", help="output folder (default: benchmarks/results)")
    options = parser.parse_args(arguments)
    table, everything = [], []
    for name in options.sets:
        with np.load(Path(options.data, f"{name}.npz")) as file:
            X, y = file["X"], file["y"]
        for rows in options.rows:
            for kernel in KERNELS:
                seeds = range(FIRST_SEED, FIRST_SEED + options.seeds)
                fits = [fit(X, y, rows, seed, kernel) for seed in seeds]
                everything += fits
                table.append(line(fits, set=name, kernel=kernel, rows=rows))
                whole = line(everything, set="all", kernel="", rows=0)
                measure.write(options.output, "small_samples", [*table, whole], COLUMNS)
    curve = ", ".join(
        f"{100 * found:.1f} at {100 * level:.0f} %" for level, found in zip(LEVELS, whole["curve"], strict=True)
    )
    measure.say(f"mean coverage of intervals: {curve}")


if __name__ == "__main__":
    main()
