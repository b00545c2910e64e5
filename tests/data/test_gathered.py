"""Passes over gathered rows have the same bits as passes over a source of just these rows."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.random import default_rng
from numpy.testing import assert_array_equal

from partirvm.data import ArraySource
from partirvm.data.arrays import GatheredRows, rows_of_tile
from partirvm.execution import LocalExecutor
from partirvm.kernels import NONE, Design, Gaussian
from partirvm.kernels.base import PIECE_ROWS
from partirvm.likelihoods import GramPass, LogisticPass, ResidualPass, SlopePass
from partirvm.scaling import Scaling
from partirvm.types import PANEL_ROWS

N = 2600
TILE = 128
RNG = default_rng(0)
X, T = RNG.normal(size=(N, 3)), RNG.normal(size=(N, 1))
WEIGHTS = RNG.choice([0.0, 0.5, 2.0], size=N)
SCALING = Scaling(np.zeros(3), np.ones(3), np.zeros(1), np.ones(1))
EMPTY = Design(
    Gaussian((0.3, 0.2, 0.5)), SCALING, np.zeros((0, 3)), NONE, bias=False, origin=np.zeros(3)
)
DESIGN = replace(EMPTY.with_centres(X[:7], np.arange(7)), bias=True)


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
    """Return the bytes of each array in a statistic, except the rows with the largest error."""
    if isinstance(statistic, np.ndarray):
        return statistic.tobytes()
    return [bits(np.asarray(value)) for name, value in vars(statistic).items() if name != "largest"]


@pytest.mark.parametrize("weights", [None, WEIGHTS])
@settings(max_examples=4, deadline=None)
@given(chosen=st.sets(st.integers(0, N - 1), min_size=8), parts=st.integers(1, 4))
def test_passes_over_gathered_rows_have_the_same_bits(weights, chosen, parts):
    """This holds for any subset, a subset of it, and all rows."""
    source = ArraySource(X, (T > 0).astype(float), weights, tile_rows=TILE)
    executor = LocalExecutor(2)
    rows = np.array(sorted(chosen))
    gathered_rows = gathered(source, rows)
    all_rows = np.arange(N)
    for subset, part in (
        (rows, gathered_rows),
        (rows[::parts], gathered_rows.only(rows[::parts])),
        (all_rows, gathered(source, all_rows)),
    ):
        part_weights = None if weights is None else weights[subset]
        assume(part_weights is None or part_weights.any())
        alone = ArraySource(
            X[subset], (T[subset] > 0).astype(float), part_weights, tile_rows=part.tile_rows
        )
        for expected, result in zip(
            executor.run(passes(), alone), executor.run(passes(), part), strict=True
        ):
            assert bits(result) == bits(expected)
    executor.close()


@pytest.mark.parametrize("n", [127, 3000, 4096, 6145, 8000])
def test_gathered_rows_form_an_even_number_of_tiles(n):
    """Tiles have at most ``PANEL_ROWS`` rows, and two threads share the work unless rows are
    few."""
    source = ArraySource(np.arange(n)[:, None], np.zeros(n))
    rows = GatheredRows(source, np.arange(n), [source.gather(np.arange(n))])
    assert rows.tile_rows <= PANEL_ROWS
    assert rows.n_tiles % 2 == 0 or n < PIECE_ROWS
    values = np.concatenate([rows.tile(number).X[:, 0] for number in range(rows.n_tiles)])
    assert_array_equal(values, np.arange(n))


@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_gathered_rows_keep_their_numbers_in_the_source(weights):
    rows = gathered(ArraySource(X, T, weights, tile_rows=TILE), np.arange(5, N, 3))
    assert rows.n_rows == len(range(5, N, 3))
    numbers = [200, 8, 200, 317]
    assert_array_equal(rows.gather(numbers).X, X[numbers])
    if weights is None:
        assert rows.gather(numbers).weights is None
    else:
        assert_array_equal(rows.gather(numbers).weights, weights[numbers])
