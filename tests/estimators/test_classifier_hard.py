"""Data that are hard to classify give finite probabilities and only expected warnings."""

import re
import warnings
from itertools import product

import numpy as np
import pytest
from by_default import some
from numpy.random import default_rng
from numpy.testing import assert_allclose
from sklearn.datasets import make_blobs

from partirvm import RVMClassifier, WorkingSet
from partirvm.core import Termination
from partirvm.errors import DataError, MemoryLimitError

STRATEGIES = ("basic", "split-merge", "incremental", "working-set")
MULTI_CLASS = ("multinomial", "pooled")
NO_VECTOR = "no relevance vector is left"
NARROW = "the kernel is probably too narrow"
FAR = ".*are far from every"


def fitted(X, y, *expected, weights=None, **options):
    """Return a classifier with finite numbers, whose fit gave only ``expected`` warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = RVMClassifier(**{"random_state": 0, "gamma": 0.5, **options}).fit(
            X, y, sample_weight=weights
        )
    strange = [
        str(warning.message)
        for warning in caught
        if not any(re.search(text, str(warning.message)) for text in expected)
    ]
    assert not strange
    for value in (model.relevance_vectors_, model.weights_, model.intercept_, model.log_evidence_):
        assert np.isfinite(value).all()
    assert not np.isnan(model.alpha_).any()
    return model


def probabilities(model, X):
    """Return probabilities, finite and with sum one; rows far from all vectors are allowed."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", FAR)
        p = model.predict_proba(X)
    assert np.isfinite(p).all()
    assert_allclose(p.sum(axis=1), 1)
    return p


def accuracy(model, X, y):
    """Return the fraction of rows whose class is the most probable one."""
    return np.mean(model.classes_[probabilities(model, X).argmax(axis=1)] == y)


def log_loss(model, X, y):
    """Return the mean of −log p of the true class."""
    p = probabilities(model, X)[np.arange(len(X)), np.searchsorted(model.classes_, y)]
    return -np.log(np.maximum(p, 1e-300)).mean()


@pytest.mark.parametrize(
    ("strategy", "likelihood"),
    some(
        list(product(STRATEGIES, [None, *MULTI_CLASS])),
        {
            ("basic", None),
            ("incremental", "pooled"),
        },
    ),
)
def test_separable_classes_are_classified_correctly_with_bounded_weights(strategy, likelihood):
    """Groups are twenty deviations apart; weights are no larger than needed to saturate the
    link."""
    places = [[0, 0], [20, 0], [0, 20]][: 2 if likelihood is None else 3]
    X, y = make_blobs(150, centers=places, random_state=0)
    options = {} if strategy == "basic" else {"partition_size": 50}
    if likelihood is not None:
        options["likelihood"] = likelihood
    model = fitted(X, y, strategy=strategy, **options)
    assert accuracy(model, X, y) == 1.0
    assert log_loss(model, X, y) < 0.1
    assert likelihood == "pooled" or np.abs(model.weights_).max() < 100
    assert model.termination_ in {Termination.CONVERGED, Termination.EXHAUSTED, Termination.EFFORT}
    assert model.history_[-1]["iterations"] < 150


@pytest.mark.parametrize(
    ("strategy", "K"),
    some(product(STRATEGIES, [2, 3]), {("basic", 3), ("working-set", 3)}),
)
def test_one_row_of_each_class_gives_finite_probabilities(strategy, K):
    """At a training row, no class is far more probable than the row's class."""
    X = np.array([[0.0, 0.0], [3.0, 1.0], [0.0, 3.0]])[:K]
    y = np.arange(K)
    options = {} if strategy == "basic" else {"partition_size": 2}
    for likelihood in MULTI_CLASS:
        model = fitted(X, y, NO_VECTOR, NARROW, strategy=strategy, likelihood=likelihood, **options)
        p = probabilities(model, X)
        assert (p[np.arange(K), y] >= p.max(axis=1) - 0.01).all()


@pytest.mark.parametrize("selection", some(["gain", "random"], {"gain"}))
def test_a_rare_class_is_found(selection):
    """It has 3 of 10,000 rows: they are candidates in the first round, and are predicted
    correctly."""
    rng = default_rng(6)
    X = np.vstack([rng.normal(size=(9997, 2)), [6, 6] + 0.2 * rng.normal(size=(3, 2))])
    y = np.r_[np.zeros(9997, int), np.ones(3, int)]
    options = {"partition_size": 40, "max_rounds": 2, "standardize": False, "gamma": 0.3}
    model = fitted(X, y, strategy=WorkingSet(selection=selection), **options)
    p = probabilities(model, X)[:, 1]
    assert (p[-3:] > 0.5).all()
    assert (p[:-3] < 0.5).all()


@pytest.mark.slow
def test_a_thousand_classes_need_memory_unless_pooled():
    """Posteriors of 1,000 classes with 201 columns need more than 1 GiB; pooled classes share one
    posterior."""
    K = 1000
    M = 201
    X = default_rng(0).normal(size=(K, 3)).repeat(2, axis=0)
    y = np.arange(K).repeat(2)
    options = {"memory_limit": "1GiB", "partition_size": M - 1, "max_rounds": 1}
    with pytest.raises(
        MemoryLimitError, match=r"needs [\d.]+ GiB per process .* the memory limit is 1 GiB"
    ) as refused:
        fitted(X, y, likelihood="multinomial", **options)
    needed = float(re.search(r"needs ([\d.]+) GiB", str(refused.value))[1])
    assert needed > K * M**2 * 8 / 2**30
    assert probabilities(
        fitted(X, y, likelihood="pooled", **options | {"partition_size": 8}), X[:5]
    ).shape == (5, K)
    with pytest.raises(DataError, match="the label 1000 in y is not among the classes"):
        RVMClassifier(gamma=0.5).fit(X, y, X_val=X[:2], y_val=np.array([0, K]))
