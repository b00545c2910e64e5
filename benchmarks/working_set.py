"""The working set on real data: seconds, peak memory, test RMSE and NLPD, vectors, and the ratio R
defined below.

    python -m benchmarks.working_set --data DIR [--case NAME ...] [--selections | --fit-rows]
    [--cores N]

R is the time of a whole fit, from opening DATA to the final model, divided by the time of one *bare
pass* at the final number of vectors. The bare pass only reads the same tiles, evaluates the same
kernel columns, and sums one symmetric product ΦᵀΦ. ``bare_rate`` is the flop rate of the bare pass
as a fraction of the machine's ``dgemm`` rate, counting only M² flops per row for M vectors. RMSE
and NLPD are for held-out rows, in units of the sd of the training target.

``--fit-rows`` compares fits whose rounds use all rows with fits whose rounds use a growing sample,
both with constant noise and with the default noise. There, R refers to the bare pass with as many
vectors as the fit that uses all rows and constant noise. The case ``generated`` has 10⁷ rows.
"""

from __future__ import annotations

import math
import os
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import reduce
from operator import add
from pathlib import Path
from shutil import rmtree
from statistics import median
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import partirvm
from benchmarks.datasets import Split, load
from benchmarks.measure import apart, command_line, say, write
from partirvm import jobs, predict
from partirvm.data import ZarrSource
from partirvm.model import Model, load_model, save_model
from partirvm.options import Request
from partirvm.process import one_blas_thread, usable_cores
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
        Case("generated", 0.5, 250, 5),
    )
}

GENERATED_ROWS = 10_000_000

COLUMNS = {
    "data": "", "selection": "", "fit_rows": "", "noise": "", "rows": ",", "rounds": "", "vectors": ",",
    "seconds": ".1f", "peak_mib": ".0f", "rmse": ".4f", "nlpd": ".3f", "coverage_95": ".3f", "evidence": ".4f",
    "bare_seconds": ".2f", "bare_rate": ".2f", "R": ".2f",
}  # fmt: skip


@dataclass(frozen=True)
class Way:
    """Options in which the compared fits differ."""

    selection: str = "auto"
    fit_rows: str = "auto"
    noise: str = "auto"

    @property
    def name(self) -> str:
        """A name for files."""
        return f"{self.selection}-{self.fit_rows}-{self.noise}"


def ingest(folder: str, name: str, target: str) -> dict[str, Any]:
    """Make DATA from the training and the test rows of a set."""
    split = generated(GENERATED_ROWS) if name == "generated" else load(folder, name)
    partirvm.ingest((split.X, split.y), f"{target}/train.zarr")
    partirvm.ingest((split.X_test, split.y_test), f"{target}/test.zarr")
    return {"deviation": split.deviation, "rows": len(split.y)}


