"""scikit-learn's conveniences around the estimators: set_output, metadata routing, joblib files and processes."""

from __future__ import annotations

from typing import ClassVar

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.compose import TransformedTargetRegressor, make_column_transformer
from sklearn.feature_selection import SelectFromModel
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from partirvm import RVMClassifier, RVMRegressor

ASK = {"gamma": (0.2, 0.5, 1e-5), "standardize": False, "strategy": "basic", "random_state": 0}
"""The third feature counts for less than a thousandth."""

NAMES = ["age", "height", "shoe"]


@pytest.fixture
def rows(rng):
    """60 rows of three features, and a target of the first two."""
    X = rng.normal(size=(60, 3))
    return X, X[:, 0] + np.sin(2 * X[:, 1]) + 0.1 * rng.normal(size=60)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_selector_keeps_the_names_in_a_frame(rows, library):
    """``set_output`` of a selector: its columns are those of X that count, by name, in a frame of the library."""
    frames = pytest.importorskip(library)
    X, y = rows
    frame = frames.DataFrame(dict(zip(NAMES, X.T, strict=True)))
    selector = SelectFromModel(RVMRegressor(**ASK), importance_getter="feature_relevance_", threshold=1e-3)
    chosen = selector.set_output(transform=library).fit_transform(frame, y)
    assert isinstance(chosen, frames.DataFrame)
    assert list(chosen.columns) == NAMES[:2]
    np.testing.assert_array_equal(np.asarray(chosen), X[:, :2])


def test_frames_of_transformers_name_the_features(rows):
    """The estimator knows the columns of a transformer's frame by name, and predicts as from arrays."""
    X, y = rows
    frame = pd.DataFrame({"age": X[:, 0], "kind": np.where(X[:, 1] > 0, "high", "low")})
    columns = make_column_transformer(
        (StandardScaler(), ["age"]), (OneHotEncoder(sparse_output=False), ["kind"]), verbose_feature_names_out=False
    )
    named = make_pipeline(columns.set_output(transform="pandas"), RVMRegressor(gamma=0.5, random_state=0))
    assert named.fit(frame, y)[-1].feature_names_in_.tolist() == ["age", "kind_high", "kind_low"]
    plain = RVMRegressor(gamma=0.5, random_state=0).fit(named[0].transform(frame).to_numpy(), y)
    np.testing.assert_array_equal(named.predict(frame), plain.predict(named[0].transform(frame).to_numpy()))


@pytest.mark.parametrize("classifies", [False, True])
def test_a_file_of_joblib(rows, classifies, tmp_path):
    """Predictions of the loaded estimator have equal bits."""
    X, y = rows
    model = (RVMClassifier if classifies else RVMRegressor)(**ASK).fit(X, y > 0 if classifies else y)
    joblib.dump(model, tmp_path / "model.joblib", compress=3)
    loaded = joblib.load(tmp_path / "model.joblib")
    ask = "predict_proba" if classifies else "predict"
    np.testing.assert_array_equal(getattr(loaded, ask)(X), getattr(model, ask)(X))
    assert loaded.get_params() == model.get_params()


def test_folds_in_other_processes(rows):
    """``n_jobs=2`` scores as ``n_jobs=1``."""
    X, y = rows
    scores = [cross_val_score(RVMRegressor(**ASK), X, y, cv=KFold(2), n_jobs=jobs) for jobs in (1, 2)]
    np.testing.assert_array_equal(*scores)


def test_a_transformed_target(rows):
    """Predictions are the inverse of those for the transformed target."""
    X, y = rows
    log = TransformedTargetRegressor(RVMRegressor(**ASK), func=np.log, inverse_func=np.exp, check_inverse=False)
    plain = RVMRegressor(**ASK).fit(X, y)
    np.testing.assert_allclose(log.fit(X, np.exp(y)).predict(X), np.exp(plain.predict(X)), rtol=1e-9)


class Noting(RVMRegressor):
    """Notes the weights and the noise of its fits and scores."""

    noted: ClassVar[list[tuple[object, ...]]] = []

    def fit(self, X, y=None, sample_weight=None, validation=None, sample_noise=None):
        self.noted.append(("fit", sample_weight, sample_noise))
        return super().fit(X, y, sample_weight, validation, sample_noise)

    def score(self, X, y, sample_weight=None):
        self.noted.append(("score", sample_weight))
        return super().score(X, y, sample_weight)


def test_metadata_go_through_a_search_and_a_pipeline(rows):
    """Each fit gets the rows of its fold of what it asked for, each score those held out, and the last fit all."""
    X, y = rows
    weights, noise = np.arange(1.0, 61), np.linspace(1, 2, 60)
    folds = list(KFold(2).split(X))
    with config_context(enable_metadata_routing=True):
        model = Noting(**ASK).set_fit_request(sample_weight=True, sample_noise=True)
        steps = Pipeline([("scale", StandardScaler().set_fit_request(sample_weight=False)), ("model", model)])
        model.set_score_request(sample_weight=True)
        search = GridSearchCV(steps, {"model__tol": [1e-6]}, cv=folds, error_score="raise")
        Noting.noted.clear()
        search.fit(X, y, sample_weight=weights, sample_noise=noise)
    expected = [
        entry for fitted, held in folds for entry in (("fit", weights[fitted], noise[fitted]), ("score", weights[held]))
    ]
    expected.append(("fit", weights, noise))
    assert len(Noting.noted) == len(expected)
    for found, wanted in zip(Noting.noted, expected, strict=True):
        assert found[0] == wanted[0]
        for one, other in zip(found[1:], wanted[1:], strict=True):
            np.testing.assert_array_equal(one, other)
