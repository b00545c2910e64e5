"""Watchers of a fit, and hooks into its reads and writes, that stop or hold a process at a given
point."""

import itertools
import json
import os
import sys
from pathlib import Path

from fault_cases import count, note
from waiting import wait_for

from partirvm.fit import Watcher
from partirvm.jobs import open_job


class Halting(Watcher):
    """Sends this process a signal at its n-th action: an opened file, a tile or a dense step.

    Actions are counted from the beginning if ``after`` is None, else from that history line.
    """

    def __init__(self, after, things, number):
        self.left = -1 if after is None else after
        self.things = things
        self.number = number
        self.began = after is None
        self.done = 0
        self._numbers = itertools.count(1)  # is incremented in several threads
        sys.addaudithook(lambda event, arguments: self.count() if event == "open" else None)

    def on_plan(self, plan):
        self.began = True
        self.planned = self.done

    def on_record(self, entry):
        self.left -= 1

    def on_tiles(self, *_):
        self.count()

    def on_step(self, *_):
        self.count()

    def count(self):
        if self.began and self.left <= 0:
            self.done = number = next(self._numbers)
            if number == self.things:
                os.kill(os.getpid(), self.number)


class Waiting(Watcher):
    """Waits after a number of history lines until a file exists; a second file shows that it
    waits."""

    def __init__(self, after, gate):
        self.left, self.gate = after, Path(gate)

    def on_record(self, entry):
        self.left -= 1
        if self.left == 0:
            note(Path(f"{self.gate}.here"))
            wait_for(self.gate.exists, "the gate")


class Meeting(Waiting):
    """Waits after the first line until the given number of other processes have arrived."""

    def __init__(self, path, others):
        self.left, self.path, self.others = 1, Path(path), others

    def on_record(self, entry):
        self.left -= 1
        if self.left == 0:
            wait_for(lambda: count(self.path) >= self.others, "the others")


class UntilAbort(Watcher):
    """Waits during a pass or a dense fit until its job is aborted.

    ``where`` is the name of the pass, "pass" for any, or "dense fit", after a number of history
    lines; "hold" does not wait, but no tile can be read while the file ``hold`` exists.
    """

    def __init__(self, folder, job, where, after):
        self.folder = Path(folder)
        self.job = job
        self.where = where
        self.left = after
        self.aborting = False

    def on_record(self, entry):
        self.left -= 1
        if self.where == "hold" and self.left == 0:
            self._hold()

    def on_tiles(self, name, done, total):
        self._heard(self.where in ("pass", name) and done < total)

    def on_step(self, info):
        self._heard(self.where == "dense fit" and info.iteration > 2)

    def _heard(self, here):
        if self.aborting:
            note(self.folder / "heard")
        elif here and self.left <= 0:
            self._hold()
            handle = open_job(self.job)
            attempt = handle.state().attempt
            wait_for(lambda: handle.store.requested(attempt), "the abort")
            self.aborting = True

    def _hold(self):
        (self.folder / "arm").unlink()
        note(self.folder / "hold")
        note(self.folder / "here")


def arm(folder, job, where, after):
    """Have the next driver that listens in this folder watched by ``UntilAbort``."""
    folder = Path(folder)
    for path in folder.iterdir():
        path.unlink()
    (folder / "arm").write_text(json.dumps({"job": str(job), "where": where, "after": after}))


def set_lease_times(times):
    """Set the times of the leases of this process."""
    from partirvm.storage import lease

    lease.TIMES = times


def listen(folder):
    """Watch drivers of this process as ``arm`` specifies, hold and count tiles, and always poll."""
    from partirvm.data import ZarrSource
    from partirvm.jobs import attempt
    from partirvm.storage import LeaseTimes

    folder = Path(folder)
    original = ZarrSource.tile

    def watcher():
        armed = folder / "arm"
        return UntilAbort(folder, **json.loads(armed.read_text())) if armed.exists() else Watcher()

    def tile(self, number):
        if (folder / "here").exists():
            note(folder / "tiles")
        wait_for(lambda: not (folder / "hold").exists(), "the release of the tiles")
        return original(self, number)

    set_lease_times(LeaseTimes(poll=0.0))
    attempt.Watcher = watcher
    ZarrSource.tile = tile


def halt_at(folder, number, what):
    """Send this process a signal at the n-th change below a folder; return a list with the
    count."""
    changes = [0]
    numbers = itertools.count(1)
    calls = ("os.rename", "os.link", "os.mkdir", "os.remove", "os.rmdir", "os.truncate")

    def heard(event, arguments):
        if event == "open":
            writes = arguments[2] is not None and arguments[2] & (
                os.O_WRONLY | os.O_RDWR | os.O_CREAT
            )
        else:
            writes = event in calls
        if writes and any(str(argument).startswith(str(folder)) for argument in arguments[:2]):
            changes[0] = next(numbers)
            if changes[0] == number:
                os.kill(os.getpid(), what)

    sys.addaudithook(heard)
    return changes
