"""How soon an abort takes effect where tiles and dense iterations take their time, and what it leaves."""

from __future__ import annotations

import time

import pytest
from fault_cases import SLACK, WITHIN, aborted, assert_usable, carry, count_lines, queued, wait_for


@pytest.mark.parametrize("within", WITHIN)
def test_an_abort_here(breeder, data, long_data, tmp_path, within):
    """Within a tile's or an iteration's time and a second, in the middle of a pass and of a dense fit of many."""
    store = queued(long_data if within == "passes" else data, tmp_path / "job", WITHIN[within])
    child = breeder.call(carry, job=store.location)
    wait_for(lambda: count_lines(store.location) >= 1 or child.gone)
    time.sleep(1.5)
    assert aborted(store.location, "flat enough") < 1 + SLACK
    assert child.end() == "aborted"
    assert_usable(store, "flat enough")
