"""Read and write the folder of a job: its request, its events, its models and its checkpoints.

    JOB/spec.json                     the request: parameters, fingerprint of the DATA, versions of packages
    JOB/events/000001.json            one numbered object per event, never changed (jobs.events)
    JOB/models/000002-000007/         a model, named by the epoch of its writer and a number: the newest complete one
                                      is the current model (storage.snapshots)
    JOB/specs/…                       the resolved spec of the fit, as above (resolve.spec)
    JOB/checkpoints/…                 checkpoints of the strategy, as above (jobs.checkpoint)
    JOB/control/abort-000001.json     a request to end attempt 1
    JOB/lease/000002.json             the process that runs the job (storage.lease)
    JOB/spec-000005.json              the request of a job that overwrites the one before: epoch 5 of the lease began
    JOB/run-000005/events/…           it, and its objects lie in a folder of their own

The folder may be any path or URL that ``storage.address`` allows. A process killed at any moment leaves every finished
event, the last finished model and the last finished checkpoint. With a lease (``acquire``) only one process writes at a
time. A process that lost its lease may still write, but readers ignore these objects.

The newest spec names the current job, so that one exclusive creation of a small object overwrites a job; then the
objects of the old job are removed. All jobs of a folder share its lease: the claim that overwrites a job also makes
void what its driver writes later, and a process that lost its lease cannot overwrite a job.
"""

from __future__ import annotations

import os
import re
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
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
from partirvm.jobs.checkpoint import load_checkpoint, load_spec, save_checkpoint, save_spec
from partirvm.jobs.events import SPEC, EventLog
from partirvm.jobs.state import JobState, Status, fold, observed
from partirvm.model import AnyModel, load_model, save_model
from partirvm.resolve.spec import FitSpec
from partirvm.storage import Folder, open_folder, storing
from partirvm.storage.address import require_address
from partirvm.storage.lease import (
    HeartbeatWatch,
    Holder,
    Lease,
    Marks,
    Process,
    acquire,
    epochs,
    holder,
    limits,
    valid,
)
from partirvm.storage.records import TIME, read_json, require, require_format, to_json
from partirvm.storage.snapshots import Snapshots

Found = TypeVar("Found")

FORMAT = 7

READS = 5
"""Maximum number of reads of a job's state if its driver changes during a read."""

CHECKPOINTS = 3
"""Number of checkpoints that are kept. If a resume skips a final checkpoint, an earlier one is still available."""

REQUESTS = ("cancel", "abort")
"""The requests that any process may make to a running job, the strongest request first."""

SERIES = "spec"
"""Name of the specs of a folder among the series of objects that leases guard."""

SPEC_NAME, RUN_NAME = re.compile(r"spec(?:-(\d{6,}))?\.json"), re.compile(r"run-(\d{6,})")
"""The names of specs, and of the folders of jobs that overwrote others, with the epoch that began the job."""

OWN = ("events", "models", "specs", "checkpoints", "control")
"""The names of a job's objects in its folder."""


@dataclass(frozen=True)
class Restored:
    """A checkpoint, its ``about``, and the newer checkpoints that were ``damaged``."""

    value: Any
    about: dict[str, Any]
    damaged: tuple[str, ...] = ()


class _Objects:
    """The series of objects of one job in the folder; ``run`` is the epoch that began it, 0 for the first job."""

    def __init__(self, folder: Folder, run: int) -> None:
        self.run = run
        self.spec = f"spec-{run:06d}.json" if run else "spec.json"
        self.prefix = f"run-{run:06d}/" if run else ""
        self.log = EventLog(folder, f"{self.prefix}events", self.spec)
        self.models = Snapshots(folder, f"{self.prefix}models")
        self.specs = Snapshots(folder, f"{self.prefix}specs")
        self.checkpoints = Snapshots(folder, f"{self.prefix}checkpoints", CHECKPOINTS)


