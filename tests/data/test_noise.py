"""Relative noise of rows, of every kind of array, and from a column: weights of 1/noise²."""

from __future__ import annotations

import numpy as np
import pytest
import zarr

from partirvm import ingest
from partirvm.data.labels import noise_weights
from partirvm.errors import DataError, UsageError

X, Y = np.arange(10.0)[:, None], np.arange(10.0)
NOISE, WEIGHTS = np.linspace(0.5, 3, 10), np.array([0.0, 2, 1, 1, 1, 1, 1, 1, 1, 3])


def as_kind(kind, values):
    if kind == "dask":
        import dask.array as da

        return da.from_array(values, chunks=3)
    return zarr.array(values, chunks=(3, *values.shape[1:])) if kind == "zarr" else values


@pytest.mark.parametrize("kind", ["numpy", "zarr", "dask"])
def test_weights_of_noise_of_every_kind(kind):
    """w/r² of arrays of every kind; noise that is not positive and finite is refused with its row."""
    for weights in (None, WEIGHTS):
        found = noise_weights(as_kind(kind, NOISE), None if weights is None else as_kind(kind, weights))
        np.testing.assert_allclose(found, (1.0 if weights is None else weights) / NOISE**2, rtol=1e-14)
    for bad in (0.0, -1.0, np.nan, np.inf, 1e-200):
        noise = NOISE.copy()
        noise[[7, 8]] = bad
        with pytest.raises(DataError, match=r"sample_noise is .* in row 7 \(counted"):
            noise_weights(as_kind(kind, noise))


def test_noise_of_another_shape_is_refused():
    with pytest.raises(DataError, match=r"sample_noise must have shape \(rows,\), found \(5, 2\)"):
        noise_weights(NOISE.reshape(5, 2))
    with pytest.raises(DataError, match=r"sample_noise has shape .*10.*, the weights .*3"):
        noise_weights(NOISE, np.ones(3))
    holes = zarr.create_array({}, shape=(10,), chunks=(5,), dtype="float64", fill_value=1.0)
    holes[:5] = 2.0
    with pytest.raises(DataError, match=r"the Zarr array sample_noise .* lacks 1 of its 2 chunks"):
        noise_weights(holes)


def test_a_column_of_noise(tmp_path):
    """Ingest keeps weights of 1/noise²; with weights beside, of classes or without noise it is refused."""
    table = tmp_path / "rows.csv"
    lines = [f"{x[0]},{y},{r},{w}" for x, y, r, w in zip(X, Y, NOISE, WEIGHTS, strict=True)]
    table.write_text("\n".join(["x,y,r,w", *lines]))
    data = ingest(table, tmp_path / "data", target="y", features=["x"], noise="r", shuffle=None)
    np.testing.assert_allclose(data.tile(0).weights, 1 / NOISE**2, rtol=1e-14)
    for options, message in (
        ({"weights": "w"}, "'r' cannot be the noise .* because the weights 'w' are given"),
        ({"classes": True}, "'r' cannot be the noise .* because the target is a class"),
    ):
        with pytest.raises(UsageError, match=message):
            ingest(table, tmp_path / "other", target="y", noise="r", **options)
    with pytest.raises(DataError, match=r"no column 'sd' \(noise\)"):
        ingest(table, tmp_path / "other", target="y", noise="sd")
    with pytest.raises(DataError, match=r"the noise \(column 'w'\) is 0 in row 0"):
        ingest(table, tmp_path / "other", target="y", noise="w")
    assert not (tmp_path / "other").exists()
