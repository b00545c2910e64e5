"""Split-and-merge and incremental as lists of instructions: levels, pairs, limits, rows."""

from dataclasses import replace
from itertools import pairwise, product

import naive
import numpy as np
import pytest
from by_default import some
from class_simulator import ClassSimulator, groups
from simulator import Simulator, spelled, wave

from partirvm.core import Termination
from partirvm.likelihoods import GramPass, Newton, Solve
from partirvm.spec import Options, Solved
from partirvm.strategies import Gather, Save
from partirvm.strategies.fit_rows import joined, partition
from partirvm.strategies.rounds import with_appended_rows
from partirvm.types import BIAS


def levels(simulator):
    """Return the number of fits on each level before the last fit."""
    found = [line.record.level for line in simulator.parts]
    return [found.count(level) for level in range(max(found) + 1)]


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (60, [2]),
        (50, [3, 1]),
        pytest.param(30, [4, 2], marks=pytest.mark.slow),
        pytest.param(24, [5, 2, 1], marks=pytest.mark.slow),
        pytest.param(20, [6, 3, 1], marks=pytest.mark.slow),
        (13, [10, 5, 2, 1]),
    ],
)
def test_pairs_are_merged_and_an_odd_part_waits_one_level(size, expected):
    """Each level has ⌊half⌋ as many fits as the one before, beginning with ⌈N/P⌉; the last fit
    merges two parts."""
    simulator = Simulator(*wave(120, noise=0.3))
    assert simulator.run("split-merge", Options(size, "order")) is Termination.CONVERGED
    assert levels(simulator) == expected
    assert [save.record.kind for save in simulator.saves].count("final") == 1


@pytest.mark.parametrize("likelihood", some(["full", "sample"], {"full"}))
def test_the_best_part_so_far_is_the_model(likelihood):
    """A part is saved if its evidence per row is higher than that of all earlier parts."""
    simulator = Simulator(*wave(120, noise=0.3))
    simulator.run("split-merge", Options(13, "order", likelihood, sample_rows=50))
    fits = [event.fit for event in simulator.heard_of(Solved)]
    evidence = [fit.log_evidence / fit.n for fit in fits]
    best = [value > max(evidence[:k], default=-np.inf) for k, value in enumerate(evidence)]
    assert [line.model for line in simulator.parts] == best[: len(simulator.parts)]
    assert best[0]
    assert not all(best)
    for line, fit in zip(simulator.parts, fits, strict=False):
        if line.model:
            assert line.fit is fit
            assert line.design.labels.tolist() == [
                label for label in fit.labels.tolist() if label != BIAS
            ]


def test_a_merge_contains_the_vectors_of_both_parts():
    """They are in the order of the rows."""
    simulator = Simulator(*wave(120, noise=0.3))
    simulator.run("split-merge", Options(30, "order"))
    answers = simulator.heard_of(Solved)
    kept = [answer.fit.statistics.labels for answer in answers]
    kept = [labels[labels != BIAS].tolist() for labels in kept]
    merges = [pass_.new.labels.tolist() for pass_ in simulator.passes(GramPass)[4:]]
    assert merges == [kept[0] + kept[1], kept[2] + kept[3], kept[4] + kept[5]]


@pytest.mark.parametrize("likelihood", some(["full", "sample"], {"sample"}))
def test_bits_do_not_depend_on_the_number_of_concurrent_fits(likelihood):
    found = []
    for batch in (1, 1500, 10**6):
        simulator = Simulator(*wave(120, noise=0.3))
        simulator.run("split-merge", Options(20, "order", likelihood, sample_rows=50, batch=batch))
        found.append((spelled(simulator.saves), spelled(simulator.parts)))
        most = max(len(turn) for turn in simulator.turns if isinstance(turn[0], Solve))
        assert most == {1: 1, 1500: 3, 10**6: 6}[batch]
    assert found[0] == found[1] == found[2]


def test_a_limit_drops_the_vectors_with_the_least_evidence():
    """A vector counts by its loss of evidence in its fit (eq. 27)."""
    simulator = Simulator(*wave(100, noise=0.01), gamma=2.0)
    limit = 24
    simulator.run("split-merge", Options(25, "order", max_vectors=limit, stop_fraction=0.0))
    parts = [end.fit for end in simulator.heard_of(Solved)][:2]
    gains = {}
    design = np.hstack([np.ones((100, 1)), naive.gaussian(simulator.X, simulator.X, 2.0)])
    for fit in parts:
        labels = fit.statistics.labels
        Phi = design[:, labels + 1]
        for k in np.flatnonzero(labels != BIAS):
            others = np.delete(np.arange(len(labels)), k)
            s, q = naive.sparsity_quality(
                Phi[:, k], Phi[:, others], simulator.t[:, 0], fit.alpha[others], fit.beta
            )
            gains[int(labels[k])] = naive.best_gain(s, q)
    merged = simulator.passes(GramPass)[4].new.labels
    assert len(gains) > limit, "the example has nothing to leave out"
    assert len(merged) == limit
    left_out = [gains[label] for label in gains if label not in merged]
    assert min(gains[int(label)] for label in merged) >= max(left_out) - 1e-6
    assert simulator.saves[-1].record.dropped >= len(left_out)
    assert simulator.saves[-1].record.vectors <= limit


