"""scikit-learn's conveniences around the estimators: set_output, metadata routing, joblib files and processes."""

from __future__ import annotations

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.model_selection import KFold, cross_val_score
from sklearn.pipeline import make_pipeline
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
