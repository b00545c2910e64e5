"""One writer at a time, by a lease that needs nothing but exclusive creation.

    lease/000003.json         the third holder: who, when, and the marks (below); created exclusively, never changed
    lease/000003.beat.json    written again and again while the holder lives, by nobody else
    lease/000003.over.json    the holder has gone of its own will

The number is the *epoch*. The newest epoch holds the lease; to take it is to create the next number, in which only one
of several processes can succeed. It may be taken when the holder

- has released it,
- is dead: on this machine, by number and start time of its process (``storage.process_identity``), at once; or
- has been silent for 15 s (``EXPIRY``): it hangs, its machine sleeps or is cut off. A clock that runs differently here
  must not end a lease early, so its silence is also watched for a moment, or where its clock is ahead for all of 15 s.

**What a lease guarantees.** Nothing can keep a process that was frozen for an hour, and does not know it, from writing
the one object that it was about to write. So what it writes is made void instead: every object that matters carries the
epoch of its writer in its name or content, is created exclusively, and never replaces another one. And the object
``lease/E.json`` carries *marks*: how far each such row of objects had come when epoch E was claimed. Readers leave out
what an older epoch than E wrote beyond E's marks (``valid``). As both are read from objects that never change, all
readers agree for ever from the moment at which ``lease/E.json`` appears, wherever the old holder was stopped: before,
between or after its own checks. These checks (``Lease.check``, before and after each publication) are there so that it
learns of it and ends.

A folder that takes the place of another one goes on with its epochs (``succeed``), with marks at zero: what the writers
of the other one still put there is void from the first. Should a folder begin anew, the *token* of each claim tells an
old holder that the epoch of its number is not its own.

Where nothing can be linked a claim may be cut short (``storage.local_folder``). Its writer never got further: the next
epoch is free, and it has no marks.
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
"""Seconds between two signs of life."""

EXPIRY = 15.0
"""Seconds of silence after which a holder that cannot be asked is taken to be gone."""

Marks: TypeAlias = dict[str, list[int]]
"""The newest (epoch, number) of each row of objects that is guarded."""


@dataclass(frozen=True)
class Timing:
    """Seconds between signs of life, and of silence that end a lease."""

    beat: float = BEAT
    expiry: float = EXPIRY


TIMING = Timing()
"""Everywhere but in tests."""


@dataclass(frozen=True)
class Holder:
    """Who has, or had, an epoch. ``beat`` counts its signs of life, ``seen`` is the time of the last by its clock."""

    epoch: int
    process: Process
    since: float
    marks: Marks
    beat: int
    seen: float
    over: bool

    @property
    def gone(self) -> bool:
        """Whether it certainly holds the lease no more."""
        return self.over or self.process.dead

    def alive(self, timing: Timing = TIMING) -> bool:
        """Whether it holds the lease, as far as one look can tell: a clock that runs differently may deceive it."""
        return not self.gone and time.time() - self.seen < timing.expiry


def epochs(folder: Folder) -> list[int]:
    """Every epoch so far, increasing."""
    found = (re.fullmatch(r"(\d{6,})\.json", name) for name in folder.list("lease"))
    return sorted(int(match[1]) for match in found if match)


def holder(folder: Folder, epoch: int | None = None) -> Holder | None:
    """Who has the newest epoch, or who had an older one; None before the first. A claim cut short is over."""
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


def limits(folder: Folder, row: str) -> list[tuple[int, tuple[int, int]]]:
    """For each epoch, how far a row of objects had come when it was claimed; a claim cut short never took effect."""
    found: list[tuple[int, tuple[int, int]]] = []
    for epoch in epochs(folder):
        try:
            mark = read_json(folder, _name(epoch))["marks"].get(row, [0, 0])
        except CutShortError:
            continue
        except MissingDataError:
            if _taken_away(folder, epoch):
                return limits(folder, row)
            raise
        found.append((epoch, (int(mark[0]), int(mark[1]))))
    return found


def _taken_away(folder: Folder, epoch: int) -> bool:
    """Whether a claim listed a moment ago is gone: somebody overwrites the job, and what is there now counts."""
    return epoch not in epochs(folder)


def valid(epoch: int, position: Any, limits: list[tuple[int, Any]]) -> bool:
    """Whether an object of this epoch stands: no later epoch was claimed before the object was there."""
    return all(epoch >= later or position <= mark for later, mark in limits)


def acquire(folder: Folder, marks: Callable[[], Marks], *, patience: float = 0.0, timing: Timing = TIMING) -> Lease:
    """Take the lease, and keep it alive by a thread until it is released or this process ends.

    ``marks`` is called once the old holder is known to be gone. Waits up to ``patience`` seconds for a holder who lives
    to go. Raises ``LeaseError`` if there still is one, ``StorageError`` for a store on which leases cannot be had.
    """
    with storing(folder.location):
        folder.require_exclusive()
        began = time.monotonic()
        watched, since, moved = None, began, False
        while True:
            last, now = holder(folder), time.monotonic()
            if last is not None and (last.epoch, last.beat) != watched:
                moved = watched is not None  # whatever its clock says, it lives
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
    """Take the first lease on a folder in whose place another one had come to ``epoch``: all that is older is void.

    Raises ``FileExistsError`` if another process was faster, ``OSError`` where it cannot be written.
    """
    return _claim(folder, epoch + 1, {}, timing)


def _claim(folder: Folder, epoch: int, marks: Marks, timing: Timing) -> Lease:
    """The lease. Raises ``FileExistsError`` if another process was faster."""
    token = uuid.uuid4().hex
    claim = {"epoch": epoch, "token": token, **Process.this().to_json(), "time": time.time(), "marks": marks}
    folder.create(_name(epoch), to_json(claim))
    return Lease(folder, epoch, token, timing)


class Lease:
    """An epoch that this process holds. Use it as a context manager, or ``release`` it."""

    def __init__(self, folder: Folder, epoch: int, token: str, timing: Timing) -> None:
        self.epoch = epoch
        self._folder, self._token, self._timing = folder, token, timing
        self._ended = threading.Event()
        self._lost = self._released = False
        self._thread = threading.Thread(target=self._keep, name=f"lease-{epoch}", daemon=True)
        self._thread.start()

    @property
    def lost(self) -> bool:
        """Whether the thread has found that another process holds the lease; costs nothing to ask."""
        return self._lost

    def check(self) -> None:
        """Look at the store, and raise ``LeaseLostError`` if a newer epoch was claimed or the folder is another one."""
        if self._mine():
            return
        self._lost = True
        last = holder(self._folder)
        if last is None or last.epoch <= self.epoch:
            raise LeaseLostError(
                f"{self._folder.location} was replaced by something else while this process was silent: it stops here"
            )
        raise LeaseLostError(
            f"{self._folder.location} was taken over by {last.process} (epoch {last.epoch}) while this process (epoch "
            f"{self.epoch}) was silent: it stops here, what it has not published is done again there"
        )

    def _mine(self) -> bool:
        """Whether this claim is the newest, and there at all: in a folder put in this one's place it is not."""
        if epochs(self._folder)[-1:] != [self.epoch]:
            return False
        try:
            return bool(read_json(self._folder, _name(self.epoch))["token"] == self._token)
        except (MissingDataError, FormatError, KeyError):
            return False

    def stop(self) -> None:
        """Give no more signs of life and write nothing: for one who takes the folder away, or has lost it."""
        self._ended.set()
        self._thread.join()

    def release(self, folder: Folder | None = None) -> None:
        """Let others have it at once. May be called twice. ``folder`` is where it lies now, if it was moved."""
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
        """Signs of life. One that fails (a full disk) is no reason to end: the next may succeed."""
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
