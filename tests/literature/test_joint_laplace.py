"""Uncertainty of the kernel's width: slopes, the joint maximum, and a grid over the width as brute force."""

from functools import cache

import naive
import numpy as np
import pytest
from scipy.special import logsumexp

from partirvm import RVMRegressor
from partirvm.core.predictive import widened
from partirvm.data import as_source
from partirvm.errors import UsageError
from partirvm.literature.joint_laplace import _JointRows, joint_laplace


def waves(n=80, d=1, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, (n, d))
    return X, np.sin(1.5 * X[:, 0]) + 0.3 * X[:, -1] + 0.2 * rng.normal(size=n)


def fitted(X, y, **asked):
    options = {"kernel": "gaussian", "gamma": "learn-shared", "strategy": "basic", "noise": "constant"}
    return RVMRegressor(random_state=0, **(options | asked)).fit(X, y)


@cache
def waves_and_model():
    """One input, targets, and the fit of most of these tests."""
    X, y = waves()
    return X, y, fitted(X, y).model_


def joint_of(estimator, X, y):
    return joint_laplace(estimator.model_, as_source(X, y))


def theta_of(model):
    beta = model.design.scaling.t_scale[0] ** 2 / model.evidence_noise
    return np.concatenate([np.log(model.alpha), [np.log(beta)], model.design.kernel.logs])


@pytest.mark.parametrize("asked", [{}, {"gamma": "learn-per-feature"}, {"kernel": "matern52", "noise": "local"}])
@pytest.mark.parametrize("weighted", [False, True])
def test_slopes_are_differences_of_the_evidence(asked, weighted):
    """With respect to log α, log β and the logarithms of the kernel's parameters, at any θ."""
    X, y = waves(d=2)
    model = fitted(X, y, **asked).model_
    w = np.random.default_rng(1).uniform(0.5, 2.0, len(y)) if weighted else None
    rows, theta = _JointRows(model, as_source(X, y, w)), theta_of(model)
    theta = theta + 0.3 * np.random.default_rng(2).normal(size=len(theta))
    slopes = rows.evaluate(theta)[1]
    steps = 1e-5 * np.eye(len(theta))
    found = [
        (rows.evaluate(theta + h)[0].log_evidence - rows.evaluate(theta - h)[0].log_evidence) / 2e-5 for h in steps
    ]
    np.testing.assert_allclose(slopes, found, rtol=1e-4, atol=1e-4)


def test_the_evidence_is_the_papers():
    """That of the marginal covariance (Tipping 2001, eq. 15), and at the joint maximum no smaller than the fit's."""
    X, y, model = waves_and_model()
    rows, theta = _JointRows(model, as_source(X, y)), theta_of(model)
    Phi, M = rows.at(theta).block(X), len(model.mean)
    expected = naive.log_evidence(Phi, rows.t, np.exp(theta[:M]), np.exp(theta[M]))
    assert rows.evaluate(theta)[0].log_evidence == pytest.approx(expected, rel=1e-9)
    joint = joint_laplace(model, as_source(X, y))
    assert joint.log_evidence >= expected
    assert np.abs(rows.evaluate(joint.theta)[1]).max() < 1e-2


def test_without_parameters_it_is_the_posterior():
    """φᵀΣφ at the joint maximum, with the noise beside it."""
    X, y, model = waves_and_model()
    joint = joint_laplace(model, as_source(X, y))
    new = np.linspace(-4, 4, 9)[:, None]
    Phi, M = joint.model.design.block(new), len(joint.model.mean)
    alpha, beta = np.exp(joint.theta[:M]), np.exp(joint.theta[M])
    whole = joint.model.design.block(X)
    Sigma = np.linalg.inv(beta * whole.T @ whole + np.diag(alpha))
    scale = joint.model.design.scaling.t_scale[0]
    plain = scale * np.sqrt(np.einsum("nm,mk,nk->n", Phi, Sigma, Phi))
    mean, std = joint.predict(new, noise=False, parameters=False)
    np.testing.assert_allclose(std, plain, rtol=1e-6)
    np.testing.assert_allclose(joint.predict(new, parameters=False)[1], np.hypot(plain, scale / np.sqrt(beta)))
    lower, upper = joint.interval(new, 0.9, noise=False).T
    np.testing.assert_allclose((upper - lower) / 2, 1.6448536 * joint.predict(new, noise=False)[1], rtol=1e-6)
    np.testing.assert_allclose((upper + lower) / 2, mean)


def test_a_grid_over_the_width_agrees():
    """Brute force: the mixture over log γ of the predictions at the best α and β for each γ, by their evidence."""
    X, y, model = waves_and_model()
    joint, rows, M = joint_laplace(model, as_source(X, y)), _JointRows(model, as_source(X, y)), len(model.mean)
    free = np.ones(len(joint.theta), bool)
    free[M + 1] = False
    new = np.linspace(-2.5, 2.5, 11)[:, None]
    logs, means, variances = [], [], []
    for shift in np.linspace(-1.0, 1.0, 21):
        theta = joint.theta.copy()
        theta[M + 1] += shift
        theta = rows.maximum(theta, free)
        found, Phi = rows.evaluate(theta)[0], rows.at(theta).block(new)
        root, _ = widened(np.exp(theta[:M]), found.mean, found.root(), len(y), known_noise=False)
        logs.append(found.log_evidence)
        means.append(Phi @ found.mean)
        variances.append(((Phi @ root) ** 2).sum(axis=1))
    weights = np.exp(np.array(logs) - logsumexp(logs))[:, None]
    mean = (weights * means).sum(axis=0)
    brute = np.sqrt((weights * (np.array(variances) + (np.array(means) - mean) ** 2)).sum(axis=0))
    ours = joint.predict(new, noise=False)[1] / joint.model.design.scaling.t_scale[0]
    plain = joint.predict(new, noise=False, parameters=False)[1] / joint.model.design.scaling.t_scale[0]
    np.testing.assert_allclose(ours, brute, rtol=0.25)
    assert np.abs(np.log(ours / brute)).mean() < 0.5 * np.abs(np.log(plain / brute)).mean()


def test_given_noise_stays():
    """A known noise variance is no parameter."""
    X, y = waves()
    joint = joint_of(fitted(X, y, noise=0.05), X, y)
    assert joint.model.noise_variance == pytest.approx(0.05)
    assert not joint.covariance[len(joint.model.mean)].any()


def test_what_is_refused():
    """Several targets, and kernels without parameters."""
    X, y = waves()
    shared = fitted(X, np.column_stack([y, -y]))
    with pytest.raises(UsageError, match="one target"):
        joint_of(shared, X, y)
    plain = RVMRegressor(kernel="linear-spline", strategy="basic").fit(X, y)
    with pytest.raises(UsageError, match="kernel with parameters"):
        joint_of(plain, X, y)
