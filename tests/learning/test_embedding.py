"""Features with many levels: level effects become coordinates, rare levels are near the origin."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from naive import rmse
from numpy.random import default_rng
from numpy.testing import assert_allclose, assert_array_equal
from sampling import problem_of, sample_of
from scipy import stats

from partirvm import RVMRegressor, load_model, save_model
from partirvm.core import level_folds
from partirvm.data.folds import folded_inputs
from partirvm.learning.embedding import LevelSums, embedded, of_unknown, random_effects
from partirvm.scaling import FeatureMap, with_folds, without_folds
from partirvm.types import Columns


def planted(n=6000, L=40, seed=0, noise=0.1):
    """Return rows (x, level) with targets a_l + b_l x + noise, and the effects (L, 2)."""
    rng = default_rng(seed)
    effects = rng.normal(size=(L, 2)) * [1.0, 0.5]
    x = rng.normal(size=n)
    codes = rng.integers(0, L, n)
    y = effects[codes, 0] + effects[codes, 1] * x + noise * rng.normal(size=n)
    return np.column_stack([x, codes]), y - y.mean(), effects - effects.mean(axis=0)


def columns_of(L):
    return Columns(("x", "c"), categories={"c": tuple(range(L))})


def embedding_of(X, y, L, w=None):
    with sample_of(X, y, w) as sample:
        found = embedded(sample, problem_of(X, y), columns_of(L), {1: L}, 0)
    return found.scaling, found.notes


def test_planted_effects_are_found_up_to_a_rotation():
    """Distances between coordinates are root mean square differences of a + bx, x ~ N(0, 1)."""
    X, y, effects = planted()
    scaling, notes = embedding_of(X, y, 40)
    assert notes == ("c: each of its 40 levels is described by 2 numbers learned from the data",)
    ((position, blocks),) = scaling.features.tables
    table = blocks[0]
    assert (position, table.shape) == (1, (42, 2))

    def distances(points):
        return np.sqrt(((points[:, None] - points[None]) ** 2).sum(axis=2))

    assert_allclose(distances(table[:40]), distances(effects), atol=0.1)
    assert not table[40:].any()  # unknown and missing levels: the common point
    inputs = scaling.inputs(folded_inputs(X, scaling.features, level_folds(np.arange(len(X)))))
    assert_allclose(inputs[:, 1:].mean(axis=0), 0, atol=1e-12)
    assert_allclose(inputs[:, 1:].std(axis=0), 1, rtol=1e-12)


def test_random_effects_have_the_known_posterior():
    """It is w_l = n_l m_l / (n_l + σ²/τ²), and τ² and σ² are within their standard errors."""
    rng = default_rng(1)
    counts = np.tile([2, 8, 32], 200)
    tau = 1.5
    sigma = 2.0
    codes = np.repeat(np.arange(600), counts)
    t = (tau * rng.normal(size=600))[codes] + sigma * rng.normal(size=len(codes))
    sums = np.bincount(codes, t)
    found = random_effects(
        LevelSums(counts[:, None, None].astype(float), sums[:, None], float(t @ t), len(t))
    )
    assert_allclose(found.mean[:, 0], sums / (counts + (sigma / tau) ** 2), rtol=0.08, atol=0.05)
    variances = 1 / (counts / sigma**2 + 1 / tau**2)
    assert_allclose(found.variances(np.eye(1)), variances, rtol=0.1)
    assert_allclose([found.prior[0, 0], found.noise], [tau**2, sigma**2], rtol=0.15)


@pytest.mark.usefixtures("default_fits")
@pytest.mark.parametrize("n_levels", [2, 3, 6])
def test_intervals_for_new_levels_cover_on_average(n_levels):
    """There are 400 draws of effects of sd 3, with 50 rows each and noise of sd 1."""
    rng = default_rng(n_levels)
    shares = []
    for _ in range(400):
        effects = 3.0 * rng.normal(size=n_levels)
        t = effects - effects.mean() + rng.normal(size=(50, n_levels))
        squares = np.full((n_levels, 1, 1), 50.0)
        found = random_effects(
            LevelSums(squares, t.sum(axis=0)[:, None], float((t**2).sum()), t.size)
        )
        half = stats.norm.ppf(0.975) * np.sqrt(of_unknown(found, n_levels, t)[0, 0] + found.noise)
        new = stats.norm(
            -effects.mean(), np.sqrt(9.0 + 1.0)
        )  # a new target minus the mean of the levels
        shares.append(new.cdf(half) - new.cdf(-half))
    assert 0.94 < np.mean(shares) < 0.98


def test_the_variance_of_a_new_level_follows_its_formula():
    """It is (1 + 1/L)·S·L/(L − 1)·(t quantile/normal quantile)², and at most the squared range."""
    rng = default_rng(0)
    found = replace(
        random_effects(LevelSums(np.ones((1, 1, 1)), np.ones((1, 1)), 1.0, 1)),
        prior=np.array([[0.25]]),
    )
    targets = rng.normal(size=1000)
    expected = 0.25 * 4 / 2 * (stats.t.ppf(0.975, 2) / stats.norm.ppf(0.975)) ** 2
    assert_allclose(of_unknown(found, 3, targets), [[expected]], rtol=1e-12)
    assert_allclose(of_unknown(found, 2, targets / 10), [[(np.ptp(targets) / 10) ** 2]], rtol=1e-12)
    assert_allclose(of_unknown(found, 1, targets), [[targets.var()]], rtol=1e-12)


def test_levels_without_an_effect_are_switched_off():
    rng = default_rng(2)
    X = np.column_stack([rng.normal(size=2000), rng.integers(0, 500, 2000)])
    scaling, notes = embedding_of(X, np.sin(2 * X[:, 0]), 500)
    assert "switched off" in notes[0]
    assert not scaling.inputs(X)[:, 1].any()


def test_weights_count_as_repeated_rows():
    """A row of weight 2 equals two rows; one of weight 0 counts as absent."""
    X, y, _ = planted(1500)
    w = default_rng(3).integers(0, 3, 1500).astype(float)
    rows = np.repeat(np.arange(1500), w.astype(int))
    products = []
    for scaling, _ in (embedding_of(X, y, 40, w), embedding_of(X[rows], y[rows], 40)):
        first = scaling.features.tables[0][1][0][:, :1]
        products.append(first @ first.T)
    assert_allclose(*products, atol=0.03)


def test_level_effects_are_functions_of_the_numbers():
    """They are w₀ + w₁z + w₂ cos πu with z = (x − 1)/2, u = (1 + tanh .8z)/2; unknown levels have
    the effect 0."""
    X = np.array([[3.0, 0], [np.nan, 1], [-7, 2], [0, np.nan], [99, 1]])
    weights = np.array([[1.0, 2, 3], [4, 5, 6], [0, 0, 0], [0, 0, 0]])
    given = {"numbers": np.array([0]), "moments": np.array([[1.0], [2.0]])}
    blocks = {"tables": ((1, weights[None, :, :1]),), "effects": ((1, weights[None]),)}
    features = replace(FeatureMap.plain(2), **blocks, **given)
    z = np.array([1.0, 0, -4, -0.5, 4])
    functions = np.column_stack([np.ones(5), z, np.cos(np.pi * (1 + np.tanh(0.8 * z)) / 2)])
    expected = np.column_stack(
        [[1.0, 4, 0, 0, 4], (weights[[0, 1, 2, 2, 1]] * functions).sum(axis=1)]
    )
    assert_allclose(features(X)[:, 1:], expected, rtol=1e-12, atol=1e-14)
    assert_array_equal(features(X[1:2]), features(X)[1:2])
    assert features.names(("x", "c")) == ("x", "c (1)", "effect of c")
    assert features.sources.tolist() == [0, 1, 1]


def test_a_row_uses_the_effects_learned_without_its_fold():
    """A code encodes level and fold: block f + 1 of a table; new rows use block 0."""
    table = np.arange(2 * 5 * 1.0).reshape(
        2, 5, 1
    )  # three levels, unknown, missing; all rows, without fold 0
    features = replace(
        FeatureMap.plain(1), tables=((0, table),), gaps=np.array([0]), doubts=((0, table[:, :, 0]),)
    )
    codes = np.array([0.0, 2, 3, -1, np.nan, 99, 4, 1.5])
    expected = np.array([0.0, 2, 4, 4, 4, 4, 4, 1])  # a code that is no level counts as missing
    missing = np.array([0.0, 0, 1, 1, 1, 1, 1, 0])
    assert_array_equal(features(codes[:, None]), np.column_stack([expected, missing]))
    assert_array_equal(features.noise_factor(codes[:, None]), 1 + expected)
    known = np.array([0.0, 2, np.nan])
    folded = with_folds(known, 3, np.zeros(3))
    assert_array_equal(features(folded[:, None]), np.array([[5.0, 0], [7, 0], [9, 1]]))
    assert_array_equal(without_folds(folded, 3), known)


def test_effects_without_a_fold_come_from_the_other_rows():
    """They are n_l m_l / (n_l + σ²/τ²) over rows outside the fold, with variances from all rows."""
    rng = default_rng(4)
    codes = np.repeat(np.arange(300), 3)
    t = rng.normal(size=300)[codes] + 0.5 * rng.normal(size=900)
    X = np.column_stack([np.zeros(900), codes]).astype(float)
    y = t - t.mean()
    scaling, _ = embedding_of(X, y, 300)
    ((_, blocks),) = scaling.features.tables
    ((_, doubts),) = scaling.features.doubts
    inputs = folded_inputs(X, scaling.features, level_folds(np.arange(900)))
    assert_allclose(scaling.noise_factor(inputs).mean(), 1.0, rtol=1e-9)
    doubts = doubts / scaling.features.share
    folds = level_folds(np.arange(900))
    outside = folds != 2
    counts, sums = (np.bincount(codes[outside], each, 300) for each in (None, y[outside]))
    full = 1 / (
        1 / doubts[0, 0] - 3
    )  # τ²/σ², where a level of three rows has the variance 1/(3/σ² + 1/τ²)
    ratio = blocks[3, :300, 0] / np.where(counts > 0, sums / (counts + 1 / full), 1.0)
    signs = np.sign(np.median(ratio[counts > 0]))
    slope = np.polyfit(sums / (counts + 1 / full), signs * blocks[3, :300, 0], 1)[0]
    assert 0.9 < slope < 1.1
    assert not blocks[3, :300, 0][counts == 0].any()
    assert_allclose(doubts[3, :300], 1 / (counts + 1 / full), rtol=1e-4)
    new = full * (stats.t.ppf(0.975, 299) / stats.norm.ppf(0.975)) ** 2 * 301 / 299
    assert_allclose(doubts[:, 300:], new, rtol=1e-4)
    assert 2 < full < 7  # (1/.5)² = 4


def frame(X, L):
    return pd.DataFrame(
        {"x": X[:, 0], "c": pd.Categorical(X[:, 1].astype(int), categories=range(L))}
    )


@pytest.mark.usefixtures("quick_learning")
def test_a_fit_and_its_saved_model_use_the_coordinates(tmp_path):
    """The error equals the noise; a level without rows has no effect."""
    X, y, _ = planted(250, 12, noise=0.1)
    model = RVMRegressor(
        kernel="gaussian", random_state=0, reference="none", residual="none", noise="constant"
    )
    model.fit(frame(X, 13), y)
    new, t, _ = planted(250, 12, noise=0.0)
    assert rmse(model.predict(frame(new, 13)), t) < 0.1
    assert any(note.startswith("c: ") and "its 13 levels" in note for note in model.plan_.notes)
    assert model.model_.design.scaling.embedded == [1]
    save_model(model, tmp_path / "model")
    assert_array_equal(
        load_model(tmp_path / "model").predict(frame(new, 13)), model.predict(frame(new, 13))
    )
    unseen = frame(np.column_stack([[0.0], [12]]), 13)  # declared, without rows
    assert abs(model.predict(unseen)[0]) < 0.5
