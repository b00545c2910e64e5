"""The records of local residuals: a row's point, error, noise and number, from a pass."""

import numpy as np
import pytest
from numpy.random import default_rng
from numpy.testing import assert_allclose, assert_array_equal

from partirvm.data import ArraySource
from partirvm.fit.residual_rows import records_of_tile
from partirvm.kernels import Design, Gaussian
from partirvm.local import LOG_FACTOR, NUMBER, Metric
from partirvm.local.cells import NOISE
from partirvm.scaling import Scaling
from partirvm.types import Columns


@pytest.mark.parametrize("weighted", [True, False])
def test_records_have_the_rows_of_the_user_with_their_errors_and_noises(weighted):
    """Rows are shuffled; those of weight 0 have no record, and others the noise 1/w."""
    rng = default_rng(0)
    X = rng.normal(size=(50, 2))
    y = 5.0 + 2.0 * rng.normal(size=50)
    w = rng.choice([0.0, 0.5, 4.0], 50) if weighted else None
    scaling = Scaling(np.zeros(2), np.ones(2), np.array([5.0]), np.array([2.0]))
    design = Design(Gaussian((0.3, 0.8)), scaling, X[:4], np.arange(4), bias=False)
    mean = rng.normal(size=4)
    source = ArraySource(X, y, w, permutation=rng.permutation(50), tile_rows=16)
    metric = Metric.of(design, Columns(("a", "b")))
    tiles = [
        records_of_tile(design, mean, metric, None, source, tile) for tile in range(source.n_tiles)
    ]
    records = np.concatenate(tiles)
    numbers = records[:, NUMBER].astype(int)
    factors = np.ones(50) if w is None else w
    assert_array_equal(np.sort(numbers), np.flatnonzero(factors > 0))
    assert_allclose(records[:, :2], X[numbers] * np.sqrt([0.3, 0.8]), rtol=1e-12)
    square = (np.array([0.3, 0.8]) * (X[numbers, None] - X[:4]) ** 2).sum(axis=2)
    errors = (y[numbers] - 5.0) / 2.0 - np.exp(-square) @ mean
    assert_allclose(records[:, LOG_FACTOR - 1], errors, rtol=0, atol=1e-8)
    assert_array_equal(records[:, LOG_FACTOR], 0.0)
    assert_allclose(records[:, NOISE], 1 / factors[numbers], rtol=1e-12)
