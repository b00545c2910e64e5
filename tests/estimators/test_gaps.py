"""Missing values become an indicator and the mean in training, and the mean in prediction."""

import importlib.util
from itertools import product

import numpy as np
import pandas as pd
import pytest
from by_default import some
from numpy.random import default_rng
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from partirvm import Gaussian, RVMClassifier, RVMRegressor, ingest, load_model, save_model
from partirvm.errors import DataError, UnseenLevelWarning

QUIET = pytest.mark.filterwarnings("ignore::partirvm.errors.PartirvmWarning")

OPTIONS = {"gamma": "scale", "reference": "none", "residual": "none", "random_state": 0}


def rows(n=120):
    """Return X (n, 3) without gaps, the rows where its third feature has one, and a target."""
    rng = default_rng(0)
    X = rng.normal(size=(n, 3))
    gap = rng.random(n) < 0.3
    return X, gap, X[:, 0] + 3.0 * gap + 0.1 * rng.normal(size=n)


def with_gaps(X, gap):
    return np.column_stack([X[:, :2], np.where(gap, np.nan, X[:, 2])])


@QUIET
def test_gaps_become_the_mean_and_an_indicator():
    """The kernel sees the feature filled with its mean and a standardised indicator, which is
    predictive."""
    X, gap, y = rows()
    incomplete = with_gaps(X, gap)
    filled = np.column_stack([X[:, :2], np.where(gap, X[~gap, 2].mean(), X[:, 2])])
    model = RVMRegressor(**OPTIONS).fit(incomplete, y)
    scaling = model.model_.design.scaling
    assert scaling.names(("a", "b", "c")) == ("a", "b", "c", "c missing")
    share = gap.mean()
    inputs = scaling.inputs(incomplete)
    assert scaling.shares_missing(("a", "b", "c")) == {"c": pytest.approx(share)}
    assert_allclose(inputs[:, 3], (gap - share) / np.sqrt(share * (1 - share)), rtol=1e-12)
    assert_allclose(inputs[:, 2], (filled[:, 2] - X[~gap, 2].mean()) / X[~gap, 2].std(), atol=1e-12)
    assert stats.pearsonr(model.predict(incomplete), y).statistic > 0.98
    without = RVMRegressor(**OPTIONS).fit(filled[:, :2], y).predict(filled[:, :2])
    assert np.sqrt(np.mean((without - y) ** 2)) > 1.0


@pytest.mark.parametrize("standardize", some([True, False], {True}))
@QUIET
def test_a_gap_in_a_complete_feature_is_filled_with_its_mean(standardize, tmp_path):
    """This also holds in a stored model and for a classifier."""
    X, _, y = rows()
    new = X[:4].copy()
    mean = X[:4].copy()
    new[:, 1], mean[:, 1] = np.nan, X[:, 1].mean()
    model = RVMRegressor(standardize=standardize, **OPTIONS).fit(X, y)
    assert_allclose(model.predict(new), model.predict(mean), rtol=1e-10)
    save_model(model, tmp_path / "m")
    assert_array_equal(load_model(tmp_path / "m").predict(new), model.predict(new))
    classes = RVMClassifier(standardize=standardize, gamma="scale", random_state=0).fit(X, y > 1)
    assert_allclose(classes.predict_proba(new), classes.predict_proba(mean), rtol=1e-10)


@pytest.mark.usefixtures("quick_learning")
@QUIET
def test_kernels_of_gap_indicators_are_learned():
    """They are learned for a regression and for three classes that depend only on the gaps."""
    X, gap, y = rows(90)
    incomplete = with_gaps(X, gap)
    assert RVMRegressor(random_state=0).fit(incomplete, y).score(incomplete, y) > 0.98
    labels = np.where(gap, "gap", np.where(X[:, 0] > 0, "above", "below"))
    assert RVMClassifier(random_state=0).fit(incomplete, labels).score(incomplete, labels) > 0.9


@QUIET
def test_a_missing_label_is_a_level(tmp_path):
    """It is a level in a frame and in DATA; the means of "a", "b" and no label are 0, 1 and 5."""
    rng = default_rng(1)
    level = rng.integers(0, 3, 90)
    frame = pd.DataFrame(
        {"x": rng.normal(size=90), "c": np.array(["a", "b", None], dtype=object)[level]}
    )
    y = np.array([0.0, 1.0, 5.0])[level] + 0.1 * rng.normal(size=90)
    model = RVMRegressor(**OPTIONS).fit(frame, y)
    new = pd.DataFrame({"c": ["a", "b", None], "x": [0.0] * 3})
    assert_allclose(model.predict(new), [0, 1, 5], atol=0.3)
    data = ingest((frame, y), tmp_path / "d.zarr")
    later = ingest((new, None), tmp_path / "new.zarr", like=data)
    assert_allclose(RVMRegressor(**OPTIONS).fit(data).predict(later), model.predict(new), rtol=1e-8)


