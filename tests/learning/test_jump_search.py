"""The search for jumps: gains by dense evidence, thresholds by trying all of them, and fits with
and without jumps."""

import numpy as np
import pytest
from by_default import some
from numpy.random import default_rng
from numpy.testing import assert_allclose
from sampling import problem_of, sample_of

from partirvm.kernels.jumps import Jumps
from partirvm.learning import ProcessFit, ProcessRows, process_search
from partirvm.learning.jump_search import (
    FIRST_NATS,
    JumpRows,
    are_clearly_lower,
    best_threshold,
    first_gain,
    plain_numbers,
    with_jumps,
)
from partirvm.learning.search import SearchSettings, learning_options

PLACES = {0: (-0.5, 0.7), 2: (0.1,)}


def staircase(n, noise=0.1, seed=0):
    """Return three features, and a sum of three jumps and a smooth effect."""
    rng = default_rng(seed)
    X = rng.normal(size=(n, 3))
    y = np.sin(X[:, 1]) + noise * rng.normal(size=n)
    for j, edges in PLACES.items():
        for k, edge in enumerate(edges):
            y += (1.0 - 2.5 * k) * (X[:, j] > edge)
    return X, y - y.mean()


def dense(rows, fit):
    """Return the covariance (n, n) of a process."""
    kernel = np.exp(fit.signal) * fit.kernel.values(rows.X, rows.X)
    noise = np.diag(np.exp(fit.noise) * rows.inverse)
    return kernel + rows.columns @ rows.columns.T + noise


def log_evidence(covariance, t):
    """Return log N(t | 0, covariance)."""
    determinant = np.linalg.slogdet(covariance)[1]
    return -0.5 * (t @ np.linalg.solve(covariance, t) + determinant + len(t) * np.log(2 * np.pi))


def process_of(sample, problem, n):
    """Return the rows of a process, with their raw inputs, and a fit."""
    rows = ProcessRows.of(sample, problem, np.arange(n))
    return JumpRows.of(rows, np.arange(n), np.array([0, 2])), ProcessFit(
        problem.empty.kernel, 0.0, np.log(0.05)
    )


def test_a_gain_is_the_rise_of_the_evidence_at_the_best_variance():
    """Also with jumps that were added before it."""
    X, y = staircase(40)
    with sample_of(X, y) as sample:
        rows, fit = process_of(sample, problem_of(X, y), 40)
        gains = rows.gains(fit, 100)
        covariance = dense(rows.rows, fit)
        t = rows.rows.t[:, 0]
        for _ in range(2):
            nats = gains.nats
            place = int(np.argmax(nats))
            c = gains.columns.values[:, place]
            tried = [
                log_evidence(covariance + variance * np.outer(c, c), t)
                for variance in np.exp(np.linspace(-6, 6, 400))
            ]
            rise = max(tried) - log_evidence(covariance, t)
            assert nats[place] == pytest.approx(rise, rel=1e-3)
            variance = np.exp(np.linspace(-6, 6, 400))[int(np.argmax(tried))]
            covariance = covariance + variance * np.outer(c, c)
            added = gains.best(1)
            assert added.features == (int(gains.columns.features[place]),)


def test_left_out_errors_and_weights_are_those_of_dense_formulas():
    X, y = staircase(30)
    jumps = Jumps((0, 2), (-0.5, 0.1))
    with sample_of(X, y) as sample:
        rows, fit = process_of(sample, with_jumps(problem_of(X, y), jumps), 30)
        covariance = dense(rows.rows, fit)
        t = rows.rows.t[:, 0]
        errors = []
        for i in range(30):
            others = np.arange(30) != i
            weights = np.linalg.solve(covariance[np.ix_(others, others)], t[others])
            errors.append(t[i] - covariance[i, others] @ weights)
        assert_allclose(rows.left_out(fit), errors, rtol=1e-6, atol=1e-8)
        columns = rows.rows.columns[:, 1:]
        scales = columns.max(axis=0)
        assert_allclose(columns, scales * jumps(X))
        means = scales**2 * (jumps(X).T @ np.linalg.solve(covariance, t))
        assert_allclose(rows.weights(fit, 2), means, rtol=1e-6)


