"""Basis functions through the estimators, beside kernels and alone, against the dense formulas of
their designs."""

import naive
import numpy as np
import pytest
from regressions import plain_deviation
from sklearn.preprocessing import PolynomialFeatures

from partirvm import RVMClassifier, RVMRegressor
from partirvm.errors import UsageError

N = 160
QUIET = pytest.mark.filterwarnings("ignore::partirvm.errors.LimitWarning")


def rows(n=N, seed=3):
    """A target with a linear trend in two features of three, and a bend in the last."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3)) * [1.0, 2.0, 0.5] + 3.0
    y = 5 + 2 * X[:, 0] - X[:, 1] + np.sin(6 * X[:, 2]) + 0.1 * rng.standard_normal(n)
    return X, y


def squares(X):
    """Two basis functions."""
    return np.column_stack([X[:, 0] ** 2, X[:, 1] * X[:, 2]])


def scaled(model, X):
    """Inputs as the model sees them, by definition."""
    scaling = model.model_.design.scaling
    return (X - scaling.x_shift) / scaling.x_scale


def phi(model, X, functions):
    """The design: ones, functions (n, B) and kernels, as far as they are in the model, by their
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
@pytest.mark.parametrize("case", CASES)
def test_predictions_and_evidence_are_those_of_the_design(case):
    """Mean and variance at the α and β found (Tipping's eqs. 12, 13, 20–22), and the evidence there
    (eq. 15)."""
    asked, functions = CASES[case]
    X, y = rows()
    new = X[:20] + 0.01
    model = RVMRegressor(random_state=0, noise="constant", **asked).fit(X, y)
    found = model.model_
    scaling = model.model_.design.scaling
    shift = scaling.t_shift[0]
    scale = scaling.t_scale[0]
    t = (y - y.mean()) / y.std()
    beta = scale**2 / model.model_.evidence_noise
    Phi = phi(model, X, functions)
    there = phi(model, new, functions)
    mean, variance = naive.predict(there, Phi, t, found.alpha, beta)
    predicted = model.predict(new)
    std = plain_deviation(model, new)
    np.testing.assert_allclose(predicted, shift + scale * mean, rtol=1e-6)
    np.testing.assert_allclose(std, scale * np.sqrt(variance), rtol=1e-5)
    evidence = naive.log_evidence(Phi, t, found.alpha, beta) - N * np.log(scale)
    np.testing.assert_allclose(model.log_evidence_, evidence, rtol=1e-6)
    # attributes: the bias and every function in their order, then kernels
    whole = dict(
        zip([-1, *(-2 - np.arange(len(model.basis_names_) - 1))], model.basis_weights_, strict=True)
    )
    leading = found.design.leading
    np.testing.assert_array_equal([whole[label] for label in leading], found.mean[: len(leading)])
    assert np.count_nonzero(model.basis_weights_) == found.design.n_leading
    np.testing.assert_array_equal(np.isinf(model.basis_alpha_), model.basis_weights_ == 0)
    assert model.n_relevance_vectors_ == len(model.weights_) == len(Phi.T) - found.design.n_leading
    if asked["basis"] == "linear":
        assert model.basis_names_.tolist() == ["bias", "x0", "x1", "x2"]
        assert model.basis_relevance_[1] > 10, "the trend is linear"
    if case == "alone":
        assert model.relevance_vectors_.shape == (0, 3)
        assert [entry["candidates"] for entry in model.history_] == [0]
        assert model.history_[0]["passes"] == 3, "gram, left-out rows and residual"


@QUIET
def test_polynomials_alone_are_sparse_linear_regression():
    """The monomials of the truth are found; relevance is evidence."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(200, 3))
    y = 1 + X[:, 0] - 2 * X[:, 0] * X[:, 1] + 0.3 * X[:, 2] ** 2 + 0.2 * rng.standard_normal(200)
    monomials = PolynomialFeatures(2, include_bias=False)
    model = RVMRegressor(kernel=None, basis=monomials.fit_transform, tol=1e-10, random_state=0).fit(
        X, y
    )
    names = np.array(["bias", *monomials.fit(X).get_feature_names_out()])
    x = (X - X.mean(axis=0)) / X.std(axis=0)
    t = (y - y.mean()) / y.std()
    F = PolynomialFeatures(2).fit_transform(x)  # the constant first, as the bias is
    strong = np.flatnonzero(model.basis_relevance_ > 3)
    assert {"x0", "x0 x1"} <= set(names[strong])

    there = np.flatnonzero(model.basis_weights_)
    beta = y.var() / model.model_.evidence_noise
    alpha = model.basis_alpha_[there]
    whole = naive.log_evidence(F[:, there], t, alpha, beta)
    for k, column in enumerate(there):
        rest = np.delete(np.arange(len(there)), k)
        loss = whole - naive.log_evidence(F[:, there[rest]], t, alpha[rest], beta)
        np.testing.assert_allclose(model.basis_relevance_[column], loss, rtol=1e-4, atol=1e-3)


@QUIET
@pytest.mark.filterwarnings("ignore:.*far from every relevance vector")
@pytest.mark.parametrize("asked", [{"kernel": None}, {"gamma": 1.0}], ids=["alone", "beside"])
@pytest.mark.parametrize("classes", [2, 3])
def test_classes(asked, classes):
    """Weights are the mode at their α (Tipping 2001, §3), of the design with its linear columns."""
    X, y = rows(90)
    codes = np.digitize(
        y - 5 - np.sin(6 * X[:, 2]), np.quantile(y - 5, [0.5] if classes == 2 else [0.3, 0.7])
    )
    options = {"likelihood": "multinomial", "random_state": 0, "tol": 1e-9, **asked}
    model = RVMClassifier(basis="linear", **options).fit(X, codes)
    found = model.model_
    alpha = np.repeat(found.alpha[:, None], found.mean.shape[1], axis=1)
    expected = naive.mode(found.likelihood, phi(model, X, linear), codes, alpha)
    np.testing.assert_allclose(found.mean, expected, rtol=1e-3, atol=1e-4)
    assert model.basis_weights_.shape == ((4,) if classes == 2 else (3, 4))
    assert model.basis_relevance_.shape == (4,)
    assert (model.basis_relevance_[1:3] > 2 + model.basis_relevance_[3]).all(), (
        "the trend is in the first two"
    )
    assert model.score(X, codes) > 0.8


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"kernel": None}, "kernel and basis are both none"),
        ({"kernel": ["gaussian", None]}, "None cannot be part of a list"),
        (
            {"kernel": None, "basis": "linear", "gamma": 0.5},
            "its own parameters, or none: leave gamma out",
        ),
        ({"basis": "quadratic"}, "basis is 'quadratic': it must be 'linear', a callable, or"),
        ({"basis": PolynomialFeatures(2)}, "it must be 'linear', a callable, or"),
        ({"basis": "no_such:f"}, "no_such:f cannot be imported"),
        ({"basis": lambda X: X[:, 0]}, r"returned the shape \(16,\)"),
    ],
)
def test_what_is_refused(asked, message):
    """Before anything is fitted."""
    with pytest.raises(UsageError, match=message):
        RVMRegressor(**asked).fit(*rows())
