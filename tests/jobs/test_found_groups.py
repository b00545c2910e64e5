"""A finished fit warns of groups that were not declared."""

import json
import warnings
from dataclasses import replace
from functools import cache

import naive
import numpy as np
import pandas as pd
import pytest
from by_default import some
from numpy.random import default_rng
from numpy.testing import assert_allclose, assert_array_equal

from partirvm import RVMRegressor, ingest
from partirvm.core.held_back import group_folds
from partirvm.data import ArraySource
from partirvm.errors import AccuracyWarning, PartirvmWarning
from partirvm.execution import LocalExecutor
from partirvm.fit.found_groups import (
    LEFT_OUT,
    RUN_ROWS,
    FoundGroups,
    SharedErrors,
    drawn_rows,
    effective_number,
    find_groups,
    repetitions,
    successive_rows,
)
from partirvm.fit.left_out_refits import FOLDS, FittedRows

QUICK = {
    "gamma": 1.0,
    "kernel": "gaussian",
    "effort": "quick",
    "noise": "constant",
    "residual": "none",
    "reference": "none",
    "random_state": 0,
}


def stations(seed=0, n_groups=30, rows=12):
    """Stations with two coordinates, the time of each row, and an effect of each station."""
    rng = default_rng(seed)
    g = np.repeat(np.arange(n_groups), rows)
    place = rng.uniform(-1.7, 1.7, (n_groups, 2))[g]
    time = rng.uniform(-1, 1, len(g))
    y = rng.standard_normal(n_groups)[g] + np.sin(2 * time) + 0.1 * rng.standard_normal(len(g))
    return np.column_stack([place, time]), y, g


def batches(seed=0, n_groups=25, rows=16):
    """Batches of successive rows, which no feature tells apart."""
    rng = default_rng(seed)
    g = np.repeat(np.arange(n_groups), rows)
    X = rng.uniform(-1.7, 1.7, (len(g), 2))
    y = np.sin(X[:, 0]) + rng.standard_normal(n_groups)[g] + 0.3 * rng.standard_normal(len(g))
    return X, y, g


def smooth(seed=0, n=400):
    """A smooth function without groups, in the order of its first feature."""
    rng = default_rng(seed)
    X = rng.uniform(-1.7, 1.7, (n, 2))
    X = X[np.argsort(X[:, 0])]
    return X, np.sin(2 * X[:, 0]) + X[:, 1] + 0.2 * rng.standard_normal(n), np.arange(n)


@cache
def fitted(make, seed=0, gamma=1.0):
    """Return the model of a fit, with its rows as their source, and β."""
    X, y, _ = make(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PartirvmWarning)
        model = RVMRegressor(**QUICK | {"gamma": gamma}).fit(X, y).model_
    beta = float(model.design.scaling.t_scale[0] ** 2 / model.evidence_noise)
    return model, ArraySource(X, y), beta


def fit_of(make, seed=0, gamma=1.0, order=None):
    """Return the rows of a fit in some order, and their source; its vectors have these numbers."""
    model, source, beta = fitted(make, seed, gamma)
    tile = source.tile(0)
    if order is not None:
        source = ArraySource(tile.X[order], tile.t[order])
        tile = source.tile(0)
    places = (model.design.centres[:, None] == tile.X).all(axis=2).argmax(axis=1)
    model = replace(model, design=replace(model.design, labels=places))
    return FittedRows(model, beta, tile, np.arange(len(tile.X))), source


def test_a_fit_without_a_fold_is_the_posterior_of_the_other_rows():
    """Its vectors at rows of the fold are replaced by the nearest other rows."""
    rows, _ = fit_of(stations, gamma=10.0)
    X, _, g = stations()
    fold = np.flatnonzero(g < 6)
    others = np.flatnonzero(g >= 6)
    model = rows.without(fold)
    design = rows.model.design
    places = rows.centres
    assert np.isin(places, fold).any()
    scaled = design.scaling.inputs(X)
    for column, place in enumerate(places):
        distances = np.sum((scaled[others] - scaled[place]) ** 2, axis=1)
        nearest = X[place] if place in others else X[others[distances.argmin()]]
        assert_array_equal(model.design.centres[column], nearest)
    kernels = naive.gaussian(
        scaled[others], design.scaling.inputs(model.design.centres), gamma_of(design)
    )
    Phi = np.column_stack([np.ones((len(others), design.n_leading)), kernels])
    mean, covariance = naive.posterior(Phi, rows.target[others, None], rows.model.alpha, rows.beta)
    assert_allclose(model.mean, mean[:, 0], rtol=1e-6, atol=1e-9)
    assert_allclose(model.root @ model.root.T, covariance, rtol=1e-5, atol=1e-9)


