"""A likelihood that the package does not know is fitted, saved and predicted: nothing but its own file knows of it."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from student import NU, StudentLikelihood

from partirvm.core.termination import Termination
from partirvm.data import as_source
from partirvm.execution.local import LocalExecutor
from partirvm.jobs.driver import Driver, MemoryJournal
from partirvm.kernels import Gaussian
from partirvm.kernels.design import Design
from partirvm.likelihoods import GAUSSIAN
from partirvm.strategies import STRATEGIES
from partirvm.strategies.problem import Options, Problem
from partirvm.types import Scaling

N = 240


@pytest.fixture(scope="module")
def rows():
    """A sine with little noise, one row in ten far off."""
    rng = np.random.default_rng(7)
    X = np.sort(rng.uniform(-4, 4, (N, 1)), axis=0)
    clean = np.sin(1.5 * X[:, 0])
    off = rng.uniform(size=N) < 0.1
    return X, clean + 0.05 * rng.normal(size=N) + off * rng.normal(scale=4.0, size=N), clean


def fitted(rows, strategy, likelihood, selection="random", threads=2, **options):
    """Outcome and journal of a fit by the real driver and executor."""
    X, y, _ = rows
    source = as_source(X, y, tile_rows=64)
    scaling = Scaling(np.zeros(1), np.ones(1), np.array([y.mean()]), np.ones(1))
    empty = Design(Gaussian((1.0,)), scaling, np.zeros((0, 1)), np.zeros(0, np.int64), bias=False)
    problem = Problem(N, empty, True, float(y.var()), None, 1.0, False, False, likelihood=likelihood)
    executor, journal = LocalExecutor(threads), MemoryJournal()
    try:
        run = Driver(executor, source).run
        return run(STRATEGIES[strategy](), problem, Options(30, selection, max_passes=300, **options), journal), journal
    finally:
        executor.close()


@pytest.mark.parametrize("strategy", ["basic", "working-set", "incremental", "split-merge"])
def test_the_mean_is_the_mode_and_outliers_do_not_move_it(rows, strategy):
    """log p(w | t) = −½(ν + 1) Σ log(1 + β r² / ν) − ½ wᵀAw + const, maximised densely by BFGS."""
    X, y, clean = rows
    outcome, journal = fitted(rows, strategy, StudentLikelihood())
    assert outcome.last.kind == "final"
    assert outcome.last.termination is Termination.CONVERGED
    design, fit = outcome.kept
    Phi, t = design.block(X), y - y.mean()

    def negative(w):
        r = t - Phi @ w
        value = 0.5 * (NU + 1) * np.log1p(fit.beta * r**2 / NU).sum() + 0.5 * fit.alpha @ w**2
        return value, fit.alpha * w - Phi.T @ ((NU + 1) * fit.beta * r / (NU + fit.beta * r**2))

    mean = fit.posterior.mean
    dense = minimize(negative, mean + 1e-3, jac=True, method="BFGS", options={"gtol": 1e-8})
    np.testing.assert_allclose(Phi @ mean, Phi @ dense.x, atol=1e-4)
    robust = np.abs(journal.model.predict(X) - clean).mean()
    plain = np.abs(fitted(rows, strategy, GAUSSIAN)[1].model.predict(X) - clean).mean()
    assert robust < 0.05
    assert robust < 0.5 * plain


@pytest.mark.parametrize("selection", ["random", "error", "gain"])
def test_every_selection_knows_it(rows, selection):
    """Candidates are chosen by the verbs of the likelihood."""
    outcome, journal = fitted(rows, "working-set", StudentLikelihood(), selection, max_rounds=3)
    assert outcome.last.vectors > 0
    assert selection in {entry["selection"] for entry in journal.history}
    assert np.isfinite(journal.history[-1]["log_evidence"])


def test_its_bits_do_not_depend_on_threads(rows):
    """Its passes are summed over tiles in the fixed tree, as those of the package are."""
    first, second = (fitted(rows, "working-set", StudentLikelihood(), threads=n)[1].model for n in (1, 3))
    assert first.digest() == second.digest()
