"""The softmax with an α for each class and column, against dense formulas."""

from itertools import product

import dense_formulas
import numpy as np
import pytest
from by_default import some
from scipy.optimize import minimize
from sklearn.datasets import load_iris

from partirvm.core.link import targets
from partirvm.errors import UsageError
from partirvm.kernels import Gaussian
from partirvm.literature.softmax import SoftmaxSearch, TippingClassifier


def problem(seed, n_classes):
    """Return a design (40, 3), codes, and the first state with random α, without some weights."""
    rng = np.random.default_rng(seed)
    design = rng.normal(size=(40, 3))
    codes = (design[:, 0] + rng.normal(size=40) > 0).astype(int)
    if n_classes == 3:
        codes += rng.uniform(size=40) < 0.3
    outputs_count = 1 if n_classes == 2 else n_classes
    columns, outputs = np.indices((3, outputs_count)).reshape(2, -1)
    remaining = np.arange(len(columns)) != 1
    columns = columns[remaining]
    outputs = outputs[remaining]
    alpha = np.exp(rng.normal(size=len(columns)))
    state = SoftmaxSearch(
        design=design,
        alpha=alpha,
        weights=rng.normal(size=len(columns)),
        target=targets(codes.astype(float), outputs_count),
        columns=columns,
        outputs=outputs,
    )
    return design, codes, state


def joint(state, design, codes):
    """Return the dense log joint density as a function of the weights (W,)."""
    shape = state.target.shape[1]

    def value(weights):
        table = np.zeros((design.shape[1], shape))
        table[state.columns, state.outputs] = weights
        alpha = np.zeros_like(table)
        alpha[state.columns, state.outputs] = state.alpha
        return dense_formulas.log_joint(table, design, codes, alpha)

    return value


CASES = some(product(range(10), [2, 3]), [*product(range(2), [2, 3])])


@pytest.mark.parametrize(("seed", "n_classes"), CASES)
def test_density_slopes_and_joint_hessian(seed, n_classes):
    """The Hessian contains the blocks between outputs (eq. 28)."""
    design, codes, state = problem(seed, n_classes)
    value = joint(state, design, codes)
    assert state.log_joint == pytest.approx(value(state.weights), rel=1e-8)
    slopes = dense_formulas.differences(value, state.weights)
    np.testing.assert_allclose(state.gradient, slopes, atol=1e-6)
    hessian = dense_formulas.differences(
        lambda weights: dense_formulas.differences(value, weights, 1e-4), state.weights, 1e-4
    )
    np.testing.assert_allclose(-state.hessian - np.diag(state.alpha), hessian, atol=1e-5)


@pytest.mark.parametrize(("seed", "n_classes"), CASES)
def test_mode_and_evidence(seed, n_classes):
    """The mode is SciPy's optimum; the evidence is the log joint density there and ½ log|AΣ|."""
    design, codes, state = problem(seed, n_classes)
    value = joint(state, design, codes)
    best = minimize(lambda w: -value(w), state.weights, method="BFGS", options={"gtol": 1e-9})
    mode = state.at_mode()
    assert mode.log_joint == pytest.approx(-best.fun, rel=1e-8)
    np.testing.assert_allclose(mode.weights, best.x, atol=1e-5)
    precision = mode.hessian + np.diag(mode.alpha)
    log_ratio = np.log(mode.alpha).sum() - np.linalg.slogdet(precision)[1]
    assert mode.log_evidence == pytest.approx(value(mode.weights) + 0.5 * log_ratio, rel=1e-8)
    expected = 1 - mode.alpha * np.diag(np.linalg.inv(precision))
    np.testing.assert_allclose(mode.solution.determinedness, expected, atol=1e-8)


def test_fit_ends_where_alpha_is_determinedness_over_square():
    """γ = αw² of every weight at the end (eq. 16)."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 1))
    y = np.where(X[:, 0] + 0.5 * rng.normal(size=60) > 0, "b", "a")
    model = TippingClassifier(Gaussian(0.5), tol=1e-6).fit(X, y)
    assert model.converged_
    design = np.exp(-0.5 * (X - model.relevance_vectors_.T) ** 2)
    design = np.hstack([np.ones((60, int(-1 in model.labels_))), design])
    p = model.predict_proba(X)[:, 1]
    hessian = design.T @ ((p * (1 - p))[:, None] * design) + np.diag(model.alpha_)
    gamma = 1 - model.alpha_ * np.diag(np.linalg.inv(hessian))
    np.testing.assert_allclose(gamma, model.alpha_ * model.weights_[:, 0] ** 2, rtol=1e-4)
    assert model.score(X, y) > 0.75


def test_each_class_has_its_own_vectors():
    X, y = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    model = TippingClassifier(Gaussian(0.2), max_iter=60).fit(X[::2], names[::2])
    assert model.weights_.shape[1] == 3
    assert len(model.alpha_) == np.count_nonzero(model.weights_)
    assert (model.weights_ == 0).any()
    assert model.score(X[1::2], names[1::2]) > 0.9
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1, rtol=1e-12)


def test_one_class():
    with pytest.raises(UsageError, match="one class"):
        TippingClassifier().fit(np.zeros((3, 1)), np.ones(3))