def test_rows_without_weight_are_not_candidates():
    """A partition of absent rows leaves no part."""
    X, y = wave(80, noise=0.3)
    w = np.ones(80)
    w[20:40] = 0
    simulator = Simulator(X, y, w=w)
    simulator.run("split-merge", Options(20, "order"))
    assert levels(simulator) == [3, 1]
    assert not set(simulator.candidates()) & set(range(20, 40))


@pytest.mark.parametrize("shuffled", [True, False])
def test_incremental_takes_the_partitions_in_order(shuffled):
    """Each of ⌈N/P⌉ steps has a model, whose vectors join the next partition."""
    simulator = Simulator(*wave(110, noise=0.3), shuffled=shuffled)
    assert simulator.run("incremental", Options(25, "order")) is Termination.CONVERGED
    gathers = [gather.rows for gather in simulator.passes(Gather)]
    assert [len(rows) for rows in gathers] == [22] * 5
    assert sorted(np.concatenate(gathers).tolist()) == list(range(110))
    if shuffled:
        assert np.concatenate(gathers).tolist() == list(range(110))
    else:
        assert all(np.ptp(rows) > 40 for rows in gathers), "a meaningful order is broken up"
    records = [save.record for save in simulator.saves]
    assert [record.kind for record in records] == ["round"] * 4 + ["final"]
    for before, record in pairwise(records):
        assert record.candidates == before.vectors + 22


OPTIONS = Options(partition_size=15, selection="order", max_columns=100)
BEFORE = 63
AFTER = 110


def simulators(classes):
    """Return simulators of all rows, and of those before the append, with the target centred as
    before."""
    if classes:
        X, y = groups(AFTER, classes)
        kind = {"n_classes": classes, "likelihood": "bernoulli" if classes == 2 else "multinomial"}
        return [ClassSimulator(X[:n], y[:n], gamma=0.5, **kind) for n in (AFTER, BEFORE)]
    X, y = wave(AFTER)
    both = [Simulator(X[:n], y[:n], gamma=0.5) for n in (AFTER, BEFORE)]
    both[0].t = both[0].t + both[0].scaling.t_shift - both[1].scaling.t_shift
    return both


def drive(simulator, rounds, state=None):
    """Run until this many models are saved, or to the end; return the last state and all
    instructions."""
    simulator.run("incremental", OPTIONS, state=state)
    state, turns = simulator.lines[:rounds][-1]
    return state, [each for turn in simulator.turns[:turns] for each in turn]


@pytest.mark.parametrize(("classes", "rounds"), some(product([0, 2], [2, 99]), {(0, 99), (2, 2)}))
def test_unused_rows_join_before_appended_rows(classes, rounds):
    """Each joins once, whether the run had ended or was stopped after two rounds."""
    every, before = simulators(classes)
    state, first = drive(before, rounds)
    state = with_appended_rows(
        state, joined(state.problem, OPTIONS, every.problem, OPTIONS.partition_size), OPTIONS
    )
    kept = state.fit.n_vectors
    _, then = drive(every, 99, state)
    gathers = [one for one in (*first, *then) if isinstance(one, Gather)]
    rows = np.concatenate([gather.rows for gather in gathers]).tolist()
    assert sorted(rows) == list(range(AFTER))
    assert max(rows[:BEFORE]) < BEFORE
    if classes:
        assert isinstance(then[0], Newton)
        assert then[0].rows is None
    else:
        assert isinstance(then[0], GramPass)
        assert list(then[0].rows) == list(range(BEFORE, AFTER))
    save = next(one for one in then if isinstance(one, Save))
    assert (save.record.rows, save.record.candidates, save.record.kind) == (AFTER, kept, "round")
    assert then[-1].record.kind == "final"


@pytest.mark.parametrize("classes", [0, 2])
def test_each_append_makes_new_partitions(classes):
    """They contain each of its rows once, and at most P rows."""
    every, before = simulators(classes)
    state, _ = drive(before, 1)
    for n, size in ((80, 10), (AFTER, 7)):
        options = replace(OPTIONS, partition_size=size)
        codes = every.problem.codes
        now = replace(every.problem, n_rows=n, codes=None if codes is None else codes[:n])
        state = with_appended_rows(state, joined(state.problem, state.options, now, size), options)
    problem = state.problem
    assert [(batch.stop, batch.partitions) for batch in problem.batches] == [
        (BEFORE, 5),
        (80, 2),
        (AFTER, 5),
    ]
    parts = [partition(problem, state.options, k) for k in range(12)]
    assert not len(partition(problem, state.options, 12))
    batches = (
        ((0, BEFORE), slice(0, 5), 15),
        ((BEFORE, 80), slice(5, 7), 10),
        ((80, AFTER), slice(7, 12), 7),
    )
    for batch, few, most in batches:
        assert np.sort(np.concatenate(parts[few])).tolist() == list(range(*batch))
        assert max(map(len, parts[few])) <= most
