"""Several writers of one DATA: each row is there exactly once, whoever was killed, frozen or late.

``pytest -m slow tests/faults/test_writers.py`` kills and freezes an append at each of its changes
to files.
"""

import signal

import numpy as np
import pytest
from by_default import some
from fault_cases import TILE, rows
from fault_processes import open_slowly, write_rows
from journals import contents
from waiting import stopped, wait_for

from partirvm import ingest
from partirvm.data import ZarrSource
from partirvm.errors import DataError

OLD = 700
"""Rows before the appends: the last tile is shared by old and new rows."""


@pytest.fixture
def data(tmp_path):
    """Return the path of DATA of ``OLD`` rows, alone in a folder."""
    (tmp_path / "data").mkdir()
    ingest(rows(OLD, 0), tmp_path / "data" / "d.zarr", tile_rows=TILE)
    return tmp_path / "data" / "d.zarr"


def expected(*parts):
    """The rows of (n, seed), one after another."""
    return np.concatenate([np.column_stack(rows(n, seed)) for n, seed in parts])


def ended(children):
    """What each process said, as the name of its error or None."""
    return [child.said().get("error") for child in children]


def test_two_appends_at_once(breeder, data, tmp_path):
    """One after the other, or the second is refused by a LeaseError that names the first."""
    for number in range(3):
        before = contents(ZarrSource(data))
        seeds = (2 * number + 1, 2 * number + 2)
        options = {"data": str(data), "gate": str(tmp_path / f"gate{number}"), "append": True}
        children = [breeder.call(write_rows, seed=seed, **options) for seed in seeds]
        failed = ended(children)
        assert set(failed) <= {None, "LeaseError"}
        written = [(150, seed) for seed, error in zip(seeds, failed, strict=True) if error is None]
        assert written, "one of two succeeds"
        found = contents(ZarrSource(data))
        np.testing.assert_array_equal(found[: len(before)], before)
        orders = (expected(*order) for order in (written, written[::-1]))
        assert any(np.array_equal(found[len(before) :], order) for order in orders)
    assert [path.name for path in data.parent.iterdir()] == ["d.zarr"]


def test_a_repeated_append_is_refused(data):
    """Also in another order and by another seed; ``again`` appends the rows; rows of the first
    ingest count."""
    X, y = rows(150, 1)
    ingest((X, y), data, append=True)
    for again in ((X, y), (X[::-1], y[::-1])):
        with pytest.raises(DataError, match=r"150 rows .* appended already.*--again"):
            ingest(again, data, append=True, shuffle=5)
    with pytest.raises(DataError, match=r"700 rows .* already.*--again"):
        ingest(rows(OLD, 0), data, append=True)
    np.testing.assert_array_equal(contents(ZarrSource(data)), expected((OLD, 0), (150, 1)))
    ingest((X, y), data, append=True, again=True)
    np.testing.assert_array_equal(
        contents(ZarrSource(data)), expected((OLD, 0), (150, 1), (150, 1))
    )


CHANGES = 80
"""More changes to files than an append makes; a case beyond the last change proves nothing and is
skipped."""


@pytest.mark.parametrize("number", some(range(1, CHANGES), {5, 50}))
def test_an_append_killed_at_a_change_of_a_file(breeder, data, number):
    """kill -9: the DATA are the old or the new ones at once, and the next append leaves nothing of
    the killed one."""
    child = breeder.call(
        write_rows, data=str(data), seed=1, append=True, halt=[number, signal.SIGKILL]
    )
    wait_for(lambda: child.gone, "the end of a process")
    if child.out.exists():
        pytest.skip("the append has fewer changes")
    found = contents(ZarrSource(data))
    old = expected((OLD, 0))
    new = expected((OLD, 0), (150, 1))
    assert any(np.array_equal(found, rows) for rows in (old, new))
    ingest(rows(40, 2), data, append=True)
    np.testing.assert_array_equal(
        contents(ZarrSource(data)), np.concatenate([found, expected((40, 2))])
    )
    assert [path.name for path in data.parent.iterdir()] == ["d.zarr"]


@pytest.mark.parametrize("number", some(range(1, CHANGES), {50}))
def test_an_append_frozen_at_a_change_of_a_file(breeder, data, number):
    """SIGSTOP until another append has taken over: nothing of the woken one damages rows of the
    other."""
    child = breeder.call(
        write_rows, data=str(data), seed=1, append=True, halt=[number, signal.SIGSTOP]
    )
    wait_for(lambda: child.gone or stopped(child.pid), "the stop")
    if child.gone:
        pytest.skip("the append has fewer changes")
    other = breeder.call(write_rows, data=str(data), seed=2, append=True)
    second = None
    try:
        wait_for(lambda: other.gone, "the other append")
        second = other.said()
    finally:
        child.kill(signal.SIGCONT)
    first = child.said()
    assert second.get("error") in (None, "LeaseError"), second
    assert first.get("error") in (None, "LeaseLostError"), first
    written = [(150, seed) for seed, said in ((1, first), (2, second)) if "error" not in said]
    orders = (expected((OLD, 0), *order) for order in (written, written[::-1]))
    assert any(np.array_equal(contents(ZarrSource(data)), order) for order in orders)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_data_replaced_while_they_are_opened(breeder, data, number):
    """A reader that is slow sees the rows of the new DATA, never old DATA without their appended
    rows."""
    ingest(rows(100, 1), data, append=True)
    child = breeder.call(open_slowly, data=str(data), number=number)
    wait_for(lambda: stopped(child.pid), "the stop")
    ingest(rows(500, 2), data, overwrite=True, tile_rows=TILE)
    child.kill(signal.SIGCONT)
    assert child.end() == 500
