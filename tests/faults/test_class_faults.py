"""A fit of classes that is killed, or aborted between its Newton passes."""

from __future__ import annotations

import random
import time

import pytest
from fault_cases import (
    CLASSES,
    NEWTON,
    SLACK,
    aborted,
    assert_one_round_repeated,
    assert_same_end,
    assert_usable,
    carry,
    count_lines,
    make_class_data,
    queued,
    wait_for,
)
from test_local_kills import moments

from partirvm.jobs.state import Status

pytestmark = pytest.mark.bits

KILLS = 4


@pytest.fixture(scope="module")
def class_data(tmp_path_factory):
    """DATA of three classes to train on, DATA to look at meanwhile."""
    return make_class_data(tmp_path_factory.mktemp("classes"))


@pytest.fixture(scope="module")
def many_rows(tmp_path_factory):
    """As many of them that a pass takes a while."""
    return make_class_data(tmp_path_factory.mktemp("many"), 20_000)


def test_kills_change_no_bits(breeder, class_data, tmp_path):
    """Killed again and again and resumed at once: the weights, Σ and history of the undisturbed job, to the bit."""
    rng = random.Random("kills of classes")
    whole = queued(class_data, tmp_path / "whole", CLASSES)
    breeder.call(carry, job=whole.location).end()
    lines = whole.state().history
    killed = 0
    for number in range(3 * KILLS):
        store = queued(class_data, tmp_path / f"job{number}", CLASSES)
        for line, later in moments(rng, 3, CLASSES, len(lines), lines[-1]["seconds"]):
            child = breeder.call(carry, job=store.location)
            wait_for(lambda child=child, line=line, store=store: count_lines(store.location) >= line or child.gone)
            time.sleep(later)
            killed += child.kill()
        breeder.call(carry, job=store.location).end()
        assert_same_end(store, whole)
        assert_one_round_repeated(store.events())
        if killed >= KILLS:
            return
    raise AssertionError("the runs end before they are killed")


@pytest.mark.parametrize("usable", [True, False], ids=["after a round", "before there is a model"])
def test_an_abort_between_newton_passes(breeder, many_rows, tmp_path, usable):
    """Within a tile's time and a second; the model of the last round, if there is one, is usable."""
    store = queued(many_rows, tmp_path / "job", NEWTON)
    child = breeder.call(carry, job=store.location)
    if usable:
        wait_for(lambda: count_lines(store.location) >= 1 or child.gone)
    else:
        wait_for(lambda: store.state().plan or child.gone)
    time.sleep(0.7)
    assert aborted(store.location, "flat enough") < 1 + SLACK
    assert child.end() == "aborted"
    assert store.has_model() is usable
    if usable:
        assert_usable(store, "flat enough")
    assert (store.state().status, store.state().reason) == (Status.ABORTED, "flat enough")
