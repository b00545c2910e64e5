"""Effects of groups against dense normal distributions: Henderson's predictors, and refits without
each row."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.random import default_rng
from numpy.testing import assert_allclose

from partirvm.core.group_effects import EffectsLikelihood, fitted_effects
from partirvm.core.left_out import LeftOut

GROUPS = np.repeat([4, 7, 9, 12, 15], [1, 5, 8, 3, 7])


def left_out(effect=1.0, weighted=False, seed=0):
    """Errors e and weights u of rows in five groups, without any other uncertainty, as √u·e."""
    rng = default_rng(seed)
    n = len(GROUPS)
    u = rng.uniform(0.5, 2.0, n) if weighted else np.ones(n)
    effects = effect * rng.standard_normal(16)
    errors = effects[GROUPS] + 0.3 * rng.standard_normal(n) / np.sqrt(u)
    return LeftOut(
        errors=np.sqrt(u)[:, None] * np.column_stack([errors, errors]),
        variances=np.zeros((n, 2)),
        owner=np.full(n, -1),
        rows=np.arange(n),
        targets=np.column_stack([errors, u]),
        nearest=np.zeros(1),
    )


def predictor(errors, u, groups, effects, code):
    """Mean and variance of the effect of a group given errors e ~ N(0, τ²ZZᵀ + σ²/u)."""
    same = (groups[:, None] == groups).astype(float)
    covariance = effects.prior_variance * same + np.diag(effects.noise_variance / u)
    cross = effects.prior_variance * (groups == code)
    solved = np.linalg.solve(covariance, cross)
    return solved @ errors, effects.prior_variance - solved @ cross


@pytest.mark.parametrize("weighted", [False, True])
def test_effects_are_the_best_predictors(weighted):
    rows = left_out(weighted=weighted)
    errors, u = rows.targets.T
    effects = fitted_effects(rows, GROUPS).effects
    expected = [predictor(errors, u, GROUPS, effects, code) for code in effects.codes]
    assert_allclose(np.column_stack(effects.of_groups(effects.codes)), expected, rtol=1e-10)


@pytest.mark.parametrize("weighted", [False, True])
def test_errors_after_effects_are_those_of_refits_without_the_row(weighted):
    rows = left_out(weighted=weighted)
    errors, u = rows.targets.T
    fit = fitted_effects(rows, GROUPS)
    for row in range(len(GROUPS)):
        others = np.arange(len(GROUPS)) != row
        mean, variance = predictor(
            errors[others], u[others], GROUPS[others], fit.effects, GROUPS[row]
        )
        assert_allclose(fit.left_out.errors[row], np.sqrt(u[row]) * (errors[row] - mean))
        assert_allclose(fit.left_out.variances[row], u[row] * variance, rtol=1e-10)
        assert_allclose(fit.left_out.targets[row], [errors[row] - mean, u[row]])


def test_the_likelihood_is_that_of_a_normal_distribution():
    """Up to a constant, at the best σ² for each λ."""
    errors, _ = left_out().targets.T
    n = len(errors)
    same = (GROUPS[:, None] == GROUPS).astype(float)
    _, places = np.unique(GROUPS, return_inverse=True)
    sums = np.bincount(places).astype(float)
    likelihood = EffectsLikelihood(sums, np.bincount(places, errors), errors @ errors, n)
    losses = []
    for ratio in (0.01, 1.0, 30.0):
        shape = np.eye(n) + ratio * same
        variance = errors @ np.linalg.solve(shape, errors) / n
        dense = 0.5 * (n * np.log(variance) + np.linalg.slogdet(shape)[1])
        losses.append([likelihood.loss(np.log(ratio)), dense])
    fast, dense = np.transpose(losses)
    assert_allclose(fast - fast[0], dense - dense[0], rtol=1e-10)


@pytest.mark.parametrize("seed", range(3))
def test_rows_without_effects_have_none(seed):
    assert fitted_effects(left_out(effect=0.0, seed=seed), GROUPS) is None


def test_errors_of_zero_have_no_effects():
    rows = left_out()
    zero = replace(rows, errors=np.zeros_like(rows.errors))
    assert fitted_effects(zero, GROUPS) is None


def test_groups_without_rows_have_the_prior_variance():
    effects = fitted_effects(left_out(), GROUPS).effects
    means, variances = effects.of_groups(np.array([0, 9, 99]))
    assert list(means[[0, 2]]) == [0.0, 0.0]
    assert list(variances[[0, 2]]) == [effects.prior_variance] * 2
    assert 0 < variances[1] < effects.prior_variance