def test_infinite_values_and_features_without_values_are_refused():
    X, _, y = rows(60)
    with pytest.raises(DataError, match=r"no row has a value in \[x1\]"):
        RVMRegressor(**OPTIONS).fit(np.column_stack([X[:, 0], np.full(60, np.nan)]), y)
    with pytest.raises(DataError, match="infinity"):
        RVMRegressor(**OPTIONS).fit(np.where(X > 1, np.inf, X), y)


def test_an_indicator_has_the_gamma_of_its_feature():
    """gamma is given by a kernel or as numbers."""
    X, gap, y = rows(60)
    for widths in ({"kernel": Gaussian((0.3, 0.1, 0.2))}, {"gamma": (0.3, 0.1, 0.2)}):
        model = RVMRegressor(**widths, random_state=0).fit(with_gaps(X, gap), y)
        assert model.kernel_ == Gaussian((0.3, 0.1, 0.2, 0.2))


def labels_and_numbers_with_gaps(n=260, seed=0):
    """Return a frame with missing numbers and labels, its rows as numbers, and the effects of
    labels."""
    rng = default_rng(seed)
    codes = rng.integers(0, 5, n)
    X = rng.normal(size=(n, 2))
    X[rng.random(n) < 0.1, 0] = np.nan
    labels = np.array(["a", "b", "c", "d", None], dtype=object)[codes]
    frame = pd.DataFrame({"x": X[:, 0], "z": X[:, 1], "k": labels})
    numbers = np.column_stack([X, np.where(codes == 4, np.nan, codes)])
    return frame, numbers, np.array([0.0, 1.0, 2.0, 3.0, 6.0])[codes]


@pytest.mark.usefixtures("default_fits")
@pytest.mark.parametrize("estimator", [RVMRegressor, RVMClassifier])
@QUIET
def test_missing_labels_share_one_code_where_numbers_are_also_missing(estimator, tmp_path):
    """Exports give the same predictions."""
    frame, numbers, effects = labels_and_numbers_with_gaps()
    target = effects + np.sin(2 * frame.z) if estimator is RVMRegressor else effects > 1.5
    model = estimator(random_state=0, effort="quick").fit(frame, target)
    scaling = model.model_.design.scaling
    assert scaling.regressions is not None
    missing = np.isnan(numbers[:, 2])
    assert len(np.unique(scaling.inputs(numbers)[missing, 2])) == 1
    model.to_numpy(tmp_path / "model.npz")
    spec = importlib.util.spec_from_file_location("reader", tmp_path / "model_predict.py")
    reader = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(reader)
    exported = reader.load(tmp_path / "model.npz")(numbers)
    if estimator is RVMRegressor:
        assert_allclose(exported["mean"], model.predict(frame), atol=1e-9)
        assert np.sqrt(np.mean((model.predict(frame) - target)[missing] ** 2)) < 0.5
    else:
        assert_allclose(exported["probabilities"], model.predict_proba(frame), atol=1e-9)
        assert (model.predict(frame) == target).mean() > 0.95


@QUIET
def test_a_missing_label_is_a_level_of_its_own():
    """Its effect of 6 is learned from its rows; a label that is new counts as a missing one."""
    frame, numbers, effects = labels_and_numbers_with_gaps()
    model = RVMRegressor(gamma=0.5, random_state=0).fit(frame, effects)
    missing = np.isnan(numbers[:, 2])
    predicted = model.predict(frame)[missing]
    assert np.abs(predicted - 6.0).mean() < 0.5
    with pytest.warns(UnseenLevelWarning, match="'k': 'new'"):
        new = model.predict(frame.assign(k=np.where(missing, "new", frame.k)))[missing]
    assert_array_equal(new, predicted)
    codes = np.array([0.0, 1.0, 2.0, 3.0, 4.0, np.nan])
    rows = np.column_stack([np.zeros((6, 2)), codes])
    assert len(np.unique(model.model_.design.scaling.inputs(rows)[:, 2])) == 6


@QUIET
@pytest.mark.parametrize(
    ("gap", "nested"),
    [
        (pd.NA, False),
        (None, True),
        *some(product([np.nan, pd.NaT], [False, True]), []),
        *some([(pd.NA, True), (None, False)], []),
    ],
)
def test_every_mark_of_a_gap_in_objects_is_a_missing_value(gap, nested):
    """Steps of a pipeline turn extension columns into objects; lists may hold them, too."""
    rng = default_rng(0)
    X = rng.uniform(-2, 2, (50, 2))
    y = X[:, 0] + 0.1 * rng.normal(size=50)
    is_gap = rng.random(50) < 0.2
    objects = X.astype(object)
    objects[is_gap, 1] = gap
    numbers = X.copy()
    numbers[is_gap, 1] = np.nan
    options = {"gamma": 0.5, "max_iterations": 5, "random_state": 0}
    found = RVMRegressor(**options).fit(objects.tolist() if nested else objects, y)
    expected = RVMRegressor(**options).fit(numbers, y)
    assert_array_equal(found.predict(objects), expected.predict(numbers))
    assert_array_equal(found.model_.predict(objects), expected.predict(numbers))
    with pytest.raises(DataError, match="Input y contains NaN"):
        RVMRegressor(**options).fit(X, np.where(is_gap, gap, y.astype(object)))
