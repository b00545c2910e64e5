"""Rows that came later, as a strategy sees them: which join, in what order, and what is asked of those before."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from class_simulator import ClassSimulator, groups
from simulator import Simulator, wave

from partirvm.likelihoods.classes import Newton
from partirvm.likelihoods.passes import GramPass
from partirvm.strategies.fit_rows import joined, partition
from partirvm.strategies.problem import Gather, Options, Save
from partirvm.strategies.rounds import with_appended_rows

OPTIONS = Options(partition_size=15, selection="order", max_columns=100)
BEFORE, AFTER = 63, 110


def simulators(classes):
    """All rows, and those before; both see the target as those before do."""
    if classes:
        X, y = groups(AFTER, classes)
        kind = {"n_classes": classes, "likelihood": "bernoulli" if classes == 2 else "multinomial"}
        return [ClassSimulator(X[:n], y[:n], gamma=0.5, **kind) for n in (AFTER, BEFORE)]
    X, y = wave(AFTER)
    both = [Simulator(X[:n], y[:n], gamma=0.5) for n in (AFTER, BEFORE)]
    both[0].t = both[0].t + both[0].scaling.t_shift - both[1].scaling.t_shift
    return both


def drive(simulator, rounds, state=None):
    """Go on for so many saved models, or to the end; the state after the last of them, and all instructions."""
    simulator.run("incremental", OPTIONS, state=state)
    state, turns = simulator.lines[:rounds][-1]
    return state, [each for turn in simulator.turns[:turns] for each in turn]


@pytest.mark.parametrize("classes", [0, 2])
@pytest.mark.parametrize("rounds", [2, 99])
def test_in_order_the_rows_that_were_left_join_and_then_the_new_ones(classes, rounds):
    """Once each, whether the run had ended or was ended after two rounds. Of rows that were there the merge asks
    nothing for numbers."""
    every, before = simulators(classes)
    state, first = drive(before, rounds)
    state = with_appended_rows(state, joined(state.problem, OPTIONS, every.problem, OPTIONS.partition_size), OPTIONS)
    kept = state.fit.n_vectors
    _, then = drive(every, 99, state)
    rows = [row for each in (first, then) for i in each if isinstance(i, Gather) for row in i.rows.tolist()]
    assert sorted(rows) == list(range(AFTER))
    assert max(rows[:BEFORE]) < BEFORE
    if classes:
        assert isinstance(then[0], Newton)
        assert then[0].rows is None
    else:
        assert isinstance(then[0], GramPass)
        assert list(then[0].rows) == list(range(BEFORE, AFTER))
    save = next(i for i in then if isinstance(i, Save))
    assert (save.record.rows, save.record.candidates, save.record.kind) == (AFTER, kept, "round")
    assert then[-1].record.kind == "final"


@pytest.mark.parametrize("classes", [0, 3])
def test_lots_make_partitions_of_their_own(classes):
    """Those of a second and a third batch hold each of its rows once, no more than P; beyond the last there is none."""
    every, before = simulators(classes)
    state, _ = drive(before, 1)
    for n, size in ((80, 10), (AFTER, 7)):
        options = replace(OPTIONS, partition_size=size)
        codes = every.problem.codes
        now = replace(every.problem, n_rows=n, codes=None if codes is None else codes[:n])
        state = with_appended_rows(state, joined(state.problem, state.options, now, size), options)
    problem = state.problem
    assert [(batch.stop, batch.partitions) for batch in problem.batches] == [(BEFORE, 5), (80, 2), (AFTER, 5)]
    parts = [partition(problem, state.options, k) for k in range(12)]
    assert not len(partition(problem, state.options, 12))
    batches = ((0, BEFORE), slice(0, 5), 15), ((BEFORE, 80), slice(5, 7), 10), ((80, AFTER), slice(7, 12), 7)
    for batch, few, most in batches:
        assert np.sort(np.concatenate(parts[few])).tolist() == list(range(*batch))
        assert max(map(len, parts[few])) <= most
