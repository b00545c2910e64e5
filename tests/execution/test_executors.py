"""One suite for every executor: statistics against dense formulas, and the same bits from threads and from a cluster.

The cluster is a real one: processes over TCP, with one worker of one thread and with three.
"""

from __future__ import annotations

import numpy as np
import pytest
from backend_cases import KEPT, NEW, OFFSET, PASSES, TILE, N, bits, expected, field, first_row, rows

from partirvm.data import ingest
from partirvm.errors import MissingDataError
from partirvm.execution.dask import DaskExecutor
from partirvm.execution.tasks import tiles_of
from partirvm.likelihoods.passes import GramPass


@pytest.mark.parametrize("name", PASSES)
def test_a_pass_has_the_statistic_of_its_formula(reference, name):
    """Tiles, panels, weights and offsets together give what the whole design gives."""
    found = reference[name]
    for path, value in expected(PASSES[name]).items():
        np.testing.assert_allclose(field(found, path), value, rtol=1e-9, atol=1e-9, err_msg=path)


@pytest.mark.parametrize("name", PASSES)
@pytest.mark.parametrize("where", ["data", "memory"])
def test_every_executor_gives_the_same_bits(executor, reference, request, name, where):
    """One thread, three, one worker, three workers; rows on disk and rows in this process."""
    assert bits(executor.run([PASSES[name]], request.getfixturevalue(where))[0]) == bits(reference[name])


def test_map_keeps_the_order_of_the_tiles(executor, data):
    """Whoever finishes first: results come in the order asked for."""
    X, _, _ = rows()
    asked = [3, 0, 7, 1]
    found = list(executor.map(first_row, data, asked, None))
    assert found == [(number, X[number * TILE, 0]) for number in asked]


def test_progress_may_leave_the_pass(executor, data):
    """An exception of the watcher ends the pass; the executor goes on to serve the next."""

    class Enough(Exception):
        pass

    def progress(done, total):
        raise Enough

    with pytest.raises(Enough):
        executor.run([PASSES["gram"]], data, progress)
    assert executor.run([PASSES["residual"]], data)[0].n == (rows()[2] > 0).sum()


def test_an_error_in_a_task_arrives_as_itself(executor, tmp_path):
    """A chunk that is gone: MissingDataError that names it, from a thread as from a worker."""
    source = ingest(rows()[:2], tmp_path / "damaged.zarr", tile_rows=TILE, shuffle=None)
    (tmp_path / "damaged.zarr" / "X" / "c" / "5" / "0").unlink()
    with pytest.raises(MissingDataError, match="chunk 5"):
        executor.run([PASSES["residual"]], source)
    with pytest.raises(MissingDataError, match="chunk 5"):
        list(executor.map(first_row, source, [5], None))


def test_the_machine_is_described(executor):
    """Threads, workers, bytes in use and the limit, or the limit given."""
    machine = executor.machine(None)
    assert machine.threads >= 1
    assert 10 << 20 < machine.base < machine.limit
    assert executor.machine(123 << 20).limit == 123 << 20
    if isinstance(executor, DaskExecutor):
        assert machine.threads == 1
        assert machine.limit == int(0.7 * (2 << 30))


def test_a_pass_reads_the_tiles_that_hold_its_rows(data):
    """All of them without rows, else each that holds one, once and in order."""
    for rows_, tiles in [
        (None, list(range(8))),
        ([0], [0]),
        ([TILE - 1, TILE], [0, 1]),
        ([5, 6, 7 * TILE, N - 1], [0, 7]),
        (np.arange(2 * TILE, 4 * TILE), [2, 3]),
    ]:
        wanted = None if rows_ is None else np.array(rows_)
        assert tiles_of(GramPass(KEPT, NEW, OFFSET, rows=wanted), data) == tiles
