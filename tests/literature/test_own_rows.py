"""The literal scheme: every fit has only the rows of its own candidates."""

import numpy as np
import pytest
from by_default import some

from partirvm.errors import UsageError
from partirvm.kernels import Gaussian
from partirvm.literature.own_rows import OwnRowsRegressor
from partirvm.literature.tipping import TippingRegressor

KERNEL = Gaussian(1.0)


def data(rows=200):
    rng = np.random.default_rng(0)
    X = rng.uniform(-5, 5, (rows, 1))
    return X, np.sin(X[:, 0]) + 0.1 * rng.normal(size=rows)


class Recorded(OwnRowsRegressor):
    """Stores the rows and the ending of each fit."""

    def _basic(self, X, y, rows, fewest=0.0):
        ending = super()._basic(X, y, rows, fewest)
        self.__dict__.setdefault("fits", []).append((np.sort(rows), fewest, ending))
        return ending


@pytest.mark.parametrize(
    ("strategy", "fits"),
    some(
        [("split-merge", 7), ("incremental", 4), ("working-set", 4)],
        {("split-merge", 7), ("working-set", 4)},
    ),
)
def test_fits_and_their_rows(strategy, fits):
    """Four partitions of 50: four fits and three merges; a fit each. Intermediate fits end below
    P/2 columns, the last one has no such limit."""
    X, y = data()
    model = Recorded(KERNEL, strategy=strategy, partition_size=50).fit(X, y)
    rows = [fit[0] for fit in model.fits]
    assert len(rows) == fits
    assert len(rows[0]) == 50
    assert max(map(len, rows)) <= 75
    assert [fit[1] for fit in model.fits] == [25.0] * (fits - 1) + [0.0]
    assert all(len(ending.state.labels) < 25 for _, fewest, ending in model.fits if fewest)
    assert set(model.candidates_) <= set(rows[-1])
    np.testing.assert_array_equal(model.relevance_vectors_, X[model.candidates_])
    assert np.sqrt(np.mean((model.predict(X) - np.sin(X[:, 0])) ** 2)) < 0.15


def test_merges_join_pairs_and_an_odd_one_waits():
    """Of five partitions, the fifth joins last."""
    X, y = data(250)
    model = Recorded(KERNEL, strategy="split-merge", partition_size=50, max_iter=40).fit(X, y)
    vectors = [set(ending.state.labels) - {-1} for _, _, ending in model.fits]
    rows = [set(fit[0]) for fit in model.fits]
    assert rows[5] == vectors[0] | vectors[1]
    assert rows[6] == vectors[2] | vectors[3]
    assert rows[7] == vectors[4]
    assert rows[8] == vectors[5] | vectors[6]
    assert rows[9] == vectors[7]
    assert rows[10] == vectors[8] | vectors[9]


def test_working_set_takes_the_largest_errors_of_all_unused_rows():
    X, y = data()
    model = Recorded(KERNEL, partition_size=50, max_rounds=2).fit(X, y)
    first, _, (state, _, _) = model.fits[0]
    vectors = state.labels[state.labels >= 0]
    design = np.hstack(
        [np.ones((200, int(-1 in state.labels))), np.exp(-((X - X[vectors].T) ** 2))]
    )
    errors = np.abs(y - design @ state.posterior.mean)
    unused = np.setdiff1d(np.arange(200), first)
    joining = unused[np.argsort(-errors[unused])[:50]]
    assert set(model.fits[1][0]) == set(vectors) | set(joining)


def test_noise_is_the_residual_of_the_full_set():
    """At convergence σ² = ‖t − Φμ‖² / (N − Σγ) over all rows (or as if a sample were all), while
    the posterior has the rows of the fit."""
    X, y = data()
    for noise_rows, sample in ((None, 200), (80, 80)):
        model = OwnRowsRegressor(KERNEL, partition_size=50, noise_rows=noise_rows, tol=1e-7)
        model.set_params(max_rounds=1, max_iter=20_000).fit(X, y)
        assert model.converged_
        order = np.random.default_rng(0).permutation(200)
        rows = order[:50]
        errors = (y - model.predict(X))[order[:sample]]
        determined = len(model.alpha_) - model.alpha_ @ np.diag(model.covariance_)
        expected = np.mean(errors**2) * 200 / (200 - determined)
        assert model.noise_variance_ == pytest.approx(expected, rel=1e-5)
        design = np.exp(-((X[rows] - model.relevance_vectors_.T) ** 2))
        design = np.hstack([np.ones((50, int(-1 in model.labels_))), design])
        precision = design.T @ design / model.noise_variance_ + np.diag(model.alpha_)
        weights = np.linalg.solve(precision, design.T @ y[rows]) / model.noise_variance_
        np.testing.assert_allclose(model.weights_, weights, rtol=1e-5)


def test_noise_of_the_fits_own_rows_is_the_basic_rvm():
    X, y = data(40)
    model = OwnRowsRegressor(KERNEL, partition_size=40, noise_rows=0, max_iter=10_000).fit(X, y)
    basic = TippingRegressor(KERNEL).fit(X, y)
    np.testing.assert_array_equal(model.labels_, basic.labels_)
    assert model.log_evidence_ == pytest.approx(basic.log_evidence_, rel=1e-8)


def test_noise_every_few_updates():
    """After the first update, σ² changes again with the sixth."""
    X, y = data()
    after_one = OwnRowsRegressor(KERNEL, noise_every=5, max_rounds=1, max_iter=1).fit(X, y)
    after_five = OwnRowsRegressor(KERNEL, noise_every=5, max_rounds=1, max_iter=5).fit(X, y)
    after_six = OwnRowsRegressor(KERNEL, noise_every=5, max_rounds=1, max_iter=6).fit(X, y)
    assert after_five.noise_variance_ == after_one.noise_variance_
    assert after_six.noise_variance_ != after_one.noise_variance_


@pytest.mark.parametrize("strategy", ["split-merge", "incremental", "working-set"])
def test_a_target_without_structure_ends_with_its_mean(strategy):
    """A constant target needs the bias alone, in every fit."""
    X, _ = data(60)
    model = OwnRowsRegressor(KERNEL, strategy=strategy, partition_size=10).fit(X, np.full(60, 3.0))
    np.testing.assert_allclose(model.predict(X), 3.0, rtol=1e-3)


def test_unknown_strategy():
    with pytest.raises(UsageError, match="merge-split"):
        OwnRowsRegressor(strategy="merge-split").fit(*data(10))
