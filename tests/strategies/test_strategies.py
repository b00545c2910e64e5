"""Strategies as lists of instructions: which ones, in which order, and how runs end."""

from itertools import pairwise
from math import log2

import naive
import numpy as np
import pytest
from by_default import examples, some
from class_simulator import SELECTIONS, ClassSimulator, runs, usable
from fits import statistics_of
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.random import default_rng
from numpy.testing import assert_allclose, assert_array_equal
from simulator import Simulator, spelled, wave

from partirvm import RVMClassifier, RVMRegressor
from partirvm.core import GramBlock, HyperState, Termination
from partirvm.likelihoods import GramPass, Newton, ResidualPass, Solve
from partirvm.spec import Options, Pass, Solved
from partirvm.strategies import STRATEGIES, Save, WorkingSetRounds, stages
from partirvm.strategies.stopping import FLAT, PATIENCE

GROWING = ("basic", "incremental", "working-set")


@given(runs())
@settings(max_examples=examples(8))
def test_every_run_follows_the_rules(run):
    """Rows are candidates at most once; the last saved model is final and usable."""
    name, simulator, options = run
    reason = simulator.run(name, options)
    simulator.keeps_the_rules(name, reason)
    dense = {Termination.CONVERGED, Termination.HALVED, Termination.ITERATIONS}
    for save in simulator.saves:
        assert save.record.termination in dense or reason is Termination.CONSTANT
        simulator.saved_consistently(save)
        if isinstance(simulator, ClassSimulator):
            usable(save, simulator)
            assert save.record.iterations <= options.max_passes


@given(runs(names=("incremental", "split-merge", "working-set")))
@settings(max_examples=examples(8))
def test_limits_are_never_exceeded(run):
    """max_vectors limits every model, max_columns every dense fit, max_rounds the rounds."""
    name, simulator, options = run
    first = options.partition_size
    if name == "split-merge" and first > min(
        options.max_vectors or first, (options.max_columns or first + 1) - 1
    ):
        return  # a plan keeps P within these limits
    simulator.run(name, options)
    if options.max_vectors is not None:
        assert max(save.record.vectors for save in simulator.saves) <= options.max_vectors
    if options.max_columns is not None:
        columns = [len(solve.start.labels) for solve in simulator.passes(Solve)]
        columns += [fit.design.n_columns for fit in simulator.passes(Newton)]
        assert max(columns, default=0) <= options.max_columns
    if options.max_rounds is not None and name != "split-merge":
        assert max(save.record.number for save in simulator.saves) <= options.max_rounds


@given(runs(), st.data())
@settings(max_examples=examples(5))
def test_a_stop_at_any_moment_ends_the_run_at_once(run, data):
    name, simulator, options = run
    simulator.run(name, options)
    at = data.draw(st.integers(0, len(simulator.turns) - 1))
    assert simulator.run(name, options, stop_at=at) is Termination.ABORTED
    assert len(simulator.turns) == at + 1
    steps = [turn for turn in simulator.turns[:at] if isinstance(turn[0], Solve | Newton)]
    if name == "incremental":
        interrupted = isinstance(simulator.turns[at][0], Save | Pass)
        assert len(simulator.saves) >= len(steps) - 1 or interrupted, "each step left a model"


@given(runs())
@settings(max_examples=examples(2))
def test_a_run_is_a_function_of_its_state(run):
    """Repeated, or resumed after any history line, it gives the same instructions."""
    name, simulator, options = run
    simulator.run(name, options)
    expected = spelled(simulator.turns)
    simulator.run(name, options)
    assert spelled(simulator.turns) == expected
    simulator.resumes(name, options)


@pytest.mark.parametrize("selection", SELECTIONS)
def test_the_gram_matrix_is_extended_and_never_recomputed(selection):
    """Each pass adds only new columns, with the offset of the statistics."""
    simulator = Simulator(*wave(150))
    simulator.run("working-set", Options(15, selection, max_rounds=4))
    grams = [p for p in simulator.passes(GramPass) if not p.diagonal]
    assert len(grams) == 4
    saves = simulator.saves
    for earlier, pass_ in zip(saves, grams[1:], strict=False):
        assert not set(pass_.new.labels) & set(pass_.kept.labels)
        assert_array_equal(pass_.kept.labels, earlier.design.labels)
        assert_array_equal(pass_.offset, earlier.fit.statistics.offset)
    assert not grams[0].kept.n_columns


