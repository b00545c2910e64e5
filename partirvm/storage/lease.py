"""A lease, which allows one writer of a folder at a time.

    lease/000003.json         the third holder: process, time, and mark (see below); created
                              exclusively, immutable
    lease/000003.beat.json    rewritten regularly by the holder as a sign of life (heartbeat)
    lease/000003.over.json    the holder has released the lease

The number is the *epoch*; the newest epoch holds the lease. A process takes it by creating the file
with the next number, which only one process can do, if the holder has released the lease, is dead
(on the same machine, ``Process`` shows this at once), or wrote no heartbeat while watched for
``LeaseTimes.expiry`` seconds: clocks may differ, so they are not compared.

A process that was frozen for an hour can still complete a pending write. The lease makes such
writes void: each job event carries its writer's epoch and is created exclusively; ``lease/E.json``
contains a *mark*, the number of the last event when epoch E was claimed; readers ignore anything
that an older epoch wrote after it. ``Lease.check``, before and after each publication, stops a
holder that has lost the lease. Events also carry the *token* of the claim, so that an event from
another folder is detected.
"""

import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from partirvm.errors import FormatError, LeaseError, LeaseLostError, MissingDataError, StorageError
from partirvm.storage.address import storing
from partirvm.storage.folder import Folder
from partirvm.storage.records import TIME, numbered, numbers, read_json, to_json


@dataclass(frozen=True)
class LeaseTimes:
    """The times of a lease.

    Attributes:
        beat: seconds between heartbeats
        expiry: seconds without a heartbeat after which a holder on another machine is considered
            gone
        poll: seconds between two polls of a holder for requests to end its work
        clock: the module ``time``, or an object with the same functions
    """

    beat: float = 3.0
    expiry: float = 15.0
    poll: float = 0.2
    clock: Any = time


TIMES = LeaseTimes()
"""The times of every lease, unless others are passed."""

CLAIM = {
    "time": TIME,
    "token": str,
    "host": str,
    "pid": int,
    "began": str,
    "space": str,
    "mark": int,
}


@dataclass(frozen=True)
class Process:
    """A process on a host; ``began`` is its start time, "" if unknown; ``space`` identifies the
    boot and container."""

    host: str
    pid: int
    began: str
    space: str

    @classmethod
    def this(cls) -> "Process":
        """Return the current process."""
        return cls(socket.gethostname(), os.getpid(), started(os.getpid()) or "", _space())

    @property
    def local(self) -> bool:
        """True if the process is on this machine, in the same boot and PID namespace."""
        return (self.host, self.space) == (socket.gethostname(), _space())

    @property
    def dead(self) -> bool:
        """True if the process has certainly ended: it ran on this machine, and its PID is free or
        reused."""
        now = started(self.pid) if self.local and self.space else ""
        return now is None or bool(self.began and now and now != self.began)

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


def started(pid: int) -> str | None:
    """Return a process's start time in Linux ticks since boot; None if it ended or is a zombie, ""
    if unknown."""
    with suppress(FileNotFoundError, ProcessLookupError):
        # the name in parentheses may contain any text; after the last parenthesis: state, 18
        # fields, start time
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if fields[0] in "ZX" else fields[19]
    return None if Path("/proc/self").exists() else ""


@cache
def _space() -> str:
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"  # noqa: PTH115 - it is not a path
    return ""


@dataclass(frozen=True)
class Holder:
    """The process that holds or held an epoch, with its last heartbeat's number, time (on its
    clock) and text; ``times`` are those of this process."""

    epoch: int
    process: "Process"
    since: float
    beat: int
    last_beat: float
    over: bool
    doing: str = ""
    times: LeaseTimes = TIMES

    @property
    def gone(self) -> bool:
        """True if the process certainly no longer holds the lease."""
        return self.over or self.process.dead

    def alive(self) -> bool:
        """Return True if the holder appears alive at a single check; unreliable if the clocks
        differ too much."""
        silence = self.times.clock.time() - self.last_beat
        return not self.gone and silence < self.times.expiry


def claims(folder: Folder, *, last: bool = False) -> dict[int, dict[str, Any]]:
    """Return the claim of each epoch, or only of the last."""
    while True:
        epochs = numbers(folder, "lease")[-1 if last else 0 :]
        try:
            return {epoch: read_json(folder, numbered("lease", epoch), CLAIM) for epoch in epochs}
        except MissingDataError:
            # without these epochs, another process has removed the folder
            if set(epochs) <= set(numbers(folder, "lease")):
                raise


def holder(folder: Folder, times: LeaseTimes | None = None) -> Holder | None:
    """Return the holder of the newest epoch, or None if there is no epoch."""
    for epoch, claim in claims(folder, last=True).items():
        beat: dict[str, Any] = {"beat": 0, "time": claim["time"]}
        # a network disk may be replacing this file
        with suppress(MissingDataError, FormatError, StorageError):
            beat = read_json(
                folder,
                numbered("lease", epoch, ".beat"),
                {"beat": int, "time": TIME, "doing?": str},
            )
        over = folder.exists(numbered("lease", epoch, ".over"))
        process = Process(claim["host"], claim["pid"], claim["began"], claim["space"])
        return Holder(
            epoch=epoch,
            process=process,
            since=claim["time"],
            beat=beat["beat"],
            last_beat=beat["time"],
            over=over,
            doing=beat.get("doing", ""),
            times=times or TIMES,
        )
    return None


