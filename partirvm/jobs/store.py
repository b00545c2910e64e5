"""Read and write the folder of a job: its request, its events, its models and its checkpoints.

    JOB/spec.json                     the request: parameters, fingerprint of the DATA, versions of packages
    JOB/events/000001.json            one numbered object per event, never changed (jobs.events)
    JOB/models/000002-000007/         a model, named by the epoch of its writer and a number
    JOB/models/000002-000007.json     the pointer of this model: the newest pointer names the current model
                                      (storage.snapshots)
    JOB/specs/…                       the resolved spec of the fit, with pointers as above (setup.spec)
    JOB/checkpoints/…                 checkpoints of the strategy, with pointers as above (jobs.checkpoint)
    JOB/control/abort-000001.json     a request to end attempt 1
    JOB/lease/000002.json             the process that runs the job (storage.lease)
    JOB/spec-000005-000005.json       the request of a job that overwrites another one, and JOB/run-000005/, the folder
                                      of its events, models, … (jobs.overwriting)

The folder may be any path or URL that ``storage.address`` allows. A process killed at any moment leaves every finished
event, the last finished model and the last finished checkpoint. With a lease (``acquire``) only one process writes at a
time. A process that lost its lease may still write, but readers ignore these objects.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

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
from partirvm.jobs.overwriting import SERIES, SpecName, has_spec, remove_others, spec_names
from partirvm.jobs.schema import REQUEST, SPEC
from partirvm.jobs.sealed_values import read_values, write_values
from partirvm.jobs.state import JobState, Status, fold, observed
from partirvm.model import AnyModel, load_model, save_model
from partirvm.storage import Folder, open_folder, storing
from partirvm.storage.address import require_address
from partirvm.storage.lease import (
    TIMING,
    HeartbeatWatch,
    Holder,
    Lease,
    Marks,
    Process,
    Timing,
    acquire,
    epochs,
    holder,
)
from partirvm.storage.records import read_json, require, to_json
from partirvm.storage.sealed import require_format
from partirvm.storage.snapshots import Snapshots

Found = TypeVar("Found")

FORMAT = 6

SPEC_KIND, SPEC_FORMAT = "partirvm-spec", 3

READS = 5
"""Maximum number of reads of a job's state if its driver changes during a read."""

CHECKPOINTS = 3
"""Number of checkpoints that are kept. If a resume skips a final checkpoint, an earlier one is still available."""

REQUESTS = ("cancel", "abort")
"""The requests that any process may make to a running job, the strongest request first."""


@dataclass(frozen=True)
class Restored:
    """A value loaded from a snapshot, the ``about`` of its pointer, and the newer snapshots that were ``damaged``."""

    value: Any
    about: dict[str, Any]
    damaged: tuple[str, ...] = field(default=())


