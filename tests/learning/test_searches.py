"""Kernel search by kind of target: every likelihood has one, and a new likelihood needs no change
in ``learning``."""

from dataclasses import replace

import numpy as np
import pytest
from sampling import arm, problem_of, sample_of

from partirvm.core import Termination
from partirvm.learning import SEARCHES, SearchSettings, learning_options
from partirvm.learning.level_variances import TABLES
from partirvm.learning.search import kernel_record
from partirvm.likelihoods import GAUSSIAN, LIKELIHOODS, GaussianLikelihood
from partirvm.spec import WorkingTargets


class LogTargets(WorkingTargets):
    """The standardised logarithms of positive targets."""

    def of_process(self, problem, t):
        logs = np.log(t)
        return (logs - logs.mean()) / logs.std()


class LogLikelihood(GaussianLikelihood):
    """A likelihood whose kernel is learned from logarithms, otherwise unchanged."""

    working = LogTargets()


def learned(X, y, likelihood):
    """Return the kernel that a likelihood's search learns from targets of variance one."""
    standardised = (y - y.mean()) / y.std()
    problem = replace(problem_of(X, standardised), likelihood=likelihood)
    search = SEARCHES[problem.likelihood.working.search]
    options = learning_options(len(X), limits=search.centres(0))
    with sample_of(X, y) as sample:
        problem = search.learn(sample, problem, SearchSettings(options, seed=0, columns=1000))
    return problem.empty.kernel


def test_every_likelihood_has_a_search_and_level_tables():
    words = {likelihood.working.search for likelihood in LIKELIHOODS.values()}
    assert words <= SEARCHES.keys()
    assert words <= TABLES.keys()


def test_a_likelihood_chooses_the_numbers_from_which_the_kernel_is_learned():
    """The logarithm is smooth: from e^t the same kernel is learned as from t, although e^t has
    other widths."""
    X, f = arm(100, 3)
    logs = (f - f.mean()) / f.std()
    kernel = learned(X, np.exp(3 * logs), LogLikelihood())
    assert np.allclose(kernel.gamma, learned(X, logs, GAUSSIAN).gamma, rtol=1e-3)
    assert not np.allclose(kernel.gamma, learned(X, np.exp(3 * logs), GAUSSIAN).gamma, rtol=0.1)


def test_the_history_has_evidence_and_noise_in_the_units_of_the_targets():
    """A density of n targets t = scale·z is that of z over scaleⁿ, and a variance has scale²."""
    X, y = arm(30, 2)
    problem = problem_of(X, y)
    scaling = replace(problem.empty.scaling, t_scale=np.array([1e3]))
    facts = {"number": 1, "candidates": 4, "iterations": 9, "termination": Termination.CONVERGED}
    record = kernel_record(
        problem.with_scaling(scaling), problem.empty.kernel, 0.25, 30, -12.0, facts
    )
    assert record.log_evidence == pytest.approx(-12.0 - 30 * np.log(1e3))
    assert record.noise_variance == pytest.approx(0.25e6)
    assert record.vectors == 4
