"""A job that learns its kernel, killed while it does so and later on."""

from __future__ import annotations

import signal

import pytest
from fault_cases import assert_same_end, carry, carry_counting, queued, wait_for

from partirvm.jobs.state import Status
from partirvm.options import Request

LEARNS = Request(gamma="learn-per-feature", strategy="working-set", partition_size=40, max_rounds=5)
"""A second of learning, then rounds."""


@pytest.mark.slow
def test_kills_change_no_bits(breeder, data, tmp_path):
    """Twice in the middle of learning, which begins anew, then after a round: the kernel, the model and the history of
    the undisturbed job."""
    whole = queued(data, tmp_path / "whole", LEARNS)
    planned, _ = breeder.call(carry_counting, job=whole.location).end()
    assert whole.state().status is Status.DONE
    history = whole.state().history
    assert history[0]["kind"] == "kernel"
    store = queued(data, tmp_path / "job", LEARNS)
    for after, things in ((None, 4 * planned // 10), (None, 8 * planned // 10), (3, 1)):
        child = breeder.call(carry, job=store.location, halt=[after, things, signal.SIGKILL])
        wait_for(lambda child=child: child.gone, "the end of a process")
        assert not child.out.exists(), child.out.read_text()
        assert len(store.state().history) == (after or 0)
    breeder.call(carry, job=store.location).end()
    assert_same_end(store, whole)
    assert store.model().design.kernel == whole.model().design.kernel
    assert store.state().history[0]["text"] == history[0]["text"]
