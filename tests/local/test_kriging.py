"""The local process compared with dense formulas from Shah et al. (2014), and its derivatives."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.random import default_rng
from numpy.testing import assert_allclose
from scipy.spatial.distance import cdist
from sklearn.gaussian_process.kernels import Matern

from partirvm.local import CORRELATIONS, LocalKernel, learned, moments
from partirvm.local.kriging import Conditional, Neighbourhoods, Offsets, weights
from partirvm.local.kriging_search import best_levels, starts_of

SMOOTHNESS = {"exponential": 0.5, "matern32": 1.5, "matern52": 2.5}


def plain(n, k):
    """Return log factors of zero and weights of one."""
    return np.zeros((n, k)), np.ones((n, k)), np.zeros(n), np.ones(n)


def rows(n=30, k=8, seed=0):
    """Return neighbourhoods of n rows among random points, and the errors of the rows."""
    rng = default_rng(seed)
    steps = rng.normal(size=(n, k, 2))
    others = (
        rng.normal(size=(n, k)),
        rng.normal(size=(n, k)),
        rng.uniform(0.5, 2, size=(n, k)),
        rng.normal(size=n),
    )
    return Neighbourhoods(Offsets(steps), *others, rng.uniform(0.5, 2, size=n))


@pytest.mark.parametrize("family", CORRELATIONS)
@pytest.mark.parametrize("noisy", [True, False])
def test_moments_equal_those_of_a_dense_process(family, noisy):
    """They follow eq. 6 of Shah et al. with scikit-learn's Matérn correlation."""
    found = rows()
    kernel = LocalKernel(family, 0.7, 1.3, 0.2, 1.5, 6.0)
    mean, variance = moments(kernel, found, noisy=noisy)
    correlation = Matern(length_scale=1.3, nu=SMOOTHNESS[family])
    for row, near in enumerate(found.offsets.coordinates):
        covariance = 0.7 * correlation(near) + 0.2 * np.diag(found.noises[row])
        cross = 0.7 * correlation(near, np.zeros((1, 2)))[:, 0]
        own = np.exp(0.75 * found.row_log_factors[row])
        errors = found.errors[row] / np.exp(0.75 * found.log_factors[row])
        of_errors = np.linalg.solve(covariance, cross)
        adapted = (6.0 + errors @ np.linalg.solve(covariance, errors)) / (6.0 + len(errors))
        assert mean[row] == pytest.approx(own * (of_errors @ errors), rel=1e-10)
        noise = 0.2 * noisy * found.row_noises[row]
        assert variance[row] == pytest.approx(
            own**2 * adapted * (0.7 + noise - of_errors @ cross), rel=1e-9
        )


def test_weighted_errors_of_the_neighbours_add_up_to_the_mean_error():
    """The weight of a neighbour of any noise factor is the slope of the mean in its error."""
    found = rows()
    kernel = LocalKernel("matern32", 0.7, 1.3, 0.2, 1.5, 6.0)
    slopes = weights(kernel, found)
    assert_allclose((slopes * found.errors).sum(axis=1), moments(kernel, found)[0], rtol=1e-10)
    raised = replace(found, errors=found.errors + np.eye(8)[2])
    difference = moments(kernel, raised)[0] - moments(kernel, found)[0]
    assert_allclose(slopes[:, 2], difference, rtol=1e-8)


def test_noisy_errors_have_a_minimum_variance():
    """With neighbouring errors of zero, the variance of a row would fall to ν/(ν + k) of s²."""
    found = replace(rows(), errors=np.zeros((30, 8)))
    kernel = LocalKernel("matern32", 1.0, 1.3, 0.01, 0.0, 0.5)
    assert moments(kernel, found)[1].min() < 0.3
    assert moments(replace(kernel, least=0.3), found)[1].min() == 0.3
    assert moments(replace(kernel, least=0.3), found, noisy=False)[1].min() < 0.3


@pytest.mark.parametrize("family", CORRELATIONS)
def test_derivatives_equal_finite_differences(family):
    found = rows()
    errors = default_rng(1).normal(size=30)
    logs = np.array([-0.5, 0.2, -1.5, 0.8, 1.0, 0.3, -0.4])

    def density(logs):
        kernel = LocalKernel(family, *np.exp(logs[:3]), logs[3], np.exp(logs[4]))
        return Conditional(kernel, found.scaled(np.exp(logs[5:]))).log_density(
            errors, kernel, scales=True
        )

    ends = [[density(logs + sign * step)[0].sum() for sign in (1, -1)] for step in 1e-5 * np.eye(7)]
    assert_allclose(density(logs)[1], -np.diff(ends)[:, 0] / 2e-5, rtol=1e-6, atol=1e-9)


@pytest.mark.slow
def test_the_search_finds_the_parameters_of_a_draw():
    """Length and noise fraction of a Gaussian process are found within a third."""
    rng = default_rng(0)
    points = rng.uniform(size=(1500, 2))
    covariance = Matern(length_scale=0.3, nu=1.5)(points) + 0.05 * np.eye(1500)
    errors = np.linalg.cholesky(covariance) @ rng.standard_normal(1500)
    order = np.argsort(cdist(points, points) + 10 * np.eye(1500), axis=1)[:, :30]
    found = Neighbourhoods(
        Offsets(points[order] - points[:, None]), errors[order], *plain(1500, 30)
    )
    kernel, _, density = learned(([found], [errors]), starts_of(([found], [errors])))
    assert kernel.noise == pytest.approx(0.05, rel=1 / 3)
    assert kernel.length / kernel.variance ** (1 / 3) == pytest.approx(
        0.3, rel=1 / 3
    )  # those determined by the data
    rougher = [replace(start, family="exponential") for start in starts_of(([found], [errors]))]
    assert density > learned(([found], [errors]), rougher)[2]


def test_variance_and_freedom_maximise_the_density():
    """The values of ω/s², ℓ and b are fixed."""
    found = rows(300)
    errors = 0.5 * default_rng(1).standard_t(3, size=300)
    kernel = LocalKernel("matern32", 1.0, 1.3, 0.2, 1.0, 1.0)
    conditional = Conditional(kernel, found)
    variance, freedom = best_levels([conditional], errors, 1.0, (1e-3, 1e3))

    def density(variance, freedom):
        other = replace(kernel, variance=variance, freedom=freedom)
        return conditional.log_density(errors, other)[0].sum()

    best = density(variance, freedom)
    factors = np.exp(np.linspace(-2, 2, 21))
    for other_variance in variance * factors:
        for other_freedom in np.clip(freedom * factors, 0.5, 1e4):
            assert density(other_variance, other_freedom) <= best + 1e-3


@pytest.mark.parametrize("errors", [np.zeros(30), np.ones(30)], ids=["zero", "constant"])
def test_errors_without_variation_give_finite_moments(errors):
    found = Neighbourhoods(
        Offsets(np.zeros((30, 8, 2))), np.full((30, 8), errors[0]), *plain(30, 8)
    )
    kernel, *_ = learned(([found], [errors]), starts_of(([found], [errors])))
    assert all(np.isfinite(each).all() for each in moments(kernel, found))
