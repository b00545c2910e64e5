"""kill −9 of the process that carries a job out, at random moments, and aborts in the middle of its
work."""

import random
import shutil
from dataclasses import replace
from itertools import product

import fsspec
import numpy as np
import pytest
from by_default import some
from fault_cases import (
    CASES,
    aborted,
    assert_one_round_repeated,
    assert_same_end,
    assert_usable,
    begun_later,
    make_data,
    queued,
    rows,
)
from fault_processes import (
    carry,
    carry_learning_again,
    carry_small,
    carry_until_asked,
    crash,
    kills,
    make_small,
)
from waiting import wait_for

from partirvm import jobs
from partirvm.jobs.store import JobStore
from partirvm.options import Request

KILLS = {"working-set": 4, "incremental": 3, "split-merge": 3, "classes": 2, "pooled": 2}
BY_DEFAULT = {(case, 0) for case in ("working-set", "classes")}
"""Spread over the run: each job is killed so often on its way."""


@pytest.mark.bits
@pytest.mark.parametrize(("case", "number"), some(list(product(CASES, range(2))), BY_DEFAULT))
def test_kills_change_no_bits(breeder, data_of, undisturbed, tmp_path, case, number):
    """Killed again and again and resumed at once: model, evidence and history of the undisturbed
    job, to the bit; at most one round done again each time; nobody waits for a lease of the
    dead."""
    rng = random.Random(f"kills of {case} {number}")
    store = queued(data_of(case), tmp_path / "job", case)
    kills(breeder, store, rng, KILLS[case], undisturbed[case].things)
    breeder.call(carry, job=store.location, patience=0.0).end()
    assert_same_end(store, undisturbed[case])
    assert_one_round_repeated(store.events())


AT_EACH = {
    "incremental": (
        carry,
        Request(gamma=2.0, strategy="incremental", partition_size=150, max_rounds=2),
    ),
    "split-merge": (carry, Request(gamma=2.0, strategy="split-merge", partition_size=150)),
    "learned again": (
        carry_learning_again,
        Request(gamma="learn-per-feature", strategy="working-set", partition_size=30, max_rounds=2),
    ),
}


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", AT_EACH)
def test_a_kill_at_every_file_operation(breeder, tmp_path, kind):
    """Resumed at once, to the model, history and reason of the undisturbed job."""
    (work, asked) = AT_EACH[kind]
    small = make_data(tmp_path, 500)
    whole = queued(small, tmp_path / "whole", asked)
    total = breeder.call(
        crash, work=work.__name__, folder=whole.location, point=0, job=whole.location
    ).end()
    kernels = [line["kind"] for line in whole.state().history].count("kernel")
    assert kernels > 1 if work is carry_learning_again else kernels == 0
    for point in range(1, total + 1):
        store = queued(small, tmp_path / f"job{point}", asked)
        child = breeder.call(
            crash, work=work.__name__, folder=store.location, point=point, job=store.location
        )
        wait_for(lambda child=child: child.gone, "the end of a process")
        store.state()
        breeder.call(work, job=store.location, patience=0.0).end()
        assert_same_end(store, whole)
        store.folder.remove()


@pytest.mark.parametrize(
    ("case", "where", "after"),
    [
        ("working-set", "pass", 1),
        ("working-set", "dense fit", 1),
        ("classes", "newton", 0),
        ("classes", "newton", 1),
    ],
)
def test_an_abort_here(breeder, data_of, tmp_path, case, where, after):
    """The next look ends the work: no tile is begun but those of threads at work, no tile or step
    is heard of; the model of the last round, if there is one, is usable."""
    store = queued(data_of(case), tmp_path / "job", case)
    asked = tmp_path / "asked"
    asked.mkdir()
    child = breeder.call(
        carry_until_asked, job=store.location, folder=str(asked), where=where, after=after
    )
    aborted(store.location, "flat enough", asked, child)
    assert child.end() == "aborted"
    tiles, heard = begun_later(asked)
    assert heard == 0
    assert tiles <= 2 * breeder.threads
    assert store.has_model() is bool(after)
    if after:
        assert_usable(store, "flat enough")


@pytest.mark.slow
@pytest.mark.bits
@pytest.mark.parametrize(
    "state", some(["sorting", "writing", "cells", "model", "event"], {"cells"})
)
def test_a_kill_around_cells_changes_no_bits(breeder, data, tmp_path, monkeypatch, state):
    """Those of a job with room in memory; readers always have a model; only what events name stays
    in the end.

    Of 600 left-out rows, the records take 5.30 MB with those of 10 neighbours, of all rows 5.43 MB.
    """
    make_small(monkeypatch.setattr)
    little = 400 * 5_370_000
    much = 8 << 30
    asked = Request(
        gamma=0.5,
        strategy="working-set",
        partition_size=20,
        max_rounds=2,
        residual="local",
        neighbours=10,
    )
    whole = queued((data[0], None), tmp_path / "whole", replace(asked, memory_limit=much))
    breeder.call(carry_small, job=whole.location).end()
    events = whole.events()
    last = max(number for number, event in enumerate(events) if "model" in event)
    place, point = {
        "sorting": ("cells/000001-000001/unsorted", 5),
        "writing": ("cells/000001-000001/records/c/3", 1),
        "cells": (events[last]["model"], 1),
        "model": (f"events/.{last + 1:06d}", 1),
        "event": (events[last + 1]["checkpoint"], 1),
    }[state]
    store = queued((data[0], None), tmp_path / "job", replace(asked, memory_limit=little))
    how = {"work": "carry_small", "folder": f"{store.location}/{place}", "point": point}
    child = breeder.call(crash, **how, job=store.location)
    wait_for(lambda: child.gone, "the end of a process")
    assert not child.out.exists()
    assert len(list(tmp_path.glob("job/cells/*"))) == 1
    shutil.copytree(store.location, tmp_path / "copy")
    child = breeder.call(carry_small, job=store.location)
    reads = 0
    while not child.gone:
        reads += np.isfinite(store.model().predict(rows(9, 2)[0])).all()
    child.end()
    assert reads
    fsspec.filesystem("memory").put(store.location, f"/{state}", recursive=True)
    stores = store, whole, JobStore(f"memory://{state}")  # moved to another store
    assert (
        len(
            {
                np.array(each.model().predictive.moments(rows(200, 2)[0])).tobytes()
                for each in stores
            }
        )
        == 1
    )
    for kind in ("cell", "model"):
        named = [event[kind] for event in store.events() if kind in event][-2:]
        assert sorted(f"{kind}s/{path.name}" for path in tmp_path.glob(f"job/{kind}s/*")) == named
    jobs.run_job(
        str(tmp_path / "copy"),
        attempt=jobs.Job(str(tmp_path / "copy")).requeue(memory_limit=much).attempt,
    )
    assert len(list(tmp_path.glob("copy/cells/*"))) == (state == "event")
