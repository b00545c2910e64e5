"""One driver at a time: processes that compete, die, freeze and continue."""

import os
import signal
from dataclasses import asdict, replace

import pytest
from journals import REQUEST
from processes import running
from reference import QUICK, model
from waiting import Clock, wait_for

from partirvm.errors import LeaseError, LeaseLostError, StorageError
from partirvm.jobs import JobStore
from partirvm.storage import Folder, LeaseTimes, Process, lease, open_folder, to_json
from partirvm.storage.lease import holder

HOLD = """
store = JobStore(sys.argv[1])
lease = store.acquire()
store.record({"event": "note", "epoch": lease.epoch})
say("holds", lease.epoch)
"""

SLEEP = HOLD + "time.sleep(600)"


def claim_of(folder, epoch, at, **other):
    """Write a claim of another process, dated by that process's clock."""
    name = f"lease/{epoch:06d}.json"
    claim = {"epoch": epoch, "token": "", **asdict(Process.this()), "mark": 0, **other, "time": at}
    folder.write(name, to_json(name, claim))


@pytest.mark.usefixtures("processes")
def test_the_lease_of_a_dead_process_is_free_at_once(tmp_path):
    """This holds even if its parent has not noticed, or if another process now has its number."""
    clock = Clock()
    store = JobStore.create(tmp_path / "job", REQUEST, times=LeaseTimes(clock=clock))
    with running(SLEEP, tmp_path / "job") as child:
        assert child.stdout.readline() == "holds 1\n"
        with pytest.raises(LeaseError, match=rf"in use by process {child.pid} on "):
            store.acquire()
        assert store.holder().alive()
        child.send_signal(signal.SIGKILL)
        wait_for(lambda: store.holder().process.dead)
        with store.acquire(patience=60) as held:
            assert held.epoch == 2
        assert clock.naps == 0
        claim_of(open_folder(tmp_path / "job"), 3, clock.now, began="12345")
        assert store.holder().gone


@pytest.mark.parametrize("ahead", [0.0, 3600.0])
@pytest.mark.parametrize("change", ["host", "space"])
def test_a_lease_from_another_host_ends_when_it_expires(tmp_path, change, ahead):
    """So does one from this host before a reboot or in another container, whatever its clock
    shows."""
    clock = Clock()
    times = LeaseTimes(beat=0.1, expiry=1.5, clock=clock)
    store = JobStore.create(tmp_path / "job", REQUEST, times=times)
    began = clock.now
    claim_of(
        open_folder(tmp_path / "job"), 1, began + ahead, **{"pid": 2**22 + 1, change: "elsewhere"}
    )
    held = store.acquire()
    assert held.epoch == 2
    held.release()
    assert 1.5 <= clock.now - began < 1.6


@pytest.mark.parametrize("patience", [0.0, 60.0])
@pytest.mark.parametrize("ahead", [-3600.0, 3600.0])
def test_differing_clocks_do_not_end_a_lease_with_heartbeats(tmp_path, ahead, patience):
    """Heartbeats that are an hour old or ahead count as long as they change; then the expiry
    counts."""
    beat = 0.4
    expiry = 1.0
    lives = 20 * 0.4
    beats = [0.0]

    def live(now):
        if beats[-1] + beat <= now - began <= lives:
            beats.append(now - began)
            life = {"beat": len(beats), "time": now + ahead}
            folder.write("lease/000001.beat.json", to_json("lease/000001.beat.json", life))

    clock = Clock(on_nap=live)
    times = LeaseTimes(beat, expiry, clock=clock)
    store = JobStore.create(tmp_path / "job", REQUEST, times=times)
    folder = open_folder(tmp_path / "job")
    began = clock.now
    nap = beat / 10
    claim_of(folder, 1, began + ahead, host="elsewhere")
    if not patience:
        with pytest.raises(LeaseError, match="in use by process"):
            store.acquire()
        assert clock.now - began <= beat + nap + 1e-6
        return
    with store.acquire(patience=patience) as held:
        assert held.epoch == 2
    assert len(beats) > 15
    assert expiry - nap < clock.now - began - beats[-1] <= expiry + nap + 1e-6


