"""The service's ingest takes sizes as people write them."""

import numpy as np
import pytest

from partirvm import ingest
from partirvm.errors import UsageError


def test_a_memory_limit_in_words(tmp_path):
    X = np.arange(20.0).reshape(10, 2)
    data = ingest((X, X[:, 0]), tmp_path / "d.zarr", memory_limit="8GiB")
    assert (data.n_rows, data.n_features) == (10, 2)


def test_a_memory_limit_that_is_none(tmp_path):
    X = np.arange(20.0).reshape(10, 2)
    with pytest.raises(UsageError, match="memory_limit 'lots'"):
        ingest((X, X[:, 0]), tmp_path / "d.zarr", memory_limit="lots")
    assert not list(tmp_path.iterdir())
