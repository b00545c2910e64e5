"""Predictions have the same bits for any number of BLAS threads."""

import numpy as np
import pytest
from numpy.random import default_rng
from threadpoolctl import threadpool_limits

from partirvm import RVMClassifier, RVMRegressor


@pytest.mark.bits
def test_predictions_do_not_depend_on_the_number_of_blas_threads():
    """Means, deviations, intervals, samples and probabilities of models with many vectors."""
    rng = default_rng(0)
    X = rng.uniform(-2, 2, size=(1200, 2))
    new = rng.uniform(-2, 2, size=(500, 2))
    y = np.sin(6 * X[:, 0]) * np.cos(6 * X[:, 1]) + 0.05 * rng.standard_normal(len(X))
    fixed = {"gamma": 8.0, "partition_size": 200, "max_rounds": 3, "random_state": 0}
    model = RVMRegressor(noise="constant", **fixed).fit(X, y)
    classifier = RVMClassifier(**fixed).fit(X, y > 0)
    assert model.n_relevance_vectors_ > 150
    results = set()
    for threads in (1, 2, 4):
        with threadpool_limits(threads, user_api="blas"):
            values = [*model.predict_interval(new, 0.9), *model.predict(new, return_std=True)]
            values += [model.sample_y(new, 3, random_state=0), classifier.predict_proba(new)]
        results.add(b"".join(np.ascontiguousarray(array).tobytes() for array in values))
    assert len(results) == 1
