"""Single actions compared with a dense version of Tipping & Faul's algorithm."""

from dataclasses import replace

import naive
import numpy as np
import pytest
from by_default import some
from fits import assert_evidence, statistics_of
from hypothesis import given
from hypothesis import strategies as st
from numpy.random import default_rng
from numpy.testing import assert_allclose, assert_array_equal

from partirvm.core import HyperState, StepInfo, StopRule, Termination
from partirvm.core.fast import FEWEST, PART, Greedy, grow
from partirvm.core.priors import DEPENDENT
from partirvm.types import BIAS

seeds = st.integers(0, 2**32 - 1)
FIRST = 10.0
RULE = StopRule(1e-7, 500)


def nothing_of(statistics, *, fixed_noise=False, target_variance=1.0):
    """Return a fit whose columns have all just entered."""
    M = len(statistics.labels)
    state = HyperState(
        statistics, np.ones(M), FIRST, target_variance=target_variance, fixed_noise=fixed_noise
    )
    return replace(state, entered=np.ones(M, bool))


def bumps(seed, N=40, K=24, width=1.0):
    """Draw Gaussian columns centred on a line, neighbours nearly equal, and a noisy wave."""
    rng = default_rng(seed)
    x = np.sort(rng.uniform(-5, 5, N))[:, None]
    Phi = naive.gaussian(x, rng.uniform(-5, 5, (K, 1)), 1 / width**2)
    return Phi, np.sin(x[:, 0]) + rng.normal(size=N) * 10 ** rng.uniform(-1.5, 0)


def recorded(state, rule=RULE):
    """Return the reason for the end of ``grow``, and per action kind, column, α, gain and
    evidence."""
    actions = []

    class Noting(Greedy):
        def do(self, action):
            entered = self.active.place[action.column] < 0
            kind = "add" if entered else "estimate" if np.isfinite(action.alpha) else "delete"
            super().do(action)
            actions.append((kind, action.column, action.alpha, action.gain, self.log_evidence))

    fit, reason = grow(state, rule, actions=Noting)
    return fit, reason, actions


@pytest.mark.parametrize("block", some(range(5), {0}))
def test_every_action_equals_that_of_the_dense_algorithm(block):
    """In 20 problems, of which 4 run by default, kinds, columns, α and evidence of all actions agree, and so does the end."""
    for seed in range(4 * block, 4 * block + 4):
        Phi, t = bumps(seed)
        expected, beta = naive.tipping_faul(
            Phi, t, FIRST, least=RULE.tol * len(t), between=lambda M: FEWEST + M // PART
        )
        fit, reason, actions = recorded(nothing_of(statistics_of(Phi, t)))
        assert reason is Termination.CONVERGED
        assert fit.n == len(t)
        assert [action[:2] for action in actions] == [action[:2] for action in expected]
        for place, last, tolerance in ((2, 2, 1e-6), (4, 3, 1e-8)):
            ours = [action[place] for action in actions]
            dense = [action[last] for action in expected]
            assert_allclose(ours, dense, rtol=tolerance, atol=1e-8)
        assert_allclose(fit.beta, beta, rtol=1e-8)
        assert_evidence(fit, Phi, t, rtol=1e-8, atol=1e-8)


@given(seeds, st.sampled_from([0.3, 1.0, 3.0]))
def test_the_evidence_rises_until_no_action_gains(seed, width):
    Phi, t = bumps(seed, 30, 20, width)
    fit, reason, actions = recorded(nothing_of(statistics_of(Phi, t)))
    assert reason is Termination.CONVERGED
    assert min(gain for _, _, _, gain, _ in actions) > RULE.tol * len(t)
    active = dict(zip(fit.labels.tolist(), fit.alpha.tolist(), strict=True))
    assert naive.best_action(Phi, t, active, fit.beta)[0] < 2 * RULE.tol * len(t)
    assert_evidence(fit, Phi, t, rtol=1e-7, atol=1e-6)


def test_equal_columns_are_left_out_and_similar_ones_may_join():
    """Two columns with a cosine above 0.999 join if the target needs their difference (3 nats)."""
    Phi, t = bumps(0)
    fit, _ = grow(
        nothing_of(statistics_of(np.hstack([Phi, Phi, Phi]), t)), replace(RULE, thin=True)
    )
    assert len(set(fit.labels % Phi.shape[1])) == len(fit.labels)
    rng = default_rng(0)
    first = 3 + rng.normal(size=100)
    second = first + 0.03 * rng.normal(size=100)
    assert first @ second / np.sqrt(first @ first * (second @ second)) > 0.999
    t = first + 10 * (second - first) + 0.1 * rng.normal(size=100)
    near = statistics_of(np.stack([first, second], axis=1), t)
    fit, _ = grow(nothing_of(near), RULE)
    assert len(fit.labels) == 2
    assert fit.losses().min() > 3


