"""Posterior and evidence satisfy Tipping's equations for well- and ill-conditioned problems."""

import numpy as np
import pytest
from fits import dense_statistics
from hypothesis import given
from hypothesis import strategies as st
from naive import (
    determinedness,
    gaussian,
    log_evidence,
    posterior,
    predict_by_rows,
    sparsity_quality,
)
from numpy.random import default_rng
from numpy.testing import assert_allclose

from partirvm.core import factorise, own_factors
from partirvm.core import posterior as module
from partirvm.errors import NumericalError

seeds = st.integers(0, 2**32 - 1)


@st.composite
def kind_problems(draw):
    """Draw well-conditioned noise columns, with and without weights (some zero) and an offset."""
    rng = default_rng(draw(seeds))
    M = draw(st.integers(1, 8))
    N = draw(st.integers(4 * M, 60))
    Phi = rng.normal(size=(N, M))
    t = rng.normal(size=N)
    alpha = 10.0 ** rng.uniform(-3, 3, size=M)
    beta = 10.0 ** rng.uniform(-1, 2)
    w = draw(
        st.sampled_from(
            [None, rng.uniform(0.2, 4.0, N), rng.choice([0.0, 1.0, 2.0], N, p=[0.1, 0.5, 0.4])]
        )
    )
    offset = draw(st.sampled_from([None, rng.normal(size=(M, 1))]))
    return Phi, t, alpha, beta, w, offset


@given(kind_problems())
def test_a_well_conditioned_posterior_follows_the_equations(problem):
    """Eqs. 6, 12, 13, 15 and 17 hold, and those for s and q (Tipping & Faul 2003, eqs. 19 and
    22)."""
    Phi, t, alpha, beta, w, offset = problem
    statistics = dense_statistics(Phi, t[:, None], w, offset=offset)
    found = module.posterior(statistics, alpha, beta)
    mu, Sigma = posterior(Phi, t, alpha, beta, w)
    close = {"rtol": 1e-8, "atol": 1e-10}
    assert_allclose(found.mean, mu, **close)
    assert_allclose(found.variance, np.diagonal(Sigma), rtol=1e-8)
    assert_allclose(found.root() @ found.root().T, Sigma, **close)
    assert_allclose(found.determinedness, determinedness(Phi, t, alpha, beta, w), **close)
    weights = np.ones(len(t)) if w is None else w
    assert_allclose(found.residual, weights @ (t - Phi @ mu) ** 2, rtol=1e-8)
    assert_allclose(found.log_evidence, log_evidence(Phi, t, alpha, beta, w), rtol=1e-8, atol=1e-8)
    assert not found.cancelled
    s, q = own_factors(found, alpha)
    for i in range(len(alpha)):
        rest = np.delete(np.arange(len(alpha)), i)
        expected = sparsity_quality(Phi[:, i], Phi[:, rest], t, alpha[rest], beta, w)
        # s = 1/Σ_ii − α_i is a difference, with the rounding error of the larger term
        assert_allclose(s[i], expected[0], rtol=1e-8, atol=1e-12 * alpha[i])
        assert_allclose(q[i], expected[1], rtol=1e-7, atol=1e-8 * np.sqrt(expected[0]))


@st.composite
def unkind_problems(draw):
    """Draw very wide kernels, repeated columns and repeated rows, so that ΦᵀΦ is singular."""
    rng = default_rng(draw(seeds))
    N = draw(st.integers(30, 80))
    M = draw(st.integers(5, 25))
    X = rng.uniform(-3, 3, size=(N, 2))
    y = np.sin(X[:, 0]) + 0.3 * X[:, 1] + 0.1 * rng.normal(size=N)
    kind = draw(st.sampled_from(["wide", "columns", "rows"]))
    centres = X[rng.choice(N, M, replace=False)]
    gamma = 0.5
    if kind == "wide":
        gamma /= 100
    if kind == "columns":
        centres = np.vstack([centres, centres])
    if kind == "rows":
        X = np.vstack([X, X])
        y = np.concatenate([y, y])
        centres = np.vstack([centres, centres])
    t = (y - y.mean()) / y.std()
    Phi = np.column_stack([np.ones(len(X)), gaussian(X, centres, gamma)])
    alpha = 10.0 ** rng.uniform(-4, 4, size=Phi.shape[1])
    beta = 10.0 ** rng.uniform(0, 4)
    test = np.column_stack(
        [np.ones(20), gaussian(rng.uniform(-3, 3, size=(20, 2)), centres, gamma)]
    )
    with_offset = draw(st.booleans())
    return Phi, t, alpha, beta, test, with_offset


