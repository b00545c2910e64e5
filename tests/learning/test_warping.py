"""Warps of skewed features are used where the evidence rises; regressions fill in missing
numbers."""

from dataclasses import replace

import numpy as np
import pytest
from naive import rmse
from numpy.random import default_rng
from numpy.testing import assert_allclose, assert_array_equal
from sampling import problem_of, sample_of

from partirvm import RVMRegressor
from partirvm.learning import ProcessFit, ProcessRows, process_search
from partirvm.learning.exact_process import climb
from partirvm.learning.features import warped, warped_by, with_regressions
from partirvm.scaling import FeatureMap, Scaling


def spread_of(X, y):
    """Return the spreads (d,) of features after the choice of warps, from an isotropic process."""
    order = default_rng(0).permutation(len(X))
    with sample_of(X, y) as sample:
        problem = problem_of(X, y - y.mean())
        found, _ = warped(
            sample, problem, order, 150, ProcessFit(problem.empty.kernel, 0.0, np.log(0.05))
        )
    features = found.empty.scaling.features
    return np.zeros(X.shape[1]) if features is None else features.spreads


def test_a_logarithm_is_found():
    """y depends on log x of a log-normal feature; the other feature has no long tail."""
    rng = default_rng(1)
    X = np.column_stack([rng.lognormal(0, 1.5, 400), rng.normal(size=400)])
    X /= X.std(axis=0)
    y = np.sin(1.5 * np.log(X[:, 0])) + 0.3 * X[:, 1]
    assert (spread_of(X, y + 0.1 * rng.normal(size=400)) > 0).tolist() == [True, False]


@pytest.mark.parametrize("kind", ["normal", "binary", "constant"])
def test_features_without_a_long_tail_are_not_warped(kind):
    rng = default_rng(2)
    x = {
        "normal": rng.normal(size=300),
        "binary": (rng.random(300) < 0.02) * 1.0,
        "constant": np.ones(300),
    }[kind]
    X = np.column_stack([x, rng.normal(size=300)])
    assert not spread_of(X, np.sin(X[:, 1])).any()


def test_a_missing_number_is_predicted_from_the_others():
    """x and y have correlation .8; if both are missing, they are filled with their means."""
    rng = default_rng(4)
    z = rng.normal(size=(20_000, 3))
    X = np.column_stack([z[:, 0], 0.8 * z[:, 0] + 0.6 * z[:, 1], z[:, 2]])
    X[rng.random(X.shape) < 0.2] = np.nan
    features = replace(FeatureMap.plain(3), gaps=np.arange(3))
    shift = np.append(np.zeros(3), np.full(3, 0.2))
    scale = np.append(np.ones(3), np.full(3, 0.4))
    scaling = with_regressions(Scaling(shift, scale, np.zeros(1), np.ones(1), features), X)
    new = np.array([[np.nan, 1.5, 0.0], [1.0, np.nan, 0.0], [np.nan, np.nan, 2.0], [1.0, 2.0, 3.0]])
    found = scaling.inputs(new)[:, :3]
    assert_allclose(found, [[1.2, 1.5, 0], [1, 0.8, 0], [0, 0, 2], [1, 2, 3]], atol=0.12)
    assert_array_equal(scaling.inputs(new[::-1])[:, :3], found[::-1])


def judged_warps(spread):
    """Return whether a warp of x about 0 is used, and the errors, for y = sin 3x in 800 rows within
    ±3."""
    rng = default_rng(6)
    X = rng.uniform(-3, 3, size=(800, 1))
    y = np.sin(3 * X[:, 0]) + 0.1 * rng.normal(size=800)

    def forced(sample, problem, order, most, widths):
        scaling = warped_by(problem.empty.scaling, 0, (0.0, spread), X)
        changed = problem.with_scaling(scaling)
        rows = ProcessRows.of(sample, changed, order[:most])
        return changed, climb(rows, replace(widths, pairs=[]), 20)

    with sample_of(X, y) as sample:
        problem = problem_of(X, y)
        order = default_rng(0).permutation(800)
        widths = process_search.first_widths(sample, problem, order, 400)
        found, _, errors = process_search.warped_if_better(
            sample, problem, order, 400, widths, judged=True, warp=forced
        )
    return found is not problem, errors


def test_left_out_rows_reject_a_harmful_warp():
    """A logarithm compresses the waves at large x; a nearly linear warp changes nothing."""
    used, errors = judged_warps(1e-4)
    assert not used
    assert errors["warped"] > 1.2 * errors["plain"]
    used, errors = judged_warps(100.0)
    assert errors["warped"] == pytest.approx(errors["plain"], rel=0.02)


@pytest.mark.usefixtures("default_fits")
def test_left_out_rows_confirm_a_useful_warp():
    """The target is a wave in log x; the history gives the errors and the formula."""
    rng = default_rng(7)
    X = rng.lognormal(0, 1.5, size=(800, 1))
    y = np.sin(1.5 * np.log(X[:, 0])) + 0.2 * rng.normal(size=800)
    line = RVMRegressor(random_state=0, reference="none").fit(X, y).history_[0]
    assert line["choice"]["warps"]["warped"] < line["choice"]["warps"]["plain"]
    assert "asinh((x0" in line["text"]
    assert "with warped features" in line["text"]


@pytest.mark.usefixtures("default_fits")
@pytest.mark.filterwarnings("ignore:.*far from every")
def test_warps_improve_a_fit():
    """With a log-normal input the error falls to that with its logarithm."""
    rng = default_rng(3)
    X = rng.lognormal(0, 2.0, size=(260, 1))
    y = np.sin(np.log(X[:, 0])) + 0.2 * rng.normal(size=260)

    def error(model, columns=lambda X: X):
        return rmse(model.fit(columns(X[:200]), y[:200]).predict(columns(X[200:])), y[200:])

    how = {"random_state": 0, "reference": "none"}
    own = RVMRegressor(**how)
    none = RVMRegressor(warp="none", **how)
    given = error(RVMRegressor(**how), np.log)
    assert error(own) < 1.2 * given
    assert error(none) > 1.4 * given
    assert "asinh((x0" in own.history_[0]["text"]
