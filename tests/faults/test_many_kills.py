"""kill −9 at random moments of fits of every kind, on rows whose last tile is odd: a hundred in all."""

from __future__ import annotations

import random
import time
from functools import cache

import numpy as np
import pytest
from fault_cases import TILE, assert_same_end, carry, class_rows, count_lines, queued, rows, wait_for

from partirvm import ingest
from partirvm.jobs.state import Status
from partirvm.options import Request

pytestmark = [pytest.mark.bits, pytest.mark.slow, pytest.mark.timeout(900)]

EACH = 10
"""Kills of each kind of fit."""

KINDS = {
    "working-set": ("numbers", Request(gamma=2.0, strategy="working-set", partition_size=40, max_rounds=6)),
    "incremental": ("numbers", Request(gamma=2.0, strategy="incremental", partition_size=250)),
    "split-merge": ("numbers", Request(gamma=2.0, strategy="split-merge", partition_size=250)),
    "kept in memory": (
        "numbers",
        Request(gamma=2.0, strategy="working-set", partition_size=40, max_rounds=6, kernel_store="memory"),
    ),
    "several widths": (
        "numbers",
        Request(gamma=1.0, gamma_multiples=(1.0, 8.0), strategy="working-set", partition_size=40, max_rounds=4),
    ),
    "learned": (
        "numbers",
        Request(gamma="learn-per-feature", strategy="working-set", partition_size=40, max_rounds=4),
    ),
    "two targets": ("targets", Request(gamma=2.0, strategy="working-set", partition_size=40, max_rounds=5)),
    "classes": (
        "classes",
        Request(gamma=2.0, strategy="working-set", partition_size=40, stop_fraction=0.9, max_rounds=4),
    ),
    "classes, one by one": (
        "classes",
        Request(gamma=2.0, strategy="incremental", partition_size=300, multi_class="ovr", tol=1e-3),
    ),
    "classes, split-merge": (
        "classes",
        Request(gamma=2.0, strategy="split-merge", partition_size=300, tol=1e-3),
    ),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """DATA of a kind, with DATA to look at meanwhile: paths of both."""

    @cache
    def made(kind):
        folder = tmp_path_factory.mktemp(kind)
        for name, n, seed, like in (("train", 3 * TILE + 461, 0, None), ("test", 400, 1, folder / "train.zarr")):
            table = class_rows(n, seed) if kind == "classes" else rows(n, seed)
            if kind == "targets":
                table = table[0], np.column_stack([table[1], table[0].prod(axis=1)])
            given = {"classes": True} if kind == "classes" and like is None else {"like": like}
            ingest(table, folder / f"{name}.zarr", tile_rows=TILE, **given)
        return str(folder / "train.zarr"), str(folder / "test.zarr")

    return made


@pytest.mark.parametrize("kind", KINDS)
def test_kills_change_no_bits(breeder, folders, tmp_path, kind):
    """Killed up to four times on its way and resumed at once: model, evidence and history of the undisturbed job."""
    rng = random.Random(kind)
    name, parameters = KINDS[kind]
    data = folders(name)
    whole = queued(data, tmp_path / "whole", parameters)
    breeder.call(carry, job=whole.location).end()
    history = whole.state().history
    assert whole.state().status is Status.DONE
    step, killed, jobs = 2 * history[-1]["seconds"] / len(history), 0, 0
    while killed < EACH:
        jobs += 1
        assert jobs < 4 * EACH, "the runs end before they are killed"
        store = queued(data, tmp_path / f"job{jobs}", parameters)
        for line in sorted(rng.randrange(len(history)) for _ in range(min(4, EACH - killed))):
            child = breeder.call(carry, job=store.location)
            wait_for(lambda child=child, line=line, store=store: count_lines(store.location) >= line or child.gone)
            time.sleep(rng.uniform(0, step))
            killed += child.kill()
        breeder.call(carry, job=store.location).end()
        assert_same_end(store, whole)
