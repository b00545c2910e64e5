"""The small fit that measures how sparse a problem is."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.random import default_rng
from sampling import Passes, arm, problem_of, sample_of

from partirvm.data import ArraySource
from partirvm.execution import LocalExecutor
from partirvm.fit import Driver, MemoryJournal
from partirvm.kernels import Gaussian
from partirvm.resolve.small_fits import sparseness
from partirvm.spec import Options
from partirvm.strategies import BasicRound
from partirvm.types import Columns

ROWS = np.sort(default_rng(2).permutation(200)[:40])


@pytest.mark.parametrize("K", [0, 2])
def test_the_probe_equals_a_basic_fit_to_its_rows(K):
    """Vectors, evidence and error are equal."""
    X, f = arm(200, 2, noise=0.3)
    y = (f > 0.2).astype(float) if K else f
    problem = problem_of(X, y, Gaussian(0.5), K)
    passes = Passes()
    with sample_of(X, y, rows=ROWS, passes=passes) as sample:
        found = sparseness(sample, problem, 1e-7)
    assert all(len(rows) == 40 for _, rows in passes.made)
    assert (found.kind, found.fit_rows, found.selection) == ("heuristic", "sample", "random")
    assert found.rows == found.candidates == 40
    columns = Columns(("a", "b"), "y", classes=(0, 1)) if K else None
    journal = MemoryJournal()
    executor = LocalExecutor(1)
    source = ArraySource(X[ROWS], y[ROWS], columns=columns)
    own = replace(
        problem_of(X[ROWS], y[ROWS], Gaussian(0.5), K), target_variance=problem.target_variance
    )
    options = Options(40, "all", "sample", "sample", sample_rows=40, tol=1e-5)
    Driver(executor, source).run(BasicRound(), own, options, journal)
    executor.close()
    alone = journal.history[-1]
    assert (found.vectors, found.iterations) == (alone["vectors"], alone["iterations"])
    assert found.log_evidence == pytest.approx(alone["log_evidence"], rel=1e-9)
    assert found.train_error == alone["train_error"]
    assert found.train_rmse == (None if K else pytest.approx(alone["train_rmse"], rel=1e-9))


def test_the_noise_of_an_exact_target_is_computed_from_a_residual():
    """A difference of squares would have no correct digits."""
    X, _ = arm(200, 2)
    y = np.exp(-0.5 * ((X[:, None] - X[None, ROWS[:3]]) ** 2).sum(axis=2)) @ [1.0, -2.0, 1.5]
    with sample_of(X, y, rows=ROWS) as sample:
        found = sparseness(sample, problem_of(X, y, Gaussian(0.5), bias=False), 1e-7)
    assert found.train_rmse < 1e-4
    assert found.vectors < 40
