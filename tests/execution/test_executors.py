"""On every executor, statistics equal dense formulas and have the same bits.

The clusters have one and three single-threaded worker processes.
"""

from collections import Counter

import pytest
from backend_cases import PASSES, TILE, bits, expected, field, first_row, rows
from numpy.testing import assert_allclose

from partirvm.data import ArraySource, ingest
from partirvm.errors import MissingDataError
from partirvm.execution import LocalExecutor
from partirvm.execution.dask import DaskExecutor


@pytest.mark.parametrize("name", PASSES)
def test_the_statistic_of_a_pass_follows_its_formula(reference, name):
    """Tiles, panels, weights and offsets sum up to the formula over all rows."""
    statistic = reference[name]
    for path, value in expected(PASSES[name]).items():
        assert_allclose(field(statistic, path), value, rtol=1e-9, atol=1e-9, err_msg=path)


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
def test_a_pass_has_the_same_bits_in_a_batch_and_alone(executor, data, memory, reference, batch):
    """Results are in the given order, for every executor and whichever passes share tiles."""
    names = BATCHES[batch]
    for source in [data, memory][: 1 + isinstance(executor, LocalExecutor)]:
        statistics = executor.run([PASSES[name] for name in names], source)
        assert [bits(statistic) for statistic in statistics] == [
            bits(reference[name]) for name in names
        ]


def test_map_yields_tiles_in_the_given_order(executor, data):
    """The order does not depend on which tile finishes first."""
    X, _, _ = rows()
    numbers = [3, 0, 7, 1]
    values = list(executor.map(first_row, data, numbers, None))
    assert values == [(number, X[number * TILE, 0]) for number in numbers]


def test_an_exception_in_the_watcher_ends_the_pass(executor, data):
    """The executor remains usable."""

    class Enough(Exception):
        pass

    def progress(done, total):
        raise Enough

    with pytest.raises(Enough):
        executor.run([PASSES["gram"]], data, progress)
    assert executor.run([PASSES["moments"]], data)[0].inputs.n == (rows()[2] > 0).sum()


def test_an_error_in_a_task_is_raised_unchanged(executor, tmp_path):
    """A missing chunk is named both by a thread and by a worker."""
    source = ingest(rows()[:2], tmp_path / "damaged.zarr", tile_rows=TILE, shuffle=None)
    next((tmp_path / "damaged.zarr").glob("rows-*/X/c/5/0")).unlink()
    with pytest.raises(MissingDataError, match="chunk 5"):
        executor.run([PASSES["residual"]], source)
    with pytest.raises(MissingDataError, match="chunk 5"):
        list(executor.map(first_row, source, [5], None))


def test_the_machine_reports_threads_memory_and_limit(executor):
    """The limit is the given one, or the limit of the process."""
    machine = executor.machine(None)
    assert machine.threads >= 1
    assert 10 << 20 < machine.base < machine.limit
    assert executor.machine(123 << 20).limit == 123 << 20
    if isinstance(executor, DaskExecutor):
        assert machine.threads == 1
        assert machine.limit == int(0.7 * (2 << 30))


def test_progress_counts_the_tiles_of_all_groups(executor, data):
    """There are 8 for two passes over all tiles, 1 for one tile, 2 for two passes over two
    tiles."""
    names = ["gram", "residual", "gram, one tile", "gram, two tiles", "gram, the same two"]
    calls = []
    passes = [PASSES[name] for name in names]
    executor.run(passes, data, lambda *counts: calls.append(counts))
    assert calls[-1] == (11, 11)
    assert calls == sorted(calls)
    assert {total for _, total in calls} == {11}


class CountedSource(ArraySource):
    """A source that counts how often each tile is read here, and how often the source is sent."""

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
    """Three passes over all tiles and three over tiles 2 and 3 form two groups."""
    source = CountedSource(*rows())
    names = ["gram", "residual", "gram, everywhere", *BATCHES["over the same two"]]
    executor = LocalExecutor(2)
    executor.run([PASSES[name] for name in names], source)
    executor.close()
    assert source.read == {number: 2 if number in (2, 3) else 1 for number in range(8)}


def test_rows_in_this_process_are_sent_once(three_workers, reference):
    """All passes and ``map`` refer to the same rows on the cluster."""
    source = CountedSource(*rows())
    runner = DaskExecutor(three_workers)
    for batch in ("over all tiles", "over the same two", "over one tile each"):
        names = BATCHES[batch]
        statistics = runner.run([PASSES[name] for name in names], source)
        assert [bits(statistic) for statistic in statistics] == [
            bits(reference[name]) for name in names
        ]
    values = [value for _, value in runner.map(first_row, source, range(8), None)]
    assert values == rows()[0][::TILE, 0].tolist()
    runner.close()
    assert [source.sent[number] for number in range(1, 8)] == [1] * 7