ROWS_OF_FITS = [*((selection, "full") for selection in SELECTIONS), ("random", "sample")]


@pytest.mark.parametrize(
    ("name", "selection", "likelihood"),
    some(
        [(name, *rows) for name in sorted(STRATEGIES) for rows in ROWS_OF_FITS],
        {
            ("basic", "random", "full"),
            ("incremental", "random", "sample"),
            ("split-merge", "random", "sample"),
            ("working-set", "error", "full"),
            ("working-set", "gain", "full"),
        },
    ),
)
def test_the_evidence_of_the_last_model_follows_tipping(name, selection, likelihood):
    """Evidence and μ equal those for all rows (eqs. 13 and 15)."""
    simulator = Simulator(*wave(120, noise=0.2))
    simulator.run(name, Options(20, selection, likelihood, sample_rows=60, max_rounds=3))
    last = simulator.saves[-1]
    Phi = simulator.phi(last.design)
    t = simulator.t[:, 0]
    expected = naive.log_evidence(Phi, t, last.fit.alpha, last.fit.beta)
    assert_allclose(last.record.log_evidence, expected, rtol=1e-6)
    mean, _ = naive.predict_by_rows(Phi, Phi, t, last.fit.alpha, last.fit.beta)
    assert_allclose(Phi @ last.fit.posterior.mean, mean, atol=1e-6)
    assert_allclose(last.record.train_rmse, np.sqrt(np.mean((t - mean) ** 2)), rtol=1e-5)
    noise = last.fit.calibration.noise_variance if last.fit.calibration else 1 / last.fit.beta
    assert_allclose(last.record.noise_variance, noise, rtol=1e-12)


def test_intermediate_fits_stop_at_the_fraction_and_the_last_converges():
    """The fraction refers to the vectors at the start of the round."""
    simulator = Simulator(*wave(200, noise=0.3))
    simulator.run("working-set", Options(30, "error", stop_fraction=0.5, max_rounds=4))
    solves = simulator.passes(Solve)
    answers = simulator.heard_of(Solved)
    for solve, answer in zip(solves[:-1], answers, strict=False):
        assert solve.rule.vectors == int(0.5 * solve.start.n_vectors)
        if answer.reason is Termination.HALVED:
            assert answer.fit.n_vectors <= solve.rule.vectors
    assert solves[-1].rule.vectors is None
    assert any(answer.reason is Termination.HALVED for answer in answers)
    assert answers[-1].reason is Termination.CONVERGED


def test_selection_by_gain_takes_the_columns_that_raise_the_evidence_most():
    """It takes P from a pool of 4P rows by ½[q²/s − 1 − log(q²/s)] (Tipping & Faul 2003)."""
    simulator = Simulator(*wave(200))
    simulator.run("working-set", Options(8, "gain", max_rounds=2))
    first, pool, chosen = simulator.passes(GramPass)[:3]
    assert pool.diagonal
    assert not chosen.diagonal
    assert len(pool.new.labels) == 32
    assert not set(pool.new.labels) & set(first.new.labels)
    model = simulator.saves[0]
    Phi = simulator.phi(model.design)
    t = simulator.t[:, 0]
    gains = []
    for centre in pool.new.centres:
        phi = naive.gaussian(simulator.X, centre[None], simulator.gamma)[:, 0]
        gains.append(
            naive.best_gain(*naive.sparsity_quality(phi, Phi, t, model.fit.alpha, model.fit.beta))
        )
    best = np.argsort(-np.array(gains))[:8]
    assert set(chosen.new.labels.tolist()) == set(pool.new.labels[best].tolist())