class JobStore:
    """Reads and writes the folder of one job. ``lease`` is the lease of this process, or None without a lease."""

    def __init__(self, location: str | os.PathLike[str]) -> None:
        require_address(os.fspath(location))
        self.location = os.fspath(location).rstrip("/")
        self.lease: Lease | None = None
        self._folder = open_folder(self.location)
        self._saved: dict[str, str] = {}
        """The model and the spec saved last, until an event names them."""
        self._watch = HeartbeatWatch()
        self._found: _Objects | None = None

    @classmethod
    def create(cls, location: str | os.PathLike[str], spec: dict[str, Any], *, overwrite: bool = False) -> Self:
        """Create the folder of a job and return its store. An overwritten job is removed.

        A job that overwrites another one continues its epochs; its store holds a ``lease``, which the caller must
        release. Raises ``ExistsError`` if the folder holds something that may not be overwritten, ``LeaseError`` if a
        process runs the job in the folder, and ``StorageError`` if the folder cannot hold a job.
        """
        store = cls(location)
        folder = store._folder
        with storing(store.location):
            if not store._require_creatable(overwrite):
                folder.remove_empty()
                folder.require_exclusive()
            else:
                try:
                    store.lease = acquire(folder, store._marks)
                except LeaseError as error:
                    by = "" if (last := holder(folder)) is None else f" by {last.process}"
                    raise LeaseError(f"{store.location} is in use{by}: abort this job before overwriting it") from error
        job = _Objects(folder, 0 if store.lease is None else store.lease.epoch)
        try:
            with storing(f"{store.location}/{job.spec}"):
                begun = {"format": FORMAT, "token": uuid.uuid4().hex, **spec}
                folder.create(job.spec, to_json(job.spec, begun))
                if store.lease is not None:
                    store.lease.check()
        except BaseException as error:
            if isinstance(error.__cause__, FileExistsError):
                raise ExistsError(
                    f"{store.location}: another process has just started a job here: choose another folder"
                ) from error
            with suppress(LeaseError, StorageError):
                if store.lease is not None:
                    store.lease.release()
                else:
                    folder.remove_empty()
            raise
        store._found = job
        with suppress(OSError, StorageError):
            store._remove_older()
        return store

    @classmethod
    def require_place(cls, location: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Raise ``ExistsError`` if ``create`` would, before a fit is planned; nothing is changed."""
        store = cls(location)
        with storing(store.location):
            store._require_creatable(overwrite)

    def exists(self) -> bool:
        """Return True if the folder holds a job, readable or not."""
        return bool(_runs(self._folder))

    def local_path(self, name: str) -> Path | None:
        """Return the path of a temporary folder inside the job, or None if the job is not a local folder."""
        return None if self._folder.path is None else self._folder.path / name

    def spec(self) -> dict[str, Any]:
        """Find the current job of the folder, and return its request.

        Raises ``MissingDataError`` if there is no job, ``FormatError`` if it is damaged or of another version.
        """
        try:
            try:
                spec = read_json(self._folder, self._find().spec)
            except MissingDataError:  # another process has just overwritten the job
                spec = read_json(self._folder, self._find().spec)
        except MissingDataError as error:
            raise MissingDataError(f"{self.location}: no job here (spec.json is missing)") from error
        require_format(spec.get("format"), FORMAT, self.location, "job", "start it again")
        spec.pop("token", None)
        return spec

    def asked(self) -> dict[str, Any]:
        """Return ``spec``. Raises ``FormatError`` if a field that a fit needs is missing or of another type."""
        spec = self.spec()
        require(spec, SPEC, f"{self.location}/{self._job.spec}")
        return spec

    def _find(self) -> _Objects:
        """Find the current job of the folder; in a folder without a job, the first job."""
        runs = _runs(self._folder)
        marks = limits(self._folder, SERIES) if any(runs) else []
        run = max((run for run in runs if valid(run, (0, run), marks)), default=0)
        if self._found is None or self._found.run != run:
            self._found = _Objects(self._folder, run)
        return self._found

    @property
    def _job(self) -> _Objects:
        """The job of this process while it has a lease, otherwise the current job: another process may overwrite it."""
        return self._found if self.lease is not None and self._found is not None else self._find()

    # The lease

    def acquire(self, *, patience: float = 0.0) -> Lease:
        """Take the lease; raises ``LeaseError`` if another process holds it. Read the state after this call."""
        self.spec()
        self.lease = acquire(self._folder, self._marks, patience=patience, watch=self._watch)
        return self.lease

    def holder(self) -> Holder | None:
        """Return the current or the last holder of the lease."""
        return holder(self._folder)

    def _check(self) -> None:
        """Raise ``LeaseError`` if this process may not write: a job that had a lease is written only with one."""
        if self.lease is not None:
            self.lease.check()
        elif epochs(self._folder):
            raise LeaseError(f"{self.location}: only the holder of the lease may write to this job: call acquire first")

    def _marks(self) -> Marks:
        job = self._find()
        series = job.log, job.models, job.specs, job.checkpoints
        return {SERIES: [0, job.run], **{one.series: list(one.mark()) for one in series}}

    # The events

    def record(self, entry: dict[str, Any]) -> None:
        """Append an event with the time, and the ``model`` and the ``spec`` saved since the last event.

        Raises ``LeaseError`` if another process has taken the lease, and ``StorageError`` as all writers do.
        """
        self._check()
        self._job.log.append({**entry, **self._saved}, self.lease)
        self._saved = {}

    def events(self) -> list[dict[str, Any]]:
        """Return all events in order. Raises as ``EventLog.read`` does."""
        return self._job.log.read()

    def state(self) -> JobState:
        """Return the state of the job, computed from its events, its lease and the requests to end it."""
        for _ in range(READS):  # until no driver begins or ends between the reads
            self.spec()
            before, state, last = self.holder(), fold(self.events()), self.holder()
            if (before and (before.epoch, before.over)) == (last and (last.epoch, last.over)):
                break
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

    # Requests to end the job

    def request(self, what: str, attempt: int, reason: str = "") -> bool:
        """Request that an attempt (``JobState.attempt``) ends, with ``what`` "abort" or "cancel"; any process may.

        Returns False if the same request was made before.
        """
        assert what in REQUESTS
        with storing(self.location):
            try:
                request = {"time": time.time(), "reason": reason, **asdict(Process.this())}
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
            request = read_json(self._folder, self._request(what, attempt), {"time": TIME, "reason": str})
        except (MissingDataError, FormatError):
            return "", time.time()
        return str(request["reason"]), float(request["time"])

    def _request(self, what: str, attempt: int) -> str:
        return f"{self._job.prefix}control/{what}-{attempt:06d}.json"

    # Models, specs and checkpoints

    def save(self, model: AnyModel) -> None:
        """Save this model and make it the current model. After an error the previous model stays current."""
        self._check()
        self._saved["model"] = self._job.models.publish(partial(save_model, model), None, self.lease)

    def has_model(self) -> bool:
        """Return True if the job has a model."""
        return self._job.models.current() is not None

    def model(self, *, allow_code: bool = False) -> AnyModel:
        """Return the current model. Raises ``MissingDataError`` without one, or as ``load_model`` does."""
        self.spec()
        load = partial(load_model, allow_code=allow_code)
        while True:
            name = self._job.models.current()
            try:
                found = self._current("model", self._job.models, load)
                if found is None:
                    raise MissingDataError(f"{self.location}: the job has no model yet")
                return found
            except MissingDataError:
                if self._job.models.current() == name:
                    raise  # otherwise a running job has saved a model in the meantime

    def _current(self, what: str, series: Snapshots, load: Callable[..., Found]) -> Found | None:
        """Return the newest whole group, at least the newest one that an event names; None without any.

        A newer group that is damaged was never used, since the event that names it comes first.
        """
        named = self._job.log.newest(what)
        wrong = "missing"
        for snapshot in series.newest():
            if snapshot.name < named:
                break
            if snapshot.about is not None:
                return load(self._folder.place(snapshot.name))
            if snapshot.name == named:
                wrong = f"damaged or belongs to another {what}"
                break
        if named and (wrong != "missing" or fold(self.events()).status is not Status.CANCELLED):
            raise MissingDataError(
                f"{self.location}/{named}, the last {what}, is {wrong}: restore this folder, or run the job again"
            )
        return None

    def save_fit_spec(self, spec: FitSpec) -> None:
        """Store this spec as the current spec of the fit."""
        self._check()
        self._saved["spec"] = self._job.specs.publish(partial(save_spec, spec), {}, self.lease)

    def fit_spec(self, *, allow_code: bool = False) -> FitSpec | None:
        """Return the current spec of the fit, never an older one, or None if no spec was stored."""
        return self._current("spec", self._job.specs, partial(load_spec, allow_code=allow_code))

    def checkpoint(self, value: Any, **about: Any) -> None:
        """Store this checkpoint as the one to resume from. ``about`` is JSON that is stored with it."""
        self._check()
        self._job.checkpoints.publish(partial(save_checkpoint, value), about, self.lease)

    def has_checkpoint(self) -> bool:
        """Return True if there is a checkpoint to resume from."""
        return self._job.checkpoints.current() is not None

    def restore(
        self, wanted: Callable[[dict[str, Any]], bool] = lambda about: True, *, allow_code: bool = False
    ) -> Restored | None:
        """Return the newest ``wanted`` checkpoint that can be read, or None if no checkpoint was stored.

        ``wanted`` receives the ``about`` of a checkpoint. Raises ``MissingDataError`` if all checkpoints are damaged.
        """
        damaged: list[str] = []
        for snapshot in self._job.checkpoints.newest():
            place = self._folder.place(snapshot.name)
            if snapshot.about is None:
                damaged.append(f"{place}: damaged, or another checkpoint")
            elif wanted(snapshot.about):
                try:
                    value = load_checkpoint(place, allow_code=allow_code)
                except NewerFormatError:
                    raise
                except (MissingDataError, FormatError) as error:
                    damaged.append(str(error))
                else:
                    return Restored(value, snapshot.about, tuple(damaged))
        if damaged:
            raise MissingDataError(f"{self.location}: no checkpoint can be read: " + "; ".join(damaged))
        return None

    # Removal

    def forget(self) -> None:
        """Remove the models, specs and checkpoints of a cancelled job. Its request and its events are kept."""
        self._check()
        with storing(self.location):
            for one in (self._job.models, self._job.specs, self._job.checkpoints):
                self._folder.remove(one.series)

    def discard(self) -> None:
        """Remove the job and its folder."""
        if self.lease is not None:
            with suppress(LeaseLostError, StorageError):
                self.lease.release()
        self._folder.remove()

    def _remove_older(self) -> None:
        """Remove the jobs that the current one overwrites, specs first. A later one is kept: its writer took over."""
        run, names = self._job.run, self._folder.list()
        found = [(name, pattern.fullmatch(name)) for pattern in (SPEC_NAME, RUN_NAME) for name in names]
        older = [name for name, match in found if match and int(match[1] or 0) < run]
        for name in [*older, *(OWN if run else ())]:
            self._folder.remove(name)

    def _require_creatable(self, overwrite: bool) -> bool:
        """Return True if the folder holds a job to overwrite. Raises ``ExistsError`` if it holds anything else."""
        if not self._folder.exists() or self._folder.empty():
            return False
        if not overwrite:
            raise ExistsError(
                f"{self.location} exists already: replace a job with --overwrite, or continue it with `partirvm resume`"
            )
        if not self.exists():
            raise ExistsError(f"{self.location} exists and is not a job: it is not overwritten; choose another folder")
        return True


def _runs(folder: Folder) -> list[int]:
    """Return the runs of all specs in the folder, valid or not, in increasing order."""
    found = (SPEC_NAME.fullmatch(name) for name in folder.list())
    return sorted(int(match[1] or 0) for match in found if match)
