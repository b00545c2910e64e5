"""``largest-error``: candidates are the unused rows of largest error among all rows (Ben-Shimon & Shmilovici 2006)."""

from __future__ import annotations

import naive
import numpy as np
import pytest
from simulator import Simulator

from partirvm.likelihoods.passes import ResidualPass
from partirvm.strategies.problem import Options

P = 6


@pytest.mark.parametrize(("selection", "share"), [("largest-error", 1.0), ("error", 20 * P / 400)])
def test_candidates_are_the_largest_errors_of_the_rows_searched(selection, share):
    """``error`` searches 20·P of shuffled rows, ``largest-error`` all; both take P unused rows."""
    rng = np.random.default_rng(2)
    X = rng.uniform(-3, 3, (400, 2))
    simulator = Simulator(X, np.sin(2 * X[:, 0]) * X[:, 1] + 0.1 * rng.normal(size=400))
    simulator.run("working-set", Options(partition_size=P, selection=selection, max_rounds=5))
    searches = 0
    for turn, answer in zip(simulator.turns, simulator.answers, strict=False):
        pass_ = turn[0]
        if not (isinstance(pass_, ResidualPass) and pass_.select):
            continue
        searched = simulator.sampled(pass_)
        assert searched.mean() == pytest.approx(share)
        Phi = np.hstack(
            [np.ones((400, int(pass_.design.bias))), naive.gaussian(X, pass_.design.centres, simulator.gamma)]
        )
        error = np.abs(simulator.t[:, 0] - Phi @ pass_.mean[:, 0])
        free = [row for row in np.argsort(-error) if searched[row] and row not in pass_.exclude]
        found = answer[0].largest.rows.tolist()
        assert sorted(found) == sorted(free[:P])
        searches += 1
    assert searches >= 3