def test_a_pool_from_a_row_sample_is_scaled_up(rng):
    """Gains from half of the rows, which are repeated, equal those from all rows."""
    simulator = Simulator(*wave(60))
    X = np.vstack([simulator.X] * 2)
    t = np.vstack([simulator.t] * 2)
    kept = simulator.empty.with_centres(X[:5], np.arange(5))
    pool = simulator.empty.with_centres(X[5:20], np.arange(5, 20))
    Phi = simulator.phi(kept, X)
    new = simulator.phi(pool, X)
    fit = HyperState(statistics_of(Phi, t), np.ones(5), 50.0, target_variance=1.0)
    whole = GramBlock.of(Phi, new, t, diagonal=True)
    half = GramBlock.of(Phi[:60], new[:60], t[:60], diagonal=True)
    assert_allclose(fit.gains(whole), fit.gains(half), rtol=1e-9)


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"partition_size": 15}, Termination.EXHAUSTED),
        ({"partition_size": 12, "max_vectors": 12, "stop_fraction": 0.9}, Termination.VECTORS),
        ({"partition_size": 20, "max_columns": 45}, Termination.MEMORY),
        ({"partition_size": 10, "max_rounds": 2}, Termination.ROUNDS),
    ],
)
def test_a_working_set_ends_at_each_limit(limits, reason):
    """It has used all rows, or reaches a limit of vectors, memory or rounds; the last round is one
    solve."""
    exhausts = reason is Termination.EXHAUSTED
    simulator = Simulator(
        *wave(40 if exhausts else 150, noise=0.3 if exhausts else 0.01),
        gamma=0.5 if exhausts else 2,
    )
    assert simulator.run("working-set", Options(selection="error", **limits)) is reason
    if exhausts:
        assert sorted(simulator.candidates()) == list(range(40))
    if reason is Termination.ROUNDS:
        assert [(save.record.kind, save.record.number) for save in simulator.saves] == [
            ("round", 1),
            ("final", 2),
        ]
        assert [solve.rule.vectors is None for solve in simulator.passes(Solve)] == [False, True]
    assert max(save.record.vectors for save in simulator.saves) <= limits.get("max_vectors", 150)
    columns = [len(solve.start.labels) for solve in simulator.passes(Solve)]
    assert max(columns) <= limits.get("max_columns", 150)


@pytest.mark.parametrize("selection", SELECTIONS)
def test_two_flat_rounds_end_the_run_if_the_second_is_random(selection):
    """Their fits converge, and the evidence rises by less than FLAT·tol·N."""
    simulator = Simulator(*wave(400, noise=0.05, d=1))
    options = Options(25, selection, stop_fraction=0.1, tol=1e-6)
    assert simulator.run("working-set", options) is Termination.CONVERGED
    rounds = [save.record for save in simulator.saves if save.record.kind == "round"]
    rises = np.diff([record.log_evidence for record in rounds])
    flat = FLAT * options.tol * 400
    assert (rises[-2:] < flat).all()
    assert rounds[-1].selection == "random"
    assert rounds[-1].termination is rounds[-2].termination is Termination.CONVERGED
    assert len(simulator.candidates()) < 400, "it ended before the rows did"


def overfitted(fit_rows):
    """Return a run with centres for single rows, until the held-out error has risen."""
    rng = default_rng(4)
    X = rng.uniform(-3, 3, size=(60, 1))
    y = np.sin(2 * X[:, 0]) + 0.5 * rng.normal(size=60)
    test = np.linspace(-3, 3, 400)[:, None]
    simulator = Simulator(
        X, y, gamma=200.0, held_out=(test, np.sin(2 * test[:, 0])), noise_variance=1e-4
    )
    options = Options(6, "error", fit_rows, sample_rows=40, stop_fraction=0.0)
    assert simulator.run("working-set", options) is Termination.VALIDATION
    curve = [save.record.held_out_rmse for save in simulator.saves[:-1]]
    best = int(np.argmin(curve))
    return simulator, curve, simulator.saves[best], simulator.saves[-1]


def test_a_rising_held_out_error_restores_the_best_round():
    """After PATIENCE rounds the best one is settled and saved with its number."""
    simulator, curve, best, last = overfitted("full")
    assert len(curve) == best.record.number + PATIENCE
    assert last.record.number == best.record.number
    settled = simulator.passes(ResidualPass)[-1]
    assert_array_equal(settled.mean[:, 0], best.fit.posterior.mean)
    assert_array_equal(last.design.labels, best.design.labels)
    assert last.record.held_out_rmse == pytest.approx(min(curve), rel=1e-6)


def test_a_restored_round_is_fitted_to_all_rows():
    """The round had used a sample."""
    _, _, best, last = overfitted("sample")
    assert (last.record.number, last.record.candidates) == (best.record.number, best.record.vectors)
    assert (last.record.rows, last.record.fit_rows) == (60, "full")
    assert set(last.design.labels) <= set(best.design.labels)


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_a_constant_target_needs_no_rows(name):
    """A model without columns is saved."""
    simulator = Simulator(wave(20)[0], np.full(20, 7.0))
    assert simulator.run(name, Options(5, "error")) is Termination.CONSTANT
    assert [type(i) for i in simulator.said] == [Save]
    assert simulator.saves[0].design.n_columns == 0
    assert simulator.scaling.t_shift[0] == 7.0