def generated(train: int) -> Split:
    """Return training rows of a smooth function of four inputs with noise of .2, and 20,000 test
    rows."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, size=(train + 20_000, 4))
    y = (
        np.sin(2 * X[:, 0] + X[:, 1])
        + np.cos(X[:, 2] - 0.5 * X[:, 3] ** 2)
        + 0.2 * rng.normal(size=len(X))
    )
    return Split("generated", X[:train], y[:train], X[train:], y[train:])


def fit(place: str, case: Case, way: Way, memory_limit: str, cores: int) -> dict[str, Any]:
    """Run one whole fit in this process, and return its measurements."""
    _use(cores)
    began = time.perf_counter()
    parameters = Request(
        gamma=case.gamma,
        partition_size=case.partition_size,
        max_rounds=case.rounds,
        memory_limit=memory_limit,
        **vars(way),
    )
    job = f"{place}/job-{way.name}"
    fitted = jobs.fit(f"{place}/train.zarr", job, parameters, overwrite=True)
    seconds = time.perf_counter() - began
    if Path(f"{job}-model").exists():
        rmtree(f"{job}-model")
    save_model(fitted.model, f"{job}-model")
    last = fitted.history[-1]
    plan = {name: getattr(fitted.plan.request, name) for name in ("selection", "fit_rows")}
    evidence = last["log_evidence"] / last["rows"]
    return {"seconds": seconds, "vectors": fitted.model.n_vectors, "evidence": evidence, **plan}


def evaluate(place: str, way: Way) -> dict[str, Any]:
    """Compute the scores of the model on the test rows."""
    return predict.evaluate(f"{place}/job-{way.name}", f"{place}/test.zarr")


def _use(cores: int) -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])


def bare_pass(model: Model, source: ZarrSource) -> float:
    """Return the seconds of one pass that reads the tiles, evaluates the model's columns and sums
    ΦᵀΦ."""

    def gram(number: int) -> Float:
        X = source.tile(number).X
        panels = (
            model.design.block(X[start : start + PANEL_ROWS])
            for start in range(0, len(X), PANEL_ROWS)
        )
        return reduce(add, (block.T @ block for block in panels))

    began = time.perf_counter()
    with one_blas_thread(), ThreadPoolExecutor(usable_cores()) as pool:
        reduce(add, pool.map(gram, range(source.n_tiles)))
    return time.perf_counter() - began


def dgemm_rate(size: int = 2000, repeats: int = 5) -> float:
    """Return the flops per second of a square matrix product on all cores: the median of several
    runs."""
    a = np.random.default_rng(0).standard_normal((size, size))
    seconds = []
    with threadpool_limits(usable_cores(), user_api="blas"):
        a @ a
        for _ in range(repeats):
            began = time.perf_counter()
            a @ a
            seconds.append(time.perf_counter() - began)
    return 2 * size**3 / median(seconds)


def bare(place: str, way: Way, cores: int) -> dict[str, Any]:
    """Measure the bare pass at the final number of vectors, and its flop rate compared with
    ``dgemm``."""
    _use(cores)
    model = load_model(f"{place}/job-{way.name}-model")
    source = ZarrSource(f"{place}/train.zarr")
    seconds = bare_pass(model, source)
    flops = source.n_rows * model.design.n_columns**2
    return {"bare_seconds": seconds, "bare_rate": flops / seconds / dgemm_rate()}


def measure(
    folder: str, case: Case, ways: Sequence[Way], memory_limit: str, cores: int, repeats: int
) -> list[dict[str, Any]]:
    """Measure all quantities of one case, each in a separate process; fits of all ways and bare
    passes alternate.

    R refers to the bare pass of the first way.
    """
    with tempfile.TemporaryDirectory(prefix="partirvm-benchmark-") as place:
        about = apart(ingest, folder, case.name, place)
        fits: dict[Way, list[dict[str, Any]]] = {way: [] for way in ways}
        passes = []
        for _ in range(repeats):
            for way in ways:
                fits[way].append(apart(fit, place, case, way, memory_limit, cores))
            passes.append(apart(bare, place, ways[0], cores))
        scores = {way: apart(evaluate, place, way) for way in ways}
    bare_seconds = median(run["bare_seconds"] for run in passes)
    rows = []
    for way, runs in fits.items():
        seconds = median(run["seconds"] for run in runs)
        rows.append(
            {
                "data": case.name,
                "selection": runs[0]["selection"],
                "fit_rows": runs[0]["fit_rows"],
                "noise": way.noise,
                "rows": about["rows"],
                "rounds": case.rounds,
                "vectors": runs[0]["vectors"],
                "seconds": seconds,
                "peak_mib": max(run["peak_mib"] for run in runs),
                "rmse": scores[way]["rmse"] / about["deviation"],
                "nlpd": scores[way]["nlpd"] - math.log(about["deviation"]),
                "coverage_95": scores[way]["coverage_95"],
                "evidence": runs[0]["evidence"],
                "bare_seconds": bare_seconds,
                "bare_rate": median(run["bare_rate"] for run in passes),
                "R": seconds / bare_seconds,
            }
        )
        say(
            "  ".join(
                f"{name} {value:.4g}" if isinstance(value, float) else str(value)
                for name, value in rows[-1].items()
            )
        )
    return rows


def main() -> None:
    """Run the requested cases and write the table."""
    parser = command_line(__doc__)
    default = [name for name in CASES if name != "generated"]
    parser.add_argument(
        "--case",
        choices=CASES,
        nargs="+",
        default=default,
        help="data sets (default: the public ones)",
    )
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--selections", action="store_true", help="compare the selections error, random and gain"
    )
    group.add_argument(
        "--fit-rows",
        action="store_true",
        help="compare all rows with growing samples in the rounds",
    )
    parser.add_argument(
        "--cores", type=int, default=usable_cores(), help="number of cores (default: all)"
    )
    parser.add_argument(
        "--memory-limit", default="2GiB", help="memory limit of each process (default: 2GiB)"
    )
    parser.add_argument(
        "--repeats",
        type=int,
        default=3,
        help="number of runs of each fit; the table has the median (default: 3)",
    )
    options = parser.parse_args()
    name = "working_set"
    ways = [Way()]
    if options.selections:
        name = "selections"
        ways = [Way(selection) for selection in ("error", "random", "gain")]
    if options.fit_rows:
        name = "fit_rows"
        ways = [
            Way(fit_rows=rows, noise=noise)
            for noise in ("constant", "auto")
            for rows in ("full", "growing")
        ]
    rows = []
    for case in options.case:
        rows += measure(
            options.data, CASES[case], ways, options.memory_limit, options.cores, options.repeats
        )
    write(options.output, name, rows, COLUMNS)


if __name__ == "__main__":
    main()
