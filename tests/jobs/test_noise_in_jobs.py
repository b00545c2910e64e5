"""Jobs whose noise depends on the inputs: every strategy, stops and resumes, appended rows, the command line."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from partirvm import ingest, jobs, open_job
from partirvm.options import Request
from partirvm.strategies import STRATEGIES

ASKED = Request(gamma=0.4, partition_size=60, noise="local", seed=1)


def rows(n=700, seed=0, low=-3.0):
    """A wave whose noise grows tenfold from left to right, and a feature without effect on either."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.uniform(low, 3, n), rng.uniform(-1, 1, n)])
    return X, np.sin(2 * X[:, 0]) + np.where(X[:, 0] > 0, 0.5, 0.05) * rng.normal(size=n)


LEFT_AND_RIGHT = np.array([[-1.5, 0.0], [1.5, 0.0]])


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    place = tmp_path_factory.mktemp("data") / "rows.zarr"
    ingest(rows(), place, tile_rows=128)
    return str(place)


def request_for(strategy):
    rounds = None if strategy in ("basic", "split-merge") else 3
    partition = "auto" if strategy == "basic" else 60
    return replace(ASKED, strategy=strategy, max_rounds=rounds, partition_size=partition)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_states_it(strategy, data, tmp_path):
    """Three times the deviation at least where the noise is ten times as large; the history counts its vectors."""
    fitted = jobs.fit(data, str(tmp_path / "job"), request_for(strategy))
    _, std = fitted.model.predict(LEFT_AND_RIGHT, return_std=True)
    assert std[1] > 3 * std[0]
    *before, last = fitted.history
    assert last["kind"] == "final"
    assert last["noise_vectors"] == len(fitted.model.design.noise.weights)
    assert all(entry["noise_vectors"] is None for entry in before)
    saved = open_job(tmp_path / "job").model()
    assert saved.digest() == fitted.model.digest()
    np.testing.assert_array_equal(saved.predict(LEFT_AND_RIGHT, return_std=True)[1], std)
