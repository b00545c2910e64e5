"""Kernels that explain little: they are known by the evidence and by the density of other rows."""

from dataclasses import replace

import numpy as np
import pytest
from by_default import some
from numpy.random import default_rng
from sampling import problem_of, sample_of

from partirvm.learning import ProcessFit, ProcessRows, SearchSettings, learning_options, steep
from partirvm.learning.regression_search import RegressionSearch

KNOWN = 100

LUCK = 0.1
"""Rise of the evidence in nats per row that a search of many widths finds in noise."""


def linear(share, n, seed=0):
    """Return rows of six features, and targets of variance near 1, of which a linear effect
    explains this share."""
    rng = default_rng(seed)
    X = rng.normal(size=(n, 6))
    y = np.sqrt(share) * X[:, 0] + np.sqrt(1 - share) * rng.normal(size=n)
    return X, y - y.mean()


def fit_of(problem, share):
    """Return a process with wide kernels and the noise that this share leaves."""
    kernel = problem.empty.kernel.with_logs(np.log([0.02, *(1e-8,) * 5]))
    signal = np.log(share / 0.04) if share else -14.0
    return ProcessFit(kernel, float(signal), float(np.log(1 - share)))


@pytest.mark.parametrize(
    ("share", "little"),
    [(0.0, True), (0.02, True), (0.2, False), (0.5, False), (0.9, False)],
)
def test_a_share_of_the_variance_raises_the_density(share, little):
    """By −½ log(1 − share) nats per row."""
    assert (-0.5 * np.log(1 - share) < steep.LITTLE) == little
    X, y = linear(share, 1100)
    problem = problem_of(X, y)
    with sample_of(X, y) as sample:
        rows = ProcessRows.of(sample, problem, np.arange(KNOWN))
        new = ProcessRows.of(sample, problem, np.arange(KNOWN, 1100))
        assert steep.predicts_little(rows, new, fit_of(problem, share)) == little


@pytest.mark.parametrize("seed", some(range(5), {0}))
@pytest.mark.parametrize(
    ("n", "share", "noise"),
    [(400, 0.0, True), (400, 0.5, False), (250, 0.0, False)],
    ids=["noise", "effect", "too few other rows"],
)
def test_evidence_by_luck_is_noise(n, share, noise, seed):
    """Widths of noise may raise the evidence; other rows show that they predict nothing."""
    X, y = linear(share, n, seed)
    problem = problem_of(X, y)
    with sample_of(X, y) as sample:
        settings = SearchSettings(learning_options(n), 0, 200)
        run = RegressionSearch(sample, problem, settings, np.arange(n), KNOWN, {})
        rows = run.rows(np.arange(KNOWN))
        bare = rows.evaluate(steep.noise_alone(rows))
        fit = replace(fit_of(problem, share or 0.3), value=bare[0] + LUCK * KNOWN)
        assert not steep.explains_little(rows, fit)
        assert run.is_noise_beside(fit) == noise
