"""Effects of groups on classes: against optima found by a general optimiser, and by hand."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.random import default_rng
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize
from scipy.special import expit, log_softmax

from partirvm.core.class_groups import (
    EffectsOfRows,
    LeftOutLogits,
    class_groups,
    fitted_class_effects,
)


def rows_of(seed, n_outputs, n=60, n_groups=5, scale=1.0, sd=1.5):
    """Rows with weights and with effects of groups on classes that follow the logits · scale."""
    rng = default_rng(seed)
    groups = rng.integers(0, n_groups, n) * 7 - 9
    logits = rng.normal(size=(n, n_outputs))
    effects = sd * rng.normal(size=(500, n_outputs))[groups + 10]
    f = scale * logits + effects
    f = np.column_stack([np.zeros(n), f]) if n_outputs == 1 else f
    codes = np.argmax(f + rng.gumbel(size=f.shape), axis=1).astype(float)
    return LeftOutLogits(logits, codes, rng.uniform(0.5, 2.0, n), groups, np.zeros((n, 1)))


def log_probability(f, codes):
    """Row by row, from the definition of both links."""
    f = np.column_stack([np.zeros(len(f)), f]) if f.shape[1] == 1 else f
    return log_softmax(f, axis=1)[np.arange(len(f)), codes.astype(int)]


@pytest.mark.parametrize("n_outputs", [1, 3])
@pytest.mark.parametrize(("variance", "slope"), [(0.3, 1.0), (4.0, 1.6), (100.0, 0.7)])
def test_effects_maximise_the_penalised_likelihood(n_outputs, variance, slope):
    """The derivative at the effects is 0, and a general optimiser does not find better ones."""
    rows = rows_of(0, n_outputs)
    ordered = EffectsOfRows.of(rows)
    effects = ordered.effects(variance, slope, ordered.no_effects())
    assert_array_equal(effects.codes, np.unique(rows.groups))
    for code, offsets, spread in zip(
        effects.codes, effects.offsets, effects.variances, strict=True
    ):
        group = rows.groups == code

        def loss(c, group=group):
            log_p = log_probability(slope * rows.logits[group] + c, rows.codes[group])
            return -rows.weights[group] @ log_p + c @ c / (2 * variance)

        best = minimize(loss, offsets + 0.1, method="BFGS", options={"gtol": 1e-9})
        assert_allclose(offsets, best.x, atol=1e-5)
        step = 1e-5
        for k in range(n_outputs):
            unit = step * np.eye(n_outputs)[k]
            assert abs(loss(offsets + unit) - loss(offsets - unit)) / (2 * step) < 1e-7
        f = slope * rows.logits[group] + offsets
        if n_outputs == 1:
            f = np.column_stack([np.zeros(len(f)), f])
        p = np.exp(log_softmax(f, axis=1))
        curvature = np.diag(rows.weights[group] @ p) - (p.T * rows.weights[group]) @ p
        curvature = curvature[-n_outputs:, -n_outputs:] + np.eye(n_outputs) / variance
        assert_allclose(spread, np.mean(np.diag(np.linalg.inv(curvature))), rtol=1e-8)


def test_the_likelihood_of_effects_is_that_of_laplace():
    """For two classes, from the definition; for many rows in a group, equal to the integral."""
    rows = rows_of(1, 1, n=400, n_groups=2)
    ordered = EffectsOfRows.of(rows)
    effects = ordered.effects(2.0, 1.3, ordered.no_effects())
    c = np.linspace(-8, 8, 4001)
    total = 0.0
    for code in effects.codes:
        group = rows.groups == code
        f = 1.3 * rows.logits[group] + c
        sign = np.where(rows.codes[group, None] > 0, 1.0, -1.0)
        logs = -(rows.weights[group, None] * np.logaddexp(0, -sign * f)).sum(axis=0)
        logs -= c**2 / 4.0 + 0.5 * np.log(2 * np.pi * 2.0)
        total += logs.max() + np.log(np.trapezoid(np.exp(logs - logs.max()), c))
    assert_allclose(effects.log_likelihood, total, atol=0.05)


@pytest.mark.parametrize("n_outputs", [1, 3])
def test_slope_and_variance_are_estimated(n_outputs):
    """60 groups of 20 rows with effects of sd 1.5, whose logits are twice those of the fit."""
    rows = rows_of(2, n_outputs, n=1200, n_groups=60, scale=2.0)
    effects = fitted_class_effects(rows)
    assert effects.slope == pytest.approx(2.0, rel=0.25)
    assert effects.prior_variance == pytest.approx(1.5**2, rel=0.5)


@pytest.mark.parametrize("n_outputs", [1, 3])
def test_rows_without_effects_have_none(n_outputs):
    """Weights that differ would look like effects: a row of weight 2 is two equal rows."""
    rows = rows_of(3, n_outputs, n=600, n_groups=60, sd=0.0)
    assert fitted_class_effects(replace(rows, weights=np.ones(600))) is None


def test_new_groups_are_as_uncertain_as_left_out_ones():
    """Logits that are twice too large are halved: √(1 + πτ²/8) = 2 for τ² = 24/π. Logits that are
    right, or too small, are kept."""
    rng = default_rng(0)
    logits = 2.0 * rng.normal(size=(20_000, 1))
    codes = (rng.uniform(size=20_000) < expit(logits[:, 0])).astype(float)
    nothing = np.zeros((20_000, 1))
    groups = np.arange(20_000)
    stated = LeftOutLogits(2.0 * logits, codes, np.ones(20_000), groups, nothing)
    shares = stated.log_shares()
    assert_allclose(shares, np.log(np.mean(codes) / np.mean(1 - codes)), atol=1e-3)
    assert stated.variance_between_groups(shares) == pytest.approx(24 / np.pi, rel=0.15)
    small = LeftOutLogits(0.5 * logits, codes, np.ones(20_000), groups, nothing)
    assert small.variance_between_groups(shares) == 0.0


def test_groups_without_left_out_rows_have_the_prior():
    rows = rows_of(4, 1, n=900, n_groups=30)
    effects = fitted_class_effects(rows)
    known = np.append(np.unique(rows.groups), 5000)
    groups = class_groups(known, rows, effects)
    offsets, variances = groups.effects_of(np.array([known[3], 5000, 7777]))
    assert_array_equal(offsets[0], effects.offsets[3])
    assert_array_equal(offsets[1:], 0.0)
    assert_array_equal(
        variances[:, 0], [effects.variances[3], effects.prior_variance, groups.variance]
    )
    assert groups.has(np.array([5000, 7777])).tolist() == [True, False]
