"""kill −9 of the process that carries a job out, at random moments; the next one goes on at once."""

from __future__ import annotations

import random
import time

import pytest
from fault_cases import CASES, assert_one_round_repeated, assert_same_end, carry, count_lines, queued, wait_for

pytestmark = pytest.mark.bits

KILLS = {"working-set": 8, "incremental": 6, "split-merge": 6}
"""Twenty in all, spread over the run: each job is killed three or four times on its way."""


def moments(rng, of, case, n_lines, seconds):
    """Increasing (lines of history, seconds after the last of them): where to kill."""
    places = sorted(rng.randrange(n_lines) for _ in range(of))
    return [(line, rng.uniform(0, 2 * seconds / n_lines)) for line in places]


@pytest.mark.parametrize(
    "case", [pytest.param(name, marks=[] if name == "working-set" else [pytest.mark.slow]) for name in CASES]
)
def test_twenty_kills_change_no_bits(breeder, data, undisturbed, tmp_path, case):
    """Killed again and again and resumed at once: model, evidence and history of the undisturbed job, to the bit; at
    most one round done again each time; nobody waits for a lease of the dead."""
    rng = random.Random(f"kills of {case}")
    whole = undisturbed[case].state()
    n_lines, seconds = len(whole.history), whole.history[-1]["seconds"]
    killed = 0
    jobs = 0
    while killed < KILLS[case]:
        jobs += 1
        assert jobs < 20, "the runs end before they are killed"
        store = queued(data, tmp_path / f"job{jobs}", case)
        for line, later in moments(rng, min(4, KILLS[case] - killed), case, n_lines, seconds):
            child = breeder.call(carry, job=store.location)
            wait_for(lambda child=child, line=line, store=store: count_lines(store.location) >= line or child.gone)
            time.sleep(later)
            killed += child.kill()
        began = time.monotonic()
        last = breeder.call(carry, job=store.location)
        starts = len(store.events())
        wait_for(lambda last=last, starts=starts, store=store: len(store.events()) > starts or last.gone)
        assert time.monotonic() - began < 10, "a dead holder keeps nobody waiting"
        last.end()
        assert_same_end(store, undisturbed[case])
        assert_one_round_repeated(store.events())
    assert jobs <= KILLS[case], "most kills hit a run"
