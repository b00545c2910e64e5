"""A lease allows one process at a time to write a folder. The lease needs only exclusive creation of files.

    lease/000003.json         the third holder: process, time, and marks (see below); created exclusively, immutable
    lease/000003.beat.json    rewritten regularly by the holder as a sign of life (heartbeat)
    lease/000003.over.json    the holder has released the lease

The number is the *epoch*. The newest epoch holds the lease. A process takes the lease by creating the file of the next
number; only one of several processes can succeed. A process may take the lease if the holder

- has released the lease;
- is dead: on the same machine, the number and start time of the process show this at once
  (``storage.process_identity``); or
- has written no heartbeat for 15 s (``EXPIRY``), because the process hangs or the machine sleeps or is disconnected.
  Clocks of machines may differ. Therefore the heartbeat file is also watched for a moment, or for the full 15 s if the
  holder's clock is ahead.

**Guarantee.** A process that was frozen for an hour can still write the object that it was about to write. The lease
makes such writes void. Every important object carries the epoch of its writer in its name or content, is created
exclusively, and never replaces another object. ``lease/E.json`` also contains *marks*: the position of each guarded
series of objects at the time when epoch E was claimed. Readers ignore objects that an epoch older than E wrote beyond
E's marks (``valid``). Claims and objects are immutable files, so all readers agree as soon as ``lease/E.json`` exists,
no matter when the old holder was stopped. ``Lease.check``, which runs before and after each publication, stops a holder
that has lost the lease.

A folder that replaces another folder continues the epochs of the old folder (``succeed``) with marks at zero.
Everything that writers of the old folder write later is void. If a folder restarts at epoch 1, the *token* of each
claim distinguishes claims with the same number.

On file systems without links a claim may be truncated (``storage.local_folder``). In this case the writer of the claim
was killed: the next epoch is free, and the truncated claim has no marks.
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
    """Times of a lease in seconds: ``beat`` between two heartbeats, ``expiry`` from the last heartbeat to the end of
    the lease.
    """

    beat: float = BEAT
    expiry: float = EXPIRY


TIMING = Timing()
"""The default times of a lease; only tests use other times."""


@dataclass(frozen=True)
class Holder:
    """The process that holds or held an epoch. ``beat`` counts its heartbeats; ``last_beat`` is the time of the last
    heartbeat on the clock of the holder.
    """

    epoch: int
    process: Process
    since: float
    marks: Marks
    beat: int
    last_beat: float
    over: bool

    @property
    def gone(self) -> bool:
        """Return True if the process certainly does not hold the lease any more."""
        return self.over or self.process.dead

    def alive(self, timing: Timing = TIMING) -> bool:
        """Return True if the holder appears alive at a single check; wrong if the clocks differ too much."""
        return not self.gone and time.time() - self.last_beat < timing.expiry


def epochs(folder: Folder) -> list[int]:
    """Return all epochs so far, in increasing order."""
    found = (re.fullmatch(r"(\d{6,})\.json", name) for name in folder.list("lease"))
    return sorted(int(match[1]) for match in found if match)


def holder(folder: Folder, epoch: int | None = None) -> Holder | None:
    """Return the holder of the given or the newest epoch, or None if there is no epoch. A truncated claim counts as
    released.
    """
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
        if newest and _claim_removed(folder, epoch):
            return holder(folder)
        raise
    over = folder.exists(_name(epoch, ".over"))
    beat, last_beat = 0, float(claim["time"])
    with suppress(MissingDataError, FormatError):
        last = read_json(folder, _name(epoch, ".beat"))
        beat, last_beat = int(last["beat"]), float(last["time"])
    return Holder(epoch, Process.from_json(claim), float(claim["time"]), dict(claim["marks"]), beat, last_beat, over)


def limits(folder: Folder, series: str) -> list[tuple[int, tuple[int, int]]]:
    """Return, for each epoch, the position of a series of objects at the time of the claim; truncated claims are
    omitted.
    """
    found: list[tuple[int, tuple[int, int]]] = []
    for epoch in epochs(folder):
        try:
            mark = read_json(folder, _name(epoch))["marks"].get(series, [0, 0])
        except CutShortError:
            continue
        except MissingDataError:
            if _claim_removed(folder, epoch):
                return limits(folder, series)
            raise
        found.append((epoch, (int(mark[0]), int(mark[1]))))
    return found


def _claim_removed(folder: Folder, epoch: int) -> bool:
    """Return True if a listed claim no longer exists, because another process overwrote the job."""
    return epoch not in epochs(folder)


def valid(epoch: int, position: Any, limits: list[tuple[int, Any]]) -> bool:
    """Return True if an object of this epoch is valid: no later epoch was claimed before the object existed."""
    return all(epoch >= later or position <= mark for later, mark in limits)


def acquire(
    folder: Folder,
    marks: Callable[[], Marks],
    *,
    patience: float = 0.0,
    timing: Timing = TIMING,
    stop: str = "abort the job",
) -> Lease:
    """Take the lease; a thread writes heartbeats until the lease is released or this process ends.

    ``marks`` is called when the old holder is certainly gone. If the holder is alive, the function waits up to
    ``patience`` seconds for the release. Raises ``LeaseError`` with the advice ``stop`` if the holder is still alive
    after this time, and ``StorageError`` if the store does not support leases.
    """
    with storing(folder.location):
        folder.require_exclusive()
        began = time.monotonic()
        watched, since, moved = None, began, False
        while True:
            last, now = holder(folder), time.monotonic()
            if last is not None and (last.epoch, last.beat) != watched:
                moved = watched is not None  # the heartbeat changed: the holder is alive, whatever its clock shows
                watched, since = (last.epoch, last.beat), now
            quiet, silent = now - since, last is not None and not last.alive(timing)
            if last is None or last.gone or quiet >= timing.expiry or (silent and quiet >= 1.5 * timing.beat):
                with suppress(FileExistsError, FileNotFoundError):  # another process was faster, or withdrew
                    return _claim(folder, 1 if last is None else last.epoch + 1, marks(), timing)
            elif (moved or not silent) and now - began >= patience:
                raise LeaseError(
                    f"{folder.location} is in use by {last.process}, since {time.ctime(last.since)}: wait until "
                    f"this process ends, or {stop}"
                )
            else:
                time.sleep(min(timing.beat / 10, 0.2))


def succeed(folder: Folder, epoch: int, *, timing: Timing = TIMING) -> Lease:
    """Take the first lease of a folder that replaces another folder, whose newest epoch is ``epoch``. Older epochs are
    void.

    Raises ``FileExistsError`` if another process was faster, and ``OSError`` if the lease cannot be written.
    """
    return _claim(folder, epoch + 1, {}, timing)


def _claim(folder: Folder, epoch: int, marks: Marks, timing: Timing) -> Lease:
    """Create the file of a claim. Raises ``FileExistsError`` if another process was faster."""
    token = uuid.uuid4().hex
    claim = {"epoch": epoch, "token": token, **Process.this().to_json(), "time": time.time(), "marks": marks}
    folder.create(_name(epoch), to_json(claim))
    return Lease(folder, epoch, token, timing)


class Lease:
    """An epoch of the lease that this process holds. Use the object as a context manager, or call ``release``."""

    def __init__(self, folder: Folder, epoch: int, token: str, timing: Timing) -> None:
        self.epoch = epoch
        self._folder, self._token, self._timing = folder, token, timing
        self._ended = threading.Event()
        self._lost = self._released = False
        self._thread = threading.Thread(target=self._keep, name=f"lease-{epoch}", daemon=True)
        self._thread.start()

    @property
    def lost(self) -> bool:
        """Return True if the heartbeat thread has found another holder; makes no request to the store."""
        return self._lost

    def check(self) -> None:
        """Read the store, and raise ``LeaseLostError`` if a newer epoch was claimed or the folder was replaced."""
        if self._holds():
            return
        self._lost = True
        last = holder(self._folder)
        if last is None or last.epoch <= self.epoch:
            raise LeaseLostError(
                f"{self._folder.location} was replaced while this process was silent: this process stops"
            )
        raise LeaseLostError(
            f"{self._folder.location} was taken over by {last.process} (epoch {last.epoch}) while this process (epoch "
            f"{self.epoch}) was silent: this process stops; the new process repeats unpublished work"
        )

    def _holds(self) -> bool:
        """Return True if the claim of this process exists and is the newest; False if the folder was replaced."""
        if epochs(self._folder)[-1:] != [self.epoch]:
            return False
        try:
            return bool(read_json(self._folder, _name(self.epoch))["token"] == self._token)
        except (MissingDataError, FormatError, KeyError):
            return False

    def stop(self) -> None:
        """Stop the heartbeat and write nothing; called when the folder is moved away or the lease is lost."""
        self._ended.set()
        self._thread.join()

    def release(self, folder: Folder | None = None) -> None:
        """Release the lease at once. The method may be called twice. ``folder`` is the new location if the folder was
        moved.
        """
        if not self._released:
            self._released = True
            self.stop()
            place = folder or self._folder
            if folder is not None or self._holds():
                with storing(place.location):
                    place.write(_name(self.epoch, ".over"), to_json({"time": time.time()}))

    def withdraw(self) -> None:
        """Release the lease and remove its files, for a folder that contains nothing else. Claims of later holders
        stay.
        """
        if self._released:
            return
        self.release()
        if self._holds():
            for epoch in epochs(self._folder):
                for suffix in ("", ".beat", ".over"):
                    if epoch <= self.epoch:
                        self._folder.remove(_name(epoch, suffix))
            self._folder.remove_empty("lease")
            self._folder.remove_empty()

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def _keep(self) -> None:
        """Write heartbeats. A failed write (for example on a full disk) is ignored; the next write may succeed."""
        beat = 0
        while not self._ended.wait(self._timing.beat):
            beat += 1
            with suppress(Exception):
                if not self._holds():
                    self._lost = True
                    return
                self._folder.write(_name(self.epoch, ".beat"), to_json({"beat": beat, "time": time.time()}))


def _name(epoch: int, suffix: str = "") -> str:
    return f"lease/{epoch:06d}{suffix}.json"
