"""The log of a job's events. Each event is a numbered JSON object that is created exclusively and never changed.

    JOB/events/000001.json    {"event": "queued", "time": 1785600000.0, "epoch": 0, ...}

``event`` is the kind of the event, ``time`` its time in seconds since 1970, and ``epoch`` the epoch of the writer's
lease (0 without a lease). Two writers never get the same number. Readers ignore the event of a writer that had lost its
lease (``storage.lease``).

If a file system does not support links, a process killed during a write may leave a truncated last object. Readers
ignore a truncated last object, because a process may still be writing this object. The next writer lists the number of
the truncated object under ``skips`` in its own event.

Readers raise an error for a truncated object in any other position, for a damaged object and for a missing number. They
also raise an error if the claim of the lease under which an event was written is missing. An event that equals the
event before it, its time included, is the same event, written again by a client that heard no reply.
"""

from __future__ import annotations

import re
import time
from contextlib import suppress
from typing import Any

from partirvm.errors import CutShortError, FormatError, MissingDataError
from partirvm.storage.folder import Folder, read_json, storing, to_json
from partirvm.storage.lease import Lease, epochs, limits, valid

Event = dict[str, Any]

SERIES = "events"


class EventLog:
    """A log that appends events to a job's folder and reads all events. ``series`` is the folder of the events."""

    def __init__(self, folder: Folder, series: str = SERIES) -> None:
        self.series = series
        self._folder = folder
        self._last: int | None = None
        """The last number written, or None if the last number must be read from the folder."""

    def append(self, event: Event, lease: Lease | None = None) -> int:
        """Write an event and return its number. The current time is added if the event has no ``time``.

        Raises ``LeaseLostError`` if another process has taken the lease. The event may then exist, but readers ignore
        it.
        """
        if lease is not None:
            lease.check()
        stamped = {"event": event["event"], "time": time.time(), **event, "epoch": 0 if lease is None else lease.epoch}
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
        found = self._objects()
        marks = limits(self._folder, self.series) if found else []
        events = [event for number, event in found if valid(event["epoch"], (0, number), marks)]
        events = [event for before, event in zip([None, *events], events, strict=False) if event != before]
        lost = {event["epoch"] for event in events} - {0, *epochs(self._folder)} if events else ()
        if lost:
            raise MissingDataError(
                f"{self._folder.location}: the claim of epoch {min(lost)} is missing in the folder lease/: restore it"
            )
        return events

    def newest_model(self) -> str:
        """Return the newest model that a valid event names, or "" if no event names a model.

        Missing and damaged events are skipped, because a model is usable without its events. The events are read from
        the last to the first, up to the first one that names a model.
        """
        marks = limits(self._folder, self.series)
        for number in reversed(self._numbers()):
            with suppress(MissingDataError, FormatError):
                event = read_json(self._folder, self._name(number))
                if "model" in event and valid(event["epoch"], (0, number), marks):
                    return str(event["model"])
        return ""

    def mark(self) -> tuple[int, int]:
        """Return the last number as the pair (0, number). The numbers alone give the order of writing."""
        return 0, max(self._numbers(), default=0)

    def _create(self, event: Event) -> int:
        skips: list[int] = []
        if self._last is None:
            self._last, skips = self._end()
        while True:
            number = self._last + 1
            try:
                self._folder.create(self._name(number), to_json({**event, "skips": skips} if skips else event))
            except FileExistsError:
                self._last, skips = self._end()
                continue
            self._last = number
            return number

    def _end(self) -> tuple[int, list[int]]:
        """Return the last number, and a list of the numbers to skip: the last number if its object is truncated."""
        last = max(self._numbers(), default=0)
        return last, [last] if last and self._object(last) is None else []

    def _objects(self) -> list[tuple[int, Event]]:
        numbers = self._numbers()
        found = {number: self._object(number) for number in range(1, (numbers or [0])[-1] + 1)}
        skipped = {number for event in found.values() if event for number in event.get("skips", ())}
        for number, event in found.items():
            if event is None and number != numbers[-1] and number not in skipped:
                found[number] = read_json(self._folder, self._name(number))  # raises the error
        return [(number, event) for number, event in found.items() if event is not None]

    def _object(self, number: int) -> Event | None:
        """Return the event of this number, or None if its object is missing or truncated.

        Raises ``FormatError`` for a damaged object.
        """
        try:
            return read_json(self._folder, self._name(number))
        except (MissingDataError, CutShortError):
            return None

    def _numbers(self) -> list[int]:
        found = (re.fullmatch(r"(\d{6,})\.json", name) for name in self._folder.list(self.series))
        return sorted(int(match[1]) for match in found if match)

    def _name(self, number: int) -> str:
        return f"{self.series}/{number:06d}.json"
