"""Statistics of rows that are gone, against the rows that they stand for."""

from __future__ import annotations

import naive
import numpy as np

from partirvm.core.past import PastStatistics
from partirvm.core.residuals import LargestErrors, ResidualStatistics
from partirvm.core.statistics import GramBlock, GramStatistics

K, T = 4, 2


def test_it_is_the_statistic_of_rows_at_which_new_columns_are_made_of_old_ones(rng):
    """ΦᵀWΦ, ΦᵀW(t − Φm) and energies of the design Φ_K B, densely: as a pass, on trial, as a residual, passed on."""
    Phi, t, w = rng.normal(size=(30, K)), rng.normal(size=(30, T)), rng.choice([0.0, 1.0, 2.5], 30)
    labels = np.arange(K)
    statistics = GramStatistics.empty("b", T).extend(labels, GramBlock.of(np.zeros((30, 0)), Phi, t, w), "b")
    past = PastStatistics(statistics)
    kept, new = np.eye(K)[:, [2, 0, 3]], rng.normal(size=(K, 5))
    offset = rng.normal(size=(3, T))
    expected = GramBlock.of(Phi @ kept, Phi @ new, t - Phi @ kept @ offset, w)
    for found in (past.block(kept, new, offset), past.cross(kept, new, offset)):
        np.testing.assert_allclose(found.cross, expected.cross)
        np.testing.assert_allclose(found.projection, expected.projection)
        assert found.n == (w > 0).sum()
    block = past.block(kept, new, offset)
    np.testing.assert_allclose(block.gram, naive.gram(Phi @ new, t, w)[0])
    np.testing.assert_allclose(block.sum_squares, expected.sum_squares)
    np.testing.assert_allclose(block.log_weight, np.log(w[w > 0]).sum())

    mean = rng.normal(size=(5, T))
    nothing = LargestErrors(0, np.zeros(0), np.zeros(0, np.int64), np.zeros((0, 1)))
    here = ResidualStatistics(7, np.ones(T), np.ones((5, T)), nothing)
    both, r = past.residual(new, mean, here), t - Phi @ new @ mean
    np.testing.assert_allclose(both.sum_squares, 1 + w @ r**2)
    np.testing.assert_allclose(both.projection, 1 + (Phi @ new).T @ (w[:, None] * r))
    assert both.n == 7 + (w > 0).sum()

    later = rng.normal(size=(5, 2))
    passed_on = past.through(new, np.arange(5)).block(np.zeros((5, 0)), later, np.zeros((0, T)))
    np.testing.assert_allclose(passed_on.gram, naive.gram(Phi @ new @ later, t, w)[0])
    np.testing.assert_allclose(passed_on.projection, naive.gram(Phi @ new @ later, t, w)[1])


def test_statistics_of_more_rows_are_merged(rng):
    """Those of both, with the offset of the first."""
    Phi, t, m = rng.normal(size=(30, K)), rng.normal(size=(30, T)), rng.normal(size=(K, T))
    labels = np.arange(K)

    def of(rows, offset):
        block = GramBlock.of(np.zeros((len(rows), 0)), Phi[rows], t[rows] - Phi[rows] @ offset)
        return (
            GramStatistics.empty("b", T).extend(labels, block, "b").rebase(offset, block.projection, block.sum_squares)
        )

    merged = of(np.arange(20), m).merge(of(np.arange(20, 30), np.zeros((K, T))))
    whole = of(np.arange(30), m)
    for name in ("gram", "projection", "sum_squares", "offset"):
        np.testing.assert_allclose(getattr(merged, name), getattr(whole, name), atol=1e-12)
    assert merged.n == 30
