"""``map-weight``: rows are admitted by the size of the MAP weights of all candidates, densely computed here."""

from __future__ import annotations

import naive
import numpy as np
import pytest
from class_simulator import ClassSimulator
from simulator import Simulator

from partirvm.core.statistics import BIAS
from partirvm.core.termination import Termination
from partirvm.likelihoods.gaussian import Solve
from partirvm.likelihoods.gaussian_passes import GramPass
from partirvm.likelihoods.laplace import Newton
from partirvm.likelihoods.laplace_passes import LogisticPass
from partirvm.strategies.active_set import START, ActiveSet
from partirvm.strategies.instructions import Gather, Save
from partirvm.strategies.problem import Options

P, FIRST, ADMIT = 8, 20, 0.5


def options(**changes):
    return Options(**({"partition_size": 60, "selection": "map-weight", "seed": 3} | changes))


def waves(n=160, scale=1.0, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-4, 4, (n, 2))
    return X, scale * (np.sin(2 * X[:, 0]) + np.cos(X[:, 1]) + 0.1 * rng.normal(size=n))


def looks(simulator):
    """Of each look at all rows: the model before, the labels weighed beside it, and those of the next fit's columns."""
    said = simulator.said
    for at, instruction in enumerate(said):
        if isinstance(instruction, Gather) and any(isinstance(one, Save) for one in said[:at]):
            save = next(one for one in reversed(said[:at]) if isinstance(one, Save))
            fitted = next(one for one in said[at:] if isinstance(one, Solve | Newton))
            after = fitted.start.labels if isinstance(fitted, Solve) else fitted.design.labels
            yield save, instruction.rows, after


@pytest.mark.parametrize("scale", [1.0, 50.0])
def test_rows_of_large_map_weights_are_admitted(scale):
    """The largest first, at most P; all others that were never candidates stay out; the end is when there is none."""
    simulator = Simulator(*waves(scale=scale), gamma=1.0)
    target_variance = float(np.mean(simulator.t**2))
    reason = simulator.run(ActiveSet(), options(partition_size=4, first_candidates=2))
    assert reason is Termination.CONVERGED
    assert simulator.returned() == []
    counts = []
    for save, rows, after in looks(simulator):
        fit, design = save.fit, save.design
        Phi = np.hstack([simulator.phi(design), naive.gaussian(simulator.X, simulator.X[rows], simulator.gamma)])
        alpha = np.concatenate([fit.alpha, np.full(len(rows), 1 / target_variance)])
        w = np.abs(naive.map_weights(Phi, simulator.t[:, 0], alpha, fit.beta))[len(fit.alpha) :] / np.sqrt(
            target_variance
        )
        order = np.argsort(-w)
        expected = rows[order[w[order] > ADMIT][:4]]
        assert set(after) - set(fit.statistics.labels) - {BIAS} == set(expected)
        counts.append(len(expected))
    assert counts[-1] == 0
    assert len(counts) > 2
    assert max(counts) == 4


@pytest.mark.parametrize(("changes", "count"), [({}, FIRST), ({"first_candidates": 5}, 5), ({"partition_size": 9}, 9)])
def test_the_first_set_has_the_largest_weights_of_all(changes, count):
    """B of them, or P if that is less: of MAP weights with every α at e⁵; the run is the same in other units."""
    runs = []
    for scale in (1.0, 1000.0):
        simulator = Simulator(*waves(scale=scale), gamma=1.0)
        simulator.run(ActiveSet(), options(max_rounds=2, **changes))
        first = next(one for one in simulator.said if isinstance(one, Solve))
        runs.append(simulator.proposed())
        t, variance = simulator.t[:, 0], float(np.mean(simulator.t**2))
        Phi = naive.gaussian(simulator.X, simulator.X, simulator.gamma)
        w = np.abs(naive.map_weights(Phi, t, np.full(len(t), START / variance), first.start.beta))
        assert set(first.start.labels) - {BIAS} == set(np.argsort(-w)[:count])
    assert runs[0] == runs[1]


