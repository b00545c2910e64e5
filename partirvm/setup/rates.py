"""Measure the speed of this machine, for the time estimate of the plan and the choice of the kernel store."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from partirvm.blas_threads import one_blas_thread
from partirvm.data import Source
from partirvm.planning.cost import Rates
from partirvm.strategies.problem import Problem

CALIBRATION_ROWS = 256
"""Number of rows, and of centres, of the kernel block that is timed."""


def calibrate(source: Source, problem: Problem) -> Rates:
    """Measure the rates of one thread on the first tile; without a kernel, leading columns are timed as elements."""
    with one_blas_thread():
        began = time.perf_counter()
        tile = source.tile(0)
        read = (time.perf_counter() - began) / len(tile.X)
        X = tile.X[:CALIBRATION_ROWS]
        centres = X[:256]
        design = problem.empty.with_centres(centres, np.arange(len(centres)))
        design = design if problem.n_kernels else design.led_by(problem.leading)
        block = design.block(X)
        element = _least_seconds(lambda: design.block(X, block)) / block.size
        kept, places = block.T.copy(), np.arange(block.shape[1])
        copy = _least_seconds(lambda: np.take(kept, places, axis=0, out=block.T, mode="clip")) / block.size
    return Rates(read, element, product_rate(), copy)


@cache
def product_rate() -> float:
    """Measure the flops per second of one thread in matrix products, once per process."""
    square = np.ones((512, 512))
    with one_blas_thread():
        return 2 * 512**3 / _least_seconds(lambda: square @ square)


def _least_seconds(work: Callable[[], Any], times: int = 3) -> float:
    """Run the function several times; return the shortest time, which other processes slowed down least."""
    spans = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        spans.append(time.perf_counter() - began)
    return min(spans)
