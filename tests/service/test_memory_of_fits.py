"""What a fit allocates against what its plan says: traced allocations, no process of its own."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from partirvm.backends import LocalExecutor
from partirvm.data import ArraySource
from partirvm.jobs.driver import MemoryJournal
from partirvm.service.fitting import run
from partirvm.service.preparing import prepare
from partirvm.types import FitParameters

pytestmark = pytest.mark.filterwarnings("ignore::partirvm.errors.PartirvmWarning")


def traced(n, **asked):
    """The plan of a fit of n rows, most of which it keeps, the most bytes that it held at once, and its vectors."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(n, 3))
    t = np.sin(9 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.01 * rng.normal(size=n)
    executor, journal = LocalExecutor(2), MemoryJournal()
    prepared = prepare(ArraySource(X, t, tile_rows=128), FitParameters(gamma=400.0, **asked), executor)
    tracemalloc.start()
    try:
        run(prepared, executor, journal)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        executor.close()
    return prepared.plan, peak, journal.model.n_vectors


@pytest.fixture(scope="module", autouse=True)
def _warm():
    """Whatever is imported or cached by a first fit is not counted."""
    traced(40, strategy="basic")


@pytest.mark.parametrize("solver", ["auto", "fast", "fixed-point"])
def test_a_dense_fit_of_all_rows_takes_what_the_formula_says(solver):
    """10 f (M + P)², though nearly all columns are kept: no more, and no less than half of it."""
    n = 320
    plan, peak, vectors = traced(n, strategy="basic", solver=solver)
    assert vectors > 0.9 * n
    assert plan.bytes.solving == 10 * 8 * (n + 1) ** 2
    assert 0.5 * plan.bytes.solving <= peak <= plan.bytes.solving