def test_a_pruned_bias_is_offered_again():
    """Every pass offers it until it is in the design."""
    offered = []
    for seed in range(3):
        simulator = Simulator(*wave(150, seed=seed, noise=0.3), gamma=0.2)
        simulator.run("working-set", Options(15, "random", max_rounds=5))
        for pass_ in simulator.passes(GramPass):
            assert pass_.new.bias == (not pass_.kept.bias)
            offered.append((pass_.kept.n_columns > 0, pass_.new.bias))
    assert (True, True) in offered, "in no example was the bias pruned and offered again"
    assert (True, False) in offered, "in no example did the bias stay"


@pytest.mark.parametrize("name", GROWING)
def test_cancellation_needs_a_residual_pass_and_another_solve(name):
    """The target is in the span of the columns; the second solve uses the mean as offset."""
    rng = default_rng(2)
    X = rng.uniform(-3, 3, size=(40, 1))
    y = naive.gaussian(X, X[:3], 0.5) @ [1.0, -2.0, 0.5]
    simulator = Simulator(X, y, gamma=0.5, noise_variance=1e-20, bias=False)
    simulator.t = y[:, None]  # not about its mean, so that it lies in the span of three columns
    simulator.run(name, Options(20, "random", max_rounds=2))
    solved = [k for k, event in enumerate(simulator.heard) if isinstance(event, Solved)]
    cancelled = [k for k in solved if simulator.heard[k].reason is Termination.CANCELLED]
    assert cancelled
    for k in cancelled:
        mean = simulator.heard[k].fit.posterior.mean
        asked = simulator.said[k + 1]
        answer = simulator.heard[k + 1]
        again = simulator.said[k + 2]
        assert isinstance(asked, ResidualPass)
        assert_array_equal(asked.mean[:, 0], mean)
        assert isinstance(again, Solve)
        assert_array_equal(again.start.statistics.offset[:, 0], mean)
        assert_array_equal(again.start.statistics.sum_squares, answer.sum_squares)
        assert_array_equal(again.start.alpha, simulator.heard[k].fit.alpha)


def test_no_left_out_errors_are_requested_without_local_residuals():
    simulator = Simulator(np.arange(2000.0)[:, None], np.sin(np.arange(2000.0)))
    options = Options(50, "random", residual="none", residual_bytes=1 << 40, effort="balanced")
    assert list(stages.corrected(stages.first_state(simulator.problem, options))) == []


class EffortEndsSmallFits(WorkingSetRounds):
    """The strategy, in which effort ends small fits, too."""

    least_work = 1.0


@pytest.mark.parametrize("classes", some([False, True], {False}))
def test_a_run_ends_after_the_second_slow_round_in_a_row(classes, monkeypatch):
    """The criterion uses evidence and columns from the history, and holds only at the end."""
    monkeypatch.setitem(STRATEGIES, "working-set", EffortEndsSmallFits)
    rng = default_rng(0)
    X = rng.uniform(-2, 2, size=(1500, 2))
    y = np.sin(4 * X[:, 0]) * X[:, 1] + 0.1 * rng.normal(size=1500)
    asked = {"gamma": 2.0, "partition_size": 40, "random_state": 0, "effort": "quick"}
    plain = {"residual": "none", "noise": "constant", "reference": "none"}
    model = RVMClassifier(**asked) if classes else RVMRegressor(**asked, **plain)
    model.fit(X, y > 0 if classes else y)
    rounds = [line for line in model.history_ if line["kind"] == "round"]
    work = 1.0
    highest = -np.inf
    kept = 0
    slow = []
    for line in rounds:
        columns = line["candidates"]
        new = columns - kept
        before = work
        work = work + len(X) * (2 * (columns - new) * new + new**2) + 16 * columns**3
        gain = (line["log_evidence"] - highest) / len(X)
        unit = -highest / len(X) if classes else 1.0
        slow.append(gain < 0.2 * unit * log2(work / before))
        highest = max(highest, line["log_evidence"])
        kept = line["vectors"]
    pairs = [a and b for a, b in pairwise(slow)]
    assert pairs[-1]
    assert not any(pairs[:-1])
