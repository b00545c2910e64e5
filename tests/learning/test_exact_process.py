"""The exact process: its covariance, the slopes of its evidence, its gradient, and the ascent."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sampling import arm, problem_of, sample_of
from scipy.stats import multivariate_normal

from partirvm.kernels import Directions, Gaussian, Matern32
from partirvm.learning import ProcessFit, ProcessRows
from partirvm.learning.exact_process import (
    LEADING,
    NARROW_SD,
    NOISE_SD,
    NOISE_SHARE,
    TIED_SHARES,
    climb,
    process_evidence,
    tied_gain,
)

FIT = ProcessFit(Gaussian((0.4, 0.2)), np.log(1.5), np.log(0.3))


def rows_of(problem, X, y, w=None, numbers=None):
    with sample_of(X, y, w, tile_rows=7) as sample:
        return ProcessRows.of(sample, problem, np.arange(len(X)) if numbers is None else numbers)


def dense(X, w, kernel, problem, fit):
    """Return s² k + σ² W⁻¹ + v 11ᵀ, for a Gaussian kernel and a bias."""
    square = (kernel.gamma * (X[:, None] - X[None]) ** 2).sum(axis=2)
    return (
        np.exp(fit.signal) * np.exp(-square)
        + np.exp(fit.noise) * np.diag(1 / w)
        + LEADING * problem.target_variance * np.ones((len(X), len(X)))
    )


def test_the_evidence_is_the_normal_density_with_this_covariance():
    """The covariance includes row weights and a bias."""
    X, y = arm(20, 2)
    w = np.array([4.0, 0.5, 1.0, 2.0] * 5)
    problem = problem_of(X, y)
    found, _ = rows_of(problem, X, y, w).evaluate(FIT)
    K = dense(X, w, FIT.kernel, problem, FIT)
    expected = multivariate_normal(np.zeros(20), K).logpdf(y)
    assert found == pytest.approx(expected, rel=1e-10)


def test_the_evidence_of_several_targets_is_the_sum_of_their_evidences():
    """So is its derivative: each target has the same covariance, and they are independent."""
    X, y = arm(20, 2)
    K = dense(X, np.ones(20), FIT.kernel, problem_of(X, y), FIT)
    targets = np.column_stack([y, 2.0 * np.cos(X[:, 0]), y[::-1]])
    value, slopes = process_evidence(np.asfortranarray(K), targets)
    alone = [process_evidence(np.asfortranarray(K), t[:, None]) for t in targets.T]
    densities = multivariate_normal(np.zeros(20), K).logpdf(targets.T)
    assert value == pytest.approx(densities.sum(), rel=1e-10)
    assert_allclose(slopes, sum(slope for _, slope in alone), rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("noise", [None, 0.2])
@pytest.mark.parametrize(
    "kernel",
    [Gaussian((0.4, 0.2)), Matern32(0.3), Directions(Gaussian((0.5, 0.1)), [[1, 1], [1, -1]])],
)
def test_slopes_equal_differences_of_the_evidence(kernel, noise):
    """The parameters are the kernel's, log s² and log σ², unless σ² is given."""
    X, y = arm(15, 2)
    rows = rows_of(
        replace(problem_of(X, y), noise_variance=noise), X, y, np.tile([0.5, 1.0, 2.0], 5)
    )
    theta = np.append(kernel.logs, [0.4, -1.0])
    step = 1e-5

    def value(at):
        return rows.evaluate(ProcessFit(kernel.with_logs(at[:-2]), at[-2], at[-1]))

    slopes = value(theta)[1]
    differences = [
        (value(theta + e)[0] - value(theta - e)[0]) / (2 * step) for e in step * np.eye(len(theta))
    ]
    assert_allclose(slopes, differences, rtol=2e-6, atol=1e-6)
    assert (slopes[-1] == 0) == (noise is not None)


def test_the_profile_is_the_evidence_at_the_best_covariance_factor():
    """The factor is c = tᵀK⁻¹t/n; the constant n/2 (1 + log 2π − log n) is left out."""
    X, y = arm(20, 2)
    problem = problem_of(X, y)
    K = dense(X, np.ones(20), FIT.kernel, problem, FIT)
    factor = y @ np.linalg.solve(K, y) / 20
    rows = rows_of(problem, X, y)
    expected = multivariate_normal(np.zeros(20), K * factor).logpdf(y)
    constant = 10 * (1 + np.log(2 * np.pi) - np.log(20))
    assert rows.profile(FIT) == (
        pytest.approx(expected + constant, rel=1e-9),
        pytest.approx(np.log(factor), rel=1e-9),
    )
    level = rows.levelled(FIT)
    assert (
        level.signal - FIT.signal
        == level.noise - FIT.noise
        == pytest.approx(np.log(factor), rel=1e-9)
    )


