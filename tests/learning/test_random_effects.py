"""Effects of groups in the kernel search: the covariance, the variances found, and when they mislead."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.random import default_rng
from numpy.testing import assert_allclose
from sampling import problem_of, sample_of
from scipy.stats import multivariate_normal

from partirvm.kernels import Gaussian
from partirvm.learning import ProcessFit, ProcessRows
from partirvm.learning.exact_process import LEADING
from partirvm.learning.random_effects import GroupVariances, effects_mislead, group_variances

GROUPS = np.repeat(np.arange(40), 5)


def problem_with_groups(X, y):
    """A regression whose kernel is learned beside effects of groups."""
    return replace(problem_of(X, y, Gaussian((0.5, 0.5))), group_effects=True)


def drawn(intercept, slope, seed=0):
    """Rows of 40 groups: a smooth function of the second feature, and effects with these standard
    deviations of the intercepts and of the slopes in the first feature."""
    rng = default_rng(seed)
    X = rng.normal(size=(200, 2))
    effects = (
        intercept * rng.normal(size=40)[GROUPS] + slope * rng.normal(size=40)[GROUPS] * X[:, 0]
    )
    y = np.sin(X[:, 1]) + effects + 0.1 * rng.normal(size=200)
    return X, y - y.mean()


def rows_of(sample, problem, numbers):
    return ProcessRows.of(sample, problem, np.asarray(numbers))


def test_the_covariance_has_intercepts_and_slopes_of_groups():
    """τ²[same group] + υ²[same group]·x·x'/2, beside kernel, bias and noise; the slopes of the
    evidence are its differences."""
    X, y = drawn(1.0, 0.5)
    X, y, groups = X[:20], y[:20], GROUPS[:20]
    problem = problem_with_groups(X, y)
    fit = ProcessFit(Gaussian((0.4, 0.2)), 0.1, -1.0, effects=(-0.5, 0.3))
    same = groups[:, None] == groups
    square = ((X[:, None] - X) ** 2 * [0.4, 0.2]).sum(axis=2)
    bias = LEADING * problem.target_variance
    K = np.exp(0.1) * np.exp(-square) + np.exp(-1.0) * np.eye(20) + bias
    K += np.exp(-0.5) * same + np.exp(0.3) * same * (X @ X.T) / 2
    with sample_of(X, y, groups=groups) as sample:
        rows = rows_of(sample, problem, range(20))
        value, slopes = rows.evaluate(fit)
        assert value == pytest.approx(multivariate_normal(np.zeros(20), K).logpdf(y), rel=1e-10)
        step = 1e-5
        for k in range(2):
            ends = []
            for sign in (-1, 1):
                effects = np.array(fit.effects)
                effects[k] += sign * step
                moved = replace(fit, effects=tuple(effects))
                ends.append(rows.evaluate(moved)[0])
            assert slopes[2 + k] == pytest.approx((ends[1] - ends[0]) / (2 * step), rel=1e-5)


@pytest.mark.parametrize("is_known", [True, False])
def test_rows_of_known_groups_are_predicted_with_their_effects(is_known):
    """The prediction of the last row is its conditional distribution given the other rows."""
    X, y = drawn(1.0, 0.5)
    X, y, groups = X[:21], y[:21], GROUPS[:21].copy()
    groups[-1] = 3 if is_known else 99
    problem = problem_with_groups(X, y)
    fit = ProcessFit(Gaussian((0.4, 0.2)), 0.1, -1.0, effects=(-0.5, 0.3))
    same = groups[:, None] == groups
    square = ((X[:, None] - X) ** 2 * [0.4, 0.2]).sum(axis=2)
    K = np.exp(0.1) * np.exp(-square) + np.exp(-1.0) * np.eye(21)
    K += LEADING * problem.target_variance
    K += np.exp(-0.5) * same + np.exp(0.3) * same * (X @ X.T) / 2
    weights = np.linalg.solve(K[:-1, :-1], K[:-1, -1])
    with sample_of(X, y, groups=groups) as sample:
        rows, new = rows_of(sample, problem, range(20)), rows_of(sample, problem, [20])
        errors, densities = rows.predicted(fit, new)
    error = y[-1] - weights @ y[:-1]
    variance = K[-1, -1] - weights @ K[:-1, -1]
    assert_allclose(errors[0, 0], error, rtol=1e-8)
    expected = -0.5 * (np.log(2 * np.pi * variance) + error**2 / variance)
    assert_allclose(densities[0], expected, rtol=1e-8)


@pytest.mark.parametrize(
    ("intercept", "slope"),
    [(0.0, 0.0), (0.8, 0.0), (0.6, 0.8)],
    ids=["none", "intercepts", "slopes"],
)
def test_variances_of_effects_are_found(intercept, slope):
    """From 40 groups, a standard deviation is known to 1/√80 = 11 %, so that a variance is within
    three of these; the one slope has the variance υ²/2 of the two that the model has."""
    X, y = drawn(intercept, slope)
    problem = problem_with_groups(X, y)
    with sample_of(X, y, groups=GROUPS) as sample:
        variances = group_variances(sample, problem, 0)
    if not intercept:
        assert variances == GroupVariances()
        return
    assert variances.intercept == pytest.approx(intercept**2, rel=0.7)
    if slope:
        assert variances.slopes == pytest.approx(slope**2, rel=0.7)
    else:
        assert variances.slopes < 0.05


@pytest.mark.parametrize("differs", [True, False], ids=["between", "equal"])
def test_effects_mislead_where_a_feature_acts_differently_between_groups(differs):
    """Within groups, y falls with the first feature; between them, it rises with the group's mean of
    this feature, which a random intercept explains as an effect (Mundlak 1978)."""
    rng = default_rng(0)
    mean = 2.0 * rng.normal(size=40)[GROUPS]
    X = np.column_stack([mean + 0.5 * rng.normal(size=200), rng.normal(size=200)])
    between = 2.0 * mean if differs else -mean + rng.normal(size=40)[GROUPS]
    y = between - (X[:, 0] - mean) + 0.05 * rng.normal(size=200)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    y = (y - y.mean()) / y.std()
    with sample_of(X, y, groups=GROUPS) as sample:
        assert effects_mislead(sample, problem_with_groups(X, y), 0) == differs
