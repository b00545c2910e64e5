"""The share of a second predictor: closed forms, and what is a clear gain."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.random import default_rng
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from scipy.stats import norm

from partirvm.core.stacking import (
    MOST_SHARE,
    SHARES,
    LeftOutClassLogits,
    LeftOutNumbers,
    Mixture,
    Share,
)

M = 400


def numbers(T=1, seed=0, *, varies=False):
    """Return left-out rows of a fit, and the predictions of a second predictor with independent
    errors of twice the variance."""
    rng = default_rng(seed)
    targets = rng.normal(size=(M, T))
    errors = rng.normal(size=(M, T))
    predictions = targets - np.sqrt(2) * rng.normal(size=(M, T))
    rows = LeftOutNumbers(
        np.arange(M), targets, errors, np.ones((M, T)), rng.uniform(0.5, 2.0, M), varies=varies
    )
    return rows, predictions


@pytest.mark.parametrize("T", [1, 2])
def test_the_share_has_the_lowest_weighted_squared_error(T):
    rows, predictions = numbers(T)

    def loss(share):
        errors = (1 - share) * rows.errors + share * (rows.targets - predictions)
        return float((rows.weights[:, None] * errors**2).sum())

    best = minimize_scalar(loss, bounds=(0, 1), method="bounded", options={"xatol": 1e-10}).x
    mixture = rows.mixture(predictions)
    assert mixture.share.constant == pytest.approx(best, abs=1e-6)
    assert mixture.gain == pytest.approx(1 - loss(best) / loss(0.0), abs=1e-9)


def test_independent_errors_share_by_their_precisions():
    """With variances 1 and 2, the best share of the second is 1/3, and the variance 2/3."""
    rng = default_rng(1)
    m = 200_000
    targets = np.zeros((m, 1))
    rows = LeftOutNumbers(
        np.arange(m), targets, rng.normal(size=(m, 1)), np.ones((m, 1)), np.ones(m)
    )
    mixture = rows.mixture(np.sqrt(2) * rng.normal(size=(m, 1)))
    assert mixture.share.constant == pytest.approx(1 / 3, abs=0.01)
    assert mixture.gain == pytest.approx(1 / 3, abs=0.01)
    assert mixture.pays


@pytest.mark.parametrize(("factor", "share"), [(0.0, MOST_SHARE), (3.0, 0.0)])
def test_a_perfect_second_predictor_has_the_largest_share_and_a_worse_one_none(factor, share):
    rows, _ = numbers()
    mixture = rows.mixture(rows.targets - factor * rows.errors)
    assert mixture.share.constant == share
    assert mixture.pays == (share > 0)


def test_the_variance_has_the_highest_log_density():
    rows, predictions = numbers()
    mixed = rows.mixed(predictions, Share(0.4, np.zeros(0)))
    (spread,) = mixed.spreads()

    def loss(factor):
        return -norm.logpdf(mixed.errors, scale=np.sqrt(factor) * mixed.deviations).mean()

    assert loss(spread) < min(loss(0.99 * spread), loss(1.01 * spread))
    assert_allclose(mixed.deviations, np.sqrt(0.6))
    scaled = mixed.scaled(np.array([spread]))
    assert np.mean((scaled.errors / scaled.deviations) ** 2) == pytest.approx(1.0)


def test_a_varying_share_keeps_certain_predictions():
    """Rows whose standard deviation is τ have the share ½."""
    rng = default_rng(2)
    deviations = np.where(np.arange(M) % 2 == 0, 0.01, 1.0)[:, None]
    targets = rng.normal(size=(M, 1))
    rows = LeftOutNumbers(
        np.arange(M),
        targets,
        deviations * rng.normal(size=(M, 1)),
        deviations,
        np.ones(M),
        varies=True,
    )
    predictions = targets + 0.3 * rng.normal(size=(M, 1))
    mixture = rows.mixture(predictions)
    shares = mixture.share.at(deviations)
    assert shares[1] > 0.8
    assert shares[0] < 0.1
    constant = replace(rows, varies=False).mixture(predictions)
    assert mixture.nats > constant.nats
    assert Share(0.0, np.array([0.5])).at(np.array([0.5])) == 0.5


def test_classes_have_the_share_with_the_lowest_log_loss():
    rng = default_rng(3)
    codes = rng.integers(0, 3, M)
    truth = 2.0 * (codes[:, None] == np.arange(3))
    logits, predictions = (truth + rng.normal(size=(M, 3)) for _ in range(2))
    rows = LeftOutClassLogits(np.arange(M), codes, logits, np.ones(M), "multinomial")

    def loss(share):
        logs = log_softmax((1 - share) * logits + share * predictions, axis=1)
        return -logs[np.arange(M), codes].mean()

    mixture = rows.mixture(predictions)
    assert mixture.share.constant == SHARES[np.argmin([loss(share) for share in SHARES])]
    assert mixture.gain == pytest.approx(1 - loss(mixture.share.constant) / loss(0.0))
    mixed = rows.mixed(predictions, mixture.share)
    assert_allclose(mixed.probabilities().sum(axis=1), 1.0)


@pytest.mark.parametrize(
    ("gain", "error", "nats", "pays", "may_pay"),
    [
        (0.05, 0.02, 0.0, True, True),
        (0.05, 0.04, 0.0, False, True),  # less than 1.5 standard errors
        (0.0097, 0.001, 0.0, False, True),  # less than a hundredth
        (0.05, 0.02, -0.02, True, True),  # a fortieth of the error for a fiftieth of a nat
        (0.05, 0.02, -0.03, False, True),
        (0.005, 0.002, 0.0, False, False),
    ],
)
def test_a_share_must_be_a_clear_gain(gain, error, nats, pays, may_pay):
    """Two values have the mean ``gain`` and the standard error ``error``."""
    gains = gain + error * np.sqrt(2) * np.array([-1.0, 1.0])
    mixture = Mixture(Share(0.5, np.zeros(0)), 0.5, 1.0, gains, nats, None)
    assert (mixture.pays, mixture.may_pay) == (pays, may_pay)


def test_rows_in_groups_have_larger_standard_errors():
    gains = np.repeat([0.0, 0.2], 50)
    alone = Mixture(Share(0.5, np.zeros(0)), 0.5, 1.0, gains, 0.0, None)
    grouped = replace(alone, groups=np.repeat([0, 1], 50))
    assert alone.pays
    assert not grouped.pays
    assert_array_equal(alone.gains, grouped.gains)
