"""kill −9 of a job's process at random moments, and aborts during its work."""

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
    abort_in_pass,
    assert_one_round_repeated,
    assert_same_end,
    assert_usable,
    make_data,
    queued,
    rows,
    work_after_abort,
)
from fault_processes import (
    carry,
    carry_learning_again,
    carry_small,
    carry_until_abort,
    crash,
    kills,
    make_small,
)

from partirvm import jobs
from partirvm.jobs import JobStore
from partirvm.options import Request

KILLS = {"working-set": 4, "incremental": 3, "split-merge": 3, "classes": 2, "pooled": 2}
"""How often each job is killed, spread over its run."""

BY_DEFAULT = {(case, 0) for case in ("working-set", "classes")}


@pytest.mark.bits
@pytest.mark.parametrize(("case", "number"), some(list(product(CASES, range(2))), BY_DEFAULT))
def test_kills_do_not_change_bits(forker, data_of, undisturbed, tmp_path, case, number):
    """Jobs are killed repeatedly and resumed at once, without waiting for leases of dead
    processes."""
    rng = random.Random(f"kills of {case} {number}")
    store = queued(data_of(case), tmp_path / "job", case)
    kills(forker, store, rng, KILLS[case], undisturbed[case].things)
    forker.call(carry, job=store.location, patience=0.0).end()
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
def test_a_kill_at_every_file_operation_does_not_change_bits(forker, tmp_path, kind):
    """Model, history and reason of the resumed job equal those of the undisturbed one."""
    work, request = AT_EACH[kind]
    small = make_data(tmp_path, 500)
    complete = queued(small, tmp_path / "whole", request)
    call = {"work": work.__name__, "folder": complete.location, "job": complete.location}
    total = forker.call(crash, point=0, **call).end()
    kernels = [line["kind"] for line in complete.state().history].count("kernel")
    assert kernels > 1 if work is carry_learning_again else kernels == 0
    for point in range(1, total + 1):
        store = queued(small, tmp_path / f"job{point}", request)
        call |= {"folder": store.location, "job": store.location}
        child = forker.call(crash, point=point, **call)
        child.wait()
        store.state()
        forker.call(work, job=store.location, patience=0.0).end()
        assert_same_end(store, complete)
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
def test_an_abort_ends_the_work_at_the_next_poll(forker, data_of, tmp_path, case, where, after):
    """No tile or step is begun after the poll; the last round's model is usable."""
    store = queued(data_of(case), tmp_path / "job", case)
    folder = tmp_path / "held"
    folder.mkdir()
    place = {"where": where, "after": after}
    child = forker.call(carry_until_abort, job=store.location, folder=str(folder), **place)
    abort_in_pass(store.location, "flat enough", folder, child)
    assert child.end() == "aborted"
    tiles, heard = work_after_abort(folder)
    assert heard == 0
    assert tiles <= 2 * forker.threads
    assert store.has_model() is bool(after)
    if after:
        assert_usable(store, "flat enough")


@pytest.mark.slow
@pytest.mark.bits
@pytest.mark.parametrize(
    "state", some(["sorting", "writing", "cells", "model", "event"], {"cells"})
)
def test_a_kill_around_cells_does_not_change_bits(forker, data, tmp_path, monkeypatch, state):
    """Bits equal those of an in-memory job, readers find a model, and no unreferenced file remains.

    Records of 600 left-out rows and of 10 neighbours take 5.30 MB, records of all rows 5.43 MB.
    """
    make_small(monkeypatch)
    little = 400 * 5_370_000
    much = 8 << 30
    options = {"strategy": "working-set", "partition_size": 20, "max_rounds": 2}
    request = Request(gamma=0.5, residual="local", neighbours=10, **options)
    complete = queued((data[0], None), tmp_path / "whole", replace(request, memory_limit=much))
    forker.call(carry_small, job=complete.location).end()
    events = complete.events()
    last = max(number for number, event in enumerate(events) if "model" in event)
    place, point = {
        "sorting": ("cells/000001-000001/unsorted", 5),
        "writing": ("cells/000001-000001/records/c/3", 1),
        "cells": (events[last]["model"], 1),
        "model": (f"events/.{last + 1:06d}", 1),
        "event": (events[last + 1]["checkpoint"], 1),
    }[state]
    store = queued((data[0], None), tmp_path / "job", replace(request, memory_limit=little))
    crashing = {"work": "carry_small", "folder": f"{store.location}/{place}", "point": point}
    child = forker.call(crash, **crashing, job=store.location)
    child.wait()
    assert not child.out.exists()
    assert len(list(tmp_path.glob("job/cells/*"))) == 1
    shutil.copytree(store.location, tmp_path / "copy")
    child = forker.call(carry_small, job=store.location)
    reads = 0
    while not child.gone:
        reads += np.isfinite(store.model().predict(rows(9, 2)[0])).all()
    child.end()
    assert reads
    fsspec.filesystem("memory").put(store.location, f"/{state}", recursive=True)
    stores = store, complete, JobStore(f"memory://{state}")  # moved to another store
    models = [place.model().predictive for place in stores]
    moments = {np.array(model.moments(rows(200, 2)[0])).tobytes() for model in models}
    assert len(moments) == 1
    for kind in ("cell", "model"):
        named = [event[kind] for event in store.events() if kind in event][-2:]
        assert sorted(f"{kind}s/{path.name}" for path in tmp_path.glob(f"job/{kind}s/*")) == named
    copy = str(tmp_path / "copy")
    jobs.run_job(copy, attempt=jobs.Job(copy).requeue(memory_limit=much).attempt)
    assert len(list(tmp_path.glob("copy/cells/*"))) == (state == "event")
