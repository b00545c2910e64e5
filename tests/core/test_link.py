"""Class probabilities from linear predictors: against the formulas, in extended range, and by integration."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.integrate import quad
from scipy.stats import norm

from partirvm.core.link import LINKS, moderated, probabilities, variances


def outputs(likelihood: str, low: float, high: float) -> st.SearchStrategy[np.ndarray]:
    shape = st.tuples(st.integers(1, 6), st.just(1) if likelihood == "bernoulli" else st.integers(2, 5))
    return shape.flatmap(lambda shape: arrays(np.float64, shape, elements=st.floats(low, high)))


@pytest.mark.parametrize("likelihood", LINKS)
@given(st.data())
def test_probabilities_equal_the_formulas(likelihood, data):
    f = data.draw(outputs(likelihood, -30, 30))
    if likelihood == "bernoulli":
        second = 1 / (1 + np.exp(-f[:, 0]))
        expected = np.column_stack([1 - second, second])
    else:
        terms = np.exp(f) if likelihood.startswith("multinomial") else 1 / (1 + np.exp(-f))
        expected = terms / terms.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(probabilities(likelihood, f), expected, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("likelihood", LINKS)
@given(st.data())
def test_probabilities_are_finite_and_sum_to_one_however_large_the_predictors(likelihood, data):
    f = data.draw(outputs(likelihood, -1e4, 1e4))
    found = probabilities(likelihood, f)
    assert np.isfinite(found).all()
    assert (found >= 0).all()
    np.testing.assert_allclose(found.sum(axis=1), 1.0, rtol=1e-12)


def test_one_versus_rest_prefers_the_least_unlikely_class_where_all_sigmoids_underflow():
    found = probabilities("ovr", np.array([[-1000.0, -999.0, -9000.0]]))
    ratio = np.exp(1.0)
    np.testing.assert_allclose(found, [[1 / (1 + ratio), ratio / (1 + ratio), 0.0]], rtol=1e-12)


def test_an_unknown_likelihood_is_refused():
    with pytest.raises(ValueError, match="probit"):
        probabilities("probit", np.zeros((1, 1)))


def test_no_variance_moderates_nothing():
    f = np.array([[-3.0, 0.0, 7.5]])
    np.testing.assert_array_equal(moderated(f, np.zeros((1, 3))), f)


@pytest.mark.parametrize("f", [-8.0, -2.0, -0.5, 0.0, 1.0, 4.0])
@pytest.mark.parametrize("variance", [0.0, 0.1, 1.0, 4.0, 25.0, 100.0])
def test_moderation_is_near_the_mean_of_the_sigmoid_over_the_normal(f, variance):
    def integrand(z: float) -> float:
        return float(norm.pdf(z) / (1 + np.exp(-(f + np.sqrt(variance) * z))))

    exact = quad(integrand, -12, 12, epsabs=1e-10, limit=200)[0]
    found = probabilities("bernoulli", moderated(np.array([[f]]), np.array([[variance]])))[0, 1]
    assert abs(found - exact) < 0.02


def test_variances_are_quadratic_forms(rng):
    block, roots = rng.normal(size=(7, 4)), rng.normal(size=(3, 4, 4))
    expected = [[phi @ root @ root.T @ phi for root in roots] for phi in block]
    np.testing.assert_allclose(variances(block, roots), expected, rtol=1e-12)
