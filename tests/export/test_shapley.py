"""Shapley values are those of the definition: an average over all subsets of columns, computed from predictions."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from test_exports import random_model

from partirvm import RVMRegressor
from partirvm.errors import UsageError
from partirvm.kernels import (
    Categorical,
    Gaussian,
    Laplacian,
    Linear,
    LinearSpline,
    Matern52,
    OnColumns,
    Polynomial,
    Product,
    Several,
    Sum,
)
from partirvm.kernels.design import Design
from partirvm.kernels.functions import Basis
from partirvm.model import Model
from partirvm.types import Columns, FeatureMap, Scaling


def by_subsets(model: Any, X: Any, background: Any, owners: Any) -> Any:
    """φ_j = Σ_S |S|! (p − |S| − 1)!/p! (v(S ∪ j) − v(S)) over all S without j; owners (d,) are the features' columns."""
    p = max(owners) + 1
    subsets = [set(some) for size in range(p + 1) for some in itertools.combinations(range(p), size)]
    worth = {}
    for some in subsets:
        known = np.isin(owners, list(some))
        rows = np.concatenate([np.where(known, x, background) for x in X])
        worth[frozenset(some)] = model.moments(rows, variance=False)[0].reshape(len(X), -1).mean(axis=1)
    found = np.zeros((len(X), p))
    for some, j in itertools.product(subsets, range(p)):
        if j not in some:
            weight = math.factorial(len(some)) * math.factorial(p - len(some) - 1) / math.factorial(p)
            found[:, j] += weight * (worth[frozenset(some | {j})] - worth[frozenset(some)])
    return found


def model_of(kernel: Any, d: int, seed: int = 0, **facts: Any) -> Model:
    """A model of 12 centres with random weights in the inputs' own units; codes in the last two columns."""
    rng = np.random.default_rng(seed)
    centres, count = rows_of(12, d, rng), len(kernel.kernels) if isinstance(kernel, Several) else 1
    scaling = facts.pop("scaling", Scaling(np.zeros(d), np.ones(d), np.array([3.0]), np.array([0.8])))
    design = Design(kernel, scaling, centres, np.arange(12) * count + rng.integers(0, count, 12), True)
    columns = facts.pop("columns", Columns(tuple(f"x{j}" for j in range(d))))
    design = replace(design, **facts)
    M = design.n_columns
    known: dict[str, Any] = {"known_noise": True, "known_alpha": tuple(range(M)), "log_evidence": 0.0, "n_rows": 200}
    return Model(
        design,
        rng.normal(size=M),
        np.eye(M),
        np.ones(M),
        columns=columns,
        noise_variance=0.01,
        evidence_noise=0.01,
        **known,
    )


def rows_of(n: int, d: int, rng: Any) -> Any:
    return np.column_stack([rng.normal(size=(n, d - 2)), rng.integers(0, 3, (n, 2))])


def on(kernel: Any, *columns: int) -> OnColumns:
    return OnColumns(kernel, columns)


MIXED = Product(
    (on(Gaussian(0.2), 0, 1, 2), on(Matern52(0.4), 3), on(LinearSpline(), 4, 5), on(Categorical(0.7), 8, 9))
)
"""A kernel whose factors are of all kinds."""

EXACT: list[Any] = [
    (Gaussian((0.3, 0.0, 1.2, 0.1)), 4),
    (Gaussian(0.05), 10),
    (Laplacian(0.3), 5),
    (LinearSpline(), 5),
    (Linear(), 4),
    (MIXED, 10),
    (Product((Sum((on(Matern52(0.3), 0), on(Laplacian(0.2), 1, 2))), on(Polynomial(0.3, degree=2), 3))), 6),
    (Sum((MIXED, Linear(), on(Gaussian(0.5), 6, 7)), (0.7, 0.1, 0.3)), 10),
    (Several((Gaussian(0.1), Laplacian(1.0))), 5),
    (Gaussian(1e4), 4),  # whose factors are mostly zero
]


@pytest.mark.parametrize(("kernel", "d"), EXACT)
def test_exact_values_are_those_of_all_subsets(kernel: Any, d: int) -> None:
    rng = np.random.default_rng(1)
    model, X, background = model_of(kernel, d), rows_of(3, d, rng), rows_of(4, d, rng)
    found = model.explain(X, background)
    assert (found.method, found.feature_names, found.output_names) == ("exact", [f"x{j}" for j in range(d)], "y")
    np.testing.assert_allclose(found.values, by_subsets(model, X, background, np.arange(d)), rtol=0, atol=1e-10)
    np.testing.assert_allclose(found.values.sum(axis=1) + found.base_values, model.predict(X), rtol=0, atol=1e-12)
    np.testing.assert_array_equal(found.values[1:2], model.explain(X[1:2], background).values)  # of each row alone
    np.testing.assert_array_equal(found.data, X)


