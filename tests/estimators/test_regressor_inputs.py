"""Every kind of input, feature names, and validation data."""

import warnings

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from by_default import some
from numpy.testing import assert_array_equal
from regressions import plane

from partirvm import RVMRegressor, ingest
from partirvm.errors import DataError, UsageError

QUICK = {"gamma": "scale", "tol": 1e-2, "reference": "none", "residual": "none", "random_state": 0}


def test_names_and_number_of_features_are_updated_by_each_fit(tmp_path):
    """Inputs are pandas and Dask frames; a fit to rows without names forgets earlier names."""
    X, y = plane(60)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    model = RVMRegressor(**QUICK)
    model.fit(dd.from_pandas(frame, npartitions=2), da.from_array(y, chunks=30))
    assert (model.n_features_in_, list(model.feature_names_in_)) == (3, ["a", "b", "c"])
    assert_array_equal(model.predict(frame[["b", "a", "c"]]), model.predict(frame))
    with pytest.raises(
        ValueError, match=r"lacks columns on which the model was trained: c\. It has a, b"
    ):
        model.predict(frame[["a", "b"]])
    model.fit(dd.from_pandas(frame[["b", "a"]], npartitions=2), da.from_array(y, chunks=30))
    assert (model.n_features_in_, list(model.feature_names_in_)) == (2, ["b", "a"])
    ingest((X, y), tmp_path / "d.zarr")
    for rows in (
        (da.from_array(X, chunks=30), da.from_array(y, chunks=30)),
        (str(tmp_path / "d.zarr"),),
        (X, y),
    ):
        model.fit(frame, y).fit(*rows)
        assert model.n_features_in_ == 3
        assert not hasattr(model, "feature_names_in_")


def test_held_out_rows_are_of_any_kind(tmp_path):
    X, y = plane(40)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    model = RVMRegressor(**QUICK)
    pair = model.fit(X, y, X_val=X, y_val=y).history_[-1]["held_out_rmse"]
    ingest(frame.assign(y=y), tmp_path / "d.zarr", target="y")
    from_dataset = model.fit(frame, y, X_val=str(tmp_path / "d.zarr")).history_[-1]["held_out_rmse"]
    assert from_dataset == pytest.approx(pair)
    model.fit(X, y, X_val=dd.from_pandas(frame, npartitions=2), y_val=y)
    with pytest.raises(ValueError, match="2 features"):
        model.fit(X, y, X_val=X[:, :2], y_val=y)
    with pytest.raises(UsageError, match="validation rows need both X and y"):
        model.fit(X, y, X_val=X)


@pytest.mark.parametrize("kind", some(["frame", "dask", "data"], {"dask"}))
def test_held_out_rows_must_have_the_training_columns(kind, tmp_path):
    """They may have any order and any kind of input, even if the training rows are of another
    kind."""
    X, y = plane(40)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    model = RVMRegressor(**QUICK)
    if kind == "frame":
        training = frame, y
    elif kind == "dask":
        training = dd.from_pandas(frame, npartitions=2), da.from_array(y, chunks=20)
    else:
        training = (ingest(frame.assign(y=y), tmp_path / "d.zarr", target="y"),)
    other = frame.rename(columns={"c": "d"})
    for held_out in (other, dd.from_pandas(other, npartitions=2)):
        with pytest.raises(DataError, match="lacks columns on which the model was trained: c"):
            model.fit(*training, X_val=held_out, y_val=y)
    for held_out in (frame[["b", "a", "c"]], dd.from_pandas(frame, npartitions=2), X):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="X .* feature names")
            assert model.fit(*training, X_val=held_out, y_val=y).history_[-1]["held_out_rmse"] > 0


@pytest.mark.parametrize("value", [np.inf, -np.inf])
def test_infinite_values_out_of_core_are_reported(value):
    """The error gives their number, the first row and the column."""
    X, y = plane(50)
    X[33, 1] = value
    X[40, 2] = np.inf
    with pytest.raises(DataError, match=r"2 values .* row 33 .*column 'x1'"):
        RVMRegressor().fit(da.from_array(X, chunks=(20, 3)), y)
