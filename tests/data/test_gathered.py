"""Rows gathered in memory: passes over them have the bits of passes over some rows of their source."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partirvm.data import ArraySource
from partirvm.data.arrays import GatheredRows, rows_of_tile
from partirvm.execution import LocalExecutor
from partirvm.kernels import Gaussian
from partirvm.kernels.design import NONE, Design
from partirvm.likelihoods.passes import GramPass, LogisticPass, ResidualPass, SlopePass
from partirvm.types import Scaling

N, TILE = 333, 16
RNG = np.random.default_rng(0)
X, T = RNG.normal(size=(N, 3)), RNG.normal(size=(N, 1))
WEIGHTS = RNG.choice([0.0, 0.5, 2.0], size=N)
SCALING = Scaling(np.zeros(3), np.ones(3), np.zeros(1), np.ones(1))
EMPTY = Design(Gaussian((0.3, 0.2, 0.5)), SCALING, np.zeros((0, 3)), NONE, bias=False, origin=np.zeros(3))
DESIGN = EMPTY.with_centres(X[:7], np.arange(7), bias=True)


def gathered(source, rows):
    return GatheredRows(source, rows, [rows_of_tile(rows, source, number) for number in np.unique(rows // TILE)])


def passes(rows=None):
    mean, covariance = np.linspace(-1, 1, 8)[:, None], np.eye(8)[None]
    return [
        GramPass(EMPTY, DESIGN, np.zeros((0, 1)), rows=rows),
        ResidualPass(DESIGN, mean, rows=rows),
        LogisticPass(DESIGN, mean, "bernoulli", rows=rows),
        SlopePass(DESIGN, mean, covariance, 2.0, rows=rows),
    ]


def bits(statistic):
    """Every array and number of a statistic, but the rows of largest error."""
    if isinstance(statistic, np.ndarray):
        return statistic.tobytes()
    return [bits(np.asarray(value)) for name, value in vars(statistic).items() if name != "largest"]


@pytest.mark.parametrize("weights", [None, WEIGHTS])
@settings(max_examples=30, deadline=None)
@given(chosen=st.sets(st.integers(0, N - 1), min_size=1), parts=st.integers(1, 4))
def test_passes_have_the_same_bits(weights, chosen, parts):
    """Some rows, and some of these, in whichever tiles they are; all rows."""
    source, executor = ArraySource(X, (T > 0).astype(float), weights, tile_rows=TILE), LocalExecutor(2)
    rows = np.array(sorted(chosen))
    held = gathered(source, rows)
    for some, place in (
        (rows, held),
        (rows[::parts], held.only(rows[::parts])),
        (None, gathered(source, np.arange(N))),
    ):
        for expected, found in zip(executor.run(passes(some), source), executor.run(passes(), place), strict=True):
            assert bits(found) == bits(expected)
    executor.close()


@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_rows_are_asked_for_by_their_numbers_in_the_source(weights):
    """In any order."""
    held = gathered(ArraySource(X, T, weights, tile_rows=TILE), np.arange(5, N, 3))
    assert held.n_rows == len(range(5, N, 3))
    asked = [200, 8, 200, 317]
    np.testing.assert_array_equal(held.gather(asked).X, X[asked])
    if weights is None:
        assert held.gather(asked).weights is None
    else:
        np.testing.assert_array_equal(held.gather(asked).weights, weights[asked])
