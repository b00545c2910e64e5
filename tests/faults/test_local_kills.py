"""kill −9 of the process that carries a job out, at random moments; the next one goes on at once."""

from __future__ import annotations

import random
from itertools import product

import pytest
from by_default import some
from fault_cases import CASES, assert_one_round_repeated, assert_same_end, carry, kills, queued

pytestmark = pytest.mark.bits

KILLS = {"working-set": 8, "incremental": 6, "split-merge": 6}
"""Twenty in all, spread over the run: each job is killed three or four times on its way."""


@pytest.mark.parametrize(("case", "number"), some(list(product(CASES, range(2))), {("working-set", 0)}))
def test_twenty_kills_change_no_bits(breeder, data, undisturbed, tmp_path, case, number):
    """Killed again and again and resumed at once: model, evidence and history of the undisturbed job, to the bit; at
    most one round done again each time; nobody waits for a lease of the dead."""
    rng = random.Random(f"kills of {case} {number}")
    store = queued(data, tmp_path / "job", case)
    kills(breeder, store, rng, KILLS[case] // 2, undisturbed[case].things)
    breeder.call(carry, job=store.location, patience=0.0).end()
    assert_same_end(store, undisturbed[case])
    assert_one_round_repeated(store.events())