def test_a_bound_is_the_precision_of_rows_outside_and_the_limit_inside():
    """With ν no α of the active set exceeds it, and the weights of other rows are those at α = ν."""
    nu = 20.0
    simulator = Simulator(*waves(), gamma=1.0)
    target_variance = float(np.mean(simulator.t**2))
    simulator.run(ActiveSet(), options(partition_size=P, alpha_bound=nu, least_weight=0.05, max_rounds=6))
    found = 0
    for save, rows, after in looks(simulator):
        fit = save.fit
        kernels = fit.labels >= 0
        assert fit.alpha[kernels].max() <= nu / target_variance
        Phi = np.hstack([simulator.phi(save.design), naive.gaussian(simulator.X, simulator.X[rows], simulator.gamma)])
        alpha = np.concatenate([fit.alpha, np.full(len(rows), nu / target_variance)])
        w = np.abs(naive.map_weights(Phi, simulator.t[:, 0], alpha, fit.beta))[len(fit.alpha) :]
        order = np.argsort(-w)
        expected = rows[order[w[order] > 0.05 * np.sqrt(target_variance)][:P]]
        assert set(after) - set(fit.labels) - {BIAS} == set(expected)
        found += len(expected)
    assert found > 0


@pytest.mark.parametrize(("likelihood", "K"), [("bernoulli", 2), ("multinomial", 3), ("ovr", 3)])
def test_rows_of_large_map_weights_of_classes(likelihood, K):
    """A Newton step from the fit's mode, output by output: H⁻¹(g − Aw₀) with the Hessian of all columns."""
    X, f = waves(60, seed=1)
    codes = np.searchsorted(np.quantile(f, np.arange(1, K) / K), f)
    simulator = ClassSimulator(X, codes, gamma=1.0, n_classes=K, likelihood=likelihood)
    reason = simulator.run(ActiveSet(), options(partition_size=P, max_rounds=3))
    assert reason in {Termination.CONVERGED, Termination.ROUNDS}
    found = 0
    for save, rows, after in looks(simulator):
        fit, M = save.fit, len(save.fit.labels)
        Phi = np.hstack([simulator.phi(save.design), naive.gaussian(X, X[rows], simulator.gamma)])
        w0 = np.zeros((M + len(rows), fit.alpha.shape[1]))
        w0[:M] = fit.mean
        alpha = np.ones_like(w0)
        alpha[:M] = np.where(np.isfinite(fit.alpha), fit.alpha, 1e300)
        _, gradient, hessian = naive.logistic(likelihood, Phi, simulator.y, w0)
        w = np.zeros_like(w0)
        for k in range(w.shape[1]):
            there = alpha[:, k] < 1e300
            H = hessian[:, k, :, k][np.ix_(there, there)] + np.diag(alpha[there, k])
            w[there, k] = w0[there, k] + np.linalg.solve(H, (gradient - alpha * w0)[there, k])
        size = np.abs(w[M:]).max(axis=1)
        order = np.argsort(-size)
        expected = rows[order[size[order] > ADMIT][:P]]
        assert set(after) - set(fit.labels) - {BIAS} == set(expected)
        found += len(expected)
    assert found > 0
    assert all(len(one.design.labels) > P for one in simulator.passes(LogisticPass))


def test_every_fit_converges_and_each_round_looks_once():
    """No intermediate fit is cut short; a look brings the Gram matrix of all columns, once a round."""
    simulator = Simulator(*waves(), gamma=1.0)
    simulator.run(ActiveSet(), options(max_rounds=3, partition_size=P))
    assert all(solve.rule.vectors is None for solve in simulator.passes(Solve))
    whole = [one for one in simulator.passes(GramPass) if len(one.new.labels) > P]
    assert len(whole) == 3
    assert not any(one.diagonal for one in whole)