@pytest.mark.parametrize("what", ["record", "save", "checkpoint"])
def test_a_frozen_driver_publishes_nothing_after_a_takeover(place, what, monkeypatch):
    """It stops before each of its writes in turn, and continues after another driver has published.

    Everything that counted at the takeover is visible to every reader.
    """
    act = {
        "record": lambda store, n: store.record({"event": "note", "n": n}),
        "save": lambda store, n: (store.save(model(n)), store.record({"event": "note"})),
        "checkpoint": lambda store, n: store.checkpoint({"n": n}),
    }[what]
    counts = 1 if what == "record" else 3  # once its event has been written
    value_of = {
        "record": lambda store: store.events()[-1]["n"],
        "save": lambda store: next(
            n for n in range(9) if (model(n).mean == store.model().mean).all()
        ),
        "checkpoint": lambda store: store.restore()["n"],
    }[what]
    stops = 0
    for at in range(20):
        job = f"{place}{at}"
        old = JobStore.create(job, REQUEST)
        new = JobStore(job)
        old.acquire()
        act(old, 1)
        act(old, 2)
        create = Folder.create
        calls = iter(range(99))
        taken = []

        def sleepy(
            self, name, data, create=create, calls=calls, at=at, taken=taken, new=new, job=job
        ):
            if next(calls) == at // 2:
                if at % 2:
                    create(self, name, data)
                open_folder(job).write("lease/000001.over.json", b"{}")  # as if it had been silent
                taken.append(new.acquire())
                if at % 2:
                    return
            create(self, name, data)

        with monkeypatch.context() as patched:
            patched.setattr(Folder, "create", sleepy)
            try:
                act(old, 3)
                lost = False
            except LeaseLostError:
                lost = True
        if not taken:
            old.lease.release()
            break
        stops += 1
        assert lost
        # complete writes before the other driver's claim count, later ones do not
        assert value_of(JobStore(job)) == value_of(new) == (3 if at == counts else 2)
        act(new, 4)
        assert value_of(JobStore(job)) == value_of(old) == 4
        new.lease.release()
        old.lease._ended.set()
    assert stops == counts + 1


class FullFolder(Folder):
    """A folder on a disk that is full while ``full`` is True; it counts the refused writes."""

    full = True
    refused = 0

    def write(self, name, data):
        if self.full:
            self.refused += 1
            raise StorageError("no space left")
        super().write(name, data)


def test_heartbeats_continue_after_a_full_disk(tmp_path):
    """A heartbeat that cannot be written does not end the thread, and the lease is held."""
    store = JobStore.create(tmp_path / "job", REQUEST, times=QUICK)
    store.folder = FullFolder(store.location, tmp_path / "job")
    with store.acquire() as held:
        wait_for(lambda: store.folder.refused > 3)
        before = store.holder().beat
        store.folder.full = False
        wait_for(lambda: store.holder().beat > before)
        held.check()


def test_a_former_holder_recognises_a_new_lease_with_the_same_epoch(place):
    """The token differs after the folder was removed and created again."""
    store = JobStore.create(place, REQUEST, times=QUICK)
    old = store.acquire()
    open_folder(place).remove()
    with JobStore.create(place, REQUEST, times=QUICK).acquire() as new:
        assert new.epoch == old.epoch
        with pytest.raises(LeaseLostError, match="was taken over or replaced"):
            old.check()
        old.release()
        new.check()
        assert not holder(open_folder(place)).over


def test_without_proc_no_process_counts_as_dead(monkeypatch):
    """On systems other than Linux only the expiry counts."""

    def missing(path):
        raise FileNotFoundError(path)

    lease._space.cache_clear()
    try:
        with monkeypatch.context() as patched:
            patched.setattr(os, "readlink", missing)
            assert Process.this().space == ""
            assert not replace(Process.this(), pid=2**22 + 1).dead
    finally:
        lease._space.cache_clear()
