"""A fit of classes that is killed, or aborted between its Newton passes."""

from __future__ import annotations

import random

import pytest
from by_default import some
from fault_cases import (
    CLASSES,
    aborted,
    assert_one_round_repeated,
    assert_same_end,
    assert_usable,
    begun_later,
    carry,
    carry_counting,
    carry_until_asked,
    kills,
    make_class_data,
    queued,
)

from partirvm.jobs.state import Status

pytestmark = pytest.mark.bits

KILLS = 2


@pytest.fixture(scope="module")
def class_data(tmp_path_factory):
    """DATA of three classes to train on, DATA to look at meanwhile."""
    return make_class_data(tmp_path_factory.mktemp("classes"))


def test_kills_change_no_bits(breeder, class_data, tmp_path):
    """Killed again and again and resumed at once: the weights, Σ and history of the undisturbed job, to the bit."""
    whole = queued(class_data, tmp_path / "whole", CLASSES)
    _, things = breeder.call(carry_counting, job=whole.location).end()
    store = queued(class_data, tmp_path / "job", CLASSES)
    kills(breeder, store, random.Random("kills of classes"), KILLS, things)
    breeder.call(carry, job=store.location, patience=0.0).end()
    assert_same_end(store, whole)
    assert_one_round_repeated(store.events())


@pytest.mark.parametrize("after", some([1, 0], {1}), ids=["after a round", "before there is a model"])
def test_an_abort_between_newton_passes(breeder, class_data, tmp_path, after):
    """The next look ends the pass; the model of the last round, if there is one, is usable."""
    store = queued(class_data, tmp_path / "job", CLASSES)
    asked = tmp_path / "asked"
    asked.mkdir()
    child = breeder.call(carry_until_asked, job=store.location, folder=str(asked), where="newton", after=after)
    aborted(store.location, "flat enough", asked, child)
    assert child.end() == "aborted"
    assert begun_later(asked)[1] == 0
    assert store.has_model() is bool(after)
    if after:
        assert_usable(store, "flat enough")
    assert (store.state().status, store.state().reason) == (Status.ABORTED, "flat enough")
