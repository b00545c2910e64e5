"""RVM* by block inversion against a dense RVM with one column more for each test row."""

from __future__ import annotations

import naive
import numpy as np
import pytest

from partirvm.core.predictive import ExtraColumns, augmentation


class Problem:
    """N rows of a narrow Gaussian kernel, M centres among them, G test rows among and beyond them."""

    def __init__(self, rng, *, weighted=False, height=1.0):
        X = rng.uniform(-3, 3, size=(60, 2))
        self.t = 2 * np.sin(X[:, 0]) + 0.2 * rng.normal(size=60)
        tested = np.vstack([rng.uniform(-3, 3, size=(20, 2)), X[:3], [[9.0, 9.0], [3.5, 0.0]]])
        self.Phi, self.rows = naive.gaussian(X, X[:12], 0.8), naive.gaussian(tested, X[:12], 0.8)
        self.extra, self.heights = height * naive.gaussian(X, tested, 0.8), np.full(len(tested), height)
        self.alpha, self.beta = rng.uniform(0.1, 3, size=12), 20.0
        self.w = rng.choice([0.0, 0.5, 2.0], size=60) if weighted else None
        self.variance = float(np.var(self.t))
        self.mean, self.Sigma = naive.posterior(self.Phi, self.t, self.alpha, self.beta, self.w)

    def statistics(self, some=slice(None)):
        """Of some of the rows, their columns in two runs."""
        w = None if self.w is None else self.w[some]
        weights = np.ones(len(self.t))[some] if w is None else w
        residual = weights * (self.t - self.Phi @ self.mean)[some]
        found = ExtraColumns.none(self.extra.shape[1], self.Phi.shape[1])
        for columns in (slice(0, 7), slice(7, None)):
            found.add_rows(columns, self.extra[some, columns], self.Phi[some] * weights[:, None], residual, w)
        return found

    def added(self, extra):
        root = np.linalg.cholesky(self.Sigma)
        return augmentation(extra, self.rows, self.heights, root, self.beta, self.variance)


@pytest.mark.parametrize("weighted", [False, True])
def test_an_augmented_prediction_is_that_of_a_dense_rvm_with_one_column_more(rng, weighted):
    """Mean and variance, of each test row by its own RVM with α† = 1/var(t)."""
    p = Problem(rng, weighted=weighted)
    precision = np.full(len(p.heights), 1 / p.variance)
    mean, variance = naive.predict_augmented(p.rows, p.heights, p.extra, p.Phi, p.t, p.alpha, p.beta, precision, p.w)
    plain, spread = naive.predict(p.rows, p.Phi, p.t, p.alpha, p.beta, p.w)
    shift, beyond = p.added(p.statistics())
    np.testing.assert_allclose(plain + shift, mean, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(spread + beyond, variance, rtol=1e-10)
    assert (beyond >= 0).all()


def test_statistics_add_up(rng):
    """Those of all rows are the sum of those of some and of the others."""
    p = Problem(rng, weighted=True)
    both, whole = p.statistics(slice(0, 25)) + p.statistics(slice(25, None)), p.statistics()
    for name in ("sum_squares", "cross", "projection"):
        np.testing.assert_allclose(getattr(both, name), getattr(whole, name), rtol=1e-12, atol=1e-12)
        np.testing.assert_array_equal(getattr(whole[3:5], name), getattr(whole, name)[3:5])


def test_the_unit_of_the_kernel_does_not_matter(rng):
    """An extra column a thousand times as high has a weight a thousand times as small."""
    low, high = Problem(np.random.default_rng(1)), Problem(np.random.default_rng(1), height=1000.0)
    high.rows, high.Phi = low.rows, low.Phi
    for a, b in zip(low.added(low.statistics()), high.added(high.statistics()), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-14)


def test_nothing_is_added_where_nothing_can_be(rng):
    """A target without variance; a column of zeros, as a linear kernel has at the origin."""
    p = Problem(rng)
    p.variance = 0.0
    assert not np.any(p.added(p.statistics()))
    p.variance, p.heights[0], p.extra[:, 0] = 1.0, 0.0, 0.0
    shift, beyond = p.added(p.statistics())
    assert shift[0] == beyond[0] == 0
    assert (beyond[1:] > 0).all()
