"""A lease allows one process at a time to write a folder. The lease needs only exclusive creation of files.

    lease/000003.json         the third holder: process, time, and marks (see below); created exclusively, immutable
    lease/000003.beat.json    rewritten regularly by the holder as a sign of life (heartbeat)
    lease/000003.over.json    the holder has released the lease; the last object of each series that it wrote

The number is the *epoch*. The newest epoch holds the lease. A process takes the lease by creating the file of the next
number; only one of several processes can succeed. A process may take the lease if the holder

- has released the lease;
- is dead: on the same machine, the number and start time of the process show this at once
  (``storage.process_identity``); or
- has written no heartbeat for 15 s (``EXPIRY``), because the process hangs or the machine sleeps or is disconnected.
  Clocks of machines may differ. Therefore the heartbeat file is also watched for a moment, or for the full 15 s if the
  clocks do not show that the holder is silent (``HeartbeatWatch``).

**Guarantee.** A process that was frozen for an hour can still write the object that it was about to write. The lease
makes such writes void. Every important object carries the epoch of its writer in its name or content, is created
exclusively, and never replaces another object. ``lease/E.json`` also contains *marks*: the position of each guarded
series of objects at the time when epoch E was claimed. Readers ignore objects that an epoch older than E wrote beyond
E's marks (``valid``). Claims and objects are immutable files, so all readers agree as soon as ``lease/E.json`` exists,
no matter when the old holder was stopped. ``Lease.check``, which runs before and after each publication, stops a holder
that has lost the lease.

If a folder restarts at epoch 1, the *token* of each claim distinguishes claims with the same number.

Objects written under a lease also carry the *token* of its claim, so that an object of another folder is detected.

On file systems without links a claim may be truncated (``storage.local_folder``). In this case the writer of the claim
was killed: the next epoch is free, and the truncated claim has no marks.
"""

from __future__ import annotations

import threading
import time
import uuid
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

from partirvm.errors import CutShortError, FormatError, LeaseError, LeaseLostError, MissingDataError, PartirvmWarning
from partirvm.storage.folder import Folder, numbered, numbers, read_json, storing, to_json
from partirvm.storage.process_identity import Process
from partirvm.storage.schema import TIME

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


CLAIM = {"time": TIME, "token?": str, "host": str, "pid": int, "began": str, "space": str, "marks": {"*": [int, int]}}
"""The schema of a claim."""

RELEASE = {"wrote": {"*": int}}
"""The schema of the release of a lease."""

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

    def ahead(self, timing: Timing = TIMING) -> bool:
        """Return True if the holder's clock is so far ahead that a single check shows nothing."""
        return self.last_beat - time.time() > timing.expiry


@dataclass
class HeartbeatWatch:
    """What this process has seen of the heartbeats of a holder: the last one, since when, and whether it was new."""

    _seen: tuple[int, int] | None = None
    _since: float = 0.0
    _moved: bool = False

    def gone(self, last: Holder, timing: Timing = TIMING) -> bool | None:
        """Return True if the holder no longer holds the lease, False if it is alive, and None if it must be watched for
        longer. Each call adds what ``last``, just read, shows.
        """
        now = time.monotonic()
        if (last.epoch, last.beat) != self._seen:
            self._moved = self._seen is not None  # the holder is alive, whatever its clock shows
            self._seen, self._since = (last.epoch, last.beat), now
        if last.gone or now - self._since >= term(last, timing):
            return True
        return False if self._moved or (last.process.local and last.alive(timing)) else None

    def held(self, folder: Folder, last: Holder | None, timing: Timing = TIMING) -> bool:
        """Return True if a holder, just read, appears alive. Waits for a heartbeat only if its clock is ahead."""
        while last is not None:
            gone = self.gone(last, timing)
            if gone is not None or not last.ahead(timing):
                return last.alive(timing) if gone is None else not gone
            time.sleep(min(timing.beat / 10, 0.2))
            last = holder(folder, last.epoch)
        return False


def term(last: Holder, timing: Timing) -> float:
    """Return the seconds without a new heartbeat after which a watched holder counts as gone."""
    return timing.expiry if last.alive(timing) else 1.5 * timing.beat


def epochs(folder: Folder) -> list[int]:
    """Return all epochs so far, in increasing order. Raises ``MissingDataError`` if one is missing between others."""
    return numbers(folder, "lease")


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
        claim = read_json(folder, _name(epoch), CLAIM)
    except CutShortError:
        return Holder(epoch, Process("unknown", 0, "", ""), 0.0, {}, 0, 0.0, over=True)
    except MissingDataError:
        if newest and _claim_removed(folder, epoch):
            return holder(folder)
        raise
    over = folder.exists(_name(epoch, ".over"))
    beat, last_beat = 0, float(claim["time"])
    with suppress(MissingDataError, FormatError):
        last = read_json(folder, _name(epoch, ".beat"), {"beat": int, "time": TIME})
        beat, last_beat = int(last["beat"]), float(last["time"])
    return Holder(epoch, Process.from_json(claim), float(claim["time"]), dict(claim["marks"]), beat, last_beat, over)


