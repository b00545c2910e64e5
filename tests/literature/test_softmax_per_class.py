"""The registered likelihood: one α for each class and vector, probabilities of the softmax."""

from __future__ import annotations

import numpy as np
from scipy.special import softmax

from partirvm import RVMClassifier
from partirvm.literature.softmax_per_class import register


def test_each_class_has_its_own_vectors():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(240, 2))
    y = (X[:, 0] > 0.3).astype(int) + (X[:, 1] > 0.2)
    model = RVMClassifier(multi_class=register(), gamma=0.5, random_state=0).fit(X[:160], y[:160])
    assert model.alpha_.shape == model.weights_.shape
    switched_off = np.isinf(model.alpha_)
    assert (model.weights_[switched_off] == 0).all()
    assert min(switched_off.shape) == 3
    assert switched_off.any(), "classes differ in their vectors"
    assert np.mean(model.predict(X[160:]) == y[160:]) > 0.85
    f = model.decision_function(X[160:])
    np.testing.assert_allclose(model.predict_proba(X[160:]), softmax(f, axis=1), rtol=1e-9)
