"""ANOVA kernels: tables of repeated values, parts of a kernel, refusals, and learned sums."""

from dataclasses import replace

import numpy as np
import pytest
from kernel_cases import CASES, D, anova
from numpy.random import default_rng
from numpy.testing import assert_allclose, assert_array_equal
from scipy.spatial.distance import cdist
from surfaces import additive

from partirvm import RVMRegressor
from partirvm.errors import UsageError
from partirvm.kernels import Anova, Design, Matern32
from partirvm.kernels.anova_values import MOST_DISTINCT, AnovaTriangle, distinct
from partirvm.learning.search import SMALL, reductions
from partirvm.local import Metric
from partirvm.scaling import Scaling
from partirvm.types import Columns

ANOVA = [case for case in CASES if case.kernel.name == "anova"]
of_anova = pytest.mark.parametrize("case", ANOVA, ids=lambda case: case.name)


@of_anova
@pytest.mark.parametrize("values", [1, 2, 7, 2 * MOST_DISTINCT])
def test_features_with_few_values_have_the_kernel_of_their_values(rng, case, values):
    """Values come from tables or not, and have the bits of a single row."""
    X = np.column_stack([rng.integers(0, values, 700) / 8, rng.normal(size=(700, D - 1))])
    X[:, 1] = np.round(X[:, 1])
    Z = X[rng.permutation(700)[:150]]
    found = case.kernel.values(X, Z)
    assert_allclose(found, case.twin(X, Z), rtol=1e-11, atol=1e-13)
    for n in (0, 350, 699):
        alone = case.kernel.values(X[[n]], Z, Z.mean(axis=0))
        assert_array_equal(alone[0], case.kernel.values(X, Z, Z.mean(axis=0))[n])


def test_few_distinct_values_are_tabulated():
    """The table contains each value once, and rows refer to it."""
    x = default_rng(0).integers(0, MOST_DISTINCT, 4 * MOST_DISTINCT).astype(float)
    values, places = distinct(x)
    assert len(values) <= MOST_DISTINCT
    assert_array_equal(values[places], x)
    assert distinct(np.arange(4.0 * MOST_DISTINCT))[1] is None
    assert distinct(np.array([1.0]))[1] is None


@pytest.mark.parametrize("base", ["gaussian", "matern52", "matern32", "laplacian"])
def test_one_feature_has_the_kernel_of_its_base(rng, base):
    """The share does not matter."""
    X = rng.normal(size=(20, 1))
    alone = Anova(0.7, 5.0, base=base, order=1)
    for share in (1e-9, 1.0, 1e6):
        values = Anova(0.7, share, base=base).values(X, X)
        assert_allclose(values, alone.values(X, X), rtol=1e-13, atol=2e-15)


def test_an_order_of_all_features_is_no_limit(rng):
    X = rng.normal(size=(20, 4))
    whole = Anova((0.2, 0.5, 1.0, 0.1), (0.2, 3.0, 1.0, 50.0), base="matern32")
    for order in (4, 9):
        limited = replace(whole, order=order)
        assert_allclose(limited.values(X, X), whole.values(X, X), rtol=1e-13)
        assert_allclose(limited.relevances(4), whole.relevances(4), rtol=1e-13)


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (Anova(1.0, (1.0, 2.0)), "shares has 2 values but the data have 3 features"),
        (Anova((1.0, 2.0)), "gamma has 2 values but the data have 3 features"),
        (Anova(1.0, categorical=(3,)), r"\[3\], but the data have 3 features, counted from 0"),
    ],
)
def test_parameters_for_other_features_are_refused(kernel, message):
    with pytest.raises(UsageError, match=message):
        kernel.prepare(np.zeros((1, 3)))


def test_shares_whose_product_is_too_large_are_refused():
    """Without shares, any number of features is possible."""
    with pytest.raises(UsageError, match="the shares must be smaller"):
        Anova(1.0, 1e6).prepare(np.zeros((1, 60)))
    assert_allclose(Anova(1.0).values(np.zeros((1, 2000)), np.zeros((1, 2000))), 1.0, rtol=1e-12)