def token_of(folder: Folder, epoch: int) -> str:
    """Return the token of the claim of an epoch; "" for epoch 0, which is that of writers without a lease."""
    return str(read_json(folder, _name(epoch), {"token": str})["token"]) if epoch else ""


def claims(folder: Folder) -> dict[int, dict[str, Any]]:
    """Return the claim of each epoch; truncated claims are omitted."""
    found: dict[int, dict[str, Any]] = {}
    for epoch in epochs(folder):
        try:
            found[epoch] = read_json(folder, _name(epoch), CLAIM)
        except CutShortError:
            continue
        except MissingDataError:
            if _claim_removed(folder, epoch):
                return claims(folder)
            raise
    return found


def limits(
    folder: Folder, series: str, held: dict[int, dict[str, Any]] | None = None
) -> list[tuple[int, tuple[int, int]]]:
    """Return, for each epoch, the position of a series of objects at the time of the claim, less claims without a mark
    of the series. ``held`` are the claims, if they have been read.
    """
    held = claims(folder) if held is None else held
    return [(epoch, tuple(claim["marks"][series])) for epoch, claim in held.items() if series in claim["marks"]]


def ends(folder: Folder, series: str, held: dict[int, dict[str, Any]]) -> tuple[int, int]:
    """Return the number of the last object of a series at the newest of the claims ``held``, and of the last one that
    its holder had written when it released the lease. 0 if it is not known.
    """
    if not held:
        return 0, 0
    epoch, claim = max(held.items())
    at_claim = int(claim["marks"].get(series, (0, 0))[1])
    with suppress(MissingDataError, FormatError):
        return at_claim, int(read_json(folder, _name(epoch, ".over"), RELEASE)["wrote"].get(series, 0))
    return at_claim, 0


def _claim_removed(folder: Folder, epoch: int) -> bool:
    """Return True if a listed claim no longer exists, because another process removed the folder."""
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
    watch: HeartbeatWatch | None = None,
    stop: str = "abort the job",
) -> Lease:
    """Take the lease; a thread writes heartbeats until the lease is released or this process ends.

    ``marks`` is called when the old holder is certainly gone. If the holder is alive, the function waits up to
    ``patience`` seconds for the release. A holder on another machine is watched until it writes a heartbeat or counts
    as gone, with a ``PartirvmWarning`` that says so; ``watch`` is what the caller has seen of it.

    Raises ``LeaseError`` with the advice ``stop`` if the holder is still alive after this time, and ``StorageError`` if
    the store does not support leases.
    """
    with storing(folder.location):
        folder.require_exclusive()
        began, watch, warned = time.monotonic(), watch or HeartbeatWatch(), False
        while True:
            last = holder(folder)
            gone = last is None or watch.gone(last, timing)
            if last is None or gone:
                reached = marks()  # may raise MissingDataError, which is a FileNotFoundError too
                with suppress(FileExistsError, FileNotFoundError):  # another process was faster, or withdrew
                    return _claim(folder, 1 if last is None else last.epoch + 1, reached, timing)
            elif gone is None and not warned:
                warned = True
                warnings.warn(
                    f"{folder.location}: waiting up to {term(last, timing):g} s for a heartbeat of {last.process}, "
                    "which holds this folder; without a heartbeat this process takes over",
                    PartirvmWarning,
                    stacklevel=2,
                )
            elif gone is False and time.monotonic() - began >= patience:
                raise LeaseError(
                    f"{folder.location} is in use by {last.process}, since {time.ctime(last.since)}: wait until "
                    f"this process ends, or {stop}"
                )
            time.sleep(min(timing.beat / 10, 0.2))


def _claim(folder: Folder, epoch: int, marks: Marks, timing: Timing) -> Lease:
    """Create the file of a claim. Raises ``FileExistsError`` if another process was faster."""
    token = uuid.uuid4().hex
    claim = {"epoch": epoch, "token": token, **Process.this().to_json(), "time": time.time(), "marks": marks}
    folder.create(_name(epoch), to_json(_name(epoch), claim))
    return Lease(folder, epoch, token, timing)


class Lease:
    """An epoch of the lease that this process holds. Use the object as a context manager, or call ``release``."""

    def __init__(self, folder: Folder, epoch: int, token: str, timing: Timing) -> None:
        self.epoch, self.token = epoch, token
        self.wrote: dict[str, int] = {}
        """The number of the last object of each series that this holder has written."""
        self._folder, self._timing = folder, timing
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
            return bool(read_json(self._folder, _name(self.epoch), {"token": str})["token"] == self.token)
        except (MissingDataError, FormatError):
            return False

    def stop(self) -> None:
        """Stop the heartbeat and write nothing; called when the folder is removed or the lease is lost."""
        self._ended.set()
        self._thread.join()

    def release(self) -> None:
        """Release the lease at once. The method may be called twice."""
        if not self._released:
            self._released = True
            self.stop()
            if self._holds():
                with storing(self._folder.location):
                    name = _name(self.epoch, ".over")
                    self._folder.write(name, to_json(name, {"time": time.time(), "wrote": self.wrote}))

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
                name = _name(self.epoch, ".beat")
                self._folder.write(name, to_json(name, {"beat": beat, "time": time.time()}))


def _name(epoch: int, suffix: str = "") -> str:
    return numbered("lease", epoch, suffix)
