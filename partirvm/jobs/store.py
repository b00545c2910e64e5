"""Read and write the folder of a job: its request, its events, its models and its checkpoints.

    JOB/spec.json                     the request: parameters, fingerprint of the DATA, versions of packages
    JOB/events/000001.json            one numbered object per event, created exclusively and never changed
    JOB/models/000002-000007/         a model, named by the epoch of its writer and a number: the newest complete one
                                      is the current model (storage.lease)
    JOB/checkpoints/…                 checkpoints of the fit, as above (jobs.checkpoint)
    JOB/control/abort-000001.json     a request to end attempt 1
    JOB/lease/000002.json             the process that runs the job (storage.lease)
    JOB/spec-000005.json              the request of a job that overwrites the one before: epoch 5 of the lease began
    JOB/run-000005/events/…           it, and its objects lie in a folder of their own

The folder may be any path or URL that ``storage.address`` allows. A process killed at any moment leaves every finished
event, the last finished model and the last finished checkpoint. With a lease (``acquire``) only one process writes at a
time. A process that lost its lease may still write, but readers ignore these objects: an event holds the epoch of its
writer's lease (0 without one), and the token of this lease, or of the spec, which binds it to its job.

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
from dataclasses import asdict, replace
from functools import partial
from typing import Any, Self, TypeVar

from partirvm.errors import ExistsError, FormatError, LeaseError, MissingDataError, NewerFormatError, StorageError
from partirvm.jobs.checkpoint import has_begun, load_checkpoint, save_checkpoint
from partirvm.jobs.state import JobState, Status, fold, observed
from partirvm.model import AnyModel, load_model, save_model
from partirvm.storage import open_folder, storing
from partirvm.storage.address import require_address
from partirvm.storage.lease import (
    HeartbeatWatch,
    Holder,
    Lease,
    Marks,
    Process,
    Snapshots,
    acquire,
    claims,
    epochs,
    holder,
    limits,
    valid,
)
from partirvm.storage.records import TIME, Schema, numbered, numbers, read_json, require, require_format, to_json

Found = TypeVar("Found")

FORMAT = 8

READS = 5
"""Maximum number of reads of what another process changes during each read."""

KEPT = {"models": 2, "checkpoints": 3}
"""Numbers of models and checkpoints that are kept: an earlier checkpoint than a final one must be available."""

REQUESTS = ("cancel", "abort")
"""The requests that any process may make to a running job, the strongest request first."""

SPECS, RUNS = re.compile(r"spec(?:-(\d{6,}))?\.json"), re.compile(r"run-(\d{6,})")
"""The names of specs, and of the folders of jobs that overwrote others, with the epoch that began the job."""

# Schemas (``storage.records``) of a request and of events: fields that readers use. Objects may have more fields.

FINGERPRINT = {"n_rows": int, "n_features": int, "hashes": list[str], "about": str, "moments": str}

SPEC: Schema = {
    "data": str,
    "validation": str | None,
    "parameters": {"kernel": Any, "basis": Any},
    "versions": dict[str, str],
}
SPEC |= {"fingerprint": FINGERPRINT, "validation_fingerprint": (FINGERPRINT, None)}

EVENT: Schema = {"event": str, "time": TIME, "epoch": int, "token": str, "model?": str, "reason?": str, "cluster?": str}
EVENT |= {"history?": int, "seconds?": float | None, "changes?": {}, "data?": str, "validation?": str | None}
EVENT |= {"fingerprint?": FINGERPRINT, "rounds?": int | None}


class JobStore:
    """Reads and writes the folder of one job. ``lease`` is the lease of this process, or None without a lease."""

    def __init__(self, location: str | os.PathLike[str]) -> None:
        require_address(os.fspath(location))
        self.location = os.fspath(location).rstrip("/")
        self.lease: Lease | None = None
        self._folder = open_folder(self.location)
        self._watch = HeartbeatWatch()
        self._run: int | None = None
        """The epoch that began the job for which this process has the lease."""
        self._saved: dict[str, str] = {}
        """The model saved last, until an event names it."""

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
            if store.require_creatable(overwrite):
                store.lease = acquire(folder, store._marks, stop="abort this job before overwriting it")
            else:
                folder.remove_empty()
                folder.require_exclusive()
        store._run = 0 if store.lease is None else store.lease.epoch
        name = store._spec_name()
        try:
            with storing(f"{store.location}/{name}"):
                folder.create(name, to_json(name, {"format": FORMAT, "token": uuid.uuid4().hex, **spec}))
                store._check()
        except BaseException as error:
            store.release()
            folder.remove_empty()
            if isinstance(error.__cause__, FileExistsError):
                raise ExistsError(
                    f"{store.location}: another process has just started a job here: choose another folder"
                ) from error
            raise
        with suppress(OSError, StorageError):
            store._remove_older()
        return store

    def require_creatable(self, overwrite: bool = False) -> bool:
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

    def exists(self) -> bool:
        """Return True if the folder holds a job, readable or not."""
        return any(map(SPECS.fullmatch, self._folder.list()))

    def spec(self, schema: Any = None) -> dict[str, Any]:
        """Return the request of the current job of the folder.

        Raises ``MissingDataError`` if there is no job, ``FormatError`` if it is damaged, of another version, or has not
        the ``schema``.
        """
        try:
            spec = self._stable(lambda: read_json(self._folder, self._spec_name()), self._current_run)
        except MissingDataError as error:
            raise MissingDataError(f"{self.location}: no job here (spec.json is missing)") from error
        require_format(spec.get("format"), FORMAT, self.location, "job", "start it again")
        require(spec, schema or {}, f"{self.location}/{self._spec_name()}")
        spec.pop("token", None)
        return spec

    def _current_run(self) -> int:
        """Return the epoch that began the current job of the folder; 0 for the first job, or in a folder without one.

        For a process with the lease it is the job for which it was taken: another process may overwrite that job.
        """
        if self.lease is not None and self._run is not None:
            return self._run
        found = [int(match[1] or 0) for match in map(SPECS.fullmatch, self._folder.list()) if match]
        marks = limits(self._folder, "spec") if any(found) else []
        return max((run for run in found if valid(run, (0, run), marks)), default=0)

    def _spec_name(self) -> str:
        run = self._current_run()
        return f"spec-{run:06d}.json" if run else "spec.json"

    def _at(self, name: str) -> str:
        """Return the name in the folder of an object, or of a series of objects, of the current job."""
        run = self._current_run()
        return f"run-{run:06d}/{name}" if run else name

    def _snapshots(self, name: str) -> Snapshots:
        return Snapshots(self._folder, self._at(name), KEPT[name])

    def _stable(self, read: Callable[[], Found], mark: Callable[[], Any]) -> Found:
        """Return what ``read`` returns while ``mark`` does not change; the last of ``READS`` reads counts anyway."""
        for left in reversed(range(READS)):
            before = mark()
            try:
                found = read()
            except MissingDataError:
                if not left or mark() == before:
                    raise
            else:
                if not left or mark() == before:
                    break
        return found

    # The lease

    def acquire(self, *, patience: float = 0.0) -> Lease:
        """Take the lease; raises ``LeaseError`` if another process holds it. Read the state after this call."""
        self.spec()
        run, self._run = self._run, None
        try:
            lease = acquire(self._folder, self._marks, patience=patience, watch=self._watch)
            run, self.lease = self._current_run(), lease
        finally:
            self._run = run
        return lease

    def release(self) -> None:
        """Release the lease of this process, if it has one and the folder can still be written."""
        with suppress(LeaseError, StorageError):
            if self.lease is not None:
                self.lease.release()

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
        events, run = self._at("events"), self._current_run()
        series = {each.series: list(each.mark()) for each in map(self._snapshots, KEPT)}
        return {"spec": [0, run], events: [0, max(numbers(self._folder, events, first=1), default=0)], **series}

    # The events

    def record(self, entry: dict[str, Any]) -> None:
        """Append an event with the time, and the ``model`` saved since the last event.

        Raises ``LeaseError`` if another process has taken the lease, and ``StorageError`` as all writers do. The event
        may then exist, but readers ignore it.
        """
        self._check()
        writer = {"epoch": 0, "token": self._token()}
        if self.lease is not None:
            writer = {"epoch": self.lease.epoch, "token": self.lease.token}
        event = {"event": entry["event"], "time": time.time(), **entry, **self._saved, **writer}
        series = self._at("events")
        with storing(f"{self.location}/{series}"):
            number, created = max(numbers(self._folder, series, first=1), default=0), False
            while not created:
                name = numbered(series, number := number + 1)
                with suppress(FileExistsError):  # another writer, or a listing of a network disk that lags behind
                    self._folder.create(name, to_json(name, event))
                    created = True
        self._check()
        self._saved = {}

    def events(self) -> list[dict[str, Any]]:
        """Return all valid events in order.

        An event that equals the event before it, its time included, is the same event, written again by a client that
        heard no reply. Raises ``FormatError`` for a damaged event and for an event of another job, and
        ``MissingDataError`` for a missing event or claim of the lease.
        """
        series, folder = self._at("events"), self._folder
        found = [
            (number, read_json(folder, numbered(series, number), EVENT)) for number in numbers(folder, series, first=1)
        ]
        held = claims(folder)
        marks = limits(folder, series, held)
        tokens = {epoch: claim["token"] for epoch, claim in held.items()}
        events = [(number, event) for number, event in found if valid(event["epoch"], (0, number), marks)]
        if any(event["epoch"] == 0 for _, event in events):
            tokens[0] = self._token()
        for number, event in events:
            if (token := tokens.get(event["epoch"])) is None:
                raise MissingDataError(
                    f"{self.location}: the claim of epoch {event['epoch']} is missing in the folder lease/: restore it"
                )
            if event.pop("token") != token:
                raise FormatError(
                    f"{self.location}: {numbered(series, number)} belongs to another job than its lease or "
                    f"{self._spec_name()}: restore these files"
                )
        return [event for k, (_, event) in enumerate(events) if not k or event != events[k - 1][1]]

    def _token(self) -> str:
        return str(read_json(self._folder, self._spec_name(), {"token": str})["token"])

    def folded(self, schema: Any = None) -> JobState:
        """Return the state by the request and the events alone. Raises as ``spec`` and ``events`` do."""
        return fold(self.events(), self.spec(schema))

    def asked(self) -> JobState:
        """Return ``folded``. Raises ``FormatError`` if a field of the request that a fit needs is missing or wrong."""
        return self.folded(SPEC)

    def state(self) -> JobState:
        """Return the state of the job, computed from its events, its lease and the requests to end it."""

        def ends() -> tuple[int, bool] | None:
            last = self.holder()
            return None if last is None else (last.epoch, last.over)

        state, last = self._stable(lambda: (self.folded(), self.holder()), ends)  # no driver begins or ends meanwhile
        if state.status is None:  # the process that created it was killed, or has not written the first event yet
            return replace(state, status=Status.QUEUED, reason="no process has begun it")
        request, held = self.requested(state.attempt), self._watch.held(last)
        lost = last is not None and not (held or last.over)
        current = observed(state, held=held, aborting=request is not None, lost=lost)
        if request is not None and current.status is Status.ABORTING is not state.status:
            current = replace(current, reason=self.reason_of(request, state.attempt))
        return current

    # Requests to end the job

    def request(self, what: str, attempt: int, reason: str = "") -> bool:
        """Request that an attempt (``JobState.attempt``) ends, with ``what`` "abort" or "cancel"; any process may.

        Returns False if the same request was made before.
        """
        assert what in REQUESTS
        name = self._request(what, attempt)
        request = {"time": time.time(), "reason": reason, **asdict(Process.this())}
        with storing(self.location), suppress(FileExistsError):
            self._folder.create(name, to_json(name, request))
            return True
        return False

    def requested(self, attempt: int) -> str | None:
        """Return the strongest request for this attempt, or None. The check is fast enough to run for every tile."""
        return next((what for what in REQUESTS if self._folder.exists(self._request(what, attempt))), None)

    def reason_of(self, what: str, attempt: int) -> str:
        """Return the reason given with a request; "" without a readable one."""
        with suppress(MissingDataError, FormatError):
            return str(read_json(self._folder, self._request(what, attempt), {"reason": str})["reason"])
        return ""

    def _request(self, what: str, attempt: int) -> str:
        return self._at(f"control/{what}-{attempt:06d}.json")

    # Models and checkpoints

    def save(self, model: AnyModel) -> None:
        """Save this model and make it the current model. After an error the previous model stays current."""
        self._check()
        self._saved["model"] = self._snapshots("models").publish(partial(save_model, model), lease=self.lease)

    def has_model(self) -> bool:
        """Return True if the job has a model."""
        return self._snapshots("models").current() is not None

    def model(self, *, allow_code: bool = False) -> AnyModel:
        """Return the current model: the newest one with a whole head, not older than the one that events name.

        Raises ``MissingDataError`` without one, or as ``load_model`` does.
        """
        self.spec()
        return self._stable(lambda: self._newest_model(allow_code), self._snapshots("models").current)

    def _newest_model(self, allow_code: bool) -> AnyModel:
        events = self.events()
        named = next((str(event["model"]) for event in reversed(events) if "model" in event), "")
        newest = next((name for name, whole in self._snapshots("models").newest() if whole), "")
        if newest and newest >= named:
            return load_model(self._folder.place(newest), allow_code=allow_code)
        if named and fold(events).status is not Status.CANCELLED:
            raise MissingDataError(
                f"{self.location}/{named}, the last model, is missing or damaged: restore this folder, or run the job "
                "again"
            )
        raise MissingDataError(f"{self.location}: the job has no model yet")

    def checkpoint(self, value: Any) -> None:
        """Store this checkpoint as the one to resume from."""
        self._check()
        self._snapshots("checkpoints").publish(partial(save_checkpoint, value), lease=self.lease)

    def restore(self, wanted: Callable[[Any], bool] = lambda value: True, *, allow_code: bool = False) -> Any:
        """Return the newest ``wanted`` checkpoint that can be read, or None if no such checkpoint was stored.

        Raises ``MissingDataError`` if all are damaged.
        """
        damaged: list[str] = []
        for name, whole in self._snapshots("checkpoints").newest():
            place = self._folder.place(name)
            if not whole:
                damaged.append(f"{place}: damaged, or another checkpoint")
                continue
            try:
                value = load_checkpoint(place, allow_code=allow_code)
                if wanted(value):
                    return value
            except NewerFormatError:
                raise
            except (MissingDataError, FormatError) as error:
                damaged.append(str(error))
        if damaged:
            raise MissingDataError(f"{self.location}: no checkpoint can be read: " + "; ".join(damaged))
        return None

    def has_progress(self) -> bool:
        """Return True if the job has a model, or a checkpoint after a line of history."""
        return self.has_model() or self.restore(has_begun, allow_code=True) is not None

    # Removal

    def forget(self) -> None:
        """Remove the models and checkpoints of a cancelled job. Its request and its events are kept."""
        self._check()
        with storing(self.location):
            for name in KEPT:
                self._folder.remove(self._at(name))

    def discard(self) -> None:
        """Remove the job and its folder."""
        self.release()
        self._folder.remove()

    def _remove_older(self) -> None:
        """Remove the jobs that the current one overwrites, specs first. A later one is kept: its writer took over."""
        run, names = self._current_run(), self._folder.list()
        found = [(name, pattern.fullmatch(name)) for pattern in (SPECS, RUNS) for name in names]
        older = [name for name, match in found if match and int(match[1] or 0) < run]
        for name in [*older, *(("events", "control", *KEPT) if run else ())]:
            self._folder.remove(name)
