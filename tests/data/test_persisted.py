"""Rows of Dask collections that are persisted on a cluster are fetched through its client."""

import pickle
from concurrent.futures import ThreadPoolExecutor

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from clusters import cluster
from distributed import Client
from numpy.random import default_rng
from numpy.testing import assert_array_equal
from waiting import PATIENCE

from partirvm.data import ArraySource, ingest

RNG = default_rng(0)
X, NOISE = RNG.uniform(-2, 2, (300, 2)), RNG.normal(size=300)
Y = np.sin(2 * X[:, 0]) + 0.1 * NOISE
WEIGHTS = 1 + np.arange(300) % 3


@pytest.fixture(scope="module")
def private_cluster(processes):
    """Yield a cluster for tests that close clients: clients of one cluster share its event loop."""
    with cluster(1) as client:
        yield client.cluster


@pytest.fixture(params=[True, False], ids=["default client", "a client by itself"])
def client(request, private_cluster):
    with (
        dask.config.set(scheduler=None),
        Client(private_cluster, set_as_default=request.param) as connected,
    ):
        yield connected


def persisted(client):
    """Return persisted X and y, X with a step after ``persist``, and weights not persisted."""
    inputs, targets = client.persist(
        [da.from_array(X / 2, chunks=(90, 1)), da.from_array(Y, chunks=70)]
    )
    return inputs * 2, targets, da.from_array(WEIGHTS, chunks=70)


def source_of(client):
    return ArraySource(*persisted(client), tile_rows=32)


def test_persisted_arrays_are_read_by_several_threads(client):
    source = source_of(client)
    expected = ArraySource(X, Y, WEIGHTS, tile_rows=32)
    assert_array_equal(source.gather([299, 0, 40]).X, X[[299, 0, 40]])
    with ThreadPoolExecutor(3) as pool:
        for number, tile in enumerate(pool.map(source.tile, range(source.n_tiles))):
            assert_array_equal(tile.X, expected.tile(number).X)


def test_a_task_reads_a_part_on_a_single_threaded_cluster(client):
    source = source_of(client)
    for sent in (source.part([3, 4]), source.part([1, 3]).part([3])):
        inputs = client.submit(lambda held: held.tile(3).X, sent, pure=False).result(
            timeout=PATIENCE
        )
        assert_array_equal(inputs, X[96:128])


def test_reading_a_part_needs_no_client(client):
    part = pickle.loads(pickle.dumps(source_of(client).part([2])))
    client.close()
    assert_array_equal(part.tile(2).X, X[64:96])


def test_persisted_arrays_and_frames_are_ingested(client, tmp_path):
    table = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": Y})
    (frame,) = client.persist([dd.from_pandas(table, npartitions=3)])
    inputs, targets, _ = persisted(client)
    sources = [
        frame,
        (frame[["a", "b"]], frame["y"]),
        (inputs, targets),
        (table[["a", "b"]], frame["y"]),
    ]
    for number, source in enumerate(sources):
        target = "y" if number == 0 else None
        data = ingest(source, tmp_path / f"{number}.zarr", target=target, shuffle=None)
        assert_array_equal(data.tile(0).X, X)
        assert_array_equal(data.tile(0).t[:, 0], Y)
