"""Fits of classes by actions: on one quadratic against dense formulas, and where they end between passes."""

from __future__ import annotations

from dataclasses import replace

import naive
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit

from partirvm.core import fast_laplace
from partirvm.core.fast_laplace import Aim, SharedQuadratics, act, aimed, toward
from partirvm.core.laplace import enter, init, moved_to
from partirvm.core.link import LINKS, LogisticBlock
from partirvm.core.newton import begin, receive
from partirvm.core.statistics import BIAS
from partirvm.core.termination import StopRule, Termination

seeds = st.integers(0, 2**32 - 1)
RULE = StopRule(1e-7, 200)


def problem(seed, likelihood, N=60, K=12):
    """A bias and bumps of places in the plane, and codes that depend on them."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, 2))
    f = 3 * np.column_stack([np.sin(2 * X[:, 0]), X[:, 1], np.zeros(N)]) + rng.gumbel(size=(N, 3))
    codes = f.argmax(axis=1) if likelihood != "bernoulli" else f[:, 0] > f[:, 2]
    Phi = np.hstack([np.ones((N, 1)), naive.gaussian(X, X[: K - 1], 10 ** rng.uniform(-1, 0.5))])
    return Phi, codes.astype(float)


def far_away(seed, likelihood, Phi, codes):
    """A state of some active columns, measured at weights that are no mode."""
    rng = np.random.default_rng(seed + 1)
    K, C = Phi.shape[1], LINKS[likelihood].n_outputs(3 if likelihood != "bernoulli" else 2)
    there = rng.random((K, 1 if likelihood == "multinomial" else C)) < 0.4
    alpha = np.where(there, 10 ** rng.uniform(-1, 1, size=there.shape), np.inf)
    alpha = np.ascontiguousarray(np.broadcast_to(alpha, (K, C)))
    weights = np.where(np.isfinite(alpha), 0.5 * rng.normal(size=(K, C)), 0.0)
    return init(likelihood, np.arange(K) + BIAS, alpha, weights, LogisticBlock.of(likelihood, Phi, codes, weights))


def working(state, Phi, codes, k):
    """Φ and the working response of one output, both times √B: the target of its quadratic has noise of precision 1."""
    f = Phi @ state.weights
    if state.likelihood.startswith("multinomial"):
        y = np.exp(f - f.max(axis=1, keepdims=True))
        y = (y / y.sum(axis=1, keepdims=True))[:, k]
        t = codes == k
    else:
        y, t = expit(f[:, k]), codes == (k if f.shape[1] > 1 else 1)
    root = np.sqrt(y * (1 - y))
    error = np.divide(t - y, root, out=np.zeros(len(y)), where=root > 0)  # a row of no doubt at all says nothing
    return root[:, None] * Phi, root * f[:, k] + error


def gaussian_evidence(state, Phi, codes, alpha):
    """Σ over outputs of the evidence of their working responses at α (K, C)."""
    found = 0.0
    for k in range(alpha.shape[1]):
        scaled, z = working(state, Phi, codes, k)
        there = np.isfinite(alpha[:, k])
        found += naive.log_evidence(scaled[:, there], z, alpha[there, k], 1.0)
    return found


def dense_gains(state, Phi, codes, outputs):
    """What the best action on each column, in these outputs at once, would gain (K,): a fine grid of α, and absence."""
    K, current = Phi.shape[1], np.zeros(Phi.shape[1])
    grid = np.geomspace(1e-8, 1e10, 3000)
    best = np.zeros(K)
    for j in range(K):
        total = np.zeros(len(grid))
        for k in outputs:
            scaled, z = working(state, Phi, codes, k)
            others = np.flatnonzero(np.isfinite(state.alpha[:, k]) & (np.arange(K) != j))
            s, q = naive.sparsity_quality(scaled[:, j], scaled[:, others], z, state.alpha[others, k], 1.0)
            total += 0.5 * (np.log(grid / (grid + s)) + q**2 / (grid + s))
            current[j] += naive.contribution(state.alpha[j, k], s, q)
        best[j] = max(total.max(), 0.0)
    return best - current


@pytest.mark.parametrize("likelihood", ["bernoulli", "ovr"])
@pytest.mark.parametrize("seed", range(4))
def test_actions_on_a_quadratic_are_those_of_the_dense_algorithm(monkeypatch, likelihood, seed):
    """Kinds, columns and α of all actions in each output, Σ and μ from scratch each time in the other."""
    monkeypatch.setattr(fast_laplace, "FAR", np.inf)
    Phi, codes = problem(seed, likelihood)
    state, actions = far_away(seed, likelihood, Phi, codes), []
    goal = act(state, 1e-4, on_action=actions.append)
    expected = []
    for k in range(state.alpha.shape[1]):
        scaled, z = working(state, Phi, codes, k)
        active = {j: state.alpha[j, k] for j in np.flatnonzero(np.isfinite(state.alpha[:, k]))}
        while (found := naive.best_action(scaled, z, active, 1.0))[0] > 1e-4:
            expected.append(found)
            active[found[2]] = found[3]
            if found[1] == "delete":
                del active[found[2]]
        np.testing.assert_allclose(goal[:, k], [active.get(j, np.inf) for j in range(len(goal))], rtol=1e-6)
    assert len(expected) > 5
    assert [(a.kind, a.column) for a in actions] == [(kind, j) for _, kind, j, _ in expected]
    np.testing.assert_allclose([a.gain for a in actions], [gain for gain, *_ in expected], rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("likelihood", LINKS)
@pytest.mark.parametrize("seed", [0, 1])
def test_an_action_gains_what_the_evidence_rises_by(likelihood, seed):
    """Of all outputs that share α: that of the working responses, that of the state, and no other action gains more."""
    Phi, codes = problem(seed, likelihood)
    state = far_away(seed, likelihood, Phi, codes)
    outputs = range(state.alpha.shape[1]) if likelihood == "multinomial" else range(1)
    part = slice(0, len(outputs))
    block = state.block
    group = SharedQuadratics(
        state.labels, state.alpha[:, 0], state.weights[:, part], block.gradient[:, part], block.curvature[part]
    )
    kinds = set()
    for _ in range(25):
        action, alpha = group.best(), state.alpha.copy()
        np.testing.assert_allclose(action.gain, dense_gains(state, Phi, codes, outputs).max(), rtol=1e-3, atol=1e-4)
        if action.gain < 1e-4:
            break
        before = gaussian_evidence(state, Phi, codes, alpha)
        alpha[action.column, part] = action.alpha
        after = gaussian_evidence(state, Phi, codes, alpha)
        np.testing.assert_allclose(action.gain, after - before, rtol=1e-6, atol=1e-8)
        moved = moved_to(replace(state, block=block), alpha)
        np.testing.assert_allclose(action.gain, moved.log_evidence - state.log_evidence, rtol=1e-6, atol=1e-8)
        group.do(action)
        np.testing.assert_array_equal(group.alpha, alpha[:, 0])
        delta = moved.mean[:, part] - moved.weights[:, part]
        if not (np.isinf(alpha[:, 0]) & (state.weights[:, 0] != 0)).any():
            displacement = 0.5 * np.einsum("ik,kij,jk->", delta, block.curvature[part], delta)
            np.testing.assert_allclose(group.displacement(), displacement, rtol=1e-6, atol=1e-10)
        kinds.add(action.kind)
        state = replace(state, alpha=alpha, posteriors=moved.posteriors)
    assert {"add", "estimate"} <= kinds


def test_a_part_of_a_change_is_one_of_prior_variances():
    """Half way from absence to α is 2α, half way back 2α again; a way is shorter after its reversal."""
    Phi, codes = problem(0, "bernoulli")
    K = Phi.shape[1]
    absent, there = np.full((K, 1), np.inf), np.full((K, 1), 3.0)
    state = far_away(0, "bernoulli", Phi, codes)
    for before, after in ((absent, there), (there, absent)):
        aim = Aim(after, np.ones((K, 1)), np.full((K, 1), 0.5))
        np.testing.assert_allclose(toward(moved_to(state, before), aim).alpha, 6.0)
    np.testing.assert_array_equal(toward(state, Aim(there, there, np.ones((K, 1)))).alpha, there)
    first = aimed(state, Aim.at(state), 1e-4, damp=True)
    turned = aimed(state, replace(first, drift=-first.drift), 1e-4, damp=True)
    changed = first.goal != state.alpha
    np.testing.assert_array_equal(first.share, 1.0)
    np.testing.assert_array_equal(turned.share, np.where(changed, 0.5, 1.0))


def drive(search, Phi, codes, rule=RULE, w=None):
    """Measure trials, of all candidates each time, until there is a reason to end."""
    labels, reason = search.trial.labels, None
    while reason is None:
        np.testing.assert_array_equal(search.trial.labels, labels)
        block = LogisticBlock.of(search.trial.likelihood, Phi, codes, search.trial.weights, w)
        search, reason = receive(search, block, rule)
    assert np.isfinite(search.current.log_evidence)
    assert np.isfinite(search.current.alpha).any(axis=1).all()
    return search.current, reason


def fit(likelihood, Phi, codes, rule=RULE, w=None):
    """From nothing to the end: the fit of the active columns, and why it ended."""
    C = LINKS[likelihood].n_outputs(3 if likelihood != "bernoulli" else 2)
    labels, none, zero = np.arange(Phi.shape[1]) + BIAS, np.zeros((0, C)), np.zeros((Phi.shape[1], C))
    block = LogisticBlock.of(likelihood, Phi, codes, zero, w)
    first = enter(likelihood, labels, block, labels[:0], none, none, wait=True)
    return drive(begin(replace(first, passes=1), rule, fast=True), Phi, codes, rule, w)


@settings(max_examples=25)
@given(st.sampled_from(list(LINKS)), seeds)
def test_the_end_is_a_mode_where_no_action_gains(likelihood, seed):
    """Mode and evidence are those of the dense formulas, and what any candidate could gain is below tol·N."""
    Phi, codes = problem(seed, likelihood, 40, 10)
    rule = StopRule(1e-5, 200)
    state, reason = fit(likelihood, Phi, codes, rule)
    assert reason is Termination.CONVERGED
    columns, C = state.labels - BIAS, state.alpha.shape[1]
    evidence, groups = 0.0, [range(C)] if likelihood == "multinomial" else [[k] for k in range(C)]
    for outputs in [range(C)] if likelihood.startswith("multinomial") else groups:
        there = np.flatnonzero(np.isfinite(state.alpha[:, outputs]).any(axis=1))
        shared = np.where(np.isfinite(state.alpha), state.alpha, 1e9)[np.ix_(there, outputs)]
        kind, own = (likelihood, codes) if len(outputs) > 1 else ("bernoulli", codes)
        if likelihood == "ovr":
            own = (codes == outputs[0]).astype(float)
        part, mode = Phi[:, columns[there]], np.zeros(shared.shape)
        if len(there):
            mode = naive.mode(kind, part, own, shared)
        np.testing.assert_allclose(state.weights[np.ix_(there, outputs)], mode, atol=3e-2 * np.abs(mode).max(initial=1))
        evidence += naive.laplace(kind, part, own, shared, mode)[1]
    np.testing.assert_allclose(state.log_evidence, evidence, atol=10 * rule.tol * len(codes))
    alpha, weights = np.full((Phi.shape[1], C), np.inf), np.zeros((Phi.shape[1], C))
    alpha[columns], weights[columns] = state.alpha, state.weights
    block = LogisticBlock.of(likelihood, Phi, codes, weights)
    whole = init(likelihood, np.arange(len(alpha)) + BIAS, alpha, weights, block)
    for outputs in groups:
        assert dense_gains(whole, Phi, codes, outputs).max() < 2 * rule.tol * len(codes)


@pytest.mark.parametrize("likelihood", LINKS)
@pytest.mark.parametrize("kind", ["separable", "equal inputs", "both labels", "copies", "zeros"])
def test_hard_data_end_finite(rng, likelihood, kind):
    """Classes that part, inputs that tell nothing, rows that contradict each other, columns twice or empty."""
    K = 2 if likelihood == "bernoulli" else 3
    codes = (np.arange(30) % K).astype(float)
    X = np.column_stack([10 * codes, np.zeros(30)]) + rng.normal(size=(30, 2))
    if kind == "equal inputs":
        X = np.ones((30, 2))
    if kind == "both labels":
        X, codes = np.repeat(rng.normal(size=(15, 2)), 2, axis=0), (np.arange(30) % 2).astype(float)
    Phi = np.hstack([np.ones((30, 1)), naive.gaussian(X, X, 0.5)])
    if kind in ("copies", "zeros"):
        Phi = np.hstack([Phi, Phi if kind == "copies" else np.zeros((30, 5))])
    state, reason = fit(likelihood, Phi, codes)
    assert reason is Termination.CONVERGED
    if kind in ("separable", "copies", "zeros"):
        assert state.block.wrong == 0
    if kind == "copies":
        assert len(set(state.labels % 31)) == len(state.labels)
    if kind in ("equal inputs", "both labels") and likelihood == "bernoulli":
        np.testing.assert_allclose(state.mean, 0.0, atol=1e-6)


@pytest.mark.parametrize("seed", [1, 5, 6])
def test_classes_that_part_from_weights_far_away(seed):
    """Where rows are saturated the quadratic says nothing of α, and steps are taken back: the end is as good as from
    nothing, within what two optima of 60 candidates differ by."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(200, 3))
    codes = (X[:, 0] > 0).astype(float)
    Phi = np.hstack([np.ones((200, 1)), naive.gaussian(X, X[:60], 0.5)])
    weights = 100 * rng.normal(size=(61, 1))
    block = LogisticBlock.of("bernoulli", Phi, codes, weights)
    far = init("bernoulli", np.arange(61) + BIAS, np.full((61, 1), 1e-3), weights, block)
    state, reason = drive(begin(replace(far, passes=1), RULE, fast=True), Phi, codes)
    assert reason is Termination.CONVERGED
    assert abs(state.log_evidence - fit("bernoulli", Phi, codes)[0].log_evidence) < 5
    assert state.n_vectors < 20


