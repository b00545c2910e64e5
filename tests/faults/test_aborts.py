"""When an abort takes effect, in the middle of a pass and of a dense fit, and what it leaves."""

from __future__ import annotations

import pytest
from fault_cases import aborted, assert_usable, begun_later, carry_until_asked, queued

from partirvm.execution.local import POLL
from partirvm.jobs.attempt import POLL_SECONDS


def test_somebody_looks_every_second():
    """Between tiles and dense iterations at most every ``POLL_SECONDS`` seconds; ``POLL`` seconds while one lasts."""
    assert POLL_SECONDS <= 1
    assert POLL <= 1


@pytest.mark.parametrize("where", ["pass", "dense fit"])
def test_an_abort_here(breeder, data, tmp_path, where):
    """The next look ends the work: no tile is begun but those of threads at work, no tile or step is heard of."""
    store = queued(data, tmp_path / "job", "working-set")
    asked = tmp_path / "asked"
    asked.mkdir()
    child = breeder.call(carry_until_asked, job=store.location, folder=str(asked), where=where, after=1)
    aborted(store.location, "flat enough", asked, child)
    assert child.end() == "aborted"
    tiles, heard = begun_later(asked)
    assert heard == 0
    assert tiles <= 2 * breeder.threads
    assert_usable(store, "flat enough")
