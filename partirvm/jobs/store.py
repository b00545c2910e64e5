"""Read and write a job folder: its request, its events, its models and its checkpoints.

    JOB/spec.json                     the request: parameters, fingerprint of the DATA, package
                                      versions
    JOB/events/000001.json            one numbered object per event, created exclusively and never
                                      changed
    JOB/models/000002-000007/         a model, named by the epoch of its writer and a number
                                      (storage.codec); the one that the last event names is the
                                      current one
    JOB/checkpoints/…                 checkpoints of the fit, as above (jobs.checkpoint)
    JOB/cells/…                       rows of local residuals of a model that memory cannot hold
                                      (local.cells)
    JOB/control/abort-000001.json     a request to end attempt 1
    JOB/lease/000002.json             the process that runs the job (storage.lease)

All events, and the groups that they name, survive if a process is killed. Only the lease holder
writes. Readers ignore anything that a process writes after losing the lease: an event contains the
epoch and the token of its writer's lease, and the ``about`` of a group contains its name and this
token. A job that overwrites another one continues its epochs, so that its first claim invalidates
later writes by the old driver. The previous group is kept, because other processes may still read
it, or the last group may be damaged.
"""

import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import asdict, replace
from functools import partial
from typing import Any, Self, cast

from partirvm.errors import ExistsError, FormatError, LeaseError, MissingDataError
from partirvm.jobs.checkpoint import load_checkpoint, save_checkpoint
from partirvm.jobs.state import JobState, Status, fold, observed
from partirvm.local.cells import Cells
from partirvm.model import AnyModel, load_model, save_model
from partirvm.storage import Folder, Where, open_folder, storing
from partirvm.storage import lease as leases
from partirvm.storage.address import address
from partirvm.storage.codec import HEAD
from partirvm.storage.lease import Lease, LeaseTimes
from partirvm.storage.records import HEAD as MOST_JSON
from partirvm.storage.records import (
    TIME,
    Schema,
    listed_numbers,
    numbered,
    numbers,
    read_json,
    require,
    require_format,
    to_json,
)

FORMAT = 13
READS = 5  # maximum number of attempts to read a model
KEPT = {
    "model": 2,
    "checkpoint": 3,
    "cell": 2,
}  # number of groups kept; one checkpoint must precede a final one
REQUESTS = ("cancel", "abort")  # requests about a running job from any process, strongest first
SPEC_NAME = "spec.json"
EVENTS = "events"

# Schemas (``storage.records``) of a request and of events, with the fields that readers use.
# Objects may have more fields.

FINGERPRINT = {"n_rows": int, "n_features": int, "hashes": list[str], "about": str, "moments": str}

SPEC: Schema = {
    "time": TIME,
    "data": str,
    "validation": str | None,
    "parameters": {"kernel": Any, "basis": Any},
}
SPEC |= {
    "scheduler?": str,
    "versions": dict[str, str],
    "fingerprint": FINGERPRINT,
    "validation_fingerprint": (FINGERPRINT, None),
}

EVENT: Schema = {"event": str, "time": TIME, "epoch": int, "token": str, "reason?": str}
EVENT |= {"model?": str, "checkpoint?": str, "fingerprint?": FINGERPRINT, "rounds?": int | None}
EVENT |= {"scheduler?": str, "lost?": int, "last?": TIME}
EVENT |= {
    "history?": int,
    "seconds?": float | None,
    "changes?": {},
    "data?": str,
    "validation?": str | None,
}
EVENT |= {"versions?": dict[str, str]}


