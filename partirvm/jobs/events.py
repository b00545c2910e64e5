"""The log of a job's events. Each event is a numbered JSON object that is created exclusively and never changed.

    JOB/events/000001.json    {"event": "queued", "time": 1785600000.0, "epoch": 0, ...}

``event`` is the kind of the event, ``time`` its time in seconds since 1970, and ``epoch`` the epoch of the writer's
lease (0 without a lease). ``token`` is the token of this lease, or that of the job's spec without a lease: it binds the
event to its job. Two writers never get the same number. Readers ignore the event of a writer that had lost its lease
(``storage.lease``).

Readers raise an error for a damaged object, for a missing number and for an event of another job. They also raise an
error if the claim of the lease under which an event was written is missing.
An event that equals the event before it, its time included, is the same event, written again by a client that heard no
reply.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any, Literal

from partirvm.core.termination import Termination
from partirvm.errors import FormatError, MissingDataError
from partirvm.storage import Folder, storing
from partirvm.storage.lease import Lease, claims, limits, valid
from partirvm.storage.records import MOST, TIME, Schema, listed_numbers, numbered, numbers, read_json, to_json

Event = dict[str, Any]

SERIES = "events"

# Schemas (``storage.records``) of a request and of events: fields that readers use. Objects may have more fields.

FINGERPRINT = {"n_rows": int, "n_features": int, "hashes": list[str], "about": str, "moments": str}

SPEC = {
    "data": str,
    "validation": str | None,
    "fingerprint": FINGERPRINT,
    "validation_fingerprint": (FINGERPRINT, None),
    "parameters": {"kernel": Any, "basis": Any},
    "versions": dict[str, str],
}

EVENT = {
    "event": str,
    "time": TIME,
    "epoch": int,
    "token": str,
    "model?": str,
    "reason?": str,
    "cluster?": str,
    "history?": int,
    "seconds?": float | None,
    "changes?": {},
    "data?": str,
    "validation?": str | None,
    "fingerprint?": FINGERPRINT,
    "rounds?": int | None,
}

NUMBER = float | None

PLAN = {
    "rows": int,
    "features": int,
    "strategy": str,
    "fit_rows": str,
    "sample_rows": int | None,
    "selection": str,
    "partition_size": int | None,
    "partitions": int | None,
    "rho": NUMBER,
    "passes": int,
    "rounds": int,
    "max_rounds": int | None,
    "max_vectors": int | None,
    "max_columns": int,
    "threads": int,
    "workers": int,
    "seconds": range(MOST),
    "memory_limit": int,
    "memory_peak": int,
    "notes": list[str],
}

FIT = {
    "kind": Literal["round", "part", "heuristic", "kernel", "early", "final"],
    "number": int,
    "rows": int,
    "candidates": int,
    "vectors": int,
    "iterations": int,
    "termination": Literal[tuple(each.value for each in Termination)],
    "log_evidence": float,
    "noise_variance": NUMBER,
    "train_rmse": NUMBER,
    "level": int | None,
    "held_out_rmse": NUMBER,
    "held_out_nlpd": NUMBER,
    "train_log_loss": NUMBER,
    "train_error": NUMBER,
    "held_out_log_loss": NUMBER,
    "held_out_error": NUMBER,
    "gain": NUMBER,
    "taken": bool | None,
    "choice": dict[str, Any] | None,
    "noise_sd": NUMBER,
    "diagnostics": list[dict[str, Any]],
    "reference?": {"rows": int, "rmse": float, "others": dict[str, float], "remarks": list[str]},
    "seconds": TIME,
    "pass_seconds": TIME,
    "passes": int,
    "pass_rows": int,
    "solve_seconds": TIME,
    "solve_began": float,
    "peak_memory": int,
}

FIELDS: dict[str, Schema] = {"plan": PLAN, "fit": FIT}
"""Further fields of some kinds of events."""


class EventLog:
    """A log that appends events to a job's folder and reads all events.

    ``series`` is the folder of the events, and ``spec`` the name of the job's spec.
    """

    def __init__(self, folder: Folder, series: str = SERIES, spec: str = "spec.json") -> None:
        self.series = series
        self._folder, self._spec = folder, spec
        self._last: int | None = None
        """The last number written, or None if the last number must be read from the folder."""

    def append(self, event: Event, lease: Lease | None = None) -> int:
        """Write an event and return its number. The current time is added if the event has no ``time``.

        Raises ``LeaseLostError`` if another process has taken the lease. The event may then exist, but readers ignore
        it.
        """
        if lease is not None:
            lease.check()
        epoch, token = (0, self._token()) if lease is None else (lease.epoch, lease.token)
        stamped = {"event": event["event"], "time": time.time(), **event, "epoch": epoch, "token": token}
        with storing(f"{self._folder.location}/{self.series}"):
            number = self._create(stamped)
        if lease is not None:
            lease.check()
        return number

    def read(self) -> list[Event]:
        """Return all valid events in order.

        Raises ``FormatError`` for a damaged event and ``MissingDataError`` for a missing event. The message contains
        the number of the event.
        """
        found = [(number, read_json(self._folder, self._name(number), EVENT)) for number in self._numbers()]
        held = claims(self._folder)
        marks = limits(self._folder, self.series, held)
        tokens = {epoch: claim["token"] for epoch, claim in held.items()}
        events = [(number, event) for number, event in found if valid(event["epoch"], (0, number), marks)]
        if any(event["epoch"] == 0 for _, event in events):
            tokens[0] = self._token()
        for number, event in events:
            token, place = tokens.get(event["epoch"]), self._folder.location
            if token is None:
                raise MissingDataError(
                    f"{place}: the claim of epoch {event['epoch']} is missing in the folder lease/: restore it"
                )
            if event.pop("token") != token:
                raise FormatError(
                    f"{place}: {self._name(number)} belongs to another job than its lease or {self._spec}: restore "
                    "these files"
                )
        return [event for k, (_, event) in enumerate(events) if not k or event != events[k - 1][1]]

    def newest(self, what: str) -> str:
        """Return the newest group that a valid event names under ``what``, or "" if no event names one.

        Missing and damaged events are skipped, because a model is usable without its events. The events are read from
        the last to the first, up to the first one that names a group.
        """
        marks = limits(self._folder, self.series)
        for number in reversed(listed_numbers(self._folder, self.series)):
            with suppress(MissingDataError, FormatError):
                event = read_json(self._folder, self._name(number), EVENT)
                if what in event and valid(event["epoch"], (0, number), marks):
                    return str(event[what])
        return ""

    def mark(self) -> tuple[int, int]:
        """Return the last number as the pair (0, number). The numbers alone give the order of writing."""
        return 0, max(self._numbers(), default=0)

    def _token(self) -> str:
        return str(read_json(self._folder, self._spec, {"token": str})["token"])

    def _create(self, event: Event) -> int:
        number = (max(self._numbers(), default=0) if self._last is None else self._last) + 1
        while True:
            try:
                self._folder.create(self._name(number), to_json(self._name(number), event))
            except FileExistsError:  # a listing of a network disk may miss a new object
                number = max([number, *self._numbers()]) + 1
                continue
            self._last = number
            return number

    def _numbers(self) -> list[int]:
        return numbers(self._folder, self.series, first=1)

    def _name(self, number: int) -> str:
        return numbered(self.series, number)
