"""Classification fits: the mode at fixed α, step control, hard data, and the number of passes."""

from dataclasses import replace
from itertools import product

import naive
import numpy as np
import pytest
from by_default import some
from class_problems import problems
from hypothesis import given
from numpy.random import default_rng
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import expit, softmax

from partirvm.core import LINKS, LogisticBlock, StopRule, Termination, entry_precision
from partirvm.core.laplace import init, update
from partirvm.core.newton import _at_fixed_alpha, begin, entry_factors, receive
from partirvm.core.priors import JOINING
from partirvm.types import BIAS

RULE = StopRule(1e-7, 200)


def start(likelihood, Phi, codes, K, w=None):
    """Return the state after a first pass at zero weights; columns have their entry α, bias
    first."""
    C = 1 if likelihood == "bernoulli" else K
    labels = np.arange(Phi.shape[1]) + BIAS
    zero = np.zeros((Phi.shape[1], C))
    block = LogisticBlock.of(likelihood, Phi, codes, zero, w)
    none = init(labels[:0], zero[:0, 0], zero[:0], block.take(np.arange(0)))
    s, q, precision = entry_factors(none, block)
    alpha = entry_precision(s.mean(1), np.sqrt((q**2).mean(1)), precision.mean(1))
    return replace(init(labels, alpha, zero, block), iteration=1)


def drive(search, Phi, codes, rule=RULE, w=None):
    """Measure trials until the fit ends; accepted trials never lower the penalised likelihood."""
    reason = None
    likelihood = "bernoulli" if search.current.weights.shape[1] == 1 else "multinomial"
    while reason is None:
        trial = search.trial
        before = search
        columns = trial.labels - BIAS
        block = LogisticBlock.of(likelihood, Phi[:, columns], codes, trial.weights, w)
        search, reason = receive(search, block, rule)
        assert search.current.iteration == before.current.iteration + 1
        if search.current.block is block:
            value = block.log_likelihood - 0.5 * np.sum(trial.alpha @ trial.weights**2)
            rounding = 1e-9 * (abs(value) + len(codes))
            assert value >= before.baseline - rounding
            fallen = before.current.penalised() - value
            assert (
                fallen <= (0 if before.step else 2 * before.current.determinedness.sum()) + rounding
            )
    return search.current, reason


def fit(likelihood, Phi, codes, K, rule=RULE, w=None):
    """Run a fit from its first pass to its end; assert that all numbers are finite."""
    state, reason = drive(begin(start(likelihood, Phi, codes, K, w), rule), Phi, codes, rule, w)
    assert state.iteration <= rule.max_iterations
    numbers = [state.log_evidence, state.mean, state.weights, state.variance, state.decrement]
    for value in (*numbers, state.roots()):
        assert np.isfinite(value).all()
    assert (state.variance >= 0).all()
    return state, reason


def design(X, gamma, centres=None):
    """Return a design of a bias and Gaussians about the centres."""
    return np.hstack(
        [np.ones((len(X), 1)), naive.gaussian(X, X if centres is None else centres, gamma)]
    )


def probabilities(state, Phi):
    """Return class probabilities (N, K) at design rows for the weights."""
    f = Phi[:, state.labels - BIAS] @ state.mean
    return softmax(f, axis=1) if f.shape[1] > 1 else np.hstack([expit(-f), expit(f)])


def banana(rng, n):
    """Return two crescents that overlap."""
    codes = (rng.random(n) < 0.5).astype(float)
    angle = np.pi * rng.random(n)
    X = np.column_stack([np.cos(angle), np.sin(angle)]) * np.where(codes == 1, 1.0, -1.0)[:, None]
    return X + np.column_stack([codes, 0.5 * codes]) + 0.35 * rng.normal(size=(n, 2)), codes


