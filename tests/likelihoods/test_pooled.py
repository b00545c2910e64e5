"""Several classes by default: vectors of one against the rest, and a softmax whose one α maximises the evidence."""

from __future__ import annotations

import naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from partirvm import RVMClassifier
from partirvm.core.termination import Termination
from partirvm.errors import LimitWarning
from partirvm.likelihoods.classes import STEPS, next_point
from partirvm.model import load_model, save_model

GAMMA = 0.5
MIDDLES = np.array([[-2.0, 0.0], [0.0, 2.0], [2.0, 0.0], [0.0, -2.0], [0.0, 0.0]])
CLASSES = np.array([0, 1, 0, 1, 2])


@pytest.fixture(scope="module")
def rows():
    """Three classes, two of them with two parts each, hardly mixed."""
    rng = np.random.default_rng(3)
    part = rng.integers(0, 5, 150)
    return MIDDLES[part] + 0.6 * rng.normal(size=(150, 2)), CLASSES[part]


@pytest.fixture(scope="module")
def fitted(rows):
    """The fit by default, at a given width."""
    return RVMClassifier(gamma=GAMMA, strategy="basic", random_state=0).fit(*rows)


def test_the_vectors_are_those_of_one_against_the_rest(rows, fitted):
    """Every vector that one output of ``ovr`` keeps, for all classes."""
    other = RVMClassifier(gamma=GAMMA, strategy="basic", multi_class="ovr", random_state=0).fit(*rows)
    np.testing.assert_array_equal(fitted.relevance_vectors_, other.relevance_vectors_)
    assert np.isinf(other.alpha_).any()
    assert np.isfinite(fitted.alpha_).all()
    assert fitted.termination_ is Termination.CONVERGED


def test_the_weights_are_the_mode_of_the_softmax(rows, fitted):
    """Predictors of the dense mode at the model's α; probabilities are the softmax of them."""
    X, codes = rows
    model = fitted.model_
    Phi = model.design.block(X)
    assert model.likelihood == "multinomial"
    mode = naive.mode("multinomial", Phi, codes, model.alpha)
    np.testing.assert_allclose(Phi @ model.mean, Phi @ mode, atol=0.02)
    f = Phi @ model.mean
    expected = np.exp(f) / np.exp(f).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(fitted.predict_proba(X), expected, atol=1e-12)


def test_one_alpha_of_largest_evidence(rows, fitted):
    """All vectors have one α; at larger and smaller α of the vectors the dense evidence is lower."""
    X, codes = rows
    model = fitted.model_
    Phi, kernels = model.design.block(X), model.design.n_leading
    assert np.ptp(model.alpha[kernels:]) == 0.0

    def evidence(factor):
        alpha = model.alpha.copy()
        alpha[kernels:] *= factor
        return naive.laplace("multinomial", Phi, codes, alpha, naive.mode("multinomial", Phi, codes, alpha))[1]

    best = evidence(1.0)
    assert fitted.log_evidence_ == pytest.approx(best, abs=1e-2)
    assert max(evidence(2.0), evidence(0.5)) < best


def bayes(X, y):
    """Accuracy of the Bayes classifier: the class of the nearest middle, nearly."""
    return np.mean(CLASSES[np.linalg.norm(X[:, None] - MIDDLES, axis=2).argmin(axis=1)] == y)


@pytest.mark.parametrize("strategy", ["basic", "working-set"])
def test_strategies_end_with_a_softmax(rows, strategy, tmp_path):
    """The model of the last fit is saved and loaded, and predicts the classes."""
    X, y = rows
    fit = RVMClassifier(gamma=GAMMA, strategy=strategy, partition_size=40, random_state=0).fit(X, y)
    assert fit.model_.likelihood == "multinomial"
    assert np.ptp(fit.model_.alpha[fit.model_.design.n_leading :]) == 0.0
    assert fit.score(X, y) > bayes(X, y) - 0.05
    save_model(fit.model_, tmp_path / "model")
    np.testing.assert_array_equal(load_model(tmp_path / "model").predict_proba(X), fit.predict_proba(X))


def test_few_passes_end_the_fit(rows):
    """A limit on passes that the choice of vectors reaches leaves its model."""
    X, y = rows
    with pytest.warns(LimitWarning, match="had not converged"):
        fit = RVMClassifier(gamma=GAMMA, strategy="basic", solver="fixed-point", max_iterations=3).fit(X, y)
    assert fit.termination_ is Termination.ITERATIONS
    assert fit.model_.likelihood == "ovr"


def found(function, step):
    """The last point, and all points of the search."""
    values, at, last = {}, 0, False
    while not last:
        assert at not in values
        values[at] = function(step * at)
        at, last = next_point(values)
    return step * at, values


@given(top=st.floats(-5, 5), bend=st.floats(0.1, 10), step=st.floats(0.5, 2))
def test_the_vertex_of_a_parabola(top, bend, step):
    """−b(x − x₀)² has its maximum at x₀; no point is evaluated twice."""
    x, points = found(lambda x: -bend * (x - top) ** 2, step)
    assert x == pytest.approx(top, abs=1e-6)
    assert len(points) <= abs(top) / step + 4


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_a_function_that_rises_without_end(sign):
    """The search ends after ``STEPS`` steps, at the best point."""
    x, points = found(lambda x: sign * x, 0.5)
    assert x == sign * 0.5 * STEPS
    assert len(points) <= STEPS + 2
