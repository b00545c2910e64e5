"""A job's folder: what was asked, what happened, and the model to use.

    JOB/spec.json                     what was asked, of which data, by which versions
    JOB/events/000001.json            one numbered object per event, never changed (jobs.events)
    JOB/models/000002-000007/         a model: epoch of its writer, number
    JOB/models/000002-000007.json     its pointer: the newest one names the model to use (storage.snapshots)
    JOB/specs/…                       what was decided of the fit, likewise (setup.spec)
    JOB/checkpoints/…                 where the strategy stands, likewise (jobs.checkpoint)
    JOB/control/abort-000001.json     somebody wants the first attempt to end
    JOB/lease/000002.json             who is at work on it (storage.lease)
    JOB/predictions/3f0c….json        a prediction that is whole, by a hash of what it is
    .JOB.before/                      beside JOB: the job that it overwrites, until its own first model is saved

The folder is any place that fsspec knows. A process that is killed at any instruction leaves every whole event, the
last whole model and the last whole checkpoint. With a lease (``acquire``) one process writes at a time: what another
one writes, that was taken for dead, does not count.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from partirvm.errors import (
    ExistsError,
    FormatError,
    LeaseError,
    LeaseLostError,
    MissingDataError,
    NewerFormatError,
    StorageError,
)
from partirvm.jobs.checkpoint import load_checkpoint, save_checkpoint
from partirvm.jobs.events import EventLog
from partirvm.jobs.sealed_values import read_values, write_values
from partirvm.jobs.state import JobState, Status, fold, observed
from partirvm.model import AnyModel, load_model, save_model
from partirvm.storage import open_folder, storing
from partirvm.storage.folder import read_json, to_json
from partirvm.storage.lease import TIMING, Holder, Lease, Marks, Timing, acquire, epochs, holder, succeed
from partirvm.storage.local_folder import LocalFolder
from partirvm.storage.process_identity import Process
from partirvm.storage.sealed import require_format
from partirvm.storage.snapshots import Snapshots

FORMAT = 3

SPEC_KIND, SPEC_FORMAT = "partirvm-spec", 1

LOOKS = 5
"""How often one who looks at a job looks again where its driver changed meanwhile."""

CHECKPOINTS = 3
"""Checkpoints that stay: where a resume passes over that of an end, there is still one to fall back on."""

REQUESTS = ("cancel", "abort")
"""What anybody may ask of a running job, the strongest first."""


@dataclass(frozen=True)
class Restored:
    """A checkpoint read back: the value, what its pointer says ``about`` it, newer ones that were found ``damaged``."""

    value: Any
    about: dict[str, Any]
    damaged: tuple[str, ...] = field(default=())


class JobStore:
    """Reads and writes one job's folder. ``lease`` is this process's, None while it has none."""

    def __init__(self, location: str | os.PathLike[str], *, storage_options: dict[str, Any] | None = None) -> None:
        self.location = os.fspath(location).rstrip("/")
        self.lease: Lease | None = None
        self._storage_options = storage_options
        self._folder = open_folder(self.location, storage_options)
        self._saved: str | None = None
        """The model that was saved last, until an event names it."""
        self._aside = self._folder.sibling(f".{self.location.rpartition('/')[2]}.before")
        self._log = EventLog(self._folder)
        self._models = Snapshots(self._folder, "models")
        self._specs = Snapshots(self._folder, "specs")
        self._checkpoints = Snapshots(self._folder, "checkpoints", CHECKPOINTS)

    @classmethod
    def create(cls, location: str | os.PathLike[str], spec: dict[str, Any], *, overwrite: bool = False) -> Self:
        """Start a job's folder.

        Raises ``ExistsError`` if something is there that may not be overwritten, ``LeaseError`` if a process is at work
        on it, ``StorageError`` where jobs cannot be kept.

        A job that is overwritten is kept beside the folder, as a hidden sibling, until the new one has saved its first
        model; ``discard`` puts it back. So does the next job that overwrites, for one that was killed before that. The
        new job goes on with the epochs of the old one, so that whoever was at work on that can spoil nothing: the store
        that is returned has its ``lease`` then, to be released.
        """
        store, before = cls(location), None
        folder = store._folder
        with storing(store.location):
            if folder.exists():
                if folder.exists("spec.json") or not folder.empty():
                    before = store._make_room(overwrite)
                else:
                    folder.remove()
            folder.require_exclusive()
        try:
            with storing(f"{store.location}/spec.json"):
                folder.create("spec.json", to_json({"format": FORMAT, **spec}))
                if before is not None:
                    store.lease = succeed(folder, before)
        except StorageError as error:
            if isinstance(error.__cause__, FileExistsError):
                raise ExistsError(f"{store.location}: another process has just started a job here") from error
            store.discard()
            raise
        except BaseException:
            store.discard()
            raise
        return store

    def there(self) -> bool:
        """Whether a job is there, readable or not."""
        return self._folder.exists("spec.json")

    def beside(self, name: str) -> Path | None:
        """The path of a folder inside the job for what need not last, None where the job is not on this machine."""
        return Path(self._folder.place(name)) if isinstance(self._folder, LocalFolder) else None

    def spec(self) -> dict[str, Any]:
        """What was asked.

        Raises ``MissingDataError`` for no job, ``FormatError`` where it is damaged, ``NewerFormatError`` for a job of a
        newer version.
        """
        try:
            spec = read_json(self._folder, "spec.json")
        except MissingDataError as error:
            raise MissingDataError(f"{self.location}: no job here (spec.json is missing)") from error
        require_format(spec.get("format"), FORMAT, self.location, "job", "start it again")
        return spec

    # Who is at work

    def acquire(self, *, patience: float = 0.0, timing: Timing = TIMING) -> Lease:
        """Take the lease; what this store writes from now on carries its epoch. Raises ``LeaseError`` if it is taken.

        Read the state after this, not before: until then another process may still have written.
        """
        self.spec()
        self.lease = acquire(self._folder, self._marks, patience=patience, timing=timing)
        return self.lease

    def holder(self) -> Holder | None:
        """Who has the lease, or had it last."""
        return holder(self._folder)

    def _check(self) -> None:
        """Raise ``LeaseError`` where this process may not write. Nobody needs a lease on a job that never had one."""
        if self.lease is not None:
            self.lease.check()
        elif epochs(self._folder):
            raise LeaseError(f"{self.location}: only who holds the lease may write to this job: acquire it first")

    def _marks(self) -> Marks:
        rows = self._log, self._models, self._specs, self._checkpoints
        return {one.series: list(one.mark()) for one in rows}

    # What happened

    def record(self, entry: dict[str, Any]) -> None:
        """Append an event: ``entry["event"]`` is its kind, the time is added, and the ``model`` that was saved before.

        Raises ``LeaseError`` where another process has, or had, the lease, ``StorageError`` if it cannot be written.
        """
        self._check()
        self._log.append(entry if self._saved is None else {**entry, "model": self._saved}, self.lease)
        self._saved = None

    def events(self) -> list[dict[str, Any]]:
        """All events in order. Raises ``FormatError`` or ``MissingDataError`` if one in the middle is damaged."""
        return self._log.read()

    def state(self) -> JobState:
        """Where the job stands, by its events, its lease and what was asked of it."""
        self.spec()
        has, state = self._look()
        if state.status is None:  # the process that created it was killed, or has not written the first event yet
            return replace(state, status=Status.QUEUED, reason="no process has begun it")
        asked = self.requested(state.attempt) if state.attempt > 0 else None
        held = has is not None and has.alive()
        lost = has is not None and not (held or has.over)
        seen = observed(state, held=held, aborting=asked is not None, lost=lost)
        if asked is not None and seen.status is Status.ABORTING is not state.status:
            reason, since = self.why(asked, state.attempt)
            seen = replace(seen, reason=reason, since=since)
        return seen

    def _look(self) -> tuple[Holder | None, JobState]:
        """The holder and the events of one moment: a driver that begins or ends in between is looked at again."""
        for _ in range(LOOKS):
            before, state, after = self.holder(), fold(self.events()), self.holder()
            if (before and (before.epoch, before.over)) == (after and (after.epoch, after.over)):
                break
        return after, state

    # What is asked of it

    def request(self, what: str, attempt: int, reason: str = "") -> bool:
        """Ask the driver of an attempt (``JobState.attempt``) to ``abort`` or ``cancel``; any process may.

        A resumed job is another attempt, so that a request never outlives what it was meant for. Returns False if it
        was asked before.
        """
        assert what in REQUESTS
        with storing(self.location):
            try:
                asked = {"time": time.time(), "reason": reason, **Process.this().to_json()}
                self._folder.create(_request(what, attempt), to_json(asked))
            except FileExistsError:
                return False
        return True

    def requested(self, attempt: int) -> str | None:
        """What was asked of the driver of this attempt, the strongest first; cheap enough to ask for every tile."""
        return next((what for what in REQUESTS if self._folder.exists(_request(what, attempt))), None)

    def why(self, what: str, attempt: int) -> tuple[str, float]:
        """The reason given with such a request, empty if there was none, and its time."""
        try:
            asked = read_json(self._folder, _request(what, attempt))
        except (MissingDataError, FormatError):
            return "", time.time()
        return str(asked.get("reason", "")), float(asked.get("time", 0.0))

    # What came of it

    def save(self, model: AnyModel) -> None:
        """Make this model the one to use.

        Raises ``LeaseError`` where another process has, or had, the lease, ``StorageError`` if it cannot be written;
        nothing of it is left then, and the one before stays in use.
        """
        self._check()
        first = not self.has_model()
        self._saved = self._models.publish(lambda place: save_model(model, place), lease=self.lease)
        if first:
            with suppress(OSError):
                self._aside.remove()

    def has_model(self) -> bool:
        """Whether there is a model to use."""
        return self._models.current() is not None

    def model(self, *, allow_code: bool = False) -> AnyModel:
        """The model to use.

        Raises ``MissingDataError`` if the job has none yet, or the last one that its events name is gone, and as
        ``load_model`` does.
        """
        self.spec()
        while True:
            name = self._models.current()
            named = self._log.newest_model()
            if name is None or name < named:
                newer = self._models.current()
                if newer != name:
                    continue  # a running job has saved it meanwhile
                raise self._no_model(named)
            try:
                place = self._folder.place(name)
                return load_model(place, allow_code=allow_code, storage_options=self._storage_options)
            except MissingDataError:
                if self._models.current() == name:
                    raise

    def _no_model(self, named: str) -> MissingDataError:
        if named and not self._cancelled():
            return MissingDataError(
                f"{self.location}: {named}.json, the pointer to its last model, is missing: restore it, or resume"
            )
        kept = self._aside.location
        before = f"; the one before it is kept in {kept}" if self._aside.exists() else ""
        return MissingDataError(f"{self.location}: the job has no model yet{before}")

    def _cancelled(self) -> bool:
        return fold(self.events()).status is Status.CANCELLED

    def decide(self, spec: dict[str, Any]) -> None:
        """Make this packed spec the one to run. Raises as ``save`` does."""
        self._check()
        self._specs.publish(lambda place: write_values(spec, place, SPEC_KIND, SPEC_FORMAT), {}, self.lease)

    def decided(self, *, allow_code: bool = False) -> dict[str, Any] | None:
        """The packed spec to run, or the one before it where the last is damaged; None if there never was one.

        Raises as ``restore`` does.
        """
        found = self._newest(
            self._specs,
            "spec",
            lambda place: read_values(place, SPEC_KIND, SPEC_FORMAT, allow_code=allow_code),
        )
        return None if found is None else found.value

    def checkpoint(self, value: Any, **about: Any) -> None:
        """Make this packed checkpoint the one to go on from; ``about`` is JSON for whoever looks at its pointer.

        Raises as ``save`` does, and ``TypeError`` for what is no plain value (``jobs.sealed_values``).
        """
        self._check()
        self._checkpoints.publish(lambda place: save_checkpoint(value, place), about, self.lease)

    def has_checkpoint(self) -> bool:
        """Whether there is a state to go on from."""
        return self._checkpoints.current() is not None

    def restore(
        self, wanted: Callable[[dict[str, Any]], bool] = lambda about: True, *, allow_code: bool = False
    ) -> Restored | None:
        """The last checkpoint, or the one before it where the last is damaged; None if there never was one.

        Those are passed over of which what the pointer says ``about`` them is not ``wanted``. Raises
        ``MissingDataError`` if all that there are are damaged, ``NewerFormatError`` for one of a newer version,
        ``UsageError`` for a named function as ``load_checkpoint`` does.
        """
        return self._newest(
            self._checkpoints, "checkpoint", lambda place: load_checkpoint(place, allow_code=allow_code), wanted
        )

    def _newest(
        self,
        row: Snapshots,
        what: str,
        load: Callable[[str], Any],
        wanted: Callable[[dict[str, Any]], bool] = lambda about: True,
    ) -> Restored | None:
        damaged: list[str] = []
        for snapshot in row.newest():
            place = self._folder.place(snapshot.name)
            if snapshot.about is None:
                damaged.append(f"{place}.json: damaged")
                continue
            if not wanted(snapshot.about):
                continue
            try:
                value = load(place)
            except NewerFormatError:
                raise
            except (MissingDataError, FormatError) as error:
                damaged.append(str(error))
                continue
            return Restored(value, snapshot.about, tuple(damaged))
        if damaged:
            raise MissingDataError(f"{self.location}: no {what} can be read: " + "; ".join(damaged))
        return None

    # What was predicted with it

    def note_prediction(self, key: str, facts: dict[str, Any]) -> None:
        """Remember that a prediction is whole: takes no lease, and has no effect on a store that cannot be written."""
        with suppress(OSError, StorageError):
            self._folder.create(f"predictions/{key}.json", to_json(facts))

    def has_prediction(self, key: str) -> bool:
        """Whether this prediction was noted."""
        return self._folder.exists(f"predictions/{key}.json")

    # Its beginning and end

    def forget(self) -> None:
        """Remove models, specs and checkpoints of a job that was cancelled: what it was asked, and its events, stay."""
        self._check()
        with storing(self.location):
            for name in (self._models.series, self._specs.series, self._checkpoints.series):
                self._folder.remove(name)

    def discard(self) -> None:
        """Remove the job's folder and all that is in it; put back the job that it overwrote."""
        if self.lease is not None:
            with suppress(LeaseLostError, StorageError):
                self.lease.release()
        self._folder.remove()
        if self._aside.exists():
            self._aside.rename(self._folder)

    def _make_room(self, overwrite: bool) -> int:
        """Move the job that is here aside if it has a model to lose, else remove it; the epoch that it had come to."""
        if not overwrite:
            raise ExistsError(
                f"{self.location}: there is something here already; --overwrite replaces a job, `partirvm resume` goes "
                "on with it"
            )
        if not self._folder.exists("spec.json"):
            raise ExistsError(f"{self.location}: this is not a job, it will not be overwritten")
        try:
            old = acquire(self._folder, self._marks)
        except LeaseError as error:
            has = self.holder()
            by = "" if has is None else f" by {has.process}"
            raise LeaseError(f"{self.location} is in use{by}: abort it before it is overwritten") from error
        try:
            if self.has_model():
                self._aside.remove()
                old.stop()
                self._folder.rename(self._aside)
                old.release(self._aside)
            else:
                old.stop()
                self._folder.remove()
        except BaseException:
            with suppress(StorageError):
                old.release()
            raise
        return old.epoch


def _request(what: str, attempt: int) -> str:
    return f"control/{what}-{attempt:06d}.json"
