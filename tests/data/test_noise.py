"""A column with the relative noise of rows becomes weights 1/noise²."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from partirvm import ingest
from partirvm.errors import DataError, UsageError

X = np.arange(10.0)[:, None]
Y = np.arange(10.0)
NOISE = np.linspace(0.5, 3, 10)
WEIGHTS = np.array([0.0, 2, 1, 1, 1, 1, 1, 1, 1, 3])


def test_a_noise_column_becomes_weights(tmp_path):
    """It is refused if it is not positive, for classes, and together with weights."""
    table = tmp_path / "rows.csv"
    lines = [f"{x[0]},{y},{r},{w}" for x, y, r, w in zip(X, Y, NOISE, WEIGHTS, strict=True)]
    table.write_text("\n".join(["x,y,r,w", *lines]))
    data = ingest(table, tmp_path / "data", target="y", features=["x"], noise="r", shuffle=None)
    assert_allclose(data.tile(0).weights, 1 / NOISE**2, rtol=1e-14)
    for options in ({"weights": "w"}, {"classes": True}):
        with pytest.raises(
            UsageError, match=r"'r' cannot be the noise .* for regression without weights"
        ):
            ingest(table, tmp_path / "other", target="y", noise="r", **options)
    with pytest.raises(DataError, match="no column 'sd'"):
        ingest(table, tmp_path / "other", target="y", noise="sd")
    with pytest.raises(DataError, match=r"w +no weight ≥ 0, or no noise > 0, in 1 row"):
        ingest(table, tmp_path / "other", target="y", noise="w")
    assert not (tmp_path / "other").exists()
