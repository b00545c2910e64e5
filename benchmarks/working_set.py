"""The working set on real data: seconds, peak memory, test RMSE and NLPD, vectors, and the ratio R defined below.

    python -m benchmarks.working_set --data DIR [--case NAME ...] [--selections] [--output FOLDER]

R is the time of a whole fit, from opening DATA to the last model, divided by the time of one *bare pass* at the final
number of vectors. The bare pass only reads the same tiles, evaluates the same kernel columns, and sums one symmetric
product ΦᵀΦ. ``bare_rate`` is the flop rate of the bare pass as a fraction of the machine's ``dgemm`` rate, counting
only M² flops per row for M vectors. RMSE and NLPD are for held-out rows, in units of the sd of the training target.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import reduce
from operator import add
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import partirvm
from benchmarks.datasets import load
from benchmarks.measure import apart, write
from partirvm import jobs, predict
from partirvm.backends.local import usable_cores
from partirvm.backends.threads import one_blas_thread
from partirvm.data import ZarrSource
from partirvm.model import Model, load_model, save_model
from partirvm.options import Request
from partirvm.types import PANEL_ROWS

Float = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Case:
    """A fit: data set, width, candidates per round, rounds."""

    name: str
    gamma: float
    partition_size: int
    rounds: int


CASES = {
    case.name: case
    for case in (
        Case("kin40k", 0.1, 500, 9),
        Case("protein", 0.33, 500, 9),
        Case("etopo20", 50.0, 250, 6),
        Case("nyc_green_taxi", 1 / 9, 250, 5),
    )
}

COLUMNS = {
    "data": "", "selection": "", "rows": ",", "rounds": "", "vectors": ",", "seconds": ".1f", "peak_mib": ".0f",
    "rmse": ".4f", "nlpd": ".3f", "coverage_95": ".3f", "bare_seconds": ".2f", "bare_rate": ".2f", "R": ".2f",
}  # fmt: skip


def ingest(folder: str, name: str, target: str) -> dict[str, Any]:
    """Make DATA from the training and the test rows of a set."""
    split = load(folder, name)
    partirvm.ingest((split.X, split.y), f"{target}/train.zarr")
    partirvm.ingest((split.X_test, split.y_test), f"{target}/test.zarr")
    return {"deviation": split.deviation, "rows": len(split.y)}


def fit(place: str, case: Case, selection: str, memory_limit: str) -> dict[str, Any]:
    """Run one whole fit in this process, and return its measurements."""
    began = time.perf_counter()
    parameters = Request(
        gamma=case.gamma,
        partition_size=case.partition_size,
        max_rounds=case.rounds,
        selection=selection,
        memory_limit=memory_limit,
    )
    fitted = jobs.fit(f"{place}/train.zarr", f"{place}/job", parameters, overwrite=True)
    seconds = time.perf_counter() - began
    save_model(fitted.model, f"{place}/model-{selection}-{time.time_ns()}")
    return {"seconds": seconds, "vectors": fitted.model.n_vectors, "selection": fitted.plan.selection}


def evaluate(place: str) -> dict[str, Any]:
    """Compute the scores of the model on the test rows."""
    return predict.evaluate(f"{place}/job", f"{place}/test.zarr")


def bare_pass(model: Model, source: ZarrSource) -> float:
    """Return the seconds of one pass that reads the tiles, evaluates the model's columns and sums ΦᵀΦ."""

    def gram(number: int) -> Float:
        X = source.tile(number).X
        panels = (model.design.block(X[start : start + PANEL_ROWS]) for start in range(0, len(X), PANEL_ROWS))
        return reduce(add, (block.T @ block for block in panels))

    began = time.perf_counter()
    with one_blas_thread(), ThreadPoolExecutor(usable_cores()) as pool:
        reduce(add, pool.map(gram, range(source.n_tiles)))
    return time.perf_counter() - began


def dgemm_rate(size: int = 2000, repeats: int = 5) -> float:
    """Return the flops per second of a square matrix product on all cores: the median of several runs."""
    a = np.random.default_rng(0).standard_normal((size, size))
    seconds = []
    with threadpool_limits(usable_cores(), user_api="blas"):
        a @ a
        for _ in range(repeats):
            began = time.perf_counter()
            a @ a
            seconds.append(time.perf_counter() - began)
    return 2 * size**3 / median(seconds)


def bare(place: str, repeats: int) -> dict[str, Any]:
    """Measure the bare pass at the final number of vectors, and its flop rate compared with ``dgemm``."""
    (newest,) = sorted(Path(place).glob("model-*"))[-1:]
    model, source = load_model(str(newest)), ZarrSource(f"{place}/train.zarr")
    seconds = median(bare_pass(model, source) for _ in range(repeats))
    flops = source.n_rows * model.design.n_columns**2
    return {"bare_seconds": seconds, "bare_rate": flops / seconds / dgemm_rate()}


def measure(folder: str, case: Case, selection: str, memory_limit: str, repeats: int) -> dict[str, Any]:
    """Measure all quantities of one case, each in a separate process; fits and bare passes alternate."""
    with tempfile.TemporaryDirectory(prefix="partirvm-benchmark-") as place:
        about = apart(ingest, folder, case.name, place)
        fits, passes = [], []
        for _ in range(repeats):
            fits.append(apart(fit, place, case, selection, memory_limit))
            passes.append(apart(bare, place, 1))
        scores = apart(evaluate, place)
    seconds = median(run["seconds"] for run in fits)
    bare_seconds = median(run["bare_seconds"] for run in passes)
    return {
        "data": case.name,
        "selection": fits[0]["selection"],
        "rows": about["rows"],
        "rounds": case.rounds,
        "vectors": fits[0]["vectors"],
        "seconds": seconds,
        "peak_mib": max(run["peak_mib"] for run in fits),
        "rmse": scores["rmse"] / about["deviation"],
        "nlpd": scores["nlpd"] - math.log(about["deviation"]),
        "coverage_95": scores["coverage_95"],
        "bare_seconds": bare_seconds,
        "bare_rate": median(run["bare_rate"] for run in passes),
        "R": seconds / bare_seconds,
    }


def main() -> None:
    """Run the requested cases and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="folder of the .npz files, see benchmarks/datasets.py")
    parser.add_argument("--case", choices=CASES, nargs="+", default=list(CASES), help="data sets (default: all)")
    parser.add_argument("--selections", action="store_true", help="compare the selections error, random and gain")
    parser.add_argument("--memory-limit", default="2GiB", help="memory limit of each process (default: 2GiB)")
    parser.add_argument(
        "--repeats", type=int, default=3, help="number of runs of each fit; the table has the median (default: 3)"
    )
    parser.add_argument("--output", default="benchmarks/results", help="output folder (default: benchmarks/results)")
    options = parser.parse_args()
    selections = ("error", "random", "gain") if options.selections else ("auto",)
    rows = [
        measure(options.data, CASES[name], selection, options.memory_limit, options.repeats)
        for name in options.case
        for selection in selections
    ]
    write(options.output, "selections" if options.selections else "working_set", rows, COLUMNS)


if __name__ == "__main__":
    main()
