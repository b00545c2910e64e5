"""The noise variance of a last fit to many rows: from its statistics, or from a pass where these have lost digits."""

from __future__ import annotations

import numpy as np
import pytest
from simulator import Simulator, wave

from partirvm.likelihoods import gaussian
from partirvm.likelihoods.passes import LeaveOneOutPass, ResidualPass
from partirvm.strategies.problem import Options

OPTIONS = Options(20, "random", max_rounds=3)


@pytest.fixture(autouse=True)
def many_rows(monkeypatch):
    """Four hundred rows are many."""
    monkeypatch.setattr(gaussian, "LEFT_OUT_ROWS", 399)


def last_passes(simulator):
    """The kinds of the passes that follow the last fit."""
    return [type(pass_) for pass_ in simulator.turns[-2]]


def test_precise_statistics_need_no_pass():
    """σ² is MacKay's, of the residuals of all rows; the rows left out are read alone."""
    simulator = Simulator(*wave(400, noise=0.3), gamma=0.5)
    simulator.run("working-set", OPTIONS)
    assert last_passes(simulator) == [LeaveOneOutPass]
    design, fit = simulator.saves[-1].design, simulator.saves[-1].fit
    mean = fit.posterior.means[:, 0]
    residual = np.sum((simulator.t[:, 0] - simulator.phi(design) @ mean) ** 2)
    assert fit.posterior.residual == pytest.approx(residual, rel=1e-8)
    free = 400 - fit.posterior.determinedness.sum()
    assert 1 / fit.beta == pytest.approx(residual / free, rel=1e-3)


def test_statistics_that_lost_digits_need_a_pass():
    """Without noise the residual is as small as its rounding error."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(400, 1))
    simulator = Simulator(X, np.sin(2 * X[:, 0]), gamma=0.5)
    simulator.run("working-set", OPTIONS)
    (solved,) = simulator.answers[-3]
    found = solved.fit.posterior
    assert found.rounding > gaussian.PRECISE * found.residual
    assert last_passes(simulator) == [LeaveOneOutPass, ResidualPass]
