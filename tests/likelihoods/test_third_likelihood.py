"""A likelihood that the package does not know is fitted, saved and predicted: nothing but its own file knows of it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from scipy.optimize import minimize
from student import NU, StudentLikelihood

from partirvm.core.termination import Termination
from partirvm.data import as_source
from partirvm.execution.local import LocalExecutor
from partirvm.jobs.checkpoint import attached, load_checkpoint, save_checkpoint
from partirvm.jobs.driver import Driver, MemoryJournal
from partirvm.kernels import Gaussian
from partirvm.kernels.design import Design
from partirvm.likelihoods import GAUSSIAN, LIKELIHOODS
from partirvm.model import load_model, save_model
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


@dataclass
class Keeping(MemoryJournal):
    """Checkpoints too, as they are stored, with the history and the model that stood when they were handed over."""

    checkpoints: list = field(default_factory=list)

    def checkpoint(self, checkpoint):
        """Keep it."""
        self.checkpoints.append((checkpoint, list(self.history), self.model))


def fitted(rows, strategy, likelihood, selection="random", threads=2, resume=None, **options):
    """Outcome and journal of a fit by the real driver and executor; ``resume``: a kept checkpoint to go on from."""
    X, y, _ = rows
    source = as_source(X, y, tile_rows=64)
    scaling = Scaling(np.zeros(1), np.ones(1), np.array([y.mean()]), np.ones(1))
    empty = Design(Gaussian((1.0,)), scaling, np.zeros((0, 1)), np.zeros(0, np.int64), bias=False)
    problem = Problem(N, empty, True, float(y.var()), None, 1.0, False, False, likelihood=likelihood)
    executor, journal = LocalExecutor(threads), Keeping()
    try:
        chosen = Options(30, selection, max_passes=300, **options)
        resumed = {}
        if resume is not None:
            stored, history, model = resume
            journal = Keeping(model, list(history))
            resumed = {"resume": attached(stored, problem, chosen), "usable": model is not None}
        run = Driver(executor, source).run
        return run(STRATEGIES[strategy](), problem, chosen, journal, **resumed), journal
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


def test_its_model_is_saved_and_read_back(rows, tmp_path):
    """Predictions are the same bits."""
    X, _, _ = rows
    _, journal = fitted(rows, "basic", StudentLikelihood())
    save_model(journal.model, tmp_path / "m")
    np.testing.assert_array_equal(load_model(tmp_path / "m").predict(X), journal.model.predict(X))


def test_its_bits_do_not_depend_on_threads(rows):
    """Its passes are summed over tiles in the fixed tree, as those of the package are."""
    first, second = (fitted(rows, "working-set", StudentLikelihood(), threads=n)[1].model for n in (1, 3))
    assert first.digest() == second.digest()


@pytest.mark.parametrize("strategy", ["working-set", "incremental", "split-merge"])
def test_a_run_goes_on_from_its_checkpoint_to_the_same_bits(rows, strategy, tmp_path, monkeypatch):
    """Written to disk in the middle and read back; the verbs that do it are the likelihood's."""
    monkeypatch.setitem(LIKELIHOODS, StudentLikelihood.name, StudentLikelihood())
    _, whole = fitted(rows, strategy, StudentLikelihood(), max_rounds=4)
    assert len(whole.checkpoints) >= 2
    last, history, model = whole.checkpoints[len(whole.checkpoints) // 2 - 1]
    save_checkpoint(last, str(tmp_path / "c"))
    kept = load_checkpoint(str(tmp_path / "c")), history, model
    _, later = fitted(rows, strategy, StudentLikelihood(), max_rounds=4, resume=kept)
    assert later.model.digest() == whole.model.digest()
    assert [line["vectors"] for line in later.history] == [line["vectors"] for line in whole.history]
