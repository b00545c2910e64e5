"""Read and write the folder of a job: its request, its events, its models and its checkpoints.

    JOB/spec.json                     the request: parameters, fingerprint of the DATA, versions of packages
    JOB/events/000001.json            one numbered object per event, created exclusively and never changed
    JOB/models/000002-000007/         a model, named by the epoch of its writer and a number: the newest complete one
                                      is the current model (storage.lease)
    JOB/checkpoints/…                 checkpoints of the fit, as above (jobs.checkpoint)
    JOB/control/abort-000001.json     a request to end attempt 1
    JOB/lease/000002.json             the process that runs the job (storage.lease)

A process killed at any moment leaves every finished event, model and checkpoint. Only the holder of the lease writes.
Readers ignore what a process writes after it has lost the lease: an event holds the epoch and the token of its writer's
lease. A job that overwrites another one continues its epochs: its first claim makes void what the old driver writes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import asdict
from functools import partial
from typing import Any, Self

from partirvm.errors import ExistsError, FormatError, LeaseError, MissingDataError
from partirvm.jobs.checkpoint import load_checkpoint, save_checkpoint
from partirvm.jobs.state import JobState, Status, fold, observed
from partirvm.model import AnyModel, load_model, save_model
from partirvm.storage import lease as leases
from partirvm.storage import open_folder, storing
from partirvm.storage.address import require_address
from partirvm.storage.lease import Lease, Snapshots, valid
from partirvm.storage.records import TIME, Schema, numbered, numbers, read_json, require, require_format, to_json

FORMAT = 10
READS = 5  # maximum number of reads of a model
KEPT = {"models": 2, "checkpoints": 3}  # numbers kept: an earlier checkpoint than a final one must be there
REQUESTS = ("cancel", "abort")  # what any process may request of a running job, the strongest first
SPEC_NAME, EVENTS = "spec.json", "events"

# Schemas (``storage.records``) of a request and of events: fields that readers use. Objects may have more fields.

FINGERPRINT = {"n_rows": int, "n_features": int, "hashes": list[str], "about": str, "moments": str}

LEAST: Schema = {"time": TIME, "parameters?": {}, "cluster?": str}

SPEC: Schema = LEAST | {"data": str, "validation": str | None, "parameters": {"kernel": Any, "basis": Any}}
SPEC |= {"versions": dict[str, str], "fingerprint": FINGERPRINT, "validation_fingerprint": (FINGERPRINT, None)}

EVENT: Schema = {"event": str, "time": TIME, "epoch": int, "token": str, "model?": str, "reason?": str, "cluster?": str}
EVENT |= {"history?": int, "seconds?": float | None, "changes?": {}, "data?": str, "validation?": str | None}
EVENT |= {"fingerprint?": FINGERPRINT, "rounds?": int | None}


class JobStore:
    """Reads and writes the folder of one job. ``lease`` is the lease of this process, or None without a lease."""

    def __init__(self, location: str | os.PathLike[str]) -> None:
        require_address(os.fspath(location))
        self.location = os.fspath(location).rstrip("/")
        self.lease: Lease | None = None
        self.folder = open_folder(self.location)
        self._series = {name: Snapshots(self.folder, name, kept) for name, kept in KEPT.items()}
        self._saved: dict[str, str] = {}  # the model saved last, until an event names it

    @classmethod
    def create(cls, location: str | os.PathLike[str], spec: dict[str, Any], *, overwrite: bool = False) -> Self:
        """Create the folder of a job and return its store.

        Raises ``ExistsError``, ``LeaseError`` if a process runs the job there, or ``StorageError``.
        """
        store = cls(location)
        folder, place = store.folder, store.location
        with storing(place), ExitStack() as held:
            if folder.exists() and not folder.empty():
                if not overwrite:
                    raise ExistsError(
                        f"{place} exists already: replace a job with --overwrite, or continue it with `partirvm resume`"
                    )
                if not {SPEC_NAME, "lease"} & {*folder.list()}:
                    raise ExistsError(f"{place} exists and is not a job: it is not overwritten; choose another folder")
                void = {series: [0, 0] for series in (EVENTS, *KEPT)}
                lease = leases.acquire(folder, lambda: void)
                held.enter_context(lease)
                for name in (SPEC_NAME, EVENTS, "control", *KEPT):
                    folder.remove(name, lease.check)  # another process may have taken over meanwhile
                lease.check()
            else:
                folder.remove_empty()
            try:
                folder.create(SPEC_NAME, to_json(SPEC_NAME, {"format": FORMAT, "time": time.time(), **spec}))
            except BaseException as error:
                folder.remove_empty()
                if not isinstance(error, FileExistsError):
                    raise
                raise ExistsError(f"{place}: another process has just started a job here") from error
        return store

    def exists(self) -> bool:
        """Return True if the folder holds a job, readable or not."""
        return self.folder.exists(SPEC_NAME)

    def spec(self, schema: Schema = LEAST) -> dict[str, Any]:
        """Return the request. Raises ``MissingDataError`` without a job, ``FormatError`` if it is damaged."""
        try:
            spec = read_json(self.folder, SPEC_NAME)
        except MissingDataError as error:
            raise MissingDataError(f"{self.location}: no job here (spec.json is missing)") from error
        require_format(spec.get("format"), FORMAT, self.location, "job")
        require(spec, schema, f"{self.location}/{SPEC_NAME}")
        return spec

    def acquire(self, *, patience: float = 0.0) -> Lease:
        """Take the lease, for a block. Raises ``LeaseError`` if another process holds it."""
        self.spec()
        self.lease = leases.acquire(self.folder, self._marks, patience=patience)
        return self.lease

    def holder(self) -> leases.Holder | None:
        """Return the current or the last holder of the lease."""
        return leases.holder(self.folder)

    def _held(self) -> Lease:
        """Return the lease of this process. Raises ``LeaseError`` without it: only its holder may write."""
        if self.lease is None:
            raise LeaseError(f"{self.location}: only the holder of the lease may write to this job: call acquire first")
        self.lease.check()
        return self.lease

    def _marks(self) -> leases.Marks:
        return {EVENTS: [0, self._last_event()], **{name: list(each.mark()) for name, each in self._series.items()}}

    def record(self, entry: dict[str, Any]) -> None:
        """Append an event with the time, and the ``model`` saved since the last event."""
        lease = self._held()
        event = {"event": entry["event"], "time": time.time(), **entry, **self._saved}
        event |= {"epoch": lease.epoch, "token": lease.token}
        with storing(f"{self.location}/{EVENTS}"):
            number, created = self._last_event(), False
            while not created:
                name = numbered(EVENTS, number := number + 1)
                with suppress(FileExistsError):  # another writer, or a listing of a network disk that lags behind
                    self.folder.create(name, to_json(name, event))
                    created = True
        lease.check()
        self._saved = {}

    def _last_event(self) -> int:
        return max(numbers(self.folder, EVENTS, first=1), default=0)

    def events(self) -> list[dict[str, Any]]:
        """Return all valid events in order. Raises ``FormatError`` or ``MissingDataError`` for damage or a gap."""
        events = list[dict[str, Any]]()
        found = {n: read_json(self.folder, numbered(EVENTS, n), EVENT) for n in numbers(self.folder, EVENTS, first=1)}
        claims = leases.claims(self.folder)
        for number, event in found.items():
            if not valid(claims, EVENTS, event["epoch"], (0, number)):
                continue
            if event.pop("token") != claims.get(event["epoch"], {}).get("token"):
                raise FormatError(
                    f"{self.location}: {numbered(EVENTS, number)} belongs to another job than the claim of epoch "
                    f"{event['epoch']} in lease/: restore these files"
                )
            if events[-1:] != [event]:  # otherwise written again by a client that heard no reply
                events.append(event)
        return events

    def folded(self, schema: Schema = LEAST) -> JobState:
        """Return the state by the request and the events alone."""
        return fold(self.events(), self.spec(schema))

    def asked(self) -> JobState:
        """Return ``folded``. Raises ``FormatError`` if a field of the request that a fit needs is missing or wrong."""
        return self.folded(SPEC)

    def state(self) -> JobState:
        """Return the state of the job, computed from its events, its lease and the requests to end it."""
        while True:
            before, state, last = self.holder(), self.folded(), self.holder()
            one, two = (None if each is None else (each.epoch, each.over) for each in (before, last))
            if one == two:  # no driver has begun or ended meanwhile
                break
        held = last is not None and last.alive()
        lost = last is not None and not (held or last.over)
        return observed(state, held=held, requested=self.requested(state.attempt), lost=lost)

    def request(self, what: str, attempt: int, reason: str = "") -> None:
        """Request that an attempt ends, with ``what`` "abort" or "cancel"; no-op if it was requested before."""
        name = _request(what, attempt)
        request = {"time": time.time(), "reason": reason, **asdict(leases.Process.this())}
        with storing(self.location), suppress(FileExistsError):
            self.folder.create(name, to_json(name, request))

    def requested(self, attempt: int) -> tuple[str, str] | None:
        """Return the strongest request for this attempt and its reason, "" if unreadable; None without a request."""
        for what in REQUESTS:
            name = _request(what, attempt)
            if self.folder.exists(name):
                with suppress(MissingDataError, FormatError):
                    return what, str(read_json(self.folder, name, {"reason": str})["reason"])
                return what, ""
        return None

    def save(self, model: AnyModel) -> None:
        """Save this model as the current one. After an error the previous model stays current."""
        self._saved["model"] = self._series["models"].publish(partial(save_model, model), lease=self._held())

    def has_model(self) -> bool:
        """Return True if the job has a model."""
        return self._series["models"].mark() > (0, 0)

    def model(self, *, allow_code: bool = False) -> AnyModel:
        """Return the newest whole model, not older than the one that events name; else ``MissingDataError``."""
        self.spec()
        for _ in range(READS - 1):  # a driver may remove a model while it is read
            with suppress(MissingDataError):
                return self._newest_model(allow_code)
        return self._newest_model(allow_code)

    def _newest_model(self, allow_code: bool) -> AnyModel:
        events = self.events()
        named = next((str(event["model"]) for event in reversed(events) if "model" in event), "")
        newest = next((name for name, whole in self._series["models"].newest() if whole), "")
        if newest and newest >= named:
            return load_model(self.folder.place(newest), allow_code=allow_code)
        if named and fold(events).status is not Status.CANCELLED:
            raise MissingDataError(
                f"{self.location}/{named}, the last model, is missing or damaged: restore this folder, or run the job "
                "again"
            )
        raise MissingDataError(f"{self.location}: the job has no model yet, or was cancelled and its model discarded")

    def checkpoint(self, value: Any) -> None:
        """Store this checkpoint as the one to resume from."""
        self._series["checkpoints"].publish(partial(save_checkpoint, value), lease=self._held())

    def restore(self, wanted: Callable[[Any], bool] = lambda value: True, *, allow_code: bool = False) -> Any:
        """Return the newest ``wanted`` checkpoint that can be read, or None. Raises ``MissingDataError`` for damage."""
        damaged: list[str] = []
        for name, whole in self._series["checkpoints"].newest():
            place, value = self.folder.place(name), None  # the one before may be large: it is freed
            try:
                if not whole:
                    raise FormatError(f"{place}: damaged, or another checkpoint")
                value = load_checkpoint(place, allow_code=allow_code)
            except (MissingDataError, FormatError) as error:
                damaged.append(str(error))
                continue
            if wanted(value):
                return value
        if damaged:
            raise MissingDataError(f"{self.location}: no checkpoint can be read: " + "; ".join(damaged))
        return None

    def forget(self) -> None:
        """Remove the models and checkpoints of a cancelled job. Its request and its events are kept."""
        lease = self._held()
        with storing(self.location):
            for name in KEPT:
                self.folder.remove(name, lease.check)


def _request(what: str, attempt: int) -> str:
    return f"control/{what}-{attempt:06d}.json"
