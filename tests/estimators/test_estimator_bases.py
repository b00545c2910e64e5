"""Estimators with basis functions, with and without kernels, equal dense formulas."""

from itertools import product

import naive
import numpy as np
import pytest
from by_default import some
from numpy.random import default_rng
from numpy.testing import assert_allclose, assert_array_equal
from regressions import Dense, plain_deviation
from sklearn.preprocessing import PolynomialFeatures

from partirvm import RVMClassifier, RVMRegressor
from partirvm.errors import UsageError

N = 100
QUIET = pytest.mark.filterwarnings("ignore::partirvm.errors.LimitWarning")


def rows(n=N, seed=3):
    """Return a target with a linear trend in two of three features and a bend in the last."""
    rng = default_rng(seed)
    X = rng.normal(size=(n, 3)) * [1.0, 2.0, 0.5] + 3.0
    y = 5 + 2 * X[:, 0] - X[:, 1] + np.sin(6 * X[:, 2]) + 0.1 * rng.standard_normal(n)
    return X, y


def squares(X):
    """Return two basis functions."""
    return np.column_stack([X[:, 0] ** 2, X[:, 1] * X[:, 2]])


def scaled(model, X):
    """Return inputs as the model sees them, by definition."""
    scaling = model.model_.design.scaling
    return (X - scaling.x_shift) / scaling.x_scale


def dense_design(model, X, functions):
    """Return those ones, basis functions and kernels that the model has, selected by their
    labels."""
    design = model.model_.design
    x = scaled(model, X)
    leading = [
        np.ones(len(X)) if label == -1 else functions(x)[:, -2 - label] for label in design.leading
    ]
    kernels = (
        naive.gaussian(x, scaled(model, design.centres), design.kernel.gamma)
        if len(design.centres)
        else None
    )
    return np.column_stack([*leading, *([] if kernels is None else [kernels])])


def linear(x):
    return x


def both(x):
    return np.hstack([x, squares(x)])


CASES = {
    "linear": ({"basis": "linear", "gamma": 0.3}, linear),
    "callable": ({"basis": squares, "gamma": 0.3}, squares),
    "list": ({"basis": ["linear", squares], "gamma": 0.3}, both),
    "alone": ({"basis": ["linear", squares], "kernel": None}, both),
    "learned": ({"kernel": "gaussian", "basis": "linear", "gamma": "learn-per-feature"}, linear),
    "rounds": (
        {"basis": "linear", "gamma": 0.3, "strategy": "working-set", "partition_size": 30},
        linear,
    ),
    "merged": (
        {"basis": "linear", "gamma": 0.3, "strategy": "split-merge", "partition_size": 40},
        linear,
    ),
    "no-bias": ({"basis": squares, "gamma": 0.3, "fit_intercept": False}, squares),
}


@QUIET
@pytest.mark.filterwarnings("ignore:.*far from every relevance vector")
@pytest.mark.usefixtures("quick_learning")
@pytest.mark.parametrize("case", some(CASES, set(CASES) - {"linear", "merged"}))
def test_predictions_and_evidence_follow_the_formulas_for_the_design(case):
    """Mean and variance at the final α and β follow Tipping's eqs. 12, 13 and 20–22, the evidence
    eq. 15."""
    options, functions = CASES[case]
    X, y = rows()
    new = X[:20] + 0.01
    model = RVMRegressor(random_state=0, noise="constant", reference="none", **options).fit(X, y)
    fitted = model.model_
    dense = Dense(model, X, y, dense_design(model, X, functions))
    mean, variance = naive.predict(dense_design(model, new, functions), *dense.problem)
    assert_allclose(model.predict(new), dense.shift + dense.scale * mean, rtol=1e-6)
    deviation = plain_deviation(model, new)
    assert_allclose(deviation, dense.scale * np.sqrt(variance), rtol=1e-5)
    evidence = naive.log_evidence(*dense.problem) - N * np.log(dense.scale)
    assert_allclose(model.log_evidence_, evidence, rtol=1e-6)
    # attributes: the bias and all functions in their order, then kernels
    labels = [-1, *(-2 - np.arange(len(model.basis_names_) - 1))]
    weights = dict(zip(labels, model.basis_weights_, strict=True))
    leading = fitted.design.leading
    assert_array_equal([weights[label] for label in leading], fitted.mean[: len(leading)])
    assert np.count_nonzero(model.basis_weights_) == fitted.design.n_leading
    assert_array_equal(np.isinf(model.basis_alpha_), model.basis_weights_ == 0)
    n_kernels = len(dense.Phi.T) - fitted.design.n_leading
    assert model.n_relevance_vectors_ == len(model.weights_) == n_kernels
    if options["basis"] == "linear":
        assert model.basis_names_.tolist() == ["bias", "x0", "x1", "x2"]
        assert model.basis_relevance_[1] > 10, "the trend is linear"
    if case == "alone":
        assert model.relevance_vectors_.shape == (0, 3)
        assert [entry["candidates"] for entry in model.history_] == [0]
        assert model.history_[0]["passes"] == 3, "gram, left-out rows and residual"


