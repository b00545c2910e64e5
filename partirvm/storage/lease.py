"""A lease that allows one writer at a time, using only exclusive creation.

    lease/000003.json         the third holder: process, time, and marks (see below); created exclusively, immutable
    lease/000003.beat.json    rewritten regularly by the holder as a sign of life (heartbeat)
    lease/000003.over.json    the holder has released the lease

The number is the *epoch*. The newest epoch holds the lease; a process takes the lease by creating the next number, in
which only one of several processes can succeed. It may be taken if the holder

- has released it;
- is dead: on the same machine this is known at once from the number and start time of the process
  (``storage.process_identity``); or
- has been silent for 15 s (``EXPIRY``): it hangs, its machine sleeps or is disconnected. Clocks of machines may differ,
  so its heartbeat is also watched for a moment, or for the full 15 s if its clock is ahead.

**Guarantee.** A process that was frozen for an hour can still write the object that it was about to write. The lease
makes such writes void: every important object carries the epoch of its writer in its name or content, is created
exclusively, and never replaces another one. ``lease/E.json`` also contains *marks*: the position of each guarded series
of objects at the time when epoch E was claimed. Readers ignore objects that an epoch older than E wrote beyond E's
marks (``valid``). Both are read from immutable objects, so all readers agree from the moment at which ``lease/E.json``
exists, wherever the old holder was stopped: before, between or after its own checks. These checks (``Lease.check``,
before and after each publication) exist so that the old holder detects the loss and stops.

A folder that replaces another one continues its epochs (``succeed``), with marks at zero: everything that writers of
the old folder still write there is void. If a folder restarts at epoch 1, the *token* of each claim distinguishes
claims with the same number.

On file systems without links a claim may be truncated (``storage.local_folder``). Its writer was then killed: the next
epoch is free, and the truncated claim has no marks.
"""

from __future__ import annotations

import re
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

from partirvm.errors import CutShortError, FormatError, LeaseError, LeaseLostError, MissingDataError
from partirvm.storage.folder import Folder, read_json, storing, to_json
from partirvm.storage.process_identity import Process

BEAT = 3.0
"""Seconds between two heartbeats."""

EXPIRY = 15.0
"""Seconds without heartbeat after which a holder on another machine counts as gone."""

Marks: TypeAlias = dict[str, list[int]]
"""The newest (epoch, number) of each guarded series of objects."""


@dataclass(frozen=True)
class Timing:
    """Seconds between heartbeats, and seconds of silence after which a lease expires."""

    beat: float = BEAT
    expiry: float = EXPIRY


TIMING = Timing()
"""Default, except in tests."""


@dataclass(frozen=True)
class Holder:
    """The process of an epoch. ``beat`` counts its heartbeats, ``seen`` is the time of the last one by its clock."""

    epoch: int
    process: Process
    since: float
    marks: Marks
    beat: int
    seen: float
    over: bool

    @property
    def gone(self) -> bool:
        """True if it certainly does not hold the lease any more."""
        return self.over or self.process.dead

    def alive(self, timing: Timing = TIMING) -> bool:
        """True if it appears to hold the lease at a single check; wrong if the clocks differ too much."""
        return not self.gone and time.time() - self.seen < timing.expiry


def epochs(folder: Folder) -> list[int]:
    """All epochs so far, in increasing order."""
    found = (re.fullmatch(r"(\d{6,})\.json", name) for name in folder.list("lease"))
    return sorted(int(match[1]) for match in found if match)


def holder(folder: Folder, epoch: int | None = None) -> Holder | None:
    """The holder of the newest epoch, or of the given one; None before the first. A truncated claim counts as over."""
    newest = epoch is None
    if epoch is None:
        found = epochs(folder)
        if not found:
            return None
        epoch = found[-1]
    try:
        claim = read_json(folder, _name(epoch))
    except CutShortError:
        return Holder(epoch, Process("unknown", 0, "", ""), 0.0, {}, 0, 0.0, over=True)
    except MissingDataError:
        if newest and _taken_away(folder, epoch):
            return holder(folder)
        raise
    over = folder.exists(_name(epoch, ".over"))
    beat, seen = 0, float(claim["time"])
    with suppress(MissingDataError, FormatError):
        last = read_json(folder, _name(epoch, ".beat"))
        beat, seen = int(last["beat"]), float(last["time"])
    return Holder(epoch, Process.from_json(claim), float(claim["time"]), dict(claim["marks"]), beat, seen, over)


def limits(folder: Folder, series: str) -> list[tuple[int, tuple[int, int]]]:
    """For each epoch, the position of a series of objects when it was claimed; truncated claims are left out."""
    found: list[tuple[int, tuple[int, int]]] = []
    for epoch in epochs(folder):
        try:
            mark = read_json(folder, _name(epoch))["marks"].get(series, [0, 0])
        except CutShortError:
            continue
        except MissingDataError:
            if _taken_away(folder, epoch):
                return limits(folder, series)
            raise
        found.append((epoch, (int(mark[0]), int(mark[1]))))
    return found


