"""Local residuals for several targets: common neighbours, errors and a kernel for each target."""

from dataclasses import replace
from functools import partial

import naive
import numpy as np
import pytest
from numpy.random import default_rng
from numpy.testing import assert_allclose, assert_array_equal

from partirvm import Local, RVMRegressor, load_model, save_model
from partirvm.core import STATED_LEVELS as LEVELS
from partirvm.core import LeftOut
from partirvm.errors import UsageError
from partirvm.local import LOG_FACTOR, NUMBER, Cells

OPTIONS = {
    "gamma": 0.5,
    "max_vectors": 20,
    "strategy": "working-set",
    "random_state": 0,
    "reference": "none",
}
ROWS = 500
RESIDUAL = Local(neighbours=20, family="matern52")


def rough(n, seed=0):
    """Return two noisy functions in different units, with details that a few wide functions
    miss."""
    rng = default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, 2))
    first = np.sin(3 * X[:, 0]) + 0.5 * np.sin(12 * X[:, 0]) * np.cos(9 * X[:, 1])
    second = X[:, 1] ** 2 + 0.5 * np.sin(9 * X[:, 1])
    first += 0.05 * rng.standard_normal(n)
    second += 0.1 * rng.standard_normal(n)
    return X, np.column_stack([first, 100 + 20 * second])


NEW = rough(200, seed=1)


def fit_of(n, new, residual):
    """Return a fit to n rows that is validated by new rows."""
    model = RVMRegressor(**OPTIONS, residual=residual)
    return model.fit(*rough(n), X_val=new[0], y_val=new[1])


@pytest.fixture(scope="module")
def fitted():
    return fit_of(ROWS, NEW, RESIDUAL)


@pytest.mark.usefixtures("default_fits")
def test_each_target_has_smaller_errors_and_calibrated_deviations():
    """The history contains the scores of the corrected predictions; intervals cover."""
    (X, Y) = rough(600, seed=1)
    fitted = fit_of(1500, (X, Y), Local(neighbours=20))
    line = fitted.history_[-1]
    sparse = fitted.model_.sparse()
    mean, std = fitted.predict(X, return_std=True)
    squares = (Y - mean) ** 2
    assert (squares.mean(axis=0) < 0.3 * np.mean((Y - sparse.predict(X)) ** 2, axis=0)).all()
    covered = np.mean(squares < (1.96 * std) ** 2, axis=0)
    assert ((covered > 0.925) & (covered < 0.975)).all()
    density = 0.5 * (np.log(2 * np.pi * std**2) + squares / std**2)
    assert line["held_out_nlpd"] == pytest.approx(density.mean(), rel=1e-9)
    assert line["held_out_rmse"] == pytest.approx(np.sqrt(squares.mean()), rel=1e-9)
    assert line["residuals"]["rmse"] == pytest.approx(np.sqrt(squares.mean()), rel=0.2)
    lower, upper = fitted.predict_interval(X, 0.95)
    covered = np.mean((lower <= Y) & (upper >= Y), axis=0)
    assert ((covered > 0.925) & (covered < 0.975)).all()


def test_the_history_counts_the_rows_inside_the_intervals_of_each_target(fitted):
    """They are held-out rows; other kinds of intervals need a single target."""
    (X, Y) = NEW
    model = fitted.model_
    for target, shown in enumerate(fitted.history_[-1]["diagnostics"]):
        ends = [
            (lower[:, target], upper[:, target])
            for lower, upper in map(partial(fitted.predict_interval, X), LEVELS)
        ]
        assert shown["covered"] == [
            np.sum((low <= Y[:, target]) & (Y[:, target] <= high)) for low, high in ends
        ]
    assert model.value_names(interval=True) == tuple(
        f"{of}_{k}" for of in ("mean", "std", "lower", "upper") for k in (0, 1)
    )
    for how in ({"kind": "credible"}, {"hyperparameters": False}):
        with pytest.raises(UsageError, match="need a single-target model"):
            fitted.predict_interval(X, **how)


def test_targets_share_neighbours_but_not_weights(fitted):
    found = fitted.nearest_rows(NEW[0])
    k = fitted.model_.residuals.neighbours
    assert found["rows"].shape == found["distances"].shape == (len(NEW[0]), k)
    corrections = fitted.predict(NEW[0]) - fitted.model_.sparse().predict(NEW[0])
    assert_allclose(
        (found["weights"] * found["errors"]).sum(axis=1), corrections, rtol=1e-9, atol=1e-9
    )
    for target, shown in enumerate(fitted.history_[-1]["diagnostics"]):
        near = fitted.nearest_rows(NEW[0][[row for row, *_ in shown["largest"]]])
        recorded = np.moveaxis(np.array(shown["neighbours"]), 2, 0)
        for values, part in zip(recorded, near.values(), strict=True):
            of_target = part if part.ndim == 2 else part[:, :, target]
            assert_array_equal(values, of_target[:, :3])


def test_corrections_for_a_target_equal_those_without_the_others(fitted):
    """The bits are the same."""
    residuals = fitted.model_.residuals
    points = fitted.model_.design.scaling.inputs(NEW[0])
    records = residuals.cells.records
    rank = residuals.metric.width
    both = residuals.moments(points, 1.0)
    assert residuals.kernels[0] != residuals.kernels[1]
    for target in range(2):
        one = Cells.of(np.delete(records, rank + 1 - target, axis=1))
        own = {"kernels": residuals.kernels[target : target + 1], "cells": one}
        alone = replace(residuals, **own, calibrations=residuals.calibrations[:1]).moments(
            points, 1.0
        )
        assert_array_equal(np.array(both)[:, :, target], alone)


def test_errors_are_the_left_out_errors_of_each_target(fitted):
    """They follow from the posterior of each target at the shared columns and α."""
    (X, Y) = rough(ROWS)
    model = fitted.model_
    design = model.design
    scaling = model.design.scaling
    kernels = naive.gaussian(scaling.inputs(X), scaling.inputs(design.centres), 0.5)
    Phi = np.column_stack([np.ones((ROWS, int(design.bias))), kernels])
    t = scaling.targets(Y)
    rows = (np.flatnonzero((X - centre == 0).all(axis=1))[0] for centre in design.centres)
    own = [(row, np.array([k])) for k, row in enumerate(rows, int(design.bias))]
    records = model.residuals.cells.records
    errors = records[np.argsort(records[:, NUMBER]), -5:LOG_FACTOR]
    for target in range(2):
        beta = scaling.t_scale[target] ** 2 / model.evidence_noise[target]
        mean, Sigma = naive.posterior(Phi, t[:, target], model.alpha, beta)
        root = np.linalg.cholesky(Sigma)
        expected = LeftOut.of(Phi.copy(), t[:, target], mean, root, beta, None, own).expected()[0]
        assert_allclose(
            errors[:, target], expected, rtol=1e-3, atol=1e-5
        )  # before the last step of β


def test_a_saved_model_predicts_the_same_bits(fitted, tmp_path):
    save_model(fitted, tmp_path / "model")
    again = load_model(tmp_path / "model")
    X = rough(60, seed=2)[0]
    assert_array_equal(again.predict(X, return_std=True), fitted.predict(X, return_std=True))
    assert again.model_.digest() == fitted.model_.digest()


def test_many_targets_get_local_residuals_only_on_request():
    X, Y = rough(300)
    many = np.column_stack([np.roll(Y[:, 0], k) for k in range(5)])
    assert RVMRegressor(**OPTIONS, max_rounds=1).fit(X, many).history_[-1]["residuals"] is None
