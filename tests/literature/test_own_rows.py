"""The literal scheme: every fit sees only the rows of its own candidates."""

from __future__ import annotations

import numpy as np
import pytest

from partirvm import RVMRegressor
from partirvm.literature.own_rows import own_rows


@pytest.mark.parametrize(("strategy", "fits"), [("split-merge", 7), ("incremental", 4), ("working-set", 3)])
def test_each_fit_is_that_of_its_rows(strategy, fits):
    """Four partitions: four fits and three merges; a fit each; as many rounds as asked. The last is an RVM of its rows."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-5, 5, (200, 1))
    y = np.sinc(X[:, 0]) + 0.05 * rng.normal(size=200)
    rows = []

    class Seen(RVMRegressor):
        def fit(self, X, y):
            rows.append(len(X))
            return super().fit(X, y)

    found = own_rows(Seen(gamma=1.0, noise="constant"), X, y, strategy=strategy, partition_size=50, rounds=3)
    assert found.fits == len(rows) == fits
    assert max(rows) <= 50 + (0 if strategy == "split-merge" else len(found.rows) + 50)
    assert 0 < len(found.rows) <= rows[-1]
    np.testing.assert_array_equal(found.estimator.model_.design.rows.size, len(found.rows))
    assert np.mean((found.estimator.predict(X) - np.sinc(X[:, 0])) ** 2) < 0.02
