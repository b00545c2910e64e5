"""Rows gathered in memory: passes over them have the bits of passes over a source that has just
these rows."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from partirvm.data import ArraySource
from partirvm.data.arrays import GatheredRows, rows_of_tile
from partirvm.execution import LocalExecutor
from partirvm.kernels import Gaussian
from partirvm.kernels.base import PIECE_ROWS
from partirvm.kernels.design import NONE, Design
from partirvm.likelihoods.passes import GramPass, LogisticPass, ResidualPass, SlopePass
from partirvm.scaling.maps import Scaling
from partirvm.types import PANEL_ROWS

N = 2600
TILE = 128
RNG = np.random.default_rng(0)
X, T = RNG.normal(size=(N, 3)), RNG.normal(size=(N, 1))
WEIGHTS = RNG.choice([0.0, 0.5, 2.0], size=N)
SCALING = Scaling(np.zeros(3), np.ones(3), np.zeros(1), np.ones(1))
EMPTY = Design(
    Gaussian((0.3, 0.2, 0.5)), SCALING, np.zeros((0, 3)), NONE, bias=False, origin=np.zeros(3)
)
DESIGN = EMPTY.with_centres(X[:7], np.arange(7), bias=True)


def gathered(source, rows):
    return GatheredRows(
        source, rows, [rows_of_tile(rows, source, number) for number in np.unique(rows // TILE)]
    )


def passes():
    mean = np.linspace(-1, 1, 8)[:, None]
    covariance = np.eye(8)[None]
    return [
        GramPass(EMPTY, DESIGN, np.zeros((0, 1))),
        ResidualPass(DESIGN, mean),
        LogisticPass(DESIGN, mean, "bernoulli"),
        SlopePass(DESIGN, mean, covariance, 2.0),
    ]


def bits(statistic):
    """Every array and number of a statistic, but the rows with the largest error."""
    if isinstance(statistic, np.ndarray):
        return statistic.tobytes()
    return [bits(np.asarray(value)) for name, value in vars(statistic).items() if name != "largest"]


@pytest.mark.parametrize("weights", [None, WEIGHTS])
@settings(max_examples=10, deadline=None)
@given(chosen=st.sets(st.integers(0, N - 1), min_size=8), parts=st.integers(1, 4))
def test_passes_have_the_same_bits(weights, chosen, parts):
    """Some rows, and some of these, in whichever tiles they were; all rows."""
    source = ArraySource(X, (T > 0).astype(float), weights, tile_rows=TILE)
    executor = LocalExecutor(2)
    rows = np.array(sorted(chosen))
    held = gathered(source, rows)
    every = np.arange(N)
    for some, place in (
        (rows, held),
        (rows[::parts], held.only(rows[::parts])),
        (every, gathered(source, every)),
    ):
        own = None if weights is None else weights[some]
        assume(own is None or own.any())
        alone = ArraySource(X[some], (T[some] > 0).astype(float), own, tile_rows=place.tile_rows)
        for expected, found in zip(
            executor.run(passes(), alone), executor.run(passes(), place), strict=True
        ):
            assert bits(found) == bits(expected)
    executor.close()


@pytest.mark.parametrize("n", [127, 3000, 4096, 6145, 8000])
def test_two_threads_have_as_much_work_each(n):
    """An even number of tiles of at most ``PANEL_ROWS`` rows, but for less than one piece; together
    all rows."""
    source = ArraySource(np.arange(n)[:, None], np.zeros(n))
    held = GatheredRows(source, np.arange(n), [source.gather(np.arange(n))])
    assert held.tile_rows <= PANEL_ROWS
    assert held.n_tiles % 2 == 0 or n < PIECE_ROWS
    found = np.concatenate([held.tile(number).X[:, 0] for number in range(held.n_tiles)])
    np.testing.assert_array_equal(found, np.arange(n))


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
