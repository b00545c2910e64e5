"""Seconds of one posterior of M columns, on one and several threads, beside LAPACK on one thread.

    python -m benchmarks.dense [--columns M ...] [--threads N ...] [--repeats K] [--output FOLDER]

``speedup`` is the seconds on one thread ÷ those on ``threads`` threads, ``beside_lapack`` the seconds of the formula
that uses LAPACK for the whole matrix (one thread) ÷ those on ``threads`` threads. ``same_bits`` is true if mean,
variance, factor and evidence have the bits of one thread. Repeats alternate; seconds are medians. The limit is the time
of the ⅔ M³ multiplications of factor and inverse at the rate of a matrix product on these threads.
"""

from __future__ import annotations

import argparse
import time
from statistics import median
from typing import Any
from unittest import mock

import numpy as np

from benchmarks.measure import say, write
from partirvm.blas_threads import one_blas_thread
from partirvm.core import tiled
from partirvm.core.posterior import Posterior, posterior
from partirvm.core.statistics import GramBlock, GramStatistics

COLUMNS = {
    "columns": ",", "threads": "", "milliseconds": ".0f", "speedup": ".2f", "beside_lapack": ".2f", "same_bits": "",
}  # fmt: skip

LAPACK = 0
"""The number of "threads" that stands for LAPACK on the whole matrix."""


def statistics(columns: int) -> GramStatistics:
    """Return statistics of random columns."""
    rows = np.random.default_rng(0).normal(size=(columns + 50, columns + 1))
    block = GramBlock.of(rows[:, :0], rows[:, 1:], rows[:, :1])
    return GramStatistics.empty("dense").extend(np.arange(columns), block, "dense")


def timed(given: GramStatistics, threads: int) -> tuple[float, Posterior]:
    """Return the seconds of a posterior, and the posterior."""
    alpha = np.linspace(0.1, 2.0, given.n_columns)
    least = np.iinfo(int).max if threads == LAPACK else 1
    with mock.patch.object(tiled, "LEAST", least), one_blas_thread(), tiled.on_threads(max(threads, 1)):
        began = time.perf_counter()
        found = posterior(given, alpha, 3.0)
        return time.perf_counter() - began, found


def bits(found: Posterior) -> tuple[Any, ...]:
    """Return what must not depend on the number of threads."""
    return found.mean.tobytes(), found.variance.tobytes(), found.factor.tobytes(), found.log_evidence


def measure(columns: int, threads: list[int], repeats: int) -> list[dict[str, Any]]:
    """Measure a size with LAPACK and with all numbers of threads."""
    given, ways = statistics(columns), [LAPACK, *threads]
    seconds: dict[int, list[float]] = {way: [] for way in ways}
    found: dict[int, tuple[Any, ...]] = {}
    for _ in range(repeats):
        for way in ways:
            taken, result = timed(given, way)
            seconds[way].append(taken)
            found[way] = bits(result)
    middle = {way: median(each) for way, each in seconds.items()}
    return [
        {
            "columns": columns,
            "threads": way,
            "milliseconds": 1e3 * middle[way],
            "speedup": middle[threads[0]] / middle[way],
            "beside_lapack": middle[LAPACK] / middle[way],
            "same_bits": found[way] == found[threads[0]],
        }
        for way in threads
    ]


def main(arguments: list[str] | None = None) -> None:
    """Run the benchmark and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--columns", type=int, nargs="+", default=[1000, 1500, 2000, 3000, 4000], metavar="M")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2, 3, 4, 8], metavar="N")
    parser.add_argument("--repeats", type=int, default=5, metavar="K")
    parser.add_argument("--output", default="benchmarks/results", help="output folder (default: benchmarks/results)")
    options = parser.parse_args(arguments)
    rows = []
    for columns in options.columns:
        rows += measure(columns, options.threads, options.repeats)
        say(f"{columns:,} columns: {rows[-1]['milliseconds']:.0f} ms on {rows[-1]['threads']} threads")
    write(options.output, "dense", rows, COLUMNS)


if __name__ == "__main__":
    main()