@given(unkind_problems())
def test_an_ill_conditioned_posterior_predicts_accurately(problem):
    """Means and deviations agree to 1e-6, the evidence to 1e-6 of its value or of N. The reference
    inverts C (N, N), and has the rounding error of βtᵀC⁻¹t."""
    Phi, t, alpha, beta, test, with_offset = problem
    offset = None
    if with_offset:
        offset = module.posterior(dense_statistics(Phi, t[:, None]), alpha, 3 * beta).means
    found = module.posterior(dense_statistics(Phi, t[:, None], offset=offset), alpha, beta)
    mean, variance = predict_by_rows(test, Phi, t, alpha, beta)
    assert_allclose(test @ found.mean, mean, rtol=0, atol=1e-6)
    spread = test @ found.root()
    assert_allclose(
        np.sqrt((spread**2).sum(axis=1) + 1 / beta), np.sqrt(variance), rtol=0, atol=1e-6
    )
    expected = log_evidence(Phi, t, alpha, beta)
    assert_allclose(found.log_evidence, expected, rtol=1e-6, atol=1e-6 * len(t))


@pytest.mark.parametrize(
    ("H", "what"),
    [
        ([[1.0, 0.0], [0.0, np.nan]], "1 of 2 basis functions, the first at position"),
        ([[1.0, 0.0], [0.0, 0.0]], "positive"),
        ([[1.0, 2.0], [2.0, 1.0]], "not positive definite"),
    ],
)
def test_a_matrix_without_a_factor_is_refused(H, what):
    """The matrix is not finite, has an empty column, or is indefinite."""
    with pytest.raises(NumericalError, match=what):
        factorise(np.array(H))


def test_the_evidence_without_columns_is_that_of_pure_noise(rng):
    """It is log N(t | 0, σ²I)."""
    t = rng.normal(size=20)
    found = module.posterior(dense_statistics(np.zeros((20, 0)), t[:, None]), np.zeros(0), 4.0)
    expected = -0.5 * (20 * np.log(2 * np.pi / 4.0) + 4.0 * t @ t)
    assert_allclose(found.log_evidence, expected, rtol=1e-12)
    assert found.root().shape == (0, 0)


def exact_residual(Phi, t, mean):
    """Return ‖t − Φμ‖² in extended precision."""
    r = t.astype(np.longdouble) - Phi.astype(np.longdouble) @ mean.astype(np.longdouble)
    return float(r @ r)


@given(seeds, st.integers(-12, -2))
def test_a_residual_without_digits_is_flagged(seed, power):
    """A result that is off by more than 1 % is marked ``cancelled``; it is precise about the
    mean."""
    rng = default_rng(seed)
    noise = 10.0**power
    Phi = rng.normal(size=(200, 5))
    t = Phi @ rng.normal(size=5) + noise * rng.normal(size=200)
    alpha = np.full(5, 1e-3)
    beta = 1 / noise**2
    found = module.posterior(dense_statistics(Phi, t[:, None]), alpha, beta)
    wrong = abs(found.residual / exact_residual(Phi, t, found.mean) - 1)
    assert found.cancelled or wrong < 0.01
    if noise >= 1e-3:
        assert not found.cancelled
    if noise <= 1e-8:
        assert found.cancelled
    second = module.posterior(dense_statistics(Phi, t[:, None], offset=found.means), alpha, beta)
    assert not second.cancelled
    expected = exact_residual(Phi, t, second.mean)
    assert_allclose(second.residual, expected, rtol=1e-8 if noise >= 1e-6 else 1e-2)


def test_the_root_of_some_weights_is_that_of_their_covariance():
    rng = default_rng(0)
    root = np.triu(rng.normal(size=(5, 5)))
    columns = np.array([0, 3, 4])
    of_some = module.marginal_root(root, columns)
    assert_allclose(of_some @ of_some.T, (root @ root.T)[np.ix_(columns, columns)])
    assert_allclose(of_some, np.triu(of_some))
    assert module.marginal_root(root, np.arange(5)) is root