@QUIET
def test_polynomials_alone_are_sparse_linear_regression():
    """The true monomials are selected; relevance is the loss of evidence without a function."""
    rng = default_rng(0)
    X = rng.uniform(-1, 1, size=(200, 3))
    y = 1 + X[:, 0] - 2 * X[:, 0] * X[:, 1] + 0.3 * X[:, 2] ** 2 + 0.2 * rng.standard_normal(200)
    monomials = PolynomialFeatures(2, include_bias=False)
    model = RVMRegressor(kernel=None, basis=monomials.fit_transform, tol=1e-10, random_state=0).fit(
        X, y
    )
    names = np.array(["bias", *monomials.fit(X).get_feature_names_out()])
    x = (X - X.mean(axis=0)) / X.std(axis=0)
    t = (y - y.mean()) / y.std()
    F = PolynomialFeatures(2).fit_transform(x)  # the constant comes first, like the bias
    strong = np.flatnonzero(model.basis_relevance_ > 3)
    assert {"x0", "x0 x1"} <= set(names[strong])

    selected = np.flatnonzero(model.basis_weights_)
    beta = y.var() / model.model_.evidence_noise
    alpha = model.basis_alpha_[selected]
    evidence = naive.log_evidence(F[:, selected], t, alpha, beta)
    for k, column in enumerate(selected):
        others = np.delete(np.arange(len(selected)), k)
        loss = evidence - naive.log_evidence(F[:, selected[others]], t, alpha[others], beta)
        assert_allclose(model.basis_relevance_[column], loss, rtol=1e-4, atol=1e-3)


@QUIET
@pytest.mark.filterwarnings("ignore:.*far from every relevance vector")
@pytest.mark.parametrize(
    ("kernel", "classes"),
    some(product(["alone", "added"], [2, 3]), {("alone", 3), ("added", 2)}),
)
def test_weight_vectors_of_classes_are_the_mode(kernel, classes):
    """They are the mode at their α (Tipping 2001, §3) for the design with its linear columns."""
    X, y = rows(90)
    codes = np.digitize(
        y - 5 - np.sin(6 * X[:, 2]), np.quantile(y - 5, [0.5] if classes == 2 else [0.3, 0.7])
    )
    options = {"likelihood": "multinomial", "random_state": 0, "tol": 1e-9}
    options |= {"kernel": None} if kernel == "alone" else {"gamma": 1.0}
    model = RVMClassifier(basis="linear", **options).fit(X, codes)
    fitted = model.model_
    alpha = np.repeat(fitted.alpha[:, None], fitted.mean.shape[1], axis=1)
    expected = naive.mode(fitted.likelihood, dense_design(model, X, linear), codes, alpha)
    assert_allclose(fitted.mean, expected, rtol=1e-3, atol=1e-4)
    assert model.basis_weights_.shape == ((4,) if classes == 2 else (3, 4))
    assert model.basis_relevance_.shape == (4,)
    assert (model.basis_relevance_[1:3] > 2 + model.basis_relevance_[3]).all(), (
        "the trend is in the first two"
    )
    assert model.score(X, codes) > 0.8


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kernel": None}, "kernel and basis are both none"),
        ({"kernel": ["gaussian", None]}, "None cannot be part of a list"),
        (
            {"kernel": None, "basis": "linear", "gamma": 0.5},
            "its own parameters, or none: leave gamma out",
        ),
        (
            {"basis": "quadratic"},
            "basis is 'quadratic': it must be 'linear', 'trees', 'auto', a callable, or",
        ),
        ({"basis": PolynomialFeatures(2)}, "it must be 'linear', 'trees', 'auto', a callable, or"),
        ({"basis": "no_such:f"}, "no_such:f cannot be imported"),
        ({"basis": lambda X: X[:, 0]}, r"returned the shape \(16,\)"),
    ],
)
def test_impossible_bases_are_refused_before_the_fit(options, message):
    with pytest.raises(UsageError, match=message):
        RVMRegressor(**options).fit(*rows())
