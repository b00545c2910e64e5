"""Columns that join a Gaussian fit."""

from __future__ import annotations

from dataclasses import replace

import naive
import numpy as np
import pytest
from simulator import Simulator, wave

from partirvm.core.statistics import GramBlock, GramStatistics
from partirvm.core.updates import init
from partirvm.likelihoods import GAUSSIAN


@pytest.mark.parametrize("new_rows", [[7], [7, 11, 2], [40, 41]])
def test_those_that_join_have_entered_and_the_others_keep_their_alpha(new_rows):
    """Actions begin without all columns that have entered, and with no other; the statistics are the dense ones."""
    simulator = Simulator(*wave(60))
    kept_rows, alpha, new_rows = np.array([9, 3, 30]), np.array([1e-3, 2.0, 0.5]), np.array(new_rows)
    kept = simulator.empty.with_centres(simulator.X[kept_rows], kept_rows)
    new = simulator.empty.with_centres(simulator.X[new_rows], new_rows)
    Phi, added, t = simulator.phi(kept), simulator.phi(new), simulator.t
    block = GramBlock.of(Phi[:, :0], Phi, t)
    before = init(
        GramStatistics.empty(kept.basis).extend(kept.labels, block, kept.basis), alpha, 50.0, target_variance=1.0
    )

    fit = GAUSSIAN.join(simulator.problem, replace(before, iteration=3), kept, new, GramBlock.of(Phi, added, t))

    labels = fit.statistics.labels
    assert sorted(labels) == sorted([*kept_rows, *new_rows])
    assert fit.entered.tolist() == [label in new_rows for label in labels]
    assert {label: a for label, a, new in zip(labels, fit.alpha, fit.entered, strict=True) if not new} == dict(
        zip(kept_rows, alpha, strict=True)
    )
    design = naive.gaussian(simulator.X, simulator.X[labels], simulator.gamma)
    np.testing.assert_allclose(fit.statistics.gram, design.T @ design, rtol=1e-9, atol=1e-9)
