"""With several writers of one DATA, each row is stored once, whichever writer is killed or frozen.

``pytest -m slow tests/faults/test_writers.py`` kills and freezes an append at each change.
"""

import signal

import numpy as np
import pytest
from by_default import some
from fault_cases import TILE, rows
from fault_processes import open_slowly, write_rows
from journals import contents
from numpy.testing import assert_array_equal
from waiting import stopped, wait_for

from partirvm import ingest
from partirvm.data import ZarrSource
from partirvm.errors import DataError

OLD = 700
"""Rows before the appends; old and new rows share the last tile."""


@pytest.fixture
def data(tmp_path):
    """Return the place of DATA of ``OLD`` rows, alone in a folder."""
    (tmp_path / "data").mkdir()
    ingest(rows(OLD, 0), tmp_path / "data" / "d.zarr", tile_rows=TILE)
    return tmp_path / "data" / "d.zarr"


def expected(*parts):
    """Return the rows of (n, seed), one after another."""
    return np.concatenate([np.column_stack(rows(n, seed)) for n, seed in parts])


def ended(children):
    """Return the name of each process's error, or None."""
    return [child.result().get("error") for child in children]


def test_two_simultaneous_appends_store_all_rows(forker, data, tmp_path):
    """Alternatively, a LeaseError refuses the second one."""
    for number in range(3):
        before = contents(ZarrSource(data))
        seeds = (2 * number + 1, 2 * number + 2)
        options = {"data": str(data), "gate": str(tmp_path / f"gate{number}"), "append": True}
        children = [forker.call(write_rows, seed=seed, **options) for seed in seeds]
        failed = ended(children)
        assert set(failed) <= {None, "LeaseError"}
        written = [(150, seed) for seed, error in zip(seeds, failed, strict=True) if error is None]
        assert written, "one of two succeeds"
        stored = contents(ZarrSource(data))
        assert_array_equal(stored[: len(before)], before)
        orders = (expected(*order) for order in (written, written[::-1]))
        assert any(np.array_equal(stored[len(before) :], order) for order in orders)
    assert [path.name for path in data.parent.iterdir()] == ["d.zarr"]


def test_a_repeated_append_is_refused(data):
    """Rows may be in any order, and rows of the first ingest count; ``again`` permits the
    append."""
    X, y = rows(150, 1)
    ingest((X, y), data, append=True)
    for again in ((X, y), (X[::-1], y[::-1])):
        with pytest.raises(DataError, match=r"150 rows .* appended already.*--again"):
            ingest(again, data, append=True, shuffle=5)
    with pytest.raises(DataError, match=r"700 rows .* already.*--again"):
        ingest(rows(OLD, 0), data, append=True)
    assert_array_equal(contents(ZarrSource(data)), expected((OLD, 0), (150, 1)))
    ingest((X, y), data, append=True, again=True)
    assert_array_equal(contents(ZarrSource(data)), expected((OLD, 0), (150, 1), (150, 1)))


CHANGES = 80
"""More changes than an append makes; cases beyond its last change are skipped."""


@pytest.mark.parametrize("number", some(range(1, CHANGES), {5, 50}))
def test_a_killed_append_leaves_old_or_new_data(forker, data, number):
    """The next append removes what the killed one left."""
    child = forker.call(
        write_rows, data=str(data), seed=1, append=True, halt=[number, signal.SIGKILL]
    )
    child.wait()
    if child.out.exists():
        pytest.skip("the append has fewer changes")
    stored = contents(ZarrSource(data))
    old = expected((OLD, 0))
    new = expected((OLD, 0), (150, 1))
    assert any(np.array_equal(stored, rows) for rows in (old, new))
    ingest(rows(40, 2), data, append=True)
    assert_array_equal(contents(ZarrSource(data)), np.concatenate([stored, expected((40, 2))]))
    assert [path.name for path in data.parent.iterdir()] == ["d.zarr"]


@pytest.mark.parametrize("number", some(range(1, CHANGES), {50}))
def test_a_frozen_append_does_not_damage_rows_of_another(forker, data, number):
    """Another append takes over before the frozen one continues."""
    child = forker.call(
        write_rows, data=str(data), seed=1, append=True, halt=[number, signal.SIGSTOP]
    )
    wait_for(lambda: child.gone or stopped(child.pid), "the stop")
    if child.gone:
        pytest.skip("the append has fewer changes")
    other = forker.call(write_rows, data=str(data), seed=2, append=True)
    second = None
    try:
        wait_for(lambda: other.gone, "the other append")
        second = other.result()
    finally:
        child.kill(signal.SIGCONT)
    first = child.result()
    assert second.get("error") in (None, "LeaseError"), second
    assert first.get("error") in (None, "LeaseLostError"), first
    written = [(150, seed) for seed, end in ((1, first), (2, second)) if "error" not in end]
    orders = (expected((OLD, 0), *order) for order in (written, written[::-1]))
    assert any(np.array_equal(contents(ZarrSource(data)), order) for order in orders)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_slow_reader_sees_the_new_data(forker, data, number):
    """It never sees old DATA without the appended rows."""
    ingest(rows(100, 1), data, append=True)
    child = forker.call(open_slowly, data=str(data), number=number)
    wait_for(lambda: stopped(child.pid), "the stop")
    ingest(rows(500, 2), data, overwrite=True, tile_rows=TILE)
    child.kill(signal.SIGCONT)
    assert child.end() == 500
