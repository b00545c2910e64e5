"""The log of a job's events. Each event is a numbered JSON object that is created exclusively and never changed.

    JOB/events/000001.json    {"event": "queued", "time": 1785600000.0, "epoch": 0, ...}

``event`` is the kind of the event, ``time`` its time in seconds since 1970, and ``epoch`` the epoch of the writer's
lease (0 without a lease). ``token`` is the token of this lease, or that of the job's spec without a lease: it binds the
event to its job. Two writers never get the same number. Readers ignore the event of a writer that had lost its lease
(``storage.lease``).

If a file system does not support links, processes killed during a write may leave truncated last objects. Readers
ignore truncated last objects, because a process may still be writing them. The next writer lists the numbers of the
truncated objects under ``skips`` in its own event.

Readers raise an error for a truncated object in any other position, for a damaged object, for a missing number and for
an event of another job. They also raise an error if the claim of the lease under which an event was written is missing.
The newest claim and the release of its lease state how many events there are at least.
An event that equals the event before it, its time included, is the same event, written again by a client that heard no
reply.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

from partirvm.core.termination import Termination
from partirvm.errors import CutShortError, FormatError, MissingDataError
from partirvm.storage.folder import Folder, listed_numbers, numbered, numbers, read_json, storing, to_json
from partirvm.storage.lease import Lease, claims, ends, limits, valid
from partirvm.storage.schema import MOST, TIME, Schema

Event = dict[str, Any]

SERIES = "events"

# The schemas (``storage.schema``) of a request and of events: fields that readers use. Objects may have further fields.

FINGERPRINT = {"n_rows": int, "n_features": int, "hashes": [str], "about": str, "moments": str}

SPEC = {
    "data": str,
    "validation": (str, None),
    "fingerprint": FINGERPRINT,
    "validation_fingerprint": (FINGERPRINT, None),
    "parameters": {"kernel": Any, "basis": Any},
    "versions": {"*": str},
}

EVENT = {
    "event": str,
    "time": TIME,
    "epoch": int,
    "token": str,
    "model?": str,
    "skips?": [int],
    "reason?": str,
    "cluster?": str,
    "history?": int,
    "seconds?": (TIME, None),
    "changes?": {},
    "data?": str,
    "validation?": (str, None),
    "fingerprint?": FINGERPRINT,
    "rounds?": (int, None),
}

NUMBER = (float, None)

PLAN = {
    "rows": int,
    "features": int,
    "strategy": str,
    "fit_rows": str,
    "sample_rows": (int, None),
    "selection": str,
    "partition_size": (int, None),
    "partitions": (int, None),
    "rho": NUMBER,
    "passes": int,
    "rounds": int,
    "max_rounds": (int, None),
    "max_vectors": (int, None),
    "max_columns": int,
    "threads": int,
    "workers": int,
    "seconds": range(MOST),
    "memory_limit": int,
    "memory_peak": int,
    "notes": [str],
}

FIT = {
    "kind": frozenset({"round", "part", "heuristic", "kernel", "early", "final"}),
    "number": int,
    "rows": int,
    "candidates": int,
    "vectors": int,
    "iterations": int,
    "termination": frozenset(each.value for each in Termination),
    "log_evidence": float,
    "noise_variance": NUMBER,
    "train_rmse": NUMBER,
    "level": (int, None),
    "held_out_rmse": NUMBER,
    "held_out_nlpd": NUMBER,
    "train_log_loss": NUMBER,
    "train_error": NUMBER,
    "held_out_log_loss": NUMBER,
    "held_out_error": NUMBER,
    "gain": NUMBER,
    "taken": (bool, None),
    "choice": ({}, None),
    "noise_sd": NUMBER,
    "diagnostics": [{}],
    "reference?": {"rows": int, "rmse": float, "others": {"*": float}, "remarks": [str]},
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
            lease.wrote[self.series] = number
        return number

    def read(self) -> list[Event]:
        """Return all valid events in order.

        Raises ``FormatError`` for a damaged event and ``MissingDataError`` for a missing event. The message contains
        the number of the event.
        """
        found = self._objects()
        held = claims(self._folder)
        self._require_end(found[-1][0] if found else 0, held)
        marks, tokens = (
            limits(self._folder, self.series, held),
            {epoch: claim.get("token") for epoch, claim in held.items()},
        )
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

    def _require_end(self, last: int, held: dict[int, dict[str, Any]]) -> None:
        """Raise ``MissingDataError`` if events after the ``last`` whole one are gone, and ``FormatError`` if one is
        truncated although its writer went on.
        """
        at_claim, wrote = ends(self._folder, self.series, held)
        for number in range(last + 1, max(at_claim, wrote) + 1):
            try:
                read_json(self._folder, self._name(number))
            except CutShortError:
                if number <= wrote:
                    raise

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
        """Return the last number as the pair (0, number), at least that of earlier claims. The numbers alone give the
        order of writing.
        """
        return 0, max([0, *self._numbers(), *ends(self._folder, self.series, claims(self._folder))])

    def _token(self) -> str:
        return str(read_json(self._folder, self._spec, {"token": str})["token"])

    def _create(self, event: Event) -> int:
        skips: list[int] = []
        if self._last is None:
            self._last, skips = self._end()
        while True:
            number = self._last + 1
            try:
                said = {**event, "skips": skips} if skips else event
                self._folder.create(self._name(number), to_json(self._name(number), said))
            except FileExistsError:
                self._last, skips = self._end(number)
                continue
            self._last = number
            return number

    def _end(self, known: int = 0) -> tuple[int, list[int]]:
        """Return the last number, and the numbers to skip: those of the truncated objects at the end.

        ``known`` is a number that exists, even if the listing of a network disk does not show it yet.
        """
        last = first = max([known, *self._numbers()])
        while first and self._object(first) is None:
            first -= 1
        return last, list(range(first + 1, last + 1))

    def _objects(self) -> list[tuple[int, Event]]:
        """Return all whole events by number. Truncated objects are omitted at the end and where an event skips them."""
        found = {number: self._object(number) for number in self._numbers()}
        whole = [(number, event) for number, event in found.items() if event is not None]
        skipped = {number for _, event in whole for number in event.get("skips", ())}
        for number in found.keys() - skipped - {number for number, _ in whole}:
            if whole and number < whole[-1][0]:
                read_json(self._folder, self._name(number))  # raises the error
        return whole

    def _object(self, number: int) -> Event | None:
        """Return the event of this number, or None if its object is truncated.

        Raises ``FormatError`` for a damaged object and ``MissingDataError`` for a missing one.
        """
        try:
            return read_json(self._folder, self._name(number), EVENT)
        except CutShortError:
            return None

    def _numbers(self) -> list[int]:
        return numbers(self._folder, self.series, first=1)

    def _name(self, number: int) -> str:
        return numbered(self.series, number)