def gamma_of(design):
    """Return the width of a kernel."""
    return design.kernels[0].gamma


def test_scores_are_at_most_one_inside_the_interval_that_is_stated_without_the_row():
    rows, _ = fit_of(stations, gamma=10.0)
    _, y, g = stations()
    scores = rows.left_out(g)
    assert_array_equal(scores.rows, np.arange(len(y)))
    for fold in group_folds(g, FOLDS):
        model = rows.without(fold)
        ends, _ = model.interval(0.95)(rows.tile.X[fold])
        inside = (ends[:, 0] <= y[fold]) & (y[fold] <= ends[:, 1])
        assert_array_equal(scores.scores[fold] <= 1.0, inside)
        errors = y[fold] - model.means(rows.tile.X[fold])[0][:, 0]
        assert_allclose(scores.errors[fold], errors, atol=1e-8)


def found(make, seed=0, gamma=1.0, order=None):
    """Return the groups that are found in a fit to rows, which are then in some order."""
    rows, source = fit_of(make, seed, gamma, order)
    return find_groups(rows.model, rows.beta, source, LocalExecutor(1))


@pytest.mark.parametrize("seed", some(range(6), {0}))
def test_stations_are_found_by_their_coordinates(seed):
    """The kernel is narrow enough to tell them apart, so that a fit learns their effects."""
    groups = found(stations, seed=seed, gamma=10.0)
    assert isinstance(groups, FoundGroups)
    assert groups.columns == ("x0", "x1")
    assert (groups.groups, groups.rows) == (30, 12.0)
    assert groups.ratio > 1.3
    assert groups.covered < 0.9


@pytest.mark.parametrize("seed", some(range(6), {0}))
def test_batches_are_found_by_their_order(seed):
    """Batches have variance 1, noise .09, and 15 of 16 successive rows are of one batch."""
    shared = found(batches, seed=seed)
    assert isinstance(shared, SharedErrors)
    assert shared.columns == ()
    assert shared.correlation == pytest.approx(15 / 16 / 1.09, abs=0.3)


@pytest.mark.parametrize("seed", some(range(6), {0}))
def test_batches_in_random_order_are_not_found(seed):
    order = default_rng(seed).permutation(400)
    assert found(batches, seed, order=order) is None


@pytest.mark.parametrize("seed", some(range(6), {0}))
def test_the_order_of_a_feature_is_no_group(seed):
    assert found(smooth, seed=seed) is None


@pytest.mark.slow
def test_rows_of_weight_zero_and_gaps_are_left_out_of_the_search():
    """The weights of half of the stations are zero, and two others have no coordinates."""
    X, y, g = stations()
    X[g == 7, 0] = np.nan
    weights = (g < 15).astype(float)
    messages = accuracy_warnings(X, y, sample_weight=weights)
    assert any("15 groups of about 12 rows have equal values of 'x0', 'x1'" in m for m in messages)


