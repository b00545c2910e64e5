"""Training rows carry the fold in the codes of embedded features; it depends only on the row."""

from dataclasses import replace

import numpy as np
from numpy.random import default_rng
from numpy.testing import assert_array_equal

from partirvm.core import LEVEL_FOLDS, Purpose, level_folds
from partirvm.core.sampling import draw_key, uniform
from partirvm.data import as_source, folded
from partirvm.data.folds import FoldedSource
from partirvm.scaling import FeatureMap, Scaling, unfolded_inputs
from partirvm.scaling.levels import FOLD


def rows(n=5000, L=12):
    rng = default_rng(0)
    codes = rng.integers(0, L, n).astype(float)
    codes[::50] = np.nan
    return np.column_stack([rng.normal(size=n), codes, codes]), rng.normal(size=n)


def features(L=12):
    """Return features of which the second is embedded with folds, the third without."""
    tables = ((1, np.zeros((LEVEL_FOLDS + 1, L + 2, 2))), (2, np.zeros((1, L + 2, 1))))
    return replace(FeatureMap.plain(3), tables=tables)


def test_a_row_has_the_same_fold_however_it_is_read():
    """Rows are read in tiles, by number, in parts and in longer data; other columns do not
    change."""
    X, y = rows()
    source = FoldedSource(as_source(X, y), features())
    inputs = np.concatenate([source.tile(number).X for number in range(source.n_tiles)])
    folds = np.floor(8 * uniform(np.arange(len(X)), draw_key(0, Purpose.LEVEL_FOLDS)))
    codes = np.where(np.isnan(X[:, 1]), 13.0, X[:, 1])
    assert_array_equal(inputs[:, 1], codes + (folds + 1) * FOLD)
    assert_array_equal(inputs[:, [0, 2]], X[:, [0, 2]])
    numbers = np.array([4999, 3, 3, 2048, 17])
    assert_array_equal(source.gather(numbers).X, inputs[numbers])
    last = source.n_tiles - 1
    assert_array_equal(source.part([last]).tile(last).X, source.tile(last).X)
    shorter = FoldedSource(as_source(X[:3000], y[:3000]), features())
    assert_array_equal(shorter.gather(np.arange(3000)).X, inputs[:3000])
    scaling = Scaling(np.zeros(4), np.ones(4), np.zeros(1), np.ones(1), features())
    assert_array_equal(unfolded_inputs(inputs, scaling), X)
    assert np.bincount(level_folds(np.arange(8000))).min() > 900


def test_only_sources_with_embedded_features_have_folds():
    X, y = rows(100)
    source = as_source(X, y)
    plain = Scaling(np.zeros(3), np.ones(3), np.zeros(1), np.ones(1))
    assert folded(source, plain) is source
    assert folded(source, replace(plain, features=FeatureMap.plain(3))) is source
    assert isinstance(folded(source, replace(plain, features=features())), FoldedSource)