@given(problems())
def test_the_mode_at_fixed_alpha_equals_that_of_the_full_hessian(problem):
    """Mode, Σ and evidence agree to 1e-8, although passes return only diagonal blocks."""
    likelihood, Phi, codes, alpha, w = problem
    zero = np.zeros(alpha.shape)
    block = LogisticBlock.of(likelihood, Phi, codes, zero, w)
    state = init(np.arange(len(alpha)) + BIAS, alpha[:, 0], zero, block)
    state, reason = drive(
        _at_fixed_alpha(state, 1.0, 0, (), settling=True), Phi, codes, StopRule(1e-17, 400), w
    )
    assert reason is Termination.CONVERGED
    mode = naive.mode(likelihood, Phi, codes, alpha, w)
    Sigma, evidence = naive.laplace(likelihood, Phi, codes, alpha, mode, w)
    assert_allclose(state.weights, mode, rtol=1e-8, atol=1e-8)
    assert_allclose(state.mean, mode, rtol=1e-8, atol=1e-8)
    assert_allclose(state.roots() @ state.roots().transpose(0, 2, 1), Sigma, rtol=1e-8, atol=1e-8)
    assert_allclose(state.log_evidence, evidence, rtol=1e-8)
    assert_array_equal(state.alpha, alpha[:, 0])
    assert_allclose(
        state.penalised(), naive.penalised(likelihood, Phi, codes, alpha, mode, w), rtol=1e-10
    )
    diagonal = np.diagonal(Sigma, axis1=1, axis2=2).T
    assert_allclose(state.variance, diagonal, rtol=1e-7)
    assert_allclose(state.determinedness, 1 - alpha * diagonal, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("likelihood", LINKS)
def test_a_converged_fit_is_a_fixed_point(rng, likelihood):
    """Another update changes the evidence by less than the tolerance; the weights are the mode."""
    X, codes = banana(rng, 120)
    if likelihood != "bernoulli":
        codes = codes + (X[:, 0] > 1)
    Phi = design(X, 0.5)
    state, reason = fit(likelihood, Phi, codes, 3 if likelihood != "bernoulli" else 2)
    assert reason is Termination.CONVERGED
    assert state.iteration <= (40 if likelihood == "bernoulli" else 70)
    assert abs(update(state).log_evidence - state.log_evidence) < 10 * RULE.tol * len(codes)
    alpha = np.repeat(state.alpha[:, None], state.mean.shape[1], axis=1)
    mode = naive.mode(likelihood, Phi[:, state.labels - BIAS], codes, alpha)
    assert_allclose(state.mean, mode, atol=1e-3 * np.abs(mode).max())


def test_a_step_downhill_is_undone_and_restores_pruned_columns(rng):
    """Far from the mode the curvature nearly vanishes and the Newton step is far too long."""
    x = np.repeat([-1.0, 1.0], 50)
    odd = np.arange(100) % 5 == 0
    codes = ((x > 0) != odd).astype(float)
    idle = np.zeros(100)
    for group in (odd & (x > 0), odd & (x < 0), ~odd & (x > 0), ~odd & (x < 0)):
        idle[group] = np.where(np.arange(group.sum()) % 2, 1.0, -1.0)
    Phi = np.column_stack([x, idle])
    labels = np.arange(2) + BIAS
    alpha = np.array([1e-3, 1e9])
    weights = np.array([[-8.0], [0.0]])
    state = init(labels, alpha, weights, LogisticBlock.of("bernoulli", Phi, codes, weights))
    search = begin(state, RULE)
    assert_array_equal(search.trial.labels, labels[:1])
    trial = search.trial
    assert (
        naive.penalised("bernoulli", Phi[:, :1], codes, trial.alpha[:, None], trial.weights)
        < search.baseline
    )
    search, reason = receive(
        search, LogisticBlock.of("bernoulli", Phi[:, :1], codes, trial.weights), RULE
    )
    assert search.current.block is state.block
    assert_array_equal(search.trial.labels, labels)
    assert_array_equal(
        search.trial.alpha, alpha / [1.0, JOINING]
    )  # columns that have not joined yet expect less
    assert search.step == 1.0
    while search.current.block is state.block and reason is None:
        before = search
        search, reason = receive(
            search, LogisticBlock.of("bernoulli", Phi, codes, search.trial.weights), RULE
        )
        if search.current.block is state.block:
            ends = (before.current.weights, before.trial.weights)
            low, high = (
                naive.penalised("bernoulli", Phi, codes, before.current.alpha[:, None], w)
                for w in ends
            )
            top = (
                2 * before.current.decrement
            )  # slope along the step; the parabola's maximum, computed from slope and decrease
            best = 0.5 * top * before.step**2 / (top * before.step - (high - low))
            assert_allclose(
                search.step, np.clip(best, 0.1 * before.step, 0.5 * before.step), rtol=1e-6
            )
    assert_array_equal(search.current.labels, labels)
    end, reason = drive(search, Phi, codes)
    assert reason is Termination.CONVERGED
    assert_array_equal(end.labels, labels[:1])
    assert_allclose(end.mean, np.log(4), atol=0.1)


def test_limits_end_a_fit(rng):
    """The limits apply to the number of vectors and the number of passes."""
    X, codes = banana(rng, 100)
    Phi = design(X, 0.5)
    state, reason = fit("bernoulli", Phi, codes, 2, StopRule(1e-7, 200, vectors=40))
    assert reason is Termination.HALVED
    assert 0 < state.n_vectors <= 40
    state, reason = fit("bernoulli", Phi, codes, 2, StopRule(1e-7, 5))
    assert (reason, state.iteration) == (Termination.ITERATIONS, 5)


@pytest.mark.parametrize(
    ("likelihood", "kind"),
    some(
        product(LINKS, ["separable", "equal inputs", "both labels", "one row each"]),
        {
            ("bernoulli", "separable"),
            ("multinomial", "equal inputs"),
            ("bernoulli", "both labels"),
            ("bernoulli", "one row each"),
        },
    ),
)
def test_fits_to_hard_data_are_finite(rng, likelihood, kind):
    """Classes are separable, inputs equal, labels contradictory, or each class has one row."""
    K = 2 if likelihood == "bernoulli" else 3
    codes = (np.arange(30) % K).astype(float)
    X = np.column_stack([10 * codes, np.zeros(30)]) + rng.normal(size=(30, 2))
    if kind == "equal inputs":
        X = np.ones((30, 2))
    if kind == "both labels":
        X = np.repeat(rng.normal(size=(15, 2)), 2, axis=0)
        codes = (np.arange(30) % 2).astype(float)
    if kind == "one row each":
        X = X[:K]
        codes = codes[:K]
    Phi = design(X, 0.5)
    state, _ = fit(likelihood, Phi, codes, K)
    p = probabilities(state, Phi)
    if kind == "separable":
        assert_array_equal(p.argmax(axis=1), codes)
    if kind == "equal inputs":
        assert_allclose(p, 1 / K, atol=1e-6)
    if kind == "both labels" and likelihood == "bernoulli":
        assert_allclose(p, 0.5, atol=1e-6)


@pytest.mark.parametrize("seed", some([1, 2], {1}))
def test_separable_classes_converge_from_distant_weights(seed):
    """Far from the mode, updates of α would prune needed columns and the evidence would diverge."""
    rng = default_rng(seed)
    X = rng.normal(size=(200, 3))
    codes = (X[:, 0] > 0).astype(float)
    Phi = design(X, 0.5, X[:60])
    first, _ = fit("bernoulli", Phi, codes, 2)
    near = start("bernoulli", Phi, codes, 2)
    weights = 100 * rng.normal(size=near.weights.shape)
    block = LogisticBlock.of("bernoulli", Phi, codes, weights)
    far = replace(init(near.labels, 1e-3 * near.alpha, weights, block), iteration=1)
    state, reason = drive(begin(far, RULE), Phi, codes)
    assert reason is Termination.CONVERGED
    assert state.log_evidence < 0
    assert abs(state.log_evidence - first.log_evidence) < 5


@pytest.mark.parametrize("seed", [18, 48, 66])
def test_a_rejected_update_at_the_mode_is_not_repeated_forever(seed):
    """No column separates three classes; the gain of deleting the last column is overestimated."""
    rng = default_rng(seed)
    n = rng.integers(6, 80)
    X = rng.normal(size=(n, 2)) * 10 ** rng.uniform(-1, 1)
    codes = (
        rng.integers(3, size=n).astype(float)
        if rng.random() < 0.5
        else (X > 0).sum(axis=1).astype(float)
    )
    _, reason = fit("multinomial", design(X, 10 ** rng.uniform(-3, 1)), codes, 3)
    assert reason is Termination.CONVERGED


@pytest.mark.slow
def test_alpha_and_mode_do_not_oscillate():
    """In three overlapping groups the optimal α of each quadratic overshoots in turn."""
    rng = default_rng(0)
    codes = np.r_[np.arange(3), rng.choice(3, size=147, p=[1 / 6, 2 / 6, 3 / 6])].astype(float)
    angle = np.pi * (codes / 3 + rng.integers(2, size=150))
    X = 1.5 * np.column_stack([np.cos(angle), np.sin(angle)]) + 0.8 * rng.normal(size=(150, 2))
    state, reason = fit("multinomial", design(X, 0.5), codes, 3)
    assert reason is Termination.CONVERGED
    assert state.iteration < 70