class JobStore:
    """Reads and writes the folder of one job. ``lease`` is the lease of this process, or None without a lease."""

    def __init__(self, location: str | os.PathLike[str], *, storage_options: dict[str, Any] | None = None) -> None:
        require_address(os.fspath(location), storage_options)
        self.location = os.fspath(location).rstrip("/")
        self.lease: Lease | None = None
        self._storage_options = storage_options
        self._folder = open_folder(self.location, storage_options)
        self._saved: dict[str, str] = {}
        """The model and the spec saved last, until an event names them."""
        self._watch = HeartbeatWatch()
        self._found: _Objects | None = None
        self._cleared = False

    @classmethod
    def create(cls, location: str | os.PathLike[str], spec: dict[str, Any], *, overwrite: bool = False) -> Self:
        """Create the folder of a job and return its store.

        Raises ``ExistsError`` if the folder holds something that may not be overwritten, ``LeaseError`` if a process
        runs the job in the folder, and ``StorageError`` if the folder cannot hold a job.

        An overwritten job is kept until the new job has saved its first model. ``discard`` restores the overwritten
        job. If the new job is killed before its first model, the overwritten job stays, and ``discard`` of the next job
        in this place restores it.

        The new job continues the epochs of the old job, so that a driver of the old job cannot damage the new job. The
        returned store then holds a ``lease``, which the caller must release.
        """
        store = cls(location)
        folder = store._folder
        with storing(store.location):
            if folder.exists() and not folder.empty():
                store._take(overwrite)
            else:
                folder.remove()
                folder.require_exclusive()
        epoch = 0 if store.lease is None else store.lease.epoch
        name = SpecName(epoch, epoch)
        try:
            store._begin(name, {"format": FORMAT, "token": uuid.uuid4().hex, **spec})
        except BaseException as error:
            if isinstance(error.__cause__, FileExistsError):
                raise ExistsError(
                    f"{store.location}: another process has just started a job here: choose another folder"
                ) from error
            with suppress(LeaseError, StorageError):
                if store.lease is not None and store._find().name != name:
                    store.lease.release()
                else:
                    store.discard()
            raise
        return store

    @classmethod
    def require_place(cls, location: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Raise ``ExistsError`` if ``create`` would, before a fit is planned; nothing is changed."""
        store = cls(location)
        with storing(store.location):
            if store._folder.exists() and not store._folder.empty():
                store._require_overwritable(overwrite)

    def there(self) -> bool:
        """Return True if the folder holds a job, readable or not."""
        return has_spec(self._folder)

    def beside(self, name: str) -> Path | None:
        """Return the path of a folder for temporary files inside the job, or None if the job is not a local folder."""
        return None if self._folder.path is None else self._folder.path / name

    def spec(self) -> dict[str, Any]:
        """Find the current job of the folder, and return its request.

        The other methods read the job that was found last. Raises ``MissingDataError`` if there is no job,
        ``FormatError`` if the file is damaged, and ``NewerFormatError`` if a newer version of partirvm wrote the job.
        """
        try:
            name = self._find().name
            try:
                spec = read_json(self._folder, str(name))
            except MissingDataError:  # another process has just overwritten or restored a job
                spec = read_json(self._folder, str(self._find().name))
        except MissingDataError as error:
            raise MissingDataError(f"{self.location}: no job here (spec.json is missing)") from error
        require_format(spec.get("format"), FORMAT, self.location, "job", "start it again")
        spec.pop("token", None)
        return spec

    def asked(self) -> dict[str, Any]:
        """Return ``spec``. Raises ``FormatError`` if a field that a fit needs is missing or of another type."""
        spec = self.spec()
        require(spec, SPEC, f"{self.location}/{self._job.name}")
        return spec

    def _find(self) -> _Objects:
        """Find the current job of the folder; in a folder without a job, the first job."""
        name = (spec_names(self._folder) or [SpecName()])[-1]
        if self._found is None or self._found.name != name:
            self._found = _Objects(self._folder, name)
        return self._found

    @property
    def _job(self) -> _Objects:
        return self._found or self._find()

    # The lease

    def acquire(self, *, patience: float = 0.0, timing: Timing = TIMING) -> Lease:
        """Take the lease. Everything that this store writes afterwards has the epoch of the lease.

        Read the state after this call, because another process may write until the call returns. Raises ``LeaseError``
        if another process holds the lease.
        """
        self.spec()
        self.lease = acquire(self._folder, self._marks, patience=patience, timing=timing, watch=self._watch)
        return self.lease

    def holder(self) -> Holder | None:
        """Return the current or the last holder of the lease."""
        return holder(self._folder)

    def _check(self) -> None:
        """Raise ``LeaseError`` if this process may not write. A job that never had a lease may be written without."""
        if self.lease is not None:
            self.lease.check()
        elif epochs(self._folder):
            raise LeaseError(f"{self.location}: only the holder of the lease may write to this job: call acquire first")

    def _marks(self) -> Marks:
        job = self._find()
        series = job.log, job.models, job.specs, job.checkpoints
        return {SERIES: [job.name.epoch, job.name.run], **{one.series: list(one.mark()) for one in series}}

    # The events

    def record(self, entry: dict[str, Any]) -> None:
        """Append an event of the kind ``entry["event"]``, with the time, and the ``model`` and the ``spec`` saved since
        the last event.

        Raises ``LeaseError`` if another process has taken the lease, and ``StorageError`` if the event cannot be
        written.
        """
        self._check()
        self._job.log.append({**entry, **self._saved}, self.lease)
        self._saved = {}

    def events(self) -> list[dict[str, Any]]:
        """Return all events in order.

        Raises ``FormatError`` or ``MissingDataError`` if an event before the last is damaged or missing.
        """
        return self._job.log.read()

    def state(self) -> JobState:
        """Return the state of the job, computed from its events, its lease and the requests to end it."""
        last, state = self._holder_and_state()
        if state.status is None:  # the process that created it was killed, or has not written the first event yet
            return replace(state, status=Status.QUEUED, reason="no process has begun it")
        request = self.requested(state.attempt) if state.attempt > 0 else None
        held = self._watch.held(last)
        lost = last is not None and not (held or last.over)
        current = observed(state, held=held, aborting=request is not None, lost=lost)
        if request is not None and current.status is Status.ABORTING is not state.status:
            reason, since = self.reason_of(request, state.attempt)
            current = replace(current, reason=reason, since=since)
        return current

    def _holder_and_state(self) -> tuple[Holder | None, JobState]:
        """Return a consistent pair of holder and state; both are read again if a driver begins or ends meanwhile."""
        for _ in range(READS):
            self.spec()
            before, state, after = self.holder(), fold(self.events()), self.holder()
            if (before and (before.epoch, before.over)) == (after and (after.epoch, after.over)):
                break
        return after, state

    # Requests to end the job

    def request(self, what: str, attempt: int, reason: str = "") -> bool:
        """Request that an attempt (``JobState.attempt``) ends, with ``what`` "abort" or "cancel".

        Any process may make a request. A request never affects a resumed job, because a resume starts a new attempt.
        Returns False if the same request was made before.
        """
        assert what in REQUESTS
        with storing(self.location):
            try:
                request = {"time": time.time(), "reason": reason, **Process.this().to_json()}
                name = self._request(what, attempt)
                self._folder.create(name, to_json(name, request))
            except FileExistsError:
                return False
        return True

    def requested(self, attempt: int) -> str | None:
        """Return the strongest request for this attempt, or None. The check is fast enough to run for every tile."""
        return next((what for what in REQUESTS if self._folder.exists(self._request(what, attempt))), None)

    def reason_of(self, what: str, attempt: int) -> tuple[str, float]:
        """Return the reason given with a request, or "" without a reason, and the time of the request."""
        try:
            request = read_json(self._folder, self._request(what, attempt), REQUEST)
        except (MissingDataError, FormatError):
            return "", time.time()
        return str(request["reason"]), float(request["time"])

    # Models, specs and checkpoints

    def save(self, model: AnyModel) -> None:
        """Save this model and make it the current model.

        Raises ``LeaseError`` if another process has taken the lease, and ``StorageError`` if the model cannot be
        written. The previous model then stays current, and no part of the new model is left. The first model of a
        process removes the jobs that this job has overwritten.
        """
        self._check()
        self._saved["model"] = self._job.models.publish(lambda place: save_model(model, place), lease=self.lease)
        if self._job.name.epoch and not self._cleared:
            self._cleared = True
            with suppress(OSError, StorageError):
                remove_others(self._folder, self._job.name)

    def has_model(self) -> bool:
        """Return True if the job has a model."""
        return self._job.models.current() is not None

    def model(self, *, allow_code: bool = False) -> AnyModel:
        """Return the current model.

        Raises ``MissingDataError`` if the job has no model yet, or if the newest model named by an event is missing.
        Other exceptions are those of ``load_model``.
        """
        self.spec()
        load = partial(load_model, allow_code=allow_code, storage_options=self._storage_options)
        while True:
            name = self._job.models.current()
            try:
                found = self._current("model", self._job.models, load)
                if found is None:
                    raise self._no_model()
                return found
            except MissingDataError:
                if self._job.models.current() == name:
                    raise  # otherwise a running job has saved a model in the meantime

    def _current(self, what: str, series: Snapshots, load: Callable[..., Found]) -> Found | None:
        """Return the newest group with a whole pointer, at least the newest one that an event names; None without any.

        A newer group with a damaged pointer was never used, because the event that names it comes first.
        """
        named = self._job.log.newest(what)
        for snapshot in series.newest():
            if snapshot.name < named:
                break
            if snapshot.about is not None:
                return load(self._folder.place(snapshot.name), seal=snapshot.about["seal"])
            if snapshot.name == named:
                raise MissingDataError(
                    f"{self.location}: {named}.json, the pointer to the last {what}, is damaged or belongs to another "
                    f"{what}: restore this file, or run the job again"
                )
        if named and not self._cancelled():
            raise MissingDataError(
                f"{self.location}: {named}.json, the pointer to the last {what}, is missing: restore this file, or "
                "run the job again"
            )
        return None

    def _no_model(self) -> MissingDataError:
        before = f"; remove {self._job.name} to restore the overwritten job" if self._others() else ""
        return MissingDataError(f"{self.location}: the job has no model yet{before}")

    def _cancelled(self) -> bool:
        return fold(self.events()).status is Status.CANCELLED

    def decide(self, spec: dict[str, Any]) -> None:
        """Store this packed spec as the current spec of the fit. Raises as ``save`` does."""
        self._check()
        self._saved["spec"] = self._job.specs.publish(
            lambda place: write_values(spec, place, SPEC_KIND, SPEC_FORMAT), {}, self.lease
        )

    def decided(self, *, allow_code: bool = False) -> dict[str, Any] | None:
        """Return the current packed spec, or None if no spec was stored. Raises ``MissingDataError`` if it is missing
        or damaged; never returns an older one, which may be that of fewer rows.
        """
        load = partial(read_values, kind=SPEC_KIND, version=SPEC_FORMAT, allow_code=allow_code)
        return self._current("spec", self._job.specs, load)

    def checkpoint(self, value: Any, **about: Any) -> None:
        """Store this packed checkpoint as the one to resume from. ``about`` is JSON that is stored in its pointer.

        Raises as ``save`` does, and ``TypeError`` for a value that cannot be stored (``jobs.sealed_values``).
        """
        self._check()
        self._job.checkpoints.publish(lambda place: save_checkpoint(value, place), about, self.lease)

    def has_checkpoint(self) -> bool:
        """Return True if there is a checkpoint to resume from."""
        return self._job.checkpoints.current() is not None

    def restore(
        self, wanted: Callable[[dict[str, Any]], bool] = lambda about: True, *, allow_code: bool = False
    ) -> Restored | None:
        """Return the newest checkpoint that can be read, or None if no checkpoint was stored.

        Checkpoints are skipped if ``wanted`` returns False for the ``about`` of their pointer. Raises
        ``MissingDataError`` if all checkpoints are damaged, ``NewerFormatError`` for a checkpoint of a newer version,
        and ``UsageError`` for a named function without ``allow_code``.
        """
        return self._newest(
            self._job.checkpoints,
            "checkpoint",
            lambda place, seal: load_checkpoint(place, allow_code=allow_code, seal=seal),
            wanted,
        )

    def _newest(
        self,
        series: Snapshots,
        what: str,
        load: Callable[[str, str], Any],
        wanted: Callable[[dict[str, Any]], bool] = lambda about: True,
    ) -> Restored | None:
        damaged: list[str] = []
        for snapshot in series.newest():
            place = self._folder.place(snapshot.name)
            if snapshot.about is None:
                damaged.append(f"{place}.json: damaged, or the pointer of another {what}")
                continue
            if not wanted(snapshot.about):
                continue
            try:
                value = load(place, snapshot.about["seal"])
            except NewerFormatError:
                raise
            except (MissingDataError, FormatError) as error:
                damaged.append(str(error))
                continue
            return Restored(value, snapshot.about, tuple(damaged))
        if damaged:
            raise MissingDataError(f"{self.location}: no {what} can be read: " + "; ".join(damaged))
        return None

    # Removal

    def forget(self) -> None:
        """Remove the models, specs and checkpoints of a cancelled job. Its request and its events are kept."""
        self._check()
        with storing(self.location):
            for one in (self._job.models, self._job.specs, self._job.checkpoints):
                self._folder.remove(one.series)

    def discard(self) -> None:
        """Remove the current job and restore the job that it overwrote, if there was one.

        The newest job with a model is restored; if no job has a model, the newest job. Raises ``LeaseError`` if another
        process runs the current job.
        """
        if self.lease is not None:
            with suppress(LeaseLostError, StorageError):
                self.lease.release()
        others = self._others()
        if not others:
            self._folder.remove()
            return
        with self.acquire() as lease:
            with_model = [name for name in others if _Objects(self._folder, name).models.current() is not None]
            name = (with_model or others)[-1]
            self._begin(SpecName(lease.epoch, name.run), read_json(self._folder, str(name)))
            remove_others(self._folder, self._job.name)

    def _begin(self, name: SpecName, spec: dict[str, Any]) -> None:
        """Make the job with this spec the current job. Raises ``StorageError``, and ``LeaseLostError``."""
        with storing(f"{self.location}/{name}"):
            self._folder.create(str(name), to_json(str(name), spec))
            if self.lease is not None:
                self.lease.check()
        self._find()

    def _others(self) -> list[SpecName]:
        """Return the names of the specs of the other jobs in the folder."""
        run = self._find().name.run
        return [name for name in spec_names(self._folder) if name.run != run]

    def _require_overwritable(self, overwrite: bool) -> None:
        """Raise ``ExistsError`` unless the folder holds a job that may be overwritten."""
        if not overwrite:
            raise ExistsError(
                f"{self.location} exists already: replace a job with --overwrite, or continue it with `partirvm resume`"
            )
        if not self.there():
            raise ExistsError(f"{self.location} exists and is not a job: it is not overwritten; choose another folder")

    def _take(self, overwrite: bool) -> None:
        """Take the lease of the existing job, so that it can be overwritten."""
        self._require_overwritable(overwrite)
        try:
            self.lease = acquire(self._folder, self._marks)
        except LeaseError as error:
            last = self.holder()
            by = "" if last is None else f" by {last.process}"
            raise LeaseError(f"{self.location} is in use{by}: abort this job before overwriting it") from error

    def _request(self, what: str, attempt: int) -> str:
        return f"{self._job.name.prefix}control/{what}-{attempt:06d}.json"


class _Objects:
    """The series of objects of one job in the folder. ``name`` is the name of its spec."""

    def __init__(self, folder: Folder, name: SpecName) -> None:
        self.name = name
        self.log = EventLog(folder, f"{name.prefix}events", str(name))
        self.models = Snapshots(folder, f"{name.prefix}models")
        self.specs = Snapshots(folder, f"{name.prefix}specs")
        self.checkpoints = Snapshots(folder, f"{name.prefix}checkpoints", CHECKPOINTS)
