"""Which rows a fit sees and searches, and columns that join it."""

from __future__ import annotations

from dataclasses import replace

import naive
import numpy as np
import pytest
from simulator import Simulator, wave

from partirvm.core.statistics import GramBlock, GramStatistics
from partirvm.core.updates import HyperState
from partirvm.likelihoods import GAUSSIAN, gaussian
from partirvm.likelihoods.base import Solved
from partirvm.likelihoods.gaussian import Solve
from partirvm.likelihoods.passes import ErrorPass, GramPass, LeaveOneOutPass, ResidualPass
from partirvm.strategies.problem import Options

PARTITIONED = ["split-merge", "incremental", "working-set"]


@pytest.mark.parametrize("shuffled", [True, False])
@pytest.mark.parametrize("name", PARTITIONED)
def test_a_sample_is_the_same_for_every_intermediate_fit(name, shuffled):
    """sample_rows distinct rows; the last fit sees all."""
    simulator = Simulator(*wave(150, noise=0.3), shuffled=shuffled)
    simulator.run(name, Options(20, "random", "sample", sample_rows=60, max_rounds=4))
    passes = simulator.passes(GramPass)
    rows = passes[0].rows
    assert len(np.unique(rows)) == 60
    for pass_ in passes[:-1]:
        np.testing.assert_array_equal(pass_.rows, rows)
    assert passes[-1].rows is None
    assert simulator.passes(Solve)[-1].start.statistics.n == 150
    assert all(solve.start.statistics.n == 60 for solve in simulator.passes(Solve)[:-1])


@pytest.mark.parametrize("name", PARTITIONED)
def test_a_centre_far_from_every_row_of_the_sample(name):
    """Its column is zero there: an intermediate fit that has it prunes it at once, and nothing is divided by it."""
    X, y = wave(300, noise=0.3)
    X[250] = 1e3
    simulator = Simulator(X, y)
    simulator.run(name, Options(50, "random", "sample", sample_rows=100))
    assert 250 in simulator.candidates()
    for solve, answer in zip(simulator.passes(Solve), simulator.heard_of(Solved), strict=True):
        if solve.start.statistics.n == 100 and 250 in solve.start.statistics.labels:
            assert 250 not in answer.fit.statistics.labels


@pytest.mark.parametrize(("selection", "share"), [("largest-error", 1.0), ("error", 20 * 6 / 400)])
def test_candidates_are_the_largest_errors_of_the_rows_searched(selection, share):
    """``error`` searches 20·P of shuffled rows, ``largest-error`` all; both take P unused rows (Ben-Shimon & Shmilovici
    2006)."""
    rng = np.random.default_rng(2)
    X = rng.uniform(-3, 3, (400, 2))
    simulator = Simulator(X, np.sin(2 * X[:, 0]) * X[:, 1] + 0.1 * rng.normal(size=400))
    simulator.run("working-set", Options(partition_size=6, selection=selection, max_rounds=5))
    searches = 0
    for turn, answer in zip(simulator.turns, simulator.answers, strict=False):
        pass_ = turn[0]
        if not isinstance(pass_, ErrorPass):
            continue
        searched = simulator.sampled(pass_)
        assert searched.mean() == pytest.approx(share)
        Phi = np.hstack(
            [np.ones((400, int(pass_.design.bias))), naive.gaussian(X, pass_.design.centres, simulator.gamma)]
        )
        error = np.abs(simulator.t[:, 0] - Phi @ pass_.mean[:, 0])
        free = [row for row in np.argsort(-error) if searched[row] and row not in pass_.exclude]
        found = answer[0].rows.tolist()
        assert sorted(found) == sorted(free[:6])
        searches += 1
    assert searches >= 3


@pytest.mark.parametrize("new_rows", [[7], [7, 11, 2], [40, 41]])
def test_those_that_join_have_entered_and_the_others_keep_their_alpha(new_rows):
    """Actions begin without all columns that have entered, and with no other; the statistics are the dense ones."""
    simulator = Simulator(*wave(60))
    kept_rows, alpha, new_rows = np.array([9, 3, 30]), np.array([1e-3, 2.0, 0.5]), np.array(new_rows)
    kept = simulator.empty.with_centres(simulator.X[kept_rows], kept_rows)
    new = simulator.empty.with_centres(simulator.X[new_rows], new_rows)
    Phi, added, t = simulator.phi(kept), simulator.phi(new), simulator.t
    block = GramBlock.of(Phi[:, :0], Phi, t)
    before = HyperState(GramStatistics.of(kept.labels, block), alpha, 50.0, target_variance=1.0)

    fit = GAUSSIAN.join(simulator.problem, replace(before, iteration=3), kept, new, GramBlock.of(Phi, added, t))

    labels = fit.statistics.labels
    assert sorted(labels) == sorted([*kept_rows, *new_rows])
    assert fit.entered.tolist() == [label in new_rows for label in labels]
    assert {label: a for label, a, new in zip(labels, fit.alpha, fit.entered, strict=True) if not new} == dict(
        zip(kept_rows, alpha, strict=True)
    )
    design = naive.gaussian(simulator.X, simulator.X[labels], simulator.gamma)
    np.testing.assert_allclose(fit.statistics.gram, design.T @ design, rtol=1e-9, atol=1e-9)


def last_passes(simulator):
    """The kinds of the passes that follow the last fit."""
    return [type(pass_) for pass_ in simulator.turns[-2]]


def test_precise_statistics_need_no_pass(monkeypatch):
    """σ² is MacKay's, of the residuals of all rows; the rows left out are read alone."""
    monkeypatch.setattr(gaussian, "LEFT_OUT_ROWS", 399)
    simulator = Simulator(*wave(400, noise=0.3), gamma=0.5)
    simulator.run("working-set", Options(20, "random", max_rounds=3))
    assert last_passes(simulator) == [LeaveOneOutPass]
    design, fit = simulator.saves[-1].design, simulator.saves[-1].fit
    mean = fit.posterior.means[:, 0]
    residual = np.sum((simulator.t[:, 0] - simulator.phi(design) @ mean) ** 2)
    assert fit.posterior.residual == pytest.approx(residual, rel=1e-8)
    free = 400 - fit.posterior.determinedness.sum()
    assert 1 / fit.beta == pytest.approx(residual / free, rel=1e-3)


def test_statistics_that_lost_digits_need_a_pass(monkeypatch):
    """Without noise the residual is as small as its rounding error."""
    monkeypatch.setattr(gaussian, "LEFT_OUT_ROWS", 399)
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(400, 1))
    simulator = Simulator(X, np.sin(2 * X[:, 0]), gamma=0.5)
    simulator.run("working-set", Options(20, "random", max_rounds=3))
    (solved,) = simulator.answers[-3]
    found = solved.fit.posterior
    assert found.rounding > gaussian.PRECISE * found.residual
    assert last_passes(simulator) == [LeaveOneOutPass, ResidualPass]
