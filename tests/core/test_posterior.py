"""Posterior and evidence against Tipping's equations, where the numbers are kind and where they are
not."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from naive import (
    determinedness,
    gaussian,
    gram,
    log_evidence,
    posterior,
    predict_by_rows,
    sparsity_quality,
)
from numpy.random import default_rng
from numpy.testing import assert_allclose

from partirvm.core import posterior as module
from partirvm.core.posterior import factorise, own_factors
from partirvm.core.statistics import GramStatistics
from partirvm.errors import NumericalError

seeds = st.integers(0, 2**32 - 1)


def statistics_of(Phi, t, w=None, offset=None):
    """Statistics of a design by the definitions, of the residual target t − Φ·offset."""
    M = Phi.shape[1]
    m = np.zeros(M) if offset is None else offset
    G, b, sum_squares = gram(Phi, (t - Phi @ m)[:, None], w)
    there = np.ones(len(t)) if w is None else w[w > 0]
    return GramStatistics(
        np.arange(M), G, b, sum_squares, m[:, None], len(there), float(np.log(there).sum())
    )


@st.composite
def kind_problems(draw):
    """Columns of noise: the Gram matrix is well conditioned. With and without weights (some zero)
    and an offset."""
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
    offset = draw(st.sampled_from([None, rng.normal(size=M)]))
    return Phi, t, alpha, beta, w, offset


@given(kind_problems())
def test_posterior_and_evidence_where_well_conditioned(problem):
    """Σ and μ (eqs. 6, 12, 13), γ (17), ‖t − Φμ‖² and log N(t | 0, C) (15), to 1e-8; of each column
    s_i = φᵀC₋ᵢ⁻¹φ and q_i = φᵀC₋ᵢ⁻¹t with C₋ᵢ the covariance without it (Tipping & Faul 2003, eqs.
    19 and 22)."""
    Phi, t, alpha, beta, w, offset = problem
    found = module.posterior(statistics_of(Phi, t, w, offset), alpha, beta)
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
        # s = 1/Σ_ii − α_i is a difference: its rounding is that of its larger term.
        assert_allclose(s[i], expected[0], rtol=1e-8, atol=1e-12 * alpha[i])
        assert_allclose(q[i], expected[1], rtol=1e-7, atol=1e-8 * np.sqrt(expected[0]))


@st.composite
def unkind_problems(draw):
    """Kernels ten times too wide, or every column twice, or every row twice: ΦᵀΦ is singular to
    rounding."""
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
def test_predictions_and_evidence_where_ill_conditioned(problem):
    """At fixed α and β: predictive mean and sd to 1e-6 of sd(t) = 1, evidence to 1e-6 of its nats
    or of N.

    The reference works with the N × N covariance C, whose least eigenvalue is the noise variance;
    its own rounding is that of βtᵀC⁻¹t, which is as large as the evidence where β was drawn far too
    high for the data.
    """
    Phi, t, alpha, beta, test, with_offset = problem
    offset = module.posterior(statistics_of(Phi, t), alpha, 3 * beta).mean if with_offset else None
    found = module.posterior(statistics_of(Phi, t, None, offset), alpha, beta)
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
def test_what_cannot_be_factorised_is_said(H, what):
    """Not finite, an empty column, an indefinite matrix."""
    with pytest.raises(NumericalError, match=what):
        factorise(np.array(H))


def test_no_columns_at_all(rng):
    """M = 0: the evidence is that of noise alone, log N(t | 0, σ²I)."""
    t = rng.normal(size=20)
    found = module.posterior(statistics_of(np.zeros((20, 0)), t), np.zeros(0), 4.0)
    expected = -0.5 * (20 * np.log(2 * np.pi / 4.0) + 4.0 * t @ t)
    assert_allclose(found.log_evidence, expected, rtol=1e-12)
    assert found.root().shape == (0, 0)


def exact_residual(Phi, t, mean):
    """‖t − Φμ‖² in extended precision."""
    r = t.astype(np.longdouble) - Phi.astype(np.longdouble) @ mean.astype(np.longdouble)
    return float(r @ r)


@given(seeds, st.integers(-12, -2))
def test_a_residual_without_digits_is_flagged(seed, power):
    """tᵀt − 2μᵀb + μᵀGμ that is off by more than 1 % says ``cancelled``; noise of 1 % does not.
    After a rebase onto the mean, ‖t − Φμ‖² has its digits again and is not flagged."""
    rng = default_rng(seed)
    noise = 10.0**power
    Phi = rng.normal(size=(200, 5))
    t = Phi @ rng.normal(size=5) + noise * rng.normal(size=200)
    alpha = np.full(5, 1e-3)
    beta = 1 / noise**2
    found = module.posterior(statistics_of(Phi, t), alpha, beta)
    wrong = abs(found.residual / exact_residual(Phi, t, found.mean) - 1)
    assert found.cancelled or wrong < 0.01
    if noise >= 1e-3:
        assert not found.cancelled
    if noise <= 1e-8:
        assert found.cancelled
    second = module.posterior(statistics_of(Phi, t, None, found.mean), alpha, beta)
    assert not second.cancelled
    expected = exact_residual(Phi, t, second.mean)
    assert_allclose(second.residual, expected, rtol=1e-8 if noise >= 1e-6 else 1e-2)
