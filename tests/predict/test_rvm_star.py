"""Augmented predictions from a job on DATA."""

import numpy as np
import pandas as pd
import pytest
from numpy.random import default_rng
from numpy.testing import assert_array_equal
from scipy.stats import norm

from partirvm import RVMRegressor, WorkingSet, ingest, jobs
from partirvm.errors import ChangedDataError, UsageError
from partirvm.jobs import JobStore
from partirvm.options import Request
from partirvm.predict import prediction

FEW = {"gamma": 0.5, "partition_size": 30, "max_rounds": 2, "residual": "none"}
PARAMETERS = Request(strategy="working-set", selection="error", **FEW)
N = 450
TESTED = 500


def rows(n=N, seed=0):
    """Return a smooth function of two inputs, with weights; test rows extend beyond the training
    rows."""
    rng = default_rng(seed)
    X = rng.normal(size=(n, 2)) * (3 if seed else 1)
    return (
        X,
        100 + 20 * np.sin(X[:, 0]) + 5 * X[:, 1] + rng.normal(size=n),
        rng.choice([0.5, 1.0, 3.0], size=n),
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return DATA for training and testing, a JOB, and augmented predictions."""
    place = tmp_path_factory.mktemp("augmented")
    ingest(rows(), place / "train.zarr", tile_rows=128)
    ingest(rows(TESTED, seed=1), place / "test.zarr", tile_rows=300, shuffle=9)
    jobs.fit(str(place / "train.zarr"), str(place / "job"), PARAMETERS)
    predict(place, place / "whole.csv")
    return place


def predict(folder, output, **options):
    """Predict with the DATA of the fit, unless ``options`` name others."""
    options = {"augment": str(folder / "train.zarr"), **options}
    return prediction.predict(
        str(folder / "job"), str(folder / "test.zarr"), str(output), **options
    )


def test_a_job_predicts_the_same_bits_as_the_estimator(folder):
    """Rows are in the order before shuffling."""
    estimator = RVMRegressor(strategy=WorkingSet(selection="error"), random_state=0, **FEW)
    estimator.fit(str(folder / "train.zarr"))
    mean, std = estimator.predict(
        str(folder / "test.zarr"), return_std=True, augment=str(folder / "train.zarr")
    )
    written = np.loadtxt(folder / "whole.csv", delimiter=",", skiprows=1)
    assert_array_equal(written, np.column_stack([mean, std]))


def test_progress_counts_every_tile_of_every_pass(folder, tmp_path):
    """Each of 5 pieces of test rows needs a pass over 4 training tiles."""
    seen = []
    predict(folder, tmp_path / "out.csv", progress=lambda *counts: seen.append(counts))
    assert seen[-1] == (4 * 5, 4 * 5)
    assert seen == sorted(seen)


def test_scores_are_computed_from_the_augmented_predictions(folder):
    found = prediction.evaluate(
        str(folder / "job"), str(folder / "test.zarr"), augment=str(folder / "train.zarr")
    )
    written = pd.read_csv(folder / "whole.csv")
    y = rows(TESTED, seed=1)[1]
    predictive = norm(written["mean"], written["std"])
    (curves,) = JobStore(str(folder / "job")).model().multiples([0.95])
    std = written["std"].to_numpy()
    low, high = written["mean"].to_numpy() + curves.at(std) * std
    assert found["rmse"] == pytest.approx(np.sqrt(np.mean((y - written["mean"]) ** 2)), rel=1e-9)
    assert found["nlpd"] == pytest.approx(-predictive.logpdf(y).mean(), rel=1e-9)
    assert found["coverage_95"] == pytest.approx(np.mean((low <= y) & (y <= high)))


def test_only_a_copy_of_the_training_data_is_accepted(folder, tmp_path):
    ingest(rows(), tmp_path / "copy.zarr", tile_rows=128)
    predict(folder, tmp_path / "out.csv", augment=str(tmp_path / "copy.zarr"))
    assert (tmp_path / "out.csv").read_bytes() == (folder / "whole.csv").read_bytes()
    X, y, w = rows()
    y[17] += 1e-9
    ingest((X, y, w), tmp_path / "other.zarr", tile_rows=128)
    with pytest.raises(ChangedDataError, match=r"other\.zarr is not the dataset.*train\.zarr"):
        predict(folder, tmp_path / "other.csv", augment=str(tmp_path / "other.zarr"))
    assert not list(tmp_path.glob("*other.csv*"))


def test_classes_are_not_augmented(tmp_path):
    X = default_rng(0).normal(size=(120, 1))
    ingest((X, (X[:, 0] > 0).astype(int)), tmp_path / "d.zarr", classes=True)
    job = str(tmp_path / "job")
    data = str(tmp_path / "d.zarr")
    jobs.fit(data, job, Request(gamma=0.5, partition_size=10, max_rounds=1, strategy="working-set"))
    for call in (lambda: prediction.predict(job, data, str(tmp_path / "p.csv"), augment=data),
                 lambda: prediction.evaluate(job, data, augment=data)):  # fmt: skip
        with pytest.raises(
            UsageError, match="holds a classifier, but augment supports regression only"
        ):
            call()
    assert not list(tmp_path.glob("*p.csv*"))
