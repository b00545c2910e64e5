"""The fast algorithm in random order, and RVM* as the KTH report prints them."""

import dense_formulas
import numpy as np
import pytest
from by_default import some
from scipy.optimize import minimize

from partirvm import RVMRegressor
from partirvm.core.fast import ActiveColumns
from partirvm.kernels import Gaussian, LinearSpline
from partirvm.literature.dense import statistics_of
from partirvm.literature.kth import FastRegressor, best_actions, rvm_star
from partirvm.literature.tipping import TippingRegressor


@pytest.mark.parametrize("seed", some(range(10), range(3)))
def test_actions_are_those_of_the_dense_marginal_likelihood(seed):
    """The gain of an action is the rise of the dense formula, and no other α gains more."""
    design, target = dense_formulas.problem(seed, columns=5)
    design[:, 4] = np.random.default_rng(seed).normal(size=len(target))
    statistics = statistics_of(np.arange(5), design, target)
    members = np.array([0, 1])
    alpha = np.full(5, np.inf)
    alpha[members] = 0.7
    best, gain = best_actions(ActiveColumns(statistics, members, alpha[members], 2.0))

    def evidence(alpha):
        active = np.isfinite(alpha)
        return dense_formulas.log_marginal(design[:, active], target, alpha[active], 2.0)

    for column in range(5):
        changed = alpha.copy()
        changed[column] = best[column]
        assert gain[column] == pytest.approx(evidence(changed) - evidence(alpha), abs=1e-8)

        def negative(log_alpha, column=column, changed=changed):
            changed[column] = np.exp(log_alpha[0])
            return -evidence(changed)

        optimum = minimize(negative, [0.0], method="Nelder-Mead", options={"xatol": 1e-9})
        assert gain[column] >= -optimum.fun - evidence(alpha) - 1e-6


def noisy_sinc(seed=0, rows=60):
    X = np.linspace(-10, 10, rows)[:, None]
    noise = 0.1 * np.random.default_rng(seed).standard_normal(rows)
    return X, np.sinc(X[:, 0] / np.pi) + noise


@pytest.mark.parametrize("random_order", [True, False])
def test_converged_fits_have_no_action_left(random_order):
    """At the end no addition, deletion or new α gains ``tol`` nats, by the dense formula."""
    X, y = noisy_sinc()
    model = FastRegressor(Gaussian(0.1), random_order=random_order, tol=1e-3).fit(X, y)
    assert model.converged_
    assert not FastRegressor(Gaussian(0.1), max_iter=5).fit(X, y).converged_
    kernel = np.exp(-0.1 * (X - X.T) ** 2)
    design = np.hstack([np.ones((60, 1)), kernel])
    alpha = np.full(61, np.inf)
    alpha[model.labels_ + 1] = model.alpha_
    beta = 1 / model.noise_variance_

    def evidence(alpha):
        active = np.isfinite(alpha)
        return dense_formulas.log_marginal(design[:, active], y, alpha[active], beta)

    now = evidence(alpha)
    assert model.log_evidence_ == pytest.approx(now, rel=1e-8)
    for column in range(61):
        for factor in (0.5, 1.0, 2.0, np.inf):
            changed = alpha.copy()
            changed[column] = factor * (alpha[column] if np.isfinite(alpha[column]) else 1.0)
            assert evidence(changed) < now + 2e-3


def test_the_order_depends_on_the_seed():
    X, y = noisy_sinc()
    one, same, other = (
        FastRegressor(Gaussian(0.1), random_state=seed, max_iter=40).fit(X, y) for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(one.labels_, same.labels_)
    assert list(one.labels_) != list(other.labels_)


def test_noise_is_that_of_eq_15():
    """σ² = ‖t − Φμ‖² / (N − M + Σ α_mΣ_mm) at the end."""
    X, y = noisy_sinc()
    model = FastRegressor(Gaussian(0.1), tol=1e-8).fit(X, y)
    residual = np.sum((y - model.predict(X)) ** 2)
    freedom = len(y) - len(model.alpha_) + model.alpha_ @ np.diag(model.covariance_)
    assert model.noise_variance_ == pytest.approx(residual / freedom, rel=1e-4)


@pytest.mark.parametrize("kernel", [Gaussian(0.1), LinearSpline()])
def test_rvm_star_is_the_model_with_one_more_column(kernel):
    """The predictive distribution of the augmented design, dense, with α† = 1/var(t)."""
    X, y = noisy_sinc(rows=20)
    model = TippingRegressor(kernel).fit(X, y)
    new = np.array([[0.5], [9.0], [14.0]])
    mean, std = rvm_star(model, X, y, new)
    for row in range(3):
        columns = np.vstack([model.relevance_vectors_, new[row]])
        bias = int(-1 in model.labels_)
        design = np.hstack([np.ones((20, bias)), kernel.values(X, columns)])
        phi = np.hstack([np.ones(bias), kernel.values(new[[row]], columns)[0]])
        alpha = np.append(model.alpha_, 1 / np.var(y))
        beta = 1 / model.noise_variance_
        covariance = np.linalg.inv(beta * design.T @ design + np.diag(alpha))
        expected = phi @ (beta * covariance @ design.T @ y)
        assert mean[row] == pytest.approx(expected, rel=1e-5, abs=1e-7)
        variance = model.noise_variance_ + phi @ covariance @ phi
        assert std[row] == pytest.approx(np.sqrt(variance), rel=1e-5)


@pytest.mark.filterwarnings("ignore::partirvm.errors.PartirvmWarning")
def test_rvm_star_rises_far_out_as_in_figure_1():
    """Far from all rows the band of RVM is that of the noise, that of RVM* has the variance of the
    targets, too."""
    X, y = noisy_sinc()
    model = TippingRegressor(Gaussian(0.1)).fit(X, y)
    far = np.array([[40.0]])
    _, std = model.predict(far, return_std=True)
    _, star = rvm_star(model, X, y, far)
    assert star[0] ** 2 == pytest.approx(std[0] ** 2 + np.var(y), rel=1e-6)
    main = RVMRegressor(gamma=0.1, standardize=False, noise="constant", residual="none").fit(X, y)
    near, _ = main.predict(np.array([[0.5]]), return_std=True, augment=(X, y))
    assert rvm_star(model, X, y, np.array([[0.5]]))[0] == pytest.approx(near, abs=0.05)