def test_weak_features_lose_their_share():
    """A feature is weak if its curvature at x = z is, whatever its gamma."""
    kernel = Anova((1.0, 5.0, 1e-5, 0.0), (0.5, 1e-6, 0.5, 0.5))
    reduced, removed = next(iter(reductions(kernel, 4)))
    assert reduced.shares == (0.5, SMALL, SMALL, 0.5)
    assert reduced.gamma == kernel.gamma
    assert removed == 2
    assert reduced.effective(4).tolist() == [True, False, False, False]
    X = default_rng(0).normal(size=(9, 4))
    two = anova((0.5, 0.5), lambda X, Z, j: np.exp(-((1.0 - j) * cdist(X, Z) ** 2)))
    assert_allclose(reduced.values(X, X), two(X[:, [0, 3]], X[:, [0, 3]]), rtol=1e-12)


@of_anova
@pytest.mark.parametrize("kept", [0, 1 << 22])
def test_a_triangle_has_the_values_and_gradients_of_the_kernel(rng, case, kept):
    """Its slabs of 48 points do not divide 90 points evenly; values of features are kept or
    not."""
    X = rng.normal(size=(90, D))
    X[:40] = np.round(X[:40])
    lower = np.tril(rng.normal(size=(90, 90)))
    triangle = AnovaTriangle(case.kernel, X, kept)
    whole = case.kernel.values(X, X)
    expected = case.kernel.prepare(X).gradient(X, whole, lower)
    columns = np.concatenate([whole[j:, j] for j in range(90)])
    weights = np.concatenate([lower[j:, j] for j in range(90)])
    assert_allclose(triangle.values, columns, rtol=1e-12, atol=1e-14)
    assert_allclose(triangle.gradient(weights), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("order", [None, 1, 2])
@pytest.mark.parametrize("base", ["gaussian", "laplacian"])
def test_squared_distances_of_near_rows_are_those_of_the_kernel(base, order):
    """k(x, x) − k(x, z) = Σ_j portion_j (1 − k_j) to first order; a Laplacian's distance is |c|,
    and its coordinates are those of ``Laplacian``."""
    kernel = Anova((0.3, 2.0, 0.9), (0.5, 0.2, 3.0), base=base, order=order, categorical=(2,))
    columns = Columns(("a", "b", "c"), categories={"c": ("x", "y")})
    scaling = Scaling(np.zeros(3), np.ones(3), np.zeros(1), np.ones(1))
    design = Design(kernel, scaling, np.zeros((0, 3)), np.zeros(0, np.int64), bias=False)
    metric = Metric.of(design, columns)
    step = 1e-4
    X = np.array([[0.0, 0.0, 0.0], [step, 0.0, 0.0], [0.0, step, 0.0], [0.0, 0.0, 1.0]])
    coordinates = metric(X)
    squares = cdist(coordinates, coordinates)[0, 1:] ** 2
    expected = 1.0 - kernel.values(X[:1], X[1:])[0]
    if base == "laplacian":
        expected[:2] = (expected[:2]) ** 2
    assert_allclose(squares, expected, rtol=1e-3)


def test_a_sum_is_learned_on_request():
    """Three waves of one feature each, with noise of .1."""
    X, y = additive(120, 3)
    new, expected = additive(500, 3, seed=1, noise=0.0)
    plain = {"residual": "none", "noise": "constant", "reference": "none"}
    model = RVMRegressor(kernel="anova", random_state=0, **plain).fit(X, y)
    assert isinstance(model.kernel_, Anova)
    assert len(model.kernel_.shares) == 3
    error = np.sqrt(np.mean((model.predict(new) - expected) ** 2))
    assert error < 0.1 * expected.std()


@pytest.mark.slow
def test_a_learned_sum_is_found_from_few_rows():
    """Eight waves of one feature each: a radial kernel of 300 rows explains less than half of
    them."""
    X, y = additive(300, 8)
    new, expected = additive(500, 8, seed=1, noise=0.0)
    model = RVMRegressor(kernel="anova", random_state=0).fit(X, y)
    assert isinstance(model.kernel_, Anova)
    assert len(model.kernel_.shares) == 8
    error = np.sqrt(np.mean((model.predict(new) - expected) ** 2)) / expected.std()
    assert error < 0.1
    radial = RVMRegressor(kernel=Matern32(), random_state=0).fit(X, y)
    assert np.sqrt(np.mean((radial.predict(new) - expected) ** 2)) > 3 * error * expected.std()


def test_a_search_cannot_step_beyond_the_largest_share():
    kernel = Anova(gamma=(1.0, 1.0), shares=(1.0, 2.0))
    assert kernel.with_logs(np.log([1.0, 1.0, 1e9, 0.5])).shares == (1e6, 0.5)