def test_the_outer_product_equals_that_of_the_gradient_of_the_mean():
    """The gradient is compared with central differences at the rows."""
    X, y = arm(12, 2)
    problem = problem_of(X, y)
    rows = rows_of(problem, X, y)
    weights = np.linalg.solve(dense(X, np.ones(12), FIT.kernel, problem, FIT), y)

    def mean(at):
        return np.exp(-(FIT.kernel.gamma * (at[:, None] - X[None]) ** 2).sum(axis=2)) @ weights

    step = 1e-5
    gradient = np.stack(
        [(mean(X + e) - mean(X - e)) / (2 * step) for e in step * np.eye(2)], axis=1
    )
    assert_allclose(rows.outer_product(FIT), gradient.T @ gradient, rtol=1e-7)


def test_densities_of_new_rows_equal_those_of_the_joint_normal():
    """Each equals log p(all, new) − log p(all)."""
    X, y = arm(14, 2)
    problem = problem_of(X, y)
    rows, new = (rows_of(problem, X, y, numbers=np.arange(*each)) for each in ((0, 10), (10, 14)))
    found = rows.predicted(FIT, new)[1]
    K = dense(X, np.ones(14), FIT.kernel, problem, FIT)
    for row in range(4):
        some = [*range(10), 10 + row]
        joint = multivariate_normal(np.zeros(11), K[np.ix_(some, some)]).logpdf(y[some])
        assert found[row] == pytest.approx(
            joint - multivariate_normal(np.zeros(10), K[:10, :10]).logpdf(y[:10]), rel=1e-8
        )


def test_the_ascent_ends_where_the_slopes_are_zero():
    """It begins with large widths and high noise, and finds the noise of the data."""
    X, y = arm(150, 2, noise=0.2)
    rows = rows_of(problem_of(X, y), X, y)
    start = ProcessFit(Gaussian((0.05, 0.05)), 0.0, np.log(0.5))
    found = climb(rows, start, 100)
    evidence, slopes = rows.evaluate(found)
    log_prior, rise = rows.log_prior(np.append(found.kernel.logs, [found.signal, found.noise]))
    assert evidence + log_prior == found.value > rows.evaluate(start)[0]
    assert np.abs(slopes + rise).max() < 0.01 * len(X)
    assert np.exp(found.noise / 2) == pytest.approx(0.2, rel=0.2)


def test_priors_affect_only_small_widths_and_small_noise():
    """They are half normals in log γ above half its initial value and in log σ² below a limit."""
    X, y = arm(30, 2)
    problem = problem_of(X, y, Gaussian((0.5, 0.5)))
    rows = rows_of(problem, X, y)
    noise = np.log(NOISE_SHARE * problem.target_variance)
    value, slope = rows.log_prior(np.array([np.log(0.25), -9.0, 5.0, noise]))
    assert (value, slope.tolist()) == (0.0, [0.0] * 4)
    value, slope = rows.log_prior(np.array([np.log(0.25) + 3.0, 0.0, 0.0, noise - 1.0]))
    over = np.array([3.0, np.log(4.0)])
    assert value == pytest.approx(-0.5 * (over**2).sum() / NARROW_SD**2 - 0.5 / NOISE_SD**2)
    assert_allclose(slope, [*(-over / NARROW_SD**2), 0.0, 1 / NOISE_SD**2])


@pytest.mark.parametrize("w", [np.ones(40), np.array([4.0, 0.5, 1.0, 2.0] * 10)])
def test_the_gain_of_a_tied_rvm_equals_that_of_its_covariance(w):
    """It is the largest density over λ, at the best noise for each λ, minus the density with noise
    only."""
    X, y = arm(40, 2)
    rows = replace(rows_of(problem_of(X, y), X, y, w), columns=np.zeros((40, 0)))
    kernel = Gaussian((2.0, 0.3))
    Phi = np.sqrt(w)[:, None] * np.exp(-(kernel.gamma * (X[:, None] - X[None]) ** 2).sum(axis=2))
    t = np.sqrt(w) * y

    def density(shape):
        noise = t @ np.linalg.solve(shape, t) / 40
        return multivariate_normal(np.zeros(40), noise * shape).logpdf(t)

    unit = np.trace(Phi.T @ Phi) / 40
    expected = max(
        density(np.eye(40) + Phi @ Phi.T / (share * unit)) for share in TIED_SHARES
    ) - density(np.eye(40))
    assert tied_gain(rows, kernel) == pytest.approx(expected / 40, rel=1e-5)


def test_an_indefinite_covariance_has_no_evidence():
    """The search then takes a smaller step."""
    assert process_evidence(np.array([[1.0, 2.0], [2.0, 1.0]]), np.ones((2, 1))) is None
