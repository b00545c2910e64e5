"""A link of two classes that the test alone registers, probit, is fitted by every strategy, saved and loaded."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_ndtr, ndtr
from scipy.stats import norm

from partirvm import RVMClassifier
from partirvm.core.link import LINKS, Link
from partirvm.likelihoods import LIKELIHOODS
from partirvm.likelihoods.classes import ClassLikelihood
from partirvm.model import load_model, save_model


class Probit(Link):
    """p = Φ(f), with the expected curvature b = φ² / (Φ(f) Φ(−f))."""

    name = "probit"

    def derivatives(self, f, target):
        """log Φ(±f), ±φ / Φ(±f), b."""
        sign = np.where(target > 0, 1.0, -1.0)
        log_likelihood = log_ndtr(sign * f)
        return log_likelihood, sign * np.exp(norm.logpdf(f) - log_likelihood), self.curvature(f)

    def curvature(self, f):
        """b (n, 1)."""
        return np.exp(2 * norm.logpdf(f) - log_ndtr(f) - log_ndtr(-f))

    def probabilities(self, f):
        """Φ(−f) and Φ(f)."""
        return np.concatenate([ndtr(-f), ndtr(f)], axis=1)


@pytest.fixture
def registered(monkeypatch):
    """The probit likelihood in the place of the logistic one of two classes."""
    monkeypatch.setitem(LINKS, "probit", Probit())
    before = dict(LIKELIHOODS)
    LIKELIHOODS.clear()
    LIKELIHOODS.update({"probit": ClassLikelihood("probit", ("auto",), "probit", binary=True), **before})
    yield
    LIKELIHOODS.clear()
    LIKELIHOODS.update(before)


@pytest.fixture(scope="module")
def rows():
    """Two classes whose probability is Φ(2 sin x)."""
    rng = np.random.default_rng(5)
    X = rng.uniform(-4, 4, (200, 1))
    return X, (rng.uniform(size=200) < ndtr(2 * np.sin(X[:, 0]))).astype(int)


@pytest.mark.parametrize("strategy", ["basic", "working-set", "incremental", "split-merge"])
def test_the_weights_are_the_mode_and_the_model_survives_its_file(registered, rows, strategy, tmp_path):
    """log p(w | t) = Σ log Φ(±φᵀw) − ½ wᵀAw + const, maximised densely by BFGS."""
    X, y = rows
    fitted = RVMClassifier(gamma=0.5, strategy=strategy, moderate=False, random_state=1).fit(X, y)
    model = fitted.model_
    assert model.likelihood == "probit"
    Phi, alpha, sign = model.design.block(X), model.alpha[:, 0], np.where(y > 0, 1.0, -1.0)

    def negative(w):
        f = sign * (Phi @ w)
        slope = sign * np.exp(norm.logpdf(f) - log_ndtr(f))
        return -log_ndtr(f).sum() + 0.5 * alpha @ w**2, alpha * w - Phi.T @ slope

    mode = minimize(negative, np.zeros(len(alpha)), jac=True, method="BFGS", options={"gtol": 1e-8}).x
    np.testing.assert_allclose(Phi @ model.mean[:, 0], Phi @ mode, atol=0.02)
    np.testing.assert_allclose(fitted.predict_proba(X)[:, 1], ndtr(Phi @ model.mean[:, 0]), atol=1e-12)
    save_model(model, tmp_path / "model")
    assert np.array_equal(load_model(tmp_path / "model").predict_proba(X), fitted.predict_proba(X))
