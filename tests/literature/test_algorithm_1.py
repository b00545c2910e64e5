"""Hyperparameters as a vector, and the active set."""

from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np
import pytest
from by_default import some
from scipy.special import expit

from partirvm.literature.algorithm_1 import first_active, fit_active_set, fit_all
from partirvm.literature.joint_laplace import LogisticErrors, NormalErrors
from partirvm.literature.joint_parameters import SYSTEMS, JointMarginal, JointOptions

BOUND = np.exp(5.0)


def likelihood(system="krvm", *, classes=False, n=40, d=3, seed=0, noise=0.3, gamma=0.3, **options):
    """Rows whose first two features matter."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    f = np.sin(2 * X[:, 0]) + X[:, min(d - 1, 1)]
    if classes:
        errors = LogisticErrors((rng.random(n) < expit(4 * f)).astype(float))
    else:
        errors = NormalErrors(f + noise * rng.normal(size=n))
    options = {"start_gamma": gamma, "start_log_alpha": np.inf, **options}
    return JointMarginal(X, errors, JointOptions(system, **options))


def random_point(rows, seed):
    """A point with eight columns, all coordinates inside their bounds."""
    rng = np.random.default_rng(seed)
    labels = np.union1d([-1], rng.permutation(len(rows.X))[:8])
    point = rows.start.with_labels(labels, 0.0)
    size = np.abs(point.vector)
    return point.moved(0.7 * size + rng.uniform(0.1, 0.5, size=len(size)))


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("classes", [False, True])
@pytest.mark.parametrize("seed", some(range(10), range(2)))
def test_slopes_are_differences_in_theta(system, classes, seed):
    """Of L and the log prior, by each coordinate."""
    rows = likelihood(system, classes=classes, seed=seed)
    point = random_point(rows, seed)
    vector = point.vector

    def value(moved):
        at = point.moved(moved)
        return rows.at(at).log_evidence + rows.log_prior(at)

    expected = [
        (value(vector + step) - value(vector - step)) / 2e-5 for step in 1e-5 * np.eye(len(vector))
    ]
    slopes = rows.slopes(point, rows.at(point))
    np.testing.assert_allclose(slopes, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_design_is_the_papers_kernel(system):
    """exp(−Σ_d γ_d (x_d − z_d)²) (eqs. 3–4), with an intercept; γ_d = 0 is allowed."""
    rows = likelihood(system)
    point = random_point(rows, 3).with_labels(np.array([-1, 2, 7]), 0.0)
    if system != "rvm":
        point = replace(point, widths=point.widths * [1, 0, 1])
    gamma = np.resize(rows.gamma(point.widths), 3)
    differences = rows.X[:5, None, :] - rows.X[None, [2, 7], :]
    expected = np.exp(-(gamma * differences**2).sum(axis=2))
    np.testing.assert_allclose(rows.design(point).block(rows.X[:5])[:, 1:], expected)
    np.testing.assert_array_equal(rows.design(point).block(rows.X[:5])[:, 0], 1.0)
    assert (gamma[1] == 0) == (system != "rvm")


def test_the_kernel_of_no_feature_is_constant():
    rows = likelihood()
    point = rows.start.with_labels(np.array([-1, 3]), 0.0)
    point = replace(point, widths=np.zeros(3))
    np.testing.assert_allclose(rows.design(point).block(rows.X), 1.0)


def test_the_half_normal_prior():
    """Σ_d log 2N(γ_d; 0, 1/β_d) (eq. 19)."""
    rows = likelihood("pfcvm")
    point = random_point(rows, 1)
    gamma = rows.gamma(point.widths)
    beta = np.exp(point.log_beta)
    density = 2 * np.sqrt(beta / (2 * np.pi)) * np.exp(-0.5 * beta * gamma**2)
    assert rows.log_prior(point) == pytest.approx(np.log(density).sum(), rel=1e-12)
    assert likelihood("krvm").log_prior(rows.start.with_labels(np.arange(-1, 2), 0.0)) != 0
    assert likelihood("krvm").log_prior(likelihood("krvm").start) == 0


@pytest.mark.parametrize(
    ("system", "classes"),
    some(product(SYSTEMS, [False, True]), {("rvm", True), ("pfcvm", False)}),
)
def test_the_maximum_is_stationary_within_the_bounds(system, classes):
    """Slopes are 0 inside the bounds, and point outwards at a bound."""
    rows = likelihood(system, classes=classes, n=20, max_iterations=3000)
    fit = fit_all(rows)
    vector = fit.point.vector
    slopes = rows.slopes(fit.point, rows.at(fit.point))
    lower, upper = rows.bounds(fit.point)
    assert np.all(vector >= lower)
    assert np.all(vector <= upper)
    at_lower = vector <= lower + 1e-9
    at_upper = vector >= upper - 1e-9
    assert np.abs(slopes[~at_lower & ~at_upper]).max() < 0.01
    assert np.all(slopes[at_lower] <= 0.01)
    assert np.all(slopes[at_upper] >= -0.01)
    assert fit.converged


def test_irrelevant_features_reach_zero():
    """The third feature is noise; with a prior, its width is at most that without."""
    rows = likelihood("krvm", n=50, noise=0.1)
    gamma = rows.gamma(fit_active_set(rows, np.random.default_rng(0)).point.widths)
    assert gamma[2] < 0.05 * gamma[0]


def test_an_active_set_of_all_rows_is_the_starred_version():
    """Where no α reaches its bound, step 5 of the first round is all there is."""
    rows = likelihood("rvm", n=6, d=1, noise=0.0, gamma=3.0, bound=1e4, batch=6)
    active = fit_active_set(rows, np.random.default_rng(0))
    starred = fit_all(rows)
    first = active.rounds[0]
    assert first.active == 6
    assert first.pruned == starred.rounds[0].pruned
    assert first.value == pytest.approx(starred.rounds[0].value, rel=1e-8)
    if not first.pruned:
        weights = rows.at(starred.point).weights
        np.testing.assert_allclose(rows.at(active.point).weights, weights, rtol=1e-6)


def test_the_first_rows_have_the_largest_weights():
    """At the mode of all weights with α = ν and σ² = 1, (νI + ΦᵀΦ)⁻¹Φᵀt."""
    rows = likelihood("rvm")
    Phi = rows.design(rows.start).block(rows.X)
    weights = np.linalg.solve(BOUND * np.eye(41) + Phi.T @ Phi, Phi.T @ rows.errors.targets)
    np.testing.assert_allclose(rows.at(rows.start).weights, weights, rtol=1e-8)
    active = first_active(weights, JointOptions(batch=5), np.random.default_rng(0))
    assert active[0] == -1
    smallest = np.abs(weights[1:][active[1:]]).min()
    assert np.sum(np.abs(weights[1:]) >= smallest) == 5


def test_random_first_rows_depend_on_the_seed():
    options = JointOptions(batch=5, active="random")
    draws = [first_active(np.zeros(41), options, np.random.default_rng(seed)) for seed in (0, 0, 1)]
    np.testing.assert_array_equal(draws[0], draws[1])
    assert not np.array_equal(draws[0], draws[2])
    assert len(draws[0]) == 6


@cache
def narrow(unit):
    """A fit of a function with more turns than the first three rows can follow."""
    rng = np.random.default_rng(0)
    X = np.sort(rng.uniform(-4, 4, (100, 1)), axis=0)
    y = np.sin(3 * X[:, 0]) + 0.1 * rng.normal(size=100)
    options = JointOptions(batch=3, threshold_unit=unit, start_gamma=1.0)
    rows = JointMarginal(X, NormalErrors(y), options)
    return rows, fit_active_set(rows, np.random.default_rng(0))


def test_the_units_of_delta_decide_whether_rows_join():
    """Weights at α = ν are small: in prior standard deviations rows join, literally none does."""
    _, literal = narrow("weight")
    assert [step.joined for step in literal.rounds] == [0] * len(literal.rounds)
    _, scaled = narrow("prior-sd")
    assert scaled.rounds[0].joined > 0
    assert scaled.rounds[-1].value > literal.rounds[-1].value + 100
    assert scaled.converged
    assert scaled.rounds[-1].value == pytest.approx(scaled.rounds[-2].value, abs=1e-6)
    ratio = scaled.rounds[0].largest / literal.rounds[0].largest
    assert ratio == pytest.approx(np.sqrt(BOUND), rel=1e-6)


def test_the_model_is_laplaces_approximation_at_its_columns():
    """Its weights are the mode with the last α, σ² and γ, (A + τΦᵀΦ)⁻¹τΦᵀt."""
    rows, fit = narrow("prior-sd")
    design = np.exp(-rows.gamma(fit.point.widths) * (rows.X - rows.X[fit.point.labels[1:]].T) ** 2)
    design = np.hstack([np.ones((100, 1)), design])
    alpha = np.exp(fit.point.log_alpha)
    tau = np.exp(fit.point.log_tau)
    H = np.diag(alpha) + tau * design.T @ design
    weights = np.linalg.solve(H, tau * design.T @ rows.errors.targets)
    np.testing.assert_allclose(rows.at(fit.point).weights, weights, rtol=1e-6)
    assert not rows.pruned(fit.point).any()
