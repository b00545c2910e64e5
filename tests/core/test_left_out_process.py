"""Errors of a process without a row and without a group, against predictions by the other rows."""

import numpy as np
import pytest
from numpy.random import default_rng
from numpy.testing import assert_allclose

from partirvm.core.left_out_process import LEADING, LOG_RATIOS, process_errors

GROUPS = np.repeat(np.arange(8), 5)


def rows(effect, seed=0):
    """Targets of 8 groups at places on a line, with a smooth trend, and a Gaussian kernel."""
    rng = default_rng(seed)
    place = np.linspace(0, 1, 8)[GROUPS] + 0.02 * rng.standard_normal(40)
    target = np.sin(4 * place) + effect * rng.standard_normal(8)[GROUPS]
    kernel = np.exp(-20 * (place[:, None] - place) ** 2)
    return kernel, target + 0.1 * rng.standard_normal(40)


def without(covariance, target, left_out):
    """The errors at rows that are predicted from the others."""
    others = ~left_out
    weights = np.linalg.solve(covariance[np.ix_(others, others)], target[others])
    return target[left_out] - covariance[np.ix_(left_out, others)] @ weights


NONE = np.zeros((40, 40))
"""Covariance of effects that are 0."""

SHARED = 30.0 * (GROUPS[:, None] == GROUPS)
"""Covariance of effects of groups, in units of the noise variance."""


@pytest.mark.parametrize(
    ("weighted", "effects"),
    [(False, NONE), (True, NONE), (True, SHARED)],
    ids=["plain", "weights", "effects"],
)
def test_errors_are_those_of_predictions_by_the_other_rows(weighted, effects):
    """The ratio of the variances is the one of the highest evidence on a grid."""
    kernel, target = rows(0.3)
    weights = default_rng(1).uniform(0.5, 2.0, 40) if weighted else np.ones(40)
    leading = np.ones((40, 1))
    errors = process_errors(kernel, leading, target, weights, GROUPS, effects)
    best = (-np.inf, None)
    noise = np.diag(1 / weights) + effects
    for log_ratio in np.arange(*LOG_RATIOS, 0.05):
        C = kernel + LEADING + np.exp(log_ratio) * noise
        square = target @ np.linalg.solve(C, target)
        evidence = -0.5 * (40 * np.log(square) + np.linalg.slogdet(C)[1])
        best = max(best, (evidence, log_ratio))
    C = kernel + LEADING + np.exp(best[1]) * noise
    for row in range(40):
        alone = np.arange(40) == row
        assert_allclose(errors.of_rows[row], without(C, target, alone)[0], rtol=0.02, atol=1e-4)
    for group in range(8):
        expected = without(C, target, group == GROUPS)
        assert_allclose(errors.of_groups[group == GROUPS], expected, rtol=0.02, atol=2e-3)


def test_effects_of_groups_are_the_excess():
    """Between places, the trend is known to about .1, and effects have the variance 1."""
    kernel, target = rows(1.0, seed=2)
    few = rows(0.0, seed=2)
    leading = np.ones((40, 1))
    assert process_errors(kernel, leading, target, np.ones(40), GROUPS, NONE).excess > 0.5
    assert process_errors(*few[:1], leading, few[1], np.ones(40), GROUPS, NONE).excess < 0.05


def test_a_kernel_of_zeros_has_no_errors():
    target = np.arange(40.0)
    assert (
        process_errors(np.zeros((40, 40)), np.ones((40, 1)), target, target + 1, GROUPS, NONE)
        is None
    )
