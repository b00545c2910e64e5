"""The pumadyn family with the splits of Ben-Shimon & Shmilovici (2006): 6,144 random training rows, 2,048 test rows.

    python -m benchmarks.learning.pumadyn --data DIR [--sets NAME ...] [--repeats 5] [--output FOLDER]

``RVMRegressor`` with defaults learns one width per feature. The table has mean and sd over splits. ``inputs`` are the
features with relevance ≥ 1e-3. A feature selected in only some splits has the number of these splits in brackets.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

import numpy as np

from benchmarks.datasets import load_random
from benchmarks.measure import apart, say, write

SETS = ("pumadyn_32nm", "pumadyn_8nm", "pumadyn_8fh", "pumadyn_32fh")

COLUMNS = {
    "data": "",
    "splits": "d",
    "rmse": ".5f",
    "sd": ".5f",
    "vectors": ".1f",
    "coverage": ".3f",
    "seconds": ".1f",
    "inputs": "",
}


def fit(folder: str, name: str, seed: int) -> dict[str, Any]:
    """Fit one split and return its results."""
    from partirvm import RVMRegressor

    split = load_random(folder, name, 6144, 2048, seed)
    began = time.perf_counter()
    model = RVMRegressor(random_state=seed).fit(split.X, split.y)
    seconds = time.perf_counter() - began
    mean, deviation = model.predict(split.X_test, return_std=True)
    error = split.y_test - mean
    return {
        "rmse": float(np.sqrt(np.mean(error**2))),
        "coverage": float(np.mean(np.abs(error) < 1.959964 * deviation)),
        "vectors": model.n_relevance_vectors_,
        "seconds": seconds,
        "inputs": model.get_support(indices=True).tolist(),
    }


def line(name: str, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the table row of a set."""
    errors = [run["rmse"] for run in runs]
    chosen = Counter(j for run in runs for j in run["inputs"])
    inputs = ", ".join(f"{j}" if n == len(runs) else f"{j} ({n})" for j, n in sorted(chosen.items()))
    means = {key: fmean(run[key] for run in runs) for key in ("vectors", "coverage", "seconds")}
    spread = {"rmse": fmean(errors), "sd": pstdev(errors)}
    return {"data": name, "splits": len(runs), "inputs": inputs, **means, **spread}


def main(arguments: list[str] | None = None) -> None:
    """Run the splits and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, metavar="DIR", help="folder of the .npz files")
    parser.add_argument("--sets", nargs="+", default=SETS, metavar="NAME")
    parser.add_argument("--repeats", type=int, default=5, help="number of splits, with seeds 0, 1, … (default: 5)")
    parser.add_argument("--output", default="benchmarks/results", help="output folder (default: benchmarks/results)")
    options = parser.parse_args(arguments)
    rows = []
    for name in options.sets:
        runs = [apart(fit, options.data, name, seed) for seed in range(options.repeats)]
        rows.append(line(name, runs))
        say(f"{rows[-1]}")
    write(Path(options.output) / "learning", "pumadyn", rows, COLUMNS)


if __name__ == "__main__":
    main()
