"""Several passes at once: each has the bits that it has alone, and tiles that passes share are read once."""

from __future__ import annotations

from collections import Counter

import pytest
from backend_cases import PASSES, TILE, bits, rows

from partirvm.data import ArraySource
from partirvm.execution import LocalExecutor
from partirvm.execution.dask import DaskExecutor
from partirvm.execution.tasks import grouped

BATCHES = {
    "of every kind": list(PASSES),
    "in another order": [*reversed(PASSES), "gram", "gram, one tile"],
    "over all tiles": ["gram", "residual, selection", "gram, everywhere", "moments"],
    "over the same two": ["gram, two tiles", "gram, the same two", "gram, diagonal, two tiles"],
    "over one tile each": ["residual, last tile", "gram, one tile", "gram, panels"],
    "of one many times": ["gram, one tile"] * 30,
    "of none": [],
}


@pytest.mark.parametrize("where", ["data", "memory"])
@pytest.mark.parametrize("batch", BATCHES)
def test_a_pass_in_a_batch_has_the_bits_that_it_has_alone(executor, reference, request, batch, where):
    """Whoever shares its tiles, in the order in which the passes were given."""
    names = BATCHES[batch]
    found = executor.run([PASSES[name] for name in names], request.getfixturevalue(where))
    assert [bits(statistic) for statistic in found] == [bits(reference[name]) for name in names]


def test_progress_counts_the_tiles_of_all_groups(executor, data):
    """8 for the two passes over all tiles, 1 for one tile, 2 for the two passes over two."""
    names = ["gram", "gram, one tile", "residual", "gram, two tiles", "gram, the same two"]
    seen = []
    executor.run([PASSES[name] for name in names], data, lambda done, total: seen.append((done, total)))
    assert seen[-1] == (11, 11)
    assert seen == sorted(seen)
    assert {total for _, total in seen} == {11}


class CountedSource(ArraySource):
    """Counts how often each tile is read here, and how often it is in a part that is sent."""

    def __init__(self, *arrays):
        super().__init__(*arrays, tile_rows=TILE)
        self.read, self.sent = Counter(), Counter()

    def tile(self, number):
        self.read[number] += 1
        return super().tile(number)

    def part(self, tiles):
        self.sent.update(tiles)
        return super().part(tiles)


def test_passes_over_the_same_tiles_read_them_once():
    """Three passes over all tiles and three over tiles 2 and 3: a tile is read once for each of the two groups."""
    source = CountedSource(*rows())
    whole, two = ["gram", "residual", "gram, everywhere"], BATCHES["over the same two"]
    names = [name for pair in zip(whole, two, strict=True) for name in pair]
    groups = grouped([PASSES[name] for name in names], source)
    assert [(group.positions, group.tiles) for group in groups] == [((0, 2, 4), tuple(range(8))), ((1, 3, 5), (2, 3))]
    executor = LocalExecutor(2)
    executor.run([PASSES[name] for name in names], source)
    executor.close()
    assert source.read == {number: 2 if number in (2, 3) else 1 for number in range(8)}


def test_rows_of_this_process_are_sent_once(three_workers, reference):
    """Passes over all tiles, over some and ``map`` refer to the same rows on the cluster."""
    source = CountedSource(*rows())
    runner = DaskExecutor(three_workers)
    for names in BATCHES.values():
        found = runner.run([PASSES[name] for name in names], source)
        assert [bits(statistic) for statistic in found] == [bits(reference[name]) for name in names]
    assert [value for _, value in runner.map(first_input, source, range(8))] == rows()[0][::TILE, 0].tolist()
    runner.close()
    assert {number: source.sent[number] for number in range(1, 8)} == dict.fromkeys(range(1, 8), 1)


def first_input(source, number):
    """A function of one tile."""
    return float(source.tile(number).X[0, 0])
