"""Levels of a category: how the kernel uses them, and how precisely their effects are known."""

import numpy as np
import pandas as pd
import pytest
from exported import assert_exported
from naive import rmse
from numpy.random import default_rng
from numpy.testing import assert_allclose, assert_array_equal

from partirvm import RVMClassifier, RVMRegressor, load_model, save_model

QUICK = {"random_state": 0, "effort": "quick", "reference": "none"}

pytestmark = pytest.mark.filterwarnings("ignore::partirvm.errors.PartirvmWarning")


def planted(n_levels, n, spread, seed):
    """Return rows of levels with normal effects and noise of variance 1, their targets, and the
    effects."""
    rng = default_rng(seed)
    effects = spread * rng.normal(size=n_levels)
    codes = rng.integers(0, n_levels, n)
    x = rng.normal(size=n)
    labels = pd.Categorical.from_codes(codes, [f"l{code}" for code in range(n_levels)])
    return pd.DataFrame({"x": x, "label": labels}), effects[codes] + x + rng.normal(size=n), effects


@pytest.mark.usefixtures("default_fits")
@pytest.mark.parametrize(
    "n_levels",
    [pytest.param(3, marks=pytest.mark.slow), 8, pytest.param(12, marks=pytest.mark.slow)],
)
@pytest.mark.parametrize("seed", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_a_few_levels_with_large_effects_are_fitted(n_levels, seed):
    """The effects are 0, 1, 2, … with noise of sd .1: the error equals the noise."""
    rng = default_rng(seed)
    codes = rng.integers(0, n_levels, 600)
    x = rng.normal(size=600)
    y = x + codes + 0.1 * rng.normal(size=600)
    frame = pd.DataFrame({"x": x, "k": pd.Categorical(codes)})
    model = RVMRegressor(**QUICK).fit(frame[:300], y[:300])
    assert rmse(model.predict(frame[300:]), y[300:]) < 0.13


@pytest.mark.usefixtures("default_fits")
def test_predicted_deviations_include_the_uncertainty_of_a_level(tmp_path):
    """The variance is 1 + 1/(n + 1/16) in a level with n rows and 17 in a new one, also in exports
    and files."""
    frame, y, effects = planted(400, 1200, 4.0, 0)
    model = RVMRegressor(**QUICK).fit(frame, y)
    counts = frame.label.cat.codes.value_counts().reindex(range(400), fill_value=0).to_numpy()
    labels = pd.Categorical.from_codes(np.arange(400), frame.label.cat.categories)
    new = pd.DataFrame({"x": np.zeros(400), "label": labels})
    mean, std = model.predict(new, return_std=True)
    for few, many in ((1, 1), (2, 2), (4, 9)):
        group = (counts >= few) & (counts <= many)
        expected = np.sqrt(np.mean(1 + 1 / (counts[group] + 1 / 16)))
        assert_allclose(rmse(std[group], 0), expected, rtol=0.2)
        error = np.sqrt(rmse(mean[group], effects[group]) ** 2 + 1)
        assert_allclose(error, expected, rtol=0.2)
    numbers = np.array([[0.5, 3.0], [0.5, 400.0], [0.5, 999.0], [-1.0, 17.0]])
    _, std = model.model_.predictive.values(numbers)[0].T
    assert_allclose(std[1:3], np.sqrt(17), rtol=0.2)
    assert_exported(model, tmp_path, numbers)
    save_model(model, tmp_path / "model")
    assert_array_equal(load_model(tmp_path / "model").predict(new), model.predict(new))
    codes = model.relevance_vectors_[:, 1]
    assert (codes == np.floor(codes)).all()


def test_a_missing_label_is_an_embedded_level(tmp_path):
    """Rows without a label have the effect 5, and so has an unknown label."""
    frame, y, effects = planted(20, 500, 1.0, 2)
    gone = default_rng(3).random(500) < 0.2
    y = np.where(gone, y - effects[frame.label.cat.codes] + 5.0, y)
    frame.loc[gone, "label"] = None
    model = RVMRegressor(**QUICK, residual="none", noise="constant").fit(frame, y)
    numbers = np.array([[0.0, np.nan], [0.0, 77.0], [0.0, 4.0]])
    mean, std = model.model_.predictive.values(numbers)[0].T
    assert_allclose(mean[0], 5.0, atol=0.4)
    assert (mean[1], std[1]) == (mean[0], std[0])
    assert_exported(model, tmp_path, numbers)


@pytest.mark.slow
@pytest.mark.parametrize(("per_level", "strength"), [(1, 2.0), (2, 5.0), (3, 2.0), (30, 2.0)])
def test_interval_coverage_is_right_for_known_and_new_levels(per_level, strength):
    """``benchmarks.levels`` measures 95 % intervals for 400 new rows."""
    from benchmarks.levels import cells

    for _, inside, _, _ in cells(600, per_level, strength):
        assert 0.915 <= inside <= 0.985


@pytest.mark.slow
def test_classes_with_a_few_levels_are_predicted():
    """Classes depend on a number and on one of eight levels."""
    rng = default_rng(5)
    codes = rng.integers(0, 8, 800)
    x = rng.normal(size=800)
    classes = (x + 1.5 * (codes % 3) - 1.5) > 0
    frame = pd.DataFrame({"x": x, "k": pd.Categorical(codes)})
    model = RVMClassifier(random_state=0, effort="quick").fit(frame[:400], classes[:400])
    assert model.score(frame[400:], classes[400:]) > 0.95