def acquire(
    folder: Folder,
    mark: Callable[[], int] = int,
    *,
    patience: float = 0.0,
    times: LeaseTimes | None = None,
) -> "Lease":
    """Acquire the lease; a thread writes heartbeats until the lease is released or this process
    ends.

    A holder on another machine is watched until it writes a heartbeat or is considered gone.

    Args:
        folder: the folder to write
        mark: returns the mark of the claim; called when the old holder is certainly gone
        patience: seconds to wait for a holder that is alive
        times: the times of the lease; None for ``TIMES``

    Raises ``LeaseError`` if the holder is alive
    after ``patience`` seconds, and ``StorageError`` if the store does not support leases.
    """
    seen: tuple[int, int] | None = None
    times = times or TIMES
    clock = times.clock
    with storing(folder.location):
        began = since = clock.monotonic()
        moved = False
        while True:
            last = holder(folder, times)
            now = clock.monotonic()
            if last is not None and (last.epoch, last.beat) != seen:
                moved = seen is not None  # the holder is alive, whatever its clock shows
                seen = (last.epoch, last.beat)
                since = now
            if last is None or last.gone or now - since >= times.expiry:
                epoch = 1 if last is None else last.epoch + 1
                token = uuid.uuid4().hex
                claim = {
                    "epoch": epoch,
                    "token": token,
                    **asdict(Process.this()),
                    "time": clock.time(),
                }
                name = numbered("lease", epoch)  # may raise MissingDataError
                claim["mark"] = mark()
                # another process claimed the epoch first, or withdrew
                with suppress(FileExistsError, FileNotFoundError):
                    folder.create(name, to_json(name, claim))
                    folder.require_exclusive(name)
                    return Lease(folder, epoch, token, times)
            elif (moved or (last.process.local and last.alive())) and now - began >= patience:
                raise LeaseError(
                    f"{folder.location} is in use by {last.process}, since "
                    f"{clock.ctime(last.since)}: wait until this process ends, or end it (a job: "
                    "with `partirvm abort`)"
                )
            clock.sleep(min(times.beat / 10, 0.2))


class Lease(AbstractContextManager["Lease"]):
    """A lease epoch, held until ``release``; ``lost`` is True if a newer epoch was found.
    Heartbeats carry ``doing``."""

    def __init__(self, folder: Folder, epoch: int, token: str, times: LeaseTimes) -> None:
        self.epoch = epoch
        self.token = token
        self.lost = False
        self.doing = ""
        self._folder = folder
        self._times = times
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, name=f"lease-{epoch}", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raise ``LeaseLostError`` if a newer epoch was claimed or the folder was replaced."""
        if not self._holds():
            self.lost = True
            raise LeaseLostError(
                f"{self._folder.location} was taken over or replaced by another process while "
                f"this one (epoch {self.epoch}) was unresponsive: this process stops, and the "
                "other repeats unpublished work"
            )

    def _holds(self) -> bool:
        """Return True if the claim of this process exists and is the newest."""
        try:
            newest = claims(self._folder, last=True)
        except FormatError:
            return False
        return {epoch: claim["token"] for epoch, claim in newest.items()} == {
            self.epoch: self.token
        }

    def release(self) -> None:
        """Release the lease at once. It is safe to call this twice."""
        if not self._ended.is_set():
            self._ended.set()
            self._thread.join()
            if self._holds():
                with storing(self._folder.location):
                    self._write(".over", {"time": self._times.clock.time()})

    def withdraw(self) -> None:
        """Release the lease and remove its files, for a folder that contains nothing else."""
        self.release()
        names = self._folder.list("lease")
        if self._holds():  # in this case, none of these names belongs to a later holder
            for name in names:
                self._folder.remove(f"lease/{name}")
            self._folder.remove_empty("lease")
            self._folder.remove_empty()

    def __exit__(self, *_: object) -> None:
        with suppress(LeaseError, StorageError):  # do not replace an error in the block
            self.release()

    def _beat(self) -> None:
        """Write heartbeats. A failed write (for example on a full disk) is ignored; the next write
        may succeed."""
        beat = 0
        while not self._ended.wait(self._times.beat):
            beat += 1
            with suppress(Exception):
                if not self._holds():
                    self.lost = True
                    return
                now = self._times.clock.time()
                self._write(".beat", {"beat": beat, "time": now, "doing": self.doing})

    def _write(self, suffix: str, value: dict[str, Any]) -> None:
        name = numbered("lease", self.epoch, suffix)
        self._folder.write(name, to_json(name, value))
