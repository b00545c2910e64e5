"""kill −9 at random moments of a process that does nothing but write."""

from __future__ import annotations

import os
import random
import signal
import time

import numpy as np
import pytest
from processes import running
from waiting import wait_for

from partirvm.jobs.store import CHECKPOINTS, JobStore

KILLS = 24

MOTHER = """
import os, signal, zarr
import partirvm.jobs.checkpoint, partirvm.model.files, fsspec.implementations.local
signal.signal(signal.SIGCHLD, signal.SIG_IGN)

def write(place, acknowledged):
    store = JobStore(place)
    store.acquire(patience=0.0)  # LeaseError if it had to wait for the dead
    found = store.restore()
    n = 0 if found is None else found.value["n"]
    done = os.open(acknowledged, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(done, f"{n}\\n".encode())
    store.record({"event": "started", "n": n})
    while True:
        n += 1
        store.save(model(n))
        store.record({"event": "round", "n": n})
        small = tuple(np.arange(k) for k in range(5))
        store.checkpoint({"n": n, "big": np.full(30_000, float(n)), "small": small}, n=n)
        os.write(done, f"{n}\\n".encode())

say("ready")
for line in sys.stdin:
    pid = os.fork()
    if not pid:
        try:
            write(*line.split())
        finally:
            os._exit(1)
    say(pid)
"""


@pytest.fixture(scope="module")
def mother():
    """Forks writers, so that not each of them has to import everything."""
    with running(MOTHER, stdin=True) as process:
        assert process.stdout.readline() == "ready\n"
        yield process


def test_a_killed_writer_leaves_what_was_whole(mother, tmp_path):
    """After each of many kills: every event, the model and the checkpoint of the last round that was acknowledged, or
    of the one in progress; the next writer goes on at once, and repeats no more than that round."""
    place, acknowledged = tmp_path / "job", tmp_path / "acknowledged"
    store = JobStore.create(place, {})
    acknowledged.touch()
    rng = random.Random(0)
    pointers = 0
    for kill in range(KILLS):
        mother.stdin.write(f"{place} {acknowledged}\n")
        mother.stdin.flush()
        pid = int(mother.stdout.readline())
        starts = kill + 1

        def begun(starts=starts):
            return sum(event["event"] == "started" for event in store.events()) == starts

        wait_for(begun, "a writer that takes over from the dead at once")
        if kill % 4:
            time.sleep(rng.uniform(0, 0.12))
        else:
            before = len(acknowledged.read_text().split())
            wait_for(lambda before=before: len(acknowledged.read_text().split()) > before)
            time.sleep(rng.uniform(0, 0.03))
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: store.holder().process.dead)
        done = int((acknowledged.read_text().split() or ["0"])[-1])
        found = JobStore(place).restore()
        n = 0 if found is None else found.value["n"]
        assert n in (done, done + 1)
        if found is not None:
            assert found.damaged == ()
            assert found.about["n"] == n
            np.testing.assert_array_equal(found.value["big"], np.full(30_000, float(n)))
        events = store.events()
        rounds = [event["n"] for event in events if event["event"] == "round"]
        assert not rounds or n <= rounds[-1] <= n + 1
        if store.has_model():
            assert store.model().n_rows == 9
        pointers = max(pointers, n)
        groups = [path for path in (place / "checkpoints").iterdir() if path.is_dir()] if n else []
        assert len(groups) <= CHECKPOINTS + 2, "what killed writers left is cleared away"
    assert pointers >= KILLS // 4, "the writers did come to write"
    starts = [event["n"] for event in store.events() if event["event"] == "started"]
    assert len(starts) == KILLS
    assert starts == sorted(starts)
