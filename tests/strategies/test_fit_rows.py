"""Which rows a fit sees, and what the heuristic measures."""

from __future__ import annotations

import numpy as np
import pytest
from simulator import Simulator, wave

from partirvm.likelihoods.gaussian import Solve
from partirvm.likelihoods.passes import GramPass
from partirvm.strategies.instructions import Solved
from partirvm.strategies.problem import Options

PARTITIONED = ["split-merge", "incremental", "working-set"]


@pytest.mark.parametrize("shuffled", [True, False])
@pytest.mark.parametrize("name", PARTITIONED)
def test_a_sample_is_the_same_for_every_intermediate_fit(name, shuffled):
    """sample_rows distinct rows; the last fit sees all."""
    simulator = Simulator(*wave(150, noise=0.3), shuffled=shuffled)
    simulator.run(name, Options(20, "random", "sample", sample_rows=60, max_rounds=4))
    passes = simulator.passes(GramPass)
    rows = passes[0].rows
    assert len(np.unique(rows)) == 60
    for pass_ in passes[:-1]:
        np.testing.assert_array_equal(pass_.rows, rows)
    assert passes[-1].rows is None
    assert simulator.passes(Solve)[-1].start.statistics.n == 150
    assert all(solve.start.statistics.n == 60 for solve in simulator.passes(Solve)[:-1])


@pytest.mark.parametrize("name", PARTITIONED)
def test_a_centre_far_from_every_row_of_the_sample(name):
    """Its column is zero there: an intermediate fit that has it prunes it at once, and nothing is divided by it."""
    X, y = wave(300, noise=0.3)
    X[250] = 1e3
    simulator = Simulator(X, y)
    simulator.run(name, Options(50, "random", "sample", sample_rows=100))
    assert 250 in simulator.candidates()
    for solve, answer in zip(simulator.passes(Solve), simulator.heard_of(Solved), strict=True):
        if solve.start.statistics.n == 100 and 250 in solve.start.statistics.labels:
            assert 250 not in answer.fit.statistics.labels


@pytest.mark.parametrize("selection", ["error", "random", "gain"])
def test_a_working_set_ends_where_only_absent_rows_are_left(selection):
    """Rows of no weight are no candidates, and are not drawn again and again."""
    X, y = wave(120, noise=0.3)
    w = np.where(np.arange(120) % 3, 1.0, 0.0)
    simulator = Simulator(X, y, w=w)
    simulator.run("working-set", Options(20, selection))
    assert not set(simulator.candidates()) & set(np.flatnonzero(w == 0).tolist())
