"""Targets and inputs of other scales; weights that double precision cannot represent; overflow."""

import math
from itertools import product

import dask.array as da
import numpy as np
import pytest
from by_default import some
from numpy.random import default_rng
from numpy.testing import assert_allclose, assert_array_equal
from regressions import plane

from partirvm import RVMClassifier, RVMRegressor
from partirvm.errors import DataError

OPTIONS = {"gamma": 0.3, "random_state": 0}
POWERS = [-190, 190]
"""Binary exponents of scales of about 1e±57, near the limits of accepted values."""

LARGE = ("polynomial", "matern32")
"""Kernels that overflow for a row far away."""


@pytest.mark.parametrize("factor", some([1e-6, 3.0, 7.0, 1e6], {3.0}))
def test_scaling_targets_preserves_vectors(factor):
    """The evidence of N rows falls by N log c nats."""
    rng = default_rng(11)
    X = rng.uniform(-3, 3, (90, 1))
    y = np.sinc(X[:, 0]) + 0.02 * rng.normal(size=90)
    here, there = (RVMRegressor(**OPTIONS, strategy="basic").fit(X, c * y) for c in (1.0, factor))
    assert_array_equal(there.relevance_vectors_, here.relevance_vectors_)
    assert_allclose(there.log_evidence_, here.log_evidence_ - 90 * np.log(factor), rtol=1e-9)


def answers(model, X):
    """Return predictions, deviations, intervals, samples and intercept, all in the target's
    unit."""
    predictions = [*model.predict(X, return_std=True), *model.predict_interval(X)]
    return [*predictions, model.sample_y(X, 2, noise=True), model.intercept_]


@pytest.mark.parametrize(
    ("strategy", "exponent"),
    some(
        product(["basic", "working-set", "split-merge"], POWERS),
        [("basic", 190), ("working-set", -190)],
    ),
)
def test_scaling_targets_by_a_power_of_two_preserves_bits(exponent, strategy):
    """Predictions, intervals and samples are multiplied by exactly that power."""
    X, y = plane(100)
    options = {
        **OPTIONS,
        "reference": "none",
        "strategy": strategy,
        **({} if strategy == "basic" else {"partition_size": 30}),
    }
    held_out = X[:40], y[:40]
    here = RVMRegressor(**options).fit(X[40:], y[40:], X_val=held_out[0], y_val=held_out[1])
    there = RVMRegressor(**options).fit(
        X[40:], np.ldexp(y[40:], exponent), X_val=X[:40], y_val=np.ldexp(y[:40], exponent)
    )
    assert_array_equal(there.weights_, here.weights_)
    assert_array_equal(there.alpha_, here.alpha_)
    assert there.n_relevance_vectors_ > 1
    for scaled, expected in zip(answers(there, X), answers(here, X), strict=True):
        assert_array_equal(scaled, np.ldexp(expected, exponent))
    streamed = there.predict(da.from_array(X), return_std=True)
    assert_array_equal(streamed, there.predict(X, return_std=True))
    rows = 60 * exponent * math.log(2)
    assert there.log_evidence_ == pytest.approx(here.log_evidence_ - rows, rel=1e-12)
    last = there.history_[-1]
    before = here.history_[-1]
    for name in ("train_rmse", "held_out_rmse"):
        assert last[name] == np.ldexp(before[name], exponent)
    assert last["held_out_nlpd"] == pytest.approx(
        before["held_out_nlpd"] + exponent * math.log(2), rel=1e-12
    )
    assert there.noise_variance_ == np.ldexp(here.noise_variance_, 2 * exponent)


@pytest.mark.usefixtures("quick_learning")
@pytest.mark.parametrize(
    ("exponent", "estimator", "gamma"),
    some(
        product(POWERS, [RVMRegressor, RVMClassifier], [0.3, "learn-per-feature"]),
        {(190, RVMRegressor, "learn-per-feature"), (-190, RVMClassifier, 0.3)},
    ),
)
def test_scaling_inputs_by_a_power_of_two_preserves_bits(exponent, estimator, gamma):
    """This holds for regression and classification, also with a learned width for each feature."""
    X, y = plane(40)
    target = y > np.median(y) if estimator is RVMClassifier else y
    here = estimator(gamma=gamma, random_state=0).fit(X, target)
    there = estimator(gamma=gamma, random_state=0).fit(np.ldexp(X, exponent), target)
    assert_array_equal(there.predict(np.ldexp(X, exponent)), here.predict(X))
    assert_array_equal(there.feature_relevance_, here.feature_relevance_)
    assert there.log_evidence_ == here.log_evidence_


@pytest.mark.parametrize(
    ("estimator", "weight", "few"),
    some(
        product([RVMRegressor, RVMClassifier], [1e-300, 1e-160, 1e160, 1e300], [True, False]),
        {
            (RVMRegressor, 1e-300, False),
            (RVMRegressor, 1e160, True),
            (RVMRegressor, 1e-160, True),
            (RVMClassifier, 1e300, True),
            (RVMClassifier, 1e-160, False),
        },
    ),
)
def test_unrepresentable_weights_are_reported(estimator, weight, few):
    """The error gives advice; a few tiny weights among others mark rows that hardly count."""
    X, y = plane(60)
    target = y > np.median(y) if estimator is RVMClassifier else y
    weights = np.where(np.arange(60) < (5 if few else 60), weight, 1.0)
    if few and weight < 1:
        assert np.isfinite(estimator(**OPTIONS).fit(X, target, sample_weight=weights).log_evidence_)
        return
    with pytest.raises(DataError, match=r"the mean weight is .*e[+-]\d+.*power of ten"):
        estimator(**OPTIONS).fit(X, target, sample_weight=weights)


@pytest.mark.filterwarnings("ignore::partirvm.errors.PartirvmWarning")
@pytest.mark.parametrize(
    ("estimator", "kernel"),
    some(
        product([RVMRegressor, RVMClassifier], ["gaussian", "laplacian", "linear", *LARGE]),
        {
            (RVMRegressor, "gaussian"),
            (RVMRegressor, "matern32"),
            (RVMClassifier, "linear"),
            (RVMClassifier, "polynomial"),
        },
    ),
)
def test_overflowing_predictions_are_reported(estimator, kernel):
    """The error gives row, column and value; kernels that vanish far away predict finite values."""
    X, y = plane(60)
    model = estimator(
        kernel=kernel, **({} if kernel == "linear" else {"gamma": 0.3}), random_state=0
    )
    model.fit(X, y > np.median(y) if estimator is RVMClassifier else y)
    far = X.copy()
    far[7, 1] = 1e300
    predict = model.predict if estimator is RVMRegressor else model.decision_function
    message = (
        r"of 60 rows are not finite, the first is row 7 \(counted from 0\) with 'x1' = 1e\+300"
    )
    for rows in (far, da.from_array(far)):
        if kernel in LARGE:
            with pytest.raises(DataError, match=message):
                predict(rows)
        else:
            assert np.isfinite(predict(rows)).all()
