"""Shapley values equal their definition, an average over all subsets of columns."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from numpy.random import default_rng
from numpy.testing import assert_allclose, assert_array_equal
from test_exports import KERNELS, random_model

from partirvm import RVMRegressor
from partirvm import kernels as k
from partirvm.errors import UsageError
from partirvm.kernels import Basis, Design
from partirvm.model import Model
from partirvm.scaling import FeatureMap, Scaling
from partirvm.types import Columns


def by_subsets(model, X, background, owners):
    """Return φ_j = Σ_S |S|! (p − |S| − 1)!/p! (v(S ∪ j) − v(S)); owners (d,) are the columns of
    features."""
    p = max(owners) + 1
    subsets = [
        frozenset(some) for size in range(p + 1) for some in itertools.combinations(range(p), size)
    ]
    masks = [np.isin(owners, list(some)) for some in subsets]
    rows = np.concatenate([np.where(known, x, background) for x in X for known in masks])
    worth = model.moments(rows, variance=False)[0].reshape(len(X), len(subsets), -1).mean(axis=2)
    place = {some: place for place, some in enumerate(subsets)}
    found = np.zeros((len(X), p))
    for some, j in itertools.product(subsets, range(p)):
        if j not in some:
            weight = 1 / (p * math.comb(p - 1, len(some)))
            found[:, j] += weight * (worth[:, place[some | {j}]] - worth[:, place[some]])
    return found


def rows_of(n, d, seed):
    """Return rows with codes in the last two columns."""
    rng = default_rng(seed)
    return np.column_stack([rng.normal(size=(n, d - 2)), rng.integers(0, 3, (n, 2))])


def model_of(kernel, d, scaling=None, columns=None, **more):
    """Return a model of 12 centres with random weights, by default of raw inputs."""
    rng = default_rng(0)
    count = len(kernel.kernels) if isinstance(kernel, k.Several) else 1
    scaling = scaling or Scaling(np.zeros(d), np.ones(d), np.array([3.0]), np.array([0.8]))
    labels = np.arange(12) * count + rng.integers(0, count, 12)
    design = Design(kernel, scaling, rows_of(12, d, 0), labels, True, **more)
    M = design.n_columns
    columns = columns or Columns(tuple(f"x{j}" for j in range(d)))
    noise = {"noise_variance": 0.01, "evidence_noise": 0.01, "known_noise": True}
    return Model(design, rng.normal(size=M), np.eye(M), np.ones(M), 0.0, 200, columns, **noise)


def on(kernel, *columns):
    return k.OnColumns(kernel, columns)


MIXED = k.Product(
    (
        on(k.Gaussian(0.2), 0, 1, 2),
        on(k.Matern52(0.4), 3),
        on(k.LinearSpline(), 4, 5),
        on(k.Categorical(0.7), 8, 9),
    )
)
"""A kernel with factors of all kinds."""

EXACT = [
    (k.Gaussian((0.3, 0.0, 1.2, 0.1)), 4),
    (k.Laplacian(0.3), 5),
    (k.Anova((0.3, 0.0, 1.2, 0.1), (0.5, 0.2, 2.0, 0.0)), 4),
    (k.Anova(0.5, 3.0, base="matern32", categorical=(1,)), 4),
    (k.Anova(0.5, (0.5, 0.2, 2.0, 0.1), base="matern52", order=1), 4),
    (k.Anova(0.5, (0.0, 0.2, 0.0, 0.0), order=1), 4),
    (k.Sum((k.Anova(0.5, order=9), on(k.Anova(0.2, 1.0), 1, 3))), 5),
    (k.LinearSpline(), 5),
    (k.Linear(), 4),
    (
        k.Product(
            (
                k.Sum((on(k.Matern52(0.3), 0), on(k.Laplacian(0.2), 1, 2))),
                on(k.Polynomial(0.3, degree=2), 3),
            )
        ),
        6,
    ),
    (k.Sum((MIXED, k.Linear(), on(k.Gaussian(0.5), 6, 7)), (0.7, 0.1, 0.3)), 10),
    (k.Several((k.Gaussian(0.1), k.Laplacian(1.0))), 5),
    (k.Gaussian(1e4), 4),  # most factors are zero
    (k.Product((on(k.Linear(), 0), on(k.Linear(), 1))), 4),  # of either sign
]


@pytest.mark.parametrize(("kernel", "d"), EXACT)
def test_exact_values_equal_averages_over_subsets(kernel, d):
    """They add up to the prediction, and a row's values do not depend on other rows."""
    model = model_of(kernel, d)
    X = rows_of(2, d, 1)
    background = rows_of(3, d, 2)
    background[0] = -X[0]
    found = model.explain(X, background)
    assert (found["error_std"], found["output_names"]) == (None, "y")
    assert_allclose(
        found["values"], by_subsets(model, X, background, np.arange(d)), rtol=0, atol=1e-10
    )
    total = found["values"].sum(axis=1) + found["base_values"]
    unit = np.abs(model.mean).sum()
    assert_allclose(total / unit, model.predict(X) / unit, rtol=0, atol=1e-12)
    assert_array_equal(
        found["values"][1:], model.explain(X[1:], background)["values"]
    )  # each row on its own
    assert_array_equal(found["data"], X)