def accuracy_warnings(X, y, **options):
    """Return the warnings of a fit."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        RVMRegressor(**QUICK | {"gamma": 10.0}).fit(X, y, **options)
    return [str(entry.message) for entry in caught if entry.category is AccuracyWarning]


def test_history_and_status_of_a_fit_have_the_remark():
    X, y, _ = stations()
    with pytest.warns(AccuracyWarning, match=r"set groups=Groups\(\('x0', 'x1'\)\) in fit"):
        model = RVMRegressor(**QUICK | {"gamma": 10.0}).fit(X, y)
    facts = model.history_[-1]["groups"]
    assert facts["columns"] == ["x0", "x1"]
    assert "--groups x0,x1" in facts["remark"]
    json.dumps(facts)


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (
            FoundGroups(("place",), 30, 12.0, 2.04, 0.613),
            [
                "30 groups of about 12 rows have equal values of 'place'",
                "if whole groups are left out, errors are 2.0 ×",
                "cover 61 % of the rows",
                "set groups=Groups('place') in fit (`ingest --groups place`)",
            ],
        ),
        (
            FoundGroups((), 30, 40.0, 1.5, 0.8),
            ["ordered by groups", "if groups of 40 successive rows are left out", "groups=..."],
        ),
        (
            SharedErrors((), 0.75, 2.0),
            ["errors of successive rows", "(correlation 0.75)", "batch", "2.0 × smaller"],
        ),
        (
            SharedErrors(("age", "sex"), 0.75, 2.0),
            ["equal values of 'age', 'sex'", "Groups(('age', 'sex'))", "--groups age,sex"],
        ),
    ],
)
def test_remarks_name_the_columns_and_the_option(facts, words):
    assert facts.facts()["columns"] == list(facts.columns)
    for part in words:
        assert part in facts.facts()["remark"]


def codes_like(X, columns):
    """Return the codes of the rows by their values in columns."""
    return np.unique(X[:, columns], axis=0, return_inverse=True)[1].ravel()


def test_repetitions_are_columns_that_are_functions_of_one_of_them():
    X, *_ = stations()
    (repetition,) = repetitions(X, range(3))
    assert repetition.columns == (0, 1)
    assert_array_equal(codes_like(X, [0, 1]), repetition.codes)
    assert repetition.n_groups == 30


@pytest.mark.parametrize(
    "column",
    [
        np.repeat(np.arange(400), 3),  # too many values: nothing repeats often
        np.repeat(np.arange(24), 50),  # hours: few values
        np.where(np.arange(1200) < 700, 0, np.arange(1200) // 10),  # most rows have one value
    ],
)
def test_columns_that_repeat_by_chance_are_not_suspected(column):
    X = np.column_stack([column, default_rng(0).standard_normal(1200)])
    assert repetitions(X, [0, 1]) == []


def test_groups_of_equal_size_count_fully():
    """For sizes 5, 5 and 10, 20² ÷ (25 + 25 + 100) = 2.67."""
    assert effective_number(np.repeat([0, 1, 2, 3], 6)) == pytest.approx(4.0)
    assert effective_number(np.repeat([0, 1, 2], [5, 5, 10])) == pytest.approx(400 / 150)


@pytest.mark.parametrize(("n_groups", "size"), [(2000, 10), (20, 1000), (100, 200)])
def test_many_rows_are_represented_by_whole_groups_or_by_some_rows_of_each(n_groups, size):
    codes = default_rng(0).permutation(np.repeat(np.arange(n_groups), size))
    centres = np.arange(0, len(codes), 200)
    rows = drawn_rows(codes, centres)
    assert (np.diff(rows) > 0).all()
    assert LEFT_OUT / 2 < len(rows) <= LEFT_OUT
    counts = np.bincount(codes[rows], minlength=n_groups)
    expected = min(size, max(LEFT_OUT // n_groups, 40))
    assert set(counts) <= {0, expected}
    is_drawn = counts[codes[centres]] > 0
    if expected >= 10:
        assert np.isin(centres[is_drawn], rows).all()


def test_successive_rows_come_in_whole_runs():
    order = default_rng(0).permutation(20_000)
    rows = successive_rows(order)
    assert len(rows) == LEFT_OUT
    places = np.sort(order[rows])
    assert_array_equal(np.unique(places // RUN_ROWS, return_counts=True)[1], RUN_ROWS)
    assert_array_equal(successive_rows(order[:100]), np.arange(100))


@pytest.mark.parametrize("shuffle", some([0, None], {0}))
def test_the_order_of_a_table_is_known_after_it_was_shuffled(tmp_path, shuffle):
    X, y, _ = batches()
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": y})
    data = ingest(frame, tmp_path / "data.zarr", target="y", shuffle=shuffle)
    with pytest.warns(AccuracyWarning, match="errors of successive rows resemble each other"):
        RVMRegressor(**QUICK).fit(data)