class JobStore:
    """Store that reads and writes one job folder. ``lease`` is this process's lease, or None
    without one; ``times`` are the times of leases."""

    def __init__(self, location: Where, times: LeaseTimes | None = None) -> None:
        self.times = times or leases.TIMES
        self.location = address(location).rstrip("/")
        self.lease: Lease | None = None
        self.folder = open_folder(self.location)
        self._saved: dict[str, str] = {}  # groups not yet named by an event
        self._stay = dict[str, list[str]]()  # groups to keep, once this process has written any
        self._numbers = Counter[str]()

    @classmethod
    def create(
        cls,
        location: Where,
        spec: dict[str, Any],
        *,
        overwrite: bool = False,
        times: LeaseTimes | None = None,
    ) -> Self:
        """Create a job folder.

        Args:
            location: the folder
            spec: the request
            overwrite: whether to replace a job
            times: the times of leases

        Raises ``ExistsError``, ``StorageError``, and ``LeaseError`` while a process runs the old
        job.
        """
        store = cls(location, times)
        folder = store.folder
        place = store.location
        with storing(place), ExitStack() as held:
            if folder.exists() and not folder.empty():
                if not _is_job(folder):
                    raise ExistsError(
                        f"{place} exists and is not a job, so it is not overwritten: use another "
                        "folder"
                    )
                if not overwrite:
                    raise ExistsError(
                        f"{place} already exists: replace a job with --overwrite, or continue it "
                        "with `partirvm resume`"
                    )
                lease = held.enter_context(leases.acquire(folder, times=store.times))
                lease.check()
                folder.remove(SPEC_NAME)
                store._clear(lease, EVENTS, "control", *(f"{kind}s" for kind in KEPT))
                lease.check()
            try:
                folder.create(
                    SPEC_NAME, to_json(SPEC_NAME, {"format": FORMAT, "time": time.time(), **spec})
                )
            except BaseException as error:
                folder.remove_empty()
                if not isinstance(error, FileExistsError):
                    raise
                raise ExistsError(
                    f"{place}: another process has just started a job here"
                ) from error
        return store

    def exists(self) -> bool:
        """Return True if the folder contains a job, readable or not."""
        return self.folder.exists(SPEC_NAME)

    def spec(self) -> dict[str, Any]:
        """Return the request. Raises ``MissingDataError`` if there is no job, ``FormatError`` if
        the request is damaged."""
        try:
            spec = read_json(self.folder, SPEC_NAME)
        except MissingDataError as error:
            raise MissingDataError(_no_job(self.folder)) from error
        require_format(spec.get("format"), FORMAT, self.location, "job")
        require(spec, SPEC, f"{self.location}/{SPEC_NAME}")
        return spec

    def acquire(self, *, patience: float = 0.0) -> Lease:
        """Acquire the lease for a ``with`` block. Raises ``LeaseError`` if another process holds
        it."""
        self.spec()
        self._stay = {}
        self._saved = {}
        self.lease = leases.acquire(
            self.folder, self._last_event, patience=patience, times=self.times
        )
        return self.lease

    def holder(self) -> leases.Holder | None:
        """Return the current or the last holder of the lease."""
        return leases.holder(self.folder, self.times)

    def _held(self) -> Lease:
        """Return this process's lease. Raises ``LeaseError`` without one: only the holder may
        write."""
        if self.lease is None:
            raise LeaseError(
                f"{self.location}: only the holder of the lease may write to this job: call "
                "acquire first"
            )
        self.lease.check()
        return self.lease

    def record(self, entry: dict[str, Any]) -> None:
        """Append an event with the time and the names of the groups written since the last event;
        cells are named only along with a model."""
        lease = self._held()
        named = {
            kind: name
            for kind, name in self._saved.items()
            if kind != "cell" or "model" in self._saved
        }
        event = {"event": entry["event"], "time": time.time(), **entry, **named}
        event |= {"epoch": lease.epoch, "token": lease.token}
        with storing(f"{self.location}/{EVENTS}"):
            number = self._last_event()
            created = False
            while not created:
                name = numbered(EVENTS, number := number + 1)
                with suppress(
                    FileExistsError
                ):  # another writer, or a network disk with an outdated listing
                    self.folder.create(name, to_json(name, event))
                    created = True
        lease.check()
        if entry["event"] == Status.RUNNING:
            self._tidy("cell")  # a killed attempt may have left cells, and this one may write none
        for kind, name in named.items():
            self._tidy(kind, name)
        self._saved = {kind: name for kind, name in self._saved.items() if kind not in named}

    def _last_event(self) -> int:
        return max(numbers(self.folder, EVENTS, first=1), default=0)

    def events(self) -> list[dict[str, Any]]:
        """Return all valid events in order. Raises ``FormatError`` or ``MissingDataError`` for
        damage or a gap."""
        events = list[dict[str, Any]]()
        by_number = {
            n: read_json(self.folder, numbered(EVENTS, n), EVENT)
            for n in numbers(self.folder, EVENTS, first=1)
        }
        claims = leases.claims(self.folder)
        for number, event in by_number.items():
            if any(
                event["epoch"] < later and number > claim["mark"] for later, claim in claims.items()
            ):
                continue
            if event["token"] != claims.get(event["epoch"], {}).get("token"):
                raise FormatError(
                    f"{self.location}: {numbered(EVENTS, number)} belongs to a different job from "
                    f"the claim of epoch {event['epoch']} in lease/: restore these files"
                )
            if events[-1:] != [event]:  # equal if a client that got no reply wrote it again
                events.append(event)
        return events

    def folded(self) -> JobState:
        """Return the state computed from the request and the events alone."""
        return fold(self.events(), self.spec())

    def state(self) -> JobState:
        """Return the state of the job, computed from its events, its lease and any requests to end
        it."""
        while True:
            before = self.holder()
            state = self.folded()
            last = self.holder()
            one, two = (
                None if each is None else (each.epoch, each.over) for each in (before, last)
            )
            if one == two:  # no driver has begun or ended meanwhile
                break
        held = last is not None and last.alive()
        lost = last is not None and not (held or last.over)
        state = observed(state, held=held, requested=self.requested(state.attempt), lost=lost)
        return (
            replace(state, doing=last.doing)
            if last is not None and state.status is Status.RUNNING
            else state
        )

    def request(self, what: str, attempt: int, reason: str = "") -> None:
        """Request that an attempt end, with ``what`` "abort" or "cancel"; does nothing if already
        requested."""
        name = f"control/{what}-{attempt:06d}.json"
        request = {"time": time.time(), "reason": reason, **asdict(leases.Process.this())}
        with storing(self.location), suppress(FileExistsError):
            self.folder.create(name, to_json(name, request))

    def requested(self, attempt: int) -> tuple[str, str] | None:
        """Return the strongest request for this attempt, with its reason ("" if unreadable); None
        if there is no request."""
        for what in REQUESTS:
            if self.folder.exists(name := f"control/{what}-{attempt:06d}.json"):
                with suppress(MissingDataError, FormatError):
                    return what, str(read_json(self.folder, name, {"reason": str})["reason"])
                return what, ""
        return None

    def save(self, model: AnyModel) -> None:
        """Write this model, which becomes current as soon as the next event is recorded."""
        if not model.cells_place and (unused := self._saved.pop("cell", "")):
            self.folder.remove(unused)  # the run ended before its model used the cells
        self._write("model", partial(save_model, model))

    def keep_cells(self, write: Callable[[str], Cells]) -> Cells:
        """Call ``write``, which writes local-residual rows to a new folder, and return its result;
        the event of the next model names this folder."""
        cells = cast(Cells, self._write("cell", lambda place, about: write(place)))
        self.folder.flush(self._saved["cell"])
        return cells

    def checkpoint(self, value: Any) -> None:
        """Store this checkpoint as the one from which the job resumes."""
        self._write("checkpoint", partial(save_checkpoint, value))
        self.record({"event": "checkpoint"})

    def _write(self, kind: str, write: Callable[[str, dict[str, Any]], object]) -> object:
        """Write a group by calling ``write``, and return its result. After an error, no part of the
        group remains."""
        lease = self._held()
        self._numbers[kind] += 1
        name = f"{kind}s/{lease.epoch:06d}-{self._numbers[kind]:06d}"
        place = self.folder.place(name)
        with storing(place):
            try:
                written = write(place, {"name": name, "token": lease.token})
            except BaseException:
                # a new holder may have caused the error, since it removes unfinished groups
                lease.check()
                with suppress(OSError):
                    self.folder.remove(name)
                raise
            lease.check()
        self._saved[kind] = name
        return written

    def _tidy(self, kind: str, *newest: str) -> None:
        """Remove all groups except the ``newest``, the last ones named by events, and groups from
        later writers."""
        assert self.lease is not None
        with suppress(OSError):
            places = [f"{kind}s/{each}" for each in self.folder.list(f"{kind}s")]
            if not places:
                return
            before = self._stay.get(kind) or [event[kind] for event in self._naming(kind)]
            self._stay[kind] = stay = [*(name for name in before if name not in newest), *newest][
                -KEPT[kind] :
            ]
            for name in places:
                if name not in stay and name < f"{kind}s/{self.lease.epoch + 1:06d}":
                    self.folder.remove(f"{name}/{HEAD}")
                    self.folder.remove(name)

    def _naming(self, kind: str) -> list[dict[str, Any]]:
        """Return the last events that name a group of this kind; none after a cancel, which removes
        the groups."""
        events = self.events()
        over = any(event["event"] == Status.CANCELLED for event in events)
        return [] if over else [event for event in events if kind in event][-KEPT[kind] :]

    def _read(
        self, kind: str, event: dict[str, Any], load: Callable[..., Any], allow_code: bool
    ) -> Any:
        """Return the contents of a group that an event names. Raises ``FormatError`` if the group
        belongs to another event.

        Args:
            kind: the kind of group, "model" or "checkpoint", which is also the key of its name in
                the event
            event: the recorded event, with a token
            load: reads the group at a location
            allow_code: True to allow functions that the group names
        """
        name = event[kind]
        if read_json(self.folder.at(name), HEAD).get("about") != {
            "name": name,
            "token": event["token"],
        }:
            raise FormatError(f"{self.folder.place(name)}: damaged, or another {kind}")
        return load(self.folder.place(name), allow_code=allow_code)

    def has_model(self) -> bool:
        """Return True if the job has a model."""
        return bool(self._naming("model"))

    def model(self, *, allow_code: bool = False) -> AnyModel:
        """Return the last model that an event names. Raises ``MissingDataError`` if the model is
        missing or damaged."""
        self.spec()
        for left in reversed(range(READS)):
            if not (found := self._naming("model")):
                break
            try:
                load = partial(load_model, cells=self.folder.place("cells"))
                return cast(AnyModel, self._read("model", found[-1], load, allow_code))
            except MissingDataError:  # a driver may remove a model while it is being read
                if not left:
                    raise
        raise MissingDataError(
            f"{self.location}: the job has no model yet, or was cancelled and its model discarded"
        )

    def restore(
        self, wanted: Callable[[Any], bool] = lambda value: True, *, allow_code: bool = False
    ) -> Any:
        """Return the newest readable checkpoint for which ``wanted`` is true, or None. Raises
        ``MissingDataError`` for damage."""
        damaged: list[str] = []
        for event in reversed(self._naming("checkpoint")):
            value = None  # frees the previous checkpoint, which may be large
            try:
                value = self._read("checkpoint", event, load_checkpoint, allow_code)
            except (MissingDataError, FormatError) as error:
                damaged.append(str(error))
                continue
            if wanted(value):
                return value
        if damaged:
            raise MissingDataError(
                f"{self.location}: no checkpoint can be read: " + "; ".join(damaged)
            )
        return None

    def forget(self) -> None:
        """Remove the models and checkpoints of a cancelled job; its request and events are kept."""
        with storing(self.location):
            self._clear(self._held(), *(f"{kind}s" for kind in KEPT))

    def _clear(self, lease: Lease, *names: str) -> None:
        """Remove folders, one child after another, unless another process acquires the lease in the
        meantime."""
        for name in names:
            for child in self.folder.list(name, hidden=True):
                lease.check()
                self.folder.remove(f"{name}/{child}")
            self.folder.remove_empty(name)


def _is_job(folder: Folder) -> bool:
    """Return True if partirvm wrote a job's request or a claim of its lease here, even if the file
    is damaged."""
    for name in (
        SPEC_NAME,
        *(numbered("lease", number) for number in listed_numbers(folder, "lease")),
    ):
        with suppress(OSError):
            if f'"object": "{name}"'.encode() in folder.read(name, MOST_JSON):
                return True
    return False


def _no_job(folder: Folder) -> str:
    """Return an error message for a place without a job."""
    if not folder.exists():
        reason = "no job here: this path does not exist"
    elif folder.is_file():
        reason = "no job here: this is a file, and a job is a folder"
    else:
        reason = f"no job here: {SPEC_NAME} is missing"
    return (
        f"{folder.location}: {reason}: check the path, or start a job with `partirvm fit DATA JOB`"
    )