def test_values_of_limited_interactions_are_sampled():
    """An order between 1 and d is no product over columns."""
    model = model_of(k.Anova(0.5, (0.5, 0.2, 2.0, 0.1), order=2), 4)
    X = rows_of(2, 4, 1)
    background = rows_of(3, 4, 2)
    found = model.explain(X, background, permutations=32)
    off = np.abs(found["values"] - by_subsets(model, X, background, np.arange(4)))
    assert (off <= 8 * found["error_std"] + 1e-12).all()


@pytest.mark.parametrize("seed", [1, 2, 5, 6, 7, 9, 10, 11, 12, 13, 29, 42, 56, 65, 84])
def test_values_for_random_models_are_within_their_errors_and_add_up(seed):
    count = len(KERNELS)
    model = random_model(2 * count * (seed // count) + seed % count)
    X = rows_of(3, 3, 1)
    background = rows_of(5, 3, 2)
    found = model.explain(X, background, permutations=32)
    mean = model.moments(X, variance=False)[0]
    errors = found["error_std"]
    assert_allclose(
        found["values"].sum(axis=1) + found["base_values"], mean, rtol=1e-12, atol=1e-12
    )
    off = np.abs(found["values"] - by_subsets(model, X, background, np.arange(3)))
    assert (off <= (1e-10 if errors is None else 8 * errors + 1e-12)).all()


def test_a_column_with_several_features_and_inputs_has_one_value():
    """A date has several features, levels have coordinates, and regressions fill in numbers."""
    names = ("day", "day (sine of the week)", "day (cosine of the week)", "size", "shop")
    columns = Columns(names, "sales", {"shop": ("a", "b", "c")}, dates={"day": ("week",)})
    table = np.array([[0.3, -1.0], [1.0, 0.2], [-0.5, 0.5], [0.0, 0.0], [0.0, 0.0]])
    features = FeatureMap(
        np.zeros(5), np.array([0, 0, 0, 1.5, 0]), np.array([3]), ((4, table[None]),)
    )
    of_target = np.array([3.0]), np.array([0.8])
    scaling = Scaling(np.full(7, 0.1), np.full(7, 1.3), *of_target, features, blank=np.ones(7))
    basis = {"functions": Basis((("linear", 5),)), "active": np.array([0, 3])}
    model = model_of(k.Gaussian(0.2), 5, scaling, columns, **basis)
    owners = np.array([0, 0, 0, 1, 2])
    X = rows_of(3, 5, 1)
    background = rows_of(4, 5, 2)
    X[0, 3] = np.nan
    found = model.explain(X, background)
    expected = by_subsets(model, X, background, owners)
    assert (found["feature_names"], found["error_std"]) == (["day", "size", "shop"], None)
    assert_allclose(found["values"], expected, rtol=0, atol=1e-10)
    regressions = np.zeros((7, 7))
    regressions[3, 0] = 0.5  # a missing number depends on another column
    model = replace(
        model, design=replace(model.design, scaling=replace(scaling, regressions=regressions))
    )
    assert model.explain(X[1:], background)["error_std"] is None
    sampled = model.explain(X, background, permutations=16)
    expected = by_subsets(model, X, background, owners)
    assert sampled["output_names"] == "sales (sampled)"
    assert (np.abs(sampled["values"] - expected) <= 8 * sampled["error_std"] + 1e-12).all()


def test_estimators_explain_frames_and_corrections_by_local_residuals():
    rng = default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=120), "b": rng.choice(["x", "y"], 120)})
    y = np.sin(4 * frame["a"]) + (frame["b"] == "x") + 0.2 * rng.normal(size=120)
    model = RVMRegressor(k.Gaussian(gamma=1.0), residual="local", random_state=0).fit(frame, y)
    found = model.explain(frame[:20], frame[:50])
    assert found["feature_names"] == ["a", "b", "local residuals"]
    total = found["values"].sum(axis=1) + found["base_values"]
    assert_allclose(total, model.predict(frame[:20]), rtol=0, atol=1e-12)
    alone = model.model_.sparse()
    assert_allclose(found["base_values"], alone.predict(frame[:50]).mean(), rtol=1e-12)
    assert_array_equal(found["values"][:, :2], alone.explain(frame[:20], frame[:50])["values"])
    with pytest.raises(UsageError, match="background needs at least one row"):
        model.explain(frame[:20], frame[:0])