def test_rank_one_update_errors_are_bounded():
    """Columns are wide and noise is small: without refreshes the errors would overflow."""
    rng = default_rng(1)
    x = rng.normal(size=(250, 2))
    t = np.sin(2 * x[:, 0]) + x[:, 1] ** 2 + 1e-4 * rng.normal(size=250)
    Phi = np.column_stack([np.ones(250), naive.gaussian(x, x, 0.02)])
    t = (t - t.mean()) / t.std()
    fit, reason = grow(nothing_of(statistics_of(Phi, t)), replace(RULE, thin=True))
    assert reason is Termination.CONVERGED
    assert_evidence(fit, Phi, t, rtol=1e-6, atol=1e-3)


def test_a_copy_of_active_columns_is_not_added():
    """With almost no prior, the s of a copy is rounding error, whatever its q."""
    Phi, t = bumps(1, 60, 10)
    statistics = statistics_of(np.hstack([Phi, Phi]), t)
    start = replace(nothing_of(statistics), alpha=np.full(20, 1e-10), entered=np.arange(20) >= 10)
    greedy = Greedy(start)
    assert (greedy.active.S[10:] < DEPENDENT * FIRST * np.diagonal(statistics.gram)[10:]).all()
    greedy.active.Q[10:] = 1e3
    assert greedy.best(0.0, thin=False).column < 10


def test_deletions_end_at_the_number_of_vectors_that_the_rule_gives():
    """A fit with fewer vectors converges; the bias does not count; the callback may interrupt."""
    Phi, t = bumps(3)
    labels = np.arange(Phi.shape[1]) - 1
    assert labels[0] == BIAS
    statistics = statistics_of(Phi, t, labels=labels)
    begun = HyperState(statistics, np.ones(len(labels)), FIRST, target_variance=1.0)
    fit, reason = grow(begun, replace(RULE, vectors=12))
    assert (reason, fit.n_vectors) == (Termination.HALVED, 12)
    fit, reason = grow(nothing_of(statistics), replace(RULE, vectors=2))
    assert (reason, fit.n_vectors > 2) == (Termination.CONVERGED, True)
    assert grow(begun, replace(RULE, max_iterations=2))[1] is Termination.ITERATIONS

    def leave(info):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        grow(begun, RULE, leave)


@given(seeds)
def test_weights_equal_repeated_rows_and_offsets_do_not_matter(seed):
    """A row of weight 2 equals two rows; an offset of the statistics does not change the fit."""
    Phi, t = bumps(seed, 30, 12)
    w = default_rng(seed).choice([1.0, 2.0], len(t))
    twice = np.repeat(np.arange(len(t)), w.astype(int))
    plain = statistics_of(Phi[twice], t[twice])
    m = np.linspace(-1, 1, 12)
    moved = statistics_of(Phi, t, w, offset=m)
    fits = [
        grow(nothing_of(statistics, fixed_noise=True), replace(RULE, tol=1e-5 / statistics.n))[0]
        for statistics in (plain, moved)
    ]
    assert_array_equal(fits[0].labels, fits[1].labels)
    assert_allclose(fits[0].alpha, fits[1].alpha, rtol=1e-5)
    assert_allclose(fits[0].posterior.mean, fits[1].posterior.mean, rtol=1e-5, atol=1e-7)
    assert fits[0].beta == fits[1].beta == FIRST


@pytest.mark.parametrize("beta", [1e-3, 1e6])
@pytest.mark.parametrize("least", [0.0, 1e-4])
def test_a_fit_ends_when_a_refresh_changes_the_evidence_only_by_rounding(beta, least):
    """Residuals r ± ε change the evidence by ½βε; changes up to that, or ``least``, are ignored."""
    Phi, t = bumps(3)
    search = Greedy(
        replace(nothing_of(statistics_of(Phi, t)), beta=beta, entered=np.zeros(Phi.shape[1], bool))
    )
    search.iteration, search.active.posterior = 1, replace(search.active.posterior, rounding=1e-6)
    bound = max(least, 0.5 * beta * 1e-6)
    for factor, rests in ((0.0, True), (0.99, True), (1.01, False)):
        for sign in (1, -1):
            info = StepInfo(1, 1, 0, 0.0, sign * factor * bound, 1 / beta)
            assert search.is_settled(info, 0, least) == rests
            assert not search.is_settled(info, 1, least)