@pytest.mark.parametrize("seed", some(range(10), {0, 3}))
def test_the_best_threshold_is_the_best_of_all(seed):
    """Rounded values repeat, so that no threshold may part equal ones."""
    rng = default_rng(seed)
    x = np.round(rng.normal(size=60), 1)
    threshold = float(rng.choice(np.unique(x)[3:-3]) + 0.05)
    weight = float(rng.normal())
    errors = weight * ((x > rng.normal()) * 1.0 - (x > threshold)) + 0.3 * rng.normal(size=60)
    edges = np.unique(x)
    tried = np.append(0.5 * (edges[1:] + edges[:-1]), threshold)
    losses = [
        ((errors + weight * ((x > threshold) * 1.0 - (x > edge))) ** 2).sum() for edge in tried
    ]
    new = best_threshold(x, errors, weight, threshold)
    loss = ((errors + weight * ((x > threshold) * 1.0 - (x > new))) ** 2).sum()
    assert loss == pytest.approx(min(losses))
    assert best_threshold(x[:0], errors[:0], weight, threshold) == threshold


@pytest.mark.usefixtures("default_fits")
def test_jumps_are_found_where_they_are():
    X, y = staircase(420)
    lines = []
    settings = SearchSettings(
        learning_options(len(X), metric="auto"), seed=0, columns=1000, family=True, judged=True
    )
    with sample_of(X, y, lines=lines) as sample:
        learned = process_search.learn_regression(sample, problem_of(X, y), settings)
    facts = lines[-1].choice["jumps"]
    assert facts["count"] >= 3
    assert facts["error"] < 0.8 * facts["plain_error"]
    jumps = learned.empty.functions.jumps
    for j, edges in PLACES.items():
        for edge in edges:
            at = [t for f, t in zip(jumps.features, jumps.thresholds, strict=True) if f == j]
            assert min(abs(t - edge) for t in at) < 0.03


@pytest.mark.parametrize("steep", some([1.0, 2.0, 3.0], {2.0}))
def test_smooth_functions_are_not_searched_for_jumps(steep):
    rng = default_rng(1)
    X = rng.normal(size=(300, 3))
    y = np.tanh(steep * X[:, 0]) + np.sin(X[:, 2]) + 0.1 * rng.normal(size=300)
    y -= y.mean()
    problem = problem_of(X, y)
    assert plain_numbers(problem).tolist() == [0, 1, 2]
    with sample_of(X, y) as sample:
        fit = process_search.first_widths(sample, problem, np.arange(300), 200)
        rows = ProcessRows.of(sample, problem, np.arange(200))
        assert first_gain(rows, np.arange(200), fit, np.array([0, 1, 2])) < FIRST_NATS


def test_new_rows_have_the_prior_of_the_known_ones():
    """The prior of a column's weight follows from its mean square in the known rows, whatever it is
    in new ones."""
    X, y = staircase(60)
    jumps = Jumps((0, 2), (-0.5, 0.1))
    with sample_of(X, y) as sample:
        problem = with_jumps(problem_of(X, y), jumps)
        known, fit = process_of(sample, problem, 40)
        numbers = np.flatnonzero((np.arange(60) >= 40) & (X[:, 0] > -0.5))
        new = ProcessRows.of(sample, problem, numbers)
        errors, _ = known.rows.predicted(fit, new)
        columns = known.rows.scales * np.column_stack([np.ones(len(numbers)), jumps(X[numbers])])
        cross = fit.kernel.values(new.X, known.rows.X) + columns @ known.rows.columns.T
        means = cross @ np.linalg.solve(dense(known.rows, fit), known.rows.t[:, 0])
        assert_allclose(errors[:, 0], y[numbers] - means, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(
    ("after", "before", "clear"),
    [
        ((0.1, 0.2, 0.1, 0.3), (0.4, 0.3, 0.4, 0.5), True),
        ((0.4, 0.3, 0.4, 0.5), (0.1, 0.2, 0.1, 0.3), False),
        ((0.1, 0.2, 0.1, 9.0), (0.4, 0.3, 0.4, 9.1), True),  # an outlier hides no gain
        ((0.1, 0.2, 0.1, 9.0), (0.4, 0.3, 0.4, 8.0), False),  # but must not grow
        ((0.1, 0.4, 0.1, 0.4), (0.4, 0.1, 0.4, 0.2), False),  # one up, one down
    ],
)
def test_left_out_errors_must_fall_clearly(after, before, clear):
    assert are_clearly_lower(np.array(after) ** 2, np.array(before) ** 2) == clear
