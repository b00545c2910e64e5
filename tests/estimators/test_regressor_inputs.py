"""Every kind of input, names of features, validation data, and plans."""

from __future__ import annotations

import warnings

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from regressions import plane

from partirvm import RVMRegressor, WorkingSet, ingest, plan
from partirvm.errors import DataError


def test_predictions_of_data_come_in_the_order_before_shuffling(tmp_path):
    """DATA is shuffled on disk; predictions are not."""
    X, y = plane(150)
    model = RVMRegressor(gamma=0.3, random_state=0).fit(X, y)
    data = ingest((X, y), tmp_path / "rows.zarr", shuffle=4, tile_rows=32)
    np.testing.assert_allclose(model.predict(data.url), model.predict(X), atol=1e-12)


def test_names_and_number_of_features_follow_each_fit(tmp_path):
    """Of pandas and Dask frames; a refit on rows without names forgets those of the fit before."""
    X, y = plane(60)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    model = RVMRegressor(gamma="scale", random_state=0)
    model.fit(dd.from_pandas(frame, npartitions=2), da.from_array(y, chunks=30))
    assert (model.n_features_in_, list(model.feature_names_in_)) == (3, ["a", "b", "c"])
    model.predict(frame)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[["b", "a", "c"]])
    model.fit(dd.from_pandas(frame[["b", "a"]], npartitions=2), da.from_array(y, chunks=30))
    assert (model.n_features_in_, list(model.feature_names_in_)) == (2, ["b", "a"])
    ingest((X, y), tmp_path / "d.zarr")
    for rows in ((da.from_array(X, chunks=30), da.from_array(y, chunks=30)), (str(tmp_path / "d.zarr"),), (X, y)):
        model.fit(frame, y).fit(*rows)
        assert model.n_features_in_ == 3
        assert not hasattr(model, "feature_names_in_")


def test_validation_may_be_a_list_and_its_columns_must_be_those_of_the_training(tmp_path):
    """[X, y] as (X, y); a frame of other columns or another order is refused, whatever kinds the two are."""
    X, y = plane(80)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    made = RVMRegressor(gamma="scale", random_state=0)
    pair = made.fit(X, y, validation=(X, y)).history_[-1]["held_out_rmse"]
    assert made.fit(X, y, validation=[X, y]).history_[-1]["held_out_rmse"] == pair
    ingest(frame.assign(y=y), tmp_path / "d.zarr", target="y")
    out_of_core = dd.from_pandas(frame, npartitions=2), da.from_array(y, chunks=40)
    for training in ((frame, y), out_of_core, (str(tmp_path / "d.zarr"),)):
        for other in (frame[["b", "a", "c"]], frame.rename(columns={"c": "d"})):
            for held_out in (other, dd.from_pandas(other, npartitions=2)):
                with pytest.raises(DataError, match="given rows have"):
                    made.fit(*training, validation=(held_out, y))
        for held_out in (frame, dd.from_pandas(frame, npartitions=2), X):
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="X .* feature names")
                assert made.fit(*training, validation=(held_out, y)).history_[-1]["held_out_rmse"] > 0
    made.fit(X, y, validation=(dd.from_pandas(frame, npartitions=2), y))


def test_a_plan_without_a_fit(tmp_path):
    """``plan(estimator, DATA)``: rows, candidates and passes as the fit will have them, and it prints."""
    X, y = plane(500)
    data = ingest((X, y), tmp_path / "rows.zarr")
    options = {"gamma": 0.3, "partition_size": 60, "max_rounds": 3, "noise": "constant", "random_state": 0}
    estimator = RVMRegressor(strategy=WorkingSet(selection="random"), **options)
    made = plan(estimator, data.url)
    assert (made.shape.n_rows, made.partition_size, made.request.max_rounds) == (500, 60, 3)
    assert "60 candidates per round, up to 3 rounds" in str(made)
    assert not hasattr(estimator, "model_")
    fitted = estimator.fit(data.url)
    assert fitted.plan_.partition_size == 60
    assert sum(entry["passes"] for entry in fitted.history_) >= made.passes
