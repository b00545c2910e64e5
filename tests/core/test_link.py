"""Class probabilities and the statistic of a pass: formulas, extreme values, splits of rows."""

from dataclasses import fields

import naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.random import default_rng
from numpy.testing import assert_allclose
from scipy.integrate import quad
from scipy.stats import norm

from partirvm.core import LINKS, LogisticBlock, moderated


def outputs(likelihood, low, high):
    shape = st.tuples(
        st.integers(1, 6), st.just(1) if likelihood == "bernoulli" else st.integers(2, 5)
    )
    return shape.flatmap(lambda shape: arrays(np.float64, shape, elements=st.floats(low, high)))


@pytest.mark.parametrize("likelihood", LINKS)
@given(st.data())
def test_probabilities_follow_the_formulas_and_sum_to_one(likelihood, data):
    found = LINKS[likelihood].probabilities(data.draw(outputs(likelihood, -1e4, 1e4)))
    assert np.isfinite(found).all()
    assert (found >= 0).all()
    assert_allclose(found.sum(axis=1), 1.0, rtol=1e-12)
    f = data.draw(outputs(likelihood, -30, 30))
    if likelihood == "bernoulli":
        second = 1 / (1 + np.exp(-f[:, 0]))
        expected = np.column_stack([1 - second, second])
    else:
        terms = np.exp(f)
        expected = terms / terms.sum(axis=1, keepdims=True)
    assert_allclose(LINKS[likelihood].probabilities(f), expected, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("f", [-8.0, -0.5, 1.0])
@pytest.mark.parametrize("variance", [0.0, 1.0, 25.0])
def test_moderation_is_near_the_mean_of_the_sigmoid_over_a_normal(f, variance):
    def integrand(z):
        return float(norm.pdf(z) / (1 + np.exp(-(f + np.sqrt(variance) * z))))

    exact = quad(integrand, -12, 12, epsabs=1e-10, limit=200)[0]
    found = LINKS["bernoulli"].probabilities(moderated(np.array([[f]]), np.array([[variance]])))[
        0, 1
    ]
    assert abs(found - exact) < 0.02


seeds = st.integers(0, 2**32 - 1)
likelihoods = st.sampled_from(list(LINKS))


@st.composite
def problems(draw):
    """Draw a likelihood, a design, codes, weights W, and row weights that may be zero."""
    likelihood = draw(likelihoods)
    rng = default_rng(draw(seeds))
    N = draw(st.integers(1, 30))
    M = draw(st.integers(1, 5))
    K = draw(st.integers(2, 5))
    K = 2 if likelihood == "bernoulli" else K
    Phi = rng.normal(size=(N, M))
    codes = rng.integers(K, size=N).astype(float)
    mean = draw(st.sampled_from([0.0, 1.0, 10.0])) * rng.normal(
        size=(M, (1 if likelihood == "bernoulli" else K))
    )
    w = draw(st.sampled_from([None, rng.choice([0.0, 0.5, 2.0], N)]))
    return likelihood, Phi, codes, mean, w


def same(block, other, rtol=1e-9, atol=1e-9):
    """Assert that all fields agree."""
    for field in fields(LogisticBlock):
        assert_allclose(
            getattr(block, field.name), getattr(other, field.name), rtol=rtol, atol=atol
        )


@given(problems())
def test_the_statistic_follows_the_dense_formula(problem):
    """It has the log likelihood, the gradient, and the negative Hessian of each output."""
    likelihood, Phi, codes, mean, w = problem
    block = LogisticBlock.of(likelihood, Phi, codes, mean, w)
    value, gradient, curvature = naive.logistic(likelihood, Phi, codes, mean, w)
    assert_allclose(block.log_likelihood, value, rtol=1e-9, atol=1e-9)
    assert_allclose(block.gradient, gradient, rtol=1e-9, atol=1e-9)
    for k in range(mean.shape[1]):
        assert_allclose(block.curvature[k], curvature[:, k, :, k], rtol=1e-9, atol=1e-9)
    f = Phi @ mean
    w = naive.ones(Phi, w)
    guess = f[:, 0] > 0 if likelihood == "bernoulli" else f.argmax(axis=1)
    assert (block.wrong, block.n) == (((guess != codes) & (w > 0)).sum(), (w > 0).sum())


@given(problems(), st.data())
def test_taking_columns_equals_the_statistic_of_these_columns(problem, data):
    """The other columns have zero weights."""
    likelihood, Phi, codes, mean, w = problem
    columns = np.array(sorted(data.draw(st.sets(st.integers(0, len(mean) - 1)))), dtype=np.int64)
    alone = np.zeros(mean.shape)
    alone[columns] = mean[columns]
    block = LogisticBlock.of(likelihood, Phi, codes, alone, w).take(columns)
    same(block, LogisticBlock.of(likelihood, Phi[:, columns], codes, mean[columns], w))


@pytest.mark.parametrize("likelihood", LINKS)
@pytest.mark.parametrize("size", [1e3, 1e8, 1e300])
def test_statistics_of_huge_predictors_are_finite(likelihood, size):
    """log p is −size or 0, never NaN, although p underflows."""
    C = 1 if likelihood == "bernoulli" else 3
    Phi = np.array([[1.0], [-1.0]])
    mean = size * np.arange(1.0, C + 1)[None, :]
    with np.errstate(all="raise", under="ignore"):
        block = LogisticBlock.of(likelihood, Phi, np.array([0.0, 0.0]), mean)
    assert np.isfinite(block.log_likelihood).all()
    assert block.log_likelihood <= -size / 2
    assert np.isfinite(block.gradient).all()
    assert np.isfinite(block.curvature).all()
