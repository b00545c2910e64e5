"""One driver at a time: real processes that fight, die, freeze and wake up."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack

import pytest
from processes import running
from reference import QUICK, model
from waiting import Clock, stopped, wait_for

from partirvm.errors import LeaseError, LeaseLostError, PartirvmWarning
from partirvm.jobs.store import JobStore
from partirvm.storage import lease, open_folder
from partirvm.storage.lease import Process, Timing, holder, started
from partirvm.storage.records import to_json

HOLD = """
store = JobStore(sys.argv[1])
lease = store.acquire(timing=QUICK)
store.record({"event": "note", "epoch": lease.epoch})
say("holds", lease.epoch)
"""

SLEEP = HOLD + "time.sleep(600)"


def claim_of(folder, epoch, at, **other):
    """Write the claim of another process at a time of its clock."""
    name = f"lease/{epoch:06d}.json"
    claim = {"epoch": epoch, "token": "", **Process.this().to_json(), "marks": {}, **other, "time": at}
    folder.write(name, to_json(name, claim))


@pytest.fixture
def clock(monkeypatch):
    """The clock of leases in this process; processes of their own have the real one."""
    made = Clock()
    monkeypatch.setattr(lease, "time", made)
    return made


def test_two_processes_fight(tmp_path):
    """Of three that try at once, again and again, each epoch goes to one, and nobody is in while another is."""
    store = JobStore.create(tmp_path / "job", {})
    code = """
store = JobStore(sys.argv[1])
got = 0
end = time.monotonic() + 100
while got < 4 and time.monotonic() < end:
    try:
        lease = store.acquire(patience=0.02)
    except LeaseError:
        continue
    store.record({"event": "enter"})
    store.record({"event": "leave"})
    lease.release()
    got += 1
say(got)
"""
    with ExitStack() as stack:
        children = [stack.enter_context(running(code, tmp_path / "job")) for _ in range(3)]
        assert [child.stdout.readline() for child in children] == ["4\n"] * 3
    events = store.events()
    assert [(event["event"], event["epoch"]) for event in events] == [
        (kind, epoch) for epoch in range(1, 13) for kind in ("enter", "leave")
    ]


def test_a_dead_process_frees_it_at_once(tmp_path, clock):
    """Killed, whether or not its parent has noticed: nobody sleeps before taking it."""
    store = JobStore.create(tmp_path / "job", {})
    with running(SLEEP, tmp_path / "job") as child:
        assert child.stdout.readline() == "holds 1\n"
        with pytest.raises(LeaseError, match=rf"in use by process {child.pid} on "):
            store.acquire()
        assert store.holder().alive()
        child.send_signal(signal.SIGKILL)
        wait_for(lambda: store.holder().process.dead)
        assert child.poll() is None or child.returncode == -9
        with store.acquire(patience=60) as mine:
            assert mine.epoch == 2
        assert clock.naps == 0


def test_a_number_that_was_given_to_another_process(tmp_path):
    """The start time tells."""
    store, folder = JobStore.create(tmp_path / "job", {}), open_folder(tmp_path / "job")
    store.acquire().release()
    claim_of(folder, 2, time.time())
    with pytest.raises(LeaseError):
        store.acquire()
    claim_of(folder, 2, time.time(), began="12345")
    with store.acquire() as lease:
        assert lease.epoch == 3


@pytest.mark.parametrize("ahead", [0.0, 3600.0])
@pytest.mark.parametrize("change", ["host", "space"])
def test_elsewhere_only_silence_tells(tmp_path, clock, change, ahead):
    """Another host, or this one before a reboot or in another container: after the expiry, not before, whatever its
    clock shows; who asks without patience waits too, and is told so."""
    store, began = JobStore.create(tmp_path / "job", {}), clock.now
    claim_of(open_folder(tmp_path / "job"), 1, began + ahead, **{"pid": 1, "began": "1", change: "elsewhere"})
    with pytest.warns(PartirvmWarning, match=r"waiting up to 1\.5 s.*process 1 on ") as said:
        mine = store.acquire(timing=QUICK)
    assert (mine.epoch, len(said)) == (2, 1)
    mine.release()
    assert QUICK.expiry <= clock.now - began < QUICK.expiry + QUICK.beat


@pytest.mark.filterwarnings("ignore:.*waiting up to")
@pytest.mark.parametrize("patience", [0.0, 60.0])
@pytest.mark.parametrize("ahead", [-3600.0, 3600.0])
def test_clocks_that_differ_end_no_lease_of_the_living(tmp_path, monkeypatch, ahead, patience):
    """Its signs of life are an hour old, or an hour ahead, but they go on: who asks without patience is refused at the
    next one. Silent for the expiry, it is gone."""
    store, folder = JobStore.create(tmp_path / "job", {}), open_folder(tmp_path / "job")
    timing, lives, beats = Timing(beat=0.4, expiry=1.0), 20 * 0.4, [0.0]

    def live(now):
        if beats[-1] + timing.beat <= now - began <= lives:
            beats.append(now - began)
            life = {"beat": len(beats), "time": now + ahead}
            folder.write("lease/000001.beat.json", to_json("lease/000001.beat.json", life))

    clock = Clock(on_nap=live)
    monkeypatch.setattr(lease, "time", clock)
    began, nap = clock.now, timing.beat / 10
    claim_of(folder, 1, began + ahead, host="elsewhere")
    if not patience:
        with pytest.raises(LeaseError, match="in use by process"):
            store.acquire(timing=timing)
        assert clock.now - began <= timing.beat + nap + 1e-6
        return
    with store.acquire(timing=timing, patience=patience) as mine:
        assert mine.epoch == 2
    assert len(beats) > 15
    assert timing.expiry - nap < clock.now - began - beats[-1] <= timing.expiry + nap + 1e-6


FROZEN = (
    HOLD
    + """