def test_factors_that_cancel_between_row_and_background() -> None:
    model = model_of(Product((on(Linear(), 0), on(Linear(), 1))), 4)
    X, background = np.array([[1.0, 2.0, 0.0, 0.0]]), np.array([[-1.0, 3.0, 0.0, 0.0]])  # u = 0 in the middle
    expected = by_subsets(model, X, background, np.arange(4))
    np.testing.assert_allclose(model.explain(X, background).values, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("seed", [*range(11), 12, 14, 22, 25, 34, 44, 47])
def test_values_of_random_models_add_up(seed: int) -> None:
    model = random_model(22 * (seed // 11) + seed % 11)
    rng = np.random.default_rng(seed)
    X, background = rows_of(3, 3, rng), rows_of(5, 3, rng)
    found = model.explain(X, background, permutations=64)
    mean = model.moments(X, variance=False)[0]
    np.testing.assert_allclose(found.values.sum(axis=1) + found.base_values, mean, rtol=1e-12, atol=1e-12)
    expected, errors = by_subsets(model, X, background, np.arange(3)), found.error_std
    assert (np.abs(found.values - expected) <= (1e-10 if errors is None else 6 * errors + 1e-12)).all()


def test_a_column_of_several_features_and_inputs_has_one_value() -> None:
    names = ("day", "day (sine of the week)", "day (cosine of the week)", "size", "shop")
    columns = Columns(names, "sales", {"shop": ("a", "b", "c")}, dates={"day": ("week",)})
    table = np.array([[0.3, -1.0], [1.0, 0.2], [-0.5, 0.5], [0.0, 0.0]])
    plain = FeatureMap.plain(5)
    features = replace(plain, spreads=np.array([0, 0, 0, 1.5, 0]), gaps=np.array([3]), tables=((4, table),))
    scaling = Scaling(np.full(7, 0.1), np.full(7, 1.3), np.array([3.0]), np.array([0.8]), features, blank=np.ones(7))
    basis = {"functions": Basis((("linear", 5),)), "active": np.array([0, 3])}
    model = model_of(Gaussian(0.2), 5, scaling=scaling, columns=columns, **basis)
    rng, owners = np.random.default_rng(3), np.array([0, 0, 0, 1, 2])
    X, background = rows_of(3, 5, rng), rows_of(4, 5, rng)
    X[0, 3] = np.nan
    found = model.explain(X, background)
    assert (found.method, found.feature_names) == ("exact", ["day", "size", "shop"])
    np.testing.assert_allclose(found.values, by_subsets(model, X, background, owners), rtol=0, atol=1e-10)
    regressions = np.zeros((7, 7))
    regressions[3, 0] = 0.5  # of a missing number on another column
    model = replace(model, design=replace(model.design, scaling=replace(scaling, regressions=regressions)))
    sampled = model.explain(X, background, permutations=32)
    assert (sampled.method, model.explain(X[1:], background).method) == ("sampled", "exact")
    expected = by_subsets(model, X, background, owners)
    assert (np.abs(sampled.values - expected) <= 6 * sampled.error_std + 1e-12).all()


def test_estimators_explain_frames_and_state_the_correction_by_local_residuals() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=300), "b": rng.choice(["x", "y"], 300)})
    y = np.exp(np.sin(5 * frame["a"]) + (frame["b"] == "x"))
    model = RVMRegressor(Gaussian(gamma=1.0), residual="local", random_state=0).fit(frame, y)
    found = model.explain(frame[:20], frame[:50])
    assert found.feature_names == ["a", "b", "local residuals"]
    total = found.values.sum(axis=1) + found.base_values
    np.testing.assert_allclose(total, model.predict(frame[:20]), rtol=0, atol=1e-12)
    alone = model.model_.sparse()
    np.testing.assert_allclose(found.base_values, alone.predict(frame[:50]).mean(), rtol=1e-12)
    np.testing.assert_array_equal(found.values[:, :2], alone.explain(frame[:20], frame[:50]).values)
    with pytest.raises(UsageError, match="background has no rows"):
        model.explain(frame[:20], frame[:0])
    with pytest.raises(UsageError, match="explanations"):
        RVMRegressor(gamma=1.0).fit(frame[["a"]], np.column_stack([y, y])).explain(frame[["a"]], frame[["a"]])