def _taken_away(folder: Folder, epoch: int) -> bool:
    """True if a claim listed a moment ago is gone: another process overwrites the job, and the new content counts."""
    return epoch not in epochs(folder)


def valid(epoch: int, position: Any, limits: list[tuple[int, Any]]) -> bool:
    """True if an object of this epoch counts: no later epoch was claimed before the object existed."""
    return all(epoch >= later or position <= mark for later, mark in limits)


def acquire(folder: Folder, marks: Callable[[], Marks], *, patience: float = 0.0, timing: Timing = TIMING) -> Lease:
    """Take the lease, and keep it alive by a thread until it is released or this process ends.

    ``marks`` is called once the old holder is known to be gone. Waits up to ``patience`` seconds for a live holder to
    release it. Raises ``LeaseError`` if the holder is still alive then, ``StorageError`` if the store does not support
    leases.
    """
    with storing(folder.location):
        folder.require_exclusive()
        began = time.monotonic()
        watched, since, moved = None, began, False
        while True:
            last, now = holder(folder), time.monotonic()
            if last is not None and (last.epoch, last.beat) != watched:
                moved = watched is not None  # it is alive, whatever its clock shows
                watched, since = (last.epoch, last.beat), now
            quiet, silent = now - since, last is not None and not last.alive(timing)
            if last is None or last.gone or quiet >= timing.expiry or (silent and quiet >= 1.5 * timing.beat):
                with suppress(FileExistsError):  # another process was faster
                    return _claim(folder, 1 if last is None else last.epoch + 1, marks(), timing)
            elif (moved or not silent) and now - began >= patience:
                raise LeaseError(
                    f"{folder.location} is in use by {last.process}, since {time.ctime(last.since)}: wait for it, or "
                    "abort it"
                )
            else:
                time.sleep(min(timing.beat / 10, 0.2))


def succeed(folder: Folder, epoch: int, *, timing: Timing = TIMING) -> Lease:
    """Take the first lease of a folder that replaces one with newest epoch ``epoch``: older epochs are void.

    Raises ``FileExistsError`` if another process was faster, ``OSError`` if it cannot be written.
    """
    return _claim(folder, epoch + 1, {}, timing)


def _claim(folder: Folder, epoch: int, marks: Marks, timing: Timing) -> Lease:
    """Create the claim. Raises ``FileExistsError`` if another process was faster."""
    token = uuid.uuid4().hex
    claim = {"epoch": epoch, "token": token, **Process.this().to_json(), "time": time.time(), "marks": marks}
    folder.create(_name(epoch), to_json(claim))
    return Lease(folder, epoch, token, timing)


class Lease:
    """An epoch that this process holds. Use it as a context manager, or call ``release``."""

    def __init__(self, folder: Folder, epoch: int, token: str, timing: Timing) -> None:
        self.epoch = epoch
        self._folder, self._token, self._timing = folder, token, timing
        self._ended = threading.Event()
        self._lost = self._released = False
        self._thread = threading.Thread(target=self._keep, name=f"lease-{epoch}", daemon=True)
        self._thread.start()

    @property
    def lost(self) -> bool:
        """True if the thread has found that another process holds the lease; no request to the store."""
        return self._lost

    def check(self) -> None:
        """Read the store; raise ``LeaseLostError`` if a newer epoch was claimed or the folder was replaced."""
        if self._mine():
            return
        self._lost = True
        last = holder(self._folder)
        if last is None or last.epoch <= self.epoch:
            raise LeaseLostError(
                f"{self._folder.location} was replaced while this process was silent: this process stops"
            )
        raise LeaseLostError(
            f"{self._folder.location} was taken over by {last.process} (epoch {last.epoch}) while this process (epoch "
            f"{self.epoch}) was silent: this process stops; the new one repeats unpublished work"
        )

    def _mine(self) -> bool:
        """True if this claim exists and is the newest; false if the folder was replaced."""
        if epochs(self._folder)[-1:] != [self.epoch]:
            return False
        try:
            return bool(read_json(self._folder, _name(self.epoch))["token"] == self._token)
        except (MissingDataError, FormatError, KeyError):
            return False

    def stop(self) -> None:
        """Stop the heartbeat and write nothing: used when the folder is moved away, or the lease is lost."""
        self._ended.set()
        self._thread.join()

    def release(self, folder: Folder | None = None) -> None:
        """Release the lease at once. May be called twice. ``folder`` is the new location if the folder was moved."""
        if not self._released:
            self._released = True
            self.stop()
            place = folder or self._folder
            if folder is not None or self._mine():
                with storing(place.location):
                    place.write(_name(self.epoch, ".over"), to_json({"time": time.time()}))

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def _keep(self) -> None:
        """Write heartbeats. A failed one (such as on a full disk) is ignored: the next may succeed."""
        beat = 0
        while not self._ended.wait(self._timing.beat):
            beat += 1
            with suppress(Exception):
                if not self._mine():
                    self._lost = True
                    return
                self._folder.write(_name(self.epoch, ".beat"), to_json({"beat": beat, "time": time.time()}))


def _name(epoch: int, suffix: str = "") -> str:
    return f"lease/{epoch:06d}{suffix}.json"