store.save(model(1)); store.checkpoint({"from": "old"})
say("ready")
while not lease.lost:
    time.sleep(0.01)
for publish in (lambda: store.record({"event": "note"}), lambda: store.save(model(9)), lambda: store.checkpoint(9)):
    try:
        publish()
    except LeaseLostError as error:
        say("fenced", error)
"""
)


def test_a_frozen_holder_is_fenced_off(tmp_path, monkeypatch):
    """SIGSTOP beyond the expiry: taken over on the same host; SIGCONT: it learns of it, and cannot publish."""
    store = JobStore.create(tmp_path / "job", {})
    with running(FROZEN, tmp_path / "job") as child:
        assert child.stdout.readline() == "holds 1\n"
        assert child.stdout.readline() == "ready\n"
        child.send_signal(signal.SIGSTOP)
        wait_for(lambda: stopped(child.pid))
        began = store.holder().last_beat
        clock = Clock(began)
        monkeypatch.setattr(lease, "time", clock)
        with pytest.raises(LeaseError):
            store.acquire(timing=QUICK)
        mine = store.acquire(timing=QUICK, patience=20)
        assert QUICK.expiry <= clock.now - began < QUICK.expiry + QUICK.beat
        assert store.restore().value == {"from": "old"}
        child.send_signal(signal.SIGCONT)
        said = [child.stdout.readline() for _ in range(3)]
        assert all(line.startswith("fenced") and "taken over by process" in line for line in said)
        assert [event["epoch"] for event in store.events()] == [1]
        assert store.restore().value == {"from": "old"}
        assert (store.model().mean == model(1).mean).all()
        store.record({"event": "note"})
        store.save(model(2))
        assert [event["epoch"] for event in store.events()] == [1, 2]
        assert (store.model().mean == model(2).mean).all()
        mine.release()


@pytest.mark.parametrize("what", ["record", "save", "checkpoint"])
def test_wherever_a_publication_is_held_up(place, what):
    """The old driver stops before each of its writes in turn, another takes over and publishes, the old one goes on.

    What the old one writes then never counts, and what counted when it was taken over is there for every reader.
    """
    act = {
        "record": lambda store, n: store.record({"event": "note", "n": n}),
        "save": lambda store, n: store.save(model(n)),
        "checkpoint": lambda store, n: store.checkpoint({"n": n}),
    }[what]
    look = {
        "record": lambda store: [event["n"] for event in store.events()][-1],
        "save": lambda store: next(n for n in range(9) if (model(n).mean == store.model().mean).all()),
        "checkpoint": lambda store: store.restore().value["n"],
    }[what]
    held_up = 0
    for at in range(20):
        job = f"{place}{at}"
        old, new = JobStore.create(job, {}), JobStore(job)
        old.acquire()
        act(old, 1)
        act(old, 2)
        create, calls, taken = old._folder.create, iter(range(99)), []

        def sleepy(name, data, create=create, calls=calls, at=at, taken=taken, new=new, job=job, old=old):
            if next(calls) == at // 2:
                if at % 2:
                    create(name, data)
                open_folder(job).write("lease/000001.over.json", b"{}")  # as if it had been silent
                taken.append(new.acquire())
                if not at % 2:
                    create(name, data)
                return
            create(name, data)

        old._folder.create = sleepy
        try:
            act(old, 3)
            lost = False
        except LeaseLostError:
            lost = True
        if not taken:
            old.lease.release()
            break
        held_up += 1
        assert lost
        # what was whole when the other one claimed counts, what came after does not
        assert look(JobStore(job)) == look(new) == (3 if at % 2 else 2)
        act(new, 4)
        assert look(JobStore(job)) == look(old) == 4
        new.lease.release()
        old.lease._ended.set()
    assert held_up >= 2


def test_a_folder_that_begins_anew_is_another_ones(place):
    """The number of an epoch comes again there: by its token an old holder finds that it is not its own."""
    store = JobStore.create(place, {})
    old = store.acquire(timing=QUICK)
    open_folder(place).remove()
    with JobStore.create(place, {}).acquire(timing=QUICK) as new:
        assert new.epoch == old.epoch
        with pytest.raises(LeaseLostError, match="was replaced while"):
            old.check()
        old.release()
        new.check()
        assert not holder(open_folder(place)).over


@pytest.mark.parametrize("linux", [True, False])
def test_when_processes_started(linux, monkeypatch, tmp_path):
    """Mine is what it was; one that is gone has none. Without /proc only its end is known."""
    if not linux:
        monkeypatch.setattr(lease, "PROC", tmp_path)
    assert started(os.getpid()) == started(os.getpid()) == Process.this().began
    assert bool(started(os.getpid())) == linux
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    seen = Process(Process.this().host, child.pid, started(child.pid), Process.this().space)
    assert not seen.dead
    assert Process.from_json(json.loads(json.dumps(seen.to_json()))) == seen
    child.kill()
    if linux:
        wait_for(lambda: seen.dead)
    child.wait()
    assert seen.dead
    assert started(child.pid) is None