def test_limits_and_a_watcher_end_a_fit():
    """Vectors down to the rule's number, its most passes, or what the watcher raises between actions."""
    Phi, codes = problem(3, "bernoulli")
    labels, zero = np.arange(Phi.shape[1]) + BIAS, np.zeros((Phi.shape[1], 1))
    block = LogisticBlock.of("bernoulli", Phi, codes, zero)
    everything = replace(init("bernoulli", labels, zero + 0.1, zero, block), passes=1)
    rule = replace(RULE, vectors=8)
    state, reason = drive(begin(everything, rule, fast=True), Phi, codes, rule)
    assert (reason, state.n_vectors <= 8) == (Termination.HALVED, True)
    state, reason = fit("bernoulli", Phi, codes, replace(RULE, max_iterations=3))
    assert (reason, state.passes) == (Termination.ITERATIONS, 3)

    def leave():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        begin(everything, RULE, leave, fast=True)


@pytest.mark.parametrize("likelihood", LINKS)
def test_no_candidate_no_column(likelihood):
    """A fit that has none to choose from ends with none."""
    Phi, codes = problem(0, likelihood)
    state, reason = fit(likelihood, Phi[:, :0], codes)
    assert (reason, state.n_columns) == (Termination.CONVERGED, 0)


def test_weights_are_rows_that_occur_twice(rng):
    """A row of weight 2 is two rows, but for what N says of the tolerance."""
    Phi, codes = problem(5, "multinomial", 40, 12)
    w = rng.choice([1.0, 2.0], len(codes))
    twice = np.repeat(np.arange(len(codes)), w.astype(int))
    one, _ = fit("multinomial", Phi, codes, StopRule(1e-6 / len(codes), 200), w)
    other, _ = fit("multinomial", Phi[twice], codes[twice], StopRule(1e-6 / len(twice), 200))
    np.testing.assert_array_equal(one.labels, other.labels)
    np.testing.assert_allclose(one.log_evidence, other.log_evidence, rtol=1e-6)
