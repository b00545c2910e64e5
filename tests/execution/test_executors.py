"""One suite for every executor: statistics against dense formulas, and the same bits from threads
and from a cluster.

The cluster is a real one: processes over TCP, with one worker of one thread and with three.
"""

from collections import Counter

import numpy as np
import pytest
from backend_cases import PASSES, TILE, bits, expected, field, first_row, rows

from partirvm.data import ArraySource, ingest
from partirvm.errors import MissingDataError
from partirvm.execution import LocalExecutor
from partirvm.execution.dask import DaskExecutor


@pytest.mark.parametrize("name", PASSES)
def test_a_pass_has_the_statistic_of_its_formula(reference, name):
    """Tiles, panels, weights and offsets together give what the whole design gives."""
    found = reference[name]
    for path, value in expected(PASSES[name]).items():
        np.testing.assert_allclose(field(found, path), value, rtol=1e-9, atol=1e-9, err_msg=path)


BATCHES = {
    "of every kind": list(PASSES),
    "in another order": [*reversed(PASSES), "gram", "gram, one tile"],
    "over all tiles": ["gram", "error", "gram, everywhere", "moments"],
    "over the same two": ["gram, two tiles", "gram, the same two", "gram, diagonal, two tiles"],
    "over one tile each": ["error, last tile", "gram, one tile", "gram, panels"],
    "of one many times": ["gram, one tile"] * 30,
    "of none": [],
}


@pytest.mark.parametrize("batch", BATCHES)
def test_a_pass_in_a_batch_has_the_bits_that_it_has_alone(executor, data, memory, reference, batch):
    """Of every executor: whoever shares its tiles, in the order in which they were given. Rows here
    are sent to workers below, in ``test_rows_of_this_process_are_sent_once``."""
    names = BATCHES[batch]
    for source in [data, memory][: 1 + isinstance(executor, LocalExecutor)]:
        found = executor.run([PASSES[name] for name in names], source)
        assert [bits(statistic) for statistic in found] == [bits(reference[name]) for name in names]


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
    assert executor.run([PASSES["moments"]], data)[0].inputs.n == (rows()[2] > 0).sum()


def test_an_error_in_a_task_arrives_as_itself(executor, tmp_path):
    """A chunk that is gone: MissingDataError that names it, from a thread as from a worker."""
    source = ingest(rows()[:2], tmp_path / "damaged.zarr", tile_rows=TILE, shuffle=None)
    next((tmp_path / "damaged.zarr").glob("rows-*/X/c/5/0")).unlink()
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


def test_progress_counts_the_tiles_of_all_groups(executor, data):
    """8 for the two passes over all tiles, 1 for one tile, 2 for the two passes over two."""
    names = ["gram", "residual", "gram, one tile", "gram, two tiles", "gram, the same two"]
    seen = []
    executor.run(
        [PASSES[name] for name in names], data, lambda done, total: seen.append((done, total))
    )
    assert seen[-1] == (11, 11)
    assert seen == sorted(seen)
    assert {total for _, total in seen} == {11}


class CountedSource(ArraySource):
    """Counts how often each tile is read here, and how often it is in a part that is sent."""

    def __init__(self, *arrays):
        super().__init__(*arrays, tile_rows=TILE)
        self.read = Counter()
        self.sent = Counter()

    def tile(self, number):
        self.read[number] += 1
        return super().tile(number)

    def part(self, tiles):
        self.sent.update(tiles)
        return super().part(tiles)


def test_passes_over_the_same_tiles_read_them_once():
    """Three passes over all tiles, then three over tiles 2 and 3: a tile is read once for each of
    the two groups."""
    source = CountedSource(*rows())
    names = ["gram", "residual", "gram, everywhere", *BATCHES["over the same two"]]
    executor = LocalExecutor(2)
    executor.run([PASSES[name] for name in names], source)
    executor.close()
    assert source.read == {number: 2 if number in (2, 3) else 1 for number in range(8)}


def test_rows_of_this_process_are_sent_once(three_workers, reference):
    """Passes over all tiles, over some and ``map`` refer to the same rows on the cluster."""
    source = CountedSource(*rows())
    runner = DaskExecutor(three_workers)
    for names in (
        BATCHES[batch] for batch in ("over all tiles", "over the same two", "over one tile each")
    ):
        found = runner.run([PASSES[name] for name in names], source)
        assert [bits(statistic) for statistic in found] == [bits(reference[name]) for name in names]
    assert [value for _, value in runner.map(first_row, source, range(8), None)] == rows()[0][
        ::TILE, 0
    ].tolist()
    runner.close()
    assert {number: source.sent[number] for number in range(1, 8)} == dict.fromkeys(range(1, 8), 1)
