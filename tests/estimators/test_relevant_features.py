"""Which features count: of an estimator, through scikit-learn's selectors, and of a job; gamma_j·var_j by hand."""

import numpy as np
import pandas as pd
import pytest

from partirvm import RVMClassifier, RVMRegressor, ingest, jobs, open_job
from partirvm.options import Request

GAMMA = (0.2, 0.5, 1e-5, 0.0)
NAMES = ("age", "height", "shoe", "door")
ASK = {"gamma": GAMMA, "standardize": False, "partition_size": 30, "max_rounds": 1}


@pytest.fixture
def frame(rng):
    """120 rows of four features of other scales, a target and a class."""
    X = rng.normal(size=(120, 4)) * [1.0, 0.5, 2.0, 1.0]
    return pd.DataFrame(X, columns=NAMES), X[:, 0] + np.sin(3 * X[:, 1]) + 0.1 * rng.normal(size=120)


@pytest.mark.filterwarnings("ignore::partirvm.errors.PartirvmWarning")
@pytest.mark.parametrize("classifies", [False, True])
def test_support_of_an_estimator(frame, classifies):
    """By position and by name, of a frame's columns; 1e-5·var is below a thousandth of the largest, 0 is nothing."""
    X, y = frame
    model = (RVMClassifier if classifies else RVMRegressor)(**ASK).fit(X, y > 0 if classifies else y)
    expected = np.array(GAMMA) * X.to_numpy().var(axis=0)
    assert model.feature_relevance_ == pytest.approx(expected / expected.max())
    assert model.get_support().tolist() == [True, True, False, False]
    assert model.get_support(indices=True).tolist() == [0, 1]
    assert model.feature_names_in_[model.get_support()].tolist() == ["age", "height"]


@pytest.mark.filterwarnings("ignore::partirvm.errors.PartirvmWarning")
def test_relevance_of_a_job(frame, tmp_path):
    """By name, as an estimator's, from what the job's folder holds."""
    X, y = frame
    ingest((X.to_numpy(), y), str(tmp_path / "data"), shuffle=None)
    jobs.fit(str(tmp_path / "data"), str(tmp_path / "job"), Request(**ASK))
    expected = np.array(GAMMA) * X.to_numpy().var(axis=0)
    found = open_job(tmp_path / "job").facts()["relevance"]
    assert list(found) == ["x0", "x1", "x2", "x3"]
    assert list(found.values()) == pytest.approx((expected / expected.max()).tolist())
