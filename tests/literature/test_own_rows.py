"""The literal scheme: every fit sees only the rows of its own candidates."""

import numpy as np
import pytest

from partirvm import RVMRegressor
from partirvm.literature.own_rows import own_rows


@pytest.mark.filterwarnings("ignore::partirvm.errors.PartirvmWarning")
@pytest.mark.parametrize(
    ("strategy", "fits"), [("split-merge", 7), ("incremental", 4), ("working-set", 3)]
)
def test_each_fit_is_that_of_its_rows(strategy, fits):
    """Four partitions: four fits and three merges; a fit each; as many rounds as asked."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-5, 5, (200, 1))
    y = np.sin(X[:, 0]) + 0.05 * rng.normal(size=200)
    seen = []

    class Seen(RVMRegressor):
        def fit(self, X, y):
            seen.append(X[:, 0])
            return super().fit(X, y)

    found = own_rows(
        Seen(gamma=1.0, noise="constant"), X, y, strategy=strategy, partition_size=50, rounds=3
    )
    assert len(seen) == fits
    assert len(seen[0]) == 50
    assert max(map(len, seen)) < 100
    vectors = np.sort(found.estimator.relevance_vectors_[:, 0])
    np.testing.assert_allclose(np.sort(X[found.rows, 0]), vectors)
    assert set(X[found.rows, 0]) <= set(seen[-1])
