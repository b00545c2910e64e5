"""``save_model`` stores a fitted estimator and ``load_model`` returns it, without pickle."""

import numpy as np
import pandas as pd
import pytest
from by_default import some
from numpy.random import default_rng
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from partirvm import AlphaPrior, RVMClassifier, RVMRegressor, WorkingSet, load_model, save_model
from partirvm.errors import DataError, UsageError
from partirvm.kernels import Gaussian, Laplacian, Sum

N = 80


def wave(n=N, seed=0):
    """Return inputs (n, 2) and targets (n,)."""
    rng = default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] + 0.1 * rng.normal(size=n)


def assert_same_attributes(loaded, expected):
    """Compare the attributes of two fits, except ``plan_`` and the models themselves."""
    left_out = {"plan_", "model_", "estimators_", "kernel_"}
    names = {
        name for name in vars(expected) if name.endswith("_") and not name.startswith("_")
    } - left_out
    assert names <= set(vars(loaded))
    for name in names:
        one = getattr(loaded, name)
        other = getattr(expected, name)
        assert_array_equal(one, other, err_msg=name)
        assert getattr(one, "dtype", None) == getattr(other, "dtype", None), name
        assert type(one) is type(other), name


REGRESSORS = {
    "plain": {},
    "learned": {"gamma": "learn-per-feature"},
    "several widths": {"kernel": Gaussian(np.array([0.5, 0.2]), multiples=(1.0, 8.0))},
    "a value and a basis": {
        "kernel": Sum((Gaussian(0.5), Laplacian(0.2)), (1.0, 0.3)),
        "basis": ["linear"],
    },
    "rounds": {
        "strategy": WorkingSet(selection="gain", fit_rows="sample", sample_rows=40),
        "partition_size": 20,
    },
    "priors": {
        "gamma": 0.5,
        "alpha_prior": AlphaPrior(1e-4, 1e-4, fixed={"bias": 1e-6}),
        "max_vectors": 50,
    },
}


@pytest.mark.usefixtures("quick_learning")
@pytest.mark.parametrize("name", some(REGRESSORS, {"a value and a basis", "rounds"}))
def test_a_stored_regressor_is_bit_identical(name, tmp_path):
    """Parameters, attributes, predictions, intervals, samples, score, and the fit of a clone are
    compared."""
    X, y = wave()
    fitted = RVMRegressor(**REGRESSORS[name], random_state=3, time_limit="1h").fit(X, y)
    save_model(fitted, tmp_path / "m")
    assert not [
        path
        for path in (tmp_path / "m").rglob("*")
        if path.is_file() and b"pickle" in path.read_bytes()
    ]
    loaded = load_model(tmp_path / "m")
    assert type(loaded) is RVMRegressor
    assert repr(loaded.get_params()) == repr(fitted.get_params())
    assert_same_attributes(loaded, fitted)
    assert loaded.kernel_ == fitted.kernel_
    new, target = wave(seed=1)
    assert_array_equal(loaded.predict(new, return_std=True), fitted.predict(new, return_std=True))
    assert_array_equal(loaded.predict_interval(new, 0.9), fitted.predict_interval(new, 0.9))
    assert_array_equal(loaded.sample_y(new, 2, 1), fitted.sample_y(new, 2, 1))
    assert loaded.score(new, target) == fitted.score(new, target) > 0.8
    assert_array_equal(clone(loaded).fit(X, y).predict(new), fitted.predict(new))


LABELS = {
    "text": np.array(["no", "yes"]),
    "integers": np.array([3, 7], np.int32),
    "booleans": np.array([False, True]),
    "objects": np.array(["a", "b"], object),
}


@pytest.mark.parametrize("kind", some(LABELS, {"objects"}))
def test_a_stored_classifier_is_bit_identical(kind, tmp_path):
    """Labels have the type of y, and class weights are given by label."""
    X, y = wave()
    labels = LABELS[kind]
    t = labels[(y > 0).astype(int)]
    weight = (
        {labels[0]: 1.0, labels[1]: 2.0} if isinstance(labels[0], str | np.integer) else "balanced"
    )
    fitted = RVMClassifier(gamma=0.5, class_weight=weight).fit(X, t)
    save_model(fitted, tmp_path / "m")
    loaded = load_model(tmp_path / "m")
    assert_same_attributes(loaded, fitted)
    assert loaded.get_params() == fitted.get_params()
    assert_array_equal(loaded.predict_proba(X), fitted.predict_proba(X))
    assert loaded.predict(X).dtype == fitted.predict(X).dtype
    assert loaded.score(X, t) == fitted.score(X, t) > 0.8


def test_a_stored_estimator_keeps_names_and_categories(tmp_path):
    X, y = wave()
    frame = pd.DataFrame({"a": X[:, 0], "b": pd.Categorical(np.where(X[:, 1] > 0, "up", "down"))})
    fitted = RVMRegressor(gamma=0.5).fit(frame, y)
    save_model(fitted, tmp_path / "m")
    loaded = load_model(tmp_path / "m")
    assert_same_attributes(loaded, fitted)
    assert_array_equal(loaded.predict(frame), fitted.predict(frame))
    with pytest.raises(DataError, match="lacks columns on which the model was trained: a"):
        loaded.predict(frame[["b"]])


def test_a_stored_partial_fit_cannot_be_continued(tmp_path):
    """Continuing needs the rows, which are not stored; augmented predictions work."""
    X, y = wave()
    fitted = RVMRegressor(gamma=0.5).partial_fit(X[:50], y[:50]).partial_fit(X[50:], y[50:])
    save_model(fitted, tmp_path / "m")
    loaded = load_model(tmp_path / "m")
    assert_array_equal(loaded.predict(X, augment=(X, y)), fitted.predict(X, augment=(X, y)))
    with pytest.raises(UsageError, match="fit and files keep no rows"):
        loaded.partial_fit(X, y)


def test_an_estimator_that_cannot_be_saved_is_reported(tmp_path):
    """Nothing is left behind."""
    X, y = wave()
    for write in (save_model, RVMRegressor.to_c, RVMRegressor.to_numpy):
        with pytest.raises(NotFittedError):
            write(RVMRegressor(), tmp_path / "m.h")
    for estimator, message in (
        (RVMRegressor(kernel=lambda X, Z: X @ Z.T, basis="linear"), r"<lambda>.*'module:function'"),
        (
            RVMRegressor(gamma=0.5, random_state=np.random.RandomState(0)),
            "RandomState cannot be stored",
        ),
        (
            type("Own", (RVMRegressor,), {"__init__": RVMRegressor.__init__})(gamma=0.5),
            "Own cannot be saved",
        ),
    ):
        with pytest.raises(UsageError, match=message):
            save_model(estimator.fit(X, y), tmp_path / "m")
        assert not (tmp_path / "m").exists()
